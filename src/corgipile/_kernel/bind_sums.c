/* Binds exact sums: kernel/sgd/sums.h. */
#include "bind.h"
#include "sgd/sums.h"

/* Take a sum, bytes that the caller owns; a converter for "O&". */
static int take_sum(PyObject *object, void *sum)
{
    const cp_array *a = sum;
    if (!cp_hold(object, sum))
        return 0;
    if (a->bytes != sizeof(cp_sum))
        PyErr_Format(PyExc_ValueError, "a sum must have %zu bytes, got %lld", sizeof(cp_sum), (long long)a->bytes);
    return a->bytes == sizeof(cp_sum);
}

/* sum_add(sum bytearray[SUM_BYTES], values float64) */
static PyObject *sum_add(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(state, "sum", 1, CP_WRITE);
    CP_ARRAY(values, "values", 8);
    cp_sum sum;
    if (!PyArg_ParseTuple(args, "O&O&", take_sum, &state, CP_HOLD(values)))
        return NULL;
    memcpy(&sum, state.at, sizeof sum);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < values.count; i++)
        cp_sum_add(&sum, ((const double *)values.at)[i]);
    cp_sum_carry(&sum);
    Py_END_ALLOW_THREADS
    memcpy(state.at, &sum, sizeof sum);
    Py_RETURN_NONE;
}

/* sum_value(sum bytearray[SUM_BYTES]) -> the sum, rounded once */
static PyObject *sum_value(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(state, "sum", 1, CP_WRITE);
    cp_sum sum;
    if (!PyArg_ParseTuple(args, "O&", take_sum, &state))
        return NULL;
    memcpy(&sum, state.at, sizeof sum);
    return PyFloat_FromDouble(cp_sum_value(sum));
}

const cp_constant cp_sums_constants[] = {{"SUM_BYTES", sizeof(cp_sum)}, {NULL, 0}};

PyMethodDef cp_sums_methods[] = {
    {"sum_add", sum_add, METH_VARARGS, "Add numbers to a sum."},
    {"sum_value", sum_value, METH_VARARGS, "Return a sum, rounded once."},
    {NULL, NULL, 0, NULL},
};
