/* Binds gathering in a thread: kernel/io/async_gather.h. */
#define _GNU_SOURCE
#include "bind.h"
#include "io/async_gather.h"
#include "objects.h"

#define ASYNC_GATHER "corgipile.aside"

typedef struct request {
    cp_copy copy;
    Py_buffer to, from, index;
    struct request *next;
} request;

typedef struct {
    cp_async_gather gather;
    request *first, *last; /* requests whose arrays are still held */
    int64_t released;
} gather_object;

/* Release the arrays of the first `completed` requests. */
static void gather_release(gather_object *o, int64_t completed)
{
    for (; o->released < completed && o->first; o->released++) {
        request *entry = o->first;
        o->first = entry->next;
        PyBuffer_Release(&entry->to);
        PyBuffer_Release(&entry->from);
        PyBuffer_Release(&entry->index);
        free(entry);
    }
}

static void gather_destroy(PyObject *capsule)
{
    gather_object *o = PyCapsule_GetPointer(capsule, ASYNC_GATHER);
    Py_BEGIN_ALLOW_THREADS
    cp_async_gather_free(&o->gather);
    Py_END_ALLOW_THREADS
    gather_release(o, INT64_MAX);
    free(o);
}

/* aside_new() -> gatherer, whose thread starts with the first request */
static PyObject *aside_new(PyObject *self, PyObject *none)
{
    gather_object *o = calloc(1, sizeof *o);
    (void)self, (void)none;
    if (!o)
        return PyErr_NoMemory();
    cp_async_gather_init(&o->gather);
    PyObject *capsule = PyCapsule_New(o, ASYNC_GATHER, gather_destroy);
    if (!capsule) {
        cp_async_gather_free(&o->gather);
        free(o);
    }
    return capsule;
}

/* aside_gather(aside, to, from, row_bytes, index) -> number of this copy: to[i] = from[index[i]]. The arrays are held
 * until it is complete; `to` and the rows must not be changed before. */
static PyObject *aside_gather(PyObject *self, PyObject *args)
{
    PyObject *capsule, *to, *from, *index;
    long long bytes;
    gather_object *o;
    request *entry;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOLO", &capsule, &to, &from, &bytes, &index) ||
        !(o = PyCapsule_GetPointer(capsule, ASYNC_GATHER)))
        return NULL;
    if (!(entry = calloc(1, sizeof *entry)))
        return PyErr_NoMemory();
    if (cp_buffer(to, &entry->to, 0, 1, "to") < 0)
        goto failed;
    if (cp_buffer(from, &entry->from, 0, 0, "from") < 0)
        goto failed_from;
    if (cp_buffer(index, &entry->index, 4, 0, "index") < 0)
        goto failed_index;
    int64_t count = entry->index.len / 4, number;
    if (bytes <= 0 || (count && bytes > entry->to.len / count)
        || !cp_slots_ok(entry->index.buf, count, entry->from.len / bytes, 0)) {
        PyErr_SetString(PyExc_ValueError, "index must lie within `from`, and its rows must fit `to`");
        goto failed_all;
    }
    entry->copy = (cp_copy){entry->to.buf, entry->from.buf, entry->index.buf, bytes, count, NULL};
    if (o->first)
        o->last->next = entry;
    else
        o->first = entry;
    o->last = entry;
    Py_BEGIN_ALLOW_THREADS
    number = cp_async_gather_request(&o->gather, &entry->copy);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong((long long)number);
failed_all:
    PyBuffer_Release(&entry->index);
failed_index:
    PyBuffer_Release(&entry->from);
failed_from:
    PyBuffer_Release(&entry->to);
failed:
    free(entry);
    return NULL;
}

/* aside_wait(aside, until) -> number of complete copies, once copy `until` is one; 0 does not wait */
static PyObject *aside_wait(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    long long until;
    int64_t completed;
    gather_object *o;
    (void)self;
    if (!PyArg_ParseTuple(args, "OL", &capsule, &until) || !(o = PyCapsule_GetPointer(capsule, ASYNC_GATHER)))
        return NULL;
    if (until > o->gather.requested)
        return PyErr_Format(PyExc_ValueError, "copy %lld was not requested", until);
    Py_BEGIN_ALLOW_THREADS
    completed = cp_async_gather_wait(&o->gather, until);
    Py_END_ALLOW_THREADS
    gather_release(o, completed);
    return PyLong_FromLongLong((long long)completed);
}

PyMethodDef cp_aside_methods[] = {
    {"aside_new", aside_new, METH_NOARGS, "Create a gatherer with its own thread."},
    {"aside_gather", aside_gather, METH_VARARGS, "Request rows to be gathered."},
    {"aside_wait", aside_wait, METH_VARARGS, "Wait for requested rows."},
    {NULL, NULL, 0, NULL},
};
