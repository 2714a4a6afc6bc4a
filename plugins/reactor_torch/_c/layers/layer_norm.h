/* y = w hat + b, hat = (x - mean of x) scale, scale = 1 / sqrt(variance of x + epsilon), over the numbers of a row (Ba et al. 2016) */
TARGET static void
NAME(layer_norm)(long rows, long n, const float *x, long ldx, const float *RESTRICT w, const float *RESTRICT b, float epsilon, float *y,
             float *RESTRICT hat, float *RESTRICT scale)
{
    for (long row = 0; row < rows; row++, x += ldx, y += n, hat += n) {
        float s[16] = {0}, t[16] = {0};
        long whole = n / 16 * 16;
        for (long p = 0; p < n; p += 16) {
            long count = p < whole ? 16 : n - p;
            for (long e = 0; e < count; e++) {
                s[e] += x[p + e];
            }
        }
        float mean = NAME(folded)(s) / (float)n;
        for (long p = 0; p < n; p += 16) {
            long count = p < whole ? 16 : n - p;
            for (long e = 0; e < count; e++) {
                hat[p + e] = x[p + e] - mean;
                t[e] = fmaf(hat[p + e], hat[p + e], t[e]);
            }
        }
        float factor = 1.0f / sqrtf(NAME(folded)(t) / (float)n + epsilon);
        scale[row] = factor;
        for (long j = 0; j < n; j++) {
            hat[j] *= factor;
            y[j] = fmaf(hat[j], w[j], b[j]);
        }
    }
}

/* With h = g w:   grad_x = scale (h - mean of h - hat mean of (h hat));   then g becomes g hat, whose columns add up to the gradient by w */
TARGET static void
NAME(layer_norm_backward)(long rows, long n, float *g, const float *RESTRICT w, const float *RESTRICT hat, const float *RESTRICT scale,
               const int64_t *picked, float *grad_x)
{
    for (long row = 0; row < rows; row++, g += n) {
        long at = picked ? picked[row] : row;
        const float *h = hat + at * n;
        float s[16] = {0}, t[16] = {0};
        long whole = n / 16 * 16;
        for (long p = 0; p < n; p += 16) {
            long count = p < whole ? 16 : n - p;
            for (long e = 0; e < count; e++) {
                float weighted = g[p + e] * w[p + e];
                s[e] += weighted;
                t[e] = fmaf(weighted, h[p + e], t[e]);
            }
        }
        float mean = NAME(folded)(s) / (float)n, along = NAME(folded)(t) / (float)n;
        for (long j = 0; j < n; j++) {
            if (grad_x != NULL) {
                grad_x[row * n + j] = scale[at] * (fmaf(-h[j], along, g[j] * w[j]) - mean);
            }
            g[j] *= h[j];
        }
    }
}
