/* Binds hashes and keyed permutations: kernel/plan/permute.h. */
#define _GNU_SOURCE
#include "bind.h"
#include "plan/permute.h"

static PyObject *derive(PyObject *self, PyObject *args)
{
    uint64_t key = 0, parts[16];
    Py_ssize_t count = PyTuple_Size(args);
    (void)self;
    if (count > 16)
        return PyErr_Format(PyExc_ValueError, "a key must have at most 16 parts, got %zd", count);
    for (Py_ssize_t i = 0; i < count; i++) {
        parts[i] = PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(args, i));
        if (PyErr_Occurred())
            return NULL;
    }
    key = cp_derive(parts, (size_t)count);
    return PyLong_FromUnsignedLongLong(key);
}

static PyObject *shuffle(PyObject *self, PyObject *args)
{
    PyObject *array;
    unsigned long long key;
    Py_buffer view;
    (void)self;
    if (!PyArg_ParseTuple(args, "OK", &array, &key) || cp_buffer(array, &view, 0, 1, "array") < 0)
        return NULL;
    if (view.itemsize != 4 && view.itemsize != 8) {
        PyErr_Format(PyExc_TypeError, "array must have elements of 4 or 8 bytes, got %zd", view.itemsize);
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    if (view.itemsize == 4)
        cp_shuffle32(view.buf, (uint64_t)(view.len / 4), key);
    else
        cp_shuffle64(view.buf, (uint64_t)(view.len / 8), key);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *permute(PyObject *self, PyObject *args)
{
    unsigned long long n, key, start;
    PyObject *array;
    Py_buffer out;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKKO", &n, &key, &start, &array) || cp_buffer(array, &out, 8, 1, "out") < 0)
        return NULL;
    uint64_t count = (uint64_t)out.len / 8;
    if (n > (1ull << 63) || start > n || count > n - start) {
        PyBuffer_Release(&out);
        return PyErr_Format(PyExc_ValueError, "positions %llu to %llu must lie in [0, %llu)", start, start + count, n);
    }
    Py_BEGIN_ALLOW_THREADS
    cp_bijection b = cp_bijection_fair(n, key);
    for (uint64_t i = 0; i < count; i++)
        ((uint64_t *)out.buf)[i] = cp_permute(&b, start + i);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* Replace each number of an array by its image under a bijection, or by its preimage. */
static PyObject *map_bijection(PyObject *args, uint64_t (*move)(const cp_bijection *, uint64_t))
{
    unsigned long long n, key;
    PyObject *array;
    Py_buffer values;
    uint64_t outside = 0;
    if (!PyArg_ParseTuple(args, "KKO", &n, &key, &array) || cp_buffer(array, &values, 8, 1, "values") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    cp_bijection b = cp_bijection_fair(n, key);
    uint64_t *at = values.buf;
    for (Py_ssize_t i = 0; i < values.len / 8; i++)
        outside |= at[i] >= n;
    for (Py_ssize_t i = 0; !outside && i < values.len / 8; i++)
        at[i] = move(&b, at[i]);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&values);
    if (outside)
        return PyErr_Format(PyExc_ValueError, "values must lie in [0, %llu)", n);
    Py_RETURN_NONE;
}

static PyObject *permute_at(PyObject *self, PyObject *args)
{
    (void)self;
    return map_bijection(args, cp_permute);
}

static PyObject *unpermute(PyObject *self, PyObject *args)
{
    (void)self;
    return map_bijection(args, cp_unpermute);
}

static PyObject *randoms(PyObject *self, PyObject *args)
{
    unsigned long long key, start;
    PyObject *array;
    Py_buffer out;
    (void)self;
    if (!PyArg_ParseTuple(args, "KKO", &key, &start, &array) || cp_buffer(array, &out, 8, 1, "out") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < out.len / 8; i++)
        ((uint64_t *)out.buf)[i] = cp_random(key, start + (uint64_t)i);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

PyMethodDef cp_permute_methods[] = {
    {"derive", derive, METH_VARARGS, "Hash integers into a key."},
    {"permute", permute, METH_VARARGS, "Write a stretch of a keyed permutation."},
    {"permute_at", permute_at, METH_VARARGS, "Replace positions by their images under a keyed permutation."},
    {"randoms", randoms, METH_VARARGS, "Write a stretch of a keyed random stream."},
    {"shuffle", shuffle, METH_VARARGS, "Shuffle an array in place."},
    {"unpermute", unpermute, METH_VARARGS, "Invert a keyed permutation."},
    {NULL, NULL, 0, NULL},
};
