/* Parts of a pass through networks, each of which one thread computes: some rows, or gradients of some outputs' weights.
 *
 * Several networks may go side by side, and with a team of threads rows of one, too: forwards and by inputs each row is for itself,
 * gradients of weights are cut by outputs. Each number is computed as one thread would.
 */

enum { MOST_NETWORKS = 64 }; /* that go side by side */

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
} Pass;

INLINE long
row_of(const Network *self, long rows, long at, long parts)
{
    return begin_of(rows, at, parts, self->convolves ? 1 : EVEN); /* an image has tiles of its own */
}

/* Rows of a layer, in part `part` of its network's */
INLINE Piece
piece_of(const Pass *pass, const Network *self, const Layer *layer, long begin, long end, long part)
{
    float *left = self->left == NULL ? NULL : self->left + part * ASIDE, *scratch = self->scratch == NULL ? NULL : self->scratch + part * self->room;
    float *grad_x = layer->dx == NULL ? NULL : layer->dx + begin * layer->k;
    Piece p = {.with = pass->with, .layer = layer, .all = self->rows, .begin = begin, .rows = end - begin, .y = layer->y + begin * layer->n,
               .grad_x = grad_x, .together = self->together, .left = left, .scratch = scratch};
    if (layer > self->layer) {
        p.x = p.values = layer[-1].y + begin * layer->k, p.ldx = layer->k, p.kind = layer[-1].kind;
    } else {
        p.x = (float *)((char *)self->inputs.buf + begin * self->ldx * (layer->of_bytes ? 1 : (long)sizeof(float))), p.ldx = self->ldx;
    }
    return p;
}

/* Some layers forwards, of some rows */
static void
layers_forwards(const Pass *pass, const Network *self, const Layer *layer, const Layer *until, long begin, long end, long part)
{
    for (; layer < until; layer++) {
        Piece p = piece_of(pass, self, layer, begin, end, part);
        layer->type->forward(&p);
        if (!layer->type->activates) {
            pass->with->activation(layer->kind, p.y, p.rows * layer->n);
        }
    }
}

static void
forwards(void *what, long part)
{
    const Pass *pass = what;
    const Network *self = pass->networks[part / pass->parts];
    long at = part % pass->parts, begin = row_of(self, self->rows, at, pass->parts), end = row_of(self, self->rows, at + 1, pass->parts);
    const Layer *behind = self->layer; /* the convolutions that come first */

    while (behind < self->layer + self->layers && behind->type->convolves) {
        behind++;
    }
    if (behind > self->layer) { /* by some images, whose numbers stay in a near cache from one layer to the next */
        for (long first = begin, some; first < end; first += some) {
            some = end - first < TOGETHER ? end - first : TOGETHER;
            layers_forwards(pass, self, self->layer, behind, first, first + some, at);
        }
    }
    if (end > begin || pass->parts == 1) {
        layers_forwards(pass, self, behind, self->layer + self->layers, begin, end, at);
    }
}

static float *
gradient_of(const Pass *pass, int number, const Layer *layer)
{
    const Network *self = pass->networks[number];
    return layer == self->layer + self->layers - 1 ? pass->g[number] : (layer + 1)->dx;
}

/* A gradient by inputs is one by what went into the activation that gave them. */
INLINE void
through_activation(const Piece *p, float *grad_x)
{
    if (!p->layer->type->differentiates && p->values != NULL) {
        p->with->activation_backward(p->kind, p->values, grad_x, p->rows * p->layer->k);
    }
}

static void
parameters_backwards(const Piece *p, const float *g, long at, long parts)
{
    if (p->layer->type->backward_parameters != NULL) {
        p->layer->type->backward_parameters(p, g, at, parts);
    }
}

/* g is that of the first row. */
static void
inputs_backwards(const Piece *p, const float *g)
{
    if (p->grad_x != NULL && p->rows > 0) {
        p->layer->type->backward_inputs(p, g);
        through_activation(p, p->grad_x);
    }
}

static void
all_backwards(const Piece *p, float *g)
{
    p->layer->type->backward(p, g);
    if (p->grad_x != NULL) {
        through_activation(p, p->grad_x);
    }
}

/* All of a network, backwards */
static void
backwards(void *what, long part)
{
    const Pass *pass = what;
    const Network *self = pass->networks[part];

    for (const Layer *layer = self->layer + self->layers - 1; layer >= self->layer; layer--) {
        float *g = gradient_of(pass, (int)part, layer);
        Piece p = piece_of(pass, self, layer, 0, self->rows, 0);
        if (layer->type->backward != NULL) {
            all_backwards(&p, g);
        } else {
            parameters_backwards(&p, g, 0, 1);
            inputs_backwards(&p, g);
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
    Piece p = piece_of(pass, self, layer, 0, self->rows, at);

    if (layer->type->backward != NULL) {
        if (part % of_network == 0) {
            all_backwards(&p, g);
        }
    } else if ((part % 2 == 0) == (at < parts / 2)) {
        long begin = row_of(self, self->rows, at, parts);
        p = piece_of(pass, self, layer, begin, row_of(self, self->rows, at + 1, parts), at);
        inputs_backwards(&p, g + begin * layer->n);
    } else {
        parameters_backwards(&p, g, at, parts);
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
        pass->with->activation_backward(layer->kind, picked_of(self, layer, rows, begin, end), g, some * layer->n);
    }
    for (; layer >= self->layer; layer--) {
        const Layer *under = layer > self->layer ? layer - 1 : NULL;
        long first = under ? 0 : pass->first;
        float *to = (under ? layer->dx : pass->out[number]) + begin * (layer->k - first);
        Piece p = piece_of(pass, self, layer, begin, end, at);
        p.values = under == NULL || under->kind == NONE ? NULL : picked_of(self, under, rows, begin, end);
        layer->type->slopes(&p, g, rows, first, to);
        through_activation(&p, to);
        g = to;
    }
}
