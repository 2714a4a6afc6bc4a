/* Parts of a pass through networks, each of which one thread computes: some rows, or gradients of some outputs' weights.
 *
 * Several networks may go side by side, and with a team of threads rows of one, too: forwards and by inputs each row is for itself,
 * gradients of weights are cut by outputs. Each number is computed as one thread would.
 */

enum { MOST_NETWORKS = 64 }; /* that go side by side */
enum { EVEN = 12 }; /* rows of the tallest tile: parts are multiples of it */

typedef struct {
    const Kernels *with;
    Network *networks[MOST_NETWORKS];
    int count;
    long parts; /* of each network */
    int depth; /* of the layer, for gradients of parameters layer by layer */
    float *g[MOST_NETWORKS];
    const int64_t *rows[MOST_NETWORKS];
    long chosen[MOST_NETWORKS]; /* how many rows */
    float *out[MOST_NETWORKS];
    long first;
    int together;
} Pass;

/* Where part `at` of `parts` of some things begins; it ends where the next one does. */
INLINE long
begin_of(long things, long at, long parts, long even)
{
    long each = (things + parts - 1) / parts, begin = (each + even - 1) / even * even * at;
    return begin < things && at < parts ? begin : things;
}

INLINE long
row_of(const Network *self, long rows, long at, long parts)
{
    return begin_of(rows, at, parts, self->convolves ? 1 : EVEN); /* an image has tiles of its own */
}

#define LEFT(network, part) ((network)->left == NULL ? NULL : (network)->left + (part) * ASIDE)

/* Rows of `some` x `others` numbers, each turned over. */
static void
turn_over(long rows, long some, long others, const float *from, long ld, float *to, long ldt)
{
    for (long row = 0; row < rows; row++, from += ld, to += ldt) {
        for (long j = 0; j < others; j++) {
            for (long i = 0; i < some; i++) {
                to[j * some + i] = from[i * others + j];
            }
        }
    }
}

/* A layer forwards, of rows that are for themselves or all of them. */
static void
layer_forwards(const Kernels *with, const Layer *layer, long begin, long rows, const float *x, long ldx, int together, float *left)
{
    long n = layer->n;
    float *y = layer->y + begin * n;

    if (layer->type == CONVOLUTION) { /* of numbers or of bytes */
        images_forwards(with, layer->images, layer->kind, begin, begin + rows, x, ldx, layer->b, layer->y);
        return;
    }
    x += begin * ldx;
    if (layer->type == LINEAR) {
        with->linear(layer->kind, rows, layer->k, n, x, ldx, layer->w, layer->b, y, left);
        return;
    }
    if (layer->type == FLATTENED) {
        turn_over(rows, n / layer->channels, layer->channels, x, ldx, y, n);
    } else if (layer->type == NORMALISED) {
        with->layer_norm(rows, n, x, ldx, layer->w, layer->b, layer->epsilon, y, layer->hat + begin * n, layer->scale + begin);
    } else if (layer->type == RENORMALISED) {
        if (together) {
            batch_of(with, &layer->batch, rows, n, x, ldx, layer->epsilon);
        } else {
            batch_before(&layer->batch, n, layer->epsilon);
        }
        weighted_by(&layer->batch, n, layer->w);
        with->affine(rows, n, x, ldx, CENTRE(&layer->batch, n), FACTOR(&layer->batch, n), layer->b, y);
    } else {
        for (long row = 0; row < rows; row++) {
            memcpy(y + row * n, x + row * ldx, (size_t)n * sizeof(float));
        }
    }
    with->activation(layer->kind, y, rows * n);
}

/* What comes into a layer, and the activation that gave it. */
typedef struct {
    const float *x, *values;
    long ldx;
    Kind kind;
} Below;

INLINE Below
below(const Network *self, const Layer *layer)
{
    if (layer == self->layer) {
        return (Below){self->inputs.buf, NULL, self->ldx, NONE};
    }
    const Layer *under = layer - 1;
    return (Below){under->y, under->y, under->n, under->kind};
}

/* Some layers forwards, of some rows */
static void
layers_forwards(const Pass *pass, const Network *self, const Layer *layer, const Layer *until, long begin, long rows, long part)
{
    for (; layer < until; layer++) {
        Below under = below(self, layer);
        layer_forwards(pass->with, layer, begin, rows, under.x, under.ldx, pass->together, LEFT(self, part));
    }
}

static void
forwards(void *what, long part)
{
    const Pass *pass = what;
    const Network *self = pass->networks[part / pass->parts];
    long at = part % pass->parts, begin = row_of(self, self->rows, at, pass->parts), end = row_of(self, self->rows, at + 1, pass->parts);
    const Layer *behind = self->layer; /* the convolutions that come first */

    while (behind < self->layer + self->layers && behind->type == CONVOLUTION) {
        behind++;
    }
    if (behind > self->layer) { /* by some images, whose numbers stay in a near cache from one layer to the next */
        for (long first = begin, some; first < end; first += some) {
            some = end - first < TOGETHER ? end - first : TOGETHER;
            layers_forwards(pass, self, self->layer, behind, first, some, at);
        }
    }
    if (end > begin || pass->parts == 1) {
        layers_forwards(pass, self, behind, self->layer + self->layers, begin, end - begin, at);
    }
}

/* Gradients of some of a linear layer's outputs' weights and biases, part `at` of `parts`, or of some of a convolution's. */
static void
weights_backwards(const Kernels *with, const Network *self, const Layer *layer, const float *g, long at, long parts, float *scratch)
{
    Below under = below(self, layer);
    if (layer->type == CONVOLUTION) {
        long begin = begin_of(layer->images->units, at, parts, 1), end = begin_of(layer->images->units, at + 1, parts, 1);
        if (end > begin) {
            units_backwards(with, layer->images, self->rows, under.x, under.ldx, g, begin, end, layer->dw, layer->db, scratch);
        }
        return;
    }
    long begin = begin_of(layer->n, at, parts, EVEN), end = begin_of(layer->n, at + 1, parts, EVEN);
    if (end <= begin || layer->type == FLATTENED) {
        return;
    }
    with->matmul_outer(self->rows, end - begin, layer->k, g + begin, layer->n, under.x, under.ldx, layer->dw + begin * layer->k, scratch);
    if (layer->db != NULL) {
        with->column_sums(VALUES, self->rows, end - begin, g + begin, layer->n, NULL, NULL, 0, layer->db + begin);
    }
}

/* Gradients by some rows of the inputs of a layer that is linear, a convolution, or flattens images */
static void
rows_backwards(const Kernels *with, const Network *self, const Layer *layer, const float *g, long begin, long end, float *left, float *scratch)
{
    Below under = below(self, layer);
    if (layer->dx == NULL || end <= begin) {
        return;
    }
    if (layer->type == CONVOLUTION) {
        images_backwards(with, layer->images, begin, end, g, under.kind, under.values, layer->dx, scratch);
        return;
    }
    if (layer->type == FLATTENED) {
        float *to = layer->dx + begin * layer->k;
        turn_over(end - begin, layer->channels, layer->n / layer->channels, g + begin * layer->n, layer->n, to, layer->k);
        if (under.values != NULL) {
            with->activation_backward(under.kind, under.values + begin * layer->k, to, (end - begin) * layer->k);
        }
        return;
    }
    with->matmul(end - begin, layer->n, layer->k, g + begin * layer->n, layer->n, layer->w, layer->k, 0, layer->dx + begin * layer->k,
                   layer->k, NULL, under.kind, under.values == NULL ? NULL : under.values + begin * layer->k, left);
}

/* A layer that is not linear, backwards */
static void
others_backwards(const Kernels *with, const Network *self, const Layer *layer, float *g)
{
    Below under = below(self, layer);
    long rows = self->rows, n = layer->n;

    if (layer->type == RENORMALISED) {
        through_batch(with, &layer->batch, self->together, under.kind, rows, n, g, under.x, under.ldx, layer->dw, layer->db, layer->dx);
        return;
    }
    if (layer->type == NORMALISED) {
        with->column_sums(VALUES, rows, n, g, n, NULL, NULL, 0, layer->db);
        with->layer_norm_backward(rows, n, g, layer->w, layer->hat, layer->scale, NULL, layer->dx);
        with->column_sums(VALUES, rows, n, g, n, NULL, NULL, 0, layer->dw);
    } else if (layer->dx != NULL) {
        memcpy(layer->dx, g, (size_t)(rows * n) * sizeof(float));
    }
    if (layer->dx != NULL && under.values != NULL) {
        with->activation_backward(under.kind, under.values, layer->dx, rows * layer->k);
    }
}

/* Whether gradients by inputs are each row's own, and those of weights each output's */
INLINE int
by_rows(const Layer *layer)
{
    return layer->type == LINEAR || layer->type == CONVOLUTION || layer->type == FLATTENED;
}

static float *
gradient_of(const Pass *pass, int number, const Layer *layer)
{
    const Network *self = pass->networks[number];
    return layer == self->layer + self->layers - 1 ? pass->g[number] : (layer + 1)->dx;
}

/* All of a network, backwards */
static void
backwards(void *what, long part)
{
    const Pass *pass = what;
    const Network *self = pass->networks[part];

    for (const Layer *layer = self->layer + self->layers - 1; layer >= self->layer; layer--) {
        float *g = gradient_of(pass, (int)part, layer);
        if (by_rows(layer)) {
            weights_backwards(pass->with, self, layer, g, 0, 1, self->scratch);
            rows_backwards(pass->with, self, layer, g, 0, self->rows, self->left, self->scratch);
        } else {
            others_backwards(pass->with, self, layer, g);
        }
    }
}

/* Some rows or some outputs of one layer, backwards. Neighbouring parts are of the same rows and outputs, so that each thread finds in
 * its cache what it has computed; the last ones are the other way round, as helpers come from the back. */
static void
layer_backwards(void *what, long part)
{
    const Pass *pass = what;
    long parts = pass->parts, of_network = 2 * parts, at = part % of_network / 2;
    const Network *self = pass->networks[part / of_network];
    const Layer *layer = self->layer + pass->depth;
    float *g = gradient_of(pass, (int)(part / of_network), layer);

    float *scratch = self->scratch + at * self->room;

    if (!by_rows(layer)) {
        if (part % of_network == 0) {
            others_backwards(pass->with, self, layer, g);
        }
    } else if ((part % 2 == 0) == (at < parts / 2)) {
        rows_backwards(pass->with, self, layer, g, row_of(self, self->rows, at, parts), row_of(self, self->rows, at + 1, parts), LEFT(self, at),
                       scratch);
    } else {
        weights_backwards(pass->with, self, layer, g, at, parts, scratch);
    }
}

/* What a layer gave for some rows, one below the other */
static const float *
picked_of(const Network *self, const Layer *layer, const int64_t *rows, long begin, long end)
{
    float *picked = self->picked + begin * self->most;
    if (rows == NULL) {
        return layer->y + begin * layer->n;
    }
    for (long i = begin; i < end; i++) {
        memcpy(picked + (i - begin) * layer->n, layer->y + rows[i] * layer->n, (size_t)layer->n * sizeof(float));
    }
    return picked;
}

/* Gradients by the inputs of some rows */
static void
slopes(void *what, long part)
{
    const Pass *pass = what;
    const Kernels *with = pass->with;
    int number = (int)(part / pass->parts);
    const Network *self = pass->networks[number];
    const int64_t *rows = pass->rows[number];
    long at = part % pass->parts, count = pass->chosen[number];
    long begin = row_of(self, count, at, pass->parts), end = row_of(self, count, at + 1, pass->parts), some = end - begin;
    const Layer *layer = self->layer + self->layers - 1;
    float *g = pass->g[number] + begin * layer->n;

    if (some <= 0) {
        return;
    }
    if (layer->kind != NONE) {
        with->activation_backward(layer->kind, picked_of(self, layer, rows, begin, end), g, some * layer->n);
    }
    for (; layer >= self->layer; layer--) {
        const Layer *under = layer > self->layer ? layer - 1 : NULL;
        Kind kind = under ? under->kind : NONE;
        const float *values = kind == NONE ? NULL : picked_of(self, under, rows, begin, end);
        long from = under ? 0 : pass->first, k = layer->k - from;
        float *to = (under ? layer->dx : pass->out[number]) + begin * k;
        if (layer->type == LINEAR) {
            with->matmul(some, layer->n, k, g, layer->n, layer->w + from, layer->k, 0, to, k, NULL, kind, values, LEFT(self, at));
        } else {
            if (layer->type == RENORMALISED) {
                with->scale_columns(some, layer->n - from, g + from, layer->n, FACTOR(&layer->batch, layer->n) + from, to);
            } else if (layer->type == NORMALISED) {
                if (rows == NULL) {
                    with->layer_norm_backward(some, layer->n, g, layer->w, layer->hat + begin * layer->n, layer->scale + begin, NULL, to);
                } else {
                    with->layer_norm_backward(some, layer->n, g, layer->w, layer->hat, layer->scale, rows + begin, to);
                }
            } else {
                memcpy(to, g, (size_t)(some * layer->n) * sizeof(float));
            }
            if (values != NULL) {
                with->activation_backward(kind, values, to, some * layer->k);
            }
        }
        g = to;
    }
}
