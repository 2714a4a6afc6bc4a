/* Networks on a processor: layers both ways, what losses and distributions compute row by row, and optimisers. The same bits everywhere.
 *
 *   module.c          Python's side: functions by signature, the types Network and Team
 *     numbers.h       block sizes, sums as trees          arguments.h    signatures, and arguments that are checked against them
 *     forms.h         struct Kernels, filled by name for each form: portable, NEON, AVX2, AVX-512; one that fails check.h is not used
 *       vector.h      included once for each form (NAME, TARGET, V, WIDTH, ...): products, activations, Adam; with multiply.h,
 *                     columns.h and windows.h (convolutions)
 *       rows.h        plain C with fmaf, included once portable and once with FMA: distributions.h, losses.h, LayerNorm, LSTM cells
 *     threads.h       a team of threads                   optim.h        optimisers, over all parameters
 *     network.h       Layer, Network: arrays that are held               layers/        what each kind of layer is: a header that ends in a row
 *     parts.h         parts of a pass, each by one thread passes.h       passes that Python calls      acting.h   networks of actors
 *     orthogonal.h    first weights
 *
 * Orders of sums are the contract; a change of one changes weights, and the CHANGELOG says so:
 *   linear             one chain of fused multiply-adds, begun with the bias; of up to FEW outputs 16 chains, folded by halves
 *   over rows          leaves of LEAF rows, added as a binary tree, so that whole leaves may be computed apart
 *   within a row       16 chains (LayerNorm, quantiles)
 *
 * Compile it with -ffp-contract=off: nothing but what is written as fused may be.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__GNUC__) && !defined(__clang__)
#error "it is for GCC and clang; without it torch multiplies"
#endif
#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of a table have the same ones, needed or not */

#include "numbers.h"
#include "arguments.h"
#include "forms.h"
#include "threads.h"
#include "network.h"
#include "parts.h"
#include "acting.h"
#include "passes.h"
#include "layers/lstm.h"
#include "optim.h"
#include "orthogonal.h"

/* ---------------------------------------------------------------- functions by signature */

#define OTHERS(FUNCTION) \
    FUNCTION(gaussian_backward, "inverse[n] distances[r,n] by_log_prob[r] by_entropy:float > grad_means[r,n] terms[r,n] " \
             "grad_log_std[n]", "The gradients by means and by logarithms of standard deviations; `terms` is room.") \
    FUNCTION(gather, "rows:int64[r] sources:tuple targets:tuple", \
             "Copy these rows of each source, in this order, into its target, `(len(rows), ...)`; of any type.")

static double
gaussian_backward(const Kernels *with, const Sizes *n, const Value *v)
{
    with->gaussian_backward(n->r, n->n, v[0].f, v[1].f, v[2].f, (float)v[3].number, v[4].out, v[5].out);
    with->column_sums(VALUES, n->r, n->n, v[5].f, n->n, NULL, NULL, 0, v[6].out);
    return 0.0;
}

static int
gathered(const int64_t *rows, Py_ssize_t count, PyObject *from, PyObject *into)
{
    Py_buffer source, target;
    if (PyObject_GetBuffer(from, &source, PyBUF_C_CONTIGUOUS) < 0) {
        return -1;
    }
    if (PyObject_GetBuffer(into, &target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&source);
        return -1;
    }
    Py_ssize_t size = count ? target.len / count : 0, there = size ? source.len / size : 0;
    int wrong = target.len != size * count;
    if (wrong) {
        PyErr_Format(PyExc_ValueError, "gather(rows, sources, targets): %zd bytes are not those of %zd rows", target.len, count);
    }
    for (Py_ssize_t i = 0; i < count && !wrong; i++) {
        if ((wrong = rows[i] < 0 || rows[i] >= there)) {
            PyErr_Format(PyExc_IndexError, "there are %zd rows, and none with the number %lld", there, (long long)rows[i]);
        }
    }
    const char *all = source.buf;
    char *to = target.buf;
    for (Py_ssize_t i = 0; i < count && !wrong; i++, to += size) {
        if (i + 16 < count) { /* they lie anywhere */
            __builtin_prefetch(all + rows[i + 16] * size);
        }
        if (size == 4) {
            memcpy(to, all + rows[i] * 4, 4);
        } else {
            memcpy(to, all + rows[i] * size, (size_t)size);
        }
    }
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    return wrong ? -1 : 0;
}

static double
gather(const Kernels *with, const Sizes *n, const Value *v)
{
    PyObject *sources = v[1].object, *targets = v[2].object;
    int failed = 0;
    if (PyTuple_Size(sources) != PyTuple_Size(targets)) {
        PyErr_SetString(PyExc_TypeError, "gather(rows, sources, targets): sources and targets must be tuples of one length");
        return FAILED;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(sources) && !failed; i++) {
        failed = gathered(v[0].i, n->r, PyTuple_GetItem(sources, i), PyTuple_GetItem(targets, i));
    }
    return failed ? FAILED : 0.0;
}

/* A function: row by row, of which each form has its own, or one for all of them that uses the table. */
typedef struct {
    int row_by_row; /* its number in Kernels, or -1 */
    double (*whole)(const Kernels *with, const Sizes *n, const Value *v); /* FAILED without memory, or with an error set */
    Signature signature;
} Function;

#define NUMBER(function, arguments, says) OF_##function,
enum { DISTRIBUTIONS(NUMBER) LOSSES(NUMBER) ROW_BY_ROW, BEFORE = ROW_BY_ROW - 1, OPTIMISERS(NUMBER) SEQUENCES(NUMBER) OTHERS(NUMBER)
       DECOMPOSITIONS(NUMBER) FUNCTIONS };
#undef NUMBER

#define OF_FORMS(function, arguments, says) {.row_by_row = OF_##function, .signature = {.name = #function, .text = arguments}},
#define OF_ALL(function, arguments, says) {.row_by_row = -1, .whole = function, .signature = {.name = #function, .text = arguments}},
static Function functions[FUNCTIONS] = {
    DISTRIBUTIONS(OF_FORMS) LOSSES(OF_FORMS) OPTIMISERS(OF_ALL) SEQUENCES(OF_ALL) OTHERS(OF_ALL) DECOMPOSITIONS(OF_ALL)
};
#undef OF_FORMS
#undef OF_ALL

INLINE double
compute(const Function *of, const Kernels *with, const Sizes *n, const Value *v)
{
    return of->row_by_row < 0 ? of->whole(with, n, v) : (double)with->row_by_row[of->row_by_row](n, v);
}

static PyObject *
call(const Function *of, PyObject *const *args, Py_ssize_t count)
{
    Call made;
    PyObject *answer = NULL;
    if (begin_call(&made, &of->signature, args, count) == 0) {
        PyThreadState *state = made.is_long ? PyEval_SaveThread() : NULL;
        double result = compute(of, kernels, &made.sizes, made.value);
        if (state != NULL) {
            PyEval_RestoreThread(state);
        }
        if (of->row_by_row < 0 && result == FAILED) {
            if (!PyErr_Occurred()) {
                PyErr_NoMemory();
            }
        } else {
            answer = of->signature.returns ? PyFloat_FromDouble(result) : Py_NewRef(Py_None);
        }
    }
    end_call(&made);
    return answer;
}

#define CALLED(function, arguments, says)                                          \
    static PyObject *py_##function(PyObject *module, PyObject *const *args, Py_ssize_t count) \
    {                                                                              \
        (void)module;                                                              \
        return call(&functions[OF_##function], args, count);                       \
    }
DISTRIBUTIONS(CALLED)
LOSSES(CALLED)
OPTIMISERS(CALLED)
SEQUENCES(CALLED)
OTHERS(CALLED)
DECOMPOSITIONS(CALLED)
#undef CALLED

#include "check.h"

/* ---------------------------------------------------------------- kinds of processors */

static const Named *
kind_of(PyObject *name)
{
    for (int i = 0; i < KINDS && PyUnicode_Check(name); i++) {
        if (PyUnicode_CompareWithASCIIString(name, kinds[i].name) == 0 && supported(kinds[i].name)) {
            return &kinds[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "this processor has no %R", name);
    return NULL;
}

static PyObject *
use(PyObject *module, PyObject *name)
{
    const Named *kind = kind_of(name);
    if (kind == NULL) {
        return NULL;
    }
    kernels = kind->kernels;
    in_use = kind->name;
    Py_RETURN_NONE;
}

static PyObject *
check(PyObject *module, PyObject *name)
{
    const Named *kind = kind_of(name);
    return kind == NULL ? NULL : PyBool_FromLong(agrees(kind->kernels));
}

static PyObject *
using(PyObject *module, PyObject *nothing)
{
    return PyUnicode_FromString(in_use);
}

static PyObject *
names(PyObject *module, PyObject *nothing)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < KINDS; i++) {
        PyObject *name = supported(kinds[i].name) ? PyUnicode_FromString(kinds[i].name) : Py_NewRef(Py_None);
        if (name == NULL || (name != Py_None && PyList_Append(list, name) < 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
    return list;
}

#define METHOD_OF(function, arguments, says) {#function, (PyCFunction)(void (*)(void))py_##function, METH_FASTCALL, arguments "\n\n" says},
static PyMethodDef methods[] = {
    {"kinds", names, METH_NOARGS, "Kinds of code that this processor can run, the fastest first."},
    {"using", using, METH_NOARGS, "The kind in use."},
    {"use", use, METH_O, "Use a kind from now on."},
    {"check", check, METH_O, "Whether a kind gives the bits of the portable one, for a few products and all functions."},
    DISTRIBUTIONS(METHOD_OF) LOSSES(METHOD_OF) OPTIMISERS(METHOD_OF) SEQUENCES(METHOD_OF) OTHERS(METHOD_OF)
    DECOMPOSITIONS(METHOD_OF)
    {NULL, NULL, 0, NULL},
};
#undef METHOD_OF

static int
module_exec(PyObject *module)
{
    static int told, parsed; /* once, and not for each interpreter */
    for (int i = 0; i < FUNCTIONS && !parsed; i++) {
        if (parse(&functions[i].signature, functions[i].signature.name, functions[i].signature.text) < 0) {
            return -1;
        }
    }
    if (!parsed && (parse_layers() < 0 || parse_methods() < 0)) {
        return -1;
    }
    parsed = 1;
    PyType_Spec *specs[] = {&network_spec, &team_spec};
    for (int i = 0; i < 2; i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[i], NULL);
        if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0) {
            Py_XDECREF(type);
            return -1;
        }
        Py_DECREF(type);
    }
    if (!told && pthread_atfork(NULL, NULL, forked) == 0) {
        told = 1;
    }
    return PyModule_AddIntConstant(module, "LEAF", LEAF);
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
    .m_name = "_products",
    .m_doc = "Networks of dense layers, and what learns with them.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__products(void)
{
    return PyModuleDef_Init(&module_def);
}
