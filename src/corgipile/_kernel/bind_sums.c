/* Binds exact sums: kernel/sgd/sums.h. */
#include "bind.h"
#include "sgd/sums.h"

/* Get a sum from bytes that the caller owns. */
static int sum_of(PyObject *object, Py_buffer *view)
{
    if (cp_buffer(object, view, 1, 1, "sum") < 0)
        return -1;
    if (view->len == sizeof(cp_sum))
        return 0;
    PyErr_Format(PyExc_ValueError, "a sum must have %zu bytes, got %zd", sizeof(cp_sum), view->len);
    PyBuffer_Release(view);
    return -1;
}

/* sum_add(sum bytearray[SUM_BYTES], values float64) */
static PyObject *sum_add(PyObject *self, PyObject *args)
{
    PyObject *object, *array;
    Py_buffer state, values;
    cp_sum sum;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &object, &array) || sum_of(object, &state) < 0)
        return NULL;
    if (cp_buffer(array, &values, sizeof(double), 0, "values") < 0) {
        PyBuffer_Release(&state);
        return NULL;
    }
    memcpy(&sum, state.buf, sizeof sum);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < values.len / (Py_ssize_t)sizeof(double); i++)
        cp_sum_add(&sum, ((const double *)values.buf)[i]);
    cp_sum_carry(&sum);
    Py_END_ALLOW_THREADS
    memcpy(state.buf, &sum, sizeof sum);
    PyBuffer_Release(&values);
    PyBuffer_Release(&state);
    Py_RETURN_NONE;
}

/* sum_value(sum bytearray[SUM_BYTES]) -> the sum, rounded once */
static PyObject *sum_value(PyObject *self, PyObject *args)
{
    PyObject *object;
    Py_buffer state;
    cp_sum sum;
    (void)self;
    if (!PyArg_ParseTuple(args, "O", &object) || sum_of(object, &state) < 0)
        return NULL;
    memcpy(&sum, state.buf, sizeof sum);
    PyBuffer_Release(&state);
    return PyFloat_FromDouble(cp_sum_value(sum));
}

const cp_constant cp_sums_constants[] = {{"SUM_BYTES", sizeof(cp_sum)}, {NULL, 0}};

PyMethodDef cp_sums_methods[] = {
    {"sum_add", sum_add, METH_VARARGS, "Add numbers to a sum."},
    {"sum_value", sum_value, METH_VARARGS, "Return a sum, rounded once."},
    {NULL, NULL, 0, NULL},
};
