/* Binds moving rows between files, slots and batches: kernel/io/gather.h and kernel/io/reader.h. */
#include "objects.h"

static void reader_free(reader_object *r)
{
    Py_BEGIN_ALLOW_THREADS
    cp_reader_stop(&r->reader);
    Py_END_ALLOW_THREADS
    for (int64_t i = 0; i < CP_HELD * r->reader.column_count; i++)
        PyBuffer_Release(&r->held[i]);
    for (int64_t i = 0; i < r->reader.column_count; i++)
        free((void *)(uintptr_t)r->reader.columns[i].lists);
    if (r->picks[0].buf)
        for (int i = 0; i < 2; i++)
            PyBuffer_Release(&r->picks[i]);
    Py_XDECREF(r->kept);
    free(r->reader.columns);
    free(r->held);
    free(r);
}

static void reader_destroy(PyObject *capsule) { reader_free(PyCapsule_GetPointer(capsule, READER)); }

/* reader_new(threads, slots, rows, kept): `kept` is optional; it lives as long as the reader */
static PyObject *reader_new(PyObject *Py_UNUSED(self), PyObject *args)
{
    int threads;
    long long slots, rows;
    PyObject *kept = NULL;
    if (!PyArg_ParseTuple(args, "iLL|O", &threads, &slots, &rows, &kept))
        return NULL;
    if (threads < 1 || threads > 256 || slots < 1 || slots > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "threads must be 1 to 256 and slots 1 to 2^31, got %d and %lld", threads,
                            slots);
    reader_object *r = calloc(1, sizeof *r);
    if (!r || cp_reader_start(&r->reader, threads) < 0) {
        free(r);
        return PyErr_NoMemory();
    }
    r->slots = slots;
    r->rows = rows;
    r->kept = kept ? Py_NewRef(kept) : NULL;
    PyObject *capsule = PyCapsule_New(r, READER, reader_destroy);
    if (!capsule)
        reader_free(r);
    return capsule;
}

Py_buffer *cp_reader_room(reader_object *r)
{
    cp_reader *reader = &r->reader;
    if (reader->column_count == r->room) {
        int64_t room = r->room ? 2 * r->room : 4;
        cp_column *columns = realloc(reader->columns, sizeof *columns * (size_t)room);
        reader->columns = columns ? columns : reader->columns;
        Py_buffer *held = realloc(r->held, sizeof *held * CP_HELD * (size_t)room);
        r->held = held ? held : r->held;
        if (!columns || !held)
            return NULL;
        r->room = room;
    }
    Py_buffer *own = &r->held[CP_HELD * reader->column_count];
    memset(own, 0, sizeof *own * CP_HELD); /* releasing a zeroed buffer does nothing */
    return own;
}

static int column_check(const reader_object *r, const cp_column *c, const Py_buffer *v, long long at)
{
    const cp_target *t = &c->target;
    if (v[0].len / 8 != c->pieces + 1 || v[2].len / 4 != c->pieces || c->pieces < 1)
        return PyErr_SetString(PyExc_ValueError, "starts must have one entry more than offsets and fds"), -1;
    if (t->from < 0 || t->from >= CP_TYPES || t->to < 0 || t->to >= CP_TYPES ||
        (t->from != t->to && t->to != CP_F32 && t->to != CP_F64) || t->items < 1)
        return PyErr_SetString(PyExc_ValueError, "numbers can only be cast to float32 and float64"), -1;
    if (at < 0 || t->stride < t->items * cp_type_bytes[t->to] || at + t->items * cp_type_bytes[t->to] > t->stride ||
        r->slots * t->stride > v[3].len)
        return PyErr_SetString(PyExc_ValueError, "the target array must hold all slots"), -1;
    if (c->starts[0] != 0 || c->starts[c->pieces] < r->rows)
        return PyErr_SetString(PyExc_ValueError, "the pieces of a column must cover all rows"), -1;
    return 0;
}

/* reader_column(reader, starts, offsets, fds, target, *, at, stride, items, from_type, to_type): add a column; `at` and
 * `stride` are bytes within and between the rows of target */
static PyObject *reader_column(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "", "", "at", "stride", "items", "from_type", "to_type", NULL};
    static const char *const names[4] = {"starts", "offsets", "fds", "target"};
    static const Py_ssize_t sizes[4] = {8, 8, 4, 0};
    PyObject *arrays[4];
    long long at, stride, items;
    int from, to;
    reader_object *r;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&OOOO$LLLii", words, cp_reader_of, &r, &arrays[0], &arrays[1],
                                     &arrays[2], &arrays[3], &at, &stride, &items, &from, &to))
        return NULL;
    cp_reader *reader = &r->reader;
    Py_buffer *v = cp_reader_room(r);
    if (!v)
        return PyErr_NoMemory();
    if (cp_buffers(arrays, v, 4, sizes, 3, names) < 0)
        return NULL;
    cp_column *c = &reader->columns[reader->column_count];
    *c = (cp_column){v[1].len / 8, v[0].buf, v[1].buf, v[2].buf,
                     {(char *)v[3].buf + at, stride, items, (enum cp_type)from, (enum cp_type)to,
                      r->slots * stride > CP_CACHE_BYTES}, NULL};
    if (column_check(r, c, v, at) < 0) {
        for (int i = 0; i < 4; i++)
            PyBuffer_Release(&v[i]);
        return NULL;
    }
    int64_t width = items * cp_type_bytes[from];
    reader->read.stage_bytes = width > reader->read.stage_bytes ? width : reader->read.stage_bytes;
    reader->column_count++;
    Py_RETURN_NONE;
}

int cp_slots_ok(const int32_t *slots, int64_t count, int64_t limit, int32_t least)
{
    int bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= slots[i] < least || slots[i] >= limit;
    return !bad;
}

int cp_extents_ok(const reader_object *r, const int64_t *extents, int64_t count, const int32_t *into, int64_t rows)
{
    int bad = 0;
    int64_t left = rows;
    for (int64_t i = 0; i < count; i++) {
        bad |= extents[2 * i] < 0 || extents[2 * i] > extents[2 * i + 1] || extents[2 * i + 1] > r->rows;
        left -= extents[2 * i + 1] - extents[2 * i];
    }
    return !bad && left == 0 && cp_slots_ok(into, rows, r->slots, INT32_MIN);
}

PyObject *cp_read_result(int status, const cp_read *read)
{
    if (status == -2)
        return PyErr_Format(PyExc_ValueError, "extents must lie within the table, and slots within the buffer");
    if (status == -1)
        return PyErr_NoMemory();
    return status ? Py_BuildValue("(iiL)", read->error, (int)read->error_fd, (long long)read->error_row)
                  : Py_NewRef(Py_None);
}

/* Return whether each run's part of sweep names only rows of that run. */
static int sweep_ok(const int64_t *extents, int64_t count, const int32_t *sweep)
{
    int bad = 0;
    for (int64_t e = 0; e < count; e++) {
        int64_t rows = extents[2 * e + 1] - extents[2 * e];
        for (int64_t i = 0; i < rows; i++)
            bad |= sweep[i] < 0 || sweep[i] >= rows;
        sweep += rows;
    }
    return !bad;
}

/* reader_read(reader, extents, into, sweep, urgent): see cp_reader_read -> None, or (errno, fd, row) of the first
 * failed request */
static PyObject *reader_read(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(extents, "extents", 8);
    CP_ARRAY(into, "into", 4);
    CP_ARRAY(sweep, "sweep", 4, CP_READ, 1);
    reader_object *r;
    int status = -2, urgent;
    if (!PyArg_ParseTuple(args, "O&O&O&O&p", cp_reader_of, &r, CP_HOLD(extents), CP_HOLD(into), CP_HOLD(sweep),
                          &urgent))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (cp_extents_ok(r, extents.at, extents.count / 2, into.at, into.count) &&
        (!sweep.at || (sweep.count == into.count && sweep_ok(extents.at, extents.count / 2, sweep.at))))
        status = cp_reader_read(&r->reader, extents.at, extents.count / 2, into.at, sweep.at, urgent);
    Py_END_ALLOW_THREADS
    return cp_read_result(status, &r->reader.read);
}

/* reader_soon(reader, extents): prefetch the next rows, if the last read had to wait */
static PyObject *reader_soon(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(extents, "extents", 8);
    reader_object *r;
    if (!PyArg_ParseTuple(args, "O&O&", cp_reader_of, &r, CP_HOLD(extents)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    const int64_t *e = extents.at;
    int64_t count = 0;
    while (count < extents.count / 2 && e[2 * count] >= 0 && e[2 * count + 1] <= r->rows)
        count++;
    if (r->reader.read.waited)
        cp_reader_prefetch(&r->reader, e, count);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *reader_bytes(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    reader_object *r = PyCapsule_GetPointer(capsule, READER);
    return r ? PyLong_FromLongLong(atomic_load(&r->reader.read.bytes)) : NULL;
}

/* scatter(to, from, into, *, at, stride, items, from_type, to_type): to[into[i]] = from[i], cast if the types differ;
 * -1 skips */
static PyObject *scatter(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "at", "stride", "items", "from_type", "to_type", NULL};
    CP_ARRAY(to, "to", 0, CP_WRITE);
    CP_ARRAY(from, "from");
    CP_ARRAY(into, "into", 4);
    long long stride, at, items;
    int to_type, from_type, fits = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O&O&$LLLii", words, CP_HOLD(to), CP_HOLD(from), CP_HOLD(into), &at,
                                     &stride, &items, &from_type, &to_type))
        return NULL;
    if (to_type >= 0 && to_type < CP_TYPES && from_type >= 0 && from_type < CP_TYPES && items > 0 && stride > 0 &&
        at >= 0 && at + items * cp_type_bytes[to_type] <= stride &&
        (from_type == to_type || to_type == CP_F32 || to_type == CP_F64)) {
        cp_target t = {(char *)to.at + at, stride, items, (enum cp_type)from_type, (enum cp_type)to_type, 0};
        Py_BEGIN_ALLOW_THREADS
        fits = into.count * items * cp_type_bytes[from_type] <= from.bytes &&
               cp_slots_ok(into.at, into.count, to.bytes / stride, INT32_MIN);
        if (fits)
            cp_scatter(&t, from.at, into.at, into.count);
        Py_END_ALLOW_THREADS
    }
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "slots must lie within `to`, and types must match");
    Py_RETURN_NONE;
}

/* Sum the lengths of the rows of an index. Returns -1 if a row does not exist or has a negative length. */
static int64_t sum_lengths(const cp_array *address, const cp_array *length, const cp_array *index)
{
    const int64_t *lengths = length->at;
    const int32_t *at = index->at;
    int64_t total = 0;
    if (!cp_slots_ok(at, index->count, address->count, 0) || address->count != length->count)
        return -1;
    for (int64_t i = 0; i < index->count; i++) {
        if (lengths[at[i]] < 0)
            return -1;
        total += lengths[at[i]];
    }
    return total;
}

/* gather_ragged(out, address, length, item, index): concatenate rows of varying length. The caller guarantees the
 * addresses; the total length is checked. */
static PyObject *gather_ragged(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(out, "out", 0, CP_WRITE);
    CP_ARRAY(address, "address", 8);
    CP_ARRAY(length, "length", 8);
    CP_ARRAY(index, "index", 4);
    long long item;
    int fits = 0;
    if (!PyArg_ParseTuple(args, "O&O&O&LO&", CP_HOLD(out), CP_HOLD(address), CP_HOLD(length), &item, CP_HOLD(index)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    int64_t total = item > 0 ? sum_lengths(&address, &length, &index) : -1;
    fits = total >= 0 && total * item <= out.bytes;
    if (fits)
        cp_gather_ragged(out.at, address.at, length.at, item, index.at, index.count);
    Py_END_ALLOW_THREADS
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "index must lie within the rows, and they must fit `out`");
    Py_RETURN_NONE;
}

/* Return a list of a bytes or str object per row; NULL with an error set if a row is not valid UTF-8. */
static PyObject *objects_of(const uint64_t *address, const int64_t *length, const int32_t *index, int64_t count,
                            int text)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        const char *row = (const char *)(uintptr_t)address[index[i]];
        Py_ssize_t bytes = (Py_ssize_t)length[index[i]];
        PyObject *object = !bytes ? text ? PyUnicode_FromString("") : PyBytes_FromString("")
                        : text ? PyUnicode_DecodeUTF8(row, bytes, "strict")
                               : PyBytes_FromStringAndSize(row, bytes);
        if (!object || PyList_SetItem(list, (Py_ssize_t)i, object) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* gather_objects(address, length, index, text): list of a bytes or str object per row. The caller guarantees the
 * addresses. */
static PyObject *gather_objects(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(address, "address", 8);
    CP_ARRAY(length, "length", 8);
    CP_ARRAY(index, "index", 4);
    int text;
    if (!PyArg_ParseTuple(args, "O&O&O&p", CP_HOLD(address), CP_HOLD(length), CP_HOLD(index), &text))
        return NULL;
    if (sum_lengths(&address, &length, &index) < 0)
        return PyErr_Format(PyExc_ValueError, "index must lie within the rows");
    return objects_of(address.at, length.at, index.at, index.count, text);
}

PyMethodDef cp_rows_methods[] = {
    {"gather_objects", gather_objects, METH_VARARGS, "Return a bytes or str object per row, by index."},
    {"gather_ragged", gather_ragged, METH_VARARGS, "Concatenate rows of varying length by index."},
    {"reader_bytes", reader_bytes, METH_O, "Return the bytes requested so far."},
    {"reader_column", CP_BY_NAME(reader_column), "Add a column to a reader."},
    {"reader_new", reader_new, METH_VARARGS, "Create a reader with its threads."},
    {"reader_read", reader_read, METH_VARARGS, "Read runs of rows into slots."},
    {"reader_soon", reader_soon, METH_VARARGS, "Prefetch the next rows."},
    {"scatter", CP_BY_NAME(scatter), "Store rows in slots."},
    {NULL, NULL, 0, NULL},
};
