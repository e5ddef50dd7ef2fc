/* Binds the counters of an audit: kernel/quality/visits.h. */
#include "bind.h"
#include "quality/visits.h"

/* An array argument: element size, whether it is written, and its name. */
typedef struct {
    int item, writable;
    const char *name;
} wanted;

static int get_all(PyObject *const *array, const wanted *want, Py_buffer *view, int count)
{
    for (int i = 0; i < count; i++) {
        view[i].buf = NULL;
        view[i].obj = NULL;
        view[i].len = 0;
        if (array[i] != Py_None && cp_buffer(array[i], &view[i], want[i].item, want[i].writable, want[i].name) < 0) {
            while (i-- > 0)
                PyBuffer_Release(&view[i]);
            return -1;
        }
    }
    return 0;
}

static void release_all(Py_buffer *view, int count)
{
    while (count-- > 0)
        PyBuffer_Release(&view[count]);
}

/* Return whether the sizes of batches sum to this many rows. */
static int sizes_fit(const Py_buffer *sizes, int64_t rows)
{
    const int64_t *size = sizes->buf;
    for (Py_ssize_t i = 0; i < sizes->len / 8; i++) {
        if (size[i] < 0 || size[i] > rows)
            return 0;
        rows -= size[i];
    }
    return rows == 0;
}

/* visits_add(ids, sizes, seen, rows, bound, chosen, along, last, places, parts) -> hash sum, foreign rows, chosen.
 * last: int64[3], the two previous visits, the later one first, and their number. */
static PyObject *visits_add(PyObject *self, PyObject *args)
{
    static const wanted want[7] = {{8, 0, "ids"},   {8, 0, "sizes"}, {8, 1, "seen"},  {8, 1, "chosen"},
                                   {8, 1, "along"}, {8, 1, "last"},  {8, 1, "places"}};
    PyObject *array[7], *result = NULL;
    Py_buffer view[7];
    long long rows, parts;
    unsigned long long bound;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLKOOOOL", &array[0], &array[1], &array[2], &rows, &bound, &array[3], &array[4],
                          &array[5], &array[6], &parts) ||
        get_all(array, want, view, 7) < 0)
        return NULL;
    int64_t ids = view[0].len / 8, *last = view[5].buf;
    if (rows < 0 || view[2].len / 8 < rows / 64 + (rows % 64 > 0) || view[3].len / 8 < ids || view[4].len != view[1].len
        || view[5].len != 24 || last[2] < 0 || last[2] > 2 || (view[6].buf && (view[6].len / 8 < ids || parts < 1))
        || !sizes_fit(&view[1], ids))
        PyErr_Format(PyExc_ValueError, "sizes, bits and arrays must match %lld visits of %lld rows", (long long)ids,
                     rows);
    else {
        cp_visits v = {view[2].buf, rows, bound, view[3].buf, 0, 0, 0, {last[0], last[1]}, last[2], view[6].buf, parts};
        Py_BEGIN_ALLOW_THREADS
        cp_visits_add(&v, view[0].buf, view[1].buf, view[1].len / 8, view[4].buf);
        Py_END_ALLOW_THREADS
        last[0] = v.last[0], last[1] = v.last[1], last[2] = v.before;
        result = Py_BuildValue("KLL", (unsigned long long)v.hash_sum, (long long)v.foreign, (long long)v.count);
    }
    release_all(view, 7);
    return result;
}

/* classes_find(values, table, least, codes) -> number of known classes before the first unknown one */
static PyObject *classes_find(PyObject *self, PyObject *args)
{
    static const wanted want[3] = {{8, 0, "values"}, {8, 0, "table"}, {8, 1, "codes"}};
    PyObject *array[3];
    Py_buffer view[3];
    long long least, known = -1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOLO", &array[0], &array[1], &least, &array[2]) || get_all(array, want, view, 3) < 0)
        return NULL;
    if (view[2].len >= view[0].len) {
        Py_BEGIN_ALLOW_THREADS
        known = cp_classes_find(view[0].buf, view[0].len / 8, view[1].buf, least, view[1].len / 8, view[2].buf);
        Py_END_ALLOW_THREADS
    }
    release_all(view, 3);
    return known < 0 ? PyErr_Format(PyExc_ValueError, "codes must hold all values") : PyLong_FromLongLong(known);
}

/* classes_add(codes, sizes, counts, start, last, longest): the last two may be None to skip gaps */
static PyObject *classes_add(PyObject *self, PyObject *args)
{
    static const wanted want[5] = {
        {8, 0, "codes"}, {8, 0, "sizes"}, {8, 1, "counts"}, {8, 1, "last"}, {8, 1, "longest"}};
    PyObject *array[5];
    Py_buffer view[5];
    long long start;
    int bad;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLOO", &array[0], &array[1], &array[2], &start, &array[3], &array[4]) ||
        get_all(array, want, view, 5) < 0)
        return NULL;
    int64_t batches = view[1].len / 8, kinds = batches ? view[2].len / 8 / batches : 0;
    bad = view[2].len / 8 != batches * kinds || !sizes_fit(&view[1], view[0].len / 8) || start < 0 ||
          view[3].len != view[4].len || (view[3].buf && view[3].len / 8 != kinds);
    if (!bad) {
        Py_BEGIN_ALLOW_THREADS bad =
            cp_classes_add(view[0].buf, view[1].buf, batches, kinds, view[2].buf, start, view[3].buf, view[4].buf) < 0;
        Py_END_ALLOW_THREADS
    }
    if (bad)
        PyErr_Format(PyExc_ValueError, "sizes, codes and arrays must match %lld batches of %lld kinds",
                     (long long)batches, (long long)kinds);
    release_all(view, 5);
    return bad ? NULL : Py_NewRef(Py_None);
}

PyMethodDef cp_visits_methods[] = {
    {"classes_add", classes_add, METH_VARARGS, "Count the classes of batches."},
    {"classes_find", classes_find, METH_VARARGS, "Find the classes of numbers in a table."},
    {"visits_add", visits_add, METH_VARARGS, "Record the rows of batches."},
    {NULL, NULL, 0, NULL},
};
