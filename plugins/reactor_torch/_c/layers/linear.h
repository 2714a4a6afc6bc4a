/* y = x w^T + b, and an activation. An actor has w laid out as panels beforehand, for it has few rows each time; the order of sums is one.
 *
 *   grad_w = g^T x,  grad_b = sum over rows of g,  grad_x = g w
 */

static int
linear_make(Network *self, Layer *layer, PyObject *more, Sizes *n)
{
    layer->products = layer->k > THIN ? layer->k : THIN;
    return 0;
}

/* See matmul_outer(). */
static long
linear_room(const Layer *layer, long rows)
{
    long levels = 1;
    for (long some = SUPER; some < rows; some *= 2) {
        levels++;
    }
    return TILES(layer->k > layer->n ? layer->k : layer->n) + levels * layer->k * layer->n;
}

static void
linear_forward(const Piece *p)
{
    const Layer *of = p->layer;
    p->with->linear(of->kind, p->rows, of->k, of->n, p->x, p->ldx, of->w, of->b, p->y, p->left);
}

static long
linear_panels(const Layer *of)
{
    return of->n <= FEW ? 0 : of->k * ((of->n + WIDEST - 1) / WIDEST * WIDEST);
}

static void
linear_pack(const Kernels *with, const Layer *of, float *panels)
{
    with->pack_panels(of->k, of->n, of->w, of->k, 1, panels);
}

static void
linear_act(const Piece *p, const float *panels)
{
    const Layer *of = p->layer;
    if (of->b == NULL) {
        memset(p->y, 0, (size_t)(p->rows * of->n) * sizeof(float));
    } else {
        for (long row = 0; row < p->rows; row++) {
            memcpy(p->y + row * of->n, of->b, (size_t)of->n * sizeof(float));
        }
    }
    p->with->add_packed(p->rows, of->k, of->n, p->x, p->ldx, panels, p->y, of->n);
    p->with->activation(of->kind, p->y, p->rows * of->n);
}

/* Of one-hot inputs: a column of the weights */
static void
linear_act_one_hot(const Piece *p, const int64_t *numbers)
{
    const Layer *of = p->layer;
    for (long row = 0; row < p->rows; row++) {
        for (long j = 0; j < of->n; j++) {
            p->y[row * of->n + j] = of->w[j * of->k + numbers[row]] + (of->b != NULL ? of->b[j] : 0.0f);
        }
    }
    p->with->activation(of->kind, p->y, p->rows * of->n);
}

static void
linear_backward_parameters(const Piece *p, const float *g, long at, long parts)
{
    const Layer *of = p->layer;
    long begin = begin_of(of->n, at, parts, EVEN), end = begin_of(of->n, at + 1, parts, EVEN);
    if (end <= begin) {
        return;
    }
    p->with->matmul_outer(p->all, end - begin, of->k, g + begin, of->n, p->x, p->ldx, of->dw + begin * of->k, p->scratch);
    if (of->db != NULL) {
        p->with->column_sums(VALUES, p->all, end - begin, g + begin, of->n, NULL, NULL, 0, of->db + begin);
    }
}

/* The product is through the activation at once. */
static void
linear_backward_inputs(const Piece *p, const float *g)
{
    const Layer *of = p->layer;
    p->with->matmul(p->rows, of->n, of->k, g, of->n, of->w, of->k, 0, p->grad_x, of->k, NULL, p->kind, p->values, p->left);
}

static void
linear_slopes(const Piece *p, float *g, const int64_t *picked, long first, float *to)
{
    const Layer *of = p->layer;
    long k = of->k - first;
    p->with->matmul(p->rows, of->n, k, g, of->n, of->w + first, of->k, 0, to, k, NULL, p->kind, p->values, p->left);
}

static LayerType linear_type = {
    .name = "linear", .parameters = "weight[n,k] bias?[n]", .changes_width = 1, .some_inputs = 1, .make = linear_make,
    .room = linear_room, .forward = linear_forward, .activates = 1, .panels = linear_panels, .pack = linear_pack,
    .act = linear_act, .act_one_hot = linear_act_one_hot, .backward_parameters = linear_backward_parameters,
    .backward_inputs = linear_backward_inputs, .differentiates = 1, .slopes = linear_slopes,
};
