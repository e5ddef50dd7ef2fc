/* Binds the streaming baselines of kernel/plan/stream.h. */
#include "bind.h"
#include "plan/stream.h"

#define STREAM "corgipile.stream"

static void stream_destroy(PyObject *capsule)
{
    cp_stream *stream = PyCapsule_GetPointer(capsule, STREAM);
    cp_stream_free(stream);
    free(stream);
}

/* stream_new(first, stop, key, *, ...) */
static PyObject *stream_new(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"", "", "", "reservoir", "window", "chunk", "ahead", "loops", "asked", NULL};
    long long first, stop, window, chunk, ahead, loops;
    unsigned long long key;
    int reservoir, asked = 0;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "LLK$pLLLLp", names, &first, &stop, &key, &reservoir, &window, &chunk,
                                     &ahead, &loops, &asked))
        return NULL;
    if (window < 1 || chunk < 1 || ahead < 0 || window + (1 + ahead) * chunk > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "window and chunk must be at least 1, got %lld and %lld", window, chunk);
    cp_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return PyErr_NoMemory();
    stream->reservoir = reservoir, stream->first = first, stream->stop = stop, stream->window = window;
    stream->chunk = chunk, stream->ahead = ahead, stream->key = key, stream->loops = loops;
    stream->asked = asked;
    PyObject *capsule = cp_stream_init(stream) == 0 ? PyCapsule_New(stream, STREAM, stream_destroy) : PyErr_NoMemory();
    if (!capsule) {
        cp_stream_free(stream);
        free(stream);
    }
    return capsule;
}

/* stream_next(stream, into, visit) -> (loaded, visited), or None at the end. */
static PyObject *stream_next(PyObject *self, PyObject *args)
{
    PyObject *capsule, *into_array, *visit_array;
    Py_buffer into, visit;
    cp_stream *s;
    int64_t loaded = -1, visits = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &into_array, &visit_array) ||
        !(s = PyCapsule_GetPointer(capsule, STREAM)))
        return NULL;
    if (s->step >= cp_stream_steps(s))
        Py_RETURN_NONE;
    if (cp_buffer(into_array, &into, 4, 1, "into") < 0)
        return NULL;
    if (cp_buffer(visit_array, &visit, 4, 1, "visit") < 0) {
        PyBuffer_Release(&into);
        return NULL;
    }
    if (into.len / 4 < s->chunk || visit.len / 4 < 2 * s->chunk || visit.len / 4 < s->window)
        PyErr_SetString(PyExc_ValueError, "into must have chunk, visit max(2 * chunk, window) entries");
    else {
        Py_BEGIN_ALLOW_THREADS
        loaded = cp_stream_next(s, into.buf, visit.buf, &visits);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&into);
    PyBuffer_Release(&visit);
    return loaded < 0 ? NULL : Py_BuildValue("(LL)", (long long)loaded, (long long)visits);
}

/* stream_waiting(stream, rows int64[window], slots int32[window]) -> count: write the buffered rows. Works once, and
 * only for a stream created with `asked`. */
static PyObject *stream_waiting(PyObject *self, PyObject *args)
{
    PyObject *capsule, *row_array, *slot_array;
    Py_buffer rows, slots;
    cp_stream *s;
    int64_t count = -1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &row_array, &slot_array) ||
        !(s = PyCapsule_GetPointer(capsule, STREAM)) || cp_buffer(row_array, &rows, 8, 1, "rows") < 0)
        return NULL;
    if (cp_buffer(slot_array, &slots, 4, 1, "slots") < 0) {
        PyBuffer_Release(&rows);
        return NULL;
    }
    if (!s->row_of)
        PyErr_SetString(PyExc_ValueError, "buffered rows can be queried once, and only with `asked`");
    else if (rows.len / 8 < s->filled || slots.len / 4 < s->filled)
        PyErr_SetString(PyExc_ValueError, "rows and slots must have `window` entries");
    else
        for (count = 0; count < s->filled; count++) {
            ((int32_t *)slots.buf)[count] = s->waiting[count];
            ((int64_t *)rows.buf)[count] = s->row_of[s->waiting[count]];
        }
    if (count >= 0) {
        free(s->row_of);
        s->row_of = NULL;
    }
    PyBuffer_Release(&rows);
    PyBuffer_Release(&slots);
    return count < 0 ? NULL : PyLong_FromLongLong(count);
}

PyMethodDef cp_stream_methods[] = {
    {"stream_new", CP_BY_NAME(stream_new), "Create a sliding window or reservoir."},
    {"stream_next", stream_next, METH_VARARGS, "Write the next step of a stream."},
    {"stream_waiting", stream_waiting, METH_VARARGS, "Write the buffered rows of a stream."},
    {NULL, NULL, 0, NULL},
};
