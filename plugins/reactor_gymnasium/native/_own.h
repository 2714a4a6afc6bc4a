/* Kernels of users: three functions in C, or three callables of Python. */

#include "_batch.h"

struct Calls {
    void (*step)(reactor_rows *), (*reset)(reactor_rows *, int64_t), (*observe)(reactor_rows *); /* all or none */
    PyObject *of; /* the tuple that the rest is borrowed from */
    PyObject *py_step, *py_reset, *py_observe, *rngs;
    PyObject *actions; /* of the step under way */
    void **columns;    /* of states, then of infos */
    reactor_rows rows;
};

static int64_t
called(PyObject *result)
{
    Py_XDECREF(result);
    return result == NULL ? FAILED : 0;
}

static int64_t
own_move(Rows *b)
{
    Calls *calls = b->calls;

    if (calls->step) {
        calls->rows.actions = b->actions;
        calls->step(&calls->rows);
        for (int64_t i = 0; i < b->n; i++) { /* they are bits to us, and may be any numbers to C */
            b->terminated[i] = b->terminated[i] != 0;
            b->truncated[i] = b->truncated[i] != 0;
        }
        return 0;
    }
    return called(PyObject_CallFunctionObjArgs(calls->py_step, calls->actions, NULL));
}

static int64_t
own_begin(Rows *b, int64_t i)
{
    Calls *calls = b->calls;

    if (calls->reset) {
        calls->reset(&calls->rows, i);
        return 0;
    }
    return called(PyObject_CallFunction(calls->py_reset, "nO", (Py_ssize_t)i, PyList_GetItem(calls->rngs, (Py_ssize_t)i)));
}

static int64_t
own_observe(Rows *b, const uint8_t *which)
{
    Calls *calls = b->calls;

    (void)which; /* what it writes of the others is what is there */
    if (calls->observe) {
        calls->observe(&calls->rows);
        return 0;
    }
    return called(PyObject_CallFunctionObjArgs(calls->py_observe, NULL));
}

/* Where arrays begin. They are kept alive by who has the tuple, and numpy does not move them. */
static int
take_addresses(PyObject *arrays, void **out)
{
    for (Py_ssize_t k = 0; k < PyTuple_Size(arrays); k++) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(PyTuple_GetItem(arrays, k), &buffer, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) {
            return -1;
        }
        out[k] = buffer.buf;
        PyBuffer_Release(&buffer);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Of a tuple: the functions (addresses, or callables and the list of generators), columns of states, columns of infos, and an
 * array of constants, alone in a tuple. */
static int
take_calls(Calls *calls, PyObject *own, Rows *b)
{
    PyObject *functions, *states, *infos, *constants;
    void *at[3] = {NULL};

    if (!PyArg_ParseTuple(own, "O!O!O!O!", &PyTuple_Type, &functions, &PyTuple_Type, &states, &PyTuple_Type, &infos, &PyTuple_Type,
                          &constants)) {
        return -1;
    }
    Py_INCREF(own);
    calls->of = own;
    calls->columns = PyMem_Calloc((size_t)(PyTuple_Size(states) + PyTuple_Size(infos) + 1), sizeof *calls->columns);
    if (calls->columns == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (PyTuple_Size(functions) == 3) {
        for (Py_ssize_t k = 0; k < 3; k++) {
            at[k] = PyLong_AsVoidPtr(PyTuple_GetItem(functions, k));
        }
        memcpy(&calls->step, at, sizeof *at);
        memcpy(&calls->reset, at + 1, sizeof *at);
        memcpy(&calls->observe, at + 2, sizeof *at);
    } else {
        calls->py_step = PyTuple_GetItem(functions, 0);
        calls->py_reset = PyTuple_GetItem(functions, 1);
        calls->py_observe = PyTuple_GetItem(functions, 2);
        calls->rngs = PyTuple_GetItem(functions, 3);
    }
    void **const of_infos = calls->columns + PyTuple_Size(states);
    if (PyErr_Occurred() || take_addresses(states, calls->columns) < 0 || take_addresses(infos, of_infos) < 0
        || take_addresses(constants, at) < 0) {
        return -1;
    }
    calls->rows = (reactor_rows){
        .n = b->n, .state = calls->columns, .constants = at[0], .moving = b->moving, .observations = b->obs, .rewards = b->rewards,
        .terminated = b->terminated, .truncated = b->truncated, .infos = of_infos, .rngs = b->gens,
    };
    return 0;
}

/* random(capsules, moving, out): a draw for each moving row, as Generator.random() gives it. */
static PyObject *
draw_each(PyObject *module, PyObject *args)
{
    PyObject *capsules;
    Py_buffer moving, out;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!y*w*", &PyList_Type, &capsules, &moving, &out)) {
        return NULL;
    }
    const Py_ssize_t n = PyList_Size(capsules);
    if (moving.len != n || out.len != n * (Py_ssize_t)sizeof(double)) {
        PyErr_SetString(PyExc_ValueError, "the arrays must have an item for each row");
    }
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
        const reactor_rng *gen = ((uint8_t *)moving.buf)[i] ? PyCapsule_GetPointer(PyList_GetItem(capsules, i), "BitGenerator") : NULL;
        ((double *)out.buf)[i] = gen ? reactor_random(gen) : 0.0;
    }
    PyBuffer_Release(&moving);
    PyBuffer_Release(&out);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef own_methods[] = {
    {"random", draw_each, METH_VARARGS, "random(capsules, moving, out): a draw for each moving row."},
    {NULL, NULL, 0, NULL},
};
