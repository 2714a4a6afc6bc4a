/* Gymnasium's own environments, and those of users' kernels, many rows in one call, with the bits of Python: see
 * docs/guide/native.md and own-kernel.md.
 *
 * Every operation is in Gymnasium's order and of its type, and never contracted (-ffp-contract=off). np.sin and np.cos are numpy's
 * own inner loops, handed over by their addresses; x ** 2 of a number is libm's pow; draws go through numpy's bit generators.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>

#if FLT_EVAL_METHOD != 0
#error "arithmetic has more precision than its types here"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#define restrict __restrict
#endif

#include "_classic.h"
#include "_normalize.h"
#include "_toy_text.h"
#include "_own.h"
#include "_watch.h"

static const KernelCode KERNELS[] = {
    {"cartpole", cartpole_step, cartpole_reset, cartpole_observe, 2},
    {"pendulum", pendulum_step, pendulum_reset, pendulum_observe, 0},
    {"car", car_step, car_reset, car_observe, 3},
    {"engine", engine_step, car_reset, car_observe, 0},
    {"acrobot", acrobot_step, acrobot_reset, acrobot_observe, 3},
    {"table", table_step, table_reset, table_observe, -1}, /* as many as q says */
    {"blackjack", blackjack_step, blackjack_reset, blackjack_observe, 2},
    {"own", own_move, own_begin, own_observe, 0}, /* q: the lowest action and one past the highest, equal if any will do */
};

enum { KINDS = sizeof KERNELS / sizeof *KERNELS };

/* The arrays that a batch is made of, in this order; None for those that a kernel does not need. */
enum {
    A_STATE, A_PLACES, A_LEFT, A_LIMITS, A_PENDING, A_MOVING, A_FRESH, A_OBS, A_FINALS, A_REWARDS, A_TERMINATED, A_TRUNCATED, A_WAS_RESET,
    A_WORK, A_PROBS, A_FINAL_PROBS, A_TABLE, A_NEXT, A_START, ARRAYS
};

typedef struct {
    PyObject_HEAD
    Rows rows;
    const KernelCode *code;
    Calls calls;
    Py_buffer held[ARRAYS];
} Batch;

static int
set_generator(Rows *rows, Py_ssize_t row, PyObject *capsule)
{
    reactor_rng *gen = PyCapsule_GetPointer(capsule, "BitGenerator");

    if (gen == NULL) {
        return -1;
    }
    rows->gens[row] = gen;
    return 0;
}

static int
take_doubles(PyObject *tuple, double *out, Py_ssize_t most)
{
    const Py_ssize_t count = PyTuple_Size(tuple);

    if (count < 0 || count > most) {
        PyErr_SetString(PyExc_ValueError, "too many constants");
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        out[k] = PyFloat_AsDouble(PyTuple_GetItem(tuple, k));
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static int
take_loop(PyObject *loops, Py_ssize_t k, Loop *loop, void **data)
{
    PyObject *pair = PyTuple_GetItem(loops, k);

    if (pair == NULL) {
        return -1;
    }
    *(void **)loop = PyLong_AsVoidPtr(PyTuple_GetItem(pair, 0));
    *data = PyLong_AsVoidPtr(PyTuple_GetItem(pair, 1));
    return PyErr_Occurred() ? -1 : 0;
}

static int
fill(Batch *batch, const char *name, PyObject *arrays, PyObject *generators, PyObject *bounds, PyObject *constants, PyObject *numbers,
     PyObject *loops, PyObject *own)
{
    Rows *rows = &batch->rows;
    double low_and_high[8] = {0};

    for (int k = 0; k < KINDS; k++) {
        if (strcmp(name, KERNELS[k].name) == 0) {
            batch->code = KERNELS + k;
        }
    }
    if (batch->code == NULL || PyTuple_Size(arrays) != ARRAYS) {
        PyErr_Format(PyExc_ValueError, "there is no kernel %s of such arrays", name);
        return -1;
    }
    rows->n = PyList_Size(generators);
    if (rows->n < 1) {
        PyErr_SetString(PyExc_ValueError, "generators must be a list of one for each row");
        return -1;
    }
    rows->gens = PyMem_Calloc((size_t)rows->n, sizeof *rows->gens);
    if (rows->gens == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < rows->n; k++) {
        if (set_generator(rows, k, PyList_GetItem(generators, k)) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t k = 0; k < ARRAYS; k++) {
        PyObject *array = PyTuple_GetItem(arrays, k);
        if (array != Py_None && PyObject_GetBuffer(array, batch->held + k, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) {
            return -1;
        }
    }
    rows->row = (size_t)(batch->held[A_OBS].len / rows->n);
#define ARRAY(name, index) rows->name = batch->held[index].buf
    ARRAY(state, A_STATE);
    ARRAY(places, A_PLACES);
    ARRAY(left, A_LEFT);
    ARRAY(limits, A_LIMITS);
    ARRAY(pending, A_PENDING);
    ARRAY(moving, A_MOVING);
    ARRAY(fresh, A_FRESH);
    ARRAY(obs, A_OBS);
    ARRAY(finals, A_FINALS);
    ARRAY(rewards, A_REWARDS);
    ARRAY(terminated, A_TERMINATED);
    ARRAY(truncated, A_TRUNCATED);
    ARRAY(was_reset, A_WAS_RESET);
    ARRAY(work, A_WORK);
    ARRAY(probs, A_PROBS);
    ARRAY(final_probs, A_FINAL_PROBS);
    ARRAY(table, A_TABLE);
    ARRAY(next, A_NEXT);
    ARRAY(start, A_START);
    if (take_doubles(constants, rows->p, CONSTANTS) < 0 || take_doubles(bounds, low_and_high, 8) < 0) {
        return -1;
    }
    for (int k = 0; k < 4; k++) {
        rows->low[k] = low_and_high[2 * k];
        rows->high[k] = low_and_high[2 * k + 1];
    }
    for (Py_ssize_t k = 0; k < PyTuple_Size(numbers) && k < NUMBERS; k++) {
        rows->q[k] = PyLong_AsLongLong(PyTuple_GetItem(numbers, k));
    }
    if (own != Py_None) {
        rows->calls = &batch->calls;
        if (take_calls(&batch->calls, own, rows) < 0) {
            return -1;
        }
    }
    if (PyErr_Occurred() || PyTuple_Size(loops) != 4) {
        return -1;
    }
    return take_loop(loops, 0, &rows->sin, &rows->sin_data) < 0 || take_loop(loops, 1, &rows->cos, &rows->cos_data) < 0
                   || take_loop(loops, 2, &rows->sin_f, &rows->sin_f_data) < 0
                   || take_loop(loops, 3, &rows->cos_f, &rows->cos_f_data) < 0
               ? -1
               : 0;
}

static PyObject *
batch_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    const char *name;
    int mode;
    PyObject *arrays, *generators, *bounds, *constants, *numbers, *loops, *own;

    if (!PyArg_ParseTuple(
            args, "siO!O!O!O!O!O!O:Batch", &name, &mode, &PyTuple_Type, &arrays, &PyList_Type, &generators, &PyTuple_Type, &bounds,
            &PyTuple_Type, &constants, &PyTuple_Type, &numbers, &PyTuple_Type, &loops, &own
        )) {
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Batch *batch = (Batch *)alloc(type, 0); /* all nought */
    if (batch == NULL) {
        return NULL;
    }
    batch->rows.mode = mode;
    if (fill(batch, name, arrays, generators, bounds, constants, numbers, loops, own) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "loops must be four");
        }
        Py_DECREF(batch);
        return NULL;
    }
    return (PyObject *)batch;
}

static void
batch_dealloc(Batch *batch)
{
    PyTypeObject *type = Py_TYPE((PyObject *)batch);
    freefunc free = (freefunc)PyType_GetSlot(type, Py_tp_free);

    for (int k = 0; k < ARRAYS; k++) {
        PyBuffer_Release(batch->held + k); /* does nothing if there is none */
    }
    PyMem_Free(batch->rows.gens);
    PyMem_Free(batch->calls.columns);
    Py_XDECREF(batch->calls.of);
    free(batch);
    Py_DECREF(type);
}

static const size_t ANY_SIZE = SIZE_MAX;

/* Get a contiguous buffer of just so many bytes, or none of None. Returns 0 without an exception if it has other bytes. */
static int
take_buffer(PyObject *object, Py_buffer *buffer, int flags, size_t size)
{
    if (object == Py_None) {
        return 1;
    }
    if (PyObject_GetBuffer(object, buffer, flags) < 0) {
        return -1;
    }
    return size == ANY_SIZE || (size_t)buffer->len == size;
}

/* step(actions, wide, observations, next_observations): how many rows ended, or were reset; -1 if Python has to take this step. */
static PyObject *
batch_step(Batch *batch, PyObject *const *args, Py_ssize_t count)
{
    Rows *rows = &batch->rows;
    Py_buffer actions = {0}, shown = {0}, led_to = {0};
    PyObject *result = NULL;
    int64_t done = REFUSED;
    int known;

    if (count != 4) {
        PyErr_Format(PyExc_TypeError, "step() takes 4 arguments, got %zd", count);
        return NULL;
    }
    rows->wide = PyObject_IsTrue(args[1]);
    const int own = rows->calls != NULL;
    const int64_t low = own ? rows->q[0] : 0, high = own || batch->code->actions < 0 ? rows->q[1] : batch->code->actions;
    const size_t width = high || rows->wide ? 8 : 4, all = rows->row * (size_t)rows->n;
    known = take_buffer(args[0], &actions, PyBUF_C_CONTIGUOUS, own ? ANY_SIZE : width * (size_t)rows->n);
    if (known > 0) {
        known = take_buffer(args[2], &shown, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS, all);
    }
    if (known > 0) {
        known = take_buffer(args[3], &led_to, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS, all);
    }
    if (known == 0) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not have the batch's rows");
    }
    if (known > 0) {
        rows->actions = actions.buf;
        rows->led_to = led_to.buf;
        if (low == high || actions_known(rows, low, high, own)) {
            batch->calls.actions = args[0];
            /* A user's kernel in Python needs the interpreter. All others let another thread have it meanwhile. */
            PyThreadState *const released = own && batch->calls.step == NULL ? NULL : PyEval_SaveThread();
            done = drive(rows, batch->code);
            if (shown.buf && done >= 0) {
                memcpy(shown.buf, rows->obs, all);
            }
            if (released) {
                PyEval_RestoreThread(released);
            }
        }
        result = done == FAILED ? NULL : PyLong_FromLongLong(done);
    }
    PyBuffer_Release(&actions);
    PyBuffer_Release(&shown);
    PyBuffer_Release(&led_to);
    return result;
}

static PyObject *
batch_reset(Batch *batch, PyObject *mask)
{
    Py_buffer rows = {0};
    const int known = take_buffer(mask, &rows, PyBUF_C_CONTIGUOUS, (size_t)batch->rows.n);

    if (known == 0 || rows.buf == NULL) {
        PyBuffer_Release(&rows);
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "the mask must have a byte for each row");
        }
        return NULL;
    }
    const int64_t done = reset_rows(&batch->rows, batch->code, rows.buf);
    PyBuffer_Release(&rows);
    if (done < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
batch_set_generator(Batch *batch, PyObject *args)
{
    Py_ssize_t row;
    PyObject *capsule;

    if (!PyArg_ParseTuple(args, "nO:set_generator", &row, &capsule)) {
        return NULL;
    }
    if (row < 0 || row >= batch->rows.n) {
        PyErr_Format(PyExc_IndexError, "there is no row %zd", row);
        return NULL;
    }
    if (set_generator(&batch->rows, row, capsule) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef batch_methods[] = {
    {"step", (PyCFunction)(void (*)(void))batch_step, METH_FASTCALL, "Step all rows. -1 if Python has to take this step."},
    {"reset", (PyCFunction)batch_reset, METH_O, "Reset the rows of a mask."},
    {"set_generator", (PyCFunction)batch_set_generator, METH_VARARGS, "Let a row draw from another bit generator."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "Batch(name, mode, arrays, generators, bounds, constants, numbers, loops, own): rows that one kernel steps."},
    {Py_tp_new, batch_new},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_methods, batch_methods},
    {0, NULL},
};

static PyType_Spec batch_spec = {
    .name = "reactor_gymnasium.native._kernels.Batch",
    .basicsize = sizeof(Batch),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = batch_slots,
};

static int
module_exec(PyObject *module)
{
    PyType_Spec *const specs[] = {&batch_spec, &watch_spec};

    for (int k = 0; k < 2; k++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[k], NULL);
        if (type == NULL) {
            return -1;
        }
        const int status = PyModule_AddType(module, (PyTypeObject *)type);
        Py_DECREF(type);
        if (status < 0) {
            return -1;
        }
    }
    if (PyModule_AddFunctions(module, own_methods) < 0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "ACROBOT_WORK", ACROBOT_WORK);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing is shared: a batch belongs to a reactor, which runs in one thread at a time */
#endif
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernels",
    .m_doc = "Gymnasium's own environments, many rows in one call.",
    .m_size = 0,
    .m_methods = normalize_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__kernels(void)
{
    return PyModuleDef_Init(&module_def);
}
