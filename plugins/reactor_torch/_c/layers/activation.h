/* Nothing but an activation. */

static void
activation_forward(const Piece *p)
{
    for (long row = 0; row < p->rows; row++) {
        memcpy(p->y + row * p->layer->n, p->x + row * p->ldx, (size_t)p->layer->n * sizeof(float));
    }
}

static void
activation_slopes(const Piece *p, float *g, const int64_t *picked, long first, float *to)
{
    memcpy(to, g, (size_t)(p->rows * p->layer->n) * sizeof(float));
}

static void
activation_backward(const Piece *p, float *g)
{
    if (p->grad_x != NULL) {
        activation_slopes(p, g, NULL, 0, p->grad_x);
    }
}

static LayerType activation_type = {
    .name = "activation", .parameters = "", .forward = activation_forward, .backward = activation_backward, .slopes = activation_slopes,
};
