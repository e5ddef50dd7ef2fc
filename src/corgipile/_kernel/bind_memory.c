/* Binds advice on mapped memory: kernel/io/advise.h. */
#define _GNU_SOURCE
#include "bind.h"
#include "io/advise.h"

/* advise(address, length, what) -> errno. The system checks addresses: invalid ones are an error, not a fault. */
static PyObject *advise(PyObject *self, PyObject *args)
{
    PyObject *addresses, *lengths;
    Py_buffer address, length;
    int what, failed = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOi", &addresses, &lengths, &what))
        return NULL;
    if (cp_buffer(addresses, &address, 8, 0, "address") < 0)
        return NULL;
    if (cp_buffer(lengths, &length, 8, 0, "length") < 0) {
        PyBuffer_Release(&address);
        return NULL;
    }
    int fits = address.len == length.len && what >= 0 && what < CP_ADVICE_COUNT;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        failed = cp_advise(address.buf, length.buf, address.len / 8, what);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "address and length must have the same length, and advice must be 0 to 3");
    }
    PyBuffer_Release(&length);
    PyBuffer_Release(&address);
    return fits ? PyLong_FromLong(failed) : NULL;
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
