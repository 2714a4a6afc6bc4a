/* LSTM cells over sequences: arrays are (steps, rows, numbers); the gates of a row are input, forget, cell and output, as torch has them.
 *
 * The product of a step has a few rows, and its right factor is the same in all steps: that one is laid out as panels beforehand.
 */

FUNCTION(py_pack_panels)
{
    ARGUMENTS(5, "pack_panels(k, n, weights, transposed, panels)");
    long k = PyLong_AsLong(args[0]), n = PyLong_AsLong(args[1]);
    if (!PyErr_Occurred() && (k < 1 || n < 1)) {
        PyErr_Format(PyExc_ValueError, "there are no %ld x %ld weights", k, n);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    const float *weights = IN(2, "weights", (Py_ssize_t)k * n);
    int transposed = PyObject_IsTrue(args[3]);
    float *panels = OUT(4, "panels", (Py_ssize_t)k * ((n + WIDEST - 1) / WIDEST * WIDEST));
    UNLESS_FAILED
    kernels->pack_panels(k, n, weights, transposed ? k : n, transposed, panels);
    return done(&held);
}

typedef struct {
    long steps, rows, features, hidden;
} Sequences;

static Sequences
sequences_of(PyObject *const *args)
{
    Sequences s = {PyLong_AsLong(args[0]), PyLong_AsLong(args[1]), PyLong_AsLong(args[2]), PyLong_AsLong(args[3])};
    if (!PyErr_Occurred() && (s.steps < 1 || s.rows < 1 || s.features < 1 || s.hidden < 1)) {
        PyErr_SetString(PyExc_ValueError, "sequences have steps, rows, features and hidden numbers");
    }
    return s;
}

/* What is behind a step as the next one sees it: nothing where an episode starts. */
static void
carried(long rows, long hidden, const float *from, const float *starts, float *to)
{
    for (long row = 0; row < rows; row++) {
        if (starts[row] != 0.0f) {
            memset(to + row * hidden, 0, (size_t)hidden * sizeof(float));
        } else if (to != from) {
            memcpy(to + row * hidden, from + row * hidden, (size_t)hidden * sizeof(float));
        }
    }
}

FUNCTION(py_lstm)
{
    ARGUMENTS(15, "lstm(steps, rows, features, hidden, inputs, starts, h, c, weights, bias, panels, gates, before, cells, outputs)");
    Sequences s = sequences_of(args);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t all = (Py_ssize_t)s.steps * s.rows, size = (Py_ssize_t)s.rows * s.hidden;
    const float *inputs = IN(4, "inputs", all * s.features), *starts = IN(5, "starts", all);
    const float *h = IN(6, "h", size), *c = IN(7, "c", size);
    const float *weights = IN(8, "weights", (Py_ssize_t)4 * s.hidden * s.features), *bias = IN(9, "bias", (Py_ssize_t)4 * s.hidden);
    const float *panels = IN(10, "panels", (Py_ssize_t)s.hidden * ((4 * s.hidden + WIDEST - 1) / WIDEST * WIDEST));
    float *gates = OUT(11, "gates", all * 4 * s.hidden);
    float *before = OUT(12, "before", 2 * all * s.hidden), *cells = OUT(13, "cells", all * s.hidden);
    float *outputs = OUT(14, "outputs", all * s.hidden);
    UNLESS_FAILED
    PyThreadState *state = all * s.hidden * 4 * s.hidden >= LARGE ? PyEval_SaveThread() : NULL;
    kernels->linear(NONE, (long)all, s.features, 4 * s.hidden, inputs, s.features, weights, bias, gates, NULL);
    for (long t = 0; t < s.steps; t++) {
        float *h_before = before + t * size, *c_before = before + (s.steps + t) * size, *of_step = gates + 4 * t * size;
        carried(s.rows, s.hidden, t ? outputs + (t - 1) * size : h, starts + t * s.rows, h_before);
        carried(s.rows, s.hidden, t ? cells + (t - 1) * size : c, starts + t * s.rows, c_before);
        kernels->add_packed(s.rows, s.hidden, 4 * s.hidden, h_before, s.hidden, panels, of_step, 4 * s.hidden);
        kernels->lstm_cell(s.rows, s.hidden, of_step, c_before, cells + t * size, outputs + t * size);
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return done(&held);
}

FUNCTION(py_lstm_backward)
{
    ARGUMENTS(15, "lstm_backward(steps, rows, features, hidden, inputs, starts, panels, gates, before, cells, by_outputs, slopes, "
                  "by_weights, by_recurrent, by_bias)");
    Sequences s = sequences_of(args);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t all = (Py_ssize_t)s.steps * s.rows, size = (Py_ssize_t)s.rows * s.hidden, wide = (Py_ssize_t)4 * s.hidden;
    const float *inputs = IN(4, "inputs", all * s.features), *starts = IN(5, "starts", all);
    const float *panels = IN(6, "panels", wide * ((s.hidden + WIDEST - 1) / WIDEST * WIDEST));
    const float *gates = IN(7, "gates", all * wide), *before = IN(8, "before", 2 * all * s.hidden), *cells = IN(9, "cells", all * s.hidden);
    float *by_outputs = OUT(10, "by_outputs", all * s.hidden), *slopes = OUT(11, "slopes", all * wide);
    float *by_weights = OUT(12, "by_weights", wide * s.features), *by_recurrent = OUT(13, "by_recurrent", wide * s.hidden);
    float *by_bias = OUT(14, "by_bias", wide);
    size_t room = 2; /* see matmul_outer() */
    for (Py_ssize_t rows = all; rows > SUPER; rows /= 2) {
        room++;
    }
    size_t widest = (size_t)wide * (size_t)(s.features > s.hidden ? s.features : s.hidden);
    size_t tiles = (size_t)TILES(wide > s.features ? wide : s.features);
    float *scratch = held.failed ? NULL : PyMem_Malloc((tiles + room * widest + (size_t)(5 * size)) * sizeof(float));
    if (!held.failed && scratch == NULL) {
        PyErr_NoMemory();
    }
    UNLESS_FAILED
    PyThreadState *state = all * s.hidden * 4 * s.hidden >= LARGE ? PyEval_SaveThread() : NULL;
    float *by_cells = scratch + tiles + room * widest, *passed = by_cells + size;
    memset(by_cells, 0, (size_t)size * sizeof(float));
    for (long t = s.steps - 1; t >= 0; t--) {
        const float *c_before = before + (s.steps + t) * size;
        float *of_step = slopes + t * s.rows * wide;
        kernels->lstm_cell_backward(s.rows, s.hidden, gates + t * s.rows * wide, c_before, cells + t * size, by_outputs + t * size, by_cells, of_step);
        if (t) { /* nothing that came before the start of an episode has a part in what follows */
            carried(s.rows, s.hidden, by_cells, starts + t * s.rows, by_cells);
            carried(s.rows, (long)wide, of_step, starts + t * s.rows, passed);
            kernels->add_packed(s.rows, (long)wide, s.hidden, passed, (long)wide, panels, by_outputs + (t - 1) * size, s.hidden);
        }
    }
    kernels->matmul_outer((long)all, (long)wide, s.features, slopes, (long)wide, inputs, s.features, by_weights, scratch);
    kernels->matmul_outer((long)all, (long)wide, s.hidden, slopes, (long)wide, before, s.hidden, by_recurrent, scratch);
    kernels->column_sums(VALUES, (long)all, (long)wide, slopes, (long)wide, NULL, NULL, 0, by_bias);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    PyMem_Free(scratch);
    return done(&held);
}
