/* LayerNorm (Ba, Kiros, Hinton 2016): each row by its own mean and variance, with a weight and a bias for each column.
 *
 * A sum over a row has 16 chains, one for each column modulo 16, folded by halves: vectors of 4, 8 or 16 give the same bits.
 */
#ifdef NAME /* once for each form */

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

#else /* once */

/* Distances from the mean of rows in their standard deviations, and by what they were multiplied to be that */
INLINE float *
hat_of(const Layer *layer, long row)
{
    return (float *)layer->own + row * layer->n;
}

static int
layer_norm_make(Network *self, Layer *layer, PyObject *more, Sizes *n)
{
    layer->own = malloc((size_t)(self->rows * (layer->n + 1) + 1) * sizeof(float));
    return layer->own != NULL ? 0 : (PyErr_NoMemory(), -1);
}

static void
layer_norm_forward(const Piece *p)
{
    const Layer *of = p->layer;
    p->with->layer_norm(p->rows, of->n, p->x, p->ldx, of->w, of->b, of->epsilon, p->y, hat_of(of, p->begin), hat_of(of, p->all) + p->begin);
}

static void
layer_norm_backward(const Piece *p, float *g)
{
    const Layer *of = p->layer;
    p->with->column_sums(VALUES, p->all, of->n, g, of->n, NULL, NULL, 0, of->db);
    p->with->layer_norm_backward(p->all, of->n, g, of->w, hat_of(of, 0), hat_of(of, p->all), NULL, p->grad_x);
    p->with->column_sums(VALUES, p->all, of->n, g, of->n, NULL, NULL, 0, of->dw);
}

static void
layer_norm_slopes(const Piece *p, float *g, const int64_t *picked, long first, float *to)
{
    const Layer *of = p->layer;
    long begin = picked == NULL ? p->begin : 0;
    p->with->layer_norm_backward(p->rows, of->n, g, of->w, hat_of(of, begin), hat_of(of, p->all) + begin, picked ? picked + p->begin : NULL, to);
}

static LayerType layer_norm_type = {
    .name = "layer_norm", .parameters = "weight[n] bias[n]", .make = layer_norm_make, .destroy = free_own, .forward = layer_norm_forward,
    .backward = layer_norm_backward, .slopes = layer_norm_slopes,
};

#endif
