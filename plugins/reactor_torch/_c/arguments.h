/* Arguments of a function, checked against its signature: what it is called with is written once, beside its name.
 *
 *   "values[r,n] taken:index[r<n] targets[r] weights?[r] huber:bool share:float > grad_values[r,n] : float"
 *
 *   name[r,n]          an array of float32 without gaps; behind `>` it is overwritten, and `name![r]` is read and overwritten
 *   name?[r]           or None
 *   name:int64[r]      of int64;   name:mask[r,n] of bool
 *   name:index[r<n]    of int64, from 0 to below n;   [r,c<sizes]: those of column c to below number c of the array `sizes`
 *   name:split[c=w]    of int64, positive, which add up to w
 *   name:panels[k*n^]  a matrix, (k, n), as pack_panels() lays it out for a form
 *   name:size[r]       a whole number, which is that size
 *   name:int  name:float  name:bool  name:tuple
 *   : float            at the end: a number is returned
 *
 * A letter is a size, the same wherever it stands. A dimension is a product of sizes: `r`, `6`, `4h`, `h*4h^` (^: the next multiple of
 * WIDEST); `n>0` says how many there are at least. Dimensions that an array has beyond these belong to the last one, and those that it
 * lacks are 1: (r, 1) is (r), too.
 */

enum { MOST_ARGUMENTS = 16, MOST_DIMENSIONS = 4, LETTERS = 26, UNKNOWN = -1 };

typedef union {
    long of[LETTERS];
    struct {
        long a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z;
    };
} Sizes;

typedef union {
    const float *f;
    float *out;
    const int64_t *i;
    const uint8_t *mask;
    PyObject *object;
    double number;
    long whole; /* of int and size; of bool 0 or 1 */
} Value;

typedef struct {
    int times, letter, rounded; /* letter: UNKNOWN for a number alone */
} Factor;

typedef struct {
    char name[24], type; /* f i (int64) b (mask) l (panels): arrays; s size, n float, w int, t bool, p tuple */
    char dimensions, optional, written;
    Factor dimension[MOST_DIMENSIONS][2];
    int alone[MOST_DIMENSIONS]; /* its letter, if a dimension is that size and no product */
    int below, below_those_of, adds_up_to; /* UNKNOWN, or a letter, an argument, a letter */
} Argument;

typedef struct {
    const char *name, *text;
    int count, returns, holds, numbers; /* holds: it needs the interpreter; numbers: some whole ones are to be looked at */
    int letters, letter[LETTERS]; /* which sizes there are */
    long least[LETTERS];
    Argument argument[MOST_ARGUMENTS];
} Signature;

/* ---------------------------------------------------------------- signatures */

INLINE int
is_array(const Argument *a)
{
    return a->type == 'f' || a->type == 'i' || a->type == 'b' || a->type == 'l';
}

static int
parse_type(const char *type, size_t length)
{
    static const char *const names[] = {"int64", "mask", "index", "split", "panels", "size", "float", "int", "bool", "tuple"};
    for (int i = 0; i < 10; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], type, length) == 0) {
            return "ibiilsnwtp"[i];
        }
    }
    return 0;
}

/* A dimension: factors between stars; what is behind it, or NULL. */
static const char *
parse_dimension(const char *text, Factor *factors)
{
    factors[0] = factors[1] = (Factor){1, UNKNOWN, 0};
    for (int f = 0; f < 2; f++, text++) {
        char *end;
        long times = strtol(text, &end, 10);
        factors[f].times = end > text ? (int)times : 1;
        int letter = *end >= 'a' && *end <= 'z';
        if (end == text && !letter) {
            return NULL;
        }
        factors[f].letter = letter ? *end++ - 'a' : UNKNOWN;
        factors[f].rounded = *end == '^';
        text = end + factors[f].rounded;
        if (*text != '*') {
            return text;
        }
    }
    return NULL;
}

/* What stands in brackets; what is behind them, or NULL. */
static const char *
parse_shape(Signature *s, Argument *a, const char *text)
{
    do {
        if (a->dimensions == MOST_DIMENSIONS || (text = parse_dimension(text + 1, a->dimension[(int)a->dimensions])) == NULL) {
            return NULL;
        }
        const Factor *factors = a->dimension[(int)a->dimensions];
        int letter = factors[0].letter, alone = factors[0].times == 1 && !factors[0].rounded && factors[1].letter == UNKNOWN;
        a->alone[(int)a->dimensions++] = alone ? letter : UNKNOWN;
        if (*text == '>' && letter != UNKNOWN) {
            s->least[letter] = 1 + strtol(text + 1, (char **)&text, 10);
        } else if (*text == '=') {
            a->adds_up_to = text[1] - 'a', text += 2;
        } else if (*text == '<' && text[2] == ']') {
            a->below = text[1] - 'a', text += 2;
        } else if (*text == '<') {
            size_t length = strcspn(++text, "]");
            for (int i = 0; i < s->count; i++) {
                if (strlen(s->argument[i].name) == length && memcmp(s->argument[i].name, text, length) == 0) {
                    a->below_those_of = i;
                }
            }
            text += length;
        }
    } while (*text == ',');
    return *text == ']' ? text + 1 : NULL;
}

/* Read a signature; -1 with an error set if it has a mistake. */
static int
parse(Signature *s, const char *name, const char *text)
{
    int written = 0;
    memset(s, 0, sizeof *s);
    s->name = name, s->text = text;
    while (text != NULL && *(text += strspn(text, " ")) && *text != ':') {
        if (*text == '>') {
            written = 1, text++;
            continue;
        }
        Argument *a = &s->argument[s->count];
        size_t length = strcspn(text, ":[?! ");
        if (s->count == MOST_ARGUMENTS || length >= sizeof a->name) {
            text = NULL;
            break;
        }
        memcpy(a->name, text, length);
        a->type = 'f', a->below = a->below_those_of = a->adds_up_to = UNKNOWN;
        for (text += length; *text == '?' || *text == '!'; text++) {
            a->optional |= *text == '?', a->written |= *text == '!';
        }
        if (*text == ':') {
            length = strcspn(++text, "[ ");
            a->type = (char)parse_type(text, length);
            text += length;
        }
        text = a->type == 0 ? NULL : *text == '[' ? parse_shape(s, a, text) : text;
        a->written |= written && is_array(a);
        s->holds |= a->type == 'p';
        s->numbers |= a->below != UNKNOWN || a->below_those_of != UNKNOWN || a->adds_up_to != UNKNOWN;
        s->count++;
    }
    for (int letter = 0; letter < LETTERS; letter++) {
        int there = 0;
        for (int i = 0; i < s->count * MOST_DIMENSIONS; i++) {
            const Argument *a = &s->argument[i / MOST_DIMENSIONS];
            there |= i % MOST_DIMENSIONS < a->dimensions && a->dimension[i % MOST_DIMENSIONS][0].letter == letter;
        }
        if (there) {
            s->letter[s->letters++] = letter;
        }
    }
    s->returns = text != NULL && *text == ':';
    if (text == NULL) {
        PyErr_Format(PyExc_SystemError, "%s(%s): this signature has a mistake", name, s->text);
    }
    return text == NULL ? -1 : 0;
}

INLINE long
dimension_of(const Factor *factors, const Sizes *n)
{
    long product = 1;
    for (int f = 0; f < 2; f++) {
        long one = factors[f].letter == UNKNOWN ? factors[f].times : factors[f].times * n->of[factors[f].letter];
        product *= factors[f].rounded ? (one + WIDEST - 1) / WIDEST * WIDEST : one;
    }
    return product;
}

/* ---------------------------------------------------------------- one array */

/* The type of an array's numbers, or NULL if it is that */
INLINE const char *
wanted_type(const Argument *a, const Py_buffer *view)
{
    char format = view->format != NULL && view->format[0] != 0 && view->format[1] == 0 ? view->format[0] : 'B';
    switch (a->type) {
    case 'i':
        return (format == 'l' || format == 'q') && view->itemsize == 8 ? NULL : "int64";
    case 'b':
        return format == '?' || format == 'B' ? NULL : "bool";
    default:
        return format == 'f' ? NULL : "float32";
    }
}

/* Whether an array has its type and its shape, which says sizes that nobody knew; if not, an error is set. */
static int
fits(const Signature *s, const Argument *a, const Py_buffer *view, Sizes *n)
{
    const char *type = wanted_type(a, view);
    if (type != NULL) {
        PyErr_Format(PyExc_TypeError, "%s(%s): %s must be %s, got the format \"%s\"", s->name, s->text, a->name, type,
                     view->format ? view->format : "B");
        return 0;
    }
    for (int d = 0; d < a->dimensions; d++) {
        long there = d < view->ndim ? (long)view->shape[d] : 1, wanted;
        for (int more = d + 1; more < view->ndim && d == a->dimensions - 1; more++) {
            there *= (long)view->shape[more];
        }
        if (a->alone[d] != UNKNOWN) {
            long *size = &n->of[a->alone[d]];
            wanted = *size = *size == UNKNOWN ? there : *size;
        } else {
            wanted = dimension_of(a->dimension[d], n);
        }
        if (there != wanted) {
            PyErr_Format(PyExc_ValueError, "%s(%s): %s does not fit: dimension %d must be %ld, got %ld", s->name, s->text, a->name, d, wanted,
                         there);
            return 0;
        }
    }
    return 1;
}

/* Look at an array, and whether it fits; -1 with an error set. A view that was taken is released by who has it. */
static int
take_array(const Signature *s, const Argument *a, PyObject *array, Py_buffer *view, Sizes *n)
{
    if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (a->written ? PyBUF_WRITABLE : 0)) < 0) {
        return -1;
    }
    if (!fits(s, a, view, n)) {
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- all of them */

typedef struct {
    int held, is_long; /* others may have the interpreter meanwhile */
    Sizes sizes;
    Value value[MOST_ARGUMENTS];
    Py_buffer view[MOST_ARGUMENTS];
} Call;

static void
end_call(Call *call)
{
    while (call->held > 0) {
        PyBuffer_Release(&call->view[--call->held]);
    }
}

/* What whole numbers say of others: 0, or -1 with an error set */
static int
check_numbers(const Signature *s, const Argument *a, const Call *call, const int64_t *numbers)
{
    long columns = dimension_of(a->dimension[a->dimensions - 1], &call->sizes), count = columns;
    for (int d = 0; d < a->dimensions - 1; d++) {
        count *= dimension_of(a->dimension[d], &call->sizes);
    }
    if (a->adds_up_to != UNKNOWN) {
        int64_t rest = call->sizes.of[a->adds_up_to];
        for (long e = 0; e < count && rest >= 0; e++) {
            rest = numbers[e] < 1 || numbers[e] > rest ? -1 : rest - numbers[e];
        }
        if (rest != 0) {
            PyErr_Format(PyExc_ValueError, "%s(%s): %s must be positive and add up to %ld", s->name, s->text, a->name,
                         call->sizes.of[a->adds_up_to]);
            return -1;
        }
        return 0;
    }
    const int64_t below = a->below == UNKNOWN ? 0 : call->sizes.of[a->below];
    const int64_t *those = a->below_those_of == UNKNOWN ? NULL : call->value[a->below_those_of].i;
    for (long e = 0, column = 0; e < count; e++, column = column + 1 < columns ? column + 1 : 0) {
        int64_t most = those ? those[column] : below;
        if ((uint64_t)numbers[e] >= (uint64_t)most) {
            PyErr_Format(PyExc_IndexError, "%s(%s): %s must be below %lld and not negative, got %lld", s->name, s->text, a->name,
                         (long long)most, (long long)numbers[e]);
            return -1;
        }
    }
    return 0;
}

/* Take what is no array; -1 with an error set. */
static int
take_number(const Signature *s, const Argument *a, PyObject *given, Value *value, Sizes *n)
{
    switch (a->type) {
    case 'n':
        value->number = PyFloat_AsDouble(given);
        return value->number == -1.0 && PyErr_Occurred() ? -1 : 0;
    case 't':
        value->whole = PyObject_IsTrue(given);
        return value->whole < 0 ? -1 : 0;
    case 'p':
        value->object = given;
        if (!PyTuple_Check(given)) {
            PyErr_Format(PyExc_TypeError, "%s(%s): %s must be a tuple, got %R", s->name, s->text, a->name, given);
            return -1;
        }
        return 0;
    default:
        value->whole = PyLong_AsLong(given);
        if (value->whole == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (a->type == 's' && value->whole < 0) {
            PyErr_Format(PyExc_ValueError, "%s(%s): %s must not be negative, got %ld", s->name, s->text, a->name, value->whole);
            return -1;
        }
        if (a->type == 's') {
            n->of[a->dimension[0][0].letter] = value->whole;
        }
        return 0;
    }
}

/* Take values and sizes, of which some may be known; -1 with an error that names the function and the argument. end_call() comes after
 * both. */
static int
take_arguments(Call *call, const Signature *s, PyObject *const *args)
{
    long work = 1;
    call->held = 0;
    for (int i = 0; i < s->count; i++) {
        const Argument *a = &s->argument[i];
        if (!is_array(a)) {
            if (take_number(s, a, args[i], &call->value[i], &call->sizes) < 0) {
                return -1;
            }
        } else if (a->optional && args[i] == Py_None) {
            call->value[i].f = NULL;
        } else {
            Py_buffer *view = &call->view[call->held];
            if (take_array(s, a, args[i], view, &call->sizes) < 0) {
                return -1;
            }
            call->held++;
            call->value[i].f = view->buf;
        }
    }
    for (int i = 0; i < s->letters; i++) {
        long size = call->sizes.of[s->letter[i]];
        if (size < s->least[s->letter[i]] && size != UNKNOWN) {
            PyErr_Format(PyExc_ValueError, "%s(%s): %c must be at least %ld, got %ld", s->name, s->text, 'a' + s->letter[i],
                         s->least[s->letter[i]], size);
            return -1;
        }
        work = work < LARGE && size > 1 ? work * size : work;
    }
    call->is_long = !s->holds && work >= LARGE / 4;
    for (int i = 0; i < s->count && s->numbers; i++) {
        const Argument *a = &s->argument[i];
        int checked = a->below != UNKNOWN || a->below_those_of != UNKNOWN || a->adds_up_to != UNKNOWN;
        if (checked && call->value[i].i != NULL && check_numbers(s, a, call, call->value[i].i) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
begin_call(Call *call, const Signature *s, PyObject *const *args, Py_ssize_t count)
{
    memset(&call->sizes, 0xff, sizeof call->sizes); /* UNKNOWN, all of them */
    call->held = 0;
    if (count != s->count) {
        PyErr_Format(PyExc_TypeError, "%s(%s): it has %d arguments, got %zd", s->name, s->text, s->count, count);
        return -1;
    }
    return take_arguments(call, s, args);
}
