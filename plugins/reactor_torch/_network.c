/* Greedy actions of one small network, whose parameters are read where they lie.
 *
 * Weights are as torch has them, `(outputs, inputs)`, and somebody else writes them between two calls: nothing is kept of them.
 * Eight outputs are computed at a time, and before the next eight those of every row of the batch, while their weights are in the
 * cache. What a row gives never depends on the other rows, nor on where anything lies.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "_compute.h"

enum {
    BLOCK = 8,  /* outputs that are computed at a time: so many floats has a register of AVX2 */
    LANES = 16, /* sums over a row that run at the same time: an addition takes longer than the time between two */
    BESIDE = 8, /* rows that are computed beside each other, without AVX2 */
};

typedef enum { LINEAR, RELU, TANH, NORMALISED, RENORMALISED, UNKNOWN } Kind;

static const char *const KINDS[] = {"linear", "relu", "tanh", "normalised", "renormalised"};

typedef struct {
    Kind kind;
    Py_ssize_t inputs, outputs; /* of one row */
    Py_buffer weight, bias;     /* a linear layer may have no bias */
    Py_buffer mean, variance;   /* of batches */
    float epsilon;
} Layer;

typedef struct {
    PyObject_HEAD
    Py_buffer observations, outputs, actions;
    PyObject *answer; /* the array of actions */
    Py_ssize_t steps, rows, features;
    int one_hot, doubles, avx2;
    Py_ssize_t count;
    Layer *layers;
    float *scratch[2]; /* layers write to them in turn */
    float *packed;
} Network;

/* ---------------------------------------------------------------- layers without products of matrices: compiled once for each kind
 * of processor, row by row, so that an element goes the same way whatever the batch */

INLINE void
rectify(const float *x, float *y, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        y[i] = x[i] < 0.0f ? 0.0f : x[i]; /* a NaN stays one */
    }
}

INLINE float
sum_of(const float lanes[LANES])
{
    float sums[LANES / 2];

    for (int i = 0; i < LANES / 2; i++) {
        sums[i] = lanes[i] + lanes[i + LANES / 2];
    }
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

INLINE void
normalise(const Layer *layer, const float *x, float *y)
{
    const float *weight = layer->weight.buf, *bias = layer->bias.buf;
    Py_ssize_t n = layer->outputs, whole = n - n % LANES;
    float sums[LANES] = {0}, squares[LANES] = {0};

    for (Py_ssize_t i = 0; i < whole; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            sums[lane] += x[i + lane];
        }
    }
    for (Py_ssize_t i = whole; i < n; i++) {
        sums[i - whole] += x[i];
    }
    float mean = sum_of(sums) / (float)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        y[i] = x[i] - mean;
    }
    for (Py_ssize_t i = 0; i < whole; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            squares[lane] += y[i + lane] * y[i + lane];
        }
    }
    for (Py_ssize_t i = whole; i < n; i++) {
        squares[i - whole] += y[i] * y[i];
    }
    float scale = 1.0f / sqrtf(sum_of(squares) / (float)n + layer->epsilon);
    for (Py_ssize_t i = 0; i < n; i++) {
        y[i] = y[i] * scale * weight[i] + bias[i];
    }
}

/* By running statistics of batches */
INLINE void
renormalise(const Layer *layer, const float *x, float *y)
{
    const float *weight = layer->weight.buf, *bias = layer->bias.buf, *mean = layer->mean.buf, *variance = layer->variance.buf;

    for (Py_ssize_t i = 0; i < layer->outputs; i++) {
        y[i] = (x[i] - mean[i]) * (weight[i] / sqrtf(variance[i] + layer->epsilon)) + bias[i];
    }
}

/* ---------------------------------------------------------------- linear layers */

/* `packed` has room for BESIDE rows of inputs. */
typedef void Linear(const Layer *layer, const float *x, float *y, Py_ssize_t rows, float *packed);

/* Without AVX2: an output is four sums, of every fourth input each, whether its row is computed alone or beside others. */

INLINE float
sum_of_four(const float sums[4], float bias)
{
    return ((sums[0] + sums[2]) + (sums[1] + sums[3])) + bias;
}

/* Several outputs of one row. */
INLINE void
linear_alone(const int several, const float *weight, const float *bias, const float *x, float *y, Py_ssize_t inputs)
{
    float sums[BESIDE][4] = {{0}};
    Py_ssize_t i = 0;

    for (; i + 4 <= inputs; i += 4) {
        for (int output = 0; output < several; output++) {
            for (int way = 0; way < 4; way++) {
                sums[output][way] += weight[output * inputs + i + way] * x[i + way];
            }
        }
    }
    for (int way = 0; i + way < inputs; way++) {
        for (int output = 0; output < several; output++) {
            sums[output][way] += weight[output * inputs + i + way] * x[i + way];
        }
    }
    for (int output = 0; output < several; output++) {
        y[output] = sum_of_four(sums[output], bias != NULL ? bias[output] : 0.0f);
    }
}

/* One output of BESIDE rows, whose elements lie beside each other: what is added up for them is in one register of any kind. */
INLINE void
linear_beside(const float *weight, float bias, const float *packed, float *y, Py_ssize_t inputs, Py_ssize_t outputs)
{
    float a[BESIDE] = {0}, b[BESIDE] = {0}, c[BESIDE] = {0}, d[BESIDE] = {0};
    Py_ssize_t i = 0;

    for (; i + 4 <= inputs; i += 4, packed += 4 * BESIDE) {
        for (int row = 0; row < BESIDE; row++) {
            a[row] += weight[i] * packed[row];
        }
        for (int row = 0; row < BESIDE; row++) {
            b[row] += weight[i + 1] * packed[BESIDE + row];
        }
        for (int row = 0; row < BESIDE; row++) {
            c[row] += weight[i + 2] * packed[2 * BESIDE + row];
        }
        for (int row = 0; row < BESIDE; row++) {
            d[row] += weight[i + 3] * packed[3 * BESIDE + row];
        }
    }
    for (int row = 0; row < BESIDE; row++) {
        if (i < inputs) {
            a[row] += weight[i] * packed[row];
        }
        if (i + 1 < inputs) {
            b[row] += weight[i + 1] * packed[BESIDE + row];
        }
        if (i + 2 < inputs) {
            c[row] += weight[i + 2] * packed[2 * BESIDE + row];
        }
        y[row * outputs] = sum_of_four((float[4]){a[row], b[row], c[row], d[row]}, bias);
    }
}

static void
linear(const Layer *layer, const float *x, float *y, Py_ssize_t rows, float *packed)
{
    const float *weight = layer->weight.buf, *bias = layer->bias.buf;
    Py_ssize_t inputs = layer->inputs, outputs = layer->outputs, row = 0;

    for (; row + BESIDE <= rows; row += BESIDE) {
        for (Py_ssize_t i = 0; i < inputs; i++) {
            for (int one = 0; one < BESIDE; one++) {
                packed[i * BESIDE + one] = x[(row + one) * inputs + i];
            }
        }
        for (Py_ssize_t output = 0; output < outputs; output++) {
            linear_beside(weight + output * inputs, bias != NULL ? bias[output] : 0.0f, packed, y + row * outputs + output,
                          inputs, outputs);
        }
    }
    for (; row < rows; row++) {
        const float *in = x + row * inputs;
        float *out = y + row * outputs;
        Py_ssize_t output = 0;

        for (; output + BESIDE <= outputs; output += BESIDE) {
            linear_alone(BESIDE, weight + output * inputs, bias != NULL ? bias + output : NULL, in, out + output, inputs);
        }
        for (; output < outputs; output++) {
            linear_alone(1, weight + output * inputs, bias != NULL ? bias + output : NULL, in, out + output, inputs);
        }
    }
}

#ifdef HAS_AVX2_CODE

/* A mask for the first `count` of eight floats. */
AVX2 static inline __m256i
first(Py_ssize_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

AVX2 static void
linear_avx2(const Layer *layer, const float *x, float *y, Py_ssize_t rows, float *packed)
{
    (void)packed;
    const float *bias = layer->bias.buf;
    Py_ssize_t inputs = layer->inputs, outputs = layer->outputs, whole = inputs - inputs % BLOCK;
    __m256i rest = first(inputs - whole);

    for (Py_ssize_t output = 0; output < outputs; output += BLOCK) {
        Py_ssize_t wanted = outputs - output < BLOCK ? outputs - output : BLOCK;
        const float *weights[BLOCK];
        __m256 shift = bias != NULL ? _mm256_maskload_ps(bias + output, first(wanted)) : _mm256_setzero_ps();

        for (int i = 0; i < BLOCK; i++) { /* the last one again where there are no more: its sums are thrown away */
            weights[i] = (const float *)layer->weight.buf + (output + (i < wanted ? i : wanted - 1)) * inputs;
        }
        for (Py_ssize_t row = 0; row < rows; row++) {
            const float *in = x + row * inputs;
            __m256 sums[BLOCK];

            for (int i = 0; i < BLOCK; i++) {
                sums[i] = _mm256_setzero_ps();
            }
            for (Py_ssize_t at = 0; at < whole; at += BLOCK) {
                __m256 part = _mm256_loadu_ps(in + at);
                for (int i = 0; i < BLOCK; i++) {
                    sums[i] = _mm256_fmadd_ps(_mm256_loadu_ps(weights[i] + at), part, sums[i]);
                }
            }
            if (whole < inputs) {
                __m256 part = _mm256_maskload_ps(in + whole, rest);
                for (int i = 0; i < BLOCK; i++) {
                    sums[i] = _mm256_fmadd_ps(_mm256_maskload_ps(weights[i] + whole, rest), part, sums[i]);
                }
            }
            /* Each half of `low` and `high` has four outputs' sums over half of the lanes. */
            __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(sums[0], sums[1]), _mm256_hadd_ps(sums[2], sums[3]));
            __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(sums[4], sums[5]), _mm256_hadd_ps(sums[6], sums[7]));
            __m256 made = _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
            made = _mm256_add_ps(made, shift);
            if (wanted == BLOCK) {
                _mm256_storeu_ps(y + row * outputs + output, made);
            } else { /* a masked store is slow on some processors */
                float all[BLOCK];
                _mm256_storeu_ps(all, made);
                memcpy(y + row * outputs + output, all, (size_t)wanted * sizeof(float));
            }
        }
    }
}

#endif

/* What a linear layer gives for one-hot inputs. */
static void
pick(const Layer *layer, const int64_t *numbers, float *y, Py_ssize_t rows)
{
    const float *bias = layer->bias.buf;
    Py_ssize_t inputs = layer->inputs, outputs = layer->outputs;

    for (Py_ssize_t row = 0; row < rows; row++) {
        const float *column = (const float *)layer->weight.buf + numbers[row];
        for (Py_ssize_t output = 0; output < outputs; output++) {
            y[row * outputs + output] = column[output * inputs] + (bias != NULL ? bias[output] : 0.0f);
        }
    }
}

/* ---------------------------------------------------------------- a network */

/* The observations of a step as rows of floats, in the first scratch unless they are such rows already. */
INLINE const float *
observed(const Network *network, Py_ssize_t step)
{
    Py_ssize_t rows = network->rows, features = network->features;
    float *into = network->scratch[0];

    if (network->one_hot) {
        const int64_t *numbers = (const int64_t *)network->observations.buf + step * rows;
        memset(into, 0, (size_t)(rows * features) * sizeof(float));
        for (Py_ssize_t row = 0; row < rows; row++) {
            into[row * features + numbers[row]] = 1.0f;
        }
        return into;
    }
    if (!network->doubles) {
        return (const float *)network->observations.buf + step * rows * features;
    }
    const double *from = (const double *)network->observations.buf + step * rows * features;
    for (Py_ssize_t i = 0; i < rows * features; i++) {
        into[i] = (float)from[i];
    }
    return into;
}

INLINE void
evaluate(const Network *network, Py_ssize_t step, Linear *linearly)
{
    const Layer *layer = network->layers, *end = layer + network->count;
    Py_ssize_t rows = network->rows;
    const float *x = NULL;

    if (!network->one_hot || layer->kind != LINEAR) {
        x = observed(network, step);
    }
    for (; layer < end; layer++) {
        float *y = layer + 1 == end ? network->outputs.buf : network->scratch[x == network->scratch[0]];
        if (x == NULL) {
            pick(layer, (const int64_t *)network->observations.buf + step * rows, y, rows);
        } else if (layer->kind == LINEAR) {
            linearly(layer, x, y, rows, network->packed);
        } else {
            for (Py_ssize_t row = 0; row < rows; row++) {
                const float *in = x + row * layer->inputs;
                float *out = y + row * layer->outputs;
                if (layer->kind == RELU) {
                    rectify(in, out, layer->outputs);
                } else if (layer->kind == TANH) {
                    squash(in, out, layer->outputs);
                } else if (layer->kind == NORMALISED) {
                    normalise(layer, in, out);
                } else {
                    renormalise(layer, in, out);
                }
            }
        }
        x = y;
    }
}

static void
evaluate_portably(const Network *network, Py_ssize_t step)
{
    evaluate(network, step, linear);
}

#ifdef HAS_AVX2_CODE
AVX2 static void
evaluate_avx2(const Network *network, Py_ssize_t step)
{
    evaluate(network, step, linear_avx2);
}
#endif

static void
choose(const Network *network)
{
    Py_ssize_t outputs = network->layers[network->count - 1].outputs;
    int64_t *actions = network->actions.buf;

    for (Py_ssize_t row = 0; row < network->rows; row++) {
        const float *values = (const float *)network->outputs.buf + row * outputs;
        float most = -INFINITY;
        actions[row] = 0;
        for (Py_ssize_t i = 0; i < outputs; i++) {
            if (!(values[i] <= most)) { /* greater, or a NaN, at which numpy stops too */
                most = values[i];
                actions[row] = i;
                if (most != most) {
                    break;
                }
            }
        }
    }
}

/* ---------------------------------------------------------------- Python */

/* Get at the elements of an array, C-contiguous and aligned: `kinds` are the letters of the struct module that they may have,
 * `size` their size if not nought. Returns the letter, or -1 with an exception set. */
static int
elements_of(PyObject *array, const char *what, const char *kinds, Py_ssize_t size, int flags, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, flags | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        return -1;
    }
    /* numpy writes one letter for what is native and aligned, more for anything else. */
    if (strlen(view->format) == 1 && strchr(kinds, view->format[0]) != NULL && (size == 0 || view->itemsize == size)) {
        return view->format[0];
    }
    PyErr_Format(PyExc_ValueError, "%s: expected aligned elements of a kind in \"%s\", got \"%s\"", what, kinds, view->format);
    PyBuffer_Release(view);
    return -1;
}

/* The same for one of float32 of a given shape; `columns` is nought for one dimension. */
static int
floats_of(PyObject *array, const char *what, Py_ssize_t rows, Py_ssize_t columns, int flags, Py_buffer *view)
{
    if (elements_of(array, what, "f", sizeof(float), flags, view) < 0) {
        return -1;
    }
    if (view->ndim == (columns ? 2 : 1) && view->shape[0] == rows && (!columns || view->shape[1] == columns)) {
        return 0;
    }
    PyBuffer_Release(view);
    if (columns) {
        PyErr_Format(PyExc_ValueError, "%s: expected the shape (%zd, %zd)", what, rows, columns);
    } else {
        PyErr_Format(PyExc_ValueError, "%s: expected the shape (%zd,)", what, rows);
    }
    return -1;
}

static void
let_go(Layer *layer)
{
    PyBuffer_Release(&layer->weight); /* does nothing for a view that was not taken */
    PyBuffer_Release(&layer->bias);
    PyBuffer_Release(&layer->mean);
    PyBuffer_Release(&layer->variance);
}

/* Fill in a layer from (kind, weight or None, bias or None, outputs, epsilon), and for one of batches their mean and variance. */
static int
layer_of(PyObject *given, Py_ssize_t inputs, Layer *layer)
{
    PyObject *kind, *weight, *bias, *mean = Py_None, *variance = Py_None;
    double epsilon;
    Py_ssize_t outputs;
    int number = 0;

    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a layer is a tuple (kind, weight, bias, outputs, epsilon)");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "UOOnd|OO:layer", &kind, &weight, &bias, &outputs, &epsilon, &mean, &variance)) {
        return -1;
    }
    while (number < UNKNOWN && PyUnicode_CompareWithASCIIString(kind, KINDS[number]) != 0) {
        number++;
    }
    if (number == UNKNOWN) {
        PyErr_Format(PyExc_ValueError, "there are no layers of the kind %R", kind);
        return -1;
    }
    if (outputs < 1 || (number != LINEAR && outputs != inputs)) {
        PyErr_Format(PyExc_ValueError, "a layer \"%U\" cannot make %zd outputs of %zd inputs", kind, outputs, inputs);
        return -1;
    }
    layer->kind = (Kind)number;
    layer->inputs = inputs;
    layer->outputs = outputs;
    layer->epsilon = (float)epsilon;
    if (number == LINEAR && floats_of(weight, "weight", outputs, inputs, PyBUF_SIMPLE, &layer->weight) < 0) {
        return -1;
    }
    int normalises = number == NORMALISED || number == RENORMALISED;
    if (normalises && floats_of(weight, "weight", outputs, 0, PyBUF_SIMPLE, &layer->weight) < 0) {
        return -1;
    }
    if (number == RENORMALISED && (floats_of(mean, "mean", outputs, 0, PyBUF_SIMPLE, &layer->mean) < 0 ||
                                   floats_of(variance, "variance", outputs, 0, PyBUF_SIMPLE, &layer->variance) < 0)) {
        return -1;
    }
    if (normalises || (number == LINEAR && bias != Py_None)) {
        return floats_of(bias, "bias", outputs, 0, PyBUF_SIMPLE, &layer->bias);
    }
    return 0;
}

static int
fill_in(Network *network, PyObject *observations, Py_ssize_t numbers, PyObject *layers, PyObject *outputs, PyObject *actions)
{
    Py_buffer *view = &network->observations;
    int letter = numbers ? elements_of(observations, "observations", "lq", sizeof(int64_t), PyBUF_SIMPLE, view)
                         : elements_of(observations, "observations", "fd", 0, PyBUF_SIMPLE, view);
    if (letter < 0) {
        return -1;
    }
    if (numbers < 0 || view->ndim < 2 || (numbers && view->ndim != 2) || view->len == 0) {
        PyErr_SetString(PyExc_ValueError, "observations: expected the shape (steps, envs, ...), (steps, envs) if they are one-hot");
        return -1;
    }
    network->one_hot = numbers != 0;
    network->doubles = letter == 'd';
    network->steps = view->shape[0];
    network->rows = view->shape[1];
    network->features = numbers ? numbers : view->len / view->itemsize / network->steps / network->rows;

    Py_ssize_t count = PyTuple_Size(layers), width = network->features, widest = width;
    network->layers = PyMem_Calloc((size_t)count, sizeof(Layer));
    if (network->layers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; network->count < count; network->count++) {
        Layer *layer = network->layers + network->count;
        if (layer_of(PyTuple_GetItem(layers, network->count), width, layer) < 0) {
            let_go(layer);
            return -1;
        }
        width = layer->outputs;
        widest = width > widest ? width : widest;
    }
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "a network has layers");
        return -1;
    }
    if (floats_of(outputs, "outputs", network->rows, width, PyBUF_WRITABLE, &network->outputs) < 0) {
        return -1;
    }
    if (elements_of(actions, "actions", "lq", sizeof(int64_t), PyBUF_WRITABLE, &network->actions) < 0) {
        return -1;
    }
    if (network->actions.ndim != 1 || network->actions.shape[0] != network->rows) {
        PyErr_Format(PyExc_ValueError, "actions: expected the shape (%zd,)", network->rows);
        return -1;
    }
    network->answer = Py_NewRef(actions);
    network->packed = PyMem_Calloc(BESIDE, (size_t)widest * sizeof(float));
    if (network->packed == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        if (widest > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(float)) {
            PyErr_NoMemory();
            return -1;
        }
        network->scratch[i] = PyMem_Calloc((size_t)network->rows, (size_t)widest * sizeof(float));
        if (network->scratch[i] == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

static PyObject *
network_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"observations", "numbers", "layers", "outputs", "actions", "avx2", NULL};
    PyObject *observations, *layers, *outputs, *actions;
    Py_ssize_t numbers;
    int avx2 = 1;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OnO!OO|p:Network", names, &observations, &numbers, &PyTuple_Type, &layers,
                                     &outputs, &actions, &avx2)) {
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Network *network = (Network *)alloc(type, 0); /* all nought */
    if (network == NULL) {
        return NULL;
    }
    if (fill_in(network, observations, numbers, layers, outputs, actions) < 0) {
        Py_DECREF(network);
        return NULL;
    }
#ifdef HAS_AVX2_CODE
    network->avx2 = avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return (PyObject *)network;
}

static void
network_dealloc(Network *network)
{
    PyTypeObject *type = Py_TYPE((PyObject *)network);
    freefunc free = (freefunc)PyType_GetSlot(type, Py_tp_free);

    for (Py_ssize_t i = 0; i < network->count; i++) {
        let_go(network->layers + i);
    }
    PyMem_Free(network->layers);
    PyMem_Free(network->scratch[0]);
    PyMem_Free(network->scratch[1]);
    PyMem_Free(network->packed);
    PyBuffer_Release(&network->observations);
    PyBuffer_Release(&network->outputs);
    PyBuffer_Release(&network->actions);
    Py_XDECREF(network->answer);
    free(network);
    Py_DECREF(type);
}

/* Fill in the actions of one network. */
static int
act(const Network *network, Py_ssize_t step)
{
    if (step < 0 || step >= network->steps) {
        PyErr_Format(PyExc_IndexError, "there are %zd steps, got step %zd", network->steps, step);
        return -1;
    }
    if (network->one_hot) {
        const int64_t *numbers = (const int64_t *)network->observations.buf + step * network->rows;
        for (Py_ssize_t row = 0; row < network->rows; row++) {
            if (numbers[row] < 0 || numbers[row] >= network->features) {
                PyErr_Format(PyExc_IndexError, "an observation must be below %zd and not negative, got %lld", network->features,
                             (long long)numbers[row]);
                return -1;
            }
        }
    }
#ifdef HAS_AVX2_CODE
    if (network->avx2) {
        evaluate_avx2(network, step);
    } else
#endif
        evaluate_portably(network, step);
    choose(network);
    return 0;
}

static PyObject *
network_greedy(Network *network, PyObject *number)
{
    Py_ssize_t step = PyNumber_AsSsize_t(number, PyExc_IndexError);

    if (step == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return act(network, step) < 0 ? NULL : Py_NewRef(network->answer);
}

static PyObject *
network_greedy_of_all(PyTypeObject *type, PyObject *const *args, Py_ssize_t given)
{
    if (given != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "greedy_of_all() takes a tuple of Networks and a step");
        return NULL;
    }
    Py_ssize_t step = PyNumber_AsSsize_t(args[1], PyExc_IndexError), count = PyTuple_Size(args[0]);
    if (step == -1 && PyErr_Occurred()) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *network = PyTuple_GetItem(args[0], i);
        if (Py_TYPE(network) != type) {
            PyErr_Format(PyExc_TypeError, "networks: expected a tuple of Networks, got %R in it", network);
            return NULL;
        }
        if (act((Network *)network, step) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef network_methods[] = {
    {"greedy", (PyCFunction)network_greedy, METH_O, "The greedy actions for the observations of a step, in `actions`."},
    {"greedy_of_all", (PyCFunction)(void (*)(void))network_greedy_of_all, METH_FASTCALL | METH_CLASS,
     "Fill in the `actions` of each network of a tuple, for the observations of a step."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot network_slots[] = {
    {Py_tp_doc, "Network(observations, numbers, layers, outputs, actions, avx2=True): greedy actions of a network."},
    {Py_tp_new, network_new},
    {Py_tp_dealloc, network_dealloc},
    {Py_tp_methods, network_methods},
    {0, NULL},
};

static PyType_Spec network_spec = {
    .name = "reactor_torch._network.Network",
    .basicsize = sizeof(Network),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = network_slots,
};

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &network_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int status = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    if (status < 0) {
        return -1;
    }
#ifdef HAS_AVX2_CODE
    return PyModule_AddIntConstant(module, "AVX2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#else
    return PyModule_AddIntConstant(module, "AVX2", 0);
#endif
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing is shared: an object belongs to a reactor, which runs in one thread at a time */
#endif
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_network",
    .m_doc = "Greedy actions of one small network.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__network(void)
{
    return PyModuleDef_Init(&module_def);
}
