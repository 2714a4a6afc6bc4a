/* Whether dicts, functions and classes are what they were when this was made: asked before each step of a kernel. */

#ifndef REACTOR_WATCH_H
#define REACTOR_WATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef PyObject *(*Part)(PyObject *); /* PyFunction_GetCode and the like, which give borrowed references */

enum { PARTS = 3 };

typedef struct {
    PyObject *of, *items[PARTS]; /* all are borrowed from the tuples that the watch was made of */
} Entry;

enum { VALUES, COPIES, SIZES, FUNCTIONS, CLASSES, KINDS_OF_ENTRIES };

typedef struct {
    PyObject_HEAD
    PyObject *made_of;               /* the arguments */
    Entry *entries;                  /* those of all kinds, one kind after the other */
    Py_ssize_t ends[KINDS_OF_ENTRIES]; /* one past the last entry of each kind */
    PyObject *mro; /* the name */
    Part parts[PARTS];
} Watch;

/* Entries of the tuples of one kind, from a number on. Returns one past the last of them, -1 after an error. */
static Py_ssize_t
take_entries(Watch *watch, PyObject *kind, Py_ssize_t first)
{
    const Py_ssize_t count = PyTuple_Size(kind);

    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *given = PyTuple_GetItem(kind, k);
        const Py_ssize_t items = PyTuple_Size(given);
        if (items < 2 || items > PARTS + 1) {
            PyErr_SetString(PyExc_ValueError, "an entry has two items to four");
            return -1;
        }
        watch->entries[first + k].of = PyTuple_GetItem(given, 0);
        for (Py_ssize_t item = 1; item < items; item++) {
            watch->entries[first + k].items[item - 1] = PyTuple_GetItem(given, item);
        }
    }
    return first + count;
}

static int
take_all(Watch *watch, PyObject *args)
{
    Py_ssize_t count = 0;

    for (Py_ssize_t kind = 0; kind < KINDS_OF_ENTRIES; kind++) {
        count += PyTuple_Size(PyTuple_GetItem(args, kind));
    }
    watch->entries = PyMem_Calloc((size_t)count + 1, sizeof *watch->entries);
    if (watch->entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    count = 0;
    for (Py_ssize_t kind = 0; kind < KINDS_OF_ENTRIES; kind++) {
        count = watch->ends[kind] = take_entries(watch, PyTuple_GetItem(args, kind), count);
        if (count < 0) {
            return -1;
        }
    }
    for (Py_ssize_t k = 0; k < PARTS; k++) {
        *(void **)(watch->parts + k) = PyLong_AsVoidPtr(PyTuple_GetItem(PyTuple_GetItem(args, KINDS_OF_ENTRIES), k));
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *
watch_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *values, *copies, *sizes, *functions, *classes, *parts;
    PyTypeObject *const tuple = &PyTuple_Type;

    if (!PyArg_ParseTuple(
            args, "O!O!O!O!O!O!:Watch", tuple, &values, tuple, &copies, tuple, &sizes, tuple, &functions, tuple, &classes, tuple, &parts
        )) {
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Watch *watch = (Watch *)alloc(type, 0); /* all nought */
    if (watch == NULL) {
        return NULL;
    }
    watch->made_of = Py_NewRef(args);
    watch->mro = PyUnicode_InternFromString("__mro__");
    if (watch->mro == NULL || take_all(watch, args) < 0) {
        Py_DECREF(watch);
        return NULL;
    }
    return (PyObject *)watch;
}

static void
watch_dealloc(Watch *watch)
{
    PyTypeObject *type = Py_TYPE((PyObject *)watch);
    freefunc free = (freefunc)PyType_GetSlot(type, Py_tp_free);

    Py_XDECREF(watch->made_of);
    Py_XDECREF(watch->mro);
    PyMem_Free(watch->entries);
    free(watch);
    Py_DECREF(type);
}

/* Borrowed; None for no such key. */
static inline PyObject *
or_none(PyObject *value)
{
    return value == NULL ? Py_None : value;
}

static int
same_entry(const Watch *watch, int kind, const Entry *entry)
{
    PyObject *value;
    int same;

    switch (kind) {
    case VALUES:
        return or_none(PyDict_GetItemWithError(entry->of, entry->items[0])) == entry->items[1];
    case COPIES:
        return PyObject_RichCompareBool(or_none(PyDict_GetItemWithError(entry->of, entry->items[0])), entry->items[1], Py_EQ);
    case SIZES:
        return PyDict_Size(entry->of) == PyLong_AsSsize_t(entry->items[0]);
    case FUNCTIONS:
        for (int part = 0; part < PARTS; part++) {
            if (or_none(watch->parts[part](entry->of)) != entry->items[part]) {
                return 0;
            }
        }
        return 1;
    default:
        value = PyObject_GetAttr(entry->of, watch->mro);
        same = value == entry->items[0];
        Py_XDECREF(value);
        return same;
    }
}

/* same(objects, type): whether all is as it was, and each element of a list is of that very type. */
static PyObject *
watch_same(Watch *watch, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "same() takes a list and a type");
        return NULL;
    }
    const Py_ssize_t objects = PyList_Size(args[0]);
    for (Py_ssize_t k = 0; k < objects; k++) {
        if ((PyObject *)Py_TYPE(PyList_GetItem(args[0], k)) != args[1]) {
            Py_RETURN_FALSE;
        }
    }
    const Entry *entry = watch->entries;
    for (int kind = 0; kind < KINDS_OF_ENTRIES; kind++) {
        for (const Entry *end = watch->entries + watch->ends[kind]; entry < end; entry++) {
            if (same_entry(watch, kind, entry) <= 0) {
                if (PyErr_Occurred()) {
                    return NULL;
                }
                Py_RETURN_FALSE;
            }
        }
    }
    Py_RETURN_TRUE;
}

static PyMethodDef watch_methods[] = {
    {"same", (PyCFunction)(void (*)(void))watch_same, METH_FASTCALL, "Whether all is as it was, and all objects are of one type."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot watch_slots[] = {
    {Py_tp_doc, "Watch(values, copies, sizes, functions, classes, parts): what is to stay as it is."},
    {Py_tp_new, watch_new},
    {Py_tp_dealloc, watch_dealloc},
    {Py_tp_methods, watch_methods},
    {0, NULL},
};

static PyType_Spec watch_spec = {
    .name = "reactor_gymnasium.native._kernels.Watch",
    .basicsize = sizeof(Watch),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = watch_slots,
};

#endif
