/* Networks: layers that follow each other, for one number of rows. What they are, and the arrays that they hold. */

typedef struct LayerType LayerType;

enum { THIN = 24 }; /* numbers: a layer of fewer takes about as long, as tiles and vectors are not full */

typedef struct {
    const LayerType *type;
    Kind kind;
    long k, n; /* inputs, outputs */
    float epsilon;
    const float *w, *b;
    float *dw, *db, *y, *dx;
    long products; /* multiply-adds for each output, or what takes as long */
    int learns, of_bytes; /* whether there are gradients of its parameters; whether inputs may be bytes */
    void *own;     /* what its type needs besides */
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
    struct Acting *acting; /* of an actor, see acting.h */
} Network;

/* Some rows of a layer, or all of them: what comes in, and the activation that gave it */
typedef struct {
    const Kernels *with;
    const Layer *layer;
    long all, begin, rows;   /* rows of the network; of this part, to whose first one pointers go */
    const float *x, *values; /* NULL: nothing gave them */
    long ldx;
    float *y, *grad_x; /* likewise */
    Kind kind;
    int together; /* batches are normalised by their own statistics */
    float *left, *scratch;
} Piece;

/* What a layer is: headers in layers/ end in a row like this. A part that there is not is NULL. */
struct LayerType {
    const char *name;
    const char *parameters; /* weight and bias; sizes k and n, and those that make() says */
    int changes_width;      /* outputs may be more or fewer than inputs */
    int convolves;          /* rows are images, which have tiles of their own */
    int of_batches;         /* rows are not for themselves */
    int some_inputs;        /* slopes() may be those of the last inputs alone */
    int (*make)(Network *self, Layer *layer, PyObject *more, Sizes *n); /* what it has of its own; -1 with an error set */
    void (*destroy)(Layer *layer);
    long (*room)(const Layer *layer, long rows);             /* numbers of scratch for gradients */
    void (*prepare)(const Kernels *with, const Layer *layer); /* before a pass forwards */
    void (*forward)(const Piece *p);
    int activates; /* whether that is by the activation, too */
    long (*panels)(const Layer *layer); /* numbers that pack() lays out for act(); 0 for none */
    void (*pack)(const Kernels *with, const Layer *layer, float *panels);
    void (*act)(const Piece *p, const float *panels); /* as forward(), for the few rows of an actor, by what was laid out, and by the activation */
    void (*act_one_hot)(const Piece *p, const int64_t *numbers);
    void (*backward_parameters)(const Piece *p, const float *g, long at, long parts); /* of some outputs: part `at` of `parts`; all rows */
    void (*backward_inputs)(const Piece *p, const float *g);
    void (*backward)(const Piece *p, float *g); /* instead of both, if they cannot be apart; g may be overwritten */
    int differentiates; /* whether that is, by inputs, through the activation that gave them, too */
    /* the gradient by the inputs from `first` on of rows that are picked, if any are; g may be overwritten */
    void (*slopes)(const Piece *p, float *g, const int64_t *picked, long first, float *to);
    Signature signature;
};

/* Where part `at` of `parts` of some things begins; it ends where the next one does. */
INLINE long
begin_of(long things, long at, long parts, long even)
{
    long each = (things + parts - 1) / parts, begin = (each + even - 1) / even * even * at;
    return begin < things && at < parts ? begin : things;
}

enum { EVEN = 12 }; /* rows of the tallest tile: parts are multiples of it */

static Signature layer_arrays;

static void
free_own(Layer *layer)
{
    free(layer->own);
}

static float *hold(Network *self, PyObject *array, const Signature *s, int number, Sizes *n, int written, int optional);

#include "layers/linear.h"
#include "layers/layer_norm.h"
#include "layers/batch_renorm.h"
#include "layers/convolution.h"
#include "layers/flatten.h"
#include "layers/activation.h"

static LayerType *const layer_types[] = {&linear_type, &layer_norm_type, &batch_renorm_type, &convolution_type, &flatten_type, &activation_type};
enum { LAYER_TYPES = sizeof layer_types / sizeof layer_types[0] };

static int
parse_layers(void)
{
    int failed = parse(&layer_arrays, "layer", "out[r,n] below[r,k]") < 0;
    for (int i = 0; i < LAYER_TYPES; i++) {
        failed |= parse(&layer_types[i]->signature, layer_types[i]->name, layer_types[i]->parameters) < 0;
    }
    return failed || parse_statistics() < 0 ? -1 : 0;
}

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
        if (self->layer[i].own != NULL) {
            self->layer[i].type->destroy(&self->layer[i]);
        }
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

/* Memory of an array that the network holds: argument `number` of a signature; NULL with an error set, or for None where that may be. */
static float *
hold(Network *self, PyObject *array, const Signature *s, int number, Sizes *n, int written, int optional)
{
    Argument a = s->argument[number];
    a.written |= written;
    if (PyErr_Occurred() || (array == Py_None && (optional || a.optional)) || take_array(s, &a, array, &self->views[self->held], n) < 0) {
        return NULL;
    }
    return self->views[self->held++].buf;
}

static const LayerType *
type_of(const char *name)
{
    for (int i = 0; i < LAYER_TYPES; i++) {
        if (strcmp(layer_types[i]->name, name) == 0) {
            return layer_types[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "there is no layer \"%s\"", name);
    return NULL;
}

static int
add_layer(Network *self, PyObject *given, long *width)
{
    Layer *layer = &self->layer[self->layers];
    const char *name;
    long kind, n;
    double epsilon;
    PyObject *w, *b, *dw, *db, *y, *dx, *more = Py_None;

    if (!PyArg_ParseTuple(given, "sllldOOOOOO|O:layer", &name, &kind, &layer->k, &n, &epsilon, &w, &b, &dw, &db, &y, &dx, &more)) {
        return -1;
    }
    const LayerType *type = type_of(name);
    if (type == NULL) {
        return -1;
    }
    if (kind < NONE || kind > TANH || layer->k < 1 || n < 1 || (!type->changes_width && n != layer->k)) {
        PyErr_Format(PyExc_ValueError, "there is no layer \"%s\" with activation %ld from %ld to %ld numbers", name, kind, layer->k, n);
        return -1;
    }
    if (*width && layer->k != *width) {
        PyErr_Format(PyExc_ValueError, "a layer of %ld inputs cannot follow one of %ld outputs", layer->k, *width);
        return -1;
    }
    layer->type = type, layer->kind = (Kind)kind, layer->n = n, layer->epsilon = (float)epsilon, layer->products = 1;
    layer->learns = dw != Py_None;
    Sizes sizes;
    memset(&sizes, 0xff, sizeof sizes);
    sizes.r = self->rows, sizes.k = layer->k, sizes.n = n;
    self->layers++; /* what it has of its own is freed with it */
    if (type->make != NULL && type->make(self, layer, more, &sizes) < 0) {
        return -1;
    }
    if (type->signature.count) {
        layer->w = hold(self, w, &type->signature, 0, &sizes, 0, 0), layer->b = hold(self, b, &type->signature, 1, &sizes, 0, 0);
        layer->dw = hold(self, dw, &type->signature, 0, &sizes, 1, 1), layer->db = hold(self, db, &type->signature, 1, &sizes, 1, !layer->learns);
    }
    layer->y = hold(self, y, &layer_arrays, 0, &sizes, 1, 0), layer->dx = hold(self, dx, &layer_arrays, 1, &sizes, 1, 1);
    if (PyErr_Occurred()) {
        return -1;
    }
    self->renormalises |= type->of_batches, self->convolves |= type->convolves;
    self->passes = self->passes && (self->layers == 1 || layer->dx != NULL);
    self->learns = self->learns && self->passes && (!type->signature.count || layer->dw != NULL);
    self->work += self->rows * (n > THIN ? n : THIN) * layer->products;
    *width = n;
    return 0;
}

/* Network(rows, layers): each layer is (name, activation, inputs, outputs, epsilon, weight, bias, and where its gradients, what it
 * gives, and the gradient of its inputs go), and what it knows of earlier batches */
static PyObject *
network_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t rows;
    PyObject *layers;
    long width = 0;

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
        long needed = self->learns && layer->type->room != NULL ? layer->type->room(layer, rows) : 0;
        long side = layer->type->convolves ? 0 : layer->k > layer->n ? layer->k : layer->n;
        self->room = needed > self->room ? needed : self->room;
        self->most = side > self->most ? side : self->most;
    }
    if (make_room(self, 1) < 0) {
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}
