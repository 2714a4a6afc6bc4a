/* Finished 84 x 84 frames of one Atari emulator, bit-identical to OpenCV's INTER_AREA: see docs/guide/atari-frames.md.
 *
 * 210 rows become 84, five become two, so each band of five rows makes its two by itself. A kernel keeps the last screens in
 * both of their roles, and recomputes only the bands that have changed.
 *
 * A frame is made of the larger one of two shades of grey, or else of the grey of the larger one of two colours, for which a table
 * has all pairs of colours.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <stdint.h>
#include <string.h>

/* Every sum must be rounded as OpenCV rounds it: no excess precision, no fused multiply-add. */
#if FLT_EVAL_METHOD != 0
#error "single precision arithmetic is not single precision here"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_AVX2_CODE 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#endif

enum {
    ROWS = 210,
    COLUMNS = 160,
    SIDE = 84,      /* of a finished frame */
    BAND_ROWS = 5,  /* rows of the screen ... */
    MADE_ROWS = 2,  /* ... that make so many of the finished frame */
    BANDS = ROWS / BAND_ROWS,
    BAND = BAND_ROWS * COLUMNS,
    MADE = MADE_ROWS * SIDE,
    TAPS = 3,       /* a pixel of the finished frame lies over at most three of the screen, in each direction */
    GROUPS = 11,    /* of eight pixels, the last one overlapping */
    COLOURS = 256,
    PAD = 32,       /* what is read beyond a row, with weight nought or to be thrown away */
};

enum { LAST, FIRST }; /* the two roles of a screen: f0, f1 */

typedef struct {
    PyObject_HEAD
    Py_buffer screen; /* where the emulator puts its screen: palette indices */
    Py_buffer pairs;  /* the grey of the larger one of two colours; none for the larger one of two shades of grey */
    int avx2;
    int seen_last;    /* since the last finished frame */
    int current[2];   /* whether grey[role] is what raw[role] looks like */
    uint8_t changed[BANDS]; /* since the last finished frame, in either role */
    uint8_t known[256], grey_of[256]; /* the palette as far as it has been seen; 255 where it has not */
    uint8_t steps[8][16]; /* the same for even indices, each row of 16 xor the one before */
    int start[SIDE];      /* the first column that a pixel lies over */
    float across[TAPS][SIDE], down[TAPS][MADE_ROWS];
    uint8_t starts[GROUPS][16]; /* first columns within a group, relative to the group's own: a shuffle */
    uint8_t raw[2][ROWS * COLUMNS], grey[2][ROWS * COLUMNS];
    uint8_t pooled[ROWS * COLUMNS + PAD]; /* f0 as the last finished frame left it */
    uint8_t finished[SIDE * SIDE];
} Kernel;

/* ---------------------------------------------------------------- weights */

/* How much each of the pixels under pixel `target` counts, computed as OpenCV does. Returns the first of them.
 *   weight of pixel s = length of [s, s + 1) within [target scale, (target + 1) scale), by the length of that, scale = sources / targets
 * Overlaps of less than 1e-3 count as none, which is OpenCV's. */
static int
weigh(int sources, int targets, int target, float weights[TAPS])
{
    double scale = 1.0 / ((double)targets / sources);
    double left = target * scale, right = left + scale;
    double cell = scale < sources - left ? scale : sources - left;
    int end = (int)right < sources - 1 ? (int)right : sources - 1;
    int whole = (int)left + ((int)left < left); /* the first that is not cut */
    int taps = 0;

    if (whole > end) {
        whole = end;
    }
    int first = whole;
    if (whole - left > 1e-3) {
        first = whole - 1;
        weights[taps++] = (float)((whole - left) / cell);
    }
    for (int source = whole; source < end && taps < TAPS; source++) {
        weights[taps++] = (float)(1.0 / cell);
    }
    if (right - end > 1e-3 && taps < TAPS) {
        double rest = right - end < 1.0 ? right - end : 1.0;
        weights[taps++] = (float)((rest < cell ? rest : cell) / cell);
    }
    while (taps < TAPS) {
        weights[taps++] = 0.0f;
    }
    return first;
}

static int
group_start(int group)
{
    return 8 * group < SIDE - 8 ? 8 * group : SIDE - 8;
}

static void
weigh_all(Kernel *kernel)
{
    float weights[TAPS];

    for (int x = 0; x < SIDE; x++) {
        kernel->start[x] = weigh(COLUMNS, SIDE, x, weights);
        for (int tap = 0; tap < TAPS; tap++) {
            kernel->across[tap][x] = weights[tap];
        }
    }
    for (int y = 0; y < MADE_ROWS; y++) {
        weigh(ROWS, SIDE, y, weights); /* from row 2 * y: the same in every band */
        for (int tap = 0; tap < TAPS; tap++) {
            kernel->down[tap][y] = weights[tap];
        }
    }
    memset(kernel->starts, 0x80, sizeof kernel->starts);
    for (int group = 0; group < GROUPS; group++) {
        const int *start = kernel->start + group_start(group);
        for (int i = 0; i < 8; i++) {
            kernel->starts[group][i] = (uint8_t)(start[i] - start[0]); /* at most 14 */
        }
    }
}

/* ---------------------------------------------------------------- a band: from palette to grey, and five rows to two */

static int
all_known(const Kernel *kernel, const uint8_t *raw)
{
    int known = 1;

    for (int i = 0; i < BAND; i++) {
        known &= kernel->known[raw[i]];
    }
    return known;
}

/* Both return whether every colour is known. */
static int
look_up(const Kernel *kernel, const uint8_t *raw, uint8_t *grey)
{
    int most = 0;

    for (int i = 0; i < BAND; i++) {
        int shade = kernel->grey_of[raw[i]];
        grey[i] = (uint8_t)shade;
        most = shade > most ? shade : most;
    }
    return most < 255 || all_known(kernel, raw); /* 255 is also a shade of grey */
}

static void
scale(const Kernel *kernel, const uint8_t *band, uint8_t *made)
{
    float sums[BAND_ROWS][SIDE];

    for (int row = 0; row < BAND_ROWS; row++) {
        float pixels[COLUMNS + TAPS - 1];
        for (int x = 0; x < COLUMNS + TAPS - 1; x++) {
            pixels[x] = band[row * COLUMNS + x];
        }
        for (int x = 0; x < SIDE; x++) {
            const float *pixel = pixels + kernel->start[x];
            float sum = pixel[0] * kernel->across[0][x];
            sum += pixel[1] * kernel->across[1][x];
            sum += pixel[2] * kernel->across[2][x];
            sums[row][x] = sum;
        }
    }
    for (int y = 0; y < MADE_ROWS; y++) {
        for (int x = 0; x < SIDE; x++) {
            float sum = sums[2 * y][x] * kernel->down[0][y];
            sum += sums[2 * y + 1][x] * kernel->down[1][y];
            sum += sums[2 * y + 2][x] * kernel->down[2][y];
            /* Beside 1.5 * 2**23 there is no room for a fraction: half goes to even, and the integer is in the lowest bits. */
            sum += 12582912.0f;
            uint32_t bits;
            memcpy(&bits, &sum, sizeof bits);
            made[y * SIDE + x] = (uint8_t)bits;
        }
    }
}

#ifdef HAS_AVX2_CODE

AVX2 static int
look_up_avx2(const Kernel *kernel, const uint8_t *raw, uint8_t *grey)
{
    __m256i steps[8], any = _mm256_setzero_si256(), most = any;

    for (int i = 0; i < 8; i++) {
        steps[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)kernel->steps[i]));
    }
    for (int i = 0; i < BAND; i += 32) {
        __m256i colours = _mm256_loadu_si256((const __m256i *)(raw + i));
        any = _mm256_or_si256(any, colours);
        /* A shuffle gives nought where an index is negative and minds its lowest four bits otherwise: as 16 is taken off again
         * and again, each step applies from its row on. */
        __m256i index = _mm256_srli_epi16(colours, 1), found = _mm256_shuffle_epi8(steps[0], index);
        for (int j = 1; j < 8; j++) {
            index = _mm256_sub_epi8(index, _mm256_set1_epi8(16));
            found = _mm256_xor_si256(found, _mm256_shuffle_epi8(steps[j], index));
        }
        most = _mm256_max_epu8(most, found);
        _mm256_storeu_si256((__m256i *)(grey + i), found);
    }
    if (!_mm256_testz_si256(any, _mm256_set1_epi8(1))) {
        return look_up(kernel, raw, grey); /* an odd index: emulators use even ones */
    }
    return !_mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(-1))) || all_known(kernel, raw);
}

/* The same sums in the same order, eight at a time. */
AVX2 static void
scale_avx2(const Kernel *kernel, const uint8_t *band, uint8_t *made)
{
    for (int group = 0; group < GROUPS; group++) {
        int x = group_start(group);
        const uint8_t *pixels = band + kernel->start[x];
        __m128i starts = _mm_loadu_si128((const __m128i *)kernel->starts[group]);
        __m256 sums[BAND_ROWS];

        for (int row = 0; row < BAND_ROWS; row++, pixels += COLUMNS) {
            for (int tap = 0; tap < TAPS; tap++) {
                __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(pixels + tap)), starts);
                __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                                               _mm256_loadu_ps(kernel->across[tap] + x));
                sums[row] = tap ? _mm256_add_ps(sums[row], product) : product;
            }
        }
        for (int y = 0; y < MADE_ROWS; y++) {
            __m256 sum = _mm256_mul_ps(sums[2 * y], _mm256_set1_ps(kernel->down[0][y]));
            sum = _mm256_add_ps(sum, _mm256_mul_ps(sums[2 * y + 1], _mm256_set1_ps(kernel->down[1][y])));
            sum = _mm256_add_ps(sum, _mm256_mul_ps(sums[2 * y + 2], _mm256_set1_ps(kernel->down[2][y])));
            __m256i whole = _mm256_cvtps_epi32(sum); /* half to even */
            __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
            _mm_storel_epi64((__m128i *)(made + y * SIDE + x), _mm_packus_epi16(words, words));
        }
    }
}

#endif

/* ---------------------------------------------------------------- a band of two screens as one, in grey */

static void
pool_shades(const uint8_t *last, const uint8_t *first, uint8_t *pooled)
{
    for (int i = 0; i < BAND; i++) {
        pooled[i] = last[i] > first[i] ? last[i] : first[i];
    }
}

/* `last` and `first` are palette indices, `grey` is that of `last`. */
static void
pool_colours(const uint8_t *pairs, const uint8_t *last, const uint8_t *first, const uint8_t *grey, uint8_t *pooled)
{
    for (int i = 0; i < BAND; i++) {
        pooled[i] = last[i] == first[i] ? grey[i] : pairs[COLOURS * last[i] + first[i]];
    }
}

#ifdef HAS_AVX2_CODE

/* Little moves between two screens. */
AVX2 static void
pool_colours_avx2(const uint8_t *pairs, const uint8_t *last, const uint8_t *first, const uint8_t *grey, uint8_t *pooled)
{
    memcpy(pooled, grey, BAND);
    for (int i = 0; i < BAND; i += 32) {
        __m256i same = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(last + i)),
                                         _mm256_loadu_si256((const __m256i *)(first + i)));
        uint32_t differ = ~(uint32_t)_mm256_movemask_epi8(same);
        while (differ) {
            int at = i + __builtin_ctz(differ);
            pooled[at] = pairs[COLOURS * last[at] + first[at]];
            differ &= differ - 1;
        }
    }
}

#endif

static void
pool(Kernel *kernel, int band)
{
    int at = band * BAND;
    const uint8_t *grey = kernel->grey[LAST] + at, *last = kernel->raw[LAST] + at, *first = kernel->raw[FIRST] + at;

    if (kernel->pairs.buf == NULL) {
        pool_shades(grey, kernel->grey[FIRST] + at, kernel->pooled + at);
        return;
    }
#ifdef HAS_AVX2_CODE
    if (kernel->avx2) {
        pool_colours_avx2(kernel->pairs.buf, last, first, grey, kernel->pooled + at);
        return;
    }
#endif
    pool_colours(kernel->pairs.buf, last, first, grey, kernel->pooled + at);
}

/* ---------------------------------------------------------------- frames */

/* Returns nought if the screen has a colour that is not known; once it is, the same call goes on where it stopped. */
static int
see(Kernel *kernel, int role)
{
    const uint8_t *screen = kernel->screen.buf;

    for (int band = 0; band < BANDS; band++) {
        const uint8_t *shown = screen + band * BAND;
        uint8_t *raw = kernel->raw[role] + band * BAND, *grey = kernel->grey[role] + band * BAND;
        int known;

        if (kernel->current[role] && memcmp(shown, raw, BAND) == 0) {
            continue;
        }
#ifdef HAS_AVX2_CODE
        if (kernel->avx2) {
            known = look_up_avx2(kernel, shown, grey);
        } else
#endif
            known = look_up(kernel, shown, grey);
        if (!known) {
            kernel->current[role] = 0; /* this band's grey fits no screen now */
            return 0;
        }
        memcpy(raw, shown, BAND);
        kernel->changed[band] = 1;
    }
    kernel->current[role] = 1;
    if (role == LAST) {
        kernel->seen_last = 1;
    }
    return 1;
}

static void
finish(Kernel *kernel)
{
    if (kernel->pairs.buf == NULL && !kernel->seen_last) { /* the step broke off early: f0 is what the last frame was made of */
        memcpy(kernel->grey[LAST], kernel->pooled, ROWS * COLUMNS);
        kernel->current[LAST] = 0;
    }
    for (int band = 0; band < BANDS; band++) {
        const uint8_t *pooled = kernel->pooled + band * BAND;
        uint8_t *made = kernel->finished + band * MADE;

        if (!kernel->changed[band]) {
            continue;
        }
        pool(kernel, band);
#ifdef HAS_AVX2_CODE
        if (kernel->avx2) {
            scale_avx2(kernel, pooled, made);
        } else
#endif
            scale(kernel, pooled, made);
    }
    memset(kernel->changed, 0, BANDS);
    kernel->seen_last = 0;
}

/* ---------------------------------------------------------------- Python */

/* Get at the bytes of a uint8 array of `rows` x `columns`. Returns -1, with an exception set, if it is none. */
static int
bytes_of(PyObject *array, Py_buffer *view, int flags, int rows, int columns)
{
    if (PyObject_GetBuffer(array, view, flags | PyBUF_ND | PyBUF_FORMAT) < 0) {
        return -1;
    }
    if (strcmp(view->format, "B") != 0 || view->ndim != 2 || view->shape[0] != rows || view->shape[1] != columns) {
        PyBuffer_Release(view);
        PyErr_Format(PyExc_ValueError, "expected a C-contiguous uint8 array of shape (%d, %d)", rows, columns);
        return -1;
    }
    return 0;
}

static PyObject *
kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"screen", "avx2", "pairs", NULL};
    PyObject *screen, *pairs = Py_None;
    int avx2 = 1;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|pO:Kernel", names, &screen, &avx2, &pairs)) {
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Kernel *kernel = (Kernel *)alloc(type, 0); /* all nought: two black screens, none of them current */
    if (kernel == NULL) {
        return NULL;
    }
    if (bytes_of(screen, &kernel->screen, PyBUF_SIMPLE, ROWS, COLUMNS) < 0
        || (pairs != Py_None && bytes_of(pairs, &kernel->pairs, PyBUF_SIMPLE, COLOURS, COLOURS) < 0)) {
        Py_DECREF(kernel);
        return NULL;
    }
#ifdef HAS_AVX2_CODE
    kernel->avx2 = avx2 && __builtin_cpu_supports("avx2");
#endif
    memset(kernel->grey_of, 255, sizeof kernel->grey_of);
    memset(kernel->steps[0], 255, sizeof kernel->steps[0]);
    weigh_all(kernel);
    return (PyObject *)kernel;
}

static void
kernel_dealloc(Kernel *kernel)
{
    PyTypeObject *type = Py_TYPE((PyObject *)kernel);
    freefunc free = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyBuffer_Release(&kernel->screen); /* does nothing if there is none */
    PyBuffer_Release(&kernel->pairs);
    free(kernel);
    Py_DECREF(type);
}

static PyObject *
kernel_restart(Kernel *kernel, PyObject *Py_UNUSED(none))
{
    memset(kernel->grey[FIRST], 0, ROWS * COLUMNS);
    kernel->current[FIRST] = 0;
    memset(kernel->changed, 1, BANDS);
    Py_RETURN_NONE;
}

static PyObject *
kernel_see_first(Kernel *kernel, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(see(kernel, FIRST));
}

static PyObject *
kernel_see_last(Kernel *kernel, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(see(kernel, LAST));
}

static PyObject *
kernel_learn(Kernel *kernel, PyObject *array)
{
    Py_buffer view;

    if (bytes_of(array, &view, PyBUF_SIMPLE, ROWS, COLUMNS) < 0) {
        return NULL;
    }
    const uint8_t *screen = kernel->screen.buf, *grey = view.buf;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        kernel->grey_of[screen[i]] = grey[i];
        kernel->known[screen[i]] = 1;
    }
    PyBuffer_Release(&view);
    for (int i = 0; i < 128; i++) {
        kernel->steps[i / 16][i % 16] = kernel->grey_of[2 * i] ^ (i < 16 ? 0 : kernel->grey_of[2 * i - 32]);
    }
    Py_RETURN_NONE;
}

static PyObject *
kernel_finish(Kernel *kernel, PyObject *out)
{
    Py_buffer view;

    if (bytes_of(out, &view, PyBUF_WRITABLE, SIDE, SIDE) < 0) {
        return NULL;
    }
    finish(kernel);
    memcpy(view.buf, kernel->finished, sizeof kernel->finished);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

/* Both take two pictures in grey, (2 * 210, 160): f1, and f0 as the last finished frame left it. */
static PyObject *
kernel_load(Kernel *kernel, PyObject *greys)
{
    Py_buffer view;

    if (bytes_of(greys, &view, PyBUF_SIMPLE, 2 * ROWS, COLUMNS) < 0) {
        return NULL;
    }
    const uint8_t *first = view.buf, *last = first + ROWS * COLUMNS;
    memcpy(kernel->grey[FIRST], first, ROWS * COLUMNS);
    memcpy(kernel->pooled, last, ROWS * COLUMNS);
    PyBuffer_Release(&view);
    kernel->current[FIRST] = kernel->seen_last = 0;
    memset(kernel->changed, 1, BANDS);
    Py_RETURN_NONE;
}

static PyObject *
kernel_store(Kernel *kernel, PyObject *out)
{
    Py_buffer view;

    if (bytes_of(out, &view, PyBUF_WRITABLE, 2 * ROWS, COLUMNS) < 0) {
        return NULL;
    }
    memcpy(view.buf, kernel->grey[FIRST], ROWS * COLUMNS);
    memcpy((uint8_t *)view.buf + ROWS * COLUMNS, kernel->pooled, ROWS * COLUMNS);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *
kernel_show(Kernel *kernel, PyObject *args)
{
    PyObject *colours, *out;
    Py_buffer palette, view;

    if (!PyArg_ParseTuple(args, "OO:show", &colours, &out) || bytes_of(colours, &palette, PyBUF_SIMPLE, COLOURS, 3) < 0) {
        return NULL;
    }
    if (bytes_of(out, &view, PyBUF_WRITABLE, 2 * ROWS, 3 * COLUMNS) < 0) {
        PyBuffer_Release(&palette);
        return NULL;
    }
    uint8_t *pixel = view.buf;
    for (int role = FIRST; role >= LAST; role--) {
        for (int i = 0; i < ROWS * COLUMNS; i++, pixel += 3) {
            memcpy(pixel, (const uint8_t *)palette.buf + 3 * kernel->raw[role][i], 3);
        }
    }
    PyBuffer_Release(&palette);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyMethodDef kernel_methods[] = {
    {"restart", (PyCFunction)kernel_restart, METH_NOARGS, "After a reset: f1 is black. The screen is still to be seen."},
    {"see_first", (PyCFunction)kernel_see_first, METH_NOARGS, "f1 = the screen. False if `learn` must be called first."},
    {"see_last", (PyCFunction)kernel_see_last, METH_NOARGS, "f0 = the screen. False if `learn` must be called first."},
    {"learn", (PyCFunction)kernel_learn, METH_O, "Learn the palette from the grey picture of the screen."},
    {"finish", (PyCFunction)kernel_finish, METH_O, "Put the finished frame into an array."},
    {"load", (PyCFunction)kernel_load, METH_O, "Go on from f1 and f0 in grey, as `store` has put them into an array."},
    {"store", (PyCFunction)kernel_store, METH_O, "Put f1 and f0 in grey into an array, as the last finished frame left them."},
    {"show", (PyCFunction)kernel_show, METH_VARARGS, "Put f1 and f0 in the given colours into an array, one after the other."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, "Kernel(screen, avx2=True, pairs=None): finished frames of what the emulator puts into `screen`."},
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_methods, kernel_methods},
    {0, NULL},
};

static PyType_Spec kernel_spec = {
    .name = "reactor_gymnasium.atari._frames.Kernel",
    .basicsize = sizeof(Kernel),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = kernel_slots,
};

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &kernel_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int status = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    if (status < 0) {
        return -1;
    }
#ifdef HAS_AVX2_CODE
    return PyModule_AddIntConstant(module, "AVX2", __builtin_cpu_supports("avx2") != 0);
#else
    return PyModule_AddIntConstant(module, "AVX2", 0);
#endif
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* nothing is shared: an object belongs to a reactor, which runs in one thread at a time */
#endif
    {0, NULL},
};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_frames",
    .m_doc = "Finished frames of one Atari emulator.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__frames(void)
{
    return PyModuleDef_Init(&module_def);
}
