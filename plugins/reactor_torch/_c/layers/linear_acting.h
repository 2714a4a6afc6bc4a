/* y = x w^T + bias for the few rows of an actor; w is as torch has it, and read where it lies: nothing is laid out beforehand.
 *
 * The order of sums is a contract: input p goes into chain p % 8 of fused multiply-adds, which are folded as
 * ((0+1)+(2+3)) + ((4+5)+(6+7)), then the bias. So eight outputs of one row are computed at a time in eight registers of AVX2, and before
 * the next eight those of every row, while their weights are in the cache. Rows of x are `ldx` apart.
 */

static void
linear_acting_plain(long rows, long inputs, long outputs, const float *x, long ldx, const float *weight, const float *bias, float *y)
{
    long whole = inputs - inputs % 8;

    for (long row = 0; row < rows; row++, x += ldx) {
        for (long j = 0; j < outputs; j++) {
            const float *w = weight + j * inputs;
            float s[8] = {0};
            for (long p = 0; p < whole; p += 8) {
                for (long e = 0; e < 8; e++) { /* compilers make vectors of it */
                    s[e] = fmaf(w[p + e], x[p + e], s[e]);
                }
            }
            for (long p = whole; p < inputs; p++) {
                s[p - whole] = fmaf(w[p], x[p], s[p - whole]);
            }
            y[row * outputs + j] = (((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) + (bias != NULL ? bias[j] : 0.0f);
        }
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

/* A mask for the first n of eight floats */
AVX2 INLINE __m256i
first_avx2(long n)
{
    return _mm256_loadu_si256((const __m256i *)(lanes + (n >= 8 ? 0 : n <= 0 ? 8 : 8 - n)));
}

AVX2 static void
linear_acting_fused(long rows, long inputs, long outputs, const float *x, long ldx, const float *weight, const float *bias, float *y)
{
    long whole = inputs - inputs % 8;
    __m256i rest = first_avx2(inputs - whole);

    for (long j = 0; j < outputs; j += 8) {
        long wanted = outputs - j < 8 ? outputs - j : 8;
        const float *w[8];
        __m256 shift = bias != NULL ? _mm256_maskload_ps(bias + j, first_avx2(wanted)) : _mm256_setzero_ps();
        STRAIGHT for (int i = 0; i < 8; i++) { /* the last one again where there are no more: its sums are thrown away */
            w[i] = weight + (j + (i < wanted ? i : wanted - 1)) * inputs;
        }
        for (long row = 0; row < rows; row++) {
            const float *in = x + row * ldx;
            __m256 s[8];
            STRAIGHT for (int i = 0; i < 8; i++) {
                s[i] = _mm256_setzero_ps();
            }
            for (long p = 0; p < whole; p += 8) {
                __m256 part = _mm256_loadu_ps(in + p);
                STRAIGHT for (int i = 0; i < 8; i++) {
                    s[i] = _mm256_fmadd_ps(_mm256_loadu_ps(w[i] + p), part, s[i]);
                }
            }
            if (whole < inputs) {
                __m256 part = _mm256_maskload_ps(in + whole, rest);
                STRAIGHT for (int i = 0; i < 8; i++) {
                    s[i] = _mm256_fmadd_ps(_mm256_maskload_ps(w[i] + whole, rest), part, s[i]);
                }
            }
            /* Each half of `low` and `high` has four outputs' sums over half of the chains. */
            __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
            __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(s[4], s[5]), _mm256_hadd_ps(s[6], s[7]));
            __m256 made = _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
            made = _mm256_add_ps(made, shift);
            if (wanted == 8) {
                _mm256_storeu_ps(y + row * outputs + j, made);
            } else { /* a masked store is slow on some processors */
                float all[8];
                _mm256_storeu_ps(all, made);
                memcpy(y + row * outputs + j, all, (size_t)wanted * sizeof(float));
            }
        }
    }
}
#endif
