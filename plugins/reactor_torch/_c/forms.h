/* What is computed for each form: the same functions for all of them, in a table each, and which one is in use. */

typedef enum { NONE, RELU, TANH } Kind;
typedef enum { AS_IT_IS, RECTIFIED, WHERE_POSITIVE, ADDED } Finish;
typedef enum { VALUES, SQUARES, ALONG } Summed; /* down a column: values, their squared distances from a centre, products with distances */
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

/* A function of a signature, see arguments.h */
typedef float (*RowByRow)(const Sizes *size, const Value *v);

/* What is computed for each kind of processor. x are inputs and y outputs of a layer, w its weight as torch has it, (outputs, inputs); g is
 * the gradient of the loss by what was given, grad_... that by what is named. Arrays have no gaps, but rows of x and of factors of
 * products, which are `ld...` numbers apart. */
typedef struct {
    /* ---- products: multiply.h, vector.h */
    /* y[r][j] = act(b[j] + sum over i of x[r][i] w[j][i]); left is room for ASIDE numbers, or NULL */
    void (*linear)(Kind act, long rows, long inputs, long outputs, const float *x, long ldx, const float *w, const float *b, float *y,
                   float *left);
    /* c = bias + a b, or a b^T; with `values` the gradient through the activation that gave them */
    void (*matmul)(long m, long k, long n, const float *a, long lda, const float *b, long ldb, int transposed, float *c, long ldc,
                   const float *bias, Kind act, const float *values, float *left);
    /* grad_w[i][j] = sum over rows of g[row][i] x[row][j], as a tree of leaves */
    void (*matmul_outer)(long rows, long outputs, long inputs, const float *g, long ldg, const float *x, long ldx, float *grad_w,
                         float *scratch);
    /* a right factor laid out as panels for products of a few rows; c += a panels */
    void (*pack_panels)(long k, long n, const float *b, long ldb, int transposed, float *panels);
    void (*add_packed)(long m, long k, long n, const float *a, long lda, const float *panels, float *c, long ldc);
    void (*add)(float *to, const float *from, long count);

    /* ---- columns: columns.h */
    void (*column_sums)(Summed what, long rows, long n, const float *x, long ldx, const float *centre, const float *g, long ldg,
                        float *sums);
    void (*affine)(long rows, long n, const float *x, long ldx, const float *centre, const float *factor, const float *b, float *y);
    void (*batch_norm_backward)(Kind act, long rows, long n, const float *g, const float *x, long ldx, const float *centre,
                                const float *factor, const float *along, const float *shift, float *grad_x);
    void (*scale_columns)(long rows, long n, const float *g, long ldg, const float *factor, float *grad_x);

    /* ---- element by element: vector.h */
    void (*activation)(Kind act, float *y, long count);
    void (*activation_backward)(Kind act, const float *y, float *g, long count);
    void (*adam)(long count, float *w, const float *g, float *first, float *second, const Adam *how);
    void (*polyak)(long count, float *target, const float *w, float tau, float rest);
    double (*sum_of_squares)(long count, const float *g);

    /* ---- convolutions: windows.h */
    void (*bytes_to_floats)(long count, long channels, const unsigned char *from, long plane, float divisor, float *to);
    void (*conv)(const Windows *of, long images, const float *x, long stride, const float *panels, const float *b, Kind act, float *y);
    void (*conv_weight_leaf)(const Windows *of, long images, const float *x, long stride, const float *g, long begin, long end,
                             float *grad_w, float *grad_b, float *scratch);
    void (*conv_backward_input)(const Windows *of, long images, const float *by_windows, float *grad_x);

    /* ---- layers and distributions row by row: layers/, distributions.h */
    void (*layer_norm)(long rows, long n, const float *x, long ldx, const float *w, const float *b, float epsilon, float *y, float *hat,
                       float *scale);
    void (*layer_norm_backward)(long rows, long n, float *g, const float *w, const float *hat, const float *scale, const int64_t *picked,
                                float *grad_x);
    void (*lstm_cell)(long rows, long n, float *gates, const float *before, float *cells, float *out);
    void (*lstm_cell_backward)(long rows, long n, const float *gates, const float *before, const float *cells, const float *by_out,
                               float *by_cells, float *by_gates);
    void (*gaussian_backward)(long rows, long n, const float *inverse, const float *distances, const float *by_log_prob, float by_entropy,
                              float *grad_means, float *terms);

    /* ---- by signature: DISTRIBUTIONS and LOSSES, in that order */
    const RowByRow *row_by_row;
} Kernels;

/* ---------------------------------------------------------------- row by row: portable C, and with fused multiply-adds */

#define PLAIN(x) x##_plain
#define NAME PLAIN
#define TARGET
#include "rows.h"
#undef NAME
#undef TARGET

#if defined(__x86_64__)
#define FUSED(x) x##_fused
#define NAME FUSED
#define TARGET AVX2
#include "rows.h"
#undef NAME
#undef TARGET
#endif

/* One of the functions for so many rows of a tile, which are a constant in it: call(rows, vectors, ...) */
#define CASE(rows, vectors, call, ...)           \
    case rows:                                  \
        call(rows, vectors, __VA_ARGS__);       \
        break;
#define SIX_CASES(v, ...)                                                             \
    CASE(1, v, __VA_ARGS__) CASE(2, v, __VA_ARGS__) CASE(3, v, __VA_ARGS__)           \
    CASE(4, v, __VA_ARGS__) CASE(5, v, __VA_ARGS__) CASE(6, v, __VA_ARGS__)
#define TWELVE_CASES(v, ...)                                                          \
    SIX_CASES(v, __VA_ARGS__)                                                         \
    CASE(7, v, __VA_ARGS__) CASE(8, v, __VA_ARGS__) CASE(9, v, __VA_ARGS__)           \
    CASE(10, v, __VA_ARGS__) CASE(11, v, __VA_ARGS__) CASE(12, v, __VA_ARGS__)

/* ---------------------------------------------------------------- portable */

#define NAME(x) x##_portable
#define TARGET
#define ROWS_OF PLAIN
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
#include "vector.h"

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
#define ROWS_OF PLAIN
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
#include "vector.h"
#endif

#if defined(__x86_64__)

/* ---------------------------------------------------------------- AVX2 and FMA */

#include <immintrin.h>

static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

/* A mask for the first n of eight floats */
AVX2 INLINE __m256i
first_avx2(long n)
{
    return _mm256_loadu_si256((const __m256i *)(lanes + (n >= 8 ? 0 : n <= 0 ? 8 : 8 - n)));
}

AVX2 INLINE void
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
#define TARGET AVX2
#define ROWS_OF FUSED
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
#include "vector.h"

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
#define ROWS_OF FUSED
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
#include "vector.h"
#endif

/* ---------------------------------------------------------------- which kind is in use */

typedef struct {
    const char *name;
    const Kernels *kernels;
} Named;

static const Named kinds[] = {
#if defined(__x86_64__)
    {"avx512", &kernels_avx512},
    {"avx2", &kernels_avx2},
#endif
#if defined(__aarch64__)
    {"neon", &kernels_neon},
#endif
    {"portable", &kernels_portable},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const Kernels *kernels = &kernels_portable;
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
    return 1;
}
