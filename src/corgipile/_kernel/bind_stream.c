/* Binds the streaming baselines of kernel/plan/stream.h. */
#include "bind.h"
#include "plan/stream.h"

#define STREAM "corgipile.stream"
CP_CAPSULE(stream_of, STREAM)

static void stream_destroy(PyObject *capsule)
{
    cp_stream *stream = PyCapsule_GetPointer(capsule, STREAM);
    cp_stream_free(stream);
    free(stream);
}

/* stream_new(first, stop, key, *, ...) */
static PyObject *stream_new(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *names[] = {"", "", "", "reservoir", "window", "chunk", "ahead", "loops", "asked", NULL};
    long long first, stop, window, chunk, ahead, loops;
    unsigned long long key;
    int reservoir, asked = 0;
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
static PyObject *stream_next(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(into, "into", 4, CP_WRITE);
    CP_ARRAY(visit, "visit", 4, CP_WRITE);
    cp_stream *s;
    int64_t loaded, visits = 0;
    if (!PyArg_ParseTuple(args, "O&O&O&", stream_of, &s, CP_HOLD(into), CP_HOLD(visit)))
        return NULL;
    if (s->step >= cp_stream_steps(s))
        Py_RETURN_NONE;
    if (into.count < s->chunk || visit.count < 2 * s->chunk || visit.count < s->window)
        return PyErr_Format(PyExc_ValueError, "into must have chunk, visit max(2 * chunk, window) entries");
    Py_BEGIN_ALLOW_THREADS
    loaded = cp_stream_next(s, into.at, visit.at, &visits);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(LL)", (long long)loaded, (long long)visits);
}

/* stream_waiting(stream, rows int64[window], slots int32[window]) -> count: write the buffered rows. Works once, and
 * only for a stream created with `asked`. */
static PyObject *stream_waiting(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(rows, "rows", 8, CP_WRITE);
    CP_ARRAY(slots, "slots", 4, CP_WRITE);
    cp_stream *s;
    if (!PyArg_ParseTuple(args, "O&O&O&", stream_of, &s, CP_HOLD(rows), CP_HOLD(slots)))
        return NULL;
    if (!s->row_of)
        return PyErr_Format(PyExc_ValueError, "buffered rows can be queried once, and only with `asked`");
    if (rows.count < s->filled || slots.count < s->filled)
        return PyErr_Format(PyExc_ValueError, "rows and slots must have `window` entries");
    for (int64_t i = 0; i < s->filled; i++) {
        ((int32_t *)slots.at)[i] = s->waiting[i];
        ((int64_t *)rows.at)[i] = s->row_of[s->waiting[i]];
    }
    free(s->row_of);
    s->row_of = NULL;
    return PyLong_FromLongLong(s->filled);
}

PyMethodDef cp_stream_methods[] = {
    {"stream_new", CP_BY_NAME(stream_new), "Create a sliding window or reservoir."},
    {"stream_next", stream_next, METH_VARARGS, "Write the next step of a stream."},
    {"stream_waiting", stream_waiting, METH_VARARGS, "Write the buffered rows of a stream."},
    {NULL, NULL, 0, NULL},
};
