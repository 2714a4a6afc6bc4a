/* Networks of dense layers, their gradients, what losses compute of them, and Adam; bits do not depend on the kind of processor.
 *
 * Three sums are fixed: a number of a forward pass or of a gradient by inputs is one chain of fused multiply-adds, begun with the bias;
 * of up to FEW outputs it is 16 chains, folded up; a sum over rows (gradients of weights and biases, losses) has leaves of LEAF rows,
 * added as a binary tree, so that whole leaves may be computed apart. Compile it with -ffp-contract=off.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__GNUC__)
#error "it is for GCC and clang; without it torch multiplies"
#endif

#include "_processors.h"
#include "_arguments.h"
#include "_team.h"
#include "_layers.h"
#include "_parts.h"
#include "_acting.h"
#include "_passes.h"
#include "_distributions.h"
#include "_lstm.h"

/* ---------------------------------------------------------------- optimisers, and what goes over all parameters */

static double
power(double base, long long exponent) /* by multiplications alone: nobody promises the last bit of pow() */
{
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1, base *= base) {
        if (exponent & 1) {
            result *= base;
        }
    }
    return result;
}

typedef struct {
    const Products *with;
    long size, parts;
    float *w, *first, *second;
    const float *g;
    const Adam *how;
    float tau, rest;
} Step;

static void
adam_part(void *what, long part)
{
    const Step *step = what;
    long begin = begin_of(step->size, part, step->parts, EVEN), end = begin_of(step->size, part + 1, step->parts, EVEN);
    step->with->adam(end - begin, step->w + begin, step->g + begin, step->first + begin, step->second + begin, step->how);
}

static void
blend_part(void *what, long part)
{
    const Step *step = what;
    long begin = begin_of(step->size, part, step->parts, EVEN), end = begin_of(step->size, part + 1, step->parts, EVEN);
    step->with->blend(end - begin, step->w + begin, step->g + begin, step->tau, step->rest);
}

/* Each number is for itself. */
static void
over_all(Step *step, Part part)
{
    enum { NUMBER = 64 }; /* from a far cache takes as long as so many multiply-adds of a product */
    Team *team = team_for(NUMBER * step->size);
    step->parts = parts_for(team, 1, NUMBER * step->size);
    PyThreadState *state = step->size >= LARGE / 4 ? PyEval_SaveThread() : NULL;
    compute_parts(team, step->parts, part, step);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

FUNCTION(py_adam)
{
    ARGUMENTS(12, "adam(kind, decoupled, weights, gradients, first, second, steps, lr, beta1, beta2, epsilon, decay)");
    int rectified = (int)PyLong_AsLong(args[0]), decoupled = (int)PyLong_AsLong(args[1]);
    float *w = OUT(2, "weights", -1);
    Py_ssize_t size = LENGTH(0);
    const float *g = IN(3, "gradients", size);
    float *first = OUT(4, "first", size), *second = OUT(5, "second", size);
    long long steps = PyLong_AsLongLong(args[6]);
    double d[5];
    for (int i = 0; i < 5; i++) {
        d[i] = PyFloat_AsDouble(args[7 + i]);
    }
    UNLESS_FAILED
    double lr = d[0], faded1 = 1.0 - power(d[1], steps), left2 = power(d[2], steps), faded2 = 1.0 - left2;
    Adam how = {
        .rest1 = (float)(1.0 - d[1]), .beta2 = (float)d[2], .rest2 = (float)(1.0 - d[2]), .step = (float)(lr / faded1),
        .root = (float)sqrt(faded2), .epsilon = (float)d[3], .decay = decoupled ? 0.0f : (float)d[4],
        .keep = decoupled ? (float)(1.0 - lr * d[4]) : 1.0f, .momentum = 0,
    };
    if (rectified) {
        double most = 2.0 / (1.0 - d[2]) - 1.0, rho = most - 2.0 * (double)steps * left2 / faded2;
        how.momentum = rho <= 5.0;
        if (!how.momentum) {
            double rect = sqrt((rho - 4.0) * (rho - 2.0) * most / ((most - 4.0) * (most - 2.0) * rho));
            how.step = (float)(lr / faded1 * rect * sqrt(faded2));
            how.root = 1.0f;
        }
    }
    Step step = {.with = products, .size = (long)size, .w = w, .g = g, .first = first, .second = second, .how = &how};
    over_all(&step, adam_part);
    return done(&held);
}

FUNCTION(py_blend)
{
    ARGUMENTS(3, "blend(target, weights, tau)");
    float *target = OUT(0, "target", -1);
    const float *w = IN(1, "weights", LENGTH(0));
    double tau = PyFloat_AsDouble(args[2]);
    UNLESS_FAILED
    Step step = {.with = products, .size = (long)LENGTH(0), .w = target, .g = w, .tau = (float)tau, .rest = (float)(1.0 - tau)};
    over_all(&step, blend_part);
    return done(&held);
}

FUNCTION(py_norm)
{
    ARGUMENTS(1, "norm(gradients)");
    const float *g = IN(0, "gradients", -1);
    UNLESS_FAILED
    double norm = sqrt(products->squares((long)LENGTH(0), g));
    release(&held);
    return PyFloat_FromDouble((double)(float)norm);
}

FUNCTION(py_exp)
{
    ARGUMENTS(1, "exp(x)");
    float x = number(args[0]);
    UNLESS_FAILED
    return PyFloat_FromDouble((double)products->exponential(x));
}

/* ---------------------------------------------------------------- losses */

FUNCTION(py_surrogate)
{
    ARGUMENTS(15, "surrogate(values, log_prob, entropy, advantages, returns, old_log_prob, old_values, clip, clip_vf, ent_coef, "
                  "vf_coef, share, by_values, by_log_prob, statistics)");
    Surrogate how;
    how.values = IN(0, "values", -1);
    Py_ssize_t rows = LENGTH(0);
    how.log_prob = IN(1, "log_prob", rows);
    how.entropy = MAYBE(2, "entropy", rows);
    how.advantages = IN(3, "advantages", rows);
    how.returns = IN(4, "returns", rows);
    how.old_log_prob = IN(5, "old_log_prob", rows);
    how.old_values = MAYBE(6, "old_values", rows);
    how.clip = number(args[7]), how.clip_vf = number(args[8]), how.ent_coef = number(args[9]), how.vf_coef = number(args[10]);
    how.share = number(args[11]);
    how.by_values = OUT(12, "by_values", rows);
    how.by_log_prob = OUT(13, "by_log_prob", rows);
    float *statistics = OUT(14, "statistics", 6);
    UNLESS_FAILED
    products->surrogate((long)rows, &how, statistics);
    return done(&held);
}

FUNCTION(py_td)
{
    ARGUMENTS(10, "td(values, following, log_prob, alpha, dones, rewards, discounts, discount, share, by_values)");
    const float *rewards = IN(5, "rewards", -1);
    Py_ssize_t rows = LENGTH(0);
    const float *values = IN(0, "values", -1);
    Py_ssize_t size = LENGTH(1);
    const float *following = IN(1, "following", size), *log_prob = MAYBE(2, "log_prob", rows), *dones = IN(4, "dones", rows);
    const float *discounts = MAYBE(6, "discounts", rows);
    float alpha = number(args[3]), discount = number(args[7]), share = number(args[8]);
    float *by_values = OUT(9, "by_values", size);
    VALUES_OF_EACH_ROW
    UNLESS_FAILED
    float loss = rows ? products->td((long)(size / rows), (long)rows, values, following, log_prob, alpha, dones, rewards, discounts, discount,
                                     share, by_values)
                      : 0.0f;
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_best)
{
    ARGUMENTS(7, "best(following, choosing, dones, rewards, discounts, discount, returns)");
    float *returns = OUT(6, "returns", -1);
    Py_ssize_t rows = LENGTH(0);
    const float *following = IN(0, "following", -1);
    Py_ssize_t size = LENGTH(1);
    const float *choosing = MAYBE(1, "choosing", size), *dones = IN(2, "dones", rows), *rewards = IN(3, "rewards", rows);
    const float *discounts = MAYBE(4, "discounts", rows);
    float discount = number(args[5]);
    VALUES_OF_EACH_ROW
    UNLESS_FAILED
    if (rows) {
        products->best((long)rows, (long)(size / rows), following, choosing, dones, rewards, discounts, discount, returns);
    }
    return done(&held);
}

FUNCTION(py_taken)
{
    ARGUMENTS(6, "taken(values, actions, returns, huber, share, by_values)");
    const int64_t *actions = NUMBERS(1, "actions", -1);
    Py_ssize_t rows = LENGTH(0);
    const float *values = IN(0, "values", -1);
    Py_ssize_t size = LENGTH(1);
    const float *returns = IN(2, "returns", rows);
    int huber = PyObject_IsTrue(args[3]);
    float share = number(args[4]);
    float *by_values = OUT(5, "by_values", size);
    VALUES_OF_EACH_ROW
    Py_ssize_t n = rows ? size / rows : 1;
    for (Py_ssize_t row = 0; !held.failed && !PyErr_Occurred() && row < rows; row++) {
        if (actions[row] < 0 || actions[row] >= n) {
            PyErr_Format(PyExc_IndexError, "action %lld is not one of %zd", (long long)actions[row], n);
        }
    }
    UNLESS_FAILED
    float loss = products->taken((long)rows, (long)n, values, actions, returns, huber, share, by_values);
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_quantiles)
{
    ARGUMENTS(6, "quantiles(critics, rows, values, returns, share, by_values)");
    long critics = PyLong_AsLong(args[0]), rows = PyLong_AsLong(args[1]);
    const float *values = IN(2, "values", -1);
    Py_ssize_t size = LENGTH(0);
    const float *returns = IN(3, "returns", -1);
    Py_ssize_t known = LENGTH(1);
    float share = number(args[4]);
    float *by_values = OUT(5, "by_values", size);
    if (!held.failed && !PyErr_Occurred() && (critics < 1 || rows < 1 || size % critics || size / critics % rows || known % rows)) {
        PyErr_Format(PyExc_ValueError, "%zd values and %zd returns are not those of %ld critics and %ld rows", size, known, critics, rows);
    }
    UNLESS_FAILED
    long n = (long)size / critics / rows, m = (long)known / rows;
    PyThreadState *state = size * m >= LARGE ? PyEval_SaveThread() : NULL;
    float loss = products->quantiles(critics, rows, n, m, values, returns, share, by_values);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_total)
{
    ARGUMENTS(4, "total(first, a, second, b)");
    const float *first = IN(0, "first", -1), *second = MAYBE(2, "second", LENGTH(0));
    float a = number(args[1]), b = number(args[3]);
    UNLESS_FAILED
    float sum = products->total((long)LENGTH(0), first, a, second, b);
    release(&held);
    return PyFloat_FromDouble((double)sum);
}

FUNCTION(py_standardise)
{
    ARGUMENTS(2, "standardise(numbers, out)");
    const float *x = IN(0, "numbers", -1);
    float *out = OUT(1, "out", LENGTH(0));
    if (!held.failed && LENGTH(0) < 2) {
        PyErr_SetString(PyExc_ValueError, "one number has no standard deviation");
    }
    UNLESS_FAILED
    products->standardise((long)LENGTH(0), x, out);
    return done(&held);
}

/* ---------------------------------------------------------------- rows of a replay buffer */

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
        PyErr_Format(PyExc_ValueError, "%zd bytes are not those of %zd rows", target.len, count);
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

FUNCTION(py_gather)
{
    ARGUMENTS(3, "gather(rows, sources, targets)");
    const int64_t *rows = NUMBERS(0, "rows", -1);
    if (!held.failed && (!PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) || PyTuple_Size(args[1]) != PyTuple_Size(args[2]))) {
        PyErr_SetString(PyExc_TypeError, "sources and targets must be tuples of one length");
    }
    UNLESS_FAILED
    for (Py_ssize_t i = 0; i < PyTuple_Size(args[1]); i++) {
        if (gathered(rows, LENGTH(0), PyTuple_GetItem(args[1], i), PyTuple_GetItem(args[2], i)) < 0) {
            release(&held);
            return NULL;
        }
    }
    return done(&held);
}

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
    (void)module;
    const Named *kind = kind_of(name);
    if (kind == NULL) {
        return NULL;
    }
    products = kind->products;
    in_use = kind->name;
    Py_RETURN_NONE;
}

static PyObject *
check(PyObject *module, PyObject *name)
{
    (void)module;
    const Named *kind = kind_of(name);
    return kind == NULL ? NULL : PyBool_FromLong(agrees(kind->products));
}

static PyObject *
using(PyObject *module, PyObject *nothing)
{
    (void)module;
    (void)nothing;
    return PyUnicode_FromString(in_use);
}

static PyObject *
names(PyObject *module, PyObject *nothing)
{
    (void)module;
    (void)nothing;
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

#define FAST(name, text) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, text}
static PyMethodDef functions[] = {
    {"kinds", names, METH_NOARGS, "Kinds of code that this processor can run, the fastest first."},
    {"using", using, METH_NOARGS, "The kind in use."},
    {"use", use, METH_O, "Use a kind from now on."},
    {"check", check, METH_O, "Whether a kind gives the bits of the portable one, for a few products."},
    FAST(adam, "One step of Adam, AdamW or RAdam."),
    FAST(blend, "Move towards other parameters."),
    FAST(norm, "The Euclidean norm."),
    FAST(exp, "The exponential of one number, in float32."),
    FAST(squash, "Actions of squashed normal distributions, and their log-probabilities."),
    FAST(unsquash, "Their derivatives."),
    FAST(choose, "Log-probabilities and entropies of categorical distributions, some choices perhaps masked."),
    FAST(unchoose, "Their derivatives."),
    FAST(toss, "Log-probabilities and entropies of Bernoulli distributions."),
    FAST(untoss, "Their derivatives."),
    FAST(draw, "Log-probabilities and entropies of normal distributions."),
    FAST(undraw, "Their derivatives."),
    FAST(vary, "The same where variances depend on the row."),
    FAST(unvary, "Their derivatives."),
    FAST(variances, "Variances, from logarithms of standard deviations."),
    FAST(surrogate, "PPO's loss and its derivatives."),
    FAST(td, "Squared errors of critics against rewards and what follows."),
    FAST(best, "Rewards and what the best next action is worth."),
    FAST(taken, "Errors of the values of actions that were taken."),
    FAST(quantiles, "Errors of quantiles against returns."),
    FAST(total, "A weighted sum over rows."),
    FAST(standardise, "Numbers with mean 0 and standard deviation 1."),
    FAST(gather, "Copy rows of arrays, in the order of their numbers."),
    FAST(panels, "A right factor laid out for products of a few rows."),
    FAST(lstm, "LSTM cells over sequences."),
    FAST(unlstm, "Their derivatives."),
    {NULL, NULL, 0, NULL},
};

static int
module_exec(PyObject *module)
{
    static int told;
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
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__products(void)
{
    return PyModuleDef_Init(&module_def);
}
