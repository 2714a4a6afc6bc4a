/* What goes down the columns of rows, for one form: their sums, and normalisation by what these say. A part of vector.h.
 *
 * A sum has leaves of LEAF rows, added as a binary tree; that of distances and of products with them is fused multiply-adds.
 */

/* sums[j] = sum over rows of x[row][j], of its squared distance t from centre[j], or of g[row][j] t, of so many vectors at once */
TARGET INLINE void
NAME(columns_of)(const Summed what, const int vectors, long m, const float *x, long ldx, const float *centre, const float *g, long ldg,
                 float *sums, long columns)
{
    V level[33][MANY];
    unsigned leaf = 0;
    int waiting = 0;

    for (long r = 0; r < m || r == 0; r += LEAF, leaf++) {
        long end = m - r < LEAF ? m : r + LEAF;
        V sum[MANY];
        STRAIGHT for (int v = 0; v < vectors; v++) {
            sum[v] = SPREAD(0.0f);
        }
        for (long row = r; row < end; row++) {
            STRAIGHT for (int v = 0; v < vectors; v++) {
                SOME some = FIRST(columns - v * WIDTH);
                V one = LOAD_SOME(x + row * ldx + v * WIDTH, some);
                if (what == VALUES) {
                    sum[v] = ADD(sum[v], one);
                } else {
                    V apart = SUB(one, LOAD_SOME(centre + v * WIDTH, some));
                    sum[v] = FMA(what == SQUARES ? apart : LOAD_SOME(g + row * ldg + v * WIDTH, some), apart, sum[v]);
                }
            }
        }
        for (unsigned bits = leaf; bits & 1; bits >>= 1) {
            waiting--;
            STRAIGHT for (int v = 0; v < vectors; v++) {
                sum[v] = ADD(level[waiting][v], sum[v]);
            }
        }
        STRAIGHT for (int v = 0; v < vectors; v++) {
            level[waiting][v] = sum[v];
        }
        waiting++;
    }
    for (; waiting > 1; waiting--) {
        STRAIGHT for (int v = 0; v < vectors; v++) {
            level[waiting - 2][v] = ADD(level[waiting - 2][v], level[waiting - 1][v]);
        }
    }
    STRAIGHT for (int v = 0; v < vectors; v++) {
        SOME some = FIRST(columns - v * WIDTH);
        STORE_SOME(sums + v * WIDTH, level[0][v], some);
    }
}

/* The same of all columns; centre and g may be NULL where no sum is about them. */
TARGET INLINE void
NAME(all_columns)(const Summed what, long m, long n, const float *x, long ldx, const float *centre, const float *g, long ldg, float *sums)
{
    long j = 0;
    for (; j + MANY * WIDTH <= n; j += MANY * WIDTH) {
        NAME(columns_of)(what, MANY, m, x + j, ldx, what == VALUES ? NULL : centre + j, what == ALONG ? g + j : NULL, ldg, sums + j, MANY * WIDTH);
    }
    for (; j < n; j += WIDTH) {
        NAME(columns_of)(what, 1, m, x + j, ldx, what == VALUES ? NULL : centre + j, what == ALONG ? g + j : NULL, ldg, sums + j, n - j);
    }
}

TARGET static void
NAME(column_sums)(Summed what, long m, long n, const float *x, long ldx, const float *centre, const float *g, long ldg, float *sums)
{
    switch (what) {
    case VALUES:
        NAME(all_columns)(VALUES, m, n, x, ldx, centre, g, ldg, sums);
        break;
    case SQUARES:
        NAME(all_columns)(SQUARES, m, n, x, ldx, centre, g, ldg, sums);
        break;
    case ALONG:
        NAME(all_columns)(ALONG, m, n, x, ldx, centre, g, ldg, sums);
        break;
    }
}

/* y[row][j] = (x[row][j] - centre[j]) factor[j] + b[j] */
TARGET static void
NAME(affine)(long m, long n, const float *x, long ldx, const float *centre, const float *factor, const float *b, float *y)
{
    for (long row = 0; row < m; row++, x += ldx, y += n) {
        for (long j = 0; j < n; j += WIDTH) {
            SOME some = FIRST(n - j);
            V apart = SUB(LOAD_SOME(x + j, some), LOAD_SOME(centre + j, some));
            STORE_SOME(y + j, FMA(apart, LOAD_SOME(factor + j, some), LOAD_SOME(b + j, some)), some);
        }
    }
}

/* dx[row][j] = factor[j] g[row][j] + along[j] (x[row][j] - centre[j]) + shift[j], and through the activation that gave x */
TARGET static void
NAME(batch_norm_backward)(Kind kind, long m, long n, const float *g, const float *x, long ldx, const float *centre, const float *factor,
               const float *along, const float *shift, float *dx)
{
    for (long row = 0; row < m; row++, g += n, x += ldx, dx += n) {
        for (long j = 0; j < n; j += WIDTH) {
            SOME some = FIRST(n - j);
            V given = LOAD_SOME(x + j, some), apart = SUB(given, LOAD_SOME(centre + j, some));
            V sum = FMA(apart, LOAD_SOME(along + j, some), LOAD_SOME(shift + j, some));
            sum = FMA(LOAD_SOME(g + j, some), LOAD_SOME(factor + j, some), sum);
            STORE_SOME(dx + j, NAME(slope)(kind, given, sum), some);
        }
    }
}

/* dx[row][j] = factor[j] g[row][j] */
TARGET static void
NAME(scale_columns)(long m, long n, const float *g, long ldg, const float *factor, float *dx)
{
    for (long row = 0; row < m; row++, g += ldg, dx += n) {
        for (long j = 0; j < n; j += WIDTH) {
            SOME some = FIRST(n - j);
            STORE_SOME(dx + j, MUL(LOAD_SOME(g + j, some), LOAD_SOME(factor + j, some)), some);
        }
    }
}
