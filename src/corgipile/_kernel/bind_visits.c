/* Binds the counters of an audit: kernel/quality/visits.h. */
#include "bind.h"
#include "quality/visits.h"

/* Return whether the sizes of batches sum to this many rows. */
static int sizes_fit(const cp_array *sizes, int64_t rows)
{
    const int64_t *size = sizes->at;
    for (int64_t i = 0; i < sizes->count; i++) {
        if (size[i] < 0 || size[i] > rows)
            return 0;
        rows -= size[i];
    }
    return rows == 0;
}

/* visits_add(ids, sizes, seen, rows, bound, chosen, along, last, places, parts) -> hash sum, foreign rows, chosen.
 * last: int64[3], the two previous visits, the later one first, and their number. */
static PyObject *visits_add(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(ids, "ids", 8);
    CP_ARRAY(sizes, "sizes", 8);
    CP_ARRAY(seen, "seen", 8, CP_WRITE);
    CP_ARRAY(chosen, "chosen", 8, CP_WRITE);
    CP_ARRAY(along, "along", 8, CP_WRITE);
    CP_ARRAY(previous, "last", 8, CP_WRITE);
    CP_ARRAY(places, "places", 8, CP_WRITE, 1);
    long long rows, parts;
    unsigned long long bound;
    if (!PyArg_ParseTuple(args, "O&O&O&LKO&O&O&O&L", CP_HOLD(ids), CP_HOLD(sizes), CP_HOLD(seen), &rows, &bound,
                          CP_HOLD(chosen), CP_HOLD(along), CP_HOLD(previous), CP_HOLD(places), &parts))
        return NULL;
    int64_t *last = previous.at;
    if (rows < 0 || seen.count < rows / 64 + (rows % 64 > 0) || chosen.count < ids.count || along.count != sizes.count
        || previous.count != 3 || last[2] < 0 || last[2] > 2 || (places.at && (places.count < ids.count || parts < 1))
        || !sizes_fit(&sizes, ids.count))
        return PyErr_Format(PyExc_ValueError, "sizes, bits and arrays must match %lld visits of %lld rows",
                            (long long)ids.count, rows);
    cp_visits v = {seen.at, rows, bound, chosen.at, 0, 0, 0, {last[0], last[1]}, last[2], places.at, parts};
    Py_BEGIN_ALLOW_THREADS
    cp_visits_add(&v, ids.at, sizes.at, sizes.count, along.at);
    Py_END_ALLOW_THREADS
    last[0] = v.last[0], last[1] = v.last[1], last[2] = v.before;
    return Py_BuildValue("KLL", (unsigned long long)v.hash_sum, (long long)v.foreign, (long long)v.count);
}

/* classes_find(values, table, least, codes) -> number of known classes before the first unknown one */
static PyObject *classes_find(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(values, "values", 8);
    CP_ARRAY(table, "table", 8);
    CP_ARRAY(codes, "codes", 8, CP_WRITE);
    long long least, known;
    if (!PyArg_ParseTuple(args, "O&O&LO&", CP_HOLD(values), CP_HOLD(table), &least, CP_HOLD(codes)))
        return NULL;
    if (codes.count < values.count)
        return PyErr_Format(PyExc_ValueError, "codes must hold all values");
    Py_BEGIN_ALLOW_THREADS
    known = cp_classes_find(values.at, values.count, table.at, least, table.count, codes.at);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong(known);
}

/* classes_add(codes, sizes, counts, start, last, longest): the last two may be None to skip gaps */
static PyObject *classes_add(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(codes, "codes", 8);
    CP_ARRAY(sizes, "sizes", 8);
    CP_ARRAY(counts, "counts", 8, CP_WRITE);
    CP_ARRAY(last, "last", 8, CP_WRITE, 1);
    CP_ARRAY(longest, "longest", 8, CP_WRITE, 1);
    long long start;
    if (!PyArg_ParseTuple(args, "O&O&O&LO&O&", CP_HOLD(codes), CP_HOLD(sizes), CP_HOLD(counts), &start, CP_HOLD(last),
                          CP_HOLD(longest)))
        return NULL;
    int64_t batches = sizes.count, kinds = batches ? counts.count / batches : 0;
    int bad = counts.count != batches * kinds || !sizes_fit(&sizes, codes.count) || start < 0 ||
              last.count != longest.count || (last.at && last.count != kinds);
    if (!bad) {
        Py_BEGIN_ALLOW_THREADS
        bad = cp_classes_add(codes.at, sizes.at, batches, kinds, counts.at, start, last.at, longest.at) < 0;
        Py_END_ALLOW_THREADS
    }
    if (bad)
        return PyErr_Format(PyExc_ValueError, "sizes, codes and arrays must match %lld batches of %lld kinds",
                            (long long)batches, (long long)kinds);
    Py_RETURN_NONE;
}

PyMethodDef cp_visits_methods[] = {
    {"classes_add", classes_add, METH_VARARGS, "Count the classes of batches."},
    {"classes_find", classes_find, METH_VARARGS, "Find the classes of numbers in a table."},
    {"visits_add", visits_add, METH_VARARGS, "Record the rows of batches."},
    {NULL, NULL, 0, NULL},
};
