/* Nothing but an activation. */

static void
activation_forward(const Piece *p)
{
    const Layer *of = p->layer;
    long rows = p->end - p->begin;
    float *y = of->y + p->begin * of->n;
    for (long row = 0; row < rows; row++) {
        memcpy(y + row * of->n, p->x + (p->begin + row) * p->ldx, (size_t)of->n * sizeof(float));
    }
    p->with->activation(of->kind, y, rows * of->n);
}

static void
activation_slopes(const Piece *p, float *g, const int64_t *picked, long first, float *to)
{
    long count = (p->end - p->begin) * p->layer->n;
    (void)picked;
    (void)first;
    memcpy(to, g, (size_t)count * sizeof(float));
    if (p->values != NULL) {
        p->with->activation_backward(p->kind, p->values, to, count);
    }
}

static void
activation_backward(const Piece *p, float *g)
{
    if (p->layer->dx != NULL) {
        activation_slopes(p, g, NULL, 0, p->layer->dx);
    }
}

static LayerType activation_type = {
    .name = "activation", .parameters = "", .forward = activation_forward, .backward = activation_backward, .slopes = activation_slopes,
};
