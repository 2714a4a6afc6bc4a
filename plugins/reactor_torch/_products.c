/* Networks on a processor: layers both ways, what losses and distributions compute row by row, and optimisers. The same bits everywhere.
 *
 *   _products.c           Python's side: functions, the types Network and Team
 *     _processors.h       struct Kernels, filled by name for each form: portable, NEON, AVX2, AVX-512; one that fails agrees() is not used
 *       _products.h       included once for each form (NAME, TARGET, V, WIDTH, ...): products, activations, Adam; with _multiply.h,
 *                         _columns.h and _windows.h (convolutions)
 *       _losses.h         plain C with fmaf, included once portable and once with FMA: distributions, losses, LayerNorm, LSTM cells
 *       _acting_linear.h  the linear layer of actors
 *     _arguments.h        arrays and numbers from Python              _team.h         threads
 *     _layers.h           Layer, Network: arrays that are held        _renormalised.h, _images.h   layers of batches, of images
 *     _parts.h, _passes.h forwards, backwards, by a team              _acting.h       networks as actors evaluate them
 *     _distributions.h, _lstm.h   Python's side of distributions and of LSTMs
 *
 * Orders of sums are the contract; a change of one changes weights, and the CHANGELOG says so:
 *   linear, learning   one chain of fused multiply-adds, begun with the bias; of up to FEW outputs 16 chains, folded by halves
 *   linear, acting     8 chains, input p in chain p % 8, folded ((0+1)+(2+3)) + ((4+5)+(6+7)), then the bias
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
    const Kernels *with;
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
    step->with->polyak(end - begin, step->w + begin, step->g + begin, step->tau, step->rest);
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
    Step step = {.with = kernels, .size = (long)size, .w = w, .g = g, .first = first, .second = second, .how = &how};
    over_all(&step, adam_part);
    return done(&held);
}

FUNCTION(py_polyak)
{
    ARGUMENTS(3, "polyak(target, weights, tau)");
    float *target = OUT(0, "target", -1);
    const float *w = IN(1, "weights", LENGTH(0));
    double tau = PyFloat_AsDouble(args[2]);
    UNLESS_FAILED
    Step step = {.with = kernels, .size = (long)LENGTH(0), .w = target, .g = w, .tau = (float)tau, .rest = (float)(1.0 - tau)};
    over_all(&step, blend_part);
    return done(&held);
}

FUNCTION(py_norm)
{
    ARGUMENTS(1, "norm(gradients)");
    const float *g = IN(0, "gradients", -1);
    UNLESS_FAILED
    double norm = sqrt(kernels->sum_of_squares((long)LENGTH(0), g));
    release(&held);
    return PyFloat_FromDouble((double)(float)norm);
}

FUNCTION(py_exp)
{
    ARGUMENTS(1, "exp(x)");
    float x = number(args[0]);
    UNLESS_FAILED
    return PyFloat_FromDouble((double)kernels->exponential(x));
}

/* ---------------------------------------------------------------- losses */

FUNCTION(py_ppo_loss)
{
    ARGUMENTS(15, "ppo_loss(values, log_prob, entropy, advantages, returns, old_log_prob, old_values, clip, clip_vf, ent_coef, "
                  "vf_coef, share, by_values, by_log_prob, statistics)");
    PpoLoss how;
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
    kernels->ppo_loss((long)rows, &how, statistics);
    return done(&held);
}

FUNCTION(py_td_loss)
{
    ARGUMENTS(10, "td_loss(values, following, log_prob, alpha, dones, rewards, discounts, discount, share, by_values)");
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
    float loss = rows ? kernels->td_loss((long)(size / rows), (long)rows, values, following, log_prob, alpha, dones, rewards, discounts, discount,
                                     share, by_values)
                      : 0.0f;
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_q_target)
{
    ARGUMENTS(7, "q_target(following, choosing, dones, rewards, discounts, discount, returns)");
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
        kernels->q_target((long)rows, (long)(size / rows), following, choosing, dones, rewards, discounts, discount, returns);
    }
    return done(&held);
}

FUNCTION(py_q_loss)
{
    ARGUMENTS(6, "q_loss(values, actions, returns, huber, share, by_values)");
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
    float loss = kernels->q_loss((long)rows, (long)n, values, actions, returns, huber, share, by_values);
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_quantile_loss)
{
    ARGUMENTS(6, "quantile_loss(critics, rows, values, returns, share, by_values)");
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
    float loss = kernels->quantile_loss(critics, rows, n, m, values, returns, share, by_values);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    release(&held);
    return PyFloat_FromDouble((double)loss);
}

FUNCTION(py_weighted_sum)
{
    ARGUMENTS(4, "weighted_sum(first, a, second, b)");
    const float *first = IN(0, "first", -1), *second = MAYBE(2, "second", LENGTH(0));
    float a = number(args[1]), b = number(args[3]);
    UNLESS_FAILED
    float sum = kernels->weighted_sum((long)LENGTH(0), first, a, second, b);
    release(&held);
    return PyFloat_FromDouble((double)sum);
}

FUNCTION(py_standardize)
{
    ARGUMENTS(2, "standardize(numbers, out)");
    const float *x = IN(0, "numbers", -1);
    float *out = OUT(1, "out", LENGTH(0));
    if (!held.failed && LENGTH(0) < 2) {
        PyErr_SetString(PyExc_ValueError, "one number has no standard deviation");
    }
    UNLESS_FAILED
    kernels->standardize((long)LENGTH(0), x, out);
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
    kernels = kind->kernels;
    in_use = kind->name;
    Py_RETURN_NONE;
}

static PyObject *
check(PyObject *module, PyObject *name)
{
    (void)module;
    const Named *kind = kind_of(name);
    return kind == NULL ? NULL : PyBool_FromLong(agrees(kind->kernels));
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
    FAST(polyak, "Move towards other parameters."),
    FAST(norm, "The Euclidean norm."),
    FAST(exp, "The exponential of one number, in float32."),
    FAST(squashed_gaussian, "Actions of squashed normal distributions, and their log-probabilities."),
    FAST(squashed_gaussian_backward, "Their derivatives."),
    FAST(categorical, "Log-probabilities and entropies of categorical distributions, some choices perhaps masked."),
    FAST(categorical_backward, "Their derivatives."),
    FAST(bernoulli, "Log-probabilities and entropies of Bernoulli distributions."),
    FAST(bernoulli_backward, "Their derivatives."),
    FAST(gaussian, "Log-probabilities and entropies of normal distributions."),
    FAST(gaussian_backward, "Their derivatives."),
    FAST(gaussian_by_row, "The same where variances depend on the row."),
    FAST(gaussian_by_row_backward, "Their derivatives."),
    FAST(exp_2x, "Variances, from logarithms of standard deviations."),
    FAST(ppo_loss, "PPO's loss and its derivatives."),
    FAST(td_loss, "Squared errors of critics against rewards and what follows."),
    FAST(q_target, "Rewards and what the best next action is worth."),
    FAST(q_loss, "Errors of the values of actions that were taken."),
    FAST(quantile_loss, "Errors of quantiles against returns."),
    FAST(weighted_sum, "A weighted sum over rows."),
    FAST(standardize, "Numbers with mean 0 and standard deviation 1."),
    FAST(gather, "Copy rows of arrays, in the order of their numbers."),
    FAST(pack_panels, "A right factor laid out for products of a few rows."),
    FAST(lstm, "LSTM cells over sequences."),
    FAST(lstm_backward, "Their derivatives."),
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
