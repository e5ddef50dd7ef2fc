/* Binds the hashing of text to sparse rows: kernel/text/hashed.h. */
#include "bind.h"

/* Return whether a signal, such as Ctrl-C, has set an exception. */
static int signalled(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    int error = PyErr_CheckSignals();
    PyGILState_Release(state);
    return error;
}

#define CP_INTERRUPTED() signalled()
#include "text/hashed.h"

enum { BYTES, OFFSETS, NUMBERS, ARRAYS };

static const char *const array_names[ARRAYS] = {"bytes", "offsets", "numbers"};
static const Py_ssize_t array_sizes[ARRAYS] = {1, 8, 8};

typedef struct {
    cp_hashed_column columns[CP_MAX_HASHED_COLUMNS];
    cp_hashed_term terms[CP_MAX_HASHED_COLUMNS];
    Py_buffer held[CP_MAX_HASHED_COLUMNS * ARRAYS]; /* of columns */
    int held_count;
} sources;

static void release(sources *s)
{
    while (s->held_count > 0)
        PyBuffer_Release(&s->held[--s->held_count]);
}

/* Get an array of a column unless it is None. Returns the number of elements, 0 for None, -1 with an exception set. */
static Py_ssize_t get_array(sources *s, PyObject *object, int which, const void **at)
{
    *at = NULL;
    if (object == Py_None)
        return 0;
    Py_buffer *view = &s->held[s->held_count];
    if (cp_buffer(object, view, array_sizes[which], 0, array_names[which]) < 0)
        return -1;
    s->held_count++;
    *at = view->buf;
    return view->len / array_sizes[which];
}

static int value_error(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

/* Check that offsets ascend within their bytes. */
static int check_offsets(const int64_t *offsets, Py_ssize_t rows, Py_ssize_t bytes)
{
    if (offsets[0] < 0 || offsets[rows] > bytes)
        return value_error("offsets must lie within the bytes");
    for (Py_ssize_t i = 0; i < rows; i++)
        if (offsets[i] > offsets[i + 1])
            return value_error("offsets must not decrease");
    return 0;
}

/* Take a column: (kind, seed, bytes, offsets, numbers). */
static int get_column(sources *s, cp_hashed_column *c, PyObject *object, Py_ssize_t rows)
{
    PyObject *objects[ARRAYS];
    const void *at[ARRAYS];
    Py_ssize_t counts[ARRAYS];
    int kind;
    unsigned int seed;
    if (!PyTuple_Check(object) ||
        !PyArg_ParseTuple(object, "iIOOO", &kind, &seed, &objects[BYTES], &objects[OFFSETS], &objects[NUMBERS]))
        return PyErr_Occurred() ? -1 : value_error("columns must be tuples");
    for (int i = 0; i < ARRAYS; i++)
        if ((counts[i] = get_array(s, objects[i], i, &at[i])) < 0)
            return -1;
    if (kind < CP_HASHED_WORDS || kind > CP_HASHED_NUMBER)
        return value_error("kind of column must be one of HASHED_WORDS, HASHED_CATEGORY, HASHED_NUMBER");
    *c = (cp_hashed_column){(enum cp_hashed_kind)kind, seed, at[BYTES], at[OFFSETS], at[NUMBERS]};
    if (kind == CP_HASHED_NUMBER)
        return counts[NUMBERS] == rows ? 0 : value_error("numbers must have one entry per row");
    if (counts[OFFSETS] != rows + 1)
        return value_error("offsets must have one entry more than rows");
    return check_offsets(c->offsets, rows, counts[BYTES]);
}

/* Take a term: a tuple of column indices. */
static int get_term(cp_hashed_term *t, PyObject *object, Py_ssize_t columns)
{
    Py_ssize_t count = PyTuple_Check(object) ? PyTuple_Size(object) : 0;
    if (count < 1 || count > CP_MAX_CROSSED)
        return value_error("terms must be tuples of 1 to 4 columns");
    t->count = (int)count;
    for (int i = 0; i < t->count; i++) {
        long at = PyLong_AsLong(PyTuple_GetItem(object, i));
        if (at == -1 && PyErr_Occurred())
            return -1;
        if (at < 0 || at >= columns)
            return value_error("terms must name existing columns");
        t->columns[i] = (int)at;
    }
    return 0;
}

static int get_all(sources *s, cp_hashed *h, PyObject *columns, PyObject *terms, Py_ssize_t rows)
{
    Py_ssize_t count = PyList_Size(columns), crossed = PyList_Size(terms);
    if (count < 0 || crossed < 0)
        return -1;
    if (count > CP_MAX_HASHED_COLUMNS || crossed > CP_MAX_HASHED_COLUMNS)
        return value_error("at most 32 columns and terms are supported");
    for (Py_ssize_t i = 0; i < count; i++)
        if (get_column(s, &s->columns[i], PyList_GetItem(columns, i), rows) < 0)
            return -1;
    for (Py_ssize_t i = 0; i < crossed; i++)
        if (get_term(&s->terms[i], PyList_GetItem(terms, i), count) < 0)
            return -1;
    h->columns = s->columns;
    h->terms = s->terms;
    h->columns_count = (int)count;
    h->terms_count = (int)crossed;
    return 0;
}

/* hash_rows(columns, terms, ends, *, ...) -> (indices, values), the bytes of int32 and float32; `ends` gets the number
 * of entries up to each row. */
static PyObject *hash_rows(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "bits", "ngrams", "missing", "beside", NULL};
    CP_ARRAY(ends, "ends", 4, CP_WRITE);
    CP_ARRAY(missing, "missing", 1, CP_READ, 1);
    CP_ARRAY(beside, "beside", 4, CP_READ, 1);
    PyObject *columns, *terms, *result = NULL;
    sources s;
    cp_hashed h = {0};
    s.held_count = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOO&$iiO&O&", words, &columns, &terms, CP_HOLD(ends), &h.bits,
                                     &h.ngrams, CP_HOLD(missing), CP_HOLD(beside)))
        return NULL;
    const int64_t rows = ends.count;
    if (h.bits < 1 || h.bits > CP_MAX_HASH_BITS || h.ngrams < 1 || h.ngrams > CP_MAX_NGRAMS)
        return PyErr_Format(PyExc_ValueError, "bits or ngrams are out of range");
    if (missing.at && missing.count != rows)
        return PyErr_Format(PyExc_ValueError, "missing must have one entry per row");
    h.missing = missing.at;
    h.beside = beside.at;
    h.beside_count = beside.at && rows ? beside.count / rows : 0;
    if (beside.at && beside.count != h.beside_count * rows)
        return PyErr_Format(PyExc_ValueError, "beside must have the same number of entries for each row");
    if (h.beside_count + ((int64_t)1 << h.bits) > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "rows must have fewer than 2^31 features");
    if (get_all(&s, &h, columns, terms, rows) == 0) {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = cp_hashed_rows(&h, rows, ends.at);
        Py_END_ALLOW_THREADS
        if (status == 0)
            result = Py_BuildValue("y#y#", h.entries ? (const char *)h.indices : "", (Py_ssize_t)(h.entries * 4),
                                   h.entries ? (const char *)h.values : "", (Py_ssize_t)(h.entries * 4));
        else if (!PyErr_Occurred())
            PyErr_NoMemory();
    }
    cp_hashed_free(&h);
    release(&s);
    return result;
}

static PyObject *murmur(PyObject *Py_UNUSED(self), PyObject *args)
{
    const char *bytes;
    Py_ssize_t length;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "y#I", &bytes, &length, &seed))
        return NULL;
    return PyLong_FromUnsignedLong(cp_murmur((const uint8_t *)bytes, length, seed));
}

PyMethodDef cp_hashed_methods[] = {
    {"hash_rows", CP_BY_NAME(hash_rows), "Hash text, categories and numbers to sparse rows."},
    {"murmur", murmur, METH_VARARGS, "Hash bytes by MurmurHash3, to 32 bits."},
    {NULL, NULL, 0, NULL},
};

const cp_constant cp_hashed_constants[] = {
    {"HASHED_WORDS", CP_HASHED_WORDS},       {"HASHED_CATEGORY", CP_HASHED_CATEGORY},
    {"HASHED_NUMBER", CP_HASHED_NUMBER},     {"MOST_HASH_BITS", CP_MAX_HASH_BITS},
    {"MOST_NGRAMS", CP_MAX_NGRAMS},         {"MOST_CROSSED", CP_MAX_CROSSED},
    {"MOST_HASHED_COLUMNS", CP_MAX_HASHED_COLUMNS},   {NULL, 0},
};
