/* Images, which lie as pixels x channels, flattened as torch does it: channels x pixels. */

/* Rows of `some` x `others` numbers, each turned over. */
static void
turn_over(long rows, long some, long others, const float *from, long ld, float *to, long ldt)
{
    for (long row = 0; row < rows; row++, from += ld, to += ldt) {
        for (long j = 0; j < others; j++) {
            for (long i = 0; i < some; i++) {
                to[j * some + i] = from[i * others + j];
            }
        }
    }
}

static int
flatten_make(Network *self, Layer *layer, PyObject *more, Sizes *n)
{
    long channels = PyLong_AsLong(more);
    if (!PyErr_Occurred() && (channels < 1 || layer->n % channels)) {
        PyErr_Format(PyExc_ValueError, "no images with %ld channels have %ld numbers", channels, layer->n);
    }
    layer->own = PyErr_Occurred() ? NULL : malloc(sizeof(long));
    if (layer->own == NULL) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    *(long *)layer->own = channels;
    return 0;
}

static void
flatten_forward(const Piece *p)
{
    long n = p->layer->n, channels = *(long *)p->layer->own;
    turn_over(p->rows, n / channels, channels, p->x, p->ldx, p->y, n);
}

static void
flatten_backward_inputs(const Piece *p, const float *g)
{
    long n = p->layer->n, channels = *(long *)p->layer->own;
    turn_over(p->rows, channels, n / channels, g, n, p->grad_x, n);
}

static LayerType flatten_type = {
    .name = "flatten", .parameters = "", .make = flatten_make, .destroy = free_own, .forward = flatten_forward,
    .backward_inputs = flatten_backward_inputs,
};
