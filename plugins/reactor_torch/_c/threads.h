/* Threads that help the calling one with parts of what one call computes. Who computes which part changes no bit.
 *
 * Nobody is waited for who has not begun: the calling thread takes parts from the front, helpers from the back, and one that other
 * programs keep from running takes none. A helper looks for work without sleeping for as long as there may be some at any moment.
 */

#include <stdatomic.h>
#include <time.h>

#if defined(_WIN32)
#define ALONE
typedef int pthread_t, pthread_mutex_t, pthread_cond_t, sigset_t;
#endif
#if !defined(ALONE)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#else /* no thread can be made: a team is the thread that enters it */
#define pthread_create(thread, how, work, what) ((void)(work), 1)
#define pthread_join(thread, out) ((void)0)
#define pthread_atfork(before, here, there) ((void)(there), 0)
#define pthread_sigmask(how, now, before) ((void)(now), (void)(before))
#define sigfillset(all) ((void)(all))
#define pthread_mutex_init(lock, how) ((void)0)
#define pthread_mutex_lock(lock) ((void)0)
#define pthread_mutex_unlock(lock) ((void)0)
#define pthread_cond_init(condition, how) ((void)0)
#define pthread_cond_wait(condition, lock) ((void)0)
#define pthread_cond_broadcast(condition) ((void)0)
#define sched_yield() ((void)0)
#define clock_gettime(clock, now) timespec_get(now, TIME_UTC)
#endif

enum { HELPERS = 63, MOST_PARTS = 255, LOOKS = 200, SOON = 300000 /* nanoseconds after which a helper goes to sleep */ };
enum { WORTH_HELP = 5 << 18 }; /* multiply-adds of a part: some 15 us, as with less a second thread saves nothing */

typedef void (*Part)(void *what, long part);

typedef struct {
    PyObject_HEAD
    _Atomic uint64_t claims; /* see below */
    _Atomic long finished;
    Part work;
    void *what;
    _Atomic uint64_t entry; /* by which a thread has it: there may be work at any moment; 0: nobody has */
    atomic_int asleep, ending; /* helpers that sleep; whether there will never be any work */
    atomic_int busy, used; /* whether it is at work; whether it has been since it was entered */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_int helpers; /* 0 once it is closed, which another thread may do in the middle of a work */
    unsigned process; /* which has them: a child of fork() has no threads */
    pthread_t threads[HELPERS];
} Team;

/* Entries that last, each at its number modulo ENTRIES. A thread that has entered a team looks here whether it still has it: others
 * may leave, close or free it, too. */
enum { ENTRIES = 64 };
static _Atomic uint64_t lasting[ENTRIES], entries;
static _Thread_local Team *team_here; /* the last one that this thread has entered, and by which entry */
static _Thread_local uint64_t entry_here;
static unsigned forks;

static void
forked(void)
{
    forks++;
    for (int i = 0; i < ENTRIES; i++) {
        atomic_store(&lasting[i], 0);
    }
}

INLINE Team *
my_team(void)
{
    return entry_here && atomic_load(&lasting[entry_here % ENTRIES]) == entry_here ? team_here : NULL;
}

/* 0 if there are too many. */
static uint64_t
new_entry(void)
{
    for (int tries = 0; tries < ENTRIES; tries++) {
        uint64_t entry = atomic_fetch_add(&entries, 1) + 1, nobody = 0;
        if (atomic_compare_exchange_strong(&lasting[entry % ENTRIES], &nobody, entry)) {
            return entry;
        }
    }
    return 0;
}

static void
end_entry(uint64_t entry)
{
    if (entry) { /* if it was not ended by a fork */
        atomic_compare_exchange_strong(&lasting[entry % ENTRIES], &entry, 0);
    }
}

INLINE void
look_again(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

INLINE long
nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* What is claimed of the parts of a work is one word, as both ends take from it at the same moment:
 *
 *    63                    24 23       16 15        8 7         0
 *   +------------------------+-----------+-----------+-----------+
 *   |   number of the work   |   parts   |   front   |   back    |
 *   +------------------------+-----------+-----------+-----------+
 *
 * front and back count the parts that are taken from there. By the number a word of an earlier work is never taken for one of this.
 */
enum { ONE_FROM_THE_BACK = 1, ONE_FROM_THE_FRONT = 1 << 8 };

INLINE uint64_t
claims_of(uint64_t number, long parts)
{
    return number << 24 | (uint64_t)parts << 16;
}

INLINE uint64_t
number_of(uint64_t claims)
{
    return claims >> 24;
}

INLINE long
all_parts(uint64_t claims)
{
    return (long)(claims >> 16 & 255);
}

INLINE long
taken_in_front(uint64_t claims)
{
    return (long)(claims >> 8 & 255);
}

INLINE long
taken_behind(uint64_t claims)
{
    return (long)(claims & 255);
}

INLINE int
is_left(uint64_t claims)
{
    return taken_in_front(claims) + taken_behind(claims) < all_parts(claims);
}

/* Take a part from the front or from the back; -1 if all are taken. What the work is may be looked at from then on, and no sooner. */
static long
taken_part(Team *team, int front)
{
    uint64_t claims = atomic_load(&team->claims);
    while (is_left(claims)) {
        if (atomic_compare_exchange_weak(&team->claims, &claims, claims + (front ? ONE_FROM_THE_FRONT : ONE_FROM_THE_BACK))) {
            return front ? taken_in_front(claims) : all_parts(claims) - 1 - taken_behind(claims);
        }
    }
    return -1;
}

static void *
help(void *given)
{
    Team *team = given;
    long since = nanoseconds();

    for (int looks = 0;; looks++) {
        long part = taken_part(team, 0);
        if (part >= 0) {
            team->work(team->what, part);
            atomic_fetch_add(&team->finished, 1);
            looks = -1;
            continue;
        }
        if (looks == 0) {
            since = nanoseconds();
        }
        if (atomic_load(&team->entry)) {
            if (looks < LOOKS) {
                look_again();
                continue;
            }
            if (nanoseconds() - since < SOON) {
                sched_yield(); /* others may need this core more */
                continue;
            }
        }
        pthread_mutex_lock(&team->lock);
        atomic_fetch_add(&team->asleep, 1);
        while (!atomic_load(&team->ending) && !is_left(atomic_load(&team->claims))) {
            pthread_cond_wait(&team->wake, &team->lock);
            looks = -1;
            if (atomic_load(&team->entry)) {
                break;
            }
        }
        atomic_fetch_sub(&team->asleep, 1);
        int ends = atomic_load(&team->ending);
        pthread_mutex_unlock(&team->lock);
        if (ends) {
            return NULL;
        }
    }
}

static void
wake(Team *team)
{
    if (atomic_load(&team->asleep)) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
    }
}

/* Compute parts 0 to `parts` - 1, in any order, alone or with the team. */
static void
compute_parts(Team *team, long parts, Part work, void *what)
{
    /* It is busy if another thread has left it for this one in the middle of a work. */
    if (team == NULL || parts < 2 || parts > MOST_PARTS || atomic_exchange(&team->busy, 1)) {
        for (long part = 0; part < parts; part++) {
            work(what, part);
        }
        return;
    }
    team->work = work, team->what = what;
    atomic_store_explicit(&team->used, 1, memory_order_relaxed);
    atomic_store(&team->finished, 0);
    atomic_store(&team->claims, claims_of(number_of(atomic_load(&team->claims)) + 1, parts));
    wake(team);
    long own = 0;
    for (long part; (part = taken_part(team, 1)) >= 0; own++) {
        work(what, part);
    }
    for (int looks = 0; atomic_load(&team->finished) < parts - own; looks++) {
        if (looks < LOOKS) {
            look_again();
        } else {
            sched_yield();
        }
    }
    atomic_store_explicit(&team->busy, 0, memory_order_release);
}

/* The team of this thread, if so many multiply-adds are worth one. */
static Team *
team_for(long work)
{
    Team *team = work >= 2 * WORTH_HELP ? my_team() : NULL;
    return team != NULL && atomic_load(&team->helpers) && team->process == forks ? team : NULL;
}

/* Into how many parts each of `count` equal things is best cut, for so many multiply-adds of all of them. */
static long
parts_for(const Team *team, long count, long work)
{
    if (team == NULL) {
        return 1;
    }
    long parts = (atomic_load(&team->helpers) + count) / count, worth = work / count / WORTH_HELP, room = MOST_PARTS / 2 / count;
    parts = parts < worth ? parts : worth;
    parts = parts < room ? parts : room;
    return parts < 1 ? 1 : parts;
}

static void
dismiss(Team *self)
{
    int helpers = atomic_exchange(&self->helpers, 0); /* of two threads that close it one joins them */
    end_entry(atomic_exchange(&self->entry, 0));
    if (self->process == forks) {
        pthread_mutex_lock(&self->lock);
        atomic_store(&self->ending, 1);
        pthread_cond_broadcast(&self->wake);
        pthread_mutex_unlock(&self->lock);
        while (helpers) {
            pthread_join(self->threads[--helpers], NULL);
        }
    }
}

static PyObject *
team_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    long threads;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Team(threads) takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "l:Team", &threads)) {
        return NULL;
    }
    if (threads < 1) {
        PyErr_Format(PyExc_ValueError, "threads must be positive, got %ld", threads);
        return NULL;
    }
    Team *self = (Team *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->process = forks;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->wake, NULL);
    sigset_t all, before; /* signals are for the threads that were there */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int helpers = 0;
    while (helpers + 1 < threads && helpers < HELPERS && pthread_create(&self->threads[helpers], NULL, help, self) == 0) {
        helpers++;
    }
    atomic_store(&self->helpers, helpers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return (PyObject *)self; /* with fewer helpers, or none, it takes longer */
}

static void
team_dealloc(PyObject *object)
{
    Team *self = (Team *)object;
    PyTypeObject *type = Py_TYPE(object);
    dismiss(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *
team_enter(PyObject *object, PyObject *nothing)
{
    Team *self = (Team *)object;
    if (my_team() != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this thread has a team");
        return NULL;
    }
    uint64_t entry = atomic_load(&self->helpers) && self->process == forks ? new_entry() : 0, nobody = 0;
    if (entry) {
        if (!atomic_compare_exchange_strong(&self->entry, &nobody, entry)) {
            end_entry(entry);
            PyErr_SetString(PyExc_RuntimeError, "another thread has this team");
            return NULL;
        }
        team_here = self, entry_here = entry;
        if (atomic_exchange(&self->used, 0)) { /* as will be needed again */
            wake(self);
        }
    }
    return Py_NewRef(object);
}

static PyObject *
team_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    end_entry(atomic_exchange(&((Team *)object)->entry, 0));
    Py_RETURN_NONE;
}

static PyObject *
team_close(PyObject *object, PyObject *nothing)
{
    dismiss((Team *)object);
    Py_RETURN_NONE;
}

static PyMethodDef team_methods[] = {
    {"__enter__", team_enter, METH_NOARGS, "Let its threads help this one."},
    {"__exit__", (PyCFunction)(void (*)(void))team_exit, METH_FASTCALL, "Let them sleep."},
    {"close", team_close, METH_NOARGS, "End its threads."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot team_slots[] = {
    {Py_tp_new, team_new},
    {Py_tp_dealloc, team_dealloc},
    {Py_tp_methods, team_methods},
    {Py_tp_doc, "Team(threads): the thread that enters it, and others that help it."},
    {0, NULL},
};
static PyType_Spec team_spec = {
    .name = "_products.Team",
    .basicsize = sizeof(Team),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = team_slots,
};
