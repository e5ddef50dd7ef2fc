/* Binds advice on mapped memory: kernel/io/advise.h. */
#include "bind.h"
#include "io/advise.h"

/* advise(address, length, what) -> errno. The system checks addresses: invalid ones are an error, not a fault. */
static PyObject *advise(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(address, "address", 8);
    CP_ARRAY(length, "length", 8);
    int what, failed;
    if (!PyArg_ParseTuple(args, "O&O&i", CP_HOLD(address), CP_HOLD(length), &what))
        return NULL;
    if (address.count != length.count || what < 0 || what >= CP_ADVICE_COUNT)
        return PyErr_Format(PyExc_ValueError,
                            "address and length must have the same length, and advice must be 0 to 3");
    Py_BEGIN_ALLOW_THREADS
    failed = cp_advise(address.at, length.at, address.count, what);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(failed);
}

const cp_constant cp_memory_constants[] = {{"ADVICE_NORMAL", CP_ADVICE_NORMAL},
                                           {"ADVICE_RANDOM", CP_ADVICE_RANDOM},
                                           {"ADVICE_SOON", CP_ADVICE_SOON},
                                           {"ADVICE_NOW", CP_ADVICE_NOW},
                                           {NULL, 0}};

PyMethodDef cp_memory_methods[] = {
    {"advise", advise, METH_VARARGS, "Advise the system on ranges of memory."},
    {NULL, NULL, 0, NULL},
};
