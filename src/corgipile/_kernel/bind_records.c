/* Binds TFRecord framing, Example messages, and reads and writes of many byte ranges. */
#include "bind.h"
#include "formats/example.h"
#include "io/ranges.h"
#include "formats/tfrecord.h"

static PyObject *crc32c(PyObject *Py_UNUSED(self), PyObject *object)
{
    CP_ARRAY(data, "data");
    uint32_t crc;
    if (!cp_hold(object, &data))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    crc = cp_crc32c(data.at, data.bytes);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(crc);
}

/* tfrecord_scan(data, remaining, lost, starts, sizes) -> (rows, consumed, bad, code, lost) */
static PyObject *tfrecord_scan(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(data, "data", 1);
    CP_ARRAY(starts, "starts", 8, CP_WRITE);
    CP_ARRAY(sizes, "sizes", 8, CP_WRITE);
    long long remaining;
    int lost;
    if (!PyArg_ParseTuple(args, "O&LpO&O&", CP_HOLD(data), &remaining, &lost, CP_HOLD(starts), CP_HOLD(sizes)))
        return NULL;
    cp_tfr_scan s = {.bytes = data.at, .count = data.bytes, .lost = lost, .starts = starts.at, .sizes = sizes.at};
    s.remaining = remaining < s.count ? s.count : remaining;
    s.room = starts.count < sizes.count ? starts.count : sizes.count;
    Py_BEGIN_ALLOW_THREADS
    cp_tfr_walk(&s);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(LLLii)", (long long)s.rows, (long long)s.consumed, (long long)s.bad, s.code, s.lost);
}

/* tfrecord_pack(data, starts, sizes, out, ends) -> None, or (row, code) of the first bad record. */
static PyObject *tfrecord_pack(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(data, "data", 1);
    CP_ARRAY(start, "starts", 8);
    CP_ARRAY(size, "sizes", 8);
    CP_ARRAY(out, "out", 1, CP_WRITE);
    CP_ARRAY(ends, "ends", 8, CP_WRITE);
    int64_t total = 0, bad = -1;
    int code = CP_TFR_OK, fits = 1;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&", CP_HOLD(data), CP_HOLD(start), CP_HOLD(size), CP_HOLD(out),
                          CP_HOLD(ends)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    const int64_t *starts = start.at, *sizes = size.at, rows = start.count;
    fits = size.count == rows && ends.count == rows + 1;
    for (int64_t i = 0; fits && i < rows; i++) {
        fits = starts[i] >= 0 && sizes[i] >= CP_TFR_FRAME && sizes[i] <= data.bytes &&
               starts[i] <= data.bytes - sizes[i];
        total += sizes[i] - CP_TFR_FRAME;
        fits = fits && total <= out.bytes;
    }
    if (fits)
        bad = cp_tfr_pack(data.at, starts, sizes, rows, out.at, ends.at, &code);
    Py_END_ALLOW_THREADS
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "records must lie within the bytes and fit `out`");
    return bad >= 0 ? Py_BuildValue("(Li)", (long long)bad, code) : Py_NewRef(Py_None);
}

/* example_features(record) -> [(name, kind, values)], or None if the record is not an Example */
static PyObject *example_features(PyObject *Py_UNUSED(self), PyObject *object)
{
    CP_ARRAY(record, "record", 1);
    cp_span name, feature;
    int64_t bytes = 0, count;
    int kind, more;
    if (!cp_hold(object, &record))
        return NULL;
    PyObject *list = PyList_New(0);
    cp_entries entries = cp_entries_of(record.at, (const uint8_t *)record.at + record.bytes);
    while (list && (more = cp_entry_next(&entries, &name, &feature)) != 0) {
        if (more < 0 || cp_feature_count(feature, &kind, &count, &bytes) < 0) {
            Py_DECREF(list);
            Py_RETURN_NONE;
        }
        PyObject *item = Py_BuildValue("(y#iL)", (const char *)name.p, (Py_ssize_t)(name.end - name.p), kind,
                                       (long long)count);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

/* Take the names of features; -1 with an exception set. */
static int take_names(cp_span *spans, PyObject *names)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        char *text;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(names, i), &text, &length) < 0)
            return -1;
        spans[i] = (cp_span){(const uint8_t *)text, (const uint8_t *)text + length};
    }
    return 0;
}

/* examples_find(data, ends, names, *, kinds, expected, spans, counts, nbytes) -> None, or (code, row, feature, got). */
static PyObject *examples_find(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "kinds", "expected", "spans", "counts", "nbytes", NULL};
    CP_ARRAY(data, "data", 1);
    CP_ARRAY(ends, "ends", 8);
    CP_ARRAY(kinds, "kinds", 4);
    CP_ARRAY(expected, "expected", 8);
    CP_ARRAY(spans, "spans", 8, CP_WRITE);
    CP_ARRAY(counts, "counts", 8, CP_WRITE);
    CP_ARRAY(bytes, "bytes", 8, CP_WRITE);
    PyObject *wanted;
    int code = -1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O&O!$O&O&O&O&O&", words, CP_HOLD(data), CP_HOLD(ends),
                                     &PyTuple_Type, &wanted, CP_HOLD(kinds), CP_HOLD(expected), CP_HOLD(spans),
                                     CP_HOLD(counts), CP_HOLD(bytes)))
        return NULL;
    cp_examples x = {.data = data.at, .ends = ends.at, .rows = ends.count - 1, .kinds = kinds.at,
                     .features = PyTuple_Size(wanted), .expected = expected.at, .spans = spans.at,
                     .counts = counts.at, .bytes = bytes.at};
    int fits = x.rows >= 0 && kinds.count == x.features && expected.count == x.features && bytes.count == x.features &&
               counts.count == x.features * x.rows && spans.count / 2 == x.features * x.rows;
    for (int64_t i = 0; fits && i < x.rows; i++)
        fits = x.ends[i] >= 0 && x.ends[i] <= x.ends[i + 1] && x.ends[i + 1] <= data.bytes;
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "arrays must have matching lengths");
    cp_span *names = calloc(2 * (size_t)x.features + 1, sizeof *names);
    if (!names)
        return PyErr_NoMemory();
    if (take_names(names, wanted) == 0) {
        x.names = names;
        Py_BEGIN_ALLOW_THREADS
        code = cp_examples_find(&x, names + x.features);
        Py_END_ALLOW_THREADS
    }
    free(names);
    if (code < 0)
        return NULL;
    if (code)
        return Py_BuildValue("(iLLL)", code, (long long)x.row, (long long)x.feature, (long long)x.got);
    Py_RETURN_NONE;
}

/* examples_fill(data, spans, kind, values, ends): copy one feature's values; `ends` is for bytes. */
static PyObject *examples_fill(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(data, "data", 1);
    CP_ARRAY(span, "spans", 8);
    CP_ARRAY(values, "values", 0, CP_WRITE);
    CP_ARRAY(ends, "ends", 8, CP_WRITE);
    int kind, fits = 1;
    if (!PyArg_ParseTuple(args, "O&O&iO&O&", CP_HOLD(data), CP_HOLD(span), &kind, CP_HOLD(values), CP_HOLD(ends)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    const int64_t *spans = span.at, rows = span.count / 2;
    cp_values out = {values.at, ends.at, values.count, ends.count, kind, 0, 0};
    fits = kind >= CP_EXAMPLE_BYTES && kind <= CP_EXAMPLE_INT &&
           values.view.itemsize == (kind == CP_EXAMPLE_BYTES ? 1 : kind == CP_EXAMPLE_FLOAT ? 4 : 8);
    for (int64_t i = 0; fits && i < rows; i++)
        fits = spans[2 * i] >= 0 && spans[2 * i] <= spans[2 * i + 1] && spans[2 * i + 1] <= data.bytes;
    fits = fits && cp_examples_fill(&out, data.at, spans, rows) == 0 && out.at == out.room &&
           out.ends_at == out.ends_room;
    Py_END_ALLOW_THREADS
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "values must match the sizes of the arrays");
    Py_RETURN_NONE;
}

/* read_ranges(fd, offsets, lengths, to, out, threads) -> None, or (errno, range) of the first failure */
static PyObject *read_ranges(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(offsets, "offsets", 8);
    CP_ARRAY(lengths, "lengths", 8);
    CP_ARRAY(to, "to", 8);
    CP_ARRAY(out, "out", 1, CP_WRITE);
    int fd, threads, status = -2;
    if (!PyArg_ParseTuple(args, "iO&O&O&O&i", &fd, CP_HOLD(offsets), CP_HOLD(lengths), CP_HOLD(to), CP_HOLD(out),
                          &threads))
        return NULL;
    cp_ranges r = {.fd = fd, .offsets = offsets.at, .lengths = lengths.at, .to = to.at, .out = out.at,
                   .count = offsets.count};
    Py_BEGIN_ALLOW_THREADS
    int fits = lengths.count == r.count && to.count == r.count && threads >= 1 && threads <= 256;
    for (int64_t i = 0; fits && i < r.count; i++)
        fits = r.offsets[i] >= 0 && r.lengths[i] >= 0 && r.lengths[i] <= out.bytes && r.to[i] >= 0 &&
               r.to[i] <= out.bytes - r.lengths[i] && r.offsets[i] <= INT64_MAX - r.lengths[i];
    if (fits)
        status = cp_ranges_read(&r, threads);
    Py_END_ALLOW_THREADS
    if (status == -2)
        return PyErr_Format(PyExc_ValueError, "ranges must lie within `out`, and threads must be 1 to 256");
    if (status == -1)
        return PyErr_NoMemory();
    return status ? Py_BuildValue("(iL)", r.error, (long long)r.broken) : Py_NewRef(Py_None);
}

/* Return whether each range lies within `room` bytes, and there are as many starts as lengths. */
static int ranges_lie_within(const cp_array *starts, const cp_array *lengths, int64_t room)
{
    const int64_t *start = starts->at, *length = lengths->at;
    for (int64_t i = 0; starts->count == lengths->count && i < lengths->count; i++)
        if (length[i] < 0 || length[i] > room || start[i] < 0 || start[i] > room - length[i])
            return 0;
    return starts->count == lengths->count;
}

/* crc32c_ranges(data, starts, lengths, out): compute the CRC-32C of each of many ranges */
static PyObject *crc32c_ranges(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(data, "data", 1);
    CP_ARRAY(starts, "starts", 8);
    CP_ARRAY(lengths, "lengths", 8);
    CP_ARRAY(out, "out", 4, CP_WRITE);
    if (!PyArg_ParseTuple(args, "O&O&O&O&", CP_HOLD(data), CP_HOLD(starts), CP_HOLD(lengths), CP_HOLD(out)))
        return NULL;
    if (out.count != starts.count || !ranges_lie_within(&starts, &lengths, data.bytes))
        return PyErr_Format(PyExc_ValueError, "ranges must lie within `data`, and arrays must have the same length");
    Py_BEGIN_ALLOW_THREADS
    cp_crc32c_ranges(data.at, starts.at, lengths.at, starts.count, out.at);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* write_ranges(fd, data, starts, lengths, offsets) -> 0, or errno: write many ranges of memory */
static PyObject *write_ranges(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(data, "data", 1);
    CP_ARRAY(starts, "starts", 8);
    CP_ARRAY(lengths, "lengths", 8);
    CP_ARRAY(offsets, "offsets", 8);
    int fd, error;
    if (!PyArg_ParseTuple(args, "iO&O&O&O&", &fd, CP_HOLD(data), CP_HOLD(starts), CP_HOLD(lengths), CP_HOLD(offsets)))
        return NULL;
    const int64_t *length = lengths.at, *offset = offsets.at, count = starts.count;
    int fits = offsets.count == count && ranges_lie_within(&starts, &lengths, data.bytes);
    for (int64_t i = 0; fits && i < count; i++)
        fits = offset[i] >= 0 && offset[i] <= INT64_MAX - length[i];
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "ranges must lie within `data`, and arrays must have the same length");
    Py_BEGIN_ALLOW_THREADS
    error = cp_ranges_write(fd, data.at, starts.at, length, offset, count);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(error);
}

/* copy_ranges(data, starts, lengths, out, to): copy many ranges */
static PyObject *copy_ranges(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(data, "data", 1);
    CP_ARRAY(starts, "starts", 8);
    CP_ARRAY(lengths, "lengths", 8);
    CP_ARRAY(to, "to", 8);
    CP_ARRAY(out, "out", 1, CP_WRITE);
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&", CP_HOLD(data), CP_HOLD(starts), CP_HOLD(lengths), CP_HOLD(out),
                          CP_HOLD(to)))
        return NULL;
    if (!ranges_lie_within(&starts, &lengths, data.bytes) || !ranges_lie_within(&to, &lengths, out.bytes))
        return PyErr_Format(PyExc_ValueError,
                            "ranges must lie within `data` and `out`, and arrays must have the same length");
    const int64_t *from = starts.at, *length = lengths.at, *into = to.at;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < starts.count; i++)
        memmove((char *)out.at + into[i], (const char *)data.at + from[i], (size_t)length[i]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Create a bytes object for each range, and set the addresses of their contents. */
static PyObject *bytes_for(const int64_t *lengths, int64_t count, int64_t *to)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)lengths[i]);
        if (!object || PyList_SetItem(list, (Py_ssize_t)i, object) < 0) {
            Py_DECREF(list);
            return NULL;
        }
        to[i] = (int64_t)(uintptr_t)PyBytes_AsString(object);
    }
    return list;
}

/* read_bytes(fd, offsets, lengths, threads) -> list of bytes objects, or (errno, range) of the first failure */
static PyObject *read_bytes(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(offsets, "offsets", 8);
    CP_ARRAY(lengths, "lengths", 8);
    int fd, threads, status = -1;
    if (!PyArg_ParseTuple(args, "iO&O&i", &fd, CP_HOLD(offsets), CP_HOLD(lengths), &threads))
        return NULL;
    cp_ranges r = {.fd = fd, .offsets = offsets.at, .lengths = lengths.at, .count = offsets.count};
    int fits = lengths.count == r.count && threads >= 1 && threads <= 256;
    for (int64_t i = 0; fits && i < r.count; i++)
        fits = r.offsets[i] >= 0 && r.lengths[i] >= 0 && r.lengths[i] <= PY_SSIZE_T_MAX / 2 &&
               r.offsets[i] <= INT64_MAX - r.lengths[i];
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "ranges must be valid, and threads must be 1 to 256");
    int64_t *to = malloc(sizeof *to * (size_t)(r.count + 1));
    PyObject *list = to ? bytes_for(r.lengths, r.count, to) : PyErr_NoMemory();
    r.to = to;
    if (list) {
        Py_BEGIN_ALLOW_THREADS
        status = cp_ranges_read(&r, threads);
        Py_END_ALLOW_THREADS
    }
    free(to);
    if (!list || status == 0)
        return list;
    Py_DECREF(list);
    return status == -1 ? PyErr_NoMemory() : Py_BuildValue("(iL)", r.error, (long long)r.broken);
}

PyMethodDef cp_records_methods[] = {
    {"copy_ranges", copy_ranges, METH_VARARGS, "Copy many byte ranges."},
    {"crc32c", crc32c, METH_O, "Return the CRC-32C of bytes."},
    {"crc32c_ranges", crc32c_ranges, METH_VARARGS, "Compute the CRC-32C of many byte ranges."},
    {"example_features", example_features, METH_O, "List the features of an Example."},
    {"examples_fill", examples_fill, METH_VARARGS, "Copy the values of one feature of many Examples."},
    {"examples_find", CP_BY_NAME(examples_find), "Locate features in many Examples."},
    {"read_bytes", read_bytes, METH_VARARGS, "Read byte ranges of a file into separate objects."},
    {"read_ranges", read_ranges, METH_VARARGS, "Read many byte ranges of a file."},
    {"write_ranges", write_ranges, METH_VARARGS, "Write many byte ranges to a file."},
    {"tfrecord_pack", tfrecord_pack, METH_VARARGS, "Check records and compact their data."},
    {"tfrecord_scan", tfrecord_scan, METH_VARARGS, "Scan and check records."},
    {NULL, NULL, 0, NULL},
};
