/* Binds TFRecord framing, Example messages, and reads and writes of many byte ranges. */
#define _GNU_SOURCE
#include "bind.h"
#include "formats/example.h"
#include "io/ranges.h"
#include "formats/tfrecord.h"

/* Get several arrays; `items` has the element size of each. On failure none is held. */
static int get_all(PyObject **objects, Py_buffer *views, int count, const Py_ssize_t *items, int first_writable,
                   const char *const *names)
{
    for (int i = 0; i < count; i++)
        if (cp_buffer(objects[i], &views[i], items[i], i >= first_writable, names[i]) < 0) {
            while (i-- > 0)
                PyBuffer_Release(&views[i]);
            return -1;
        }
    return 0;
}

static void release_all(Py_buffer *views, int count)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(&views[i]);
}

static PyObject *crc32c(PyObject *self, PyObject *data)
{
    Py_buffer view;
    uint32_t crc;
    (void)self;
    if (cp_buffer(data, &view, 0, 0, "data") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    crc = cp_crc32c(view.buf, view.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

/* tfrecord_scan(data, remaining, lost, starts, sizes) -> (rows, consumed, bad, code, lost) */
static PyObject *tfrecord_scan(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"data", "starts", "sizes"};
    static const Py_ssize_t items[] = {1, 8, 8};
    PyObject *objects[3];
    Py_buffer v[3];
    long long remaining;
    cp_tfr_scan s = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OLpOO", &objects[0], &remaining, &s.lost, &objects[1], &objects[2]) ||
        get_all(objects, v, 3, items, 1, names) < 0)
        return NULL;
    s.bytes = v[0].buf;
    s.count = v[0].len;
    s.remaining = remaining < s.count ? s.count : remaining;
    s.starts = v[1].buf;
    s.sizes = v[2].buf;
    s.room = (v[1].len < v[2].len ? v[1].len : v[2].len) / 8;
    Py_BEGIN_ALLOW_THREADS
    cp_tfr_walk(&s);
    Py_END_ALLOW_THREADS
    release_all(v, 3);
    return Py_BuildValue("(LLLii)", (long long)s.rows, (long long)s.consumed, (long long)s.bad, s.code, s.lost);
}

/* tfrecord_pack(data, starts, sizes, out, ends) -> None, or (row, code) of the first bad record. */
static PyObject *tfrecord_pack(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"data", "starts", "sizes", "out", "ends"};
    static const Py_ssize_t items[] = {1, 8, 8, 1, 8};
    PyObject *objects[5];
    Py_buffer v[5];
    int64_t total = 0, bad = -1;
    int code = CP_TFR_OK, fits = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4]) ||
        get_all(objects, v, 5, items, 3, names) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    const int64_t *starts = v[1].buf, *sizes = v[2].buf, rows = v[1].len / 8;
    fits = v[2].len == v[1].len && v[4].len / 8 == rows + 1;
    for (int64_t i = 0; fits && i < rows; i++) {
        fits = starts[i] >= 0 && sizes[i] >= CP_TFR_FRAME && sizes[i] <= v[0].len && starts[i] <= v[0].len - sizes[i];
        total += sizes[i] - CP_TFR_FRAME;
        fits = fits && total <= v[3].len;
    }
    if (fits)
        bad = cp_tfr_pack(v[0].buf, starts, sizes, rows, v[3].buf, v[4].buf, &code);
    Py_END_ALLOW_THREADS
    release_all(v, 5);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "records must lie within the bytes and fit `out`");
    if (bad >= 0)
        return Py_BuildValue("(Li)", (long long)bad, code);
    Py_RETURN_NONE;
}

/* example_features(record) -> [(name, kind, values)], or None if the record is not an Example */
static PyObject *example_features(PyObject *self, PyObject *record)
{
    Py_buffer view;
    cp_span name, feature;
    int64_t bytes = 0, count;
    int kind, more;
    (void)self;
    if (cp_buffer(record, &view, 1, 0, "record") < 0)
        return NULL;
    PyObject *list = PyList_New(0);
    cp_entries entries = cp_entries_of(view.buf, (const uint8_t *)view.buf + view.len);
    while (list && (more = cp_entry_next(&entries, &name, &feature)) != 0) {
        PyObject *item = NULL;
        if (more < 0 || cp_feature_count(feature, &kind, &count, &bytes) < 0) {
            Py_DECREF(list);
            PyBuffer_Release(&view);
            Py_RETURN_NONE;
        }
        item = Py_BuildValue("(y#iL)", (const char *)name.p, (Py_ssize_t)(name.end - name.p), kind, (long long)count);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    PyBuffer_Release(&view);
    return list;
}

enum { DATA, ENDS, KINDS, EXPECTED, SPANS, COUNTS, BYTES, ARRAYS };

/* Take the names and check that the arrays match; -1 with an exception set. */
static int examples_take(cp_examples *x, PyObject *names, cp_span *spans, const Py_buffer *v)
{
    int64_t features = x->features, rows = x->rows;
    int fits = rows >= 0 && v[KINDS].len / 4 == features && v[EXPECTED].len / 8 == features &&
               v[BYTES].len / 8 == features && v[COUNTS].len / 8 == features * rows &&
               v[SPANS].len / 16 == features * rows;
    for (int64_t i = 0; fits && i < rows; i++)
        fits = x->ends[i] >= 0 && x->ends[i] <= x->ends[i + 1] && x->ends[i + 1] <= v[DATA].len;
    if (!fits)
        return PyErr_SetString(PyExc_ValueError, "arrays must have matching lengths"), -1;
    for (int64_t i = 0; i < features; i++) {
        char *text;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(names, i), &text, &length) < 0)
            return -1;
        spans[i] = (cp_span){(const uint8_t *)text, (const uint8_t *)text + length};
    }
    return 0;
}

/* examples_find(data, ends, names, *, kinds, expected, spans, counts, nbytes) -> None, or (code, row, feature, got). */
static PyObject *examples_find(PyObject *self, PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "kinds", "expected", "spans", "counts", "nbytes", NULL};
    static const char *const names[ARRAYS] = {"data", "ends", "kinds", "expected", "spans", "counts", "bytes"};
    static const Py_ssize_t items[ARRAYS] = {1, 8, 4, 8, 8, 8, 8};
    PyObject *objects[ARRAYS], *wanted;
    Py_buffer v[ARRAYS];
    int code = -1;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOO!$OOOOO", words, &objects[DATA], &objects[ENDS], &PyTuple_Type,
                                     &wanted, &objects[KINDS], &objects[EXPECTED], &objects[SPANS], &objects[COUNTS],
                                     &objects[BYTES]) ||
        get_all(objects, v, ARRAYS, items, SPANS, names) < 0)
        return NULL;
    cp_examples x = {.data = v[DATA].buf, .ends = v[ENDS].buf, .rows = v[ENDS].len / 8 - 1, .kinds = v[KINDS].buf,
                     .features = PyTuple_Size(wanted), .expected = v[EXPECTED].buf, .spans = v[SPANS].buf,
                     .counts = v[COUNTS].buf, .bytes = v[BYTES].buf};
    cp_span *spans = calloc(2 * (size_t)x.features + 1, sizeof *spans);
    if (!spans)
        PyErr_NoMemory();
    else if (examples_take(&x, wanted, spans, v) == 0) {
        x.names = spans;
        Py_BEGIN_ALLOW_THREADS
        code = cp_examples_find(&x, spans + x.features);
        Py_END_ALLOW_THREADS
    }
    free(spans);
    release_all(v, ARRAYS);
    if (code < 0)
        return NULL;
    if (code)
        return Py_BuildValue("(iLLL)", code, (long long)x.row, (long long)x.feature, (long long)x.got);
    Py_RETURN_NONE;
}

/* examples_fill(data, spans, kind, values, ends): copy one feature's values; `ends` is for bytes. */
static PyObject *examples_fill(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"data", "spans", "values", "ends"};
    static const Py_ssize_t items[] = {1, 8, 0, 8};
    PyObject *objects[4];
    Py_buffer v[4];
    int kind, fits = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOiOO", &objects[0], &objects[1], &kind, &objects[2], &objects[3]) ||
        get_all(objects, v, 4, items, 2, names) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    const int64_t *spans = v[1].buf, rows = v[1].len / 16;
    cp_values out = {v[2].buf, v[3].buf, v[2].len / v[2].itemsize, v[3].len / 8, kind, 0, 0};
    fits = kind >= CP_EXAMPLE_BYTES && kind <= CP_EXAMPLE_INT &&
           v[2].itemsize == (kind == CP_EXAMPLE_BYTES ? 1 : kind == CP_EXAMPLE_FLOAT ? 4 : 8);
    for (int64_t i = 0; fits && i < rows; i++)
        fits = spans[2 * i] >= 0 && spans[2 * i] <= spans[2 * i + 1] && spans[2 * i + 1] <= v[0].len;
    fits = fits && cp_examples_fill(&out, v[0].buf, spans, rows) == 0 && out.at == out.room &&
           out.ends_at == out.ends_room;
    Py_END_ALLOW_THREADS
    release_all(v, 4);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "values must match the sizes of the arrays");
    Py_RETURN_NONE;
}

/* read_ranges(fd, offsets, lengths, to, out, threads) -> None, or (errno, range) of the first failure */
static PyObject *read_ranges(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"offsets", "lengths", "to", "out"};
    static const Py_ssize_t items[] = {8, 8, 8, 1};
    PyObject *objects[4];
    Py_buffer v[4];
    cp_ranges r = {0};
    int threads, status = -2;
    (void)self;
    if (!PyArg_ParseTuple(args, "iOOOOi", &r.fd, &objects[0], &objects[1], &objects[2], &objects[3], &threads) ||
        get_all(objects, v, 4, items, 3, names) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    r.offsets = v[0].buf, r.lengths = v[1].buf, r.to = v[2].buf, r.out = v[3].buf;
    r.count = v[0].len / 8;
    int fits = v[1].len == v[0].len && v[2].len == v[0].len && threads >= 1 && threads <= 256;
    for (int64_t i = 0; fits && i < r.count; i++)
        fits = r.offsets[i] >= 0 && r.lengths[i] >= 0 && r.lengths[i] <= v[3].len && r.to[i] >= 0 &&
               r.to[i] <= v[3].len - r.lengths[i] && r.offsets[i] <= INT64_MAX - r.lengths[i];
    if (fits)
        status = cp_ranges_read(&r, threads);
    Py_END_ALLOW_THREADS
    release_all(v, 4);
    if (status == -2)
        return PyErr_Format(PyExc_ValueError, "ranges must lie within `out`, and threads must be 1 to 256");
    if (status == -1)
        return PyErr_NoMemory();
    if (status == 1)
        return Py_BuildValue("(iL)", r.error, (long long)r.broken);
    Py_RETURN_NONE;
}

/* Return whether each of `count` ranges lies within `room` bytes. */
static int ranges_lie_within(const int64_t *starts, const int64_t *lengths, int64_t count, int64_t room)
{
    for (int64_t i = 0; i < count; i++)
        if (lengths[i] < 0 || lengths[i] > room || starts[i] < 0 || starts[i] > room - lengths[i])
            return 0;
    return 1;
}

/* crc32c_ranges(data, starts, lengths, out): compute the CRC-32C of each of many ranges */
static PyObject *crc32c_ranges(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"data", "starts", "lengths", "out"};
    static const Py_ssize_t items[] = {1, 8, 8, 4};
    PyObject *objects[4];
    Py_buffer v[4];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3]) ||
        get_all(objects, v, 4, items, 3, names) < 0)
        return NULL;
    const int64_t *starts = v[1].buf, *lengths = v[2].buf, count = v[1].len / 8;
    uint32_t *out = v[3].buf;
    int fits = v[2].len == v[1].len && v[3].len / 4 == count && ranges_lie_within(starts, lengths, count, v[0].len);
    Py_BEGIN_ALLOW_THREADS
    if (fits)
        cp_crc32c_ranges(v[0].buf, starts, lengths, count, out);
    Py_END_ALLOW_THREADS
    release_all(v, 4);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "ranges must lie within `data`, and arrays must have the same length");
    Py_RETURN_NONE;
}

/* write_ranges(fd, data, starts, lengths, offsets) -> 0, or errno: write many ranges of memory */
static PyObject *write_ranges(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"data", "starts", "lengths", "offsets"};
    static const Py_ssize_t items[] = {1, 8, 8, 8};
    PyObject *objects[4];
    Py_buffer v[4];
    int fd, error = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "iOOOO", &fd, &objects[0], &objects[1], &objects[2], &objects[3]) ||
        get_all(objects, v, 4, items, 4, names) < 0)
        return NULL;
    const int64_t *starts = v[1].buf, *lengths = v[2].buf, *offsets = v[3].buf, count = v[1].len / 8;
    int fits = v[2].len == v[1].len && v[3].len == v[1].len && ranges_lie_within(starts, lengths, count, v[0].len);
    for (int64_t i = 0; fits && i < count; i++)
        fits = offsets[i] >= 0 && offsets[i] <= INT64_MAX - lengths[i];
    Py_BEGIN_ALLOW_THREADS
    if (fits)
        error = cp_ranges_write(fd, v[0].buf, starts, lengths, offsets, count);
    Py_END_ALLOW_THREADS
    release_all(v, 4);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "ranges must lie within `data`, and arrays must have the same length");
    return PyLong_FromLong(error);
}

/* copy_ranges(data, starts, lengths, out, to): copy many ranges */
static PyObject *copy_ranges(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"data", "starts", "lengths", "to", "out"};
    static const Py_ssize_t items[] = {1, 8, 8, 8, 1};
    PyObject *objects[5];
    Py_buffer v[5];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOO", &objects[0], &objects[1], &objects[2], &objects[4], &objects[3]) ||
        get_all(objects, v, 5, items, 4, names) < 0)
        return NULL;
    const int64_t *starts = v[1].buf, *lengths = v[2].buf, *to = v[3].buf, count = v[1].len / 8;
    int fits = v[2].len == v[1].len && v[3].len == v[1].len && ranges_lie_within(starts, lengths, count, v[0].len) &&
               ranges_lie_within(to, lengths, count, v[4].len);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; fits && i < count; i++)
        memmove((char *)v[4].buf + to[i], (const char *)v[0].buf + starts[i], (size_t)lengths[i]);
    Py_END_ALLOW_THREADS
    release_all(v, 5);
    if (!fits)
        return PyErr_Format(PyExc_ValueError,
                            "ranges must lie within `data` and `out`, and arrays must have the same length");
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
static PyObject *read_bytes(PyObject *self, PyObject *args)
{
    static const char *const names[] = {"offsets", "lengths"};
    static const Py_ssize_t items[] = {8, 8};
    PyObject *objects[2], *list = NULL;
    Py_buffer v[2];
    cp_ranges r = {0};
    int64_t *to = NULL;
    int threads, status = -2;
    (void)self;
    if (!PyArg_ParseTuple(args, "iOOi", &r.fd, &objects[0], &objects[1], &threads) ||
        get_all(objects, v, 2, items, 2, names) < 0)
        return NULL;
    r.offsets = v[0].buf, r.lengths = v[1].buf, r.count = v[0].len / 8;
    int fits = v[1].len == v[0].len && threads >= 1 && threads <= 256;
    for (int64_t i = 0; fits && i < r.count; i++)
        fits = r.offsets[i] >= 0 && r.lengths[i] >= 0 && r.lengths[i] <= PY_SSIZE_T_MAX / 2 &&
               r.offsets[i] <= INT64_MAX - r.lengths[i];
    if (fits) {
        r.to = to = malloc(sizeof *to * (size_t)(r.count + 1));
        list = to ? bytes_for(r.lengths, r.count, to) : PyErr_NoMemory();
    }
    if (list) {
        Py_BEGIN_ALLOW_THREADS
        status = cp_ranges_read(&r, threads);
        Py_END_ALLOW_THREADS
    }
    free(to);
    release_all(v, 2);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "ranges must be valid, and threads must be 1 to 256");
    if (!list || status == 0)
        return list;
    Py_DECREF(list);
    if (status == -1)
        return PyErr_NoMemory();
    return Py_BuildValue("(iL)", r.error, (long long)r.broken);
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
