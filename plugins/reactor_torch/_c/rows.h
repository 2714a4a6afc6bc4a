/* What is computed row by row, in plain C: distributions, losses, normalisation, cells. Included once for each of two forms: portable, and
 * with instructions for fused multiply-adds; NAME(x) and TARGET are the names and the attribute of functions.
 *
 * Nothing here depends on how a compiler makes vectors of it: operations of different elements are apart, sums over rows go through a
 * Tree of leaves, those within a row are 16 chains where they are long, and exp, log and tanh are polynomials of fused multiply-adds. A
 * comparison never depends on another one, or no vectors would be made of it.
 */

/* exp(x) = 2^n exp(r), n = round(x / ln 2), r = x - n ln 2 in two parts (Cody, Waite), |r| <= ln(2) / 2: exp(r) by a minimax polynomial
 * of degree 6. Relative error below 5.5e-7, or 8.7 units in the last place (tried for every seventh float in [-87.3, 88.37], and against
 * numpy's float64 for 9,000,000 random ones); below that 0, above it infinity. The polynomial is that of N. Juffa's published expf.
 * His two parts are 0.693145752 + 1.42860677e-6; those here, 0.693148613 - 1.42860677e-6, are 3.8e-9 more than ln 2, which n multiplies: that
 * is most of the error far from 0 (with his it is below 7.6e-8, 0.87 units). To change them would change the bits of all that is learned. */
TARGET INLINE float
NAME(expf)(float x)
{
    float limited = within(x, -87.3f, 88.37f);
    float n = nearest(limited * 1.44269504f);
    float r = fmaf(n, 1.42860677e-6f, fmaf(n, -0.693148613f, limited));
    float p = fmaf(fmaf(fmaf(fmaf(fmaf(1.37805939e-3f, r, 8.37312452e-3f), r, 4.16695364e-2f), r, 1.66664720e-1f), r, 0.49999985f), r, 1.0f);
    float y = scaled(fmaf(p, r, 1.0f), n);
    y = x > 88.37f ? INFINITY : y;
    return x < -87.3f ? 0.0f : y;
}

/* log(x) = e ln 2 + log(m), x = m 2^e, m in [sqrt(1/2), sqrt(2)): log(1 + f) = f - f^2 / 2 + f^3 p(f), p as in Cephes' logf (Moshier).
 * Relative error below 8e-8, or 0.85 units in the last place (tried likewise); of normal positive numbers; what is no number stays it. */
TARGET INLINE float
NAME(logf)(float x)
{
    float e;
    float f = parts(x, &e) - 1.0f, s = f * f, p = 7.0376836292e-2f;
    p = fmaf(p, f, -1.1514610310e-1f);
    p = fmaf(p, f, 1.1676998740e-1f);
    p = fmaf(p, f, -1.2420140846e-1f);
    p = fmaf(p, f, 1.4249322787e-1f);
    p = fmaf(p, f, -1.6668057665e-1f);
    p = fmaf(p, f, 2.0000714765e-1f);
    p = fmaf(p, f, -2.4999993993e-1f);
    p = fmaf(p, f, 3.3333331174e-1f);
    float y = p * f * s;
    y = fmaf(e, -2.12194440e-4f, y);
    y = fmaf(-0.5f, s, y);
    return fmaf(e, 0.693359375f, f + y) + (x - x);
}

/* tanh(x) = x P(x^2) / Q(x^2) up to 4, the function of layers (see activation()); beyond it 1 - 2 / (exp(2 |x|) + 1), which is exact
 * enough at both ends for 1 - tanh^2, what is left between an action and its bound. Relative error below 2.8e-7, or 4.5 units in the last
 * place, and that of 1 - tanh^2 below 5.5e-7 in absolute terms (tried likewise, within [-10, 10]). */
TARGET INLINE float
NAME(tanhf)(float x)
{
    float y = within(x, -7.9f, 7.9f), z = y * y;
    float p = fmaf(fmaf(fmaf(fmaf(1.54280126e-08f, z, 2.20232741e-05f), z, 3.57899372e-03f), z, 1.34506226e-01f), z, 1.0f);
    float q = fmaf(fmaf(fmaf(fmaf(8.59879606e-07f, z, 3.42365325e-04f), z, 2.61922441e-02f), z, 4.67839509e-01f), z, 1.0f);
    float size = x < 0.0f ? -x : x;
    float rest = 2.0f / (NAME(expf)(2.0f * size) + 1.0f), near = y * p / q, far = 1.0f - rest;
    far = x < 0.0f ? -far : far;
    return size > 4.0f ? far : near;
}

/* The sum of 16 chains. */
TARGET INLINE float
NAME(folded)(const float *s)
{
    float eight[8], four[4]; /* in one array, each would wait for the one before in memory */
    for (int e = 0; e < 8; e++) {
        eight[e] = s[e] + s[e + 8];
    }
    for (int e = 0; e < 4; e++) {
        four[e] = eight[e] + eight[e + 4];
    }
    return (four[0] + four[2]) + (four[1] + four[3]);
}

#include "distributions.h"
#include "losses.h"
#include "layers/layer_norm.h"
#include "layers/lstm.h"

#define ROW_BY_ROW(function, arguments, says) NAME(function),
static const RowByRow NAME(row_by_row)[] = {DISTRIBUTIONS(ROW_BY_ROW) LOSSES(ROW_BY_ROW)};
#undef ROW_BY_ROW
