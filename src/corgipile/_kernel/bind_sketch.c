/* Binds descriptions of blocks: sketches, contents, spots and the similarity of rows. */
#include "bind.h"
#include "plan/alike.h"
#include "plan/content.h"
#include "plan/sketch.h"
#include "plan/spots.h"

#include <stdlib.h>

#define SKETCH "corgipile.sketch"

typedef struct {
    cp_sketch sketch;
    Py_buffer cuts;
    int64_t blocks, rows;
} sketch_object;

static void sketch_destroy(PyObject *capsule)
{
    sketch_object *object = PyCapsule_GetPointer(capsule, SKETCH);
    if (object->cuts.obj)
        PyBuffer_Release(&object->cuts);
    free(object->sketch.told);
    free(object);
}

/* sketch_new(cuts int64[blocks + 1], floats) -> sketch */
static PyObject *sketch_new(PyObject *self, PyObject *args)
{
    PyObject *cuts, *capsule;
    sketch_object *object;
    int floats;
    (void)self;
    if (!PyArg_ParseTuple(args, "Op", &cuts, &floats))
        return NULL;
    object = calloc(1, sizeof *object);
    if (!object)
        return PyErr_NoMemory();
    capsule = PyCapsule_New(object, SKETCH, sketch_destroy);
    if (!capsule) {
        free(object);
        return NULL;
    }
    if (cp_buffer(cuts, &object->cuts, 8, 0, "cuts") == 0) {
        object->blocks = object->cuts.len / 8 - 1;
        object->sketch.cuts = object->cuts.buf;
        object->sketch.most = floats ? CP_SKETCH_FLOATS : CP_SKETCH_INTEGERS;
        if (object->blocks < 0)
            PyErr_SetString(PyExc_ValueError, "cuts must have one entry more than blocks, got none");
        else if ((object->sketch.told = calloc((size_t)object->blocks + 1, sizeof *object->sketch.told)))
            return capsule;
        else
            PyErr_NoMemory();
    }
    Py_DecRef(capsule);
    return NULL;
}

/* sketch_add(sketch, values, type) -> rows added: fewer than the values if the next one is not finite */
static PyObject *sketch_add(PyObject *self, PyObject *args)
{
    PyObject *capsule, *array;
    sketch_object *object;
    Py_buffer values;
    int64_t added = -1;
    int type;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOi", &capsule, &array, &type) || !(object = PyCapsule_GetPointer(capsule, SKETCH)))
        return NULL;
    if (type < 0 || type >= CP_TYPES)
        return PyErr_Format(PyExc_ValueError, "number type must be one of cp_type, got %d", type);
    if (cp_buffer(array, &values, cp_type_bytes[type], 0, "values") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    added = cp_sketch_rows(&object->sketch, object->blocks, object->rows, values.buf, type,
                           values.len / cp_type_bytes[type]);
    Py_END_ALLOW_THREADS
    object->rows += added;
    PyBuffer_Release(&values);
    return PyLong_FromLongLong(added);
}

/* sketch_values(sketch, out float64[blocks]): incomplete blocks are described by the rows they have */
static PyObject *sketch_values(PyObject *self, PyObject *args)
{
    PyObject *capsule, *array;
    sketch_object *object;
    Py_buffer out;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &array) || !(object = PyCapsule_GetPointer(capsule, SKETCH)) ||
        cp_buffer(array, &out, 8, 1, "out") < 0)
        return NULL;
    if (out.len / 8 == object->blocks) {
        Py_BEGIN_ALLOW_THREADS
        while (object->sketch.blocks < object->blocks)
            cp_sketch_end_block(&object->sketch);
        cp_sketch_values(&object->sketch, out.buf);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "out must have one number per block");
    }
    PyBuffer_Release(&out);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* Get buffers with these element sizes, the last `written` of them writable. Returns the number of buffers got. */
static int get_buffers(PyObject **arrays, Py_buffer *views, const Py_ssize_t *items, int count, int written)
{
    int got = 0;
    while (got < count && cp_buffer(arrays[got], &views[got], items[got], got >= count - written, "an array") == 0)
        got++;
    return got;
}

/* Release buffers. Returns None, or NULL if an error is set. */
static PyObject *release(Py_buffer *views, int got)
{
    while (got-- > 0)
        PyBuffer_Release(&views[got]);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* content_scale(rows float64[n, width], center float64[width], scale float64[width]) */
static PyObject *content_scale(PyObject *self, PyObject *args)
{
    static const Py_ssize_t items[3] = {8, 8, 8};
    PyObject *arrays[3];
    Py_buffer views[3];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &arrays[0], &arrays[1], &arrays[2]))
        return NULL;
    int got = get_buffers(arrays, views, items, 3, 2);
    if (got == 3) {
        int64_t width = views[1].len / 8;
        if (width > 0 && views[2].len == views[1].len && views[0].len % views[1].len == 0) {
            Py_BEGIN_ALLOW_THREADS
            cp_content_scale(views[0].buf, views[0].len / views[1].len, width, views[1].buf, views[2].buf);
            Py_END_ALLOW_THREADS
        } else {
            PyErr_SetString(PyExc_ValueError, "rows, center and scale must have the same width");
        }
    }
    return release(views, got);
}

/* Create a lens from buffers of center, scale, turn and rows. Returns whether they match. */
static int create_lens(int64_t features, const Py_buffer *views, cp_lens *lens)
{
    int64_t width = views[0].len / 8, plain = cp_content_plain(features);
    *lens = (cp_lens){features, width - features, views[0].buf, views[1].buf, views[2].buf};
    return width > 0 && features >= 0 && features <= width && views[1].len == views[0].len &&
           views[2].len == plain * plain * 8 && views[3].len % views[0].len == 0;
}

/* content_width(features, extras) -> length of a vector */
static PyObject *content_width(PyObject *self, PyObject *args)
{
    long long features, extras;
    (void)self;
    if (!PyArg_ParseTuple(args, "LL", &features, &extras))
        return NULL;
    return PyLong_FromLongLong(cp_content_width(features, extras));
}

/* content_turn(features, center, scale, turn float64[plain, plain], rows float64[n, features + extras]): turn is
 * written */
static PyObject *content_turn(PyObject *self, PyObject *args)
{
    static const Py_ssize_t items[4] = {8, 8, 8, 8};
    PyObject *arrays[4];
    Py_buffer views[4];
    long long features;
    int64_t *room = NULL;
    cp_lens lens;
    (void)self;
    if (!PyArg_ParseTuple(args, "LOOOO", &features, &arrays[0], &arrays[1], &arrays[2], &arrays[3]))
        return NULL;
    int got = get_buffers(arrays, views, items, 4, 2);
    if (got == 4 && !create_lens(features, views, &lens)) {
        PyErr_SetString(PyExc_ValueError, "center, scale, turn and rows must have matching shapes");
    } else if (got == 4 && !(room = malloc(sizeof *room * (size_t)cp_content_room(features, lens.extras)))) {
        PyErr_NoMemory();
    } else if (got == 4) {
        Py_BEGIN_ALLOW_THREADS
        cp_content_turn(&lens, views[3].buf, views[3].len / views[0].len, room, views[2].buf);
        Py_END_ALLOW_THREADS
    }
    free(room);
    return release(views, got);
}

/* Return whether ends[blocks] ascend to the number of rows. */
static int are_ends(const int64_t *ends, int64_t blocks, int64_t rows)
{
    int64_t from = 0;
    for (int64_t i = 0; i < blocks; from = ends[i++])
        if (ends[i] < from)
            return 0;
    return from == rows;
}

/* content(features, center, scale, turn, rows, ends int64[blocks], out int16[blocks, numbers]) */
static PyObject *content(PyObject *self, PyObject *args)
{
    static const Py_ssize_t items[6] = {8, 8, 8, 8, 8, 2};
    PyObject *arrays[6];
    Py_buffer views[6];
    long long features;
    int64_t *room = NULL;
    cp_lens lens;
    (void)self;
    if (!PyArg_ParseTuple(args, "LOOOOOO", &features, &arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4],
                          &arrays[5]))
        return NULL;
    int got = get_buffers(arrays, views, items, 6, 1);
    if (got == 6) {
        int64_t blocks = views[4].len / 8;
        int fits = create_lens(features, views, &lens) && are_ends(views[4].buf, blocks, views[3].len / views[0].len) &&
                   views[5].len == blocks * cp_content_width(features, lens.extras) * 2;
        if (!fits) {
            PyErr_SetString(PyExc_ValueError, "center, scale, turn, rows, ends and out must have matching shapes");
        } else if (!(room = malloc(sizeof *room * (size_t)cp_content_room(features, lens.extras)))) {
            PyErr_NoMemory();
        } else {
            Py_BEGIN_ALLOW_THREADS
            cp_content(&lens, views[3].buf, views[4].buf, blocks, room, views[5].buf);
            Py_END_ALLOW_THREADS
        }
    }
    free(room);
    return release(views, got);
}

/* spots(rows, row_bytes) -> (spots, rows per spot, rows of the first sample) */
static PyObject *spots(PyObject *self, PyObject *args)
{
    long long rows;
    double row_bytes;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ld", &rows, &row_bytes))
        return NULL;
    if (rows < 0 || !(row_bytes >= 0))
        return PyErr_Format(PyExc_ValueError, "rows and row_bytes must not be negative, got %lld rows", rows);
    cp_spots s = cp_spots_make(rows, row_bytes);
    return Py_BuildValue("LLL", (long long)s.count, (long long)s.each, (long long)cp_spots_first(row_bytes));
}

/* Parse (rows, count, each) of spots that fit the rows. Returns 0 with an error set if they do not. */
static int parse_spots(PyObject *args, const char *format, cp_spots *s, PyObject **arrays)
{
    long long rows, count, each;
    if (!PyArg_ParseTuple(args, format, &rows, &count, &each, &arrays[0], &arrays[1], &arrays[2]))
        return 0;
    *s = (cp_spots){rows, count, each};
    if (rows < 0 || each < 1 || count < 0 || count > CP_MAX_SPOTS || (count > 0 && rows / count < each))
        PyErr_Format(PyExc_ValueError, "%lld rows must fit %lld spots of %lld rows", rows, count, each);
    return !PyErr_Occurred();
}

/* spot_rows(rows, count, each, out int64[count]): write the first row of each spot */
static PyObject *spot_rows(PyObject *self, PyObject *args)
{
    PyObject *arrays[3];
    Py_buffer out;
    cp_spots s;
    (void)self;
    if (!parse_spots(args, "LLLO", &s, arrays) || cp_buffer(arrays[0], &out, 8, 1, "out") < 0)
        return NULL;
    int fits = out.len / 8 == s.count;
    for (int64_t i = 0; fits && i < s.count; i++)
        ((int64_t *)out.buf)[i] = cp_spot_row(&s, i);
    PyBuffer_Release(&out);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "out must have one number per spot");
    Py_RETURN_NONE;
}

/* spots_spread(rows, count, each, vectors int16[count, width], cuts int64[blocks + 1], out int16[blocks, width]) */
static PyObject *spots_spread(PyObject *self, PyObject *args)
{
    static const Py_ssize_t items[3] = {2, 8, 2};
    PyObject *arrays[3];
    Py_buffer views[3];
    int64_t *sums = NULL;
    cp_spots s;
    (void)self;
    if (!parse_spots(args, "LLLOOO", &s, arrays))
        return NULL;
    int got = get_buffers(arrays, views, items, 3, 1);
    if (got == 3) {
        int64_t width = s.count ? views[0].len / 2 / s.count : 0, blocks = views[1].len / 8 - 1;
        int fits = width > 0 && blocks >= 0 && views[0].len == s.count * width * 2 && views[2].len == blocks * width * 2
                   && are_ends(views[1].buf, blocks + 1, s.rows);
        if (!fits) {
            PyErr_SetString(PyExc_ValueError, "vectors, cuts and out must have matching shapes");
        } else if (!(sums = malloc(sizeof *sums * (size_t)width))) {
            PyErr_NoMemory();
        } else {
            Py_BEGIN_ALLOW_THREADS
            cp_spots_spread(&s, views[0].buf, width, views[1].buf, blocks, sums, views[2].buf);
            Py_END_ALLOW_THREADS
        }
    }
    free(sums);
    return release(views, got);
}

/* similarity(rows float64[spots * each, features + extras], each, features, extras) -> share of variance; rows are
 * overwritten */
static PyObject *similarity(PyObject *self, PyObject *args)
{
    PyObject *array;
    Py_buffer rows;
    long long each, features, extras;
    double share = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OLLL", &array, &each, &features, &extras))
        return NULL;
    if (each < 1 || features < 0 || extras < 0 || each > CP_SPOT_MAX_ROWS || features > INT32_MAX || extras > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "each, features and extras are out of range: %lld, %lld, %lld", each,
                            features, extras);
    if (cp_buffer(array, &rows, 8, 1, "rows") < 0)
        return NULL;
    int64_t spot = each * (features + extras), count = rows.len / 8;
    if (spot > 0 && count % spot == 0) {
        Py_BEGIN_ALLOW_THREADS
        share = cp_alike(rows.buf, count / spot, each, features, extras);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "rows must be whole spots");
    }
    PyBuffer_Release(&rows);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(share);
}

/* wants_content(similarity, blocks, dealt, batch) -> whether blocks should be balanced by content */
static PyObject *wants_content(PyObject *self, PyObject *args)
{
    double share;
    long long blocks, dealt, batch;
    (void)self;
    if (!PyArg_ParseTuple(args, "dLLL", &share, &blocks, &dealt, &batch))
        return NULL;
    return PyBool_FromLong(cp_wants_content(share, blocks, dealt, batch));
}

PyMethodDef cp_sketch_methods[] = {
    {"content", content, METH_VARARGS, "Describe blocks by vectors of their content."},
    {"content_scale", content_scale, METH_VARARGS, "Write centre and inverse spread of columns."},
    {"content_turn", content_turn, METH_VARARGS, "Write the whitening matrix of features."},
    {"content_width", content_width, METH_VARARGS, "Return the length of a vector."},
    {"similarity", similarity, METH_VARARGS, "Return how similar neighbouring rows are."},
    {"sketch_add", sketch_add, METH_VARARGS, "Add rows to a sketch."},
    {"sketch_new", sketch_new, METH_VARARGS, "Create a sketch of blocks."},
    {"sketch_values", sketch_values, METH_VARARGS, "Write one number per block."},
    {"spot_rows", spot_rows, METH_VARARGS, "Write the first rows of spots."},
    {"spots", spots, METH_VARARGS, "Choose spots of a table."},
    {"spots_spread", spots_spread, METH_VARARGS, "Describe blocks by the vectors of spots."},
    {"wants_content", wants_content, METH_VARARGS, "Return whether blocks should be balanced by content."},
    {NULL, NULL, 0, NULL},
};
