/* Binds the scaling of features: kernel/sgd/moments.h, kernel/sgd/scale_sample.h. */
#include "bind.h"
#include "sgd/scale_sample.h"
#include "sgd/moments.h"

#include <stdlib.h>

#define MOMENTS "corgipile.moments"
#define SCALE_SAMPLE "corgipile.look"
CP_CAPSULE(moments_of, MOMENTS)
CP_CAPSULE(look_of, SCALE_SAMPLE)

static void moments_free(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, MOMENTS)); }
static void look_free(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, SCALE_SAMPLE)); }

/* Return a capsule of zeroed memory for a checked number of features. */
static PyObject *create(PyObject *argument, size_t (*size)(int64_t), const char *name, PyCapsule_Destructor destroy)
{
    long long width = PyLong_AsLongLong(argument);
    void *memory;
    if (width == -1 && PyErr_Occurred())
        return NULL;
    if (width < 1 || width > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "features must be 1 to 2^31 - 1, got %lld", width);
    if (!(memory = calloc(1, size(width))))
        return PyErr_NoMemory();
    *(int64_t *)memory = width; /* the first field of both */
    PyObject *capsule = PyCapsule_New(memory, name, destroy);
    if (!capsule)
        free(memory);
    return capsule;
}

/* moments_new(features) -> moments */
static PyObject *moments_new(PyObject *Py_UNUSED(self), PyObject *width)
{
    return create(width, cp_moments_size, MOMENTS, moments_free);
}

/* moments_dense(moments, rows, visit) */
static PyObject *moments_dense(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(rows, "rows");
    CP_ARRAY(visit, "visit", 4);
    cp_moments *m;
    if (!PyArg_ParseTuple(args, "O&O&O&", moments_of, &m, CP_HOLD(rows), CP_HOLD(visit)))
        return NULL;
    const int32_t *slot = visit.at;
    const int64_t bytes = rows.view.itemsize, row = m->width * bytes;
    int64_t good = 0;
    while (row > 0 && good < visit.count && slot[good] >= 0 && slot[good] < rows.bytes / row)
        good++;
    if (good != visit.count || (bytes != 4 && bytes != 8) || rows.bytes % row)
        return PyErr_Format(
            PyExc_ValueError,
            "rows of %lld bytes, in numbers of %lld, must be whole rows of %lld features and contain all visited slots",
            (long long)rows.bytes, (long long)bytes, (long long)m->width);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < visit.count; i++)
        cp_moments_add(m, (const char *)rows.at + slot[i] * row, (int)bytes);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* moments_sparse(moments, indices, values, rows): add the entries of this many rows */
static PyObject *moments_sparse(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(indices, "indices", 4);
    CP_ARRAY(values, "values");
    long long rows;
    cp_moments *m;
    if (!PyArg_ParseTuple(args, "O&O&O&L", moments_of, &m, CP_HOLD(indices), CP_HOLD(values), &rows))
        return NULL;
    if ((values.view.itemsize != 4 && values.view.itemsize != 8) || values.count != indices.count)
        return PyErr_Format(PyExc_ValueError,
                            "indices and values must have the same length, and values 4 or 8 bytes");
    Py_BEGIN_ALLOW_THREADS
    m->rows += rows;
    cp_moments_add_entries(m, indices.at, values.at, indices.count, (int)values.view.itemsize);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* moments_scaling(moments, sparse, centred, leave flags alone, number_bytes, center, scale) -> first feature whose
 * spread overflows, or -1 */
static PyObject *moments_scaling(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(center, "center", 8, CP_WRITE);
    CP_ARRAY(scale, "scale", 8, CP_WRITE);
    int sparse, centred, flags, bytes;
    cp_moments *m;
    if (!PyArg_ParseTuple(args, "O&pppiO&O&", moments_of, &m, &sparse, &centred, &flags, &bytes, CP_HOLD(center),
                          CP_HOLD(scale)))
        return NULL;
    if (center.count != m->width || scale.count != m->width)
        return PyErr_Format(PyExc_ValueError, "center and scale must have %lld features", (long long)m->width);
    return PyLong_FromLongLong(cp_moments_scaling(m, sparse, centred, flags, bytes, center.at, scale.at));
}

/* scaling_apply(center, factor, rows): all of one type, rows in place */
static PyObject *scaling_apply(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(center, "rows");
    CP_ARRAY(factor, "rows");
    CP_ARRAY(rows, "rows", 0, CP_WRITE);
    if (!PyArg_ParseTuple(args, "O&O&O&", CP_HOLD(center), CP_HOLD(factor), CP_HOLD(rows)))
        return NULL;
    const Py_ssize_t bytes = rows.view.itemsize;
    if (center.bytes == 0 || factor.bytes != center.bytes || rows.bytes % center.bytes ||
        center.view.itemsize != bytes || factor.view.itemsize != bytes || (bytes != 4 && bytes != 8))
        return PyErr_Format(PyExc_ValueError, "rows, center and factor must have one width and type");
    Py_BEGIN_ALLOW_THREADS
    for (char *row = rows.at, *end = row + rows.bytes; row < end; row += center.bytes)
        cp_scale_row(row, (int)bytes, center.count, center.at, factor.at);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* scaling_fold(center, scale, weights, intercepts, number_bytes, back), float64, in place */
static PyObject *scaling_fold(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(center, "weights", 8);
    CP_ARRAY(scale, "weights", 8);
    CP_ARRAY(weights, "weights", 8, CP_WRITE);
    CP_ARRAY(biases, "weights", 8, CP_WRITE);
    int bytes, back;
    if (!PyArg_ParseTuple(args, "O&O&O&O&ip", CP_HOLD(center), CP_HOLD(scale), CP_HOLD(weights), CP_HOLD(biases),
                          &bytes, &back))
        return NULL;
    const int64_t width = center.count;
    if (scale.count != width || weights.count != width * biases.count || (bytes != 4 && bytes != 8))
        return PyErr_Format(PyExc_ValueError, "weights, intercepts, center and scale must have matching shapes");
    for (int64_t k = 0; k < biases.count; k++)
        cp_fold(center.at, scale.at, width, bytes, back, (double *)weights.at + k * width, (double *)biases.at + k);
    Py_RETURN_NONE;
}

/* look_runs(rows, features) -> [(first row, row after the last)] */
static PyObject *look_runs(PyObject *Py_UNUSED(self), PyObject *args)
{
    long long rows, width;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "LL", &rows, &width) || !(list = PyList_New(0)))
        return NULL;
    int64_t start, stop = 0;
    for (int run = 0; run < CP_LOOK_RUNS; run++) {
        start = cp_look_run(rows, width > 0 ? width : 1, run, stop, &stop);
        PyObject *pair = start < stop ? Py_BuildValue("LL", (long long)start, (long long)stop) : Py_NewRef(Py_None);
        if (!pair || (pair != Py_None && PyList_Append(list, pair) < 0))
            Py_CLEAR(list);
        Py_XDECREF(pair);
        if (!list)
            break;
    }
    return list;
}

/* look_new(features) -> scale sample */
static PyObject *look_new(PyObject *Py_UNUSED(self), PyObject *width)
{
    return create(width, cp_look_size, SCALE_SAMPLE, look_free);
}

/* look_add(look, rows float64) */
static PyObject *look_add(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(rows, "rows", 8);
    cp_scale_sample *k;
    if (!PyArg_ParseTuple(args, "O&O&", look_of, &k, CP_HOLD(rows)))
        return NULL;
    for (int64_t at = 0; at + k->width <= rows.count; at += k->width)
        cp_look_add(k, (const double *)rows.at + at);
    Py_RETURN_NONE;
}

/* look_end(look, rows of the table) -> scales, mean squared length, size ratio, share of means, least mean square,
 * largest feature, smallest feature */
static PyObject *look_end(PyObject *Py_UNUSED(self), PyObject *args)
{
    long long rows;
    cp_scale_sample *k;
    if (!PyArg_ParseTuple(args, "O&L", look_of, &k, &rows))
        return NULL;
    cp_scale_result result = cp_scale_sample_end(k, rows);
    return Py_BuildValue("iddddLL", (int)result.scales, result.length, result.scale_ratio, result.mean_share,
                         result.least, (long long)result.largest, (long long)result.smallest);
}

const cp_constant cp_moments_constants[] = {{"SCALES_FINE", CP_SCALES_FINE}, {"SCALES_DIFFER", CP_SCALES_DIFFER},
                                            {"FEATURES_SMALL", CP_FEATURES_SMALL}, {"ROWS_LONG", CP_ROWS_LONG},
                                            {"ROWS_OFF_CENTRE", CP_ROWS_OFF_CENTRE}, {NULL, 0}};

PyMethodDef cp_moments_methods[] = {
    {"look_add", look_add, METH_VARARGS, "Add rows to a scale sample."},
    {"look_end", look_end, METH_VARARGS, "Return how features are scaled in the sampled rows."},
    {"look_new", look_new, METH_O, "Create a scale sample."},
    {"look_runs", look_runs, METH_VARARGS, "Return which rows of a table to sample."},
    {"moments_dense", moments_dense, METH_VARARGS, "Add dense rows to moments."},
    {"moments_new", moments_new, METH_O, "Create moments of features."},
    {"moments_scaling", moments_scaling, METH_VARARGS, "Write the centre and scale of each feature."},
    {"moments_sparse", moments_sparse, METH_VARARGS, "Add sparse rows to moments."},
    {"scaling_apply", scaling_apply, METH_VARARGS, "Standardise dense rows."},
    {"scaling_fold", scaling_fold, METH_VARARGS, "Convert weights between standardised and raw rows."},
    {NULL, NULL, 0, NULL},
};
