/* What NormalizeObservation and NormalizeReward do, for many rows, in numpy's order and types: a Python float beside a float32 array
 * counts as a float32. A row whose numbers are not finite, before or after, is left as it is and marked: numpy may have a warning for
 * it. */

#ifndef REACTOR_NORMALIZE_H
#define REACTOR_NORMALIZE_H

#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Statistics of c numbers and one more, x (Chan, Golub, LeVeque 1983; as RunningMeanStd has them, with a batch of one, whose variance is 0):
 *   d = x - mean,  mean += d / (c + 1),  var = (var c + d^2 c / (c + 1)) / (c + 1),  out = (x - mean) / sqrt(var + epsilon), by the new ones */
#define NORMALIZE_ROWS(name, T, ROOT)                                                                                             \
    static int64_t name(const T *x, T *mean, T *var, double *count, double epsilon, const uint8_t *rows, uint8_t *left, float *out,  \
                     T *work, int64_t n, int64_t k)                                                                               \
    {                                                                                                                             \
        int64_t odd = 0;                                                                                                          \
        for (int64_t i = 0; i < n; i++, x += k, mean += k, var += k, out += k) {                                                  \
            if (!rows[i]) {                                                                                                       \
                continue;                                                                                                         \
            }                                                                                                                     \
            const double after = count[i] + 1.0;                                                                                  \
            const T c = (T)count[i], t = (T)after, e = (T)epsilon;                                                                \
            int finite = 1;                                                                                                       \
            for (int64_t j = 0; j < k; j++) {                                                                                     \
                const T delta = x[j] - mean[j], square = delta * delta;                                                           \
                const T m = mean[j] + delta / t, v = (var[j] * c + square * c / t) / t;                                           \
                const T y = (x[j] - m) / ROOT(v + e);                                                                             \
                work[j] = m;                                                                                                      \
                work[k + j] = v;                                                                                                  \
                out[j] = (float)y;                                                                                                \
                finite &= isfinite(m) && isfinite(v) && isfinite(out[j]);                                                         \
            }                                                                                                                     \
            if (!finite) {                                                                                                        \
                left[i] = 1;                                                                                                      \
                odd++;                                                                                                            \
                continue;                                                                                                         \
            }                                                                                                                     \
            memcpy(mean, work, (size_t)k * sizeof(T));                                                                            \
            memcpy(var, work + k, (size_t)k * sizeof(T));                                                                         \
            count[i] = after;                                                                                                     \
        }                                                                                                                         \
        return odd;                                                                                                               \
    }

NORMALIZE_ROWS(normalize_floats, float, sqrtf)
NORMALIZE_ROWS(normalize_doubles, double, sqrt)

typedef struct {
    const double *rewards;
    const uint8_t *terminated, *rows;
    double *discounted, *mean, *var, *count, *out;
    uint8_t *left;
} Returns;

/* G = gamma (1 - terminated) G + reward, whose variance is followed as above; out = reward / sqrt(var + epsilon). Truncation does not end G:
 * Gymnasium's wrapper has it so. */
static int64_t
normalize_returns(const Returns *r, double gamma, double epsilon, int64_t n)
{
    int64_t odd = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!r->rows[i]) {
            continue;
        }
        const double total = r->discounted[i] * gamma * (1 - r->terminated[i]) + r->rewards[i];
        const double c = r->count[i], t = c + 1.0, delta = total - r->mean[i];
        const double mean = r->mean[i] + delta / t, var = (r->var[i] * c + delta * delta * c / t) / t;
        const double y = r->rewards[i] / sqrt(var + epsilon);
        if (!isfinite(mean) || !isfinite(var) || !isfinite(y)) {
            r->left[i] = 1;
            odd++;
            continue;
        }
        r->discounted[i] = total;
        r->mean[i] = mean;
        r->var[i] = var;
        r->count[i] = t;
        r->out[i] = y;
    }
    return odd;
}

/* Get buffers of just so many bytes; those from `first_written` on are written into. */
static int
take_buffers(PyObject *const *objects, Py_buffer *buffers, const size_t *sizes, int count, int first_written)
{
    for (int k = 0; k < count; k++) {
        const int flags = PyBUF_C_CONTIGUOUS | (k >= first_written ? PyBUF_WRITABLE : 0);

        if (PyObject_GetBuffer(objects[k], buffers + k, flags) < 0) {
            return -1;
        }
        if ((size_t)buffers[k].len != sizes[k]) {
            PyErr_Format(PyExc_ValueError, "array %d has %zd bytes, must have %zu", k, buffers[k].len, sizes[k]);
            return -1;
        }
    }
    return 0;
}

static void
release_buffers(Py_buffer *buffers, int count)
{
    for (int k = 0; k < count; k++) {
        PyBuffer_Release(buffers + k);
    }
}

/* normalize_observations(x, rows, mean, var, count, left, out, width, epsilon) */
static PyObject *
normalize_observations(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    enum { X, ROWS, MEAN, VAR, COUNT, LEFT, OUT, ARRAYS_HERE };
    Py_buffer held[ARRAYS_HERE] = {0};
    PyObject *result = NULL;
    void *work = NULL;

    if (given != ARRAYS_HERE + 2) {
        PyErr_Format(PyExc_TypeError, "normalize_observations() takes 9 arguments, got %zd", given);
        return NULL;
    }
    const int64_t width = PyLong_AsLongLong(args[ARRAYS_HERE]);
    const double epsilon = PyFloat_AsDouble(args[ARRAYS_HERE + 1]);
    const Py_ssize_t n = PyObject_Size(args[ROWS]), k = n > 0 ? PyObject_Size(args[X]) : 0;
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (k != n || (width != 4 && width != 8)) {
        PyErr_SetString(PyExc_ValueError, "arrays must have a row for each row, of floats or doubles");
        return NULL;
    }
    if (PyObject_GetBuffer(args[X], held + X, PyBUF_C_CONTIGUOUS) < 0) {
        return NULL;
    }
    const size_t all = (size_t)held[X].len, rows = (size_t)n, numbers = n ? all / (size_t)width : 0;
    const size_t sizes[ARRAYS_HERE] = {all, rows, all, all, 8 * rows, rows, 4 * numbers};
    if (take_buffers(args + 1, held + 1, sizes + 1, ARRAYS_HERE - 1, MEAN - 1) == 0) {
        const int64_t each = n ? (int64_t)(numbers / rows) : 0;
        work = PyMem_Malloc(2 * (size_t)width * (size_t)(each + 1));
        if (work == NULL) {
            PyErr_NoMemory();
        } else {
            int64_t odd;
            if (width == 4) {
                odd = normalize_floats(
                    held[X].buf, held[MEAN].buf, held[VAR].buf, held[COUNT].buf, epsilon, held[ROWS].buf, held[LEFT].buf,
                    held[OUT].buf, work, n, each
                );
            } else {
                odd = normalize_doubles(
                    held[X].buf, held[MEAN].buf, held[VAR].buf, held[COUNT].buf, epsilon, held[ROWS].buf, held[LEFT].buf,
                    held[OUT].buf, work, n, each
                );
            }
            result = PyLong_FromLongLong(odd);
        }
    }
    PyMem_Free(work);
    release_buffers(held, ARRAYS_HERE);
    return result;
}

/* normalize_rewards(rewards, terminated, rows, discounted, mean, var, count, left, out, gamma, epsilon) */
static PyObject *
normalize_rewards(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    enum { REWARDS, TERMINATED, ROWS, DISCOUNTED, MEAN, VAR, COUNT, LEFT, OUT, ARRAYS_HERE };
    Py_buffer held[ARRAYS_HERE] = {0};
    PyObject *result = NULL;

    if (given != ARRAYS_HERE + 2) {
        PyErr_Format(PyExc_TypeError, "normalize_rewards() takes 11 arguments, got %zd", given);
        return NULL;
    }
    const double gamma = PyFloat_AsDouble(args[ARRAYS_HERE]), epsilon = PyFloat_AsDouble(args[ARRAYS_HERE + 1]);
    const Py_ssize_t n = PyObject_Size(args[ROWS]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    const size_t rows = (size_t)n, numbers = 8 * rows;
    const size_t sizes[ARRAYS_HERE] = {numbers, rows, rows, numbers, numbers, numbers, numbers, rows, numbers};
    if (take_buffers(args, held, sizes, ARRAYS_HERE, DISCOUNTED) == 0) {
        const Returns returns = {
            held[REWARDS].buf, held[TERMINATED].buf, held[ROWS].buf, held[DISCOUNTED].buf, held[MEAN].buf,
            held[VAR].buf, held[COUNT].buf, held[OUT].buf, held[LEFT].buf,
        };
        result = PyLong_FromLongLong(normalize_returns(&returns, gamma, epsilon, n));
    }
    release_buffers(held, ARRAYS_HERE);
    return result;
}

static PyMethodDef normalize_methods[] = {
    {"normalize_observations", (PyCFunction)(void (*)(void))normalize_observations, METH_FASTCALL,
     "Do in rows what NormalizeObservation does; mark and count those that are left to Python."},
    {"normalize_rewards", (PyCFunction)(void (*)(void))normalize_rewards, METH_FASTCALL,
     "Do in rows what NormalizeReward does; mark and count those that are left to Python."},
    {NULL, NULL, 0, NULL},
};

#endif
