/* What all kernels share: the rows of a batch, their draws, numpy's own loops, and the step of every row with its autoreset. */

#ifndef REACTOR_BATCH_H
#define REACTOR_BATCH_H

#include <math.h>
#include <string.h>

#include "../include/reactor_kernel.h"

/* An inner loop of numpy's ufuncs: arguments, how many, strides, data. Py_ssize_t is intptr_t here. */
typedef void (*Loop)(char **, const intptr_t *, const intptr_t *, void *);

enum { NEXT_STEP, SAME_STEP, DISABLED };

enum { CONSTANTS = 24, NUMBERS = 8 };

typedef struct Calls Calls; /* a user's kernel */

typedef struct {
    int64_t n, mode;
    size_t row; /* bytes of an observation */
    reactor_rng **gens;
    double *state;
    void *places;        /* what else a row consists of; as the kernel likes */
    int64_t *left;       /* steps until the time limit truncates */
    int64_t *limits;     /* of a new episode */
    uint8_t *pending;    /* whether the next step resets the row */
    uint8_t *moving;     /* whether the step moves the row; others are reset in it */
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
    double low[4], high[4]; /* of what a reset draws */
    double p[CONSTANTS];
    int64_t q[NUMBERS];
    Calls *calls;
    Loop sin, cos, sin_f, cos_f;
    void *sin_data, *cos_data, *sin_f_data, *cos_f_data;
} Rows;

typedef struct {
    const char *name;
    int64_t (*move)(Rows *);              /* those that are moving; REFUSED if Python has to take this step, FAILED with an exception */
    int64_t (*begin)(Rows *, int64_t);    /* draw a new episode of a row; FAILED with an exception */
    int64_t (*write)(Rows *, const uint8_t *); /* the observations of a mask's rows, NULL for all; FAILED likewise */
    int64_t actions;                      /* of a Discrete space; 0 for floats */
} KernelCode;

enum { REFUSED = -1, FAILED = -2 };

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
actions_known(const Rows *b, int64_t low, int64_t high, int all)
{
    const int64_t *given = b->actions;

    for (int64_t i = 0; i < b->n; i++) {
        if ((given[i] < low || given[i] >= high) && (all || !(b->mode == NEXT_STEP && b->pending[i]))) {
            return 0;
        }
    }
    return 1;
}

/* A kernel's three functions, made of those of a row: STEP(b, i, &ended) moves it and sets its reward, RESET(b, i) draws a new
 * episode, WRITE(b, i, where) writes its observation. */
#define MOVE_ROWS(STEP)                                                                                                          \
    for (int64_t i = 0; i < b->n; i++) {                                                                                         \
        if (b->moving[i]) {                                                                                                      \
            int ended = 0;                                                                                                       \
            STEP(b, i, &ended);                                                                                                  \
            b->terminated[i] = (uint8_t)ended;                                                                                   \
        }                                                                                                                        \
    }                                                                                                                            \
    return 0

#define BEGIN_ROW(name, RESET)                                                                                                   \
    static int64_t name(Rows *b, int64_t i)                                                                                      \
    {                                                                                                                            \
        RESET(b, i);                                                                                                             \
        return 0;                                                                                                                \
    }

#define WRITE_ROWS(name, WRITE)                                                                                                  \
    static int64_t name(Rows *b, const uint8_t *which)                                                                           \
    {                                                                                                                            \
        for (int64_t i = 0; i < b->n; i++) {                                                                                     \
            if (which == NULL || which[i]) {                                                                                     \
                WRITE(b, i, (char *)b->obs + b->row * (size_t)i);                                                                \
            }                                                                                                                    \
        }                                                                                                                        \
        return 0;                                                                                                                \
    }

/* ---------------------------------------------------------------- the driver */

static int64_t
begin_row(Rows *b, const KernelCode *code, int64_t i)
{
    b->left[i] = b->limits[i];
    b->pending[i] = 0;
    b->was_reset[i] = b->fresh[i] = 1;
    return code->begin(b, i);
}

/* Every row takes its step, or is reset in its place. Returns how many ended or were reset, or what `move` says. */
static int64_t
drive(Rows *b, const KernelCode *code)
{
    const int64_t n = b->n, mode = b->mode;
    const size_t size = b->row, bytes = (size_t)n;
    uint8_t *restrict moving = b->moving, *restrict pending = b->pending, *restrict was_reset = b->was_reset;
    uint8_t *restrict terminated = b->terminated, *restrict truncated = b->truncated;
    int64_t *restrict left = b->left;
    int64_t count = 0, done;

    memset(terminated, 0, bytes);
    memset(truncated, 0, bytes);
    memset(moving, 1, bytes);
    for (int64_t i = 0; mode == NEXT_STEP && i < n; i++) {
        moving[i] = !pending[i];
    }
    if ((done = code->move(b)) < 0) {
        return done;
    }
    memset(was_reset, 0, bytes);
    for (int64_t i = 0; i < n; i++) {
        /* What a kernel says of rows that are reset in this step does not count, as all rows are moved at once. */
        truncated[i] |= --left[i] <= 0;
        terminated[i] &= moving[i];
        truncated[i] &= moving[i];
        count += (terminated[i] | truncated[i]) + !moving[i];
    }
    if (mode == NEXT_STEP && count) {
        for (int64_t i = 0; i < n; i++) {
            pending[i] = terminated[i] | truncated[i];
            if (!moving[i]) {
                b->rewards[i] = 0.0;
                if (begin_row(b, code, i) < 0) {
                    return FAILED;
                }
            }
        }
    }
    if (code->write(b, NULL) < 0) {
        return FAILED;
    }
    if (b->led_to) {
        memcpy(b->led_to, b->obs, size * bytes);
    }
    if (mode != SAME_STEP || count == 0) {
        return count;
    }
    for (int64_t i = 0; i < n; i++) {
        if (terminated[i] | truncated[i]) {
            memcpy((char *)b->finals + size * (size_t)i, (char *)b->obs + size * (size_t)i, size);
            if (b->probs) {
                b->final_probs[i] = b->probs[i];
            }
            if (begin_row(b, code, i) < 0) {
                return FAILED;
            }
        }
    }
    return code->write(b, was_reset) < 0 ? FAILED : count;
}

/* Reset the rows of a mask, outside of a step. */
static int64_t
reset_rows(Rows *b, const KernelCode *code, const uint8_t *mask)
{
    for (int64_t i = 0; i < b->n; i++) {
        if (mask[i] && begin_row(b, code, i) < 0) {
            return FAILED;
        }
    }
    return code->write(b, mask);
}

#endif
