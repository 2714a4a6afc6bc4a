/* Networks: layers that follow each other, for one number of rows. What they are, and the arrays that they hold. */

typedef enum { LINEAR, NORMALISED, PLAIN, RENORMALISED, CONVOLUTION, FLATTENED } Type;

#include "layers/batch_renorm.h"
#include "layers/images.h"

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
    int passes; /* gradients down to its inputs: there is memory for them */
    int fixed; /* running statistics that it may only read */
    Layer *layer;
    Py_buffer *views;
    Py_buffer inputs;
    long ldx;
    float *scratch; /* of trees: `room` numbers for each part */
    float *left; /* of products whose left factor is better read elsewhere: ASIDE numbers for each part */
    float *picked; /* values of some rows */
    long most; /* numbers of the widest layer */
    long room, room_for; /* and for how many parts there is room */
    struct Acting *acting; /* of an actor, see _acting.h */
} Network;

static void acting_free(struct Acting *acting);

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
    acting_free(self->acting);
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
    batch->mean = hold(self, mean, "mean", n, -1, 0, 0);
    batch->variance = hold(self, variance, "variance", n, -1, 0, 0);
    if (PyErr_Occurred()) {
        return -1;
    }
    self->fixed = self->fixed || self->views[self->held - 2].readonly || self->views[self->held - 1].readonly;
    Py_buffer *view = &self->views[self->held];
    if (PyObject_GetBuffer(steps, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
        return -1;
    }
    self->held++;
    self->fixed = self->fixed || view->readonly;
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
    layer->db = hold(self, db, "bias_gradient", outputs, -1, 1, linear || plain || layer->dw == NULL);
    layer->y = hold(self, y, "out", self->rows, n, 1, 0);
    layer->dx = hold(self, dx, "below", self->rows, layer->k, 1, 1);
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
    self->passes = self->passes && (self->layers == 1 || layer->dx != NULL);
    self->learns = self->learns && self->passes && (plain || layer->dw != NULL);
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
    self->rows = rows, self->learns = self->passes = 1;
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
