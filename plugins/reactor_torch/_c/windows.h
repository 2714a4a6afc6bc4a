/* Convolutions of images that lie in memory as height x width x channels, for one form; a part of vector.h.
 *
 * A window's rows lie where the image is: those of neighbouring windows are so far apart as a stride is long, so that a tile's rows are
 * windows side by side, and nothing is copied. A number of a forward pass is one chain over the window's rows, columns and channels,
 * begun with the bias. A gradient of weights is a chain over the windows of a leaf's images, and leaves are added as a tree.
 */

/* ---------------------------------------------------------------- bytes of pixels become numbers */

/* to[i] = from[i] / divisor, rounded as a division is: what a reciprocal's rounding has cost is added again, q + (x - d q) / d with q = x (1 / d).
 * Without it 126 of the 256 quotients by 255 would have another last bit; with it none has (tried for all bytes, by 1 and by 255). */
TARGET INLINE void
NAME(quotients)(long count, const unsigned char *RESTRICT from, float divisor, float *RESTRICT to)
{
    for (long i = 0; i < count; i++) {
#if WIDTH > 1
        float x = from[i], part = x * (1.0f / divisor);
        to[i] = __builtin_fmaf(__builtin_fmaf(-divisor, part, x), 1.0f / divisor, part);
#else
        to[i] = (float)from[i] / divisor;
#endif
    }
}

/* Pixels one after the other, or (plane) their channels so far apart */
TARGET static void
NAME(bytes_to_floats)(long count, long channels, const unsigned char *from, long plane, float divisor, float *to)
{
    uint32_t together[512];

    if (!plane) {
        NAME(quotients)(count * channels, from, divisor, to);
    } else if (channels == 4 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        for (long begin = 0, some; begin < count; begin += some, from += some) {
            some = count - begin < 512 ? count - begin : 512;
            for (long i = 0; i < some; i++) {
                together[i] = from[i] | (uint32_t)from[plane + i] << 8 | (uint32_t)from[2 * plane + i] << 16 | (uint32_t)from[3 * plane + i] << 24;
            }
            NAME(quotients)(4 * some, (const unsigned char *)together, divisor, to + 4 * begin);
        }
    } else {
        for (long channel = 0; channel < channels; channel++) {
            for (long i = 0; i < count; i++) {
                NAME(quotients)(1, from + channel * plane + i, divisor, to + i * channels + channel);
            }
        }
    }
}

/* ---------------------------------------------------------------- windows */

TARGET static void
NAME(tile_windows)(int narrow, int rows, long segments, long jump, long k, const float *a, long stride, const float *b, float *c, long ldc,
                   const float *start, long lds, Finish finish, long width)
{
    BY_ROWS(narrow, rows, NAME(tile_of), 1, segments, jump, k, a, stride, b, PANEL, c, ldc, start, lds, finish, NULL, 0, width)
}

/* Convolve images `stride` apart; panels are the weights, laid out with a row for each number of a window:
 *   y[row][column][o] = act(bias[o] + sum over i, j, ch of w[o][i][j][ch] x[row down + i][column right + j][ch]) */
TARGET static void
NAME(conv)(const Windows *of, long images, const float *x, long stride, const float *panels, const float *bias, Kind kind, float *y)
{
    ALIGNED(64) float first[PANEL];
    long n = of->outputs, run = of->wide * of->channels, line = of->width * of->channels, step = of->right * of->channels;
    long group = run < DEPTH ? DEPTH / run : 1; /* of a window's rows: their panel stays in a near cache */
    long tiles = (of->columns + MR - 1) / MR, most = (of->columns + tiles - 1) / tiles;

    for (long j = 0; j < n; j += PANEL) {
        long columns = n - j < PANEL ? n - j : PANEL;
        int narrow = columns <= WIDTH;
        memset(first, 0, sizeof first);
        memcpy(first, bias + j, (size_t)columns * sizeof(float));
        for (long from = 0, some; from < of->tall; from += some, panels += some * run * PANEL) {
            some = of->tall - from < group ? of->tall - from : group;
            Finish finish = kind == RELU && from + some == of->tall ? RECTIFIED : AS_IT_IS;
            for (long image = 0; image < images; image++) {
                for (long row = 0; row < of->rows; row++) {
                    const float *at = x + image * stride + (row * of->down + from) * line;
                    float *out = y + (image * of->rows + row) * of->columns * n + j;
                    for (long i = 0; i < of->columns; i += most) {
                        int rows = (int)(of->columns - i < most ? of->columns - i : most);
                        float *here = out + i * n;
                        NAME(tile_windows)(narrow, rows, some, line, run, at + i * step, step, panels, here, n, from ? here : first,
                                           from ? n : 0, finish, columns);
                    }
                }
            }
        }
    }
    if (kind == TANH) {
        NAME(activation)(kind, y, images * of->rows * of->columns * n);
    }
}

/* c[i][j] = sum over the windows of some images of g[window][i] x[window][j], for a tile; rows of g are HIGH numbers apart, those of c
 * UNIT. */
TARGET INLINE void
NAME(leaf_of_windows)(const int rows, const int vectors, const int whole, const Windows *of, long images, const float *x, long stride, const float *g,
                      float *c, long width)
{
    V sums[12][NV];
    SOME some[NV];
    long step = of->right * of->channels, line = of->down * of->width * of->channels;

    STRAIGHT for (int v = 0; v < vectors; v++) {
        some[v] = FIRST(width - v * WIDTH);
    }
    STRAIGHT for (int i = 0; i < rows; i++) {
        STRAIGHT for (int v = 0; v < vectors; v++) {
            sums[i][v] = SPREAD(0.0f);
            __builtin_prefetch(c + i * UNIT + v * WIDTH, 1, 2);
        }
    }
    for (long image = 0; image < images; image++, x += stride) {
        for (long row = 0; row < of->rows; row++) {
            const float *b = x + row * line;
            for (long p = 0; p < of->columns; p++, b += step, g += HIGH) {
                V columns[NV];
                STRAIGHT for (int v = 0; v < vectors; v++) {
                    columns[v] = whole ? LOAD(b + v * WIDTH) : LOAD_SOME(b + v * WIDTH, some[v]);
                }
                STRAIGHT for (int i = 0; i < rows; i++) {
                    V one = SPREAD(g[i]);
                    STRAIGHT for (int v = 0; v < vectors; v++) {
                        sums[i][v] = FMA(one, columns[v], sums[i][v]);
                    }
                }
            }
        }
    }
    STRAIGHT for (int i = 0; i < rows; i++) {
        STRAIGHT for (int v = 0; v < vectors; v++) {
            STORE(c + i * UNIT + v * WIDTH, sums[i][v]);
        }
    }
}

TARGET static void
NAME(leaf_tile)(int narrow, int rows, const Windows *of, long images, const float *x, long stride, const float *g, float *c, long width)
{
    if (width >= (narrow ? WIDTH : PANEL)) { /* masks would take more registers than there are */
        BY_ROWS(narrow, rows, NAME(leaf_of_windows), 1, of, images, x, stride, g, c, width)
    } else {
        BY_ROWS(narrow, rows, NAME(leaf_of_windows), 0, of, images, x, stride, g, c, width)
    }
}

/* A tile of gradients, one window after the other, and their sums */
TARGET static void
NAME(take_tile)(long high, long windows, const float *g, long n, float *tile, float *biases)
{
    enum { VECTORS = (HIGH + WIDTH - 1) / WIDTH };
    V sums[VECTORS];
    SOME some[VECTORS];

    STRAIGHT for (int v = 0; v < VECTORS; v++) {
        some[v] = FIRST(high - v * WIDTH);
        sums[v] = SPREAD(0.0f);
    }
    for (long window = 0; window < windows; window++, g += n, tile += HIGH) {
        STRAIGHT for (int v = 0; v < VECTORS; v++) {
            V one = LOAD_SOME(g + v * WIDTH, some[v]);
            sums[v] = ADD(sums[v], one);
            STORE_SOME(tile + v * WIDTH, one, some[v]);
        }
    }
    STRAIGHT for (int v = 0; v < VECTORS && biases != NULL; v++) {
        STORE_SOME(biases + v * WIDTH, sums[v], some[v]);
    }
}

/* grad_w[o][i][j][ch] = sum over images and their windows of g[row][column][o] x[row down + i][column right + j][ch]
 * Units `begin` to `end` of the gradient of weights, of some images: UNIT numbers of a window's row for each output. Biases' gradients
 * are sums over windows, too. `tile` has room for HIGH numbers of each window. */
TARGET static void
NAME(conv_weight_leaf)(const Windows *of, long images, const float *x, long stride, const float *g, long begin, long end, float *c,
                    float *biases, float *tile)
{
    long n = of->outputs, run = of->wide * of->channels, line = of->width * of->channels, in_row = (run + UNIT - 1) / UNIT;
    const float *ahead = x + images * stride; /* the next images, which are only prefetched: behind the last one that does nothing */
    long passes = (n + HIGH - 1) / HIGH * (end - begin), share = (images * stride + 16 * passes - 1) / (16 * passes);

    for (long first = 0; first < n; first += HIGH) {
        long high = n - first < HIGH ? n - first : HIGH;
        long windows = images * of->rows * of->columns;
        NAME(take_tile)(high, windows, g + first, n, tile, biases ? biases + first : NULL);
        for (long unit = begin; unit < end; unit++) {
            long from = unit % in_row * UNIT, until = run - from < UNIT ? run - from : UNIT;
            const float *at = x + unit / in_row * line + from;
            float *to = c + ((unit - begin) * n + first) * UNIT;
            NAME(look_ahead)(ahead, 16, share, 1);
            ahead += 16 * share;
            for (long j = 0; j < until; j += PANEL) {
                int narrow = until - j <= WIDTH, most = narrow ? HIGH : MR;
                for (long i = 0; i < high; i += most) {
                    int rows = (int)(high - i < most ? high - i : most);
                    NAME(leaf_tile)(narrow, rows, of, images, at + j, stride, tile + i, to + i * UNIT + j, until - j);
                }
            }
        }
    }
}

/* grad_x[row down + i][column right + j][ch] += windows[row][column][i][j][ch], which is sum over o of g[row][column][o] w[o][i][j][ch]
 * Add to images, without gaps, what windows of them get, one window after the other: where they overlap, the order of sums is this one. */
TARGET static void
NAME(conv_backward_input)(const Windows *of, long images, const float *windows, float *x)
{
    long run = of->wide * of->channels, line = of->width * of->channels;

    for (long image = 0; image < images; image++, x += of->height * line) {
        for (long row = 0; row < of->rows; row++) {
            for (long column = 0; column < of->columns; column++) {
                float *to = x + row * of->down * line + column * of->right * of->channels;
                for (long i = 0; i < of->tall; i++, windows += run, to += line) {
                    NAME(add)(to, windows, run);
                }
            }
        }
    }
}
