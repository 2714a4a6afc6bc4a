/* c = start + a b, for one form: forward products and gradients by inputs. A part of vector.h.
 *
 * Each number is one chain. The right factor is laid out as panels. Where that is large, what the next tile needs is asked for while
 * this one is computed; where it has few columns, vectors have rows in them.
 */

/* ---------------------------------------------------------------- panels of the right factor: `wide` numbers of each row */

/* to[p][j] = from[p][j] */
TARGET static void
NAME(pack)(float *to, long wide, const float *from, long ld, long k, long columns)
{
    long p = 0;
    /* What is no column of the panel is of the rows that follow, as long as there are any: nobody looks there. */
    for (; p < k && (k - 1 - p) * ld + columns >= wide; p++) {
        for (long j = 0; j < wide; j += WIDTH) {
            STORE(to + p * wide + j, LOAD(from + p * ld + j));
        }
    }
    for (; p < k; p++) {
        for (long j = 0; j < wide; j++) {
            to[p * wide + j] = j < columns ? from[p * ld + j] : 0.0f;
        }
    }
}

/* to[p][j] = from[j][p]; not inlined, or a compiler that knows `columns` warns of loops that are never entered */
TARGET static __attribute__((noinline)) void
NAME(pack_transposed)(float *to, long wide, const float *from, long ld, long k, long columns)
{
    long j = 0;
#ifdef TRANSPOSE
    for (; j + WIDTH <= columns; j += WIDTH) {
        long p = 0;
        for (; p + WIDTH <= k; p += WIDTH) {
            TRANSPOSE(to + p * wide + j, wide, from + j * ld + p, ld);
        }
        for (; p < k; p++) {
            for (long i = j; i < j + WIDTH; i++) {
                to[p * wide + i] = from[i * ld + p];
            }
        }
    }
#endif
    for (; j < columns; j++) {
        for (long p = 0; p < k; p++) {
            to[p * wide + j] = from[j * ld + p];
        }
    }
    for (; j < wide; j++) {
        for (long p = 0; p < k; p++) {
            to[p * wide + j] = 0.0f;
        }
    }
}

/* ---------------------------------------------------------------- c = start + a b, each number one chain */

/* Have rows in a nearer cache before they are needed. */
INLINE void
NAME(look_ahead)(const float *from, long ld, long rows, long columns)
{
    for (long row = 0; row < rows; row++) {
        for (long column = 0; column < columns; column += 16) {
            __builtin_prefetch(from + row * ld + column, 0, 2);
        }
    }
}

/* Some columns of the right factor, and some of what each number is the sum of */
typedef struct {
    const float *from;
    long ld, depth, columns, wide;
    int transposed;
} NAME(Right);

INLINE NAME(Right)
NAME(right_of)(const float *b, long ldb, int transposed, long p, long depth, long j, long n)
{
    long columns = n - j < PANEL ? n - j : PANEL;
    return (NAME(Right)){transposed ? b + j * ldb + p : b + p * ldb + j, ldb, depth, columns, columns <= WIDTH ? WIDTH : PANEL, transposed};
}

/* How much of a panel is laid out with each tile of another one: whole vectors */
INLINE long
NAME(share_of)(const NAME(Right) *right, long tiles)
{
    return (right->depth + WIDTH * tiles - 1) / (WIDTH * tiles) * WIDTH;
}

/* Lay out some of a panel. */
TARGET INLINE void
NAME(pack_some)(float *panel, const NAME(Right) *right, long begin, long share)
{
    long wide = right->wide, ld = right->ld, some = right->depth - begin < share ? right->depth - begin : share;
    if (some <= 0) {
        return;
    }
    if (right->transposed) {
        NAME(pack_transposed)(panel + begin * wide, wide, right->from + begin, ld, some, right->columns);
    } else {
        NAME(pack)(panel + begin * wide, wide, right->from + begin * ld, ld, some, right->columns);
    }
}

/* The same of the next panel, and have in a nearer cache what will be laid out with the next tile. All of it at once would fall into a
 * few sets of the cache, where rows are 4 KB apart. */
TARGET static void
NAME(pack_ahead)(float *panel, const NAME(Right) *right, long begin, long share)
{
    long after = begin + share, some = right->depth - after < share ? right->depth - after : share;
    NAME(pack_some)(panel, right, begin, share);
    if (right->transposed) {
        NAME(look_ahead)(right->from + after, right->ld, some > 0 ? right->columns : 0, some);
    } else {
        NAME(look_ahead)(right->from + after * right->ld, right->ld, some, right->columns);
    }
}

/* Some rows of it, and some of what each number is the sum of, from `p` on */
TARGET static void
NAME(multiply_some)(long m, long p, long depth, long k, long n, const float *a, long lda, const float *b, long ldb, int transposed, float *c,
                    long ldc, const float *bias, Kind kind, const float *values)
{
    ALIGNED(64) float panels[2][DEEPEST * PANEL];
    ALIGNED(64) float first[PANEL];
    int last = p + depth == k, far = k * n >= FAR && m > 4 * MR;
    Finish finish = !last || kind != RELU ? AS_IT_IS : values ? WHERE_POSITIVE : RECTIFIED;
    NAME(Right) right = NAME(right_of)(b, ldb, transposed, p, depth, 0, n);

    NAME(pack_some)(panels[0], &right, 0, depth);
    for (long j = 0, now = 0, next = far; j < n; j += PANEL, next = now, now = far && !now) {
        long columns = right.columns, wide = right.wide;
        int narrow = wide == WIDTH, most = narrow ? 12 : MR, more = j + PANEL < n;
        long share = far ? NAME(share_of)(&right, (m + most - 1) / most) : 0;
        if (bias != NULL) {
            memset(first, 0, sizeof first);
            memcpy(first, bias + j, (size_t)columns * sizeof(float));
        }
        if (more) {
            right = NAME(right_of)(b, ldb, transposed, p, depth, j + PANEL, n);
        }
        for (long i = 0, ahead = 0; i < m; i += most) {
            int rows = (int)(m - i < most ? m - i : most);
            float *out = c + i * ldc + j;
            if (far && more) {
                NAME(pack_ahead)(panels[next], &right, ahead, share);
                ahead += share;
            }
            if (far && i + most < m) {
                long under = m - i - most < most ? m - i - most : most;
                if (j == 0) {
                    NAME(look_ahead)(a + (i + most) * lda, lda, under, depth);
                }
                NAME(look_ahead)(out + most * ldc, ldc, under, columns);
                if (values != NULL && last) {
                    NAME(look_ahead)(values + (i + most) * ldc + j, ldc, under, columns);
                }
            }
            NAME(tile_along)(narrow, rows, depth, a + i * lda, lda, panels[now], wide, out, ldc, p ? out : bias ? first : NULL, p ? ldc : 0, finish,
                             values ? values + i * ldc + j : NULL, ldc, columns);
            for (int r = 0; r < rows && last && kind == TANH; r++) {
                if (values == NULL) {
                    NAME(activation)(kind, out + r * ldc, columns);
                } else {
                    NAME(activation_backward)(kind, values + (i + r) * ldc + j, out + r * ldc, columns);
                }
            }
        }
        if (more && !far) {
            NAME(pack_some)(panels[next], &right, 0, depth);
        }
    }
}

#if WIDTH >= 16
/* Few columns would leave much of a wide vector idle: here vectors have numbers of one column of c, for PANEL rows. How many rows it has
 * done: whole panels. Turning rows of a costs as much as eight columns do. */
TARGET static long
NAME(multiply_few)(long m, long k, long n, const float *a, long lda, const float *b, long ldb, int transposed, float *c, long ldc,
                   const float *bias, Kind kind, const float *values)
{
    ALIGNED(64) float panel[DEPTH * PANEL];
    ALIGNED(64) float sums[PANEL * PANEL];
    long i = 0;

    if (n + 8 >= (n <= WIDTH ? WIDTH : PANEL) || k < 4 * WIDTH) {
        return 0;
    }
    for (; i + PANEL <= m; i += PANEL) {
        for (long e = 0; e < n * PANEL; e++) {
            sums[e] = bias ? bias[e / PANEL] : 0.0f;
        }
        for (long p = 0; p < k; p += DEPTH) {
            long depth = k - p < DEPTH ? k - p : DEPTH;
            const NAME(Right) turned = {a + i * lda + p, lda, depth, PANEL, PANEL, 1};
            NAME(pack_some)(panel, &turned, 0, depth);
            for (long j = 0; j < n; j += MR) {
                int some = (int)(n - j < MR ? n - j : MR);
                float *out = sums + j * PANEL;
                if (transposed) {
                    NAME(tile_along)(0, some, depth, b + j * ldb + p, ldb, panel, PANEL, out, PANEL, out, PANEL, AS_IT_IS, NULL, 0, PANEL);
                } else {
                    NAME(tile_across)(some, depth, b + p * ldb + j, ldb, panel, out);
                }
            }
        }
        for (long r = 0; r < PANEL; r++) {
            float *out = c + (i + r) * ldc;
            for (long j = 0; j < n; j++) {
                out[j] = sums[j * PANEL + r];
            }
            if (values == NULL) {
                NAME(activation)(kind, out, n);
            } else {
                NAME(activation_backward)(kind, values + (i + r) * ldc, out, n);
            }
        }
    }
    return i;
}
#endif

/* With an activation behind it, or (values) the derivative of the one that gave these; left has room for ASIDE numbers, or is NULL. */
TARGET static void
NAME(matmul)(long m, long k, long n, const float *a, long lda, const float *b, long ldb, int transposed, float *c, long ldc,
               const float *bias, Kind kind, const float *values, float *left)
{
    /* Rows that lie a multiple of 4 KB apart fall into one set of the cache, which has fewer ways than a tile has rows. */
    int aside = MR > 8 && lda % 1024 == 0 && m > 1 && left != NULL;
    /* Numbers of c are read and written as often as there are depths; panels of more than DEPTH rows come from a cache further away. */
    long i = 0, most = k <= DEEPEST ? DEEPEST : DEPTH;

#if WIDTH >= 16
    i = NAME(multiply_few)(m, k, n, a, lda, b, ldb, transposed, c, ldc, bias, kind, values);
#endif
    for (long rows; i < m; i += rows) {
        rows = aside && m - i > ROWS ? ROWS : m - i;
        for (long p = 0; p < k || p == 0; p += most) {
            long depth = k - p < most ? k - p : most;
            const float *from = a + i * lda + p;
            for (long r = 0; aside && r < rows; r++) {
                memcpy(left + r * APART, from + r * lda, (size_t)depth * sizeof(float));
            }
            NAME(multiply_some)(rows, p, depth, k, n, aside ? left : from, aside ? APART : lda, b, ldb, transposed, c + i * ldc, ldc, bias, kind,
                                values ? values + i * ldc : NULL);
        }
    }
}
