/* Networks as actors evaluate them: observations lie where they always do, and nothing is learned.
 *
 * Weights are laid out once for all steps until take_weights() is called again: somebody else writes them between two rounds. Sums are added
 * up as run() does it, so that what acts and what learns have the same bits, whatever the number of rows.
 */

/* What an actor sees, and where its greedy actions go */
struct Acting {
    Py_buffer seen, actions;
    PyObject *answer; /* the array of actions */
    Py_ssize_t steps;
    int doubles, one_hot;
    float *floats; /* of a step, where they are not floats */
    const Kernels *with; /* what weights were laid out by */
    float *memory, **panels; /* and these, of each layer; NULL: it has none */
};

static void
acting_free(struct Acting *acting)
{
    if (acting != NULL) {
        PyBuffer_Release(&acting->seen); /* does nothing for a view that was not taken */
        PyBuffer_Release(&acting->actions);
        Py_XDECREF(acting->answer);
        free(acting->floats);
        free(acting->memory);
        free(acting->panels);
        free(acting);
    }
}

/* Elements of an array without gaps, aligned, of one of these formats; the format, or -1 with an error set. */
static int
elements_of(PyObject *array, const char *what, const char *formats, int writable, Py_buffer *view)
{
    if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        return -1;
    }
    /* numpy writes one letter for what is native and aligned, more for anything else. */
    if (view->format != NULL && strlen(view->format) == 1 && strchr(formats, view->format[0]) != NULL) {
        return view->format[0];
    }
    PyErr_Format(PyExc_ValueError, "%s: expected aligned elements of a kind in \"%s\", got \"%s\"", what, formats,
                 view->format ? view->format : "B");
    return -1;
}

enum { LINE = 16 }; /* numbers of a line of the cache, at which panels begin */

/* Whether the first layer takes the numbers of one-hot observations as they are */
static int
takes_numbers(const Network *self, const struct Acting *acting)
{
    return acting->one_hot && self->layer->type->act_one_hot != NULL;
}

/* Numbers that are laid out for a layer */
static long
panels_of(const Network *self, const struct Acting *acting, int number)
{
    const LayerType *type = self->layer[number].type;
    return type->panels != NULL && (number > 0 || !takes_numbers(self, acting)) ? type->panels(&self->layer[number]) : 0;
}

static void
pack_all(const Network *self, struct Acting *acting)
{
    acting->with = kernels;
    for (int i = 0; i < self->layers; i++) {
        if (acting->panels[i] != NULL) {
            self->layer[i].type->pack(acting->with, &self->layer[i], acting->panels[i]);
        }
    }
}

static int
observe(const Network *self, struct Acting *acting, PyObject *observations, int one_hot, PyObject *actions)
{
    Py_buffer *seen = &acting->seen;
    int format = elements_of(observations, "observations", one_hot ? "lq" : "fd", 0, seen);
    long k = self->layer->k;

    if (format < 0 || elements_of(actions, "actions", "lq", 1, &acting->actions) < 0) {
        return -1;
    }
    if (seen->ndim < 2 || seen->shape[1] != self->rows || seen->len != seen->itemsize * seen->shape[0] * self->rows * (one_hot ? 1 : k)) {
        PyErr_Format(PyExc_ValueError, "observations: expected the shape (steps, %ld, ...) with %ld numbers for each row", self->rows,
                     one_hot ? 1 : k);
        return -1;
    }
    if (acting->actions.ndim != 1 || acting->actions.shape[0] != self->rows) {
        PyErr_Format(PyExc_ValueError, "actions: expected the shape (%ld,)", self->rows);
        return -1;
    }
    acting->steps = seen->shape[0], acting->doubles = format == 'd', acting->one_hot = one_hot, acting->answer = Py_NewRef(actions);
    acting->floats = one_hot || acting->doubles ? calloc((size_t)(self->rows * k + 1), sizeof(float)) : NULL;
    long size = 0;
    for (int i = 0; i < self->layers; i++) {
        size += panels_of(self, acting, i);
    }
    acting->memory = malloc((size_t)(size + LINE) * sizeof(float));
    acting->panels = calloc((size_t)self->layers, sizeof(float *));
    if (((one_hot || acting->doubles) && acting->floats == NULL) || acting->memory == NULL || acting->panels == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    float *next = (float *)(((uintptr_t)acting->memory + LINE * sizeof(float) - 1) / (LINE * sizeof(float)) * (LINE * sizeof(float)));
    for (int i = 0; i < self->layers; i++) {
        long needed = panels_of(self, acting, i);
        acting->panels[i] = needed ? next : NULL;
        next += needed;
    }
    pack_all(self, acting);
    return 0;
}

/* observe(observations, one_hot, actions): where observations lie, (steps, rows, ...), and where greedy actions go */
static PyObject *
network_observe(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Network *self = (Network *)object;
    int one_hot = given == 3 ? PyObject_IsTrue(args[1]) : -1;

    if (one_hot < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "observe(observations, one_hot, actions)");
        }
        return NULL;
    }
    if (self->convolves) {
        PyErr_SetString(PyExc_ValueError, "a network that convolves has run() alone");
        return NULL;
    }
    struct Acting *acting = calloc(1, sizeof(struct Acting));
    if (acting == NULL) {
        return PyErr_NoMemory();
    }
    if (observe(self, acting, args[0], one_hot, args[2]) < 0) {
        acting_free(acting);
        return NULL;
    }
    acting_free(self->acting);
    self->acting = acting;
    Py_RETURN_NONE;
}

/* What has its weights laid out, or NULL with an error set */
static struct Acting *
acting_of(const Network *self)
{
    if (self->acting == NULL) {
        PyErr_SetString(PyExc_ValueError, "observe(observations, one_hot, actions) comes before");
    }
    return self->acting;
}

static PyObject *
network_take_weights(PyObject *object, PyObject *nothing)
{
    Network *self = (Network *)object;
    struct Acting *acting = acting_of(self);
    if (acting == NULL) {
        return NULL;
    }
    pack_all(self, acting);
    Py_RETURN_NONE;
}

/* The observations of a step as rows of floats, which are not written where nobody reads them; NULL with an error set. */
static const float *
floats_at(const Network *self, Py_ssize_t step)
{
    const struct Acting *acting = self->acting;
    long rows = self->rows, k = self->layer->k;

    if (acting->one_hot) {
        const int64_t *numbers = (const int64_t *)acting->seen.buf + step * rows;
        int written = !takes_numbers(self, acting);
        if (written) {
            memset(acting->floats, 0, (size_t)(rows * k) * sizeof(float));
        }
        for (long row = 0; row < rows; row++) {
            if (numbers[row] < 0 || numbers[row] >= k) {
                PyErr_Format(PyExc_IndexError, "an observation must be below %ld and not negative, got %lld", k, (long long)numbers[row]);
                return NULL;
            }
            if (written) {
                acting->floats[row * k + numbers[row]] = 1.0f;
            }
        }
        return acting->floats;
    }
    if (!acting->doubles) {
        return (const float *)acting->seen.buf + step * rows * k;
    }
    const double *from = (const double *)acting->seen.buf + step * rows * k;
    for (long e = 0; e < rows * k; e++) {
        acting->floats[e] = (float)from[e];
    }
    return acting->floats;
}

/* Evaluate a network for the observations of a step; -1 with an error set. */
static int
act_at(const Network *self, Py_ssize_t step)
{
    const struct Acting *acting = acting_of(self);

    if (acting == NULL) {
        return -1;
    }
    if (step < 0 || step >= acting->steps) {
        PyErr_Format(PyExc_IndexError, "there are %zd steps, got step %zd", acting->steps, step);
        return -1;
    }
    const float *x = floats_at(self, step);
    if (x == NULL) {
        return -1;
    }
    const int64_t *numbers = takes_numbers(self, acting) ? (const int64_t *)acting->seen.buf + step * self->rows : NULL;
    Piece p = {.with = acting->with, .all = self->rows, .rows = self->rows};
    for (int i = 0; i < self->layers; i++, numbers = NULL) {
        const Layer *layer = p.layer = &self->layer[i];
        p.x = x, p.ldx = layer->k, p.y = layer->y;
        if (numbers != NULL) {
            layer->type->act_one_hot(&p, numbers);
        } else if (acting->panels[i] != NULL) {
            layer->type->act(&p, acting->panels[i]);
        } else {
            layer->type->forward(&p);
            if (!layer->type->activates) {
                p.with->activation(layer->kind, layer->y, self->rows * layer->n);
            }
        }
        x = layer->y;
    }
    return 0;
}

/* Where the outputs of each row are largest; at a NaN numpy stops, too. */
static void
take_greedy(const Network *self)
{
    const Layer *last = self->layer + self->layers - 1;
    int64_t *actions = self->acting->actions.buf;

    for (long row = 0; row < self->rows; row++) {
        const float *values = last->y + row * last->n;
        long best = 0;
        for (long j = 1; j < last->n && values[best] == values[best]; j++) {
            best = values[j] <= values[best] ? best : j;
        }
        actions[row] = best;
    }
}

static PyObject *
network_act(PyObject *object, PyObject *number)
{
    Py_ssize_t step = PyNumber_AsSsize_t(number, PyExc_IndexError);

    if ((step == -1 && PyErr_Occurred()) || act_at((Network *)object, step) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
network_greedy(PyObject *object, PyObject *number)
{
    Network *self = (Network *)object;
    Py_ssize_t step = PyNumber_AsSsize_t(number, PyExc_IndexError);

    if ((step == -1 && PyErr_Occurred()) || act_at(self, step) < 0) {
        return NULL;
    }
    take_greedy(self);
    return Py_NewRef(self->acting->answer);
}

/* greedy_of_all(networks, step) */
static PyObject *
network_greedy_of_all(PyObject *type, PyObject *const *args, Py_ssize_t given)
{
    if (given != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "greedy_of_all() takes a tuple of Networks and a step");
        return NULL;
    }
    Py_ssize_t step = PyNumber_AsSsize_t(args[1], PyExc_IndexError), count = PyTuple_Size(args[0]);
    if (step == -1 && PyErr_Occurred()) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *network = PyTuple_GetItem(args[0], i);
        if ((PyObject *)Py_TYPE(network) != type) {
            PyErr_Format(PyExc_TypeError, "networks: expected a tuple of Networks, got %R in it", network);
            return NULL;
        }
        if (act_at((Network *)network, step) < 0) {
            return NULL;
        }
        take_greedy((Network *)network);
    }
    Py_RETURN_NONE;
}
