/* What the extensions share: how code is compiled for AVX2, and the hyperbolic tangent. */

#ifndef REACTOR_TORCH_COMPUTE_H
#define REACTOR_TORCH_COMPUTE_H

#include <Python.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#if defined(_MSC_VER)
#define RESTRICT __restrict
#else
#define RESTRICT restrict
#endif

#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_AVX2_CODE 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma")))
#endif

/* A rational approximation: x P(x^2) / Q(x^2), whose relative error is below 4e-7, roundings included. */
INLINE void
squash(const float *x, float *y, Py_ssize_t n)
{
    const float bound = 7.9f; /* there it is 1 but for a few roundings */

    for (Py_ssize_t i = 0; i < n; i++) {
        float least = x[i] < -bound ? -bound : x[i];
        y[i] = least > bound ? bound : least;
    }
    for (Py_ssize_t i = 0; i < n; i++) { /* another loop, or compilers see what a constant gives and branch */
        float z = y[i] * y[i];
        float p = 1.54280126e-08f;
        p = p * z + 2.20232741e-05f;
        p = p * z + 3.57899372e-03f;
        p = p * z + 1.34506226e-01f;
        p = p * z + 1.0f;
        float q = 8.59879606e-07f;
        q = q * z + 3.42365325e-04f;
        q = q * z + 2.61922441e-02f;
        q = q * z + 4.67839509e-01f;
        q = q * z + 1.0f;
        y[i] = y[i] * p / q;
    }
}

#endif
