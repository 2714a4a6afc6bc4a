/* Arrays and numbers that Python hands over. */

enum { MOST_NETWORKS = 64 }; /* that go side by side */

typedef struct {
    Py_buffer views[MOST_NETWORKS];
    int held;
    int failed;
} Held;

static void
release(Held *held)
{
    while (held->held > 0) {
        PyBuffer_Release(&held->views[--held->held]);
    }
}

/* Memory of an array without gaps of so many numbers (-1: any number); NULL for None where that may be. */
static void *
array_of(Held *held, PyObject *array, const char *what, const char *format, Py_ssize_t count, int writable, int optional)
{
    if (held->failed || (optional && array == Py_None)) {
        return NULL;
    }
    Py_buffer *view = &held->views[held->held];
    if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        held->failed = 1;
        return NULL;
    }
    held->held++;
    if (view->format == NULL || strlen(view->format) != 1 || strchr(format, view->format[0]) == NULL) {
        PyErr_Format(PyExc_TypeError, "%s must be of the type %s, got %s", what, format[0] == 'f' ? "float32" : format[0] == '?' ? "bool" : "int64",
                     view->format ? view->format : "bytes");
        held->failed = 1;
    } else if (count >= 0 && view->len / view->itemsize != count) {
        PyErr_Format(PyExc_ValueError, "%s must have %zd numbers, got %zd", what, count, view->len / view->itemsize);
        held->failed = 1;
    }
    return held->failed ? NULL : view->buf;
}

#define IN(at, what, count) (const float *)array_of(&held, args[at], what, "f", count, 0, 0)
#define MAYBE(at, what, count) (const float *)array_of(&held, args[at], what, "f", count, 0, 1)
#define OUT(at, what, count) (float *)array_of(&held, args[at], what, "f", count, 1, 0)
#define NUMBERS(at, what, count) (const int64_t *)array_of(&held, args[at], what, "ql", count, 0, 0)
#define LENGTH(at) (held.failed ? 0 : held.views[at].len / held.views[at].itemsize)
#define ARGUMENTS(wanted, signature)                        \
    (void)module;                                           \
    if (count != wanted) {                                  \
        PyErr_SetString(PyExc_TypeError, signature);        \
        return NULL;                                        \
    }                                                       \
    Held held;                                              \
    held.held = held.failed = 0
#define WHOLE_ROWS                                                                                       \
    if (!held.failed && rows && size % rows) {                                                            \
        PyErr_Format(PyExc_ValueError, "%zd numbers are not those of %zd rows", size, rows);              \
    }
#define VALUES_OF_EACH_ROW                                                                               \
    if (!held.failed && (rows ? size % rows || !size : size)) {                                           \
        PyErr_Format(PyExc_ValueError, "%zd values are not those of %zd rows", size, rows);               \
    }
#define UNLESS_FAILED                                       \
    if (held.failed || PyErr_Occurred()) {                  \
        release(&held);                                     \
        return NULL;                                        \
    }
#define FUNCTION(name) static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t count)

static float
number(PyObject *given)
{
    return (float)PyFloat_AsDouble(given);
}

static PyObject *
done(Held *held)
{
    release(held);
    return Py_NewRef(Py_None);
}
