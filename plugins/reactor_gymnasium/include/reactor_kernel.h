/* The fast form of an environment in C: the rows of a kernel, as reactor_gymnasium hands them over. No library is linked.
 *
 * A kernel has three functions:
 *
 *     void PREFIX_step(reactor_rows *r);                  moves the rows whose `moving` is 1, and writes rewards and terminated
 *     void PREFIX_reset(reactor_rows *r, int64_t row);    draws a new episode of one row
 *     void PREFIX_observe(reactor_rows *r);               writes the observations of all rows
 *
 * Compile with -O2 -fPIC -shared -ffp-contract=off and without -ffast-math: the Python class says what each operation gives, to the
 * bit. Python's `x ** 2` of a float is pow(x, 2.0), and a compiler may not make x * x of it (-fno-builtin-pow). */

#ifndef REACTOR_KERNEL_H
#define REACTOR_KERNEL_H

#include <stdint.h>

/* numpy's interface of a bit generator (numpy/random/bitgen.h) */
typedef struct {
    void *state;
    uint64_t (*next_uint64)(void *);
    uint32_t (*next_uint32)(void *);
    double (*next_double)(void *);
    uint64_t (*next_raw)(void *);
} reactor_rng;

typedef struct {
    int64_t n;                /* rows */
    void *const *state;       /* the columns of `state`, in its order: int64_t for int, double for float, uint8_t for bool */
    const double *constants;  /* in the order of `constants`; of an array each number */
    const void *actions;      /* of each row, of the action space's dtype */
    const uint8_t *moving;    /* 0: the row is reset in this step, and must not draw */
    void *observations;       /* to be written: of each row, of the observation space's dtype */
    double *rewards;          /* likewise, in each step */
    uint8_t *terminated;      /* likewise; 0 before each step */
    uint8_t *truncated;       /* likewise; time limits of wrappers are not the kernel's */
    void *const *infos;       /* likewise, the columns of `infos` */
    reactor_rng *const *rngs; /* of each row, its environment's own */
} reactor_rows;

#define REACTOR_COLUMN(type, name, rows, k) type *const name = (type *)(rows)->state[k]

/* Generator.random() */
static inline double
reactor_random(const reactor_rng *rng)
{
    return rng->next_double(rng->state);
}

/* Generator.uniform(low, high) of numbers */
static inline double
reactor_uniform(const reactor_rng *rng, double low, double high)
{
    return low + (high - low) * rng->next_double(rng->state);
}

/* Generator.integers(low, high) of numbers, high - low < 2**32: Lemire's method (2019) on 32 bits, as numpy has it. Of a draw u, n = high - low:
 * the upper word of u n is the answer, and u is drawn anew where the lower one is below 2**32 mod n, which would favour some answers. */
static inline int64_t
reactor_integers(const reactor_rng *rng, int64_t low, int64_t high)
{
    const uint32_t most = (uint32_t)(high - low - 1), below = most + 1;

    if (most == 0) {
        return low;
    }
    uint64_t m = (uint64_t)rng->next_uint32(rng->state) * below;
    if ((uint32_t)m < below) {
        const uint32_t threshold = (UINT32_MAX - most) % below;
        while ((uint32_t)m < threshold) {
            m = (uint64_t)rng->next_uint32(rng->state) * below;
        }
    }
    return low + (int64_t)(m >> 32);
}

#endif
