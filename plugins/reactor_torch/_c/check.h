/* Whether a form is used at all: whether it gives the portable one's bits, for numbers that are as good as random. */

static uint32_t
another(uint32_t *state)
{
    return *state = *state * 1664525u + 1013904223u;
}

/* An argument: numbers of an array go to `to`. */
static void
fill(const Kernels *with, const Argument *a, const Sizes *n, long count, char *to, const Value *before, int turn, uint32_t *state, Value *value)
{
    const Factor *last = a->dimension[a->dimensions ? a->dimensions - 1 : 0];
    long columns = a->dimensions ? dimension_of(last, n) : 1;
    float *floats = (float *)to, *matrix = NULL;

    value->f = a->optional && turn % 2 ? NULL : floats;
    switch (a->type) {
    case 's':
        value->whole = n->of[last->letter];
        break;
    case 'w':
        value->whole = 1 + 4 * turn;
        break;
    case 't':
        value->whole = turn / 2 % 2;
        break;
    case 'n':
        value->number = 0.05 + (double)(another(state) >> 8) / (1 << 25);
        break;
    case 'i':
        for (long e = 0; e < count; e++) {
            long those = a->below_those_of == UNKNOWN ? 1 : (long)before[a->below_those_of].i[e % columns];
            long below = a->below == UNKNOWN ? those : n->of[a->below];
            ((int64_t *)to)[e] = a->adds_up_to == UNKNOWN ? another(state) % (uint32_t)below : e ? 1 : n->of[a->adds_up_to] - count + 1;
        }
        break;
    case 'b':
        for (long e = 0; e < count; e++) {
            ((uint8_t *)to)[e] = another(state) >> 16 & 1;
        }
        break;
    default:
        if (a->type == 'l') { /* each form has a layout of its own */
            matrix = floats, floats = malloc((size_t)count * sizeof(float));
        }
        for (long e = 0; e < count && floats != NULL; e++) {
            uint32_t bits = another(state);
            floats[e] = bits % 4096 < 1024 ? 0.0f : (float)(int32_t)bits / 1.5e9f;
        }
        if (matrix != NULL && floats != NULL) {
            long rows = last[0].times * n->of[last[0].letter], width = last[1].times * n->of[last[1].letter];
            with->pack_panels(rows, width, floats, width, 0, matrix);
            free(floats);
        }
    }
}

static int
same_bits(const float *one, const float *other, long count)
{
    for (long e = 0; e < count; e++) {
        if (memcmp(one + e, other + e, sizeof(float)) != 0 && (one[e] == one[e] || other[e] == other[e])) {
            return 0; /* which of its bits are set in what is no number is nobody's business */
        }
    }
    return 1;
}

/* Whether a function has the portable one's bits, in one turn: arrays of its signature's shapes, some of which there are not always. */
static int
function_agrees(const Function *of, const Kernels *other, int turn)
{
    enum { EVERY = 64 }; /* bytes: arrays begin at multiples */
    const Signature *s = &of->signature;
    const Kernels *both[2] = {&kernels_portable, other};
    Value value[2][MOST_ARGUMENTS];
    float result[2];
    long begin[MOST_ARGUMENTS], count[MOST_ARGUMENTS], size = 0;
    Sizes n;

    for (int i = 0; i < LETTERS; i++) {
        n.of[i] = 3 + (i * 7 + turn) % 15;
    }
    n.c = 2, n.r = turn == 1 ? 2 * LEAF + 3 : 5 + turn, n.t = 2;
    for (int i = 0; i < s->count; i++) {
        const Argument *a = &s->argument[i];
        count[i] = 1;
        for (int d = 0; d < a->dimensions; d++) {
            count[i] *= dimension_of(a->dimension[d], &n);
        }
        begin[i] = size, size += (count[i] * 8 + EVERY - 1) / EVERY * EVERY;
    }
    char *memory = calloc(2, (size_t)size);
    for (int k = 0; k < 2 && memory != NULL; k++) {
        uint32_t state = 12345u + (uint32_t)turn;
        for (int i = 0; i < s->count; i++) {
            fill(both[k], &s->argument[i], &n, count[i], memory + k * size + begin[i], value[k], turn, &state, &value[k][i]);
        }
        result[k] = (float)compute(of, both[k], &n, value[k]);
    }
    int same = memory == NULL || same_bits(result, result + 1, 1);
    for (int i = 0; i < s->count && memory != NULL; i++) {
        const float *one = (float *)(memory + begin[i]), *other_one = (float *)(memory + size + begin[i]);
        same = same && (s->argument[i].type == 'l' || same_bits(one, other_one, count[i] * (s->argument[i].type == 'i' ? 2 : 1)));
    }
    free(memory);
    return same;
}

/* Whether the products of a kind have the portable one's bits for a few odd shapes; memory for all arrays, or they do. */
static int
products_agree(const Kernels *other)
{
    static const long shapes[][3] = {{13, 19, 37}, {70, 33, 5}, {5, 40, 3}, {130, 3, 18}, {66, 5, 17}, {30, 130, 13}};
    static const Windows of = {9, 7, 3, 3, 2, 2, 1, 4, 6, 19};
    enum { MOST = 4096, RESULTS = 6 };
    const Kernels *both[2] = {&kernels_portable, other};
    float *memory = calloc((size_t)MOST * (3 + 2 * RESULTS) + TILES(64) + 2 * 64 * 64, sizeof(float)), *x = memory, *w = x + MOST, *g = w + MOST;
    int same = 1;

    for (size_t s = 0; memory != NULL && s < sizeof shapes / sizeof shapes[0]; s++) {
        long m = shapes[s][0], k = shapes[s][1], n = shapes[s][2];
        uint32_t state = 12345;
        float *results = g + MOST, *scratch = results + 2 * RESULTS * MOST;
        for (long e = 0; e < 3 * MOST; e++) {
            memory[e] = (float)(int32_t)another(&state) / 1.5e9f;
        }
        memset(results, 0, (size_t)MOST * 2 * RESULTS * sizeof(float));
        for (int i = 0; i < 2; i++) {
            float *result = results + i * RESULTS * MOST;
            both[i]->linear((Kind)(s % 3), m, k, n, x, k, w, g, result, NULL);
            if (m * n <= MOST) {
                both[i]->matmul(m, n, k, g, n, w, k, 0, result + MOST, k, NULL, (Kind)(s % 3), x, NULL);
                both[i]->matmul_outer(m, n, k, g, n, x, k, result + 2 * MOST, scratch);
                both[i]->column_sums((Summed)(s % 3), m, n, g, n, w, x, n, result + 3 * MOST);
                both[i]->batch_norm_backward((Kind)(s % 3), m, n, g, x, n, w, w + n, w + 2 * n, w + 3 * n, result + 3 * MOST + n);
            }
            float *normal = result + 4 * MOST, *hat = normal + 500, *scale = normal + 1000;
            both[i]->layer_norm(8, 37, x, 37, w, g, 0.1f, normal, hat, scale);
            memcpy(normal + 1100, x, 8 * 37 * sizeof(float));
            both[i]->layer_norm_backward(8, 37, normal + 1100, w, hat, scale, NULL, normal + 1500);
            float *seen = result + 5 * MOST;
            for (long rows = 1; rows <= 5; rows += 1 + rows / 3) { /* 1, 2, 3 and 5 */
                both[i]->pack_panels(k, n, w, k, 1, scratch);
                both[i]->add_packed(rows, k, n, x, k, scratch, seen + 3700, n); /* at most 5 x 37 numbers */
            }
            both[i]->pack_panels(18, of.outputs, w, 18, 1, scratch);
            both[i]->conv(&of, 2, x, 9 * 7 * 3, scratch, g, (Kind)(s % 3), seen);
            both[i]->conv_weight_leaf(&of, 2, x, 9 * 7 * 3, g, 0, 3, seen + 1000, seen + 2900, scratch + MOST);
            both[i]->conv_backward_input(&of, 2, g, seen + 3000);
            both[i]->bytes_to_floats(50, 3 + (long)s % 2, (const unsigned char *)x, 50, 255.0f, seen + 3500);
        }
        same = same && memcmp(results, results + RESULTS * MOST, (size_t)RESULTS * MOST * sizeof(float)) == 0;
    }
    free(memory);
    return same;
}

static int
agrees(const Kernels *other)
{
    int same = products_agree(other);
    for (int i = 0; i < FUNCTIONS * 4; i++) {
        const Function *of = &functions[i / 4];
        same = same && (of->signature.holds || function_agrees(of, other, i % 4));
    }
    return same;
}
