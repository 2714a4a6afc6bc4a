/* What all of it is written in: attributes, block sizes, sums as trees, and a few operations of single numbers. */

#define INLINE static inline __attribute__((always_inline))
#define RESTRICT restrict
#define ALIGNED(n) __attribute__((aligned(n)))
#define BITS(x) __builtin_popcount(x)
#if defined(__clang__)
#define STRAIGHT _Pragma("unroll")
#define EACH _Pragma("clang loop vectorize(assume_safety)") /* in front of a loop: its elements are apart, in arrays that are apart */
#else
#define STRAIGHT _Pragma("GCC unroll 16")
#define EACH _Pragma("GCC ivdep")
#endif
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#endif

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
#define FAILED -1.0 /* what no function returns that can fail */
#define FORBIDDEN -1e8f /* the logit of a choice that is masked, as sb3-contrib has it */

/* ---------------------------------------------------------------- sums over rows, leaf by leaf */

/* Sums of leaves, as a binary tree that grows like a counter: leaf k completes as many sums as k has ones at its end, and those are added to
 * it at once, the latest one first. The error of such a sum grows with the logarithm of the number of leaves (Higham 1993), and not with that
 * number itself. */
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
nearest(float x) /* half to even, for |x| < 2^22: beside 1.5 * 2^23 there is no room for a fraction */
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
parts(float x, float *e) /* x = m 2^e, m in [sqrt(1/2), sqrt(2)); 0x3f3504f3 are the bits of sqrt(1/2) */
{
    Word word = {.f = x};
    int32_t shifted = (int32_t)(word.u - 0x3f3504f3u) >> 23;
    *e = (float)shifted;
    word.u -= (uint32_t)shifted << 23;
    return word.f;
}
