/* Passes through networks, which Python calls: forwards, gradients of parameters, and gradients by inputs alone. */

/* The networks of a pass: one, and others that are given as arguments, `stride` of them for each. -1 with an error set. */
static int
begin_pass(Pass *pass, PyObject *first, PyObject *const *others, Py_ssize_t given, int stride)
{
    if (given % stride || given / stride >= MOST_NETWORKS) {
        PyErr_Format(PyExc_TypeError, "up to %d networks go side by side, each with its arguments", MOST_NETWORKS);
        return -1;
    }
    pass->with = kernels, pass->count = 1 + (int)(given / stride);
    pass->networks[0] = (Network *)first;
    for (int i = 1; i < pass->count; i++) {
        PyObject *other = others[(i - 1) * stride];
        if (Py_TYPE(other) != Py_TYPE(first)) {
            PyErr_Format(PyExc_TypeError, "a network must be a Network, got %R", other);
            return -1;
        }
        for (int j = 0; j < i; j++) {
            if (other == (PyObject *)pass->networks[j]) {
                PyErr_SetString(PyExc_ValueError, "a network cannot go beside itself");
                return -1;
            }
        }
        pass->networks[i] = (Network *)other;
    }
    return 0;
}

/* Whether rows of each network may be parts: they are for themselves, and all networks have as many layers. */
static int
may_be_cut(const Pass *pass)
{
    for (int i = 0; i < pass->count; i++) {
        const Network *self = pass->networks[i];
        if (self->layers != pass->networks[0]->layers || self->renormalises) {
            return 0;
        }
    }
    return 1;
}

static long
work_of(const Pass *pass)
{
    long work = 0;
    for (int i = 0; i < pass->count; i++) {
        work += pass->networks[i]->work;
    }
    return work;
}

/* Cut each network of a pass into parts: with the others one for each thread, by itself if they have different rows; -1 without memory. */
static int
cut(Pass *pass, const Team *team, long work, int different)
{
    pass->parts = may_be_cut(pass) ? parts_for(team, different ? 1 : pass->count, work) : 1;
    pass->parts = pass->parts < MOST_PARTS / pass->count ? pass->parts : MOST_PARTS / pass->count;
    for (int i = 0; i < pass->count; i++) {
        if (make_room(pass->networks[i], pass->parts) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Compute all parts of a pass; others may have the interpreter meanwhile, if it takes long. */
static void
pass_through(Pass *pass, Team *team, long work, Part part)
{
    PyThreadState *state = work >= LARGE ? PyEval_SaveThread() : NULL;
    compute_parts(team, pass->count * pass->parts, part, pass);
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

static int
take_inputs(Network *self, PyObject *inputs)
{
    const Layer *layer = self->layer;

    if (self->has_inputs) {
        self->has_inputs = 0;
        PyBuffer_Release(&self->inputs);
    }
    if (PyObject_GetBuffer(inputs, &self->inputs, PyBUF_FORMAT | PyBUF_STRIDES) < 0) {
        return -1;
    }
    self->has_inputs = 1;
    Py_buffer *view = &self->inputs;
    int bytes = layer->of_bytes;
    Py_ssize_t item = bytes ? 1 : sizeof(float);
    int right = view->ndim == 2 && view->format != NULL && strcmp(view->format, bytes ? "B" : "f") == 0 && view->shape[0] == self->rows &&
                view->shape[1] == layer->k && (layer->k == 1 || view->strides[1] == item) && view->strides[0] % item == 0 &&
                (self->rows < 2 || view->strides[0] >= item * layer->k);
    if (!right) {
        self->has_inputs = 0;
        PyBuffer_Release(view);
        PyErr_Format(PyExc_ValueError, "inputs must be %s of the shape (%ld, %ld), each row without gaps", bytes ? "uint8" : "float32",
                     self->rows, layer->k);
        return -1;
    }
    self->ldx = self->rows < 2 ? layer->k : (long)(view->strides[0] / item);
    return 0;
}

/* Overwrite what the layers give; `together`: batches are normalised by their own statistics, too, and running ones learn from them. */
static PyObject *
evaluated(PyObject *object, PyObject *const *args, Py_ssize_t given, int together)
{
    Pass pass;

    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "run(inputs, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 1, given - 1, 1) < 0) {
        return NULL;
    }
    for (int i = 0; i < pass.count; i++) {
        if (take_inputs(pass.networks[i], args[0]) < 0) {
            return NULL;
        }
        if (together && pass.networks[i]->fixed) {
            PyErr_SetString(PyExc_ValueError, "running statistics that may only be read do not learn");
            return NULL;
        }
        pass.networks[i]->together = together;
        for (int j = 0; j < pass.networks[i]->layers; j++) {
            const Layer *layer = &pass.networks[i]->layer[j];
            if (layer->type->prepare != NULL) {
                layer->type->prepare(pass.with, layer);
            }
        }
    }
    long work = work_of(&pass);
    Team *team = team_for(work);
    if (cut(&pass, team, work, 0) < 0) {
        return NULL;
    }
    pass_through(&pass, team, work, forwards);
    Py_RETURN_NONE;
}

/* run(inputs, *networks): overwrite what the layers give, and those of others for the same inputs */
static PyObject *
network_run(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    return evaluated(object, args, given, 0);
}

/* run_together(inputs, *networks): the same while learning */
static PyObject *
network_run_together(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    return evaluated(object, args, given, 1);
}

static Signature back_arguments, slopes_arguments, least_arguments; /* of one network: r rows, n outputs, s chosen rows, m inputs */

static int
parse_methods(void)
{
    int failed = parse(&back_arguments, "back", "gradient![r,n]") < 0;
    failed |= parse(&slopes_arguments, "slopes", "gradient![s,n] rows?:index[s<r] first:int > out[s,m]") < 0;
    return failed | (parse(&least_arguments, "least", "values[c,r] first:int > least[r] out[r,m]") < 0) ? -1 : 0;
}

/* Calls for the networks of a pass, with sizes that are known: UNKNOWN, but rows and outputs; NULL without memory */
static Call *
calls_of(const Pass *pass, Call *one)
{
    Call *calls = pass->count > 1 ? malloc((size_t)pass->count * sizeof(Call)) : one;
    for (int i = 0; calls != NULL && i < pass->count; i++) {
        const Network *self = pass->networks[i];
        memset(&calls[i].sizes, 0xff, sizeof calls[i].sizes);
        calls[i].held = 0, calls[i].sizes.r = self->rows, calls[i].sizes.n = self->layer[self->layers - 1].n;
    }
    return calls != NULL ? calls : (Call *)PyErr_NoMemory();
}

/* None, or NULL with the error that is set; calls are over. */
static PyObject *
done(const Pass *pass, Call *calls, Call *one)
{
    for (int i = 0; calls != NULL && i < pass->count; i++) {
        end_call(&calls[i]);
    }
    if (calls != one) {
        free(calls);
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* back(gradient, *networks): gradients of parameters and inputs from that of what was given last, which may be overwritten; each
 * other network has its own gradient behind it */
static PyObject *
network_back(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Pass pass;
    Call one;

    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "back(gradient, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 1, given - 1, 2) < 0) {
        return NULL;
    }
    long work = 2 * work_of(&pass);
    Team *team = team_for(work);
    Call *calls = calls_of(&pass, &one);
    for (int i = 0; i < pass.count && !PyErr_Occurred(); i++) {
        const Network *self = pass.networks[i];
        if (!self->has_inputs || !self->learns) {
            PyErr_SetString(PyExc_ValueError,
                            self->learns ? "run(inputs) comes before back(gradient)" : "a network that does not learn has no gradients");
        } else if (take_arguments(&calls[i], &back_arguments, args + 2 * i) == 0) {
            pass.g[i] = calls[i].value[0].out;
        }
    }
    if (PyErr_Occurred() || cut(&pass, team, work, 0) < 0) {
        return done(&pass, calls, &one);
    }
    PyThreadState *state = work >= 2 * LARGE ? PyEval_SaveThread() : NULL;
    for (int i = 0; i < pass.count; i++) {
        const Network *self = pass.networks[i];
        const Layer *last = self->layer + self->layers - 1;
        pass.with->activation_backward(last->kind, last->y, pass.g[i], self->rows * last->n);
    }
    if (pass.parts == 1) {
        compute_parts(team, pass.count, backwards, &pass);
    } else {
        for (pass.depth = pass.networks[0]->layers - 1; pass.depth >= 0; pass.depth--) {
            compute_parts(team, 2 * pass.parts * pass.count, layer_backwards, &pass);
        }
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return done(&pass, calls, &one);
}

/* Whether each of its layers has them, and memory for them */
static int
has_slopes(const Network *self)
{
    int all = self->passes;
    for (int i = 0; i < self->layers; i++) {
        all = all && self->layer[i].type->slopes != NULL;
    }
    return all;
}

static int
make_picked(Network *self)
{
    if (self->picked == NULL) {
        self->picked = malloc((size_t)(self->rows * self->most + 1) * sizeof(float));
        if (self->picked == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

/* A network's gradient, rows, first input and where the slopes go; -1 with an error set */
static int
take_rows(Pass *pass, int number, PyObject *const *args, Call *call)
{
    Network *self = pass->networks[number];
    const Layer *layer = self->layer;

    if (!has_slopes(self)) {
        PyErr_SetString(PyExc_ValueError, "a network that convolves, or only acts, has no slopes of some rows");
        return -1;
    }
    call->sizes.m = layer->k - pass->first;
    if (make_picked(self) < 0 || take_arguments(call, &slopes_arguments, args) < 0) {
        return -1;
    }
    long count = call->sizes.s;
    pass->g[number] = call->value[0].out, pass->rows[number] = call->value[1].i, pass->out[number] = call->value[3].out;
    pass->chosen[number] = count;
    if (pass->first < 0 || pass->first >= layer->k || (pass->rows[number] == NULL && count != self->rows) || count > self->rows) {
        PyErr_Format(PyExc_ValueError, "there are %ld rows of %ld inputs", self->rows, layer->k);
    } else if (!layer->type->some_inputs && pass->first) {
        PyErr_SetString(PyExc_ValueError, "some inputs alone are those of a linear layer");
    } else if (self->together) {
        PyErr_SetString(PyExc_ValueError, "rows that are normalised together have no slopes of their own");
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* slopes(gradient, rows, first, out, *networks): the gradient by the inputs from the `first` one on, of some rows, without gradients
 * of parameters; each other network has its own gradient, rows and out behind it */
static PyObject *
network_slopes(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Pass pass;
    Call one;

    if (given < 4) {
        PyErr_SetString(PyExc_TypeError, "slopes(gradient, rows, first, out, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 4, given - 4, 4) < 0) {
        return NULL;
    }
    pass.first = PyLong_AsLong(args[2]);
    long work = 0;
    Call *calls = calls_of(&pass, &one);
    for (int i = 0; i < pass.count && !PyErr_Occurred(); i++) {
        PyObject *const *own = i ? args + 5 + 4 * (i - 1) : args;
        PyObject *const of_one[4] = {own[0], own[1], args[2], own[i ? 2 : 3]};
        if (take_rows(&pass, i, of_one, &calls[i]) == 0) {
            work += pass.networks[i]->rows ? pass.networks[i]->work / pass.networks[i]->rows * pass.chosen[i] : 0;
        }
    }
    Team *team = team_for(work);
    if (!PyErr_Occurred() && cut(&pass, team, work, pass.count > 1) == 0) { /* a network may have most of the rows */
        pass_through(&pass, team, work, slopes);
    }
    return done(&pass, calls, &one);
}

/* Which of several networks says the least for each row, the first of those that do; what is no number is less. Rows of the first one
 * come first, how many of each in `chosen`. */
static void
least_of(Pass *pass, const float *values, float *least, int64_t *rows)
{
    long all = pass->networks[0]->rows, count = 0;
    for (int i = 0; i < pass->count; i++) {
        pass->rows[i] = rows + count;
        for (long row = 0; row < all; row++) {
            const float *said = values + row;
            int best = 0;
            for (int other = 1; other < pass->count && said[best * all] == said[best * all]; other++) {
                best = said[other * all] < said[best * all] || said[other * all] != said[other * all] ? other : best;
            }
            if (best == i) {
                rows[count++] = row;
                least[row] = said[best * all];
            }
        }
        pass->chosen[i] = rows + count - pass->rows[i];
    }
}

/* least(values, first, least, out, *networks): the least value of each row, of those that the networks have given, and its gradient by
 * the inputs from the `first` one on */
static PyObject *
network_least(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Pass pass;
    Call one;
    Network *self = (Network *)object;

    if (given < 4) {
        PyErr_SetString(PyExc_TypeError, "least(values, first, least, out, *networks)");
        return NULL;
    }
    if (begin_pass(&pass, object, args + 4, given - 4, 1) < 0) {
        return NULL;
    }
    Call *calls = calls_of(&pass, &one);
    if (calls == NULL) {
        return NULL;
    }
    long rows = self->rows, k = self->layer->k, first = PyLong_AsLong(args[1]), width = k - first;
    if (!PyErr_Occurred() && (first < 0 || first >= k)) {
        PyErr_Format(PyExc_ValueError, "there are %ld inputs", k);
    }
    for (int i = 0; i < pass.count && !PyErr_Occurred(); i++) {
        const Network *other = pass.networks[i];
        if (other->rows != rows || other->layer->k != k || other->layer[other->layers - 1].n != 1 || other->layer[other->layers - 1].kind != NONE) {
            PyErr_SetString(PyExc_ValueError, "networks that say the least have the same inputs, and each gives one number for a row");
        } else if (other->together || !has_slopes(other) || !other->layer->type->some_inputs) {
            PyErr_SetString(PyExc_ValueError, "their rows are for themselves, and go through a linear layer first");
        } else {
            make_picked(pass.networks[i]);
        }
    }
    calls[0].sizes.c = pass.count, calls[0].sizes.m = width;
    if (PyErr_Occurred() || take_arguments(&calls[0], &least_arguments, args) < 0) {
        return done(&pass, calls, &one);
    }
    float *least = calls[0].value[2].out, *out = calls[0].value[3].out;
    int64_t *memory = malloc((size_t)(rows + 1) * (sizeof(int64_t) + (size_t)(width + 1) * sizeof(float)));
    if (memory == NULL) {
        PyErr_NoMemory();
    }
    long work = work_of(&pass) / pass.count;
    Team *team = team_for(work);
    if (memory == NULL || cut(&pass, team, work, pass.count > 1) < 0) {
        free(memory);
        return done(&pass, calls, &one);
    }
    float *g = (float *)(memory + rows + 1), *found = g + rows + 1;
    least_of(&pass, calls[0].value[0].f, least, memory);
    for (long row = 0; row < rows; row++) {
        g[row] = 1.0f;
    }
    pass.first = first;
    for (int i = 0; i < pass.count; i++) {
        long before = pass.rows[i] - memory;
        pass.g[i] = g + before, pass.out[i] = found + before * width;
    }
    pass_through(&pass, team, work, slopes);
    for (long i = 0; i < rows; i++) {
        memcpy(out + memory[i] * width, found + i * width, (size_t)width * sizeof(float));
    }
    free(memory);
    return done(&pass, calls, &one);
}

#define METHOD(name, text) {#name, (PyCFunction)(void (*)(void))network_##name, METH_FASTCALL, text}
static PyMethodDef network_methods[] = {
    METHOD(run, "Overwrite what the layers give."),
    METHOD(run_together, "The same, batches being normalised by their own statistics, from which running ones learn."),
    METHOD(back, "Overwrite the gradients of parameters and inputs."),
    METHOD(slopes, "Gradients by inputs alone, of some rows."),
    METHOD(least, "The least that several networks say of each row, and its gradient by the inputs."),
    METHOD(observe, "Where an actor's observations lie, and where its greedy actions go."),
    {"take_weights", network_take_weights, METH_NOARGS, "Lay out the weights that act() and greedy() go by from now on."},
    {"act", network_act, METH_O, "Overwrite what the layers give, for the observations of a step."},
    {"greedy", network_greedy, METH_O, "The same; returns the greedy actions."},
    {"greedy_of_all", (PyCFunction)(void (*)(void))network_greedy_of_all, METH_FASTCALL | METH_CLASS,
     "The greedy actions of each network of a tuple, for the observations of a step."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot network_slots[] = {
    {Py_tp_new, network_new},
    {Py_tp_dealloc, network_dealloc},
    {Py_tp_methods, network_methods},
    {Py_tp_doc, "Network(rows, layers): layers that follow each other, for one number of rows."},
    {0, NULL},
};
static PyType_Spec network_spec = {
    .name = "_products.Network",
    .basicsize = sizeof(Network),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = network_slots,
};
