/* Binds gathering, at once or in a thread: kernel/io/gather.h and kernel/io/async_gather.h. */
#include "bind.h"
#include "io/async_gather.h"
#include "objects.h"

#define ASYNC_GATHER "corgipile.async_gather"
CP_CAPSULE(gather_of, ASYNC_GATHER)

typedef struct request {
    cp_copy copy;
    Py_buffer held[3]; /* index, from, to */
    struct request *next;
} request;

typedef struct {
    cp_async_gather gather;
    request *first, *last; /* requests whose arrays are still held */
    int64_t released;
} gather_object;

static void request_free(request *entry)
{
    for (int i = 0; i < 3; i++)
        PyBuffer_Release(&entry->held[i]);
    free(entry);
}

/* Release the arrays of the first `completed` requests. */
static void gather_release(gather_object *o, int64_t completed)
{
    for (; o->released < completed && o->first; o->released++) {
        request *entry = o->first;
        o->first = entry->next;
        request_free(entry);
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

/* async_gather_new() -> gatherer, whose thread starts with the first request */
static PyObject *async_gather_new(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    gather_object *o = calloc(1, sizeof *o);
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

/* async_gather_request(gatherer, to, from, row_bytes, index) -> number of this copy: to[i] = from[index[i]]. The arrays
 * are held until it is complete; `to` and the rows must not be changed before. */
static PyObject *async_gather_request(PyObject *Py_UNUSED(self), PyObject *args)
{
    static const char *const names[] = {"index", "from", "to"};
    static const Py_ssize_t sizes[] = {4, 0, 0};
    PyObject *arrays[3];
    long long bytes;
    gather_object *o;
    if (!PyArg_ParseTuple(args, "O&OOLO", gather_of, &o, &arrays[2], &arrays[1], &bytes, &arrays[0]))
        return NULL;
    request *entry = calloc(1, sizeof *entry);
    if (!entry)
        return PyErr_NoMemory();
    if (cp_buffers(arrays, entry->held, 3, sizes, 2, names) < 0) {
        free(entry);
        return NULL;
    }
    const Py_buffer *index = &entry->held[0], *from = &entry->held[1], *to = &entry->held[2];
    int64_t count = index->len / 4, number;
    if (bytes <= 0 || (count && bytes > to->len / count) || !cp_slots_ok(index->buf, count, from->len / bytes, 0)) {
        request_free(entry);
        return PyErr_Format(PyExc_ValueError, "index must lie within `from`, and its rows must fit `to`");
    }
    entry->copy = (cp_copy){to->buf, from->buf, index->buf, bytes, count, NULL};
    if (o->first)
        o->last->next = entry;
    else
        o->first = entry;
    o->last = entry;
    Py_BEGIN_ALLOW_THREADS
    number = cp_async_gather_request(&o->gather, &entry->copy);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong((long long)number);
}

/* async_gather_wait(gatherer, until) -> number of complete copies, once copy `until` is one; 0 does not wait */
static PyObject *async_gather_wait(PyObject *Py_UNUSED(self), PyObject *args)
{
    long long until;
    int64_t completed;
    gather_object *o;
    if (!PyArg_ParseTuple(args, "O&L", gather_of, &o, &until))
        return NULL;
    if (until > o->gather.requested)
        return PyErr_Format(PyExc_ValueError, "copy %lld was not requested", until);
    Py_BEGIN_ALLOW_THREADS
    completed = cp_async_gather_wait(&o->gather, until);
    Py_END_ALLOW_THREADS
    gather_release(o, completed);
    return PyLong_FromLongLong((long long)completed);
}

#define GATHER_COLUMNS 64 /* columns whose arrays are held at a time */

/* Gather columns `first` to `first + count` of tuples of arrays, without the interpreter; returns -1 on an error. */
static int gather_columns(PyObject *to, PyObject *from, const int64_t *bytes, Py_ssize_t first, int count, int64_t at,
                          const cp_array *index)
{
    Py_buffer out[GATHER_COLUMNS], in[GATHER_COLUMNS];
    int outs = 0, ins = 0, fits = 1;
    int64_t rows = index->count, checked = -1;
    while (outs < count && cp_buffer(PyTuple_GetItem(to, first + outs), &out[outs], 0, 1, "to") == 0)
        outs++;
    while (outs == count && ins < count && cp_buffer(PyTuple_GetItem(from, first + ins), &in[ins], 0, 0, "from") == 0)
        ins++;
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; ins == count && fits && i < count; i++) {
        int64_t row = bytes[first + i], slots = row > 0 ? in[i].len / row : 0;
        fits = row > 0 && at >= 0 && at <= out[i].len / row && rows <= out[i].len / row - at &&
               (slots == checked || cp_slots_ok(index->at, rows, slots, 0));
        checked = slots;
        if (fits)
            cp_gather((char *)out[i].buf + at * row, in[i].buf, row, index->at, rows);
    }
    Py_END_ALLOW_THREADS
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "index must lie within `from`, and its rows must fit `to`");
    fits = fits && ins == count;
    while (outs)
        PyBuffer_Release(&out[--outs]);
    while (ins)
        PyBuffer_Release(&in[--ins]);
    return fits ? 0 : -1;
}

/* gather(to, from, row_bytes, index, at): to[c][at + i] = from[c][index[i]] for each column c of tuples of arrays */
static PyObject *gather(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *to, *from;
    CP_ARRAY(bytes, "row_bytes", 8);
    CP_ARRAY(index, "index", 4);
    long long at;
    if (!PyArg_ParseTuple(args, "O!O!O&O&L", &PyTuple_Type, &to, &PyTuple_Type, &from, CP_HOLD(bytes), CP_HOLD(index),
                          &at))
        return NULL;
    if (PyTuple_Size(to) != bytes.count || PyTuple_Size(from) != bytes.count)
        return PyErr_Format(PyExc_ValueError, "`to`, `from` and `row_bytes` must have one entry for each column");
    for (Py_ssize_t c = 0; c < bytes.count; c += GATHER_COLUMNS) {
        int count = bytes.count - c < GATHER_COLUMNS ? (int)(bytes.count - c) : GATHER_COLUMNS;
        if (gather_columns(to, from, bytes.at, c, count, at, &index) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

PyMethodDef cp_async_gather_methods[] = {
    {"gather", gather, METH_VARARGS, "Collect rows of fixed-width columns by index."},
    {"async_gather_new", async_gather_new, METH_NOARGS, "Create a gatherer with its own thread."},
    {"async_gather_request", async_gather_request, METH_VARARGS, "Request rows to be gathered."},
    {"async_gather_wait", async_gather_wait, METH_VARARGS, "Wait for requested rows."},
    {NULL, NULL, 0, NULL},
};
