/* Makes one system call of one process fail: the n-th of a kind after it was armed. For LD_PRELOAD; see injected.py.
 *
 * What is armed lies in a file that all processes map which inherit this library, so that the caller can arm its helpers.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* In the order of KINDS in injected.py. */
enum {
    FORK, MMAP, FTRUNCATE, FALLOCATE, MEMFD, SEM_OPEN, PIPE, SOCKETPAIR, WRITE, READ, POLL, THREAD, OPEN, DUP, SENDMSG, RECVMSG, SEM_WAIT,
    CONNECT, FSYNC, RENAME
};
enum { NOBODY = 0, NEXT_BORN = -1 };

typedef struct {
    atomic_int kind, left, number; /* the error that the call after `left` others ends with */
    atomic_int target, caller;     /* the process whose call it is: its number, NOBODY, or NEXT_BORN; and who has armed it */
    atomic_int fired;
} Plan;

static Plan nothing, *plan = &nothing;

__attribute__((constructor)) static void
begin(void)
{
    const char *path = getenv("REACTOR_RL_FAULTS");
    int file = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (file >= 0) {
        void *at = (void *)syscall(SYS_mmap, NULL, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        plan = at == MAP_FAILED ? &nothing : at;
        syscall(SYS_close, file);
    }
}

void
fault_arm(int kind, int n, int number, int target)
{
    plan->kind = kind;
    plan->left = n;
    plan->number = number;
    plan->fired = 0;
    plan->caller = getpid();
    plan->target = target;
}

/* Returns whether a call has failed. */
int
fault_disarm(void)
{
    plan->target = NOBODY;
    return plan->fired;
}

static int
fails(int kind)
{
    if (plan->target != getpid() || plan->kind != kind || atomic_fetch_sub(&plan->left, 1) != 1) {
        return 0;
    }
    plan->fired = 1;
    errno = plan->number;
    return 1;
}

/* Calls of a pipe to a process that lives, or of a file, do not end with these: only sockets count. */
static int
fails_at(int kind, int file)
{
    if (plan->number == EPIPE || plan->number == ECONNRESET || plan->number == ENOBUFS) {
        struct stat status;
        if (plan->target != getpid() || fstat(file, &status) || !S_ISSOCK(status.st_mode)) {
            return 0;
        }
    }
    return fails(kind);
}

#define REAL(type, name, ...)                     \
    static type (*real)(__VA_ARGS__);             \
    if (real == NULL) {                           \
        *(void **)&real = dlsym(RTLD_NEXT, name); \
    }

pid_t
fork(void)
{
    REAL(pid_t, "fork", void)
    if (fails(FORK)) {
        return -1;
    }
    pid_t child = real();
    if (child == 0 && getppid() != plan->caller) { /* the fork server's: the caller's own children are other programs */
        int next = NEXT_BORN;
        atomic_compare_exchange_strong(&plan->target, &next, getpid());
    }
    return child;
}

void *
mmap(void *at, size_t size, int access, int flags, int file, off_t offset)
{
    return fails(MMAP) ? MAP_FAILED : (void *)syscall(SYS_mmap, at, size, access, flags, file, offset);
}

void *
mmap64(void *at, size_t size, int access, int flags, int file, off_t offset)
{
    return mmap(at, size, access, flags, file, offset);
}

int
ftruncate(int file, off_t size)
{
    return fails(FTRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

int
ftruncate64(int file, off_t size)
{
    return ftruncate(file, size);
}

int
posix_fallocate(int file, off_t offset, off_t size)
{
    REAL(int, "posix_fallocate", int, off_t, off_t)
    return fails(FALLOCATE) ? plan->number : real(file, offset, size);
}

int
posix_fallocate64(int file, off_t offset, off_t size)
{
    return posix_fallocate(file, offset, size);
}

int
memfd_create(const char *name, unsigned flags)
{
    return fails(MEMFD) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

sem_t *
sem_open(const char *name, int flags, ...)
{
    REAL(sem_t *, "sem_open", const char *, int, ...)
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    unsigned value = va_arg(more, unsigned);
    va_end(more);
    return fails(SEM_OPEN) ? SEM_FAILED : real(name, flags, mode, value);
}

int
pipe2(int ends[2], int flags)
{
    return fails(PIPE) ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

int
pipe(int ends[2])
{
    return pipe2(ends, 0);
}

int
socketpair(int domain, int type, int protocol, int ends[2])
{
    return fails(SOCKETPAIR) ? -1 : (int)syscall(SYS_socketpair, domain, type, protocol, ends);
}

ssize_t
write(int file, const void *data, size_t size)
{
    return fails_at(WRITE, file) ? -1 : syscall(SYS_write, file, data, size);
}

ssize_t
read(int file, void *data, size_t size)
{
    return fails_at(READ, file) ? -1 : syscall(SYS_read, file, data, size);
}

ssize_t
readv(int file, const struct iovec *parts, int count)
{
    return fails_at(READ, file) ? -1 : syscall(SYS_readv, file, parts, count);
}

int
poll(struct pollfd *files, nfds_t count, int timeout)
{
    REAL(int, "poll", struct pollfd *, nfds_t, int)
    return fails(POLL) ? -1 : real(files, count, timeout);
}

int
pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *what)
{
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    return fails(THREAD) ? plan->number : real(thread, how, work, what);
}

int
open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return fails(OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int
open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return open(path, flags, mode);
}

int
dup(int file)
{
    return fails(DUP) ? -1 : (int)syscall(SYS_dup, file);
}

int
fcntl64(int file, int command, ...)
{
    va_list more;
    va_start(more, command);
    uintptr_t argument = va_arg(more, uintptr_t);
    va_end(more);
    if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && fails(DUP)) { /* how Python duplicates */
        return -1;
    }
    return (int)syscall(SYS_fcntl, file, command, argument);
}

int
fcntl(int file, int command, ...)
{
    va_list more;
    va_start(more, command);
    uintptr_t argument = va_arg(more, uintptr_t);
    va_end(more);
    return fcntl64(file, command, argument);
}

ssize_t
sendmsg(int socket, const struct msghdr *message, int flags)
{
    return fails(SENDMSG) ? -1 : syscall(SYS_sendmsg, socket, message, flags);
}

ssize_t
recvmsg(int socket, struct msghdr *message, int flags)
{
    return fails(RECVMSG) ? -1 : syscall(SYS_recvmsg, socket, message, flags);
}

int
sem_wait(sem_t *semaphore)
{
    REAL(int, "sem_wait", sem_t *)
    return fails(SEM_WAIT) ? -1 : real(semaphore);
}

int
sem_timedwait(sem_t *semaphore, const struct timespec *end)
{
    REAL(int, "sem_timedwait", sem_t *, const struct timespec *)
    return fails(SEM_WAIT) ? -1 : real(semaphore, end);
}

int
sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *end)
{
    REAL(int, "sem_clockwait", sem_t *, clockid_t, const struct timespec *)
    return fails(SEM_WAIT) ? -1 : real(semaphore, clock, end);
}

int
connect(int socket, const struct sockaddr *address, socklen_t size)
{
    return fails(CONNECT) ? -1 : (int)syscall(SYS_connect, socket, address, size);
}

int
fsync(int file)
{
    return fails(FSYNC) ? -1 : (int)syscall(SYS_fsync, file);
}

int
rename(const char *from, const char *to)
{
    return fails(RENAME) ? -1 : (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}
