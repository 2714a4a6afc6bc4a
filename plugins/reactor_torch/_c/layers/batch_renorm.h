/* Batch renormalisation (Ioffe 2017): columns are normalised by the statistics of a batch, as far as running ones let them.
 *
 * Until `warmup` steps have been made it is batch normalisation. What is computed here is one number for each column.
 */

typedef struct {
    float *mean, *variance; /* running ones; the variance is unbiased, as that of a batch is */
    int64_t *steps;
    float momentum, rmax, dmax;
    long long warmup;
    float *memory;
} Batch;

enum { ROOM = 8 }; /* arrays of a number for each column: */
#define MEAN(batch, n) ((batch)->memory)
#define VARIANCE(batch, n) ((batch)->memory + (n))
#define CENTRE(batch, n) ((batch)->memory + 2 * (n))
#define INVERSE(batch, n) ((batch)->memory + 3 * (n)) /* what distances from the centre are multiplied by */
#define FACTOR(batch, n) ((batch)->memory + 4 * (n)) /* and by the weight */
#define SQUEEZE(batch, n) ((batch)->memory + 5 * (n)) /* variance that is divided by, of the batch's */
#define PULL(batch, n) ((batch)->memory + 6 * (n)) /* how far the centre is from the mean, in standard deviations of the batch */
#define ROOT(batch, n) ((batch)->memory + 7 * (n))

/* From rows themselves; the running statistics learn. Of each column, with mean m and variance v of R rows, running ones M and V:
 *   r = clip(sqrt((v + epsilon) / (V + epsilon)), 1 / rmax, rmax),  d = clip((m - M) / sqrt(V + epsilon), -dmax, dmax)
 *   y = w (x - c) / sqrt(s v + epsilon) + b,  c = m - p sqrt(v),  p = d / r,  s = 1 / r^2       (p = 0 and s = 1 while it warms up)
 * This is (x - m) r / sqrt(v) + d of the paper but for where epsilon stands, which is where sb3-contrib's CrossQ has it. */
static void
batch_of(const Kernels *with, const Batch *batch, long rows, long n, const float *x, long ldx, float epsilon)
{
    float *mean = MEAN(batch, n), *variance = VARIANCE(batch, n);
    int renormalised = *batch->steps > batch->warmup;

    with->column_sums(VALUES, rows, n, x, ldx, NULL, NULL, 0, mean);
    for (long j = 0; j < n; j++) {
        mean[j] /= (float)rows;
    }
    with->column_sums(SQUARES, rows, n, x, ldx, mean, NULL, 0, variance);
    for (long j = 0; j < n; j++) {
        float v = variance[j] / (float)(rows - 1), root = sqrtf(v), squeeze = 1.0f, pull = 0.0f;
        if (renormalised) {
            float width = sqrtf(batch->variance[j] + epsilon);
            float r = within(sqrtf(v + epsilon) / width, 1.0f / batch->rmax, batch->rmax);
            float d = within((mean[j] - batch->mean[j]) / width, -batch->dmax, batch->dmax);
            pull = d / r;
            squeeze = 1.0f / (r * r);
        }
        CENTRE(batch, n)[j] = mean[j] - pull * root;
        INVERSE(batch, n)[j] = 1.0f / sqrtf(v * squeeze + epsilon);
        SQUEEZE(batch, n)[j] = squeeze;
        PULL(batch, n)[j] = pull;
        ROOT(batch, n)[j] = root;
        batch->mean[j] += batch->momentum * (mean[j] - batch->mean[j]);
        batch->variance[j] += batch->momentum * (v - batch->variance[j]);
    }
    ++*batch->steps;
}

/* From earlier batches alone */
static void
batch_before(const Batch *batch, long n, float epsilon)
{
    for (long j = 0; j < n; j++) {
        CENTRE(batch, n)[j] = batch->mean[j];
        INVERSE(batch, n)[j] = 1.0f / sqrtf(batch->variance[j] + epsilon);
    }
}

static void
weighted_by(const Batch *batch, long n, const float *w)
{
    for (long j = 0; j < n; j++) {
        FACTOR(batch, n)[j] = INVERSE(batch, n)[j] * w[j];
    }
}

/* Gradients by the weight and the bias, and by what came in, through the activation that gave it. A row of a batch moves the mean and
 * the variance; that of a column without any has no slope, where the root of it would have one without bounds. r and d count as constants.
 * With i = 1 / sqrt(s v + epsilon) and f = i w, sums going over rows:
 *   dw = i sum of g (x - c),  db = sum of g
 *   dx = f g - f db / R + f / (R - 1) (db p / sqrt(v) - i s dw) (x - m)
 * and x - m = (x - c) - p sqrt(v): so `along` is the factor of x - c, and `shift` is what is left. */
static void
through_batch(const Kernels *with, const Batch *batch, int together, Kind kind, long rows, long n, const float *g, const float *x, long ldx,
              float *dw, float *db, float *dx)
{
    const float *factor = FACTOR(batch, n), *inverse = INVERSE(batch, n), *squeeze = SQUEEZE(batch, n), *pull = PULL(batch, n);
    const float *root = ROOT(batch, n);
    float *along = VARIANCE(batch, n), *shift = MEAN(batch, n); /* nobody needs these any more */

    with->column_sums(VALUES, rows, n, g, n, NULL, NULL, 0, db);
    with->column_sums(ALONG, rows, n, x, ldx, CENTRE(batch, n), g, n, dw);
    for (long j = 0; j < n; j++) {
        dw[j] *= inverse[j];
        along[j] = shift[j] = 0.0f;
        if (together) {
            float lag = root[j] > 0.0f ? pull[j] / root[j] : 0.0f;
            along[j] = factor[j] / (float)(rows - 1) * (db[j] * lag - inverse[j] * squeeze[j] * dw[j]);
            shift[j] = -(factor[j] * db[j] / (float)rows) - along[j] * pull[j] * root[j];
        }
    }
    if (dx != NULL) {
        with->batch_norm_backward(kind, rows, n, g, x, ldx, CENTRE(batch, n), factor, along, shift, dx);
    }
}

/* ---------------------------------------------------------------- the layer */

static Signature statistics;

static int
parse_statistics(void)
{
    return parse(&statistics, "batch_renorm", "mean[n] variance[n] steps:int64[1]");
}

/* What it knows of earlier batches, and how far it is bound by that: (mean, variance, steps, momentum, rmax, dmax, warmup) */
static int
batch_renorm_make(Network *self, Layer *layer, PyObject *given, Sizes *n)
{
    PyObject *mean, *variance, *steps;
    double momentum, rmax, dmax;

    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a layer that normalises batches is given (mean, variance, steps, momentum, rmax, dmax, warmup)");
        return -1;
    }
    Batch *batch = layer->own = calloc(1, sizeof(Batch));
    if (batch == NULL || (batch->memory = calloc((size_t)layer->n * ROOM, sizeof(float))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (!PyArg_ParseTuple(given, "OOOdddL:statistics", &mean, &variance, &steps, &momentum, &rmax, &dmax, &batch->warmup)) {
        return -1;
    }
    batch->mean = hold(self, mean, &statistics, 0, n, 0, 0), batch->variance = hold(self, variance, &statistics, 1, n, 0, 0);
    batch->steps = (int64_t *)hold(self, steps, &statistics, 2, n, 0, 0);
    for (int i = 1; i <= 3 && !PyErr_Occurred(); i++) {
        self->fixed |= self->views[self->held - i].readonly;
    }
    batch->momentum = (float)momentum, batch->rmax = (float)rmax, batch->dmax = (float)dmax;
    return PyErr_Occurred() ? -1 : 0;
}

static void
batch_renorm_destroy(Layer *layer)
{
    free(((Batch *)layer->own)->memory);
    free(layer->own);
}

static void
batch_renorm_forward(const Piece *p)
{
    const Layer *of = p->layer;
    const Batch *batch = of->own;
    if (p->together) {
        batch_of(p->with, batch, p->rows, of->n, p->x, p->ldx, of->epsilon);
    } else {
        batch_before(batch, of->n, of->epsilon);
    }
    weighted_by(batch, of->n, of->w);
    p->with->affine(p->rows, of->n, p->x, p->ldx, CENTRE(batch, of->n), FACTOR(batch, of->n), of->b, p->y);
}

static void
batch_renorm_backward(const Piece *p, float *g)
{
    const Layer *of = p->layer;
    through_batch(p->with, of->own, p->together, p->kind, p->rows, of->n, g, p->x, p->ldx, of->dw, of->db, p->grad_x);
}

static void
batch_renorm_slopes(const Piece *p, float *g, const int64_t *picked, long first, float *to)
{
    long n = p->layer->n;
    p->with->scale_columns(p->rows, n - first, g + first, n, FACTOR((const Batch *)p->layer->own, n) + first, to);
    if (p->values != NULL) {
        p->with->activation_backward(p->kind, p->values, to, p->rows * n);
    }
}

static LayerType batch_renorm_type = {
    .name = "batch_renorm", .parameters = "weight[n] bias[n]", .of_batches = 1, .some_inputs = 1, .make = batch_renorm_make,
    .destroy = batch_renorm_destroy, .forward = batch_renorm_forward, .backward = batch_renorm_backward,
    .differentiates = 1, .slopes = batch_renorm_slopes,
};
