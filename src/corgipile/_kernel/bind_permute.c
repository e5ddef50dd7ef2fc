/* Binds hashes and keyed permutations: kernel/plan/permute.h. */
#include "bind.h"
#include "plan/permute.h"

static PyObject *derive(PyObject *Py_UNUSED(self), PyObject *args)
{
    uint64_t key = 0, parts[16];
    Py_ssize_t count = PyTuple_Size(args);
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

static PyObject *shuffle(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(array, "array", 0, CP_WRITE);
    unsigned long long key;
    if (!PyArg_ParseTuple(args, "O&K", CP_HOLD(array), &key))
        return NULL;
    if (array.view.itemsize != 4 && array.view.itemsize != 8)
        return PyErr_Format(PyExc_TypeError, "array must have elements of 4 or 8 bytes, got %zd", array.view.itemsize);
    Py_BEGIN_ALLOW_THREADS
    if (array.view.itemsize == 4)
        cp_shuffle32(array.at, (uint64_t)array.count, key);
    else
        cp_shuffle64(array.at, (uint64_t)array.count, key);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *permute(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(out, "out", 8, CP_WRITE);
    unsigned long long n, key, start;
    if (!PyArg_ParseTuple(args, "KKKO&", &n, &key, &start, CP_HOLD(out)))
        return NULL;
    uint64_t count = (uint64_t)out.count;
    if (n > (1ull << 63) || start > n || count > n - start)
        return PyErr_Format(PyExc_ValueError, "positions %llu to %llu must lie in [0, %llu)", start, start + count, n);
    Py_BEGIN_ALLOW_THREADS
    cp_bijection b = cp_bijection_make(n, key);
    for (uint64_t i = 0; i < count; i++)
        ((uint64_t *)out.at)[i] = cp_permute(&b, start + i);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Replace each number of an array by its image under a bijection, or by its preimage. */
static PyObject *map_bijection(PyObject *args, uint64_t (*move)(const cp_bijection *, uint64_t))
{
    CP_ARRAY(values, "values", 8, CP_WRITE);
    unsigned long long n, key;
    uint64_t outside = 0;
    if (!PyArg_ParseTuple(args, "KKO&", &n, &key, CP_HOLD(values)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    cp_bijection b = cp_bijection_make(n, key);
    uint64_t *at = values.at;
    for (int64_t i = 0; i < values.count; i++)
        outside |= at[i] >= n;
    for (int64_t i = 0; !outside && i < values.count; i++)
        at[i] = move(&b, at[i]);
    Py_END_ALLOW_THREADS
    if (outside)
        return PyErr_Format(PyExc_ValueError, "values must lie in [0, %llu)", n);
    Py_RETURN_NONE;
}

static PyObject *permute_at(PyObject *Py_UNUSED(self), PyObject *args)
{
    return map_bijection(args, cp_permute);
}

static PyObject *unpermute(PyObject *Py_UNUSED(self), PyObject *args)
{
    return map_bijection(args, cp_unpermute);
}

static PyObject *randoms(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(out, "out", 8, CP_WRITE);
    unsigned long long key, start;
    if (!PyArg_ParseTuple(args, "KKO&", &key, &start, CP_HOLD(out)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < out.count; i++)
        ((uint64_t *)out.at)[i] = cp_random(key, start + (uint64_t)i);
    Py_END_ALLOW_THREADS
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
