/* What is computed for each kind of processor: the same functions for all of them, in a table each, and which one is in use. */

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
enum {
    /* Orders of sums, which are a contract */
    LEAF = 64, /* rows of a leaf of the trees that sums over rows are */
    FEW = 4,   /* outputs up to which a learner's linear layer has 16 chains for each, as there is too little else to do meanwhile */
    /* Blocks, which change no bit */
    SUPER = 512,            /* rows of matmul_outer() in one go: 8 leaves, of which up to LEVELS sums wait in a near cache */
    LEVELS = 4,             /* of that tree: log2(SUPER / LEAF) + 1 */
    TALL = 576,             /* rows of its result in one go, each of which may lie in a page of memory of its own */
    MANY = 8,               /* vectors of column_sums() beside each other: an addition takes longer than the time between two */
    DEPTH = 512,            /* rows of a panel: with 16 columns it is 32 KB, a nearest cache */
    DEEPEST = 2 * DEPTH,    /* rows of one where there are no more: then numbers of c are read and written once */
    ROWS = 288,             /* rows of a left factor that are copied aside at a time, a multiple of the tallest tiles' 12 */
    APART = DEEPEST + 16,   /* numbers from one of these to the next: a multiple of 4 KB would have them in one set of the cache */
};
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
} PpoLoss;

/* What is computed for each kind of processor. x are inputs and y outputs of a layer, w its weight as torch has it, (outputs, inputs); g is
 * the gradient of the loss by what was given, grad_... that by what is named. Arrays have no gaps, but rows of x and of factors of
 * products, which are `ld...` numbers apart. */
typedef struct {
    /* ---- products: _multiply.h, _products.h, _acting_linear.h */
    /* y[r][j] = act(b[j] + sum over i of x[r][i] w[j][i]); left is room for ASIDE numbers, or NULL */
    void (*linear)(Kind act, long rows, long inputs, long outputs, const float *x, long ldx, const float *w, const float *b, float *y,
                   float *left);
    /* the same in an actor's order of sums, without an activation */
    void (*linear_acting)(long rows, long inputs, long outputs, const float *x, long ldx, const float *w, const float *b, float *y);
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

    /* ---- columns: _columns.h */
    void (*column_sums)(Summed what, long rows, long n, const float *x, long ldx, const float *centre, const float *g, long ldg,
                        float *sums);
    void (*affine)(long rows, long n, const float *x, long ldx, const float *centre, const float *factor, const float *b, float *y);
    void (*batch_norm_backward)(Kind act, long rows, long n, const float *g, const float *x, long ldx, const float *centre,
                                const float *factor, const float *along, const float *shift, float *grad_x);
    void (*scale_columns)(long rows, long n, const float *g, long ldg, const float *factor, float *grad_x);

    /* ---- element by element: _products.h */
    void (*activation)(Kind act, float *y, long count);
    void (*activation_backward)(Kind act, const float *y, float *g, long count);
    void (*adam)(long count, float *w, const float *g, float *first, float *second, const Adam *how);
    void (*polyak)(long count, float *target, const float *w, float tau, float rest);
    double (*sum_of_squares)(long count, const float *g);

    /* ---- convolutions: _windows.h */
    void (*bytes_to_floats)(long count, long channels, const unsigned char *from, long plane, float divisor, float *to);
    void (*conv)(const Windows *of, long images, const float *x, long stride, const float *panels, const float *b, Kind act, float *y);
    void (*conv_weight_leaf)(const Windows *of, long images, const float *x, long stride, const float *g, long begin, long end,
                             float *grad_w, float *grad_b, float *scratch);
    void (*conv_backward_input)(const Windows *of, long images, const float *by_windows, float *grad_x);

    /* ---- distributions: _losses.h */
    float (*exponential)(float x);
    void (*squashed_gaussian)(long rows, long n, float low, float high, const float *mean, const float *log_std, const float *noise,
                              float *actions, float *spread, float *slack, float *log_prob, float *terms);
    void (*squashed_gaussian_backward)(long count, float low, float high, const float *by_actions, float by_log_prob, const float *actions,
                                       const float *spread, const float *slack, const float *log_std, float *grad_mean,
                                       float *grad_log_std);
    void (*categorical)(long rows, long width, long choices, const int64_t *sizes, const float *logits, const int64_t *taken,
                        const uint8_t *masks, float *logs, float *probabilities, float *entropies, float *log_prob, float *entropy);
    void (*categorical_backward)(long rows, long width, long choices, const int64_t *sizes, const int64_t *taken, const uint8_t *masks,
                                 const float *logs, const float *probabilities, const float *entropies, const float *by_log_prob,
                                 float by_entropy, float *grad_logits);
    void (*bernoulli)(long rows, long n, const float *logits, const float *taken, float *probabilities, float *terms, float *log_prob,
                      float *entropy);
    void (*bernoulli_backward)(long rows, long n, const float *logits, const float *taken, const float *probabilities,
                               const float *by_log_prob, float by_entropy, float *grad_logits);
    void (*gaussian)(long rows, long n, const float *means, const float *actions, const float *log_std, float *inverse, float *distances,
                     float *log_prob, float *entropy);
    void (*gaussian_backward)(long rows, long n, const float *inverse, const float *distances, const float *by_log_prob, float by_entropy,
                              float *grad_means, float *terms);
    void (*gaussian_by_row)(long rows, long n, const float *means, const float *actions, const float *variances, float epsilon,
                            float *distances, float *inverse, float *log_prob, float *entropy);
    void (*gaussian_by_row_backward)(long rows, long n, const float *distances, const float *inverse, const float *by_log_prob,
                                     float by_entropy, float *grad_means, float *grad_variances);
    void (*exp_2x)(long count, const float *log_std, float *variances);

    /* ---- losses: _losses.h */
    void (*ppo_loss)(long rows, const PpoLoss *how, float *statistics);
    float (*td_loss)(long critics, long rows, const float *values, const float *following, const float *log_prob, float alpha,
                     const float *dones, const float *rewards, const float *discounts, float discount, float share, float *grad_values);
    void (*q_target)(long rows, long n, const float *following, const float *choosing, const float *dones, const float *rewards,
                     const float *discounts, float discount, float *returns);
    float (*q_loss)(long rows, long n, const float *values, const int64_t *actions, const float *returns, int huber, float share,
                    float *grad_values);
    float (*quantile_loss)(long critics, long rows, long n, long m, const float *values, const float *returns, float share,
                           float *grad_values);
    float (*weighted_sum)(long rows, const float *first, float a, const float *second, float b);
    void (*standardize)(long rows, const float *x, float *out);

    /* ---- layers row by row: _losses.h */
    void (*layer_norm)(long rows, long n, const float *x, long ldx, const float *w, const float *b, float epsilon, float *y, float *hat,
                       float *scale);
    void (*layer_norm_backward)(long rows, long n, float *g, const float *w, const float *hat, const float *scale, const int64_t *picked,
                                float *grad_x);
    void (*lstm_cell)(long rows, long n, float *gates, const float *before, float *cells, float *out);
    void (*lstm_cell_backward)(long rows, long n, const float *gates, const float *before, const float *cells, const float *by_out,
                               float *by_cells, float *by_gates);
} Kernels;

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

#include "_acting_linear.h"

/* What is plain C: a form of it without fused multiply-adds as instructions, and one with them */
#define ROW_BY_ROW(F) \
    .exponential = F(exponential), .squashed_gaussian = F(squashed_gaussian), \
    .squashed_gaussian_backward = F(squashed_gaussian_backward), .categorical = F(categorical), \
    .categorical_backward = F(categorical_backward), .bernoulli = F(bernoulli), .bernoulli_backward = F(bernoulli_backward), \
    .gaussian = F(gaussian), .gaussian_backward = F(gaussian_backward), .gaussian_by_row = F(gaussian_by_row), \
    .gaussian_by_row_backward = F(gaussian_by_row_backward), .exp_2x = F(exp_2x), .ppo_loss = F(ppo_loss), \
    .td_loss = F(td_loss), .q_target = F(q_target), .q_loss = F(q_loss), .quantile_loss = F(quantile_loss), \
    .weighted_sum = F(weighted_sum), .standardize = F(standardize), .layer_norm = F(layer_norm), \
    .layer_norm_backward = F(layer_norm_backward), .lstm_cell = F(lstm_cell), .lstm_cell_backward = F(lstm_cell_backward), \
    .linear_acting = F(linear_acting)
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
#define LOSSES ROW_BY_ROW(PORTABLY)
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
#define LOSSES ROW_BY_ROW(PORTABLY)
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

/* ---------------------------------------------------------------- AVX2 and FMA */

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
#define LOSSES ROW_BY_ROW(FUSEDLY)
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
#define LOSSES ROW_BY_ROW(FUSEDLY)
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
    (void)name;
    return 1;
}

/* Whether a kind gives the portable one's bits for a few odd shapes; memory for all arrays, or it does. */
static int
agrees(const Kernels *other)
{
    static const long shapes[][3] = {{13, 19, 37}, {70, 33, 5}, {5, 40, 3}, {130, 3, 18}, {66, 5, 17}, {30, 130, 13}};
    static const Windows of = {9, 7, 3, 3, 2, 2, 1, 4, 6, 19};
    enum { MOST = 4096, RESULTS = 6 };
    const Kernels *both[2] = {&kernels_portable, other};
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
            both[i]->linear((Kind)(s % 3), m, k, n, x, k, w, g, result, NULL);
            if (m * n <= MOST) {
                both[i]->matmul(m, n, k, g, n, w, k, 0, result + MOST, k, NULL, (Kind)(s % 3), x, NULL);
                both[i]->matmul_outer(m, n, k, g, n, x, k, result + 2 * MOST, scratch);
                both[i]->column_sums((Summed)(s % 3), m, n, g, n, w, x, n, result + 3 * MOST);
                both[i]->batch_norm_backward((Kind)(s % 3), m, n, g, x, n, w, w + n, w + 2 * n, w + 3 * n, result + 3 * MOST + n);
            }
            Adam how = {0.1f, 0.999f, 0.001f, 0.01f, 0.5f, 1e-8f, 0.01f, 1.0f, 0};
            memcpy(result + 4 * MOST, x, 1024 * sizeof(float));
            both[i]->adam(301, result + 4 * MOST, w, result + 4 * MOST + 512, result + 4 * MOST + 1024, &how);
            both[i]->squashed_gaussian(33, 3, -1.0f, 1.0f, x, w, g, result + 4 * MOST + 1600, result + 4 * MOST + 1700, result + 4 * MOST + 1800,
                            result + 4 * MOST + 1900, result + 4 * MOST + 2000);
            float *seen = result + 5 * MOST;
            both[i]->linear_acting(5, k, n, x, k, w, s % 2 ? g : NULL, seen + 3700); /* at most 5 x 37 numbers */
            both[i]->pack_panels(18, of.outputs, w, 18, 1, scratch);
            both[i]->conv(&of, 2, x, 9 * 7 * 3, scratch, g, (Kind)(s % 3), seen);
            both[i]->conv_weight_leaf(&of, 2, x, 9 * 7 * 3, g, 0, 3, seen + 1000, seen + 2900, scratch + MOST);
            both[i]->conv_backward_input(&of, 2, g, seen + 3000);
            both[i]->bytes_to_floats(50, 3 + (long)s % 2, (const unsigned char *)x, 50, 255.0f, seen + 3500);
        }
        same = same && memcmp(results, results + RESULTS * MOST, (size_t)RESULTS * MOST * sizeof(float)) == 0;
    }
    free(memory);
    return same;
}
