/* What all kernels share: the rows of a batch, their draws, numpy's own loops, and the step of every row with its autoreset. */

#ifndef REACTOR_BATCH_H
#define REACTOR_BATCH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* numpy's interface of a bit generator, numpy/random/bitgen.h */
typedef struct {
    void *state;
    uint64_t (*next_uint64)(void *);
    uint32_t (*next_uint32)(void *);
    double (*next_double)(void *);
    uint64_t (*next_raw)(void *);
} BitGen;

/* An inner loop of numpy's ufuncs: arguments, how many, strides, data. Py_ssize_t is intptr_t here. */
typedef void (*Loop)(char **, const intptr_t *, const intptr_t *, void *);

enum { NEXT_STEP, SAME_STEP, DISABLED };

enum { CONSTANTS = 24, NUMBERS = 8 };

typedef struct {
    int64_t n, mode;
    size_t row; /* bytes of an observation */
    BitGen **gens;
    double *state;
    void *places;        /* what else a row consists of; as the kernel likes */
    int64_t *left;       /* steps until the time limit truncates */
    int64_t *limits;     /* of a new episode */
    uint8_t *pending;    /* whether the next step resets the row */
    uint8_t *fresh;      /* whether the row was reset since the environments were taken over */
    void *obs, *finals;
    double *rewards;
    uint8_t *terminated, *truncated;
    uint8_t *was_reset;  /* in the last step */
    double *work;
    double *probs, *final_probs;
    const double *table; /* of outcomes: [state][action][3][3], cumulated probabilities, probabilities, rewards */
    const int64_t *next; /* likewise: next state, terminated, count */
    const double *start; /* cumulated probabilities of first states */
    const void *actions;
    int wide;            /* whether actions are float64, where they are no integers */
    void *led_to;        /* where to write what a step led to, before a reset; may be NULL */
    double low[4], range[4]; /* of what a reset draws */
    double p[CONSTANTS];
    int64_t q[NUMBERS];
    Loop sin, cos, sin_f, cos_f;
    void *sin_data, *cos_data, *sin_f_data, *cos_f_data;
} Rows;

typedef struct {
    const char *name;
    int64_t (*step)(Rows *); /* how many rows ended or were reset; REFUSED if Python has to take this step */
    void (*reset)(Rows *, const uint8_t *);
    int64_t actions;         /* of a Discrete space; 0 for floats */
} KernelCode;

enum { REFUSED = -1 };

static inline double
draw_uniform(const BitGen *gen, double low, double range)
{
    return low + range * gen->next_double(gen->state);
}

/* Generator.integers(0, most + 1), as numpy draws it for small ranges: Lemire's method on 32 bits. */
static inline uint32_t
draw_below(const BitGen *gen, uint32_t most)
{
    const uint32_t excl = most + 1;
    uint64_t m = (uint64_t)gen->next_uint32(gen->state) * excl;
    uint32_t left = (uint32_t)m;

    if (left < excl) {
        const uint32_t threshold = (UINT32_MAX - most) % excl;
        while (left < threshold) {
            m = (uint64_t)gen->next_uint32(gen->state) * excl;
            left = (uint32_t)m;
        }
    }
    return (uint32_t)(m >> 32);
}

static inline double
call_one(Loop loop, void *data, double x)
{
    double y;
    char *args[2] = {(char *)&x, (char *)&y};
    const intptr_t count = 1, steps[2] = {8, 8};

    loop(args, &count, steps, data);
    return y;
}

static inline float
call_one_f(Loop loop, void *data, float x)
{
    float y;
    char *args[2] = {(char *)&x, (char *)&y};
    const intptr_t count = 1, steps[2] = {4, 4};

    loop(args, &count, steps, data);
    return y;
}

static inline void
call_many(Loop loop, void *data, const double *x, double *y, intptr_t n)
{
    char *args[2] = {(char *)x, (char *)y};
    const intptr_t steps[2] = {8, 8};

    loop(args, &n, steps, data);
}

/* Python's and numpy's `x ** 2` of a number is libm's pow. A compiler that saw the exponent would make it x * x, which differs. */
static volatile double square_d = 2.0;
static volatile float square_f = 2.0f;

static inline double
clipped(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* An action that is not in the space is for Python to complain of. */
static inline int
actions_known(const Rows *b, int64_t actions)
{
    const int64_t *given = b->actions;

    for (int64_t i = 0; i < b->n; i++) {
        if ((given[i] < 0 || given[i] >= actions) && !(b->mode == NEXT_STEP && b->pending[i])) {
            return 0;
        }
    }
    return 1;
}

/* Every row takes its step. STEP(b, i, &ended) moves one and sets its reward, RESET(b, i) draws a new episode, WRITE(b, i, where)
 * writes its observation. */
#define STEP_ROWS(STEP, RESET, WRITE)                                                                                            \
    int64_t count = 0;                                                                                                           \
    const int64_t n = b->n, mode = b->mode;                                                                                      \
    const size_t size = b->row;                                                                                                  \
    for (int64_t i = 0; i < n; i++) {                                                                                            \
        char *const seen = (char *)b->obs + size * (size_t)i;                                                                    \
        if (mode == NEXT_STEP && b->pending[i]) {                                                                                \
            RESET_ROW(RESET);                                                                                                    \
            b->rewards[i] = 0.0;                                                                                                 \
            b->terminated[i] = b->truncated[i] = b->pending[i] = 0;                                                              \
            WRITE(b, i, seen);                                                                                                   \
            if (b->led_to) {                                                                                                     \
                memcpy((char *)b->led_to + size * (size_t)i, seen, size);                                                        \
            }                                                                                                                    \
            count++;                                                                                                             \
            continue;                                                                                                            \
        }                                                                                                                        \
        int ended = 0;                                                                                                           \
        STEP(b, i, &ended);                                                                                                      \
        const int cut = --b->left[i] <= 0;                                                                                       \
        b->terminated[i] = (uint8_t)ended;                                                                                       \
        b->truncated[i] = (uint8_t)cut;                                                                                          \
        b->was_reset[i] = 0;                                                                                                     \
        WRITE(b, i, seen);                                                                                                       \
        if (b->led_to) {                                                                                                         \
            memcpy((char *)b->led_to + size * (size_t)i, seen, size);                                                            \
        }                                                                                                                        \
        if (ended | cut) {                                                                                                       \
            count++;                                                                                                             \
            if (mode == NEXT_STEP) {                                                                                             \
                b->pending[i] = 1;                                                                                               \
            } else if (mode == SAME_STEP) {                                                                                      \
                memcpy((char *)b->finals + size * (size_t)i, seen, size);                                                        \
                if (b->probs) {                                                                                                  \
                    b->final_probs[i] = b->probs[i];                                                                             \
                }                                                                                                                \
                RESET_ROW(RESET);                                                                                                \
                WRITE(b, i, seen);                                                                                               \
            }                                                                                                                    \
        }                                                                                                                        \
    }                                                                                                                            \
    return count

#define RESET_ROW(RESET)                                                                                                         \
    RESET(b, i);                                                                                                                 \
    b->left[i] = b->limits[i];                                                                                                   \
    b->was_reset[i] = b->fresh[i] = 1

/* Reset the rows of a mask, outside of a step. */
#define RESET_ROWS(name, RESET, WRITE)                                                                                           \
    static void name(Rows *b, const uint8_t *mask)                                                                               \
    {                                                                                                                            \
        for (int64_t i = 0; i < b->n; i++) {                                                                                     \
            if (mask[i]) {                                                                                                       \
                RESET_ROW(RESET);                                                                                                \
                b->pending[i] = 0;                                                                                               \
                WRITE(b, i, (char *)b->obs + b->row * (size_t)i);                                                                \
            }                                                                                                                    \
        }                                                                                                                        \
    }

#endif
