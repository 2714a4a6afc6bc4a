/* Convolutions of images that lie as height x width x channels: how weights and gradients are laid out, and what is needed besides. */

typedef struct {
    Windows windows; /* of images with their borders */
    long height, width, border_rows, border_columns; /* of images without them, and of what is put around */
    long units, leaf; /* of the gradient of weights; images whose windows are one chain */
    long size; /* of a leaf: numbers of all units, and of biases behind them */
    float *known; /* weights that are laid out, as they were given */
    float *weights; /* as output x window */
    float *panels;
    const Kernels *laid_by;
    float divisor; /* of bytes; 0 if the images are float32 */
    int planes; /* whether bytes are channels x height x width */
    float *bordered; /* images with their borders, as float32 */
    float *leaves; /* gradients of weights that wait for others, one below the other */
} Images;

enum { CHAIN = 256 }; /* windows of a chain, if there are several images in it */
enum { TOGETHER = 4 }; /* images that go through all convolutions before the next ones do */
enum { NEAR = 1 << 16 }; /* numbers that a near cache keeps */

static void
images_free(Images *images)
{
    if (images != NULL) {
        free(images->known);
        free(images->weights);
        free(images->panels);
        free(images->bordered);
        free(images->leaves);
        free(images);
    }
}

INLINE long
window_size(const Windows *of)
{
    return of->tall * of->wide * of->channels;
}

INLINE long
image_size(const Windows *of)
{
    return of->height * of->width * of->channels;
}

/* Images whose gradients by windows stay in a near cache, one at least */
INLINE long
images_near(const Images *images)
{
    const Windows *of = &images->windows;
    long most = NEAR / (of->rows * of->columns * window_size(of));
    return most < 1 ? 1 : most < images->leaf ? most : images->leaf;
}

/* A tile of gradients of a leaf; gradients by windows, and images with borders, of so many images as are computed at a time */
INLINE long
images_room(const Images *images)
{
    const Windows *of = &images->windows;
    long pixels = of->rows * of->columns;
    return images->leaf * pixels * HIGH + images_near(images) * (pixels * window_size(of) + image_size(of));
}

/* From (height, width, channels, kernel's height and width, stride down and right, padding down and right), and for bytes what they are
 * divided by (1 or 255) and whether each channel lies by itself: NULL with an error set. */
static Images *
images_new(PyObject *given, long rows, long k, long n, int learns)
{
    Images *images = calloc(1, sizeof(Images));
    if (images == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    Windows *of = &images->windows;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a layer that convolves is given (height, width, channels, kernel, stride and padding)");
        goto failed;
    }
    if (!PyArg_ParseTuple(given, "lllllllll|fp:images", &images->height, &images->width, &of->channels, &of->tall, &of->wide, &of->down,
                          &of->right, &images->border_rows, &images->border_columns, &images->divisor,
                          &images->planes)) {
        goto failed;
    }
    of->height = images->height + 2 * images->border_rows, of->width = images->width + 2 * images->border_columns;
    int right = images->height > 0 && images->width > 0 && of->channels > 0 && of->tall > 0 && of->wide > 0 && of->down > 0 &&
                of->right > 0 && images->border_rows >= 0 && images->border_columns >= 0 && of->height >= of->tall &&
                of->width >= of->wide && images->height * images->width * of->channels == k &&
                (images->divisor == 0.0f || images->divisor == 1.0f || images->divisor == 255.0f);
    if (right) {
        of->rows = (of->height - of->tall) / of->down + 1, of->columns = (of->width - of->wide) / of->right + 1;
        of->outputs = n / (of->rows * of->columns);
        right = of->outputs > 0 && of->outputs * of->rows * of->columns == n;
    }
    if (!right) {
        PyErr_Format(PyExc_ValueError, "no convolution with this kernel, stride and padding makes %ld numbers of images with %ld", n, k);
        goto failed;
    }
    long pixels = of->rows * of->columns, size = window_size(of), wide = (of->outputs + WIDEST - 1) / WIDEST * WIDEST, levels = 1;
    images->units = of->tall * ((of->wide * of->channels + UNIT - 1) / UNIT);
    images->leaf = pixels < CHAIN ? CHAIN / pixels : 1;
    for (long some = images->leaf; some < rows; some *= 2) {
        levels++;
    }
    images->known = malloc((size_t)(of->outputs * size) * sizeof(float));
    images->weights = malloc((size_t)(of->outputs * size) * sizeof(float));
    images->panels = malloc((size_t)(wide * size) * sizeof(float));
    int copied = images->border_rows || images->border_columns || images->divisor != 0.0f;
    if (copied) {
        images->bordered = calloc((size_t)(rows * image_size(of) + 1), sizeof(float));
    }
    images->size = of->outputs * (images->units * UNIT + 1);
    images->leaves = learns ? malloc((size_t)(levels * images->size) * sizeof(float)) : NULL;
    if (images->known == NULL || images->weights == NULL || images->panels == NULL || (learns && images->leaves == NULL) ||
        (copied && images->bordered == NULL)) {
        PyErr_NoMemory();
        goto failed;
    }
    return images;
failed:
    images_free(images);
    return NULL;
}

/* Lay out weights given as output x channel x height x width. Those that an actor has stay the same for a whole rollout. */
static void
lay_out_weights(const Kernels *with, Images *images, const float *w)
{
    const Windows *of = &images->windows;
    long area = of->tall * of->wide, size = window_size(of);
    size_t bytes = (size_t)(of->outputs * size) * sizeof(float);

    if (images->laid_by == with && memcmp(images->known, w, bytes) == 0) {
        return;
    }
    memcpy(images->known, w, bytes);
    images->laid_by = with;
    for (long output = 0; output < of->outputs; output++, w += size) {
        float *to = images->weights + output * size;
        for (long channel = 0; channel < of->channels; channel++) {
            for (long i = 0; i < area; i++) {
                to[i * of->channels + channel] = w[channel * area + i];
            }
        }
    }
    with->pack_panels(size, of->outputs, images->weights, size, 1, images->panels);
}

/* Put an image within its borders. */
static void
put_image(const Kernels *with, const Images *images, const void *from, float *to)
{
    const Windows *of = &images->windows;
    const unsigned char *bytes = from;
    long area = images->height * images->width, whole = images->border_columns == 0; /* rows follow each other */
    long runs = whole ? 1 : images->height, run = area / runs;

    to += (images->border_rows * of->width + images->border_columns) * of->channels;
    for (long i = 0; i < runs; i++, to += of->width * of->channels) {
        if (images->divisor != 0.0f) {
            with->bytes_to_floats(run, of->channels, bytes + i * run * (images->planes ? 1 : of->channels), images->planes ? area : 0, images->divisor, to);
        } else {
            memcpy(to, (const float *)from + i * run * of->channels, (size_t)(run * of->channels) * sizeof(float));
        }
    }
}

/* `count` images from `begin` on, whose numbers or bytes are `stride` apart */
static void
images_forwards(const Kernels *with, const Images *images, Kind kind, long begin, long count, const void *x, long stride, const float *bias,
                float *y)
{
    const Windows *of = &images->windows;
    long size = image_size(of), item = images->divisor != 0.0f ? 1 : sizeof(float);
    float *bordered = images->bordered == NULL ? NULL : images->bordered + begin * size;

    for (long at = 0; at < count && bordered != NULL; at++) {
        put_image(with, images, (const char *)x + at * stride * item, bordered + at * size);
    }
    with->conv(of, count, bordered == NULL ? x : bordered, bordered == NULL ? stride : size, images->panels, bias, kind, y);
}

/* Add a leaf to the one above it: some of its units, and biases if the first one is among them. */
INLINE void
add_leaf(const Kernels *with, const Images *images, float *leaf, long begin, long some)
{
    long biases = images->units * images->windows.outputs * UNIT;
    with->add(leaf - images->size + begin, leaf + begin, some);
    if (begin == 0) {
        with->add(leaf - images->size + biases, leaf + biases, images->windows.outputs);
    }
}

/* Units `begin` to `end` of the gradient of weights, which is laid out as they are, and with the first one that of biases */
static void
units_backwards(const Kernels *with, const Images *images, long rows, const float *x, long stride, const float *g, long begin, long end,
                float *dw, float *db, float *tile)
{
    const Windows *of = &images->windows;
    long n = of->rows * of->columns * of->outputs, run = of->wide * of->channels, in_row = (run + UNIT - 1) / UNIT;
    long from = begin * of->outputs * UNIT, some = (end - begin) * of->outputs * UNIT;
    float *leaf = images->leaves, *first = leaf + from, *biases = leaf + images->units * of->outputs * UNIT;
    unsigned done = 0;

    if (images->bordered != NULL) {
        x = images->bordered, stride = image_size(of);
    }
    if (rows == 0) {
        memset(images->leaves, 0, (size_t)images->size * sizeof(float));
    }
    for (long at = 0; at < rows; at += images->leaf, done++, leaf += images->size) {
        long count = rows - at < images->leaf ? rows - at : images->leaf;
        with->conv_weight_leaf(of, count, x + at * stride, stride, g + at * n, begin, end, leaf + from,
                            begin ? NULL : leaf + (biases - images->leaves), tile);
        for (unsigned bits = done; bits & 1; bits >>= 1, leaf -= images->size) {
            add_leaf(with, images, leaf, from, some);
        }
    }
    for (leaf -= images->size; leaf > images->leaves; leaf -= images->size) {
        add_leaf(with, images, leaf, from, some);
    }
    if (begin == 0) {
        memcpy(db, biases, (size_t)of->outputs * sizeof(float));
    }
    for (long unit = begin; unit < end; unit++) {
        long column = unit % in_row * UNIT, until = run - column < UNIT ? run - column : UNIT;
        for (long output = 0; output < of->outputs; output++, first += UNIT) {
            float *to = dw + output * window_size(of) + unit / in_row * of->wide;
            for (long i = 0; i < until; i++) {
                to[(column + i) % of->channels * of->tall * of->wide + (column + i) / of->channels] = first[i];
            }
        }
    }
}

/* Gradients by images; scratch has images_room numbers. */
static void
images_backwards(const Kernels *with, const Images *images, long count, const float *g, Kind kind, const float *values, float *dx,
                 float *scratch)
{
    const Windows *of = &images->windows;
    long pixels = of->rows * of->columns, size = window_size(of), line = images->width * of->channels, k = images->height * line;
    long most = images_near(images);
    float *by_windows = scratch + images->leaf * pixels * HIGH, *bordered = by_windows + most * pixels * size; /* behind a tile */

    for (long at = 0, some; at < count; at += some) {
        some = count - at < most ? count - at : most;
        float *to = dx + at * k, *sums = images->bordered == NULL ? to : bordered;
        with->matmul(some * pixels, of->outputs, size, g + at * pixels * of->outputs, of->outputs, images->weights, size, 0, by_windows, size,
                       NULL, NONE, NULL, NULL);
        memset(sums, 0, (size_t)(some * image_size(of)) * sizeof(float));
        with->conv_backward_input(of, some, by_windows, sums);
        for (long image = 0; image < some && sums != to; image++) {
            const float *from = sums + image * image_size(of) + (images->border_rows * of->width + images->border_columns) * of->channels;
            for (long row = 0; row < images->height; row++) {
                memcpy(to + image * k + row * line, from + row * of->width * of->channels, (size_t)line * sizeof(float));
            }
        }
        if (values != NULL) { /* while they are in a near cache */
            with->activation_backward(kind, values + at * k, to, some * k);
        }
    }
}

/* ---------------------------------------------------------------- the layer */

static int
convolution_make(Network *self, Layer *layer, PyObject *given, Sizes *n)
{
    Images *images = layer->own = images_new(given, self->rows, layer->k, layer->n, layer->learns);
    if (images == NULL) {
        return -1;
    }
    n->o = images->windows.outputs, n->w = layer->products = window_size(&images->windows);
    layer->of_bytes = images->divisor != 0.0f;
    return 0;
}

static void
convolution_destroy(Layer *layer)
{
    images_free(layer->own);
}

static long
convolution_room(const Layer *layer, long rows)
{
    return images_room(layer->own);
}

static void
convolution_prepare(const Kernels *with, const Layer *layer)
{
    lay_out_weights(with, layer->own, layer->w);
}

static void
convolution_forward(const Piece *p)
{
    images_forwards(p->with, p->layer->own, p->layer->kind, p->begin, p->rows, p->x, p->ldx, p->layer->b, p->y);
}

static void
convolution_backward_parameters(const Piece *p, const float *g, long at, long parts)
{
    const Images *images = p->layer->own;
    long begin = begin_of(images->units, at, parts, 1), end = begin_of(images->units, at + 1, parts, 1);
    if (end > begin) {
        units_backwards(p->with, images, p->all, p->x, p->ldx, g, begin, end, p->layer->dw, p->layer->db, p->scratch);
    }
}

static void
convolution_backward_inputs(const Piece *p, const float *g)
{
    images_backwards(p->with, p->layer->own, p->rows, g, p->kind, p->values, p->grad_x, p->scratch);
}

static LayerType convolution_type = {
    .name = "convolution", .parameters = "weight[o,w] bias[o]", .changes_width = 1, .convolves = 1, .make = convolution_make,
    .destroy = convolution_destroy, .room = convolution_room, .prepare = convolution_prepare, .forward = convolution_forward, .activates = 1,
    .backward_parameters = convolution_backward_parameters, .backward_inputs = convolution_backward_inputs, .differentiates = 1,
};
