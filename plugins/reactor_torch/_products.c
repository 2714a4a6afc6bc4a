/* Networks of dense layers, their gradients, what losses compute of them, and Adam; bits do not depend on the kind of processor.
 *
 * Three sums are fixed: a number of a forward pass or of a gradient by inputs is one chain of fused multiply-adds, begun with the bias;
 * of up to FEW outputs it is 16 chains, folded up; a sum over rows (gradients of weights and biases, losses) has leaves of LEAF rows,
 * added as a binary tree, so that whole leaves may be computed apart. Compile it with -ffp-contract=off.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__GNUC__)
#error "it is for GCC and clang; without it torch multiplies"
#endif

#define INLINE static inline __attribute__((always_inline))
#define RESTRICT restrict
#define ALIGNED(n) __attribute__((aligned(n)))
#define BITS(x) __builtin_popcount(x)
#if defined(__clang__)
#define STRAIGHT _Pragma("unroll")
#else
#define STRAIGHT _Pragma("GCC unroll 16")
#endif
#if defined(__x86_64__)
#define FUSED __attribute__((target("avx2,fma")))
#endif

typedef enum { NONE, RELU, TANH } Kind;
typedef enum { AS_IT_IS, RECTIFIED, WHERE_POSITIVE, ADDED } Finish;
typedef enum { VALUES, SQUARES, ALONG } Summed; /* down a column: values, their squared distances from a centre, products with distances */
enum { LEAF = 64, SUPER = 512, LEVELS = 4, TALL = 576, FEW = 4, MANY = 8 };
enum { DEPTH = 512, DEEPEST = 2 * DEPTH, ROWS = 288, APART = DEEPEST + 16 }; /* of the blocks of a product, see multiply() */
#define TILE(rows, columns) ((rows) * (columns) + 16) /* a multiple of 4 KB would have all tiles in one set of the cache */
#define TILES(columns) (((columns) + 11) / 12 * 2 * TILE(SUPER, 6)) /* of 6 columns, or of 12 */
#define ASIDE (ROWS * APART)
enum { WIDEST = 32, UNIT = WIDEST, HIGH = 12 /* rows of the tallest tile */ }; /* numbers of the widest panel of any kind */
enum { FAR = 1 << 15 }; /* numbers of a right factor that a near cache will not have kept */
enum { LARGE = 1 << 18 }; /* multiply-adds from which on others may have the interpreter meanwhile */
#define FORBIDDEN -1e8f /* the logit of a choice that is masked, as sb3-contrib has it */

typedef struct {
    float rest1, beta2, rest2, step, root, epsilon, decay, keep;
    int momentum;
} Adam;

/* Sums that wait for another one, in the order in which they are added to it */
typedef struct {
    const float *from[32];
    int count;
} Earlier;

/* Windows of images, each of which gives some numbers */
typedef struct {
    long height, width, channels; /* of an image */
    long tall, wide, down, right; /* windows: their rows and columns, and how far the next one is */
    long rows, columns, outputs; /* of what they give */
} Windows;

typedef struct {
    const float *values, *log_prob, *entropy, *advantages, *returns, *old_log_prob, *old_values;
    float clip, clip_vf, ent_coef, vf_coef, share;
    float *by_values, *by_log_prob;
} Surrogate;

typedef struct {
    void (*forward)(Kind, long, long, long, const float *, long, const float *, const float *, float *, float *);
    void (*multiply)(long, long, long, const float *, long, const float *, long, int, float *, long, const float *, Kind, const float *,
                     float *);
    void (*outer)(long, long, long, const float *, long, const float *, long, float *, float *);
    void (*columns)(Summed, long, long, const float *, long, const float *, const float *, long, float *);
    void (*shifted)(long, long, const float *, long, const float *, const float *, const float *, float *);
    void (*combined)(Kind, long, long, const float *, const float *, long, const float *, const float *, const float *, const float *, float *);
    void (*weighted)(long, long, const float *, long, const float *, float *);
    void (*activate)(Kind, float *, long);
    void (*differentiate)(Kind, const float *, float *, long);
    void (*adam)(long, float *, const float *, float *, float *, const Adam *);
    void (*blend)(long, float *, const float *, float, float);
    double (*squares)(long, const float *);
    void (*lay_out)(long, long, const float *, long, int, float *);
    void (*add_product)(long, long, long, const float *, long, const float *, float *, long);
    void (*add)(float *, const float *, long);
    void (*pixels)(long, long, const unsigned char *, long, float, float *);
    void (*windows)(const Windows *, long, const float *, long, const float *, const float *, Kind, float *);
    void (*leaf_of_units)(const Windows *, long, const float *, long, const float *, long, long, float *, float *, float *);
    void (*unwindow)(const Windows *, long, const float *, float *);
    float (*exponential)(float);
    void (*squash)(long, long, float, float, const float *, const float *, const float *, float *, float *, float *, float *, float *);
    void (*unsquash)(long, float, float, const float *, float, const float *, const float *, const float *, const float *, float *, float *);
    void (*choose)(long, long, long, const int64_t *, const float *, const int64_t *, const uint8_t *, float *, float *, float *, float *, float *);
    void (*unchoose)(long, long, long, const int64_t *, const int64_t *, const uint8_t *, const float *, const float *, const float *,
                     const float *, float, float *);
    void (*toss)(long, long, const float *, const float *, float *, float *, float *, float *);
    void (*untoss)(long, long, const float *, const float *, const float *, const float *, float, float *);
    void (*draw)(long, long, const float *, const float *, const float *, float *, float *, float *, float *);
    void (*undraw)(long, long, const float *, const float *, const float *, float, float *, float *);
    void (*vary)(long, long, const float *, const float *, const float *, float, float *, float *, float *, float *);
    void (*unvary)(long, long, const float *, const float *, const float *, float, float *, float *);
    void (*variances)(long, const float *, float *);
    void (*surrogate)(long, const Surrogate *, float *);
    float (*td)(long, long, const float *, const float *, const float *, float, const float *, const float *, const float *, float, float,
                float *);
    void (*best)(long, long, const float *, const float *, const float *, const float *, const float *, float, float *);
    float (*taken)(long, long, const float *, const int64_t *, const float *, int, float, float *);
    float (*quantiles)(long, long, long, long, const float *, const float *, float, float *);
    float (*total)(long, const float *, float, const float *, float);
    void (*standardise)(long, const float *, float *);
    void (*normalise)(long, long, const float *, long, const float *, const float *, float, float *, float *, float *);
    void (*unnormalise)(long, long, float *, const float *, const float *, const float *, const int64_t *, float *);
    void (*cells)(long, long, float *, const float *, float *, float *);
    void (*uncells)(long, long, const float *, const float *, const float *, const float *, float *, float *);
} Products;

/* ---------------------------------------------------------------- sums over rows, leaf by leaf */

typedef struct {
    float level[33];
    int waiting;
    unsigned leaves;
} Tree;

INLINE void
leaf_of(Tree *tree, float sum)
{
    for (unsigned bits = tree->leaves++; bits & 1; bits >>= 1) {
        sum = tree->level[--tree->waiting] + sum;
    }
    tree->level[tree->waiting++] = sum;
}

INLINE float
whole_of(Tree *tree)
{
    while (tree->waiting > 1) {
        tree->waiting--;
        tree->level[tree->waiting - 1] += tree->level[tree->waiting];
    }
    return tree->waiting ? tree->level[0] : 0.0f;
}

INLINE float
within(float x, float low, float high) /* what is no number stays it */
{
    float least = x < low ? low : x;
    return least > high ? high : least;
}

INLINE float
nearest(float x) /* half to even, for |x| < 2^22 */
{
    return (x + 12582912.0f) - 12582912.0f;
}

typedef union {
    float f;
    int32_t i;
    uint32_t u;
} Word;

INLINE float
scaled(float x, float n) /* x 2^n; the addition leaves n in the last bits */
{
    Word two = {.f = n + 12583039.0f}; /* 1.5 * 2^23 + 127 */
    two.u <<= 23;
    return x * two.f;
}

INLINE float
parts(float x, float *e) /* x = m 2^e, m in [sqrt(1/2), sqrt(2)) */
{
    Word word = {.f = x};
    int32_t shifted = (int32_t)(word.u - 0x3f3504f3u) >> 23;
    *e = (float)shifted;
    word.u -= (uint32_t)shifted << 23;
    return word.f;
}

#define LOSSES_OF(F)                                                                                                              \
    F(exponential), F(squash), F(unsquash), F(choose), F(unchoose), F(toss), F(untoss), F(draw), F(undraw), F(vary), F(unvary),   \
        F(variances), F(surrogate), F(td), F(best), F(taken), F(quantiles), F(total), F(standardise), F(normalise),               \
        F(unnormalise), F(cells), F(uncells)
#define PORTABLY(x) x##_portably
#define F PORTABLY
#define ATTRIBUTE
#include "_losses.h"
static float
exponential_portably(float x)
{
    return exp_portably(x);
}

#if defined(__x86_64__)
#define FUSEDLY(x) x##_fused
#define F FUSEDLY
#define ATTRIBUTE FUSED
#include "_losses.h"
FUSED static float
exponential_fused(float x)
{
    return exp_fused(x);
}
#endif

#define SIX_CASES(v) CASE(1, v) CASE(2, v) CASE(3, v) CASE(4, v) CASE(5, v) CASE(6, v)
#define TWELVE_CASES(v) SIX_CASES(v) CASE(7, v) CASE(8, v) CASE(9, v) CASE(10, v) CASE(11, v) CASE(12, v)

/* ---------------------------------------------------------------- portable */

#define NAME(x) x##_portable
#define TARGET
#define LOSSES LOSSES_OF(PORTABLY)
#define V float
#define WIDTH 1
#define LOAD(p) (*(p))
#define STORE(p, x) (*(p) = (x))
#define SPREAD(x) (x)
#define FMA(a, b, c) fmaf(a, b, c)
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define SQRT(a) sqrtf(a)
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define POSITIVE(y, g) ((y) <= 0.0f ? 0.0f : (g))
#define SOME int
#define FIRST(n) ((n) > 0)
#define LOAD_SOME(p, some) ((some) ? *(p) : 0.0f)
#define STORE_SOME(p, x, some) ((some) ? (void)(*(p) = (x)) : (void)0)
#define MR 6
#define NV 4
#define ROW_CASES SIX_CASES
#include "_products.h"

#if defined(__aarch64__)
#include <arm_neon.h>

/* ---------------------------------------------------------------- NEON: every such processor has it, and fused multiply-adds */

static __attribute__((noinline)) float32x4_t
load_some_neon(const float *from, long some)
{
    float all[4] = {0};
    for (long i = 0; i < some; i++) {
        all[i] = from[i];
    }
    return vld1q_f32(all);
}

static __attribute__((noinline)) void
store_some_neon(float *to, float32x4_t x, long some)
{
    float all[4];
    vst1q_f32(all, x);
    for (long i = 0; i < some; i++) {
        to[i] = all[i];
    }
}

#define NAME(x) x##_neon
#define TARGET
#define LOSSES LOSSES_OF(PORTABLY)
#define V float32x4_t
#define WIDTH 4
#define LOAD vld1q_f32
#define STORE vst1q_f32
#define SPREAD vdupq_n_f32
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define ADD vaddq_f32
#define SUB vsubq_f32
#define MUL vmulq_f32
#define DIV vdivq_f32
#define SQRT vsqrtq_f32
#define MAX(a, b) vbslq_f32(vcgtq_f32(a, b), a, b) /* as x86 has them: the second one where they cannot be compared */
#define MIN(a, b) vbslq_f32(vcltq_f32(a, b), a, b)
#define POSITIVE(y, g) vbslq_f32(vcleq_f32(y, vdupq_n_f32(0.0f)), vdupq_n_f32(0.0f), g)
#define SOME long
#define FIRST(n) (n)
#define LOAD_SOME(p, some) ((some) >= 4 ? vld1q_f32(p) : load_some_neon(p, some))
#define STORE_SOME(p, x, some) ((some) >= 4 ? vst1q_f32(p, x) : store_some_neon(p, x, some))
#define MR 6
#define NV 4
#define ROW_CASES SIX_CASES
#include "_products.h"
#endif

#if defined(__x86_64__)
#include <immintrin.h>

/* ---------------------------------------------------------------- AVX2 and FMA */

static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

FUSED INLINE __m256i
first_avx2(long n)
{
    return _mm256_loadu_si256((const __m256i *)(lanes + (n >= 8 ? 0 : n <= 0 ? 8 : 8 - n)));
}

FUSED INLINE void
transpose_avx2(float *to, long wide, const float *from, long ld)
{
    __m256 r[8], s[8];
    STRAIGHT for (int i = 0; i < 8; i++) {
        r[i] = _mm256_loadu_ps(from + i * ld);
    }
    STRAIGHT for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    STRAIGHT for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    STRAIGHT for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * wide, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * wide, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

#define NAME(x) x##_avx2
#define TARGET FUSED
#define LOSSES LOSSES_OF(FUSEDLY)
#define V __m256
#define WIDTH 8
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPREAD _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#define SUB _mm256_sub_ps
#define MUL _mm256_mul_ps
#define DIV _mm256_div_ps
#define SQRT _mm256_sqrt_ps
#define MAX _mm256_max_ps
#define MIN _mm256_min_ps
#define POSITIVE(y, g) _mm256_and_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_NLE_UQ), g)
#define SOME long
#define FIRST(n) (n)
#define LOAD_SOME(p, some) ((some) >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_avx2(some)))
#define STORE_SOME(p, x, some) ((some) >= 8 ? _mm256_storeu_ps(p, x) : _mm256_maskstore_ps(p, first_avx2(some), x))
#define MR 6
#define NV 2
#define ROW_CASES SIX_CASES
#define TRANSPOSE transpose_avx2
#include "_products.h"

/* ---------------------------------------------------------------- AVX-512 */

#define AVX512 __attribute__((target("avx512f")))

AVX512 INLINE void
transpose_avx512(float *to, long wide, const float *from, long ld)
{
    __m512 r[16], s[16];
    STRAIGHT for (int i = 0; i < 16; i++) {
        r[i] = _mm512_loadu_ps(from + i * ld);
    }
    STRAIGHT for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    STRAIGHT for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    STRAIGHT for (int i = 0; i < 4; i++) { /* r[i], r[i+4], r[i+8], r[i+12] hold columns i, i+4, i+8, i+12 in 128-bit lanes */
        __m512 a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88), d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        _mm512_storeu_ps(to + i * wide, _mm512_shuffle_f32x4(a, c, 0x88));
        _mm512_storeu_ps(to + (i + 8) * wide, _mm512_shuffle_f32x4(a, c, 0xdd));
        _mm512_storeu_ps(to + (i + 4) * wide, _mm512_shuffle_f32x4(b, d, 0x88));
        _mm512_storeu_ps(to + (i + 12) * wide, _mm512_shuffle_f32x4(b, d, 0xdd));
    }
}

#define NAME(x) x##_avx512
#define TARGET AVX512
#define LOSSES LOSSES_OF(FUSEDLY)
#define V __m512
#define WIDTH 16
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPREAD _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
#define SUB _mm512_sub_ps
#define MUL _mm512_mul_ps
#define DIV _mm512_div_ps
#define SQRT _mm512_sqrt_ps
#define MAX _mm512_max_ps
#define MIN _mm512_min_ps
#define POSITIVE(y, g) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_NLE_UQ), g)
#define SOME __mmask16
#define FIRST(n) ((__mmask16)((n) >= 16 ? 0xffff : (n) <= 0 ? 0 : (1 << (n)) - 1))
#define LOAD_SOME(p, some) _mm512_maskz_loadu_ps(some, p)
#define STORE_SOME(p, x, some) _mm512_mask_storeu_ps(p, some, x)
#define MR 12
#define NV 2
#define ROW_CASES TWELVE_CASES
#define TRANSPOSE transpose_avx512
#include "_products.h"
#endif

/* ---------------------------------------------------------------- which kind is in use */

typedef struct {
    const char *name;
    const Products *products;
} Named;

static const Named kinds[] = {
#if defined(__x86_64__)
    {"avx512", &products_avx512},
    {"avx2", &products_avx2},
#endif
#if defined(__aarch64__)
    {"neon", &products_neon},
#endif
    {"portable", &products_portable},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const Products *products = &products_portable;
static const char *in_use = "portable";

static int
supported(const char *name)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    int fused = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(name, "avx512") == 0) {
        return fused && __builtin_cpu_supports("avx512f");
    }
    if (strcmp(name, "avx2") == 0) {
        return fused;
    }
#endif
    (void)name;
    return 1;
}

/* Whether a kind gives the portable one's bits for a few odd shapes; memory for all arrays, or it does. */
static int
agrees(const Products *other)
{
    static const long shapes[][3] = {{13, 19, 37}, {70, 33, 5}, {5, 40, 3}, {130, 3, 18}, {66, 5, 17}, {30, 130, 13}};
    static const Windows of = {9, 7, 3, 3, 2, 2, 1, 4, 6, 19};
    enum { MOST = 4096, RESULTS = 6 };
    const Products *both[2] = {&products_portable, other};
    float *memory = calloc((size_t)MOST * (3 + 2 * RESULTS) + TILES(64) + 2 * 64 * 64, sizeof(float)), *x = memory, *w = x + MOST, *g = w + MOST;
    int same = 1;

    for (size_t s = 0; memory != NULL && s < sizeof shapes / sizeof shapes[0]; s++) {
        long m = shapes[s][0], k = shapes[s][1], n = shapes[s][2];
        uint32_t state = 12345;
        float *results = g + MOST, *scratch = results + 2 * RESULTS * MOST;
        for (long e = 0; e < 3 * MOST; e++) {
            state = state * 1664525u + 1013904223u;
            memory[e] = (float)(int32_t)state / 1.5e9f;
        }
        memset(results, 0, (size_t)MOST * 2 * RESULTS * sizeof(float));
        for (int i = 0; i < 2; i++) {
            float *result = results + i * RESULTS * MOST;
            both[i]->forward((Kind)(s % 3), m, k, n, x, k, w, g, result, NULL);
            if (m * n <= MOST) {
                both[i]->multiply(m, n, k, g, n, w, k, 0, result + MOST, k, NULL, (Kind)(s % 3), x, NULL);
                both[i]->outer(m, n, k, g, n, x, k, result + 2 * MOST, scratch);
                both[i]->columns((Summed)(s % 3), m, n, g, n, w, x, n, result + 3 * MOST);
                both[i]->combined((Kind)(s % 3), m, n, g, x, n, w, w + n, w + 2 * n, w + 3 * n, result + 3 * MOST + n);
            }
            Adam how = {0.1f, 0.999f, 0.001f, 0.01f, 0.5f, 1e-8f, 0.01f, 1.0f, 0};
            memcpy(result + 4 * MOST, x, 1024 * sizeof(float));
            both[i]->adam(301, result + 4 * MOST, w, result + 4 * MOST + 512, result + 4 * MOST + 1024, &how);
            both[i]->squash(33, 3, -1.0f, 1.0f, x, w, g, result + 4 * MOST + 1600, result + 4 * MOST + 1700, result + 4 * MOST + 1800,
                            result + 4 * MOST + 1900, result + 4 * MOST + 2000);
            float *seen = result + 5 * MOST;
            both[i]->lay_out(18, of.outputs, w, 18, 1, scratch);
            both[i]->windows(&of, 2, x, 9 * 7 * 3, scratch, g, (Kind)(s % 3), seen);
            both[i]->leaf_of_units(&of, 2, x, 9 * 7 * 3, g, 0, 3, seen + 1000, seen + 2900, scratch + MOST);
            both[i]->unwindow(&of, 2, g, seen + 3000);
            both[i]->pixels(50, 3 + (long)s % 2, (const unsigned char *)x, 50, 255.0f, seen + 3500);
        }
        same = same && memcmp(results, results + RESULTS * MOST, (size_t)RESULTS * MOST * sizeof(float)) == 0;
    }
    free(memory);
    return same;
}

/* ---------------------------------------------------------------- arguments */

enum { MOST_NETWORKS = 64 }; /* that go side by side */

typedef struct {
    Py_buffer views[MOST_NETWORKS];
    int held;
    int failed;
} Held;

static void
release(Held *held)
{
    while (held->held > 0) {
        PyBuffer_Release(&held->views[--held->held]);
    }
}

/* Memory of an array without gaps of so many numbers (-1: any number); NULL for None where that may be. */
static void *
array_of(Held *held, PyObject *array, const char *what, const char *format, Py_ssize_t count, int writable, int optional)
{
    if (held->failed || (optional && array == Py_None)) {
        return NULL;
    }
    Py_buffer *view = &held->views[held->held];
    if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        held->failed = 1;
        return NULL;
    }
    held->held++;
    if (view->format == NULL || strlen(view->format) != 1 || strchr(format, view->format[0]) == NULL) {
        PyErr_Format(PyExc_TypeError, "%s must be of the type %s, got %s", what, format[0] == 'f' ? "float32" : format[0] == '?' ? "bool" : "int64",
                     view->format ? view->format : "bytes");
        held->failed = 1;
    } else if (count >= 0 && view->len / view->itemsize != count) {
        PyErr_Format(PyExc_ValueError, "%s must have %zd numbers, got %zd", what, count, view->len / view->itemsize);
        held->failed = 1;
    }
    return held->failed ? NULL : view->buf;
}

#define IN(at, what, count) (const float *)array_of(&held, args[at], what, "f", count, 0, 0)
#define MAYBE(at, what, count) (const float *)array_of(&held, args[at], what, "f", count, 0, 1)
#define OUT(at, what, count) (float *)array_of(&held, args[at], what, "f", count, 1, 0)
#define NUMBERS(at, what, count) (const int64_t *)array_of(&held, args[at], what, "ql", count, 0, 0)
#define LENGTH(at) (held.failed ? 0 : held.views[at].len / held.views[at].itemsize)
#define ARGUMENTS(wanted, signature)                        \
    (void)module;                                           \
    if (count != wanted) {                                  \
        PyErr_SetString(PyExc_TypeError, signature);        \
        return NULL;                                        \
    }                                                       \
    Held held;                                              \
    held.held = held.failed = 0
#define WHOLE_ROWS                                                                                       \
    if (!held.failed && rows && size % rows) {                                                            \
        PyErr_Format(PyExc_ValueError, "%zd numbers are not those of %zd rows", size, rows);              \
    }
#define UNLESS_FAILED                                       \
    if (held.failed || PyErr_Occurred()) {                  \
        release(&held);                                     \
        return NULL;                                        \
    }
#define FUNCTION(name) static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t count)

static float
number(PyObject *given)
{
    return (float)PyFloat_AsDouble(given);
}

static PyObject *
done(Held *held)
{
    release(held);
    return Py_NewRef(Py_None);
}

#include "_team.h"
#include "_passes.h"

/* ---------------------------------------------------------------- optimisers, and what goes over all parameters */

static double
power(double base, long long exponent) /* by multiplications alone: nobody promises the last bit of pow() */
{
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1, base *= base) {
        if (exponent & 1) {
            result *= base;
        }
    }
    return result;
}

typedef struct {
    const Products *with;
    long size, parts;
    float *w, *first, *second;
    const float *g;
    const Adam *how;
    float tau, rest;
} Step;

static void
adam_part(void *what, long part)
{
    const Step *step = what;
    long begin = begin_of(step->size, part, step->parts, EVEN), end = begin_of(step->size, part + 1, step->parts, EVEN);
    step->with->adam(end - begin, step->w + begin, step->g + begin, step->first + begin, step->second + begin, step->how);
}

static void
blend_part(void *what, long part)
{
    const Step *step = what;
    long begin = begin_of(step->size, part, step->parts, EVEN), end = begin_of(step->size, part + 1, step->parts, EVEN);
    step->with->blend(end - begin, step->w + begin, step->g + begin, step->tau, step->rest);
}

/* Each number is for itself. */
static void
over_all(Step *step, Part part)
{
    enum { NUMBER = 64 }; /* from a far cache takes as long as so many multiply-adds of a product */
    Team *team = team_for(NUMBER * step->size);
    step->parts = parts_for(team, 1, NUMBER * step->size);
    PyThreadState *state = step->size >= LARGE / 4 ? PyEval_SaveThread() : NULL;
    compute_parts(team, step->parts, part, step);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

FUNCTION(py_adam)
{
    ARGUMENTS(12, "adam(kind, decoupled, weights, gradients, first, second, steps, lr, beta1, beta2, epsilon, decay)");
    int rectified = (int)PyLong_AsLong(args[0]), decoupled = (int)PyLong_AsLong(args[1]);
    float *w = OUT(2, "weights", -1);
    Py_ssize_t size = LENGTH(0);
    const float *g = IN(3, "gradients", size);
    float *first = OUT(4, "first", size), *second = OUT(5, "second", size);
    long long steps = PyLong_AsLongLong(args[6]);
    double d[5];
    for (int i = 0; i < 5; i++) {
        d[i] = PyFloat_AsDouble(args[7 + i]);
    }
    UNLESS_FAILED
    double lr = d[0], faded1 = 1.0 - power(d[1], steps), left2 = power(d[2], steps), faded2 = 1.0 - left2;
    Adam how = {
        .rest1 = (float)(1.0 - d[1]), .beta2 = (float)d[2], .rest2 = (float)(1.0 - d[2]), .step = (float)(lr / faded1),
        .root = (float)sqrt(faded2), .epsilon = (float)d[3], .decay = decoupled ? 0.0f : (float)d[4],
        .keep = decoupled ? (float)(1.0 - lr * d[4]) : 1.0f, .momentum = 0,
    };
    if (rectified) {
        double most = 2.0 / (1.0 - d[2]) - 1.0, rho = most - 2.0 * (double)steps * left2 / faded2;
        how.momentum = rho <= 5.0;
        if (!how.momentum) {
            double rect = sqrt((rho - 4.0) * (rho - 2.0) * most / ((most - 4.0) * (most - 2.0) * rho));
            how.step = (float)(lr / faded1 * rect * sqrt(faded2));
            how.root = 1.0f;
        }
    }
    Step step = {.with = products, .size = (long)size, .w = w, .g = g, .first = first, .second = second, .how = &how};
    over_all(&step, adam_part);
    return done(&held);
}

FUNCTION(py_blend)
{
    ARGUMENTS(3, "blend(target, weights, tau)");
    float *target = OUT(0, "target", -1);
    const float *w = IN(1, "weights", LENGTH(0));
    double tau = PyFloat_AsDouble(args[2]);
    UNLESS_FAILED
    Step step = {.with = products, .size = (long)LENGTH(0), .w = target, .g = w, .tau = (float)tau, .rest = (float)(1.0 - tau)};
    over_all(&step, blend_part);
    return done(&held);
}

FUNCTION(py_norm)
{
    ARGUMENTS(1, "norm(gradients)");
    const float *g = IN(0, "gradients", -1);
    UNLESS_FAILED
    double norm = sqrt(products->squares((long)LENGTH(0), g));
    release(&held);
    return PyFloat_FromDouble((double)(float)norm);
}

FUNCTION(py_exp)
{
    ARGUMENTS(1, "exp(x)");
    float x = number(args[0]);
    UNLESS_FAILED
    return PyFloat_FromDouble((double)products->exponential(x));
}

/* ---------------------------------------------------------------- distributions */

FUNCTION(py_squash)
{
    ARGUMENTS(10, "squash(mean, raw, noise, actions, spread, slack, log_prob, part, low, high)");
    const float *mean = IN(0, "mean", -1);
    Py_ssize_t size = LENGTH(0);
    const float *raw = IN(1, "raw", size), *noise = IN(2, "noise", size);
    float *actions = OUT(3, "actions", size), *spread = OUT(4, "spread", size), *slack = OUT(5, "slack", size);
    float *log_prob = OUT(6, "log_prob", -1), *part = OUT(7, "part", size), low = number(args[8]), high = number(args[9]);
    Py_ssize_t rows = LENGTH(6);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        products->squash((long)rows, (long)(size / rows), low, high, mean, raw, noise, actions, spread, slack, log_prob, part);
    }
    return done(&held);
}

FUNCTION(py_unsquash)
{
    ARGUMENTS(10, "unsquash(by_actions, by_log_prob, actions, spread, slack, raw, by_mean, by_log_std, low, high)");
    const float *by_actions = IN(0, "by_actions", -1);
    Py_ssize_t size = LENGTH(0);
    const float *actions = IN(2, "actions", size), *spread = IN(3, "spread", size), *slack = IN(4, "slack", size);
    const float *raw = IN(5, "raw", size);
    float *by_mean = OUT(6, "by_mean", size), *by_log_std = OUT(7, "by_log_std", size);
    float by = number(args[1]), low = number(args[8]), high = number(args[9]);
    UNLESS_FAILED
    products->unsquash((long)size, low, high, by_actions, by, actions, spread, slack, raw, by_mean, by_log_std);
    return done(&held);
}

/* Numbers of the logits of a row; -1 with an error set if a choice has none, or one that is taken is not there. */
static long
width_of(long rows, long choices, const int64_t *sizes, const int64_t *taken)
{
    long width = 0;
    for (long choice = 0; choice < choices; choice++) {
        if (sizes[choice] < 1) {
            PyErr_Format(PyExc_ValueError, "sizes must be positive, got %lld", (long long)sizes[choice]);
            return -1;
        }
        width += (long)sizes[choice];
        for (long row = 0; row < rows; row++) {
            int64_t one = taken[row * choices + choice];
            if (one < 0 || one >= sizes[choice]) {
                PyErr_Format(PyExc_IndexError, "action %lld is not one of %lld", (long long)one, (long long)sizes[choice]);
                return -1;
            }
        }
    }
    return width;
}

FUNCTION(py_choose)
{
    ARGUMENTS(9, "choose(sizes, logits, taken, masks, logs, probabilities, entropies, log_prob, entropy)");
    const int64_t *sizes = NUMBERS(0, "sizes", -1);
    long choices = (long)LENGTH(0);
    float *log_prob = OUT(7, "log_prob", -1);
    long rows = (long)LENGTH(1);
    const int64_t *taken = NUMBERS(2, "taken", (Py_ssize_t)rows * choices);
    long width = held.failed ? -1 : width_of(rows, choices, sizes, taken);
    if (width < 0) {
        held.failed = 1;
    }
    Py_ssize_t size = (Py_ssize_t)rows * width;
    const float *logits = IN(1, "logits", size);
    const uint8_t *masks = array_of(&held, args[3], "masks", "?B", size, 0, 1);
    float *logs = OUT(4, "logs", size), *probabilities = OUT(5, "probabilities", size);
    float *entropies = OUT(6, "entropies", (Py_ssize_t)rows * choices), *entropy = OUT(8, "entropy", rows);
    UNLESS_FAILED
    products->choose(rows, width, choices, sizes, logits, taken, masks, logs, probabilities, entropies, log_prob, entropy);
    return done(&held);
}

FUNCTION(py_unchoose)
{
    ARGUMENTS(9, "unchoose(sizes, taken, masks, logs, probabilities, entropies, by_log_prob, by_entropy, gradient)");
    const int64_t *sizes = NUMBERS(0, "sizes", -1);
    long choices = (long)LENGTH(0);
    const float *by_log_prob = IN(6, "by_log_prob", -1);
    long rows = (long)LENGTH(1);
    const int64_t *taken = NUMBERS(1, "taken", (Py_ssize_t)rows * choices);
    long width = held.failed ? -1 : width_of(rows, choices, sizes, taken);
    if (width < 0) {
        held.failed = 1;
    }
    Py_ssize_t size = (Py_ssize_t)rows * width;
    const uint8_t *masks = array_of(&held, args[2], "masks", "?B", size, 0, 1);
    const float *logs = IN(3, "logs", size), *probabilities = IN(4, "probabilities", size);
    const float *entropies = IN(5, "entropies", (Py_ssize_t)rows * choices);
    float by_entropy = number(args[7]);
    float *gradient = OUT(8, "gradient", size);
    UNLESS_FAILED
    products->unchoose(rows, width, choices, sizes, taken, masks, logs, probabilities, entropies, by_log_prob, by_entropy, gradient);
    return done(&held);
}

FUNCTION(py_toss)
{
    ARGUMENTS(6, "toss(logits, taken, probabilities, terms, log_prob, entropy)");
    const float *logits = IN(0, "logits", -1);
    Py_ssize_t size = LENGTH(0);
    const float *taken = IN(1, "taken", size);
    float *probabilities = OUT(2, "probabilities", size), *terms = OUT(3, "terms", size), *log_prob = OUT(4, "log_prob", -1);
    Py_ssize_t rows = LENGTH(4);
    float *entropy = OUT(5, "entropy", rows);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        products->toss((long)rows, (long)(size / rows), logits, taken, probabilities, terms, log_prob, entropy);
    }
    return done(&held);
}

FUNCTION(py_untoss)
{
    ARGUMENTS(6, "untoss(logits, taken, probabilities, by_log_prob, by_entropy, gradient)");
    const float *logits = IN(0, "logits", -1);
    Py_ssize_t size = LENGTH(0);
    const float *taken = IN(1, "taken", size), *probabilities = IN(2, "probabilities", size), *by_log_prob = IN(3, "by_log_prob", -1);
    Py_ssize_t rows = LENGTH(3);
    float by_entropy = number(args[4]);
    float *gradient = OUT(5, "gradient", size);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        products->untoss((long)rows, (long)(size / rows), logits, taken, probabilities, by_log_prob, by_entropy, gradient);
    }
    return done(&held);
}

FUNCTION(py_draw)
{
    ARGUMENTS(7, "draw(means, actions, log_std, inverse, distances, log_prob, entropy)");
    const float *log_std = IN(2, "log_std", -1);
    Py_ssize_t n = LENGTH(0);
    float *log_prob = OUT(5, "log_prob", -1);
    Py_ssize_t rows = LENGTH(1);
    const float *means = IN(0, "means", rows * n), *actions = IN(1, "actions", rows * n);
    float *inverse = OUT(3, "inverse", n), *distances = OUT(4, "distances", rows * n), *entropy = OUT(6, "entropy", rows);
    UNLESS_FAILED
    products->draw((long)rows, (long)n, means, actions, log_std, inverse, distances, log_prob, entropy);
    return done(&held);
}

FUNCTION(py_undraw)
{
    ARGUMENTS(7, "undraw(inverse, distances, by_log_prob, by_entropy, gradient, terms, log_std_gradient)");
    const float *inverse = IN(0, "inverse", -1);
    Py_ssize_t n = LENGTH(0);
    const float *by_log_prob = IN(2, "by_log_prob", -1);
    Py_ssize_t rows = LENGTH(1);
    const float *distances = IN(1, "distances", rows * n);
    float by_entropy = number(args[3]);
    float *gradient = OUT(4, "gradient", rows * n), *terms = OUT(5, "terms", rows * n), *by_log_std = OUT(6, "log_std_gradient", n);
    UNLESS_FAILED
    products->undraw((long)rows, (long)n, inverse, distances, by_log_prob, by_entropy, gradient, terms);
    products->columns(VALUES, (long)rows, (long)n, terms, (long)n, NULL, NULL, 0, by_log_std);
    return done(&held);
}

FUNCTION(py_vary)
{
    ARGUMENTS(8, "vary(means, actions, variances, epsilon, distances, inverse, log_prob, entropy)");
    const float *means = IN(0, "means", -1);
    Py_ssize_t size = LENGTH(0);
    const float *actions = IN(1, "actions", size), *variances = IN(2, "variances", size);
    float epsilon = number(args[3]);
    float *distances = OUT(4, "distances", size), *inverse = OUT(5, "inverse", size), *log_prob = OUT(6, "log_prob", -1);
    Py_ssize_t rows = LENGTH(5);
    float *entropy = OUT(7, "entropy", rows);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        products->vary((long)rows, (long)(size / rows), means, actions, variances, epsilon, distances, inverse, log_prob, entropy);
    }
    return done(&held);
}

FUNCTION(py_unvary)
{
    ARGUMENTS(6, "unvary(distances, inverse, by_log_prob, by_entropy, by_means, by_variances)");
    const float *distances = IN(0, "distances", -1);
    Py_ssize_t size = LENGTH(0);
    const float *inverse = IN(1, "inverse", size), *by_log_prob = IN(2, "by_log_prob", -1);
    Py_ssize_t rows = LENGTH(2);
    float by_entropy = number(args[3]);
    float *by_means = OUT(4, "by_means", size), *by_variances = OUT(5, "by_variances", size);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        products->unvary((long)rows, (long)(size / rows), distances, inverse, by_log_prob, by_entropy, by_means, by_variances);
    }
    return done(&held);
}

FUNCTION(py_variances)
{
    ARGUMENTS(2, "variances(log_std, variances)");
    const float *log_std = IN(0, "log_std", -1);
    Py_ssize_t n = LENGTH(0);
    float *variances = OUT(1, "variances", n);
    UNLESS_FAILED
    products->variances((long)n, log_std, variances);
    return done(&held);
}

/* ---------------------------------------------------------------- losses */

FUNCTION(py_surrogate)
{
    ARGUMENTS(15, "surrogate(values, log_prob, entropy, advantages, returns, old_log_prob, old_values, clip, clip_vf, ent_coef, "
                  "vf_coef, share, by_values, by_log_prob, statistics)");
    Surrogate how;
    how.values = IN(0, "values", -1);
    Py_ssize_t rows = LENGTH(0);
    how.log_prob = IN(1, "log_prob", rows);
    how.entropy = MAYBE(2, "entropy", rows);
    how.advantages = IN(3, "advantages", rows);
    how.returns = IN(4, "returns", rows);
    how.old_log_prob = IN(5, "old_log_prob", rows);
    how.old_values = MAYBE(6, "old_values", rows);
    how.clip = number(args[7]), how.clip_vf = number(args[8]), how.ent_coef = number(args[9]), how.vf_coef = number(args[10]);
    how.share = number(args[11]);
    how.by_values = OUT(12, "by_values", rows);
    how.by_log_prob = OUT(13, "by_log_prob", rows);
    float *statistics = OUT(14, "statistics", 6);
    UNLESS_FAILED
    products->surrogate((long)rows, &how, statistics);
    return done(&held);
}

FUNCTION(py_td)
{
    ARGUMENTS(10, "td(values, following, log_prob, alpha, dones, rewards, discounts, discount, share, by_values)");
    const float *rewards = IN(5, "rewards", -1);
    Py_ssize_t rows = LENGTH(0);
    const float *values = IN(0, "values", -1);
    Py_ssize_t size = LENGTH(1);
    const float *following = IN(1, "following", size), *log_prob = MAYBE(2, "log_prob", rows), *dones = IN(4, "dones", rows);
    const float *discounts = MAYBE(6, "discounts", rows);
    float alpha = number(args[3]), discount = number(args[7]), share = number(args[8]);
    float *by_values = OUT(9, "by_values", size);
    if (!held.failed && (rows ? size % rows || !size : size)) {
        PyErr_Format(PyExc_ValueError, "%zd values are not those of %zd rows", size, rows);
    }
    UNLESS_FAILED
    float loss = rows ? products->td((long)(size / rows), (long)rows, values, following, log_prob, alpha, dones, rewards, discounts, discount,
                                     share, by_values)
                      : 0.0f;
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_best)
{
    ARGUMENTS(7, "best(following, choosing, dones, rewards, discounts, discount, returns)");
    float *returns = OUT(6, "returns", -1);
    Py_ssize_t rows = LENGTH(0);
    const float *following = IN(0, "following", -1);
    Py_ssize_t size = LENGTH(1);
    const float *choosing = MAYBE(1, "choosing", size), *dones = IN(2, "dones", rows), *rewards = IN(3, "rewards", rows);
    const float *discounts = MAYBE(4, "discounts", rows);
    float discount = number(args[5]);
    if (!held.failed && (rows ? size % rows || !size : size)) {
        PyErr_Format(PyExc_ValueError, "%zd values are not those of %zd rows", size, rows);
    }
    UNLESS_FAILED
    if (rows) {
        products->best((long)rows, (long)(size / rows), following, choosing, dones, rewards, discounts, discount, returns);
    }
    return done(&held);
}

FUNCTION(py_taken)
{
    ARGUMENTS(6, "taken(values, actions, returns, huber, share, by_values)");
    const int64_t *actions = NUMBERS(1, "actions", -1);
    Py_ssize_t rows = LENGTH(0);
    const float *values = IN(0, "values", -1);
    Py_ssize_t size = LENGTH(1);
    const float *returns = IN(2, "returns", rows);
    int huber = PyObject_IsTrue(args[3]);
    float share = number(args[4]);
    float *by_values = OUT(5, "by_values", size);
    if (!held.failed && (rows ? size % rows || !size : size)) {
        PyErr_Format(PyExc_ValueError, "%zd values are not those of %zd rows", size, rows);
    }
    Py_ssize_t n = rows ? size / rows : 1;
    for (Py_ssize_t row = 0; !held.failed && !PyErr_Occurred() && row < rows; row++) {
        if (actions[row] < 0 || actions[row] >= n) {
            PyErr_Format(PyExc_IndexError, "action %lld is not one of %zd", (long long)actions[row], n);
        }
    }
    UNLESS_FAILED
    float loss = products->taken((long)rows, (long)n, values, actions, returns, huber, share, by_values);
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_quantiles)
{
    ARGUMENTS(6, "quantiles(critics, rows, values, returns, share, by_values)");
    long critics = PyLong_AsLong(args[0]), rows = PyLong_AsLong(args[1]);
    const float *values = IN(2, "values", -1);
    Py_ssize_t size = LENGTH(0);
    const float *returns = IN(3, "returns", -1);
    Py_ssize_t known = LENGTH(1);
    float share = number(args[4]);
    float *by_values = OUT(5, "by_values", size);
    if (!held.failed && !PyErr_Occurred() && (critics < 1 || rows < 1 || size % critics || size / critics % rows || known % rows)) {
        PyErr_Format(PyExc_ValueError, "%zd values and %zd returns are not those of %ld critics and %ld rows", size, known, critics, rows);
    }
    UNLESS_FAILED
    long n = (long)size / critics / rows, m = (long)known / rows;
    PyThreadState *state = size * m >= LARGE ? PyEval_SaveThread() : NULL;
    float loss = products->quantiles(critics, rows, n, m, values, returns, share, by_values);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_total)
{
    ARGUMENTS(4, "total(first, a, second, b)");
    const float *first = IN(0, "first", -1), *second = MAYBE(2, "second", LENGTH(0));
    float a = number(args[1]), b = number(args[3]);
    UNLESS_FAILED
    float sum = products->total((long)LENGTH(0), first, a, second, b);
    release(&held);
    return PyFloat_FromDouble((double)sum);
}

FUNCTION(py_standardise)
{
    ARGUMENTS(2, "standardise(numbers, out)");
    const float *x = IN(0, "numbers", -1);
    float *out = OUT(1, "out", LENGTH(0));
    if (!held.failed && LENGTH(0) < 2) {
        PyErr_SetString(PyExc_ValueError, "one number has no standard deviation");
    }
    UNLESS_FAILED
    products->standardise((long)LENGTH(0), x, out);
    return done(&held);
}

/* ---------------------------------------------------------------- rows of a replay buffer */

static int
gathered(const int64_t *rows, Py_ssize_t count, PyObject *from, PyObject *into)
{
    Py_buffer source, target;
    if (PyObject_GetBuffer(from, &source, PyBUF_C_CONTIGUOUS) < 0) {
        return -1;
    }
    if (PyObject_GetBuffer(into, &target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&source);
        return -1;
    }
    Py_ssize_t size = count ? target.len / count : 0, there = size ? source.len / size : 0;
    int wrong = target.len != size * count;
    if (wrong) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are not those of %zd rows", target.len, count);
    }
    for (Py_ssize_t i = 0; i < count && !wrong; i++) {
        if ((wrong = rows[i] < 0 || rows[i] >= there)) {
            PyErr_Format(PyExc_IndexError, "there are %zd rows, and none with the number %lld", there, (long long)rows[i]);
        }
    }
    const char *all = source.buf;
    char *to = target.buf;
    for (Py_ssize_t i = 0; i < count && !wrong; i++, to += size) {
        if (i + 16 < count) { /* they lie anywhere */
            __builtin_prefetch(all + rows[i + 16] * size);
        }
        if (size == 4) {
            memcpy(to, all + rows[i] * 4, 4);
        } else {
            memcpy(to, all + rows[i] * size, (size_t)size);
        }
    }
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    return wrong ? -1 : 0;
}

FUNCTION(py_gather)
{
    ARGUMENTS(3, "gather(rows, sources, targets)");
    const int64_t *rows = NUMBERS(0, "rows", -1);
    if (!held.failed && (!PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) || PyTuple_Size(args[1]) != PyTuple_Size(args[2]))) {
        PyErr_SetString(PyExc_TypeError, "sources and targets must be tuples of one length");
    }
    UNLESS_FAILED
    for (Py_ssize_t i = 0; i < PyTuple_Size(args[1]); i++) {
        if (gathered(rows, LENGTH(0), PyTuple_GetItem(args[1], i), PyTuple_GetItem(args[2], i)) < 0) {
            release(&held);
            return NULL;
        }
    }
    return done(&held);
}

/* ---------------------------------------------------------------- layers with a memory */

#include "_lstm.h"

/* ---------------------------------------------------------------- kinds of processors */

static const Named *
kind_of(PyObject *name)
{
    for (int i = 0; i < KINDS && PyUnicode_Check(name); i++) {
        if (PyUnicode_CompareWithASCIIString(name, kinds[i].name) == 0 && supported(kinds[i].name)) {
            return &kinds[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "this processor has no %R", name);
    return NULL;
}

static PyObject *
use(PyObject *module, PyObject *name)
{
    (void)module;
    const Named *kind = kind_of(name);
    if (kind == NULL) {
        return NULL;
    }
    products = kind->products;
    in_use = kind->name;
    Py_RETURN_NONE;
}

static PyObject *
check(PyObject *module, PyObject *name)
{
    (void)module;
    const Named *kind = kind_of(name);
    return kind == NULL ? NULL : PyBool_FromLong(agrees(kind->products));
}

static PyObject *
using(PyObject *module, PyObject *nothing)
{
    (void)module;
    (void)nothing;
    return PyUnicode_FromString(in_use);
}

static PyObject *
names(PyObject *module, PyObject *nothing)
{
    (void)module;
    (void)nothing;
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < KINDS; i++) {
        PyObject *name = supported(kinds[i].name) ? PyUnicode_FromString(kinds[i].name) : Py_NewRef(Py_None);
        if (name == NULL || (name != Py_None && PyList_Append(list, name) < 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
    return list;
}

#define FAST(name, text) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, text}
static PyMethodDef functions[] = {
    {"kinds", names, METH_NOARGS, "Kinds of code that this processor can run, the fastest first."},
    {"using", using, METH_NOARGS, "The kind in use."},
    {"use", use, METH_O, "Use a kind from now on."},
    {"check", check, METH_O, "Whether a kind gives the bits of the portable one, for a few products."},
    FAST(adam, "One step of Adam, AdamW or RAdam."),
    FAST(blend, "Move towards other parameters."),
    FAST(norm, "The Euclidean norm."),
    FAST(exp, "The exponential of one number, in float32."),
    FAST(squash, "Actions of squashed normal distributions, and their log-probabilities."),
    FAST(unsquash, "Their derivatives."),
    FAST(choose, "Log-probabilities and entropies of categorical distributions, some choices perhaps masked."),
    FAST(unchoose, "Their derivatives."),
    FAST(toss, "Log-probabilities and entropies of Bernoulli distributions."),
    FAST(untoss, "Their derivatives."),
    FAST(draw, "Log-probabilities and entropies of normal distributions."),
    FAST(undraw, "Their derivatives."),
    FAST(vary, "The same where variances depend on the row."),
    FAST(unvary, "Their derivatives."),
    FAST(variances, "Variances, from logarithms of standard deviations."),
    FAST(surrogate, "PPO's loss and its derivatives."),
    FAST(td, "Squared errors of critics against rewards and what follows."),
    FAST(best, "Rewards and what the best next action is worth."),
    FAST(taken, "Errors of the values of actions that were taken."),
    FAST(quantiles, "Errors of quantiles against returns."),
    FAST(total, "A weighted sum over rows."),
    FAST(standardise, "Numbers with mean 0 and standard deviation 1."),
    FAST(gather, "Copy rows of arrays, in the order of their numbers."),
    FAST(panels, "A right factor laid out for products of a few rows."),
    FAST(lstm, "LSTM cells over sequences."),
    FAST(unlstm, "Their derivatives."),
    {NULL, NULL, 0, NULL},
};

static int
module_exec(PyObject *module)
{
    static int told;
    PyType_Spec *specs[] = {&network_spec, &team_spec};
    for (int i = 0; i < 2; i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[i], NULL);
        if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0) {
            Py_XDECREF(type);
            return -1;
        }
        Py_DECREF(type);
    }
    if (!told && pthread_atfork(NULL, NULL, forked) == 0) {
        told = 1;
    }
    return PyModule_AddIntConstant(module, "LEAF", LEAF);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing is shared: arrays belong to a reactor, which runs in one thread at a time */
#endif
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_products",
    .m_doc = "Networks of dense layers, and what learns with them.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__products(void)
{
    return PyModuleDef_Init(&module_def);
}
