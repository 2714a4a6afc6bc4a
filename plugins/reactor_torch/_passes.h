/* Networks of dense layers for one number of rows: forwards, gradients of parameters, and gradients by inputs alone.
 *
 * Several networks may go side by side, and with a team of threads rows of one, too: forwards and by inputs each row is for itself,
 * gradients of weights are cut by outputs. Each number is computed as one thread would.
 */

typedef enum { LINEAR, NORMALISED, PLAIN, RENORMALISED, CONVOLUTION, FLATTENED } Type;

#include "_renormalised.h"
#include "_images.h"

typedef struct {
    Type type;
    Kind kind;
    long k, n;
    float epsilon;
    const float *w, *b;
    float *dw, *db, *y, *dx;
    float *hat, *scale; /* of a normalisation */
    Batch batch;        /* of one of batches */
    Images *images;     /* of a convolution */
    long channels;      /* of images that are flattened as torch does it: channels x pixels instead of pixels x channels */
} Layer;

typedef struct {
    PyObject_HEAD
    long rows, work;
    int layers, held, learns, has_inputs, together, renormalises, convolves;
    Layer *layer;
    Py_buffer *views;
    Py_buffer inputs;
    long ldx;
    float *scratch; /* of trees: `room` numbers for each part */
    float *left; /* of products whose left factor is better read elsewhere: ASIDE numbers for each part */
    float *picked; /* values of some rows */
    long most; /* numbers of the widest layer */
    long room, room_for; /* and for how many parts there is room */
} Network;

static void
network_dealloc(PyObject *object)
{
    Network *self = (Network *)object;
    PyTypeObject *type = Py_TYPE(object);

    if (self->has_inputs) {
        PyBuffer_Release(&self->inputs);
    }
    while (self->held > 0) {
        PyBuffer_Release(&self->views[--self->held]);
    }
    for (int i = 0; self->layer != NULL && i < self->layers; i++) {
        free(self->layer[i].hat);
        free(self->layer[i].scale);
        free(self->layer[i].batch.memory);
        images_free(self->layer[i].images);
    }
    free(self->layer);
    free(self->views);
    free(self->scratch);
    free(self->left);
    free(self->picked);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Room for so many parts at the same time; -1 without memory. */
static int
make_room(Network *self, long parts)
{
    if (parts <= self->room_for) {
        return 0;
    }
    float *left = self->most >= 1024 ? malloc((size_t)parts * ASIDE * sizeof(float)) : NULL;
    float *scratch = self->room ? malloc((size_t)(parts * self->room) * sizeof(float)) : NULL;
    if ((self->most >= 1024 && left == NULL) || (self->room && scratch == NULL)) {
        free(left);
        free(scratch);
        PyErr_NoMemory();
        return -1;
    }
    free(self->left);
    free(self->scratch);
    self->left = left, self->scratch = scratch, self->room_for = parts;
    return 0;
}

/* An array of a network that it holds, of this shape; NULL with an error set, or without one for None where that may be. */
static float *
hold(Network *self, PyObject *array, const char *what, Py_ssize_t rows, Py_ssize_t columns, int writable, int optional)
{
    if (PyErr_Occurred() || (optional && array == Py_None)) {
        return NULL;
    }
    Py_buffer *view = &self->views[self->held];
    if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        return NULL;
    }
    self->held++;
    int right = view->format != NULL && strcmp(view->format, "f") == 0 && view->ndim == (columns < 0 ? 1 : 2) && view->shape[0] == rows;
    if (!right || (columns >= 0 && view->shape[1] != columns)) {
        if (columns < 0) {
            PyErr_Format(PyExc_ValueError, "%s must be float32 of the shape (%zd,)", what, rows);
        } else {
            PyErr_Format(PyExc_ValueError, "%s must be float32 of the shape (%zd, %zd)", what, rows, columns);
        }
        return NULL;
    }
    return view->buf;
}

/* What a layer knows of earlier batches, and how far it is bound by it: (mean, variance, steps, momentum, rmax, dmax, warmup) */
static int
add_batch(Network *self, PyObject *given, Layer *layer)
{
    Batch *batch = &layer->batch;
    PyObject *mean, *variance, *steps;
    double momentum, rmax, dmax;
    long n = layer->n;

    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a layer that normalises batches is given (mean, variance, steps, momentum, rmax, dmax, warmup)");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "OOOdddL:statistics", &mean, &variance, &steps, &momentum, &rmax, &dmax, &batch->warmup)) {
        return -1;
    }
    batch->mean = hold(self, mean, "mean", n, -1, 1, 0);
    batch->variance = hold(self, variance, "variance", n, -1, 1, 0);
    if (PyErr_Occurred()) {
        return -1;
    }
    Py_buffer *view = &self->views[self->held];
    if (PyObject_GetBuffer(steps, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        return -1;
    }
    self->held++;
    if (view->format == NULL || strlen(view->format) != 1 || strchr("ql", view->format[0]) == NULL || view->len != sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "steps must be one int64");
        return -1;
    }
    batch->steps = view->buf, batch->momentum = (float)momentum, batch->rmax = (float)rmax, batch->dmax = (float)dmax;
    batch->memory = calloc((size_t)n * ROOM, sizeof(float));
    if (batch->memory == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int
add_layer(Network *self, PyObject *given, long *width)
{
    Layer *layer = &self->layer[self->layers];
    long type, kind, n;
    double epsilon;
    PyObject *w, *b, *dw, *db, *y, *dx, *more = Py_None;

    if (!PyArg_ParseTuple(given, "lllldOOOOOO|O:layer", &type, &kind, &layer->k, &n, &epsilon, &w, &b, &dw, &db, &y, &dx, &more)) {
        return -1;
    }
    if (type < LINEAR || type > FLATTENED || kind < NONE || kind > TANH || layer->k < 1 || n < 1 ||
        (type != LINEAR && type != CONVOLUTION && n != layer->k)) {
        PyErr_Format(PyExc_ValueError, "there is no layer of type %ld with activation %ld from %ld to %ld numbers", type, kind, layer->k, n);
        return -1;
    }
    if (*width && layer->k != *width) {
        PyErr_Format(PyExc_ValueError, "a layer of %ld inputs cannot follow one of %ld outputs", layer->k, *width);
        return -1;
    }
    layer->type = (Type)type, layer->kind = (Kind)kind, layer->n = n, layer->epsilon = (float)epsilon;
    int linear = type == LINEAR, plain = type == PLAIN || type == FLATTENED;
    long outputs = n, inputs = linear ? layer->k : -1;
    self->layers++; /* what it allocates from now on is freed with it */
    if (type == CONVOLUTION) {
        layer->images = images_new(more, self->rows, layer->k, n, dw != Py_None);
        if (layer->images == NULL) {
            return -1;
        }
        outputs = layer->images->windows.outputs, inputs = window_size(&layer->images->windows);
        self->convolves = 1;
    }
    if (type == FLATTENED) {
        layer->channels = PyLong_AsLong(more);
        if (!PyErr_Occurred() && (layer->channels < 1 || n % layer->channels)) {
            PyErr_Format(PyExc_ValueError, "no images with %ld channels have %ld numbers", layer->channels, n);
        }
    }
    layer->w = hold(self, w, "weight", outputs, inputs, 0, plain);
    layer->b = hold(self, b, "bias", outputs, -1, 0, linear || plain);
    layer->dw = hold(self, dw, "weight_gradient", outputs, inputs, 1, 1);
    layer->db = hold(self, db, "bias_gradient", outputs, -1, 1, 1);
    layer->y = hold(self, y, "out", self->rows, n, 1, 0);
    layer->dx = hold(self, dx, "below", self->rows, layer->k, 1, self->layers == 1 || (type == CONVOLUTION && layer->dw == NULL));
    if (PyErr_Occurred()) {
        return -1;
    }
    if (type == RENORMALISED && add_batch(self, more, layer) < 0) {
        return -1;
    }
    self->renormalises = self->renormalises || type == RENORMALISED;
    if (type == NORMALISED) {
        layer->hat = malloc((size_t)(self->rows * n + 1) * sizeof(float));
        layer->scale = malloc((size_t)(self->rows + 1) * sizeof(float));
        if (layer->hat == NULL || layer->scale == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    self->learns = self->learns && (plain || layer->dw != NULL);
    self->work += linear ? self->rows * layer->k * n : inputs > 0 ? self->rows * n * inputs : self->rows * n;
    *width = n;
    return 0;
}

/* Network(rows, layers): each layer is (type, activation, inputs, outputs, epsilon, weight, bias, and where its gradients, what it
 * gives, and the gradient of its inputs go), and what it knows of earlier batches */
static PyObject *
network_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t rows;
    PyObject *layers;
    long width = 0, room = 0, of_images = 0, levels = 1;

    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Network(rows, layers) takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "nO!:Network", &rows, &PyTuple_Type, &layers)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(layers);
    if (rows < 0 || count < 1 || count > 1000) {
        PyErr_SetString(PyExc_ValueError, "a network has rows and layers");
        return NULL;
    }
    Network *self = (Network *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->rows = rows, self->learns = 1;
    self->layer = calloc((size_t)count, sizeof(Layer));
    self->views = calloc((size_t)count * 9, sizeof(Py_buffer));
    if (self->layer == NULL || self->views == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (add_layer(self, PyTuple_GetItem(layers, i), &width) < 0) {
            goto failed;
        }
    }
    for (int i = 0; i < self->layers; i++) {
        const Layer *layer = &self->layer[i];
        if (layer->images != NULL) {
            long needed = images_room(layer->images);
            of_images = needed > of_images ? needed : of_images;
            continue;
        }
        long size = layer->type == LINEAR ? layer->k * layer->n : 0, side = layer->k > layer->n ? layer->k : layer->n;
        room = size > room ? size : room;
        self->most = side > self->most ? side : self->most;
    }
    for (long some = SUPER; some < rows; some *= 2) {
        levels++;
    }
    self->room = self->learns && room ? TILES(self->most) + levels * room : 0;
    self->room = self->room > of_images ? self->room : of_images;
    if (make_room(self, 1) < 0) {
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

/* ---------------------------------------------------------------- parts of a pass */

enum { EVEN = 12 }; /* rows of the tallest tile: parts are multiples of it */

typedef struct {
    const Products *with;
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
layer_forwards(const Products *with, const Layer *layer, long begin, long rows, const float *x, long ldx, int together, float *left)
{
    long n = layer->n;
    float *y = layer->y + begin * n;

    if (layer->type == CONVOLUTION) { /* of numbers or of bytes */
        images_forwards(with, layer->images, layer->kind, begin, begin + rows, x, ldx, layer->b, layer->y);
        return;
    }
    x += begin * ldx;
    if (layer->type == LINEAR) {
        with->forward(layer->kind, rows, layer->k, n, x, ldx, layer->w, layer->b, y, left);
        return;
    }
    if (layer->type == FLATTENED) {
        turn_over(rows, n / layer->channels, layer->channels, x, ldx, y, n);
    } else if (layer->type == NORMALISED) {
        with->normalise(rows, n, x, ldx, layer->w, layer->b, layer->epsilon, y, layer->hat + begin * n, layer->scale + begin);
    } else if (layer->type == RENORMALISED) {
        if (together) {
            batch_of(with, &layer->batch, rows, n, x, ldx, layer->epsilon);
        } else {
            batch_before(&layer->batch, n, layer->epsilon);
        }
        weighted_by(&layer->batch, n, layer->w);
        with->shifted(rows, n, x, ldx, CENTRE(&layer->batch, n), FACTOR(&layer->batch, n), layer->b, y);
    } else {
        for (long row = 0; row < rows; row++) {
            memcpy(y + row * n, x + row * ldx, (size_t)n * sizeof(float));
        }
    }
    with->activate(layer->kind, y, rows * n);
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
weights_backwards(const Products *with, const Network *self, const Layer *layer, const float *g, long at, long parts, float *scratch)
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
    with->outer(self->rows, end - begin, layer->k, g + begin, layer->n, under.x, under.ldx, layer->dw + begin * layer->k, scratch);
    if (layer->db != NULL) {
        with->columns(VALUES, self->rows, end - begin, g + begin, layer->n, NULL, NULL, 0, layer->db + begin);
    }
}

/* Gradients by some rows of the inputs of a layer that is linear, a convolution, or flattens images */
static void
rows_backwards(const Products *with, const Network *self, const Layer *layer, const float *g, long begin, long end, float *left, float *scratch)
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
            with->differentiate(under.kind, under.values + begin * layer->k, to, (end - begin) * layer->k);
        }
        return;
    }
    with->multiply(end - begin, layer->n, layer->k, g + begin * layer->n, layer->n, layer->w, layer->k, 0, layer->dx + begin * layer->k,
                   layer->k, NULL, under.kind, under.values == NULL ? NULL : under.values + begin * layer->k, left);
}

/* A layer that is not linear, backwards */
static void
others_backwards(const Products *with, const Network *self, const Layer *layer, float *g)
{
    Below under = below(self, layer);
    long rows = self->rows, n = layer->n;

    if (layer->type == RENORMALISED) {
        through_batch(with, &layer->batch, self->together, under.kind, rows, n, g, under.x, under.ldx, layer->dw, layer->db, layer->dx);
        return;
    }
    if (layer->type == NORMALISED) {
        with->columns(VALUES, rows, n, g, n, NULL, NULL, 0, layer->db);
        with->unnormalise(rows, n, g, layer->w, layer->hat, layer->scale, NULL, layer->dx);
        with->columns(VALUES, rows, n, g, n, NULL, NULL, 0, layer->dw);
    } else if (layer->dx != NULL) {
        memcpy(layer->dx, g, (size_t)(rows * n) * sizeof(float));
    }
    if (layer->dx != NULL && under.values != NULL) {
        with->differentiate(under.kind, under.values, layer->dx, rows * layer->k);
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
    const Products *with = pass->with;
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
        with->differentiate(layer->kind, picked_of(self, layer, rows, begin, end), g, some * layer->n);
    }
    for (; layer >= self->layer; layer--) {
        const Layer *under = layer > self->layer ? layer - 1 : NULL;
        Kind kind = under ? under->kind : NONE;
        const float *values = kind == NONE ? NULL : picked_of(self, under, rows, begin, end);
        long from = under ? 0 : pass->first, k = layer->k - from;
        float *to = (under ? layer->dx : pass->out[number]) + begin * k;
        if (layer->type == LINEAR) {
            with->multiply(some, layer->n, k, g, layer->n, layer->w + from, layer->k, 0, to, k, NULL, kind, values, LEFT(self, at));
        } else {
            if (layer->type == RENORMALISED) {
                with->weighted(some, layer->n - from, g + from, layer->n, FACTOR(&layer->batch, layer->n) + from, to);
            } else if (layer->type == NORMALISED) {
                if (rows == NULL) {
                    with->unnormalise(some, layer->n, g, layer->w, layer->hat + begin * layer->n, layer->scale + begin, NULL, to);
                } else {
                    with->unnormalise(some, layer->n, g, layer->w, layer->hat, layer->scale, rows + begin, to);
                }
            } else {
                memcpy(to, g, (size_t)(some * layer->n) * sizeof(float));
            }
            if (values != NULL) {
                with->differentiate(kind, values, to, some * layer->k);
            }
        }
        g = to;
    }
}

/* ---------------------------------------------------------------- passes */

/* The networks of a pass: one, and others that are given as arguments, `stride` of them for each. -1 with an error set. */
static int
begin_pass(Pass *pass, PyObject *first, PyObject *const *others, Py_ssize_t given, int stride)
{
    if (given % stride || given / stride >= MOST_NETWORKS) {
        PyErr_Format(PyExc_TypeError, "up to %d networks go side by side, each with its arguments", MOST_NETWORKS);
        return -1;
    }
    pass->with = products, pass->count = 1 + (int)(given / stride), pass->together = 0;
    pass->networks[0] = (Network *)first;
    for (int i = 1; i < pass->count; i++) {
        PyObject *other = others[(i - 1) * stride];
        if (Py_TYPE(other) != Py_TYPE(first)) {
            PyErr_Format(PyExc_TypeError, "a network must be a Network, got %R", other);
            return -1;
        }
        for (int j = 0; j < i; j++) {
            if (other == (PyObject *)pass->networks[j]) {
                PyErr_SetString(PyExc_ValueError, "a network cannot go beside itself");
                return -1;
            }
        }
        pass->networks[i] = (Network *)other;
    }
    return 0;
}

/* Whether rows of each network may be parts: they are for themselves, and all networks have as many layers. */
static int
may_be_cut(const Pass *pass)
{
    for (int i = 0; i < pass->count; i++) {
        const Network *self = pass->networks[i];
        if (self->layers != pass->networks[0]->layers || self->renormalises) {
            return 0;
        }
    }
    return 1;
}

static long
work_of(const Pass *pass)
{
    long work = 0;
    for (int i = 0; i < pass->count; i++) {
        work += pass->networks[i]->work;
    }
    return work;
}

/* Cut each network of a pass into parts: with the others one for each thread, by itself if they have different rows; -1 without memory. */
static int
cut(Pass *pass, const Team *team, long work, int different)
{
    pass->parts = may_be_cut(pass) ? parts_for(team, different ? 1 : pass->count, work) : 1;
    for (int i = 0; i < pass->count; i++) {
        if (make_room(pass->networks[i], pass->parts) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Compute all parts of a pass; others may have the interpreter meanwhile, if it takes long. */
static void
pass_through(Pass *pass, Team *team, long work, Part part)
{
    PyThreadState *state = work >= LARGE ? PyEval_SaveThread() : NULL;
    compute_parts(team, pass->count * pass->parts, part, pass);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

static int
take_inputs(Network *self, PyObject *inputs)
{
    const Layer *layer = self->layer;

    if (self->has_inputs) {
        self->has_inputs = 0;
        PyBuffer_Release(&self->inputs);
    }
    if (PyObject_GetBuffer(inputs, &self->inputs, PyBUF_FORMAT | PyBUF_STRIDES) < 0) {
        return -1;
    }
    self->has_inputs = 1;
    Py_buffer *view = &self->inputs;
    int bytes = layer->images != NULL && layer->images->divisor != 0.0f;
    Py_ssize_t item = bytes ? 1 : sizeof(float);
    int right = view->ndim == 2 && view->format != NULL && strcmp(view->format, bytes ? "B" : "f") == 0 && view->shape[0] == self->rows &&
                view->shape[1] == layer->k && (layer->k == 1 || view->strides[1] == item) && view->strides[0] % item == 0 &&
                (self->rows < 2 || view->strides[0] >= item * layer->k);
    if (!right) {
        PyErr_Format(PyExc_ValueError, "inputs must be %s of the shape (%ld, %ld), each row without gaps", bytes ? "uint8" : "float32",
                     self->rows, layer->k);
        return -1;
    }
    self->ldx = self->rows < 2 ? layer->k : (long)(view->strides[0] / item);
    return 0;
}

/* Overwrite what the layers give; `together`: batches are normalised by their own statistics, too, and running ones learn from them. */
static PyObject *
evaluated(PyObject *object, PyObject *const *args, Py_ssize_t given, int together)
{
    Pass pass;

    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "run(inputs, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 1, given - 1, 1) < 0) {
        return NULL;
    }
    pass.together = together;
    for (int i = 0; i < pass.count; i++) {
        if (take_inputs(pass.networks[i], args[0]) < 0) {
            return NULL;
        }
        pass.networks[i]->together = together;
        for (int j = 0; j < pass.networks[i]->layers; j++) {
            if (pass.networks[i]->layer[j].images != NULL) {
                lay_out_weights(pass.with, pass.networks[i]->layer[j].images, pass.networks[i]->layer[j].w);
            }
        }
    }
    long work = work_of(&pass);
    Team *team = team_for(work);
    if (cut(&pass, team, work, 0) < 0) {
        return NULL;
    }
    pass_through(&pass, team, work, forwards);
    Py_RETURN_NONE;
}

/* run(inputs, *networks): overwrite what the layers give, and those of others for the same inputs */
static PyObject *
network_run(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    return evaluated(object, args, given, 0);
}

/* run_together(inputs, *networks): the same while learning */
static PyObject *
network_run_together(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    return evaluated(object, args, given, 1);
}

/* back(gradient, *networks): gradients of parameters and inputs from that of what was given last, which may be overwritten; each
 * other network has its own gradient behind it */
static PyObject *
network_back(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Held held;
    Pass pass;

    held.held = held.failed = 0;
    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "back(gradient, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 1, given - 1, 2) < 0) {
        return NULL;
    }
    long work = 2 * work_of(&pass);
    Team *team = team_for(work);
    for (int i = 0; i < pass.count && !held.failed; i++) {
        const Network *self = pass.networks[i];
        if (!self->has_inputs || !self->learns) {
            PyErr_SetString(PyExc_ValueError,
                            self->learns ? "run(inputs) comes before back(gradient)" : "a network that does not learn has no gradients");
            held.failed = 1;
        }
        pass.g[i] = array_of(&held, args[2 * i], "gradient", "f", self->rows * self->layer[self->layers - 1].n, 1, 0);
    }
    if (held.failed || cut(&pass, team, work, 0) < 0) {
        release(&held);
        return NULL;
    }
    PyThreadState *state = work >= 2 * LARGE ? PyEval_SaveThread() : NULL;
    for (int i = 0; i < pass.count; i++) {
        const Network *self = pass.networks[i];
        const Layer *last = self->layer + self->layers - 1;
        pass.with->differentiate(last->kind, last->y, pass.g[i], self->rows * last->n);
    }
    if (pass.parts == 1) {
        compute_parts(team, pass.count, backwards, &pass);
    } else {
        for (pass.depth = pass.networks[0]->layers - 1; pass.depth >= 0; pass.depth--) {
            compute_parts(team, 2 * pass.parts * pass.count, layer_backwards, &pass);
        }
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return done(&held);
}

static int
make_picked(Network *self)
{
    if (self->picked == NULL) {
        self->picked = malloc((size_t)(self->rows * self->most + 1) * sizeof(float));
        if (self->picked == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

/* A network's gradient, rows and where the slopes go; -1 with an error set */
static int
take_rows(Pass *pass, int number, PyObject *const *args, PyObject *out, Held *held)
{
    Network *self = pass->networks[number];
    const Layer *layer = self->layer;
    long n = layer[self->layers - 1].n, first = pass->first;

    if (self->convolves) {
        PyErr_SetString(PyExc_ValueError, "a network that convolves has no slopes of some rows");
        return -1;
    }
    if (make_picked(self) < 0) {
        return -1;
    }
    float *g = array_of(held, args[0], "gradient", "f", -1, 1, 0);
    long count = held->failed ? 0 : (long)(held->views[0].len / (Py_ssize_t)sizeof(float) / n);
    const int64_t *rows = array_of(held, args[1], "rows", "ql", count, 0, 1);
    pass->out[number] = array_of(held, out, "out", "f", count * (layer->k - first), 1, 0);
    if (!PyErr_Occurred() && (first < 0 || first >= layer->k || (rows == NULL && count != self->rows) || count > self->rows)) {
        PyErr_Format(PyExc_ValueError, "there are %ld rows of %ld inputs", self->rows, layer->k);
    }
    for (long i = 0; rows != NULL && !PyErr_Occurred() && i < count; i++) {
        if (rows[i] < 0 || rows[i] >= self->rows) {
            PyErr_Format(PyExc_IndexError, "there are %ld rows, and none with the number %lld", self->rows, (long long)rows[i]);
        }
    }
    if (layer->type != LINEAR && layer->type != RENORMALISED && !PyErr_Occurred() && first) {
        PyErr_SetString(PyExc_ValueError, "some inputs alone are those of a linear layer");
    }
    if (self->together && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "rows that are normalised together have no slopes of their own");
    }
    pass->g[number] = g, pass->rows[number] = rows, pass->chosen[number] = count;
    return PyErr_Occurred() ? -1 : 0;
}

/* slopes(gradient, rows, first, out, *networks): the gradient by the inputs from the `first` one on, of some rows, without gradients
 * of parameters; each other network has its own gradient, rows and out behind it */
static PyObject *
network_slopes(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Pass pass;

    if (given < 4) {
        PyErr_SetString(PyExc_TypeError, "slopes(gradient, rows, first, out, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 4, given - 4, 4) < 0) {
        return NULL;
    }
    pass.first = PyLong_AsLong(args[2]);
    Held *held = calloc((size_t)pass.count, sizeof(Held));
    if (held == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *found = NULL;
    long work = 0;
    for (int i = 0; i < pass.count; i++) {
        PyObject *const *own = i ? args + 5 + 4 * (i - 1) : args;
        if (take_rows(&pass, i, own, own[i ? 2 : 3], &held[i]) < 0) {
            goto failed;
        }
        work += pass.networks[i]->rows ? pass.networks[i]->work / pass.networks[i]->rows * pass.chosen[i] : 0;
    }
    Team *team = team_for(work);
    if (cut(&pass, team, work, pass.count > 1) < 0) { /* a network may have most of the rows */
        goto failed;
    }
    pass_through(&pass, team, work, slopes);
    found = Py_NewRef(Py_None);
failed:
    for (int i = 0; i < pass.count; i++) {
        release(&held[i]);
    }
    free(held);
    return found;
}

/* Which of several networks says the least for each row, the first of those that do; what is no number is less. Rows of the first one
 * come first, how many of each in `chosen`. */
static void
least_of(Pass *pass, const float *values, float *least, int64_t *rows)
{
    long all = pass->networks[0]->rows, count = 0;
    for (int i = 0; i < pass->count; i++) {
        pass->rows[i] = rows + count;
        for (long row = 0; row < all; row++) {
            const float *said = values + row;
            int best = 0;
            for (int other = 1; other < pass->count && said[best * all] == said[best * all]; other++) {
                best = said[other * all] < said[best * all] || said[other * all] != said[other * all] ? other : best;
            }
            if (best == i) {
                rows[count++] = row;
                least[row] = said[best * all];
            }
        }
        pass->chosen[i] = rows + count - pass->rows[i];
    }
}

/* least(values, first, least, out, *networks): the least value of each row, of those that the networks have given, and its gradient by
 * the inputs from the `first` one on */
static PyObject *
network_least(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Held held;
    Pass pass;
    Network *self = (Network *)object;

    held.held = held.failed = 0;
    if (given < 4) {
        PyErr_SetString(PyExc_TypeError, "least(values, first, least, out, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 4, given - 4, 1) < 0) {
        return NULL;
    }
    long rows = self->rows, k = self->layer->k, first = PyLong_AsLong(args[1]), width = k - first;
    const float *values = array_of(&held, args[0], "values", "f", rows * pass.count, 0, 0);
    float *least = array_of(&held, args[2], "least", "f", rows, 1, 0), *out = array_of(&held, args[3], "out", "f", rows * width, 1, 0);
    if (!held.failed && !PyErr_Occurred() && (first < 0 || first >= k)) {
        PyErr_Format(PyExc_ValueError, "there are %ld inputs", k);
    }
    for (int i = 0; i < pass.count && !PyErr_Occurred(); i++) {
        const Network *one = pass.networks[i];
        if (one->rows != rows || one->layer->k != k || one->layer[one->layers - 1].n != 1 || one->layer[one->layers - 1].kind != NONE) {
            PyErr_SetString(PyExc_ValueError, "networks that say the least have the same inputs, and each gives one number for a row");
        } else if (one->together || (one->layer->type != LINEAR && one->layer->type != RENORMALISED)) {
            PyErr_SetString(PyExc_ValueError, "their rows are for themselves, and go through a linear layer first");
        } else {
            make_picked(pass.networks[i]);
        }
    }
    int64_t *memory = malloc((size_t)(rows + 1) * (sizeof(int64_t) + (size_t)(width + 1) * sizeof(float)));
    if (memory == NULL) {
        PyErr_NoMemory();
    }
    long work = work_of(&pass) / pass.count;
    Team *team = team_for(work);
    if (PyErr_Occurred() || cut(&pass, team, work, pass.count > 1) < 0) {
        release(&held);
        free(memory);
        return NULL;
    }
    float *g = (float *)(memory + rows + 1), *found = g + rows + 1;
    least_of(&pass, values, least, memory);
    for (long row = 0; row < rows; row++) {
        g[row] = 1.0f;
    }
    pass.first = first;
    for (int i = 0; i < pass.count; i++) {
        long before = pass.rows[i] - memory;
        pass.g[i] = g + before, pass.out[i] = found + before * width;
    }
    pass_through(&pass, team, work, slopes);
    for (long i = 0; i < rows; i++) {
        memcpy(out + memory[i] * width, found + i * width, (size_t)width * sizeof(float));
    }
    free(memory);
    return done(&held);
}

#define METHOD(name, text) {#name, (PyCFunction)(void (*)(void))network_##name, METH_FASTCALL, text}
static PyMethodDef network_methods[] = {
    METHOD(run, "Overwrite what the layers give."),
    METHOD(run_together, "The same, batches being normalised by their own statistics, from which running ones learn."),
    METHOD(back, "Overwrite the gradients of parameters and inputs."),
    METHOD(slopes, "Gradients by inputs alone, of some rows."),
    METHOD(least, "The least that several networks say of each row, and its gradient by the inputs."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot network_slots[] = {
    {Py_tp_new, network_new},
    {Py_tp_dealloc, network_dealloc},
    {Py_tp_methods, network_methods},
    {Py_tp_doc, "Network(rows, layers): layers that follow each other, for one number of rows."},
    {0, NULL},
};
static PyType_Spec network_spec = {
    .name = "_products.Network",
    .basicsize = sizeof(Network),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = network_slots,
};

