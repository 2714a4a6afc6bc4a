/* The QR decomposition of first weights, in double precision: the same bits by any compiler, on any processor, and without a form for each.
 *
 * Reflections H = I - factor v v^T (Householder) make a matrix upper triangular, with LAPACK's signs. A sum down a column is CHAINS
 * chains, folded by halves, each a product and a sum: nothing is fused, and vectors of any width compute the chains beside each other.
 * Columns lie in memory one after the other; BESIDE of them, which changes no bit, are reflected together, as v comes from far away.
 */

#define DECOMPOSITIONS(FUNCTION) \
    FUNCTION(orthonormal, "matrix[r,n] > q[r,k] upper[k,n]", \
             "The factors of `matrix = q upper`, with the signs that LAPACK has; k is the smaller one of r and n, or r.")

enum { CHAINS = 8, BESIDE = 4 };

INLINE double
folded_chains(const double *s)
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

INLINE double
squares_down(long begin, long rows, const double *x)
{
    double sum[CHAINS] = {0};
    for (long i = begin; i < rows; i += CHAINS) {
        for (int e = 0; e < CHAINS; e++) {
            sum[e] += x[i + e] * x[i + e];
        }
    }
    return folded_chains(sum);
}

/* columns -= factor (v . column) v, from a row on that is a multiple of CHAINS, as `rows` is; above its first number v is 0 */
INLINE void
reflect_some(int count, long begin, long rows, const double *RESTRICT v, double factor, double *RESTRICT columns)
{
    double sum[BESIDE][CHAINS] = {{0}}, along[BESIDE];
    for (long i = begin; i < rows; i += CHAINS) {
        for (int c = 0; c < count; c++) {
            for (int e = 0; e < CHAINS; e++) {
                sum[c][e] += v[i + e] * columns[c * rows + i + e];
            }
        }
    }
    for (int c = 0; c < count; c++) {
        along[c] = factor * folded_chains(sum[c]);
    }
    for (long i = begin; i < rows; i += CHAINS) {
        for (int c = 0; c < count; c++) {
            for (int e = 0; e < CHAINS; e++) {
                columns[c * rows + i + e] -= along[c] * v[i + e];
            }
        }
    }
}

#define SO_MANY(columns)                                         \
    case columns:                                               \
        reflect_some(columns, begin, rows, v, factor, first);   \
        break;
static void
reflect(int count, long row, long rows, const double *v, double factor, double *first)
{
    long begin = row / CHAINS * CHAINS;
    switch (count) {
        SO_MANY(1) SO_MANY(2) SO_MANY(3) SO_MANY(4)
    }
}
#undef SO_MANY

/* Make a column's reflection, in its place, from its numbers from row k on; what becomes of the k-th. With these numbers as x:
 *   H x = becomes e_k,  becomes = - sign(x_k) |x|,  v = x - becomes e_k,  factor = 2 / (v . v) = 1 / (|x| (|x| + |x_k|))
 * The sign is the one by which nothing cancels in v_k (Golub, Van Loan, Matrix Computations, on Householder reflections). */
static double
reflection(long k, long rows, double *column, double *factor)
{
    double first = column[k];
    column[k] = 0.0;
    double below = squares_down(k / CHAINS * CHAINS, rows, column), norm = sqrt(below + first * first);
    if (below == 0.0) { /* no reflection, as in LAPACK */
        *factor = 0.0;
        return first;
    }
    double becomes = first < 0.0 ? norm : -norm;
    column[k] = first - becomes;
    *factor = 1.0 / (norm * (norm + fabs(first)));
    return becomes;
}

static double
orthonormal(const Kernels *with, const Sizes *n, const Value *v)
{
    long m = n->r, rows = (m + CHAINS - 1) / CHAINS * CHAINS, columns = n->n, wanted = n->k;
    long reflections = m < columns ? m : columns;
    const float *matrix = v[0].f;
    float *q = v[1].out, *upper = v[2].out;
    double *made = calloc((size_t)(rows * (columns + wanted) + columns + 1), sizeof(double));
    if (made == NULL) {
        return FAILED;
    }
    double *answer = made + rows * columns, *factor = answer + rows * wanted;

    for (long i = 0; i < m; i++) {
        for (long j = 0; j < columns; j++) {
            made[j * rows + i] = matrix[i * columns + j];
        }
    }
    memset(upper, 0, (size_t)(wanted * columns) * sizeof(float));
    for (long j = 0; j < columns; j += BESIDE) {
        int beside = columns - j < BESIDE ? (int)(columns - j) : BESIDE;
        for (long k = 0; k < j && k < reflections; k++) {
            reflect(beside, k, rows, made + k * rows, factor[k], made + j * rows);
        }
        for (int c = 0; c < beside; c++) {
            long k = j + c;
            double *column = made + k * rows;
            for (long i = 0; i < k && i < reflections; i++) {
                if (i < wanted) {
                    upper[i * columns + k] = (float)column[i];
                }
                column[i] = 0.0;
            }
            if (k < reflections) {
                double becomes = reflection(k, rows, column, &factor[k]);
                if (k < wanted) {
                    upper[k * columns + k] = (float)becomes;
                }
                if (c + 1 < beside) {
                    reflect(beside - c - 1, k, rows, column, factor[k], column + rows);
                }
            }
        }
    }
    for (long j = 0; j < wanted && j < m; j += BESIDE) { /* the reflections of the unit matrix, the last one first */
        int beside = wanted - j < BESIDE ? (int)(wanted - j) : BESIDE;
        for (int c = 0; c < beside && j + c < m; c++) {
            answer[(j + c) * rows + j + c] = 1.0;
        }
        for (long k = (j + beside < reflections ? j + beside : reflections) - 1; k >= 0; k--) {
            reflect(beside, k, rows, made + k * rows, factor[k], answer + j * rows);
        }
    }
    for (long i = 0; i < m; i++) {
        for (long j = 0; j < wanted; j++) {
            q[i * wanted + j] = (float)answer[j * rows + i];
        }
    }
    free(made);
    return 0.0;
}
