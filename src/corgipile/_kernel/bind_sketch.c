/* Binds descriptions of blocks: sketches, contents, spots and the similarity of rows. */
#include "bind.h"
#include "plan/similarity.h"
#include "plan/content.h"
#include "plan/sketch.h"
#include "plan/spots.h"

#include <stdlib.h>

#define SKETCH "corgipile.sketch"
CP_CAPSULE(sketch_of, SKETCH)

typedef struct {
    cp_sketch sketch;
    Py_buffer cuts;
    int64_t blocks, rows;
} sketch_object;

static void sketch_destroy(PyObject *capsule)
{
    sketch_object *object = PyCapsule_GetPointer(capsule, SKETCH);
    PyBuffer_Release(&object->cuts);
    free(object->sketch.told);
    free(object);
}

/* sketch_new(cuts int64[blocks + 1], floats) -> sketch */
static PyObject *sketch_new(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *cuts;
    int floats;
    if (!PyArg_ParseTuple(args, "Op", &cuts, &floats))
        return NULL;
    sketch_object *object = calloc(1, sizeof *object);
    if (!object)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(object, SKETCH, sketch_destroy);
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
static PyObject *sketch_add(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(values, "values");
    PyObject *array;
    sketch_object *object;
    int64_t added = -1;
    int type;
    if (!PyArg_ParseTuple(args, "O&Oi", sketch_of, &object, &array, &type))
        return NULL;
    if (type < 0 || type >= CP_TYPES)
        return PyErr_Format(PyExc_ValueError, "number type must be one of cp_type, got %d", type);
    values.item = cp_type_bytes[type];
    if (!cp_hold(array, &values))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    added = cp_sketch_rows(&object->sketch, object->blocks, object->rows, values.at, type, values.count);
    Py_END_ALLOW_THREADS
    object->rows += added;
    return PyLong_FromLongLong(added);
}

/* sketch_values(sketch, out float64[blocks]): incomplete blocks are described by the rows they have */
static PyObject *sketch_values(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(out, "out", 8, CP_WRITE);
    sketch_object *object;
    if (!PyArg_ParseTuple(args, "O&O&", sketch_of, &object, CP_HOLD(out)))
        return NULL;
    if (out.count != object->blocks)
        return PyErr_Format(PyExc_ValueError, "out must have one number per block");
    Py_BEGIN_ALLOW_THREADS
    while (object->sketch.blocks < object->blocks)
        cp_sketch_end_block(&object->sketch);
    cp_sketch_values(&object->sketch, out.at);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* content_scale(rows float64[n, width], center float64[width], scale float64[width]) */
static PyObject *content_scale(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(rows, "rows", 8);
    CP_ARRAY(center, "center", 8, CP_WRITE);
    CP_ARRAY(scale, "scale", 8, CP_WRITE);
    if (!PyArg_ParseTuple(args, "O&O&O&", CP_HOLD(rows), CP_HOLD(center), CP_HOLD(scale)))
        return NULL;
    if (center.count == 0 || scale.count != center.count || rows.count % center.count)
        return PyErr_Format(PyExc_ValueError, "rows, center and scale must have the same width");
    Py_BEGIN_ALLOW_THREADS
    cp_content_scale(rows.at, rows.count / center.count, center.count, center.at, scale.at);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Create a lens. Returns whether its arrays and the rows match. */
static int create_lens(int64_t features, const cp_array *center, const cp_array *scale, const cp_array *turn,
                       const cp_array *rows, cp_lens *lens)
{
    int64_t width = center->count, plain = cp_content_plain(features);
    *lens = (cp_lens){features, width - features, center->at, scale->at, turn->at};
    return width > 0 && features >= 0 && features <= width && scale->count == width && turn->count == plain * plain &&
           rows->count % width == 0;
}

/* content_width(features, extras) -> length of a vector */
static PyObject *content_width(PyObject *Py_UNUSED(self), PyObject *args)
{
    long long features, extras;
    if (!PyArg_ParseTuple(args, "LL", &features, &extras))
        return NULL;
    return PyLong_FromLongLong(cp_content_width(features, extras));
}

/* content_turn(features, center, scale, turn float64[plain, plain], rows float64[n, features + extras]): turn is
 * written */
static PyObject *content_turn(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(center, "center", 8);
    CP_ARRAY(scale, "scale", 8);
    CP_ARRAY(turn, "turn", 8, CP_WRITE);
    CP_ARRAY(rows, "rows", 8, CP_WRITE);
    long long features;
    cp_lens lens;
    if (!PyArg_ParseTuple(args, "LO&O&O&O&", &features, CP_HOLD(center), CP_HOLD(scale), CP_HOLD(turn), CP_HOLD(rows)))
        return NULL;
    if (!create_lens(features, &center, &scale, &turn, &rows, &lens))
        return PyErr_Format(PyExc_ValueError, "center, scale, turn and rows must have matching shapes");
    int64_t *room = malloc(sizeof *room * (size_t)cp_content_room(features, lens.extras));
    if (!room)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    cp_content_turn(&lens, rows.at, rows.count / center.count, room, turn.at);
    Py_END_ALLOW_THREADS
    free(room);
    Py_RETURN_NONE;
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
static PyObject *content(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(center, "center", 8);
    CP_ARRAY(scale, "scale", 8);
    CP_ARRAY(turn, "turn", 8);
    CP_ARRAY(rows, "rows", 8);
    CP_ARRAY(ends, "ends", 8);
    CP_ARRAY(out, "out", 2, CP_WRITE);
    long long features;
    cp_lens lens;
    if (!PyArg_ParseTuple(args, "LO&O&O&O&O&O&", &features, CP_HOLD(center), CP_HOLD(scale), CP_HOLD(turn),
                          CP_HOLD(rows), CP_HOLD(ends), CP_HOLD(out)))
        return NULL;
    if (!create_lens(features, &center, &scale, &turn, &rows, &lens) ||
        !are_ends(ends.at, ends.count, rows.count / center.count) ||
        out.count != ends.count * cp_content_width(features, lens.extras))
        return PyErr_Format(PyExc_ValueError, "center, scale, turn, rows, ends and out must have matching shapes");
    int64_t *room = malloc(sizeof *room * (size_t)cp_content_room(features, lens.extras));
    if (!room)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    cp_content(&lens, rows.at, ends.at, ends.count, room, out.at);
    Py_END_ALLOW_THREADS
    free(room);
    Py_RETURN_NONE;
}

/* spots(rows, row_bytes) -> (spots, rows per spot, rows of the first sample) */
static PyObject *spots(PyObject *Py_UNUSED(self), PyObject *args)
{
    long long rows;
    double row_bytes;
    if (!PyArg_ParseTuple(args, "Ld", &rows, &row_bytes))
        return NULL;
    if (rows < 0 || !(row_bytes >= 0))
        return PyErr_Format(PyExc_ValueError, "rows and row_bytes must not be negative, got %lld rows", rows);
    cp_spots s = cp_spots_make(rows, row_bytes);
    return Py_BuildValue("LLL", (long long)s.count, (long long)s.each, (long long)cp_spots_first(row_bytes));
}

/* Take (rows, count, each) of spots that fit the rows. Returns 0 with an error set if they do not. */
static int take_spots(long long rows, long long count, long long each, cp_spots *s)
{
    *s = (cp_spots){rows, count, each};
    if (rows < 0 || each < 1 || count < 0 || count > CP_MAX_SPOTS || (count > 0 && rows / count < each))
        PyErr_Format(PyExc_ValueError, "%lld rows must fit %lld spots of %lld rows", rows, count, each);
    return !PyErr_Occurred();
}

/* spot_rows(rows, count, each, out int64[count]): write the first row of each spot */
static PyObject *spot_rows(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(out, "out", 8, CP_WRITE);
    long long rows, count, each;
    cp_spots s;
    if (!PyArg_ParseTuple(args, "LLLO&", &rows, &count, &each, CP_HOLD(out)) || !take_spots(rows, count, each, &s))
        return NULL;
    if (out.count != s.count)
        return PyErr_Format(PyExc_ValueError, "out must have one number per spot");
    for (int64_t i = 0; i < s.count; i++)
        ((int64_t *)out.at)[i] = cp_spot_row(&s, i);
    Py_RETURN_NONE;
}

/* spots_spread(rows, count, each, vectors int16[count, width], cuts int64[blocks + 1], out int16[blocks, width]) */
static PyObject *spots_spread(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(vectors, "vectors", 2);
    CP_ARRAY(cuts, "cuts", 8);
    CP_ARRAY(out, "out", 2, CP_WRITE);
    long long rows, count, each;
    cp_spots s;
    if (!PyArg_ParseTuple(args, "LLLO&O&O&", &rows, &count, &each, CP_HOLD(vectors), CP_HOLD(cuts), CP_HOLD(out)) ||
        !take_spots(rows, count, each, &s))
        return NULL;
    int64_t width = s.count ? vectors.count / s.count : 0, blocks = cuts.count - 1;
    if (width == 0 || blocks < 0 || vectors.count != s.count * width || out.count != blocks * width ||
        !are_ends(cuts.at, blocks + 1, s.rows))
        return PyErr_Format(PyExc_ValueError, "vectors, cuts and out must have matching shapes");
    int64_t *sums = malloc(sizeof *sums * (size_t)width);
    if (!sums)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    cp_spots_spread(&s, vectors.at, width, cuts.at, blocks, sums, out.at);
    Py_END_ALLOW_THREADS
    free(sums);
    Py_RETURN_NONE;
}

/* similarity(rows float64[spots * each, features + extras], each, features, extras) -> share of variance; rows are
 * overwritten */
static PyObject *similarity(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(rows, "rows", 8, CP_WRITE);
    long long each, features, extras;
    double share = 0;
    if (!PyArg_ParseTuple(args, "O&LLL", CP_HOLD(rows), &each, &features, &extras))
        return NULL;
    if (each < 1 || features < 0 || extras < 0 || each > CP_SPOT_MAX_ROWS || features > INT32_MAX || extras > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "each, features and extras are out of range: %lld, %lld, %lld", each,
                            features, extras);
    int64_t spot = each * (features + extras);
    if (spot == 0 || rows.count % spot)
        return PyErr_Format(PyExc_ValueError, "rows must be whole spots");
    Py_BEGIN_ALLOW_THREADS
    share = cp_similarity(rows.at, rows.count / spot, each, features, extras);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(share);
}

/* wants_content(similarity, blocks, dealt, batch) -> whether blocks should be balanced by content */
static PyObject *wants_content(PyObject *Py_UNUSED(self), PyObject *args)
{
    double share;
    long long blocks, dealt, batch;
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
