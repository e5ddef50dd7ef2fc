/* Binds the scaling of features: kernel/sgd/moments.h, kernel/sgd/scale_sample.h. */
#include "bind.h"
#include "sgd/scale_sample.h"
#include "sgd/moments.h"

#include <stdlib.h>

#define MOMENTS "corgipile.moments"
#define SCALE_SAMPLE "corgipile.look"

static void moments_free(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, MOMENTS)); }
static void look_free(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, SCALE_SAMPLE)); }

/* Return a capsule of zeroed memory for a checked number of features. */
static PyObject *create(PyObject *argument, size_t (*size)(int64_t), const char *name, PyCapsule_Destructor destroy)
{
    long long width = PyLong_AsLongLong(argument);
    PyObject *capsule;
    void *memory;
    if (width == -1 && PyErr_Occurred())
        return NULL;
    if (width < 1 || width > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "features must be 1 to 2^31 - 1, got %lld", width);
    if (!(memory = calloc(1, size(width))))
        return PyErr_NoMemory();
    *(int64_t *)memory = width; /* the first field of both */
    capsule = PyCapsule_New(memory, name, destroy);
    if (!capsule)
        free(memory);
    return capsule;
}

/* moments_new(features) -> moments */
static PyObject *moments_new(PyObject *self, PyObject *width)
{
    (void)self;
    return create(width, cp_moments_size, MOMENTS, moments_free);
}

/* Get rows by slot and the slots to visit, which must all exist. */
static int rows_of(PyObject *x, PyObject *slots, int64_t width, Py_buffer *rows, Py_buffer *visit)
{
    if (cp_buffer(x, rows, 0, 0, "rows") < 0)
        return -1;
    if (cp_buffer(slots, visit, sizeof(int32_t), 0, "visit") < 0) {
        PyBuffer_Release(rows);
        return -1;
    }
    const int32_t *slot = visit->buf;
    Py_ssize_t row = (Py_ssize_t)width * rows->itemsize, row_count = rows->len / row, good = 0, count = visit->len / 4;
    while (good < count && slot[good] >= 0 && slot[good] < row_count)
        good++;
    if (good == count && (rows->itemsize == 4 || rows->itemsize == 8) && rows->len % row == 0)
        return 0;
    PyErr_Format(
        PyExc_ValueError,
        "rows of %zd bytes, in numbers of %zd, must be whole rows of %lld features and contain all visited slots",
        rows->len, rows->itemsize, (long long)width);
    PyBuffer_Release(visit);
    PyBuffer_Release(rows);
    return -1;
}

/* moments_dense(moments, rows, visit) */
static PyObject *moments_dense(PyObject *self, PyObject *args)
{
    PyObject *capsule, *x, *slots;
    Py_buffer rows, visit;
    cp_moments *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &x, &slots) || !(m = PyCapsule_GetPointer(capsule, MOMENTS)) ||
        rows_of(x, slots, m->width, &rows, &visit) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < visit.len / 4; i++)
        cp_moments_add(m, (const char *)rows.buf + ((const int32_t *)visit.buf)[i] * m->width * rows.itemsize,
                       (int)rows.itemsize);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&visit);
    PyBuffer_Release(&rows);
    Py_RETURN_NONE;
}

/* moments_sparse(moments, indices, values, rows): add the entries of this many rows */
static PyObject *moments_sparse(PyObject *self, PyObject *args)
{
    PyObject *capsule, *i, *x;
    Py_buffer indices, values;
    long long rows;
    cp_moments *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOL", &capsule, &i, &x, &rows) || !(m = PyCapsule_GetPointer(capsule, MOMENTS)) ||
        cp_buffer(i, &indices, sizeof(int32_t), 0, "indices") < 0)
        return NULL;
    if (cp_buffer(x, &values, 0, 0, "values") < 0) {
        PyBuffer_Release(&indices);
        return NULL;
    }
    int fits = (values.itemsize == 4 || values.itemsize == 8) && values.len / values.itemsize == indices.len / 4;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        m->rows += rows;
        cp_moments_add_entries(m, indices.buf, values.buf, indices.len / 4, (int)values.itemsize);
        Py_END_ALLOW_THREADS
    } else
        PyErr_SetString(PyExc_ValueError, "indices and values must have the same length, and values 4 or 8 bytes");
    PyBuffer_Release(&values);
    PyBuffer_Release(&indices);
    return fits ? Py_NewRef(Py_None) : NULL;
}

/* moments_scaling(moments, sparse, centred, leave flags alone, number_bytes, center, scale) -> first feature whose
 * spread overflows, or -1 */
static PyObject *moments_scaling(PyObject *self, PyObject *args)
{
    PyObject *capsule, *into[2], *result = NULL;
    Py_buffer center, scale;
    int sparse, centred, flags, bytes;
    cp_moments *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "OpppiOO", &capsule, &sparse, &centred, &flags, &bytes, &into[0], &into[1]) ||
        !(m = PyCapsule_GetPointer(capsule, MOMENTS)) || cp_buffer(into[0], &center, 8, 1, "center") < 0)
        return NULL;
    if (cp_buffer(into[1], &scale, 8, 1, "scale") == 0) {
        if (center.len / 8 == m->width && scale.len == center.len)
            result = PyLong_FromLongLong(cp_moments_scaling(m, sparse, centred, flags, bytes, center.buf, scale.buf));
        else
            PyErr_Format(PyExc_ValueError, "center and scale must have %lld features", (long long)m->width);
        PyBuffer_Release(&scale);
    }
    PyBuffer_Release(&center);
    return result;
}

static int apply_all(const Py_buffer view[3])
{
    Py_ssize_t width = view[0].len, bytes = view[2].itemsize;
    if (width == 0 || view[1].len != width || view[2].len % width || view[0].itemsize != bytes
        || view[1].itemsize != bytes || (bytes != 4 && bytes != 8))
        return PyErr_SetString(PyExc_ValueError, "rows, center and factor must have one width and type"), -1;
    Py_BEGIN_ALLOW_THREADS
    for (char *row = view[2].buf, *end = row + view[2].len; row < end; row += width)
        cp_scale_row(row, (int)bytes, width / bytes, view[0].buf, view[1].buf);
    Py_END_ALLOW_THREADS
    return 0;
}

/* scaling_apply(center, factor, rows): all of one type, rows in place */
static PyObject *scaling_apply(PyObject *self, PyObject *args)
{
    PyObject *array[3];
    Py_buffer view[3];
    int held = 0, status = -1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &array[0], &array[1], &array[2]))
        return NULL;
    while (held < 3 && cp_buffer(array[held], &view[held], 0, held == 2, "rows") == 0)
        held++;
    if (held == 3)
        status = apply_all(view);
    while (held > 0)
        PyBuffer_Release(&view[--held]);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

static int fold_all(const Py_buffer view[4], int bytes, int back)
{
    Py_ssize_t width = view[0].len / 8, outputs = view[3].len / 8;
    if (view[1].len / 8 != width || view[2].len / 8 != width * outputs || (bytes != 4 && bytes != 8))
        return PyErr_SetString(PyExc_ValueError, "weights, intercepts, center and scale must have matching shapes"), -1;
    for (Py_ssize_t k = 0; k < outputs; k++)
        cp_fold(view[0].buf, view[1].buf, width, bytes, back, (double *)view[2].buf + k * width,
                (double *)view[3].buf + k);
    return 0;
}

/* scaling_fold(center, scale, weights, intercepts, number_bytes, back), float64, in place */
static PyObject *scaling_fold(PyObject *self, PyObject *args)
{
    PyObject *array[4];
    Py_buffer view[4];
    int bytes, back, held = 0, status = -1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOip", &array[0], &array[1], &array[2], &array[3], &bytes, &back))
        return NULL;
    while (held < 4 && cp_buffer(array[held], &view[held], 8, held > 1, "weights") == 0)
        held++;
    if (held == 4)
        status = fold_all(view, bytes, back);
    while (held > 0)
        PyBuffer_Release(&view[--held]);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* look_runs(rows, features) -> [(first row, row after the last)] */
static PyObject *look_runs(PyObject *self, PyObject *args)
{
    long long rows, width;
    PyObject *list;
    (void)self;
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
static PyObject *look_new(PyObject *self, PyObject *width)
{
    (void)self;
    return create(width, cp_look_size, SCALE_SAMPLE, look_free);
}

/* look_add(look, rows float64) */
static PyObject *look_add(PyObject *self, PyObject *args)
{
    PyObject *capsule, *x;
    Py_buffer rows;
    cp_scale_sample *k;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &x) || !(k = PyCapsule_GetPointer(capsule, SCALE_SAMPLE)) ||
        cp_buffer(x, &rows, sizeof(double), 0, "rows") < 0)
        return NULL;
    for (Py_ssize_t at = 0; at + k->width <= rows.len / 8; at += k->width)
        cp_look_add(k, (const double *)rows.buf + at);
    PyBuffer_Release(&rows);
    Py_RETURN_NONE;
}

/* look_end(look, rows of the table) -> scales, mean squared length, size ratio, share of means, least mean square,
 * largest feature, smallest feature */
static PyObject *look_end(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    long long rows;
    cp_scale_sample *k;
    (void)self;
    if (!PyArg_ParseTuple(args, "OL", &capsule, &rows) || !(k = PyCapsule_GetPointer(capsule, SCALE_SAMPLE)))
        return NULL;
    cp_scale_result result = cp_scale_sample_end(k, rows);
    return Py_BuildValue("iddddLL", (int)result.scales, result.length, result.apart, result.aside, result.least,
                         (long long)result.largest, (long long)result.smallest);
}

const cp_constant cp_moments_constants[] = {{"SCALES_FINE", CP_SCALES_FINE}, {"SCALES_APART", CP_SCALES_DIFFER},
                                            {"FEATURES_SMALL", CP_FEATURES_SMALL}, {"ROWS_LONG", CP_ROWS_LONG},
                                            {"ROWS_ASIDE", CP_ROWS_OFF_CENTRE}, {NULL, 0}};

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
