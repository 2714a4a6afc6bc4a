/* What is left of a dense layer once torch has multiplied its matrices: bias and activation, their derivatives, in place.
 *
 * One pass over a batch each, where torch has two or three; and its hyperbolic tangent takes longer than the products do.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "_compute.h"

typedef enum { NONE, RELU, TANH } Kind;

enum { LARGE = 1 << 14 }; /* elements from which on others may have the interpreter meanwhile */

/* ---------------------------------------------------------------- compiled once for each kind of processor */

INLINE void
forward(Kind kind, float *values, const float *bias, Py_ssize_t rows, Py_ssize_t columns)
{
    for (Py_ssize_t row = 0; row < rows; row++, values += columns) {
        if (bias != NULL) {
            for (Py_ssize_t i = 0; i < columns; i++) {
                values[i] += bias[i];
            }
        }
        if (kind == TANH) {
            squash(values, values, columns);
        } else if (kind == RELU) {
            for (Py_ssize_t i = 0; i < columns; i++) {
                values[i] = values[i] < 0.0f ? 0.0f : values[i]; /* a NaN stays one */
            }
        }
    }
}

INLINE void
backward(Kind kind, const float *RESTRICT values, float *RESTRICT gradient, float *RESTRICT sums, Py_ssize_t rows, Py_ssize_t columns)
{
    memset(sums, 0, (size_t)columns * sizeof(float));
    for (Py_ssize_t row = 0; row < rows; row++, values += columns, gradient += columns) {
        if (kind == TANH) {
            for (Py_ssize_t i = 0; i < columns; i++) {
                gradient[i] *= 1.0f - values[i] * values[i];
                sums[i] += gradient[i];
            }
        } else if (kind == RELU) {
            for (Py_ssize_t i = 0; i < columns; i++) {
                gradient[i] = values[i] <= 0.0f ? 0.0f : gradient[i];
                sums[i] += gradient[i];
            }
        } else {
            for (Py_ssize_t i = 0; i < columns; i++) {
                sums[i] += gradient[i];
            }
        }
    }
}

static void
forward_portably(Kind kind, float *values, const float *bias, Py_ssize_t rows, Py_ssize_t columns)
{
    forward(kind, values, bias, rows, columns);
}

static void
backward_portably(Kind kind, const float *values, float *gradient, float *sums, Py_ssize_t rows, Py_ssize_t columns)
{
    backward(kind, values, gradient, sums, rows, columns);
}

#ifdef HAS_AVX2_CODE
AVX2 static void
forward_avx2(Kind kind, float *values, const float *bias, Py_ssize_t rows, Py_ssize_t columns)
{
    forward(kind, values, bias, rows, columns);
}

AVX2 static void
backward_avx2(Kind kind, const float *values, float *gradient, float *sums, Py_ssize_t rows, Py_ssize_t columns)
{
    backward(kind, values, gradient, sums, rows, columns);
}
#endif

static int has_avx2;

/* ---------------------------------------------------------------- for Python */

/* A buffer of C-contiguous float32. */
static int
floats_of(PyObject *array, const char *what, int dimensions, int flags, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, flags | PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) {
        return -1;
    }
    if (view->ndim == dimensions && view->itemsize == sizeof(float) && view->format != NULL && strcmp(view->format, "f") == 0) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s: expected float32 in %d dimension(s)", what, dimensions);
    PyBuffer_Release(view);
    return -1;
}

static int
kind_of(PyObject *given, Kind *kind)
{
    long number = PyLong_AsLong(given);

    if (number == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (number < NONE || number > TANH) {
        PyErr_Format(PyExc_ValueError, "there is no activation %ld", number);
        return -1;
    }
    *kind = (Kind)number;
    return 0;
}

static PyObject *
activate(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Kind kind;
    Py_buffer values, bias = {0};

    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "activate(kind, values, bias)");
        return NULL;
    }
    if (kind_of(args[0], &kind) < 0 || floats_of(args[1], "values", 2, PyBUF_WRITABLE, &values) < 0) {
        return NULL;
    }
    if (args[2] != Py_None && floats_of(args[2], "bias", 1, 0, &bias) < 0) {
        PyBuffer_Release(&values);
        return NULL;
    }
    Py_ssize_t rows = values.shape[0], columns = values.shape[1];
    if (args[2] != Py_None && bias.shape[0] != columns) {
        PyErr_Format(PyExc_ValueError, "bias: expected the shape (%zd,)", columns);
        PyBuffer_Release(&bias);
        PyBuffer_Release(&values);
        return NULL;
    }
    PyThreadState *state = values.len / (Py_ssize_t)sizeof(float) >= LARGE ? PyEval_SaveThread() : NULL;
#ifdef HAS_AVX2_CODE
    (has_avx2 ? forward_avx2 : forward_portably)(kind, values.buf, bias.buf, rows, columns);
#else
    forward_portably(kind, values.buf, bias.buf, rows, columns);
#endif
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    PyBuffer_Release(&bias); /* does nothing if there is none */
    PyBuffer_Release(&values);
    Py_RETURN_NONE;
}

static PyObject *
differentiate(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Kind kind;
    Py_buffer values, gradient, sums;
    PyObject *answer = NULL;

    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "differentiate(kind, values, gradient, sums)");
        return NULL;
    }
    if (kind_of(args[0], &kind) < 0 || floats_of(args[1], "values", 2, 0, &values) < 0) {
        return NULL;
    }
    if (floats_of(args[2], "gradient", 2, PyBUF_WRITABLE, &gradient) < 0) {
        goto without_gradient;
    }
    if (floats_of(args[3], "sums", 1, PyBUF_WRITABLE, &sums) < 0) {
        goto without_sums;
    }
    Py_ssize_t rows = values.shape[0], columns = values.shape[1];
    if (gradient.shape[0] != rows || gradient.shape[1] != columns || sums.shape[0] != columns) {
        PyErr_Format(PyExc_ValueError, "gradient, sums: expected the shapes (%zd, %zd) and (%zd,)", rows, columns, columns);
        goto done;
    }
    PyThreadState *state = values.len / (Py_ssize_t)sizeof(float) >= LARGE ? PyEval_SaveThread() : NULL;
#ifdef HAS_AVX2_CODE
    (has_avx2 ? backward_avx2 : backward_portably)(kind, values.buf, gradient.buf, sums.buf, rows, columns);
#else
    backward_portably(kind, values.buf, gradient.buf, sums.buf, rows, columns);
#endif
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    answer = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&sums);
without_sums:
    PyBuffer_Release(&gradient);
without_gradient:
    PyBuffer_Release(&values);
    return answer;
}

static PyMethodDef functions[] = {
    {"activate", (PyCFunction)(void (*)(void))activate, METH_FASTCALL, "Add a bias to each row, and apply an activation."},
    {"differentiate", (PyCFunction)(void (*)(void))differentiate, METH_FASTCALL,
     "Take a gradient back through an activation, and add up its rows."},
    {NULL, NULL, 0, NULL},
};

static int
module_exec(PyObject *module)
{
#ifdef HAS_AVX2_CODE
    has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return PyModule_AddIntConstant(module, "AVX2", has_avx2);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing is shared: arrays belong to a reactor, which runs in one thread at a time */
#endif
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_layers",
    .m_doc = "Biases, activations and their derivatives.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__layers(void)
{
    return PyModuleDef_Init(&module_def);
}
