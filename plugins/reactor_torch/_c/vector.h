/* The three products of a dense layer, for one form. Included once for each, with these defined, which forms.h explains:
 *
 *   NAME(x)  TARGET                   names and the attribute of functions
 *   ROWS_OF(x)                        names of what is computed row by row: portable, or with instructions for fused multiply-adds
 *   V  WIDTH  LOAD  STORE  SPREAD  FMA  ADD  SUB  MUL  DIV  SQRT  MAX  MIN  and  POSITIVE(y, g): g where y > 0 or is no number, else 0
 *   SOME  FIRST(n)  LOAD_SOME  STORE_SOME: the first n numbers of a vector
 *   MR  NV  ROW_CASES(v)              a tile has MR rows and NV vectors; one with a single vector has up to 12 rows
 *   TRANSPOSE(to, wide, from, ld)     WIDTH rows of WIDTH numbers become columns, `wide` apart   (optional)
 *
 * Every number is one chain of fused multiply-adds in a fixed order, whatever WIDTH, MR and NV are: bits do not depend on them.
 */

#define PANEL (NV * WIDTH)

/* ---------------------------------------------------------------- a tile: out[i][j] = start[i][j] + sum over p of a[i][p] b[p][j] */

TARGET INLINE void
NAME(store_tile)(const Finish finish, const int rows, const int vectors, V sums[12][NV], float *c, long ldc, const float *other, long ldo,
                 const SOME some[NV])
{
    STRAIGHT for (int i = 0; i < rows; i++) {
        STRAIGHT for (int v = 0; v < vectors; v++) {
            V sum = sums[i][v];
            if (finish == RECTIFIED) {
                sum = MAX(SPREAD(0.0f), sum);
            } else if (finish == WHERE_POSITIVE) {
                sum = POSITIVE(LOAD_SOME(other + i * ldo + v * WIDTH, some[v]), sum);
            } else if (finish == ADDED) {
                sum = ADD(LOAD_SOME(other + i * ldo + v * WIDTH, some[v]), sum);
            }
            STORE_SOME(c + i * ldc + v * WIDTH, sum, some[v]);
        }
    }
}

TARGET INLINE void
NAME(tile_of)(const int rows, const int vectors, const int along, long segments, long jump, long k, const float *a, long stride,
              const float *b, long ldb, float *c, long ldc, const float *start, long lds, Finish finish, const float *other, long ldo, long width)
{
    V sums[12][NV];
    SOME some[NV];

    STRAIGHT for (int v = 0; v < vectors; v++) {
        some[v] = FIRST(width - v * WIDTH);
    }
    STRAIGHT for (int i = 0; i < rows; i++) {
        STRAIGHT for (int v = 0; v < vectors; v++) {
            sums[i][v] = start == NULL ? SPREAD(0.0f) : LOAD_SOME(start + i * lds + v * WIDTH, some[v]);
        }
    }
    for (long segment = 0; segment < segments; segment++, a += jump, b += k * ldb) {
        for (long p = 0; p < k; p++) {
            V columns[NV];
            STRAIGHT for (int v = 0; v < vectors; v++) {
                columns[v] = LOAD(b + p * ldb + v * WIDTH);
            }
            STRAIGHT for (int i = 0; i < rows; i++) {
                V one = SPREAD(along ? a[i * stride + p] : a[p * stride + i]);
                STRAIGHT for (int v = 0; v < vectors; v++) {
                    sums[i][v] = FMA(one, columns[v], sums[i][v]);
                }
            }
        }
    }
    switch (finish) {
    case RECTIFIED:
        NAME(store_tile)(RECTIFIED, rows, vectors, sums, c, ldc, other, ldo, some);
        break;
    case WHERE_POSITIVE:
        NAME(store_tile)(WHERE_POSITIVE, rows, vectors, sums, c, ldc, other, ldo, some);
        break;
    case ADDED:
        NAME(store_tile)(ADDED, rows, vectors, sums, c, ldc, other, ldo, some);
        break;
    default:
        NAME(store_tile)(AS_IT_IS, rows, vectors, sums, c, ldc, other, ldo, some);
    }
}

/* function(rows, vectors, ...) for so many rows, with one vector where it is narrow */
#define BY_ROWS(narrow, rows, ...)              \
    if (narrow) {                               \
        switch (rows) {                         \
            TWELVE_CASES(1, __VA_ARGS__)        \
        }                                       \
    } else {                                    \
        switch (rows) {                         \
            ROW_CASES(NV, __VA_ARGS__)          \
        }                                       \
    }

/* a's rows lie one after the other */
TARGET static void
NAME(tile_along)(int narrow, int rows, long k, const float *a, long stride, const float *b, long ldb, float *c, long ldc,
                 const float *start, long lds, Finish finish, const float *other, long ldo, long width)
{
    BY_ROWS(narrow, rows, NAME(tile_of), 1, 1, 0, k, a, stride, b, ldb, c, ldc, start, lds, finish, other, ldo, width)
}

#if WIDTH >= 16
/* a's columns do; b is a panel, and c, which has been begun, is as wide */
TARGET static void
NAME(tile_across)(int rows, long k, const float *a, long stride, const float *panel, float *c)
{
    switch (rows) {
        ROW_CASES(NV, NAME(tile_of), 0, 1, 0, k, a, stride, panel, PANEL, c, PANEL, c, PANEL, AS_IT_IS, NULL, 0, PANEL)
    }
}
#endif

/* ---------------------------------------------------------------- activations, and what they do to gradients */

/* tanh(x) = x P(x^2) / Q(x^2), P and Q of degree 4, odd and bounded by 7.9, where it is 1 but for a few roundings. Relative error below
 * 4e-7, roundings included: of 9,000,000 random floats within [-10, 10], half of them close to 0, none was further than 3.3e-7, or 5.4 units
 * in the last place, from numpy's float64. Nobody has noted where the coefficients come from, so only the bound is claimed. */
TARGET INLINE V
NAME(squashed)(V x)
{
    const V bound = SPREAD(7.9f);
    V y = MAX(SPREAD(-7.9f), MIN(bound, x)); /* in this order, what is no number stays it */
    V z = MUL(y, y);
    V p = SPREAD(1.54280126e-08f);
    p = FMA(p, z, SPREAD(2.20232741e-05f));
    p = FMA(p, z, SPREAD(3.57899372e-03f));
    p = FMA(p, z, SPREAD(1.34506226e-01f));
    p = FMA(p, z, SPREAD(1.0f));
    V q = SPREAD(8.59879606e-07f);
    q = FMA(q, z, SPREAD(3.42365325e-04f));
    q = FMA(q, z, SPREAD(2.61922441e-02f));
    q = FMA(q, z, SPREAD(4.67839509e-01f));
    q = FMA(q, z, SPREAD(1.0f));
    return DIV(MUL(y, p), q);
}

/* The gradient by x of y = f(x), from that by y and y itself: tanh' = 1 - y^2, relu' = 1 where y > 0 */
TARGET INLINE V
NAME(slope)(Kind kind, V y, V g)
{
    return kind == TANH ? MUL(g, FMA(SUB(SPREAD(0.0f), y), y, SPREAD(1.0f))) : kind == RELU ? POSITIVE(y, g) : g;
}

TARGET static void
NAME(activation)(Kind kind, float *y, long count)
{
    if (kind == NONE) {
        return;
    }
    for (long j = 0; j < count; j += WIDTH) {
        SOME some = FIRST(count - j);
        V x = LOAD_SOME(y + j, some);
        STORE_SOME(y + j, kind == TANH ? NAME(squashed)(x) : MAX(SPREAD(0.0f), x), some);
    }
}

TARGET static void
NAME(activation_backward)(Kind kind, const float *y, float *g, long count)
{
    if (kind == NONE) {
        return;
    }
    for (long j = 0; j < count; j += WIDTH) {
        SOME some = FIRST(count - j);
        STORE_SOME(g + j, NAME(slope)(kind, LOAD_SOME(y + j, some), LOAD_SOME(g + j, some)), some);
    }
}

#include "multiply.h"

/* ---------------------------------------------------------------- sums over rows: leaves of LEAF rows, added up as a tree */

/* c[i][j] = sum over p of a[p][i] b[p][j], for a tile: leaves that wait for others do so in vectors of their own. To that of the last one
 * earlier sums are added, whose tiles are `at` numbers behind their beginnings. */
TARGET INLINE void
NAME(leaves_of)(const int rows, const int vectors, long m, const float *a, long stride, const float *b, long ldb, float *c, long ldc,
                long width, const Earlier *earlier, long at, float level[LEVELS][12 * PANEL])
{
    unsigned leaf = 0;
    int waiting = 0;

    STRAIGHT for (int i = 0; i < rows; i++) {
        STRAIGHT for (int v = 0; v < vectors; v++) {
            __builtin_prefetch(c + i * ldc + v * WIDTH, 1, 2);
        }
    }
    for (long r = 0; r < m; r += LEAF, leaf++) {
        V sums[12][NV];
        long depth = m - r < LEAF ? m - r : LEAF;
        /* leaf & (leaf + 1) is without the ones at its end, each of which stands for a sum that this leaf completes. */
        int last = r + LEAF >= m, first = last ? 0 : BITS(leaf & (leaf + 1)); /* with this one, those from there on are complete */
        STRAIGHT for (int i = 0; i < rows; i++) {
            STRAIGHT for (int v = 0; v < vectors; v++) {
                sums[i][v] = SPREAD(0.0f);
            }
        }
        for (long p = 0; p < depth; p++, a += stride, b += ldb) {
            V columns[NV];
            STRAIGHT for (int v = 0; v < vectors; v++) {
                columns[v] = LOAD(b + v * WIDTH);
            }
            STRAIGHT for (int i = 0; i < rows; i++) {
                V one = SPREAD(a[i]);
                STRAIGHT for (int v = 0; v < vectors; v++) {
                    sums[i][v] = FMA(one, columns[v], sums[i][v]);
                }
            }
        }
        while (waiting > first) {
            const float *before = level[--waiting];
            STRAIGHT for (int i = 0; i < rows; i++) {
                STRAIGHT for (int v = 0; v < vectors; v++) {
                    sums[i][v] = ADD(LOAD(before + i * PANEL + v * WIDTH), sums[i][v]);
                }
            }
        }
        if (last) {
            SOME some[NV];
            STRAIGHT for (int v = 0; v < vectors; v++) {
                some[v] = FIRST(width - v * WIDTH);
            }
            for (int e = 0; e < earlier->count; e++) {
                const float *before = earlier->from[e] + at;
                STRAIGHT for (int i = 0; i < rows; i++) {
                    STRAIGHT for (int v = 0; v < vectors; v++) {
                        sums[i][v] = ADD(LOAD_SOME(before + i * ldc + v * WIDTH, some[v]), sums[i][v]);
                    }
                }
            }
            STRAIGHT for (int i = 0; i < rows; i++) {
                STRAIGHT for (int v = 0; v < vectors; v++) {
                    STORE_SOME(c + i * ldc + v * WIDTH, sums[i][v], some[v]);
                }
            }
        } else {
            float *here = level[waiting++];
            STRAIGHT for (int i = 0; i < rows; i++) {
                STRAIGHT for (int v = 0; v < vectors; v++) {
                    STORE(here + i * PANEL + v * WIDTH, sums[i][v]);
                }
            }
        }
    }
}

TARGET static void
NAME(leaves)(int narrow, int rows, long m, const float *a, long stride, const float *b, long ldb, float *c, long ldc, long width,
             const Earlier *earlier, long at)
{
    ALIGNED(64) float level[LEVELS][12 * PANEL];
    BY_ROWS(narrow, rows, NAME(leaves_of), m, a, stride, b, ldb, c, ldc, width, earlier, at, level)
}

/* to[i / MR][row][i % MR] = from[row][i]; what is behind the last column stays as it is. */
TARGET static void
NAME(pack_tiles)(float *to, long m, long n, const float *from, long ld)
{
    for (; n >= MR; n -= MR, from += MR, to += TILE(m, MR)) {
        for (long row = 0; row < m; row++) {
            memcpy(to + row * MR, from + row * ld, MR * sizeof(float));
        }
    }
    for (long row = 0; row < m && n; row++) {
        memcpy(to + row * MR, from + row * ld, (size_t)n * sizeof(float));
    }
}

/* c[i][j] = earlier sums + that over up to SUPER rows, one at least, of g[row][i] x[row][j]; left has room for g in tiles. */
TARGET static void
NAME(outer_some)(long m, long n, long k, const float *g, long ldg, const float *x, long ldx, float *c, long ldc, const Earlier *earlier,
                 float *left)
{
    ALIGNED(64) float panels[2][SUPER * PANEL];
    /* Where rows of g are so far apart that a leaf of them falls into a few sets of the cache, and are gone through often enough. */
    int tiled = ldg >= 128 && k > 8 * PANEL, far = m * k >= FAR && n > 4 * MR;

    if (tiled) {
        NAME(pack_tiles)(left, m, n, g, ldg);
    }
    for (long begin = 0; begin < n; begin += TALL) { /* so many rows of c, as others may each have a page of memory for itself */
        long end = n - begin < TALL ? n : begin + TALL;
        NAME(Right) next = NAME(right_of)(x, ldx, 0, 0, m, 0, k);
        for (long j = 0, now = 0, ahead = 0; j < k; j += PANEL, now = ahead ? !now : now) {
            NAME(Right) right = next;
            int narrow = right.wide == WIDTH, most = narrow ? 12 : MR, more = j + PANEL < k;
            int packed = right.columns < right.wide || n > most;
            long share = far ? NAME(share_of)(&right, (end - begin + most - 1) / most) : 0;
            if (packed && !ahead) {
                NAME(pack_some)(panels[now], &right, 0, m);
            }
            ahead = far && packed && more;
            if (more) {
                next = NAME(right_of)(x, ldx, 0, 0, m, j + PANEL, k);
            }
            for (long i = begin, at = 0; i < end; i += most) {
                int rows = (int)(end - i < most ? end - i : most);
                const float *from = tiled && !narrow ? left + i / MR * TILE(m, MR) : g + i;
                if (ahead) {
                    NAME(pack_ahead)(panels[!now], &next, at, share);
                    at += share;
                }
                NAME(leaves)(narrow, rows, m, from, tiled && !narrow ? MR : ldg, packed ? panels[now] : right.from, packed ? right.wide : ldx,
                             c + i * ldc + j, ldc, right.columns, earlier, i * ldc + j);
            }
        }
    }
}

TARGET static void
NAME(add)(float *to, const float *from, long count)
{
    for (long e = 0; e < count; e += WIDTH) {
        SOME some = FIRST(count - e);
        STORE_SOME(to + e, ADD(LOAD_SOME(to + e, some), LOAD_SOME(from + e, some)), some);
    }
}

/* The same of any number of rows, c being without gaps; scratch has room for g or x in tiles, for another c for each doubling of SUPER,
 * and for one more. */
TARGET static void
NAME(matmul_outer)(long m, long n, long k, const float *g, long ldg, const float *x, long ldx, float *c, float *scratch)
{
    unsigned done = 0;
    /* Columns that would leave much of a vector idle are better the rows of tiles: a product of two numbers has no order. */
    int turned = k * ((n + PANEL - 1) / PANEL * PANEL) * 9 < n * ((k + WIDTH - 1) / WIDTH * WIDTH) * 8;
    float *result = c, *left = scratch;

    scratch += TILES(n > k ? n : k);
    if (m == 0) {
        memset(c, 0, (size_t)(n * k) * sizeof(float));
        return;
    }
    if (turned) {
        const float *left = g;
        long swap = n;
        n = k, k = swap;
        g = x, x = left;
        swap = ldg, ldg = ldx, ldx = swap;
        c = scratch, scratch += n * k;
    }
    for (long r = 0; r < m; r += SUPER, done++) {
        int waiting = BITS(done);
        Earlier earlier = {.count = 0};
        float *at = waiting ? scratch + (waiting - 1) * n * k : c;
        for (unsigned bits = done; bits & 1; bits >>= 1) { /* with this one, those are complete */
            earlier.from[earlier.count++] = at = --waiting ? scratch + (waiting - 1) * n * k : c;
        }
        NAME(outer_some)(m - r < SUPER ? m - r : SUPER, n, k, g + r * ldg, ldg, x + r * ldx, ldx, at, k, &earlier, left);
    }
    for (int waiting = BITS(done); waiting > 1; waiting--) {
        NAME(add)(waiting > 2 ? scratch + (waiting - 3) * n * k : c, scratch + (waiting - 2) * n * k, n * k);
    }
    if (turned) {
        for (long j = 0; j < k; j++) {
            for (long i = 0; i < n; i++) {
                result[j * n + i] = c[i * k + j];
            }
        }
    }
}

#include "columns.h"

/* ---------------------------------------------------------------- c += a b, for a b that stays: laid out as panels, one after the other */

TARGET static void
NAME(pack_panels)(long k, long n, const float *from, long ld, int transposed, float *panels)
{
    for (long j = 0; j < n; j += PANEL, panels += k * PANEL) {
        long columns = n - j < PANEL ? n - j : PANEL;
        if (transposed) {
            NAME(pack_transposed)(panels, PANEL, from + j * ld, ld, k, columns);
        } else {
            NAME(pack)(panels, PANEL, from + j, ld, k, columns);
        }
    }
}

/* A few rows and several panels: as many sums side by side as it takes not to wait for any. */
TARGET INLINE void
NAME(add_few)(const int rows, const int beside, long k, const float *a, long lda, const float *panels, float *c, long ldc)
{
    V sums[3][4 * NV];
    STRAIGHT for (int i = 0; i < rows; i++) {
        STRAIGHT for (int v = 0; v < beside * NV; v++) {
            sums[i][v] = LOAD(c + i * ldc + v * WIDTH);
        }
    }
    for (long p = 0; p < k; p++, panels += PANEL) {
        STRAIGHT for (int v = 0; v < beside * NV; v++) {
            V column = LOAD(panels + v / NV * k * PANEL + v % NV * WIDTH);
            STRAIGHT for (int i = 0; i < rows; i++) {
                sums[i][v] = FMA(SPREAD(a[i * lda + p]), column, sums[i][v]);
            }
        }
    }
    STRAIGHT for (int i = 0; i < rows; i++) {
        STRAIGHT for (int v = 0; v < beside * NV; v++) {
            STORE(c + i * ldc + v * WIDTH, sums[i][v]);
        }
    }
}

TARGET static void
NAME(add_packed)(long m, long k, long n, const float *a, long lda, const float *panels, float *c, long ldc)
{
    for (long j = 0, beside; j < n; j += beside * PANEL, panels += beside * k * PANEL) {
        long whole = (n - j) / PANEL, columns = whole ? PANEL : n - j;
        beside = m == 1 && whole >= 4 ? 4 : m <= 3 && whole >= 2 ? 2 : 1;
        if (beside == 4) { /* numbers of rows and panels are constants, so that sums stay in registers */
            NAME(add_few)(1, 4, k, a, lda, panels, c + j, ldc);
        } else if (beside == 2 && m == 1) {
            NAME(add_few)(1, 2, k, a, lda, panels, c + j, ldc);
        } else if (beside == 2 && m == 2) {
            NAME(add_few)(2, 2, k, a, lda, panels, c + j, ldc);
        } else if (beside == 2 && m == 3) {
            NAME(add_few)(3, 2, k, a, lda, panels, c + j, ldc);
        }
        for (long i = 0; i < m && beside == 1; i += MR) {
            int rows = (int)(m - i < MR ? m - i : MR);
            float *out = c + i * ldc + j;
            NAME(tile_along)(0, rows, k, a + i * lda, lda, panels, PANEL, out, ldc, out, ldc, AS_IT_IS, NULL, 0, columns);
        }
    }
}

#include "windows.h"

/* ---------------------------------------------------------------- few numbers for each row: dots of 16 chains, whatever WIDTH is */

/* c[i][j] = bias[j] + sum over p of a[i][p] b[j][p]. With so few outputs one chain for each would leave a processor waiting for the last
 * addition, so there are 16, of p modulo 16, which are folded by halves. */
TARGET INLINE void
NAME(dots_of)(const int outputs, long m, long k, const float *a, long lda, const float *b, const float *bias, float *c)
{
    enum { PARTS = 16 / WIDTH };
    long whole = k / 16 * 16;
    float rest[FEW + 1][16];

    memset(rest, 0, sizeof rest);
    for (int j = 0; j < outputs && whole < k; j++) {
        memcpy(rest[j], b + j * k + whole, (size_t)(k - whole) * sizeof(float));
    }
    for (long i = 0; i < m; i++, a += lda, c += outputs) {
        V sums[FEW][PARTS];
        float s[FEW][16];
        STRAIGHT for (int j = 0; j < outputs; j++) {
            STRAIGHT for (int v = 0; v < PARTS; v++) {
                sums[j][v] = SPREAD(0.0f);
            }
        }
        for (long p = 0; p < whole; p += 16) {
            STRAIGHT for (int v = 0; v < PARTS; v++) {
                V x = LOAD(a + p + v * WIDTH);
                STRAIGHT for (int j = 0; j < outputs; j++) {
                    sums[j][v] = FMA(x, LOAD(b + j * k + p + v * WIDTH), sums[j][v]);
                }
            }
        }
        if (whole < k) {
            memcpy(rest[FEW], a + whole, (size_t)(k - whole) * sizeof(float));
            STRAIGHT for (int v = 0; v < PARTS; v++) {
                V x = LOAD(rest[FEW] + v * WIDTH);
                STRAIGHT for (int j = 0; j < outputs; j++) {
                    sums[j][v] = FMA(x, LOAD(rest[j] + v * WIDTH), sums[j][v]);
                }
            }
        }
        STRAIGHT for (int j = 0; j < outputs; j++) {
            STRAIGHT for (int v = 0; v < PARTS; v++) {
                STORE(s[j] + v * WIDTH, sums[j][v]);
            }
        }
        for (int j = 0; j < outputs; j++) {
            for (int e = 0; e < 8; e++) {
                s[j][e] += s[j][e + 8];
            }
            for (int e = 0; e < 4; e++) {
                s[j][e] += s[j][e + 4];
            }
            c[j] = ((s[j][0] + s[j][2]) + (s[j][1] + s[j][3])) + (bias ? bias[j] : 0.0f);
        }
    }
}

TARGET static void
NAME(dots)(long n, long m, long k, const float *a, long lda, const float *b, const float *bias, float *c)
{
    switch (n) {
    case 1: NAME(dots_of)(1, m, k, a, lda, b, bias, c); break;
    case 2: NAME(dots_of)(2, m, k, a, lda, b, bias, c); break;
    case 3: NAME(dots_of)(3, m, k, a, lda, b, bias, c); break;
    case 4: NAME(dots_of)(4, m, k, a, lda, b, bias, c); break;
    }
}

/* ---------------------------------------------------------------- the layer */

TARGET static void
NAME(linear)(Kind kind, long m, long k, long n, const float *x, long ldx, const float *w, const float *bias, float *y,
              float *left)
{
    if (n <= FEW) {
        NAME(dots)(n, m, k, x, ldx, w, bias, y);
        NAME(activation)(kind, y, m * n);
        return;
    }
    NAME(matmul)(m, k, n, x, ldx, w, k, 1, y, n, bias, kind, NULL, left);
}

/* One step of Adam (or, with `momentum`, of it without second moments, which RAdam begins with; or without `first` ones, which is
 * RMSprop); `decay` is coupled, `keep` is not. */
TARGET static void
NAME(adam)(long count, float *RESTRICT w, const float *RESTRICT g, float *RESTRICT first, float *RESTRICT second, const Adam *how)
{
    V rest1 = SPREAD(how->rest1), beta2 = SPREAD(how->beta2), rest2 = SPREAD(how->rest2), step = SPREAD(how->step);
    V root = SPREAD(how->root), epsilon = SPREAD(how->epsilon), decay = SPREAD(how->decay), keep = SPREAD(how->keep);
    int decays = how->decay != 0.0f, keeps = how->keep != 1.0f, momentum = how->momentum;

    for (long e = 0; e < count; e += WIDTH) {
        SOME some = FIRST(count - e);
        V x = LOAD_SOME(w + e, some), gradient = LOAD_SOME(g + e, some);
        if (decays) {
            gradient = FMA(decay, x, gradient);
        }
        if (keeps) {
            x = MUL(x, keep);
        }
        V m = gradient;
        if (first != NULL) {
            V before = LOAD_SOME(first + e, some);
            m = FMA(rest1, SUB(gradient, before), before);
            STORE_SOME(first + e, m, some);
        }
        V v = FMA(MUL(rest2, gradient), gradient, MUL(beta2, LOAD_SOME(second + e, some)));
        STORE_SOME(second + e, v, some);
        V by = MUL(step, m);
        if (!momentum) {
            by = DIV(by, ADD(DIV(SQRT(v), root), epsilon));
        }
        STORE_SOME(w + e, SUB(x, by), some);
    }
}

/* target += tau (w - target), as two kernels, so that tau = 0 keeps it */
TARGET static void
NAME(polyak)(long count, float *RESTRICT target, const float *RESTRICT w, float tau, float rest)
{
    V t = SPREAD(tau), r = SPREAD(rest);
    for (long e = 0; e < count; e += WIDTH) {
        SOME some = FIRST(count - e);
        STORE_SOME(target + e, FMA(t, LOAD_SOME(w + e, some), MUL(r, LOAD_SOME(target + e, some))), some);
    }
}

/* The sum of squares: 64 chains over blocks of 4,096 numbers, folded up, added as doubles. Single precision suffices for
 * short chains, and a vector of doubles would have half as many numbers. */
TARGET static double
NAME(sum_of_squares)(long count, const float *g)
{
    double total = 0.0;
    for (long begin = 0; begin < count; begin += 4096) {
        long end = count - begin < 4096 ? count : begin + 4096;
        V sums[64 / WIDTH];
        float s[64];
        STRAIGHT for (int v = 0; v < 64 / WIDTH; v++) {
            sums[v] = SPREAD(0.0f);
        }
        for (long e = begin; e < end; e += 64) {
            STRAIGHT for (int v = 0; v < 64 / WIDTH; v++) {
                SOME some = FIRST(end - e - v * WIDTH);
                V x = LOAD_SOME(g + e + v * WIDTH, some);
                sums[v] = FMA(x, x, sums[v]);
            }
        }
        STRAIGHT for (int v = 0; v < 64 / WIDTH; v++) {
            STORE(s + v * WIDTH, sums[v]);
        }
        for (int half = 32; half; half /= 2) {
            for (int e = 0; e < half; e++) {
                s[e] += s[e + half];
            }
        }
        total += s[0];
    }
    return total;
}

#define KERNEL(name) .name = NAME(name)
static const Kernels NAME(kernels) = {
    KERNEL(linear), KERNEL(matmul), KERNEL(matmul_outer), KERNEL(pack_panels), KERNEL(add_packed), KERNEL(add),
    KERNEL(column_sums), KERNEL(affine), KERNEL(batch_norm_backward), KERNEL(scale_columns), KERNEL(activation),
    KERNEL(activation_backward), KERNEL(adam), KERNEL(polyak), KERNEL(sum_of_squares), KERNEL(bytes_to_floats), KERNEL(conv),
    KERNEL(conv_weight_leaf), KERNEL(conv_backward_input),
    .layer_norm = ROWS_OF(layer_norm), .layer_norm_backward = ROWS_OF(layer_norm_backward),
    .lstm_cell = ROWS_OF(lstm_cell), .lstm_cell_backward = ROWS_OF(lstm_cell_backward),
    .gaussian_backward = ROWS_OF(gaussian_backward), .row_by_row = ROWS_OF(row_by_row),
};
#undef KERNEL

#undef PANEL
#undef BY_ROWS
#undef ROW_CASES
#undef NAME
#undef TARGET
#undef ROWS_OF
#undef V
#undef WIDTH
#undef LOAD
#undef STORE
#undef SPREAD
#undef FMA
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef SQRT
#undef MAX
#undef MIN
#undef POSITIVE
#undef SOME
#undef FIRST
#undef LOAD_SOME
#undef STORE_SOME
#undef MR
#undef NV
#undef TRANSPOSE
