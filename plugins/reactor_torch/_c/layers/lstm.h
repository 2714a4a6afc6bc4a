/* LSTM cells over sequences: arrays are (steps, rows, numbers); the gates of a row are input, forget, cell and output, as torch has them.
 *
 * The product of a step has a few rows, and its right factor is the same in all steps: that one is laid out as panels beforehand.
 */
#ifdef NAME /* once for each form: cells */

TARGET INLINE void
NAME(sigmoid)(long count, float *x)
{
    for (long e = 0; e < count; e++) {
        x[e] = 1.0f / (1.0f + NAME(expf)(-x[e]));
    }
}

/* Gates i, f, o = 1 / (1 + exp(-z)) and new = tanh(z), in torch's order i, f, new, o (Hochreiter, Schmidhuber 1997; Gers et al. 2000):
 *   c = f c_before + i new,  out = o tanh(c);  gates are overwritten by what they let through */
TARGET static void
NAME(lstm_cell)(long rows, long n, float *gates, const float *RESTRICT before, float *RESTRICT cells, float *RESTRICT out)
{
    for (long row = 0; row < rows; row++, gates += 4 * n, before += n, cells += n, out += n) {
        NAME(sigmoid)(2 * n, gates);
        for (long e = 2 * n; e < 3 * n; e++) {
            gates[e] = NAME(tanhf)(gates[e]);
        }
        NAME(sigmoid)(n, gates + 3 * n);
        const float *in = gates, *kept = gates + n, *new = gates + 2 * n, *shown = gates + 3 * n;
        for (long e = 0; e < n; e++) {
            cells[e] = fmaf(kept[e], before[e], in[e] * new[e]);
            out[e] = shown[e] * NAME(tanhf)(cells[e]);
        }
    }
}

/* With h = by_cells + by_out o (1 - tanh(c)^2), gradients by what came into the gates:
 *   i: h new i (1 - i)   f: h c_before f (1 - f)   new: h i (1 - new^2)   o: by_out tanh(c) o (1 - o)
 * by_cells comes from the step behind and, as h f, goes to the one before. */
TARGET static void
NAME(lstm_cell_backward)(long rows, long n, const float *RESTRICT gates, const float *RESTRICT before, const float *RESTRICT cells,
           const float *RESTRICT by_out, float *RESTRICT by_cells, float *RESTRICT slopes)
{
    for (long row = 0; row < rows; row++, gates += 4 * n, before += n, cells += n, by_out += n, by_cells += n, slopes += 4 * n) {
        for (long e = 0; e < n; e++) {
            float in = gates[e], kept = gates[n + e], new = gates[2 * n + e], shown = gates[3 * n + e], squashed = NAME(tanhf)(cells[e]);
            float by = fmaf(by_out[e] * shown, fmaf(-squashed, squashed, 1.0f), by_cells[e]);
            slopes[e] = by * new * in * (1.0f - in);
            slopes[n + e] = by * before[e] * kept * (1.0f - kept);
            slopes[2 * n + e] = by * in * fmaf(-new, new, 1.0f);
            slopes[3 * n + e] = by_out[e] * squashed * shown * (1.0f - shown);
            by_cells[e] = by * kept;
        }
    }
}

#else /* once: over sequences */

#define SEQUENCES(FUNCTION) \
    FUNCTION(pack_panels, "k:size[k] n:size[n] weights[k*n] transposed:bool > panels:panels[k*n^]", \
             "Lay out a right factor, `(k, n)`, or `(n, k)` if it is transposed.") \
    FUNCTION(lstm, "steps:size[t] rows:size[r] features:size[f] hidden:size[h] inputs[t,r,f] starts[t,r] h[r,h] c[r,h] " \
             "weights[4h,f] bias[4h] panels:panels[h*4h^] > gates[t,r,4h] before[2,t,r,h] cells[t,r,h] outputs[t,r,h]", \
             "Gates, states that steps begin with, cells and outputs of LSTM cells; `panels` are the recurrent weights, transposed.") \
    FUNCTION(lstm_backward, "steps:size[t] rows:size[r] features:size[f] hidden:size[h] inputs[t,r,f] starts[t,r] " \
             "panels:panels[4h*h^] gates[t,r,4h] before[2,t,r,h] cells[t,r,h] by_outputs![t,r,h] > slopes[t,r,4h] " \
             "grad_weights[4h,f] grad_recurrent[4h,h] grad_bias[4h]", \
             "The gradients by weights and biases; `panels` are the recurrent weights, `slopes` is room.")

static double
pack_panels(const Kernels *with, const Sizes *n, const Value *v)
{
    int transposed = (int)v[3].whole;
    with->pack_panels(n->k, n->n, v[2].f, transposed ? n->k : n->n, transposed, v[4].out);
    return 0.0;
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

/* gates[t] = W inputs[t] + b + U h[t - 1], then a cell; with h and c of 0 where an episode starts. The first product is one of all steps. */
static double
lstm(const Kernels *with, const Sizes *n, const Value *v)
{
    long steps = n->t, rows = n->r, hidden = n->h, all = steps * rows, size = rows * hidden;
    const float *inputs = v[4].f, *starts = v[5].f, *h = v[6].f, *c = v[7].f, *weights = v[8].f, *bias = v[9].f, *panels = v[10].f;
    float *gates = v[11].out, *before = v[12].out, *cells = v[13].out, *outputs = v[14].out;

    with->linear(NONE, all, n->f, 4 * hidden, inputs, n->f, weights, bias, gates, NULL);
    for (long t = 0; t < steps; t++) {
        float *h_before = before + t * size, *c_before = before + (steps + t) * size, *of_step = gates + 4 * t * size;
        carried(rows, hidden, t ? outputs + (t - 1) * size : h, starts + t * rows, h_before);
        carried(rows, hidden, t ? cells + (t - 1) * size : c, starts + t * rows, c_before);
        with->add_packed(rows, hidden, 4 * hidden, h_before, hidden, panels, of_step, 4 * hidden);
        with->lstm_cell(rows, hidden, of_step, c_before, cells + t * size, outputs + t * size);
    }
    return 0.0;
}

/* The last step first: by_outputs[t - 1] += slopes[t] U, and cells' gradients go on, but for rows in which an episode starts at t. Then, over all
 * steps and rows at once, grad_weights = slopes^T inputs, grad_recurrent = slopes^T h before, grad_bias = sum of slopes. */
static double
lstm_backward(const Kernels *with, const Sizes *n, const Value *v)
{
    long steps = n->t, rows = n->r, features = n->f, hidden = n->h, all = steps * rows, size = rows * hidden, wide = 4 * hidden;
    const float *inputs = v[4].f, *starts = v[5].f, *panels = v[6].f, *gates = v[7].f, *before = v[8].f, *cells = v[9].f;
    float *by_outputs = v[10].out, *slopes = v[11].out, *grad_weights = v[12].out, *grad_recurrent = v[13].out;
    long room = 2; /* see matmul_outer() */
    for (long some = all; some > SUPER; some /= 2) {
        room++;
    }
    long widest = wide * (features > hidden ? features : hidden), tiles = TILES(wide > features ? wide : features);
    float *scratch = malloc((size_t)(tiles + room * widest + 5 * size) * sizeof(float));
    if (scratch == NULL) {
        return FAILED;
    }
    float *by_cells = scratch + tiles + room * widest, *passed = by_cells + size;
    memset(by_cells, 0, (size_t)size * sizeof(float));
    for (long t = steps - 1; t >= 0; t--) {
        const float *c_before = before + (steps + t) * size;
        float *of_step = slopes + t * rows * wide;
        with->lstm_cell_backward(rows, hidden, gates + t * rows * wide, c_before, cells + t * size, by_outputs + t * size, by_cells, of_step);
        if (t) { /* nothing that came before the start of an episode has a part in what follows */
            carried(rows, hidden, by_cells, starts + t * rows, by_cells);
            carried(rows, wide, of_step, starts + t * rows, passed);
            with->add_packed(rows, wide, hidden, passed, wide, panels, by_outputs + (t - 1) * size, hidden);
        }
    }
    with->matmul_outer(all, wide, features, slopes, wide, inputs, features, grad_weights, scratch);
    with->matmul_outer(all, wide, hidden, slopes, wide, before, hidden, grad_recurrent, scratch);
    with->column_sums(VALUES, all, wide, slopes, wide, NULL, NULL, 0, v[14].out);
    free(scratch);
    return 0.0;
}

#endif
