/* Rows gathered by a thread of the kernel: kernel/io/async_gather.h. */
#define _GNU_SOURCE
#include "bind.h"
#include "io/async_gather.h"
#include "objects.h"

#define ASIDE "corgipile.aside"

typedef struct asked {
    cp_copy copy;
    Py_buffer to, from, index;
    struct asked *later;
} asked;

typedef struct {
    cp_async_gather gather;
    asked *first, *last; /* whose arrays are still held */
    int64_t let_go;
} aside_object;

/* Let go of the arrays of copies that are made. */
static void aside_let_go(aside_object *o, int64_t made)
{
    for (; o->let_go < made && o->first; o->let_go++) {
        asked *one = o->first;
        o->first = one->later;
        PyBuffer_Release(&one->to);
        PyBuffer_Release(&one->from);
        PyBuffer_Release(&one->index);
        free(one);
    }
}

static void aside_destroy(PyObject *capsule)
{
    aside_object *o = PyCapsule_GetPointer(capsule, ASIDE);
    Py_BEGIN_ALLOW_THREADS
    cp_async_gather_free(&o->gather);
    Py_END_ALLOW_THREADS
    aside_let_go(o, INT64_MAX);
    free(o);
}

/* aside_new() -> what gathers, by a thread that starts when it is first asked */
static PyObject *aside_new(PyObject *self, PyObject *none)
{
    aside_object *o = calloc(1, sizeof *o);
    (void)self, (void)none;
    if (!o)
        return PyErr_NoMemory();
    cp_async_gather_init(&o->gather);
    PyObject *capsule = PyCapsule_New(o, ASIDE, aside_destroy);
    if (!capsule) {
        cp_async_gather_free(&o->gather);
        free(o);
    }
    return capsule;
}

/* aside_gather(aside, to, from, row_bytes, index) -> the number of this copy: to[i] = from[index[i]], soon. The arrays are
 * held until then; `to` and the rows must be left alone. */
static PyObject *aside_gather(PyObject *self, PyObject *args)
{
    PyObject *capsule, *to, *from, *index;
    long long bytes;
    aside_object *o;
    asked *one;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLO", &capsule, &to, &from, &bytes, &index) ||
        !(o = PyCapsule_GetPointer(capsule, ASIDE)))
        return NULL;
    if (!(one = calloc(1, sizeof *one)))
        return PyErr_NoMemory();
    if (cp_buffer(to, &one->to, 0, 1, "to") < 0)
        goto failed;
    if (cp_buffer(from, &one->from, 0, 0, "from") < 0)
        goto failed_from;
    if (cp_buffer(index, &one->index, 4, 0, "index") < 0)
        goto failed_index;
    int64_t count = one->index.len / 4, number;
    if (bytes <= 0 || (count && bytes > one->to.len / count) || !cp_slots_ok(one->index.buf, count, one->from.len / bytes, 0)) {
        PyErr_SetString(PyExc_ValueError, "an index lies outside `from`, or `to` is too small");
        goto failed_all;
    }
    one->copy = (cp_copy){one->to.buf, one->from.buf, one->index.buf, bytes, count, NULL};
    if (o->first)
        o->last->later = one;
    else
        o->first = one;
    o->last = one;
    Py_BEGIN_ALLOW_THREADS
    number = cp_async_gather_request(&o->gather, &one->copy);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong((long long)number);
failed_all:
    PyBuffer_Release(&one->index);
failed_index:
    PyBuffer_Release(&one->from);
failed_from:
    PyBuffer_Release(&one->to);
failed:
    free(one);
    return NULL;
}

/* aside_wait(aside, until) -> how many copies are made, once this one is; 0 does not wait */
static PyObject *aside_wait(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    long long until;
    int64_t made;
    aside_object *o;
    (void)self;
    if (!PyArg_ParseTuple(args, "OL", &capsule, &until) || !(o = PyCapsule_GetPointer(capsule, ASIDE)))
        return NULL;
    if (until > o->gather.asked)
        return PyErr_Format(PyExc_ValueError, "copy %lld was not asked for", until);
    Py_BEGIN_ALLOW_THREADS
    made = cp_async_gather_wait(&o->gather, until);
    Py_END_ALLOW_THREADS
    aside_let_go(o, made);
    return PyLong_FromLongLong((long long)made);
}

PyMethodDef cp_aside_methods[] = {
    {"aside_new", aside_new, METH_NOARGS, "Prepare to gather rows by a thread."},
    {"aside_gather", aside_gather, METH_VARARGS, "Ask for rows to be gathered."},
    {"aside_wait", aside_wait, METH_VARARGS, "Wait for rows that were asked for."},
    {NULL, NULL, 0, NULL},
};
