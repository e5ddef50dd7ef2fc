/* Binds rows of varying length: kernel/io/lists.h, kernel/io/bundles.h and kernel/io/items.h. */
#include "objects.h"
#include "io/items.h"

#define BUNDLES "corgipile.bundles"
CP_CAPSULE(bundles_of, BUNDLES)

static void bundles_destroy(PyObject *capsule)
{
    cp_bundles *b = PyCapsule_GetPointer(capsule, BUNDLES);
    cp_bundles_free(b);
    free(b);
}

/* bundles_new(spare) -> empty bundles that keep up to `spare` bytes of freed ones for reuse */
static PyObject *bundles_new(PyObject *Py_UNUSED(self), PyObject *spare)
{
    long long most = PyLong_AsLongLong(spare);
    if (most < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "spare bytes must be at least 0");
    cp_bundles *b = malloc(sizeof *b);
    if (!b)
        return PyErr_NoMemory();
    cp_bundles_init(b, most);
    PyObject *capsule = PyCapsule_New(b, BUNDLES, bundles_destroy);
    if (!capsule)
        free(b);
    return capsule;
}

static int owners_ok(const cp_bundles *b, const int32_t *owner, const int32_t *slots, int64_t count, int64_t limit)
{
    int bad = !cp_slots_ok(slots, count, limit, INT32_MIN);
    for (int64_t i = 0; !bad && i < count; i++) {
        int64_t own = slots[i] < 0 ? CP_NO_OWNER : owner[slots[i]];
        bad = own < -1 && (-2 - own >= b->count || !b->all[-2 - own].data || !b->all[-2 - own].alive);
    }
    return !bad;
}

/* bundles_release(bundles, owner, slots) -> number of slots whose owner is not a bundle */
static PyObject *bundles_release(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(owner, "owner", 4, CP_WRITE);
    CP_ARRAY(slots, "slots", 4);
    cp_bundles *b;
    int64_t left = -1;
    if (!PyArg_ParseTuple(args, "O&O&O&", bundles_of, &b, CP_HOLD(owner), CP_HOLD(slots)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (owners_ok(b, owner.at, slots.at, slots.count, owner.count))
        left = cp_bundles_release(b, owner.at, slots.at, slots.count);
    Py_END_ALLOW_THREADS
    if (left < 0)
        return PyErr_Format(PyExc_ValueError, "slots must lie within the buffer and have valid owners");
    return PyLong_FromLongLong(left);
}

/* bundles_look(bundles) -> bytes, rows, the number of entries, free ones included, and the bytes freed so far */
static PyObject *bundles_look(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    const cp_bundles *b = PyCapsule_GetPointer(capsule, BUNDLES);
    return b ? Py_BuildValue("LLLL", (long long)b->bytes, (long long)b->rows, (long long)b->count, (long long)b->freed)
             : NULL;
}

/* bundles_tell(bundles, out): bytes, rows and live rows of each entry, int64[count][3]; zeros for free entries */
static PyObject *bundles_tell(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(out, "out", 8, CP_WRITE);
    cp_bundles *b;
    if (!PyArg_ParseTuple(args, "O&O&", bundles_of, &b, CP_HOLD(out)))
        return NULL;
    int64_t count = out.count / 3 < b->count ? out.count / 3 : b->count, (*figures)[3] = out.at;
    for (int64_t i = 0; i < count; i++) {
        const cp_bundle *bundle = &b->all[i];
        figures[i][0] = bundle->data ? bundle->bytes : 0, figures[i][1] = bundle->data ? bundle->rows : 0;
        figures[i][2] = bundle->data ? bundle->alive : 0;
    }
    Py_RETURN_NONE;
}

/* End bundles that own no slot any more: with `drop` they are freed, else they stay readable. */
static PyObject *bundles_end(PyObject *args, int drop)
{
    CP_ARRAY(numbers, "numbers", 8);
    cp_bundles *b;
    int bad = 0;
    if (!PyArg_ParseTuple(args, "O&O&", bundles_of, &b, CP_HOLD(numbers)))
        return NULL;
    const int64_t *number = numbers.at;
    for (int64_t i = 0; i < numbers.count; i++)
        bad |= number[i] < 0 || number[i] >= b->count || !b->all[number[i]].data;
    for (int64_t i = 0; !bad && i < numbers.count; i++) {
        if (drop) {
            cp_bundle_drop(b, number[i]);
            continue;
        }
        b->rows -= b->all[number[i]].rows;
        b->all[number[i]].rows = b->all[number[i]].alive = 0;
    }
    return bad ? PyErr_Format(PyExc_ValueError, "numbers must be those of existing bundles") : Py_NewRef(Py_None);
}

/* bundles_retire(bundles, numbers): their rows have moved, but may still be read */
static PyObject *bundles_retire(PyObject *Py_UNUSED(self), PyObject *args)
{
    return bundles_end(args, 0);
}

/* bundles_drop(bundles, numbers): free them */
static PyObject *bundles_drop(PyObject *Py_UNUSED(self), PyObject *args)
{
    return bundles_end(args, 1);
}

static int list_check(const reader_object *r, const cp_column *c, const cp_lists *l, const Py_buffer *v)
{
    int64_t pieces = c->pieces;
    if (v[0].len / 8 != pieces + 1 || v[2].len / 4 != pieces || v[3].len / 8 != pieces || v[4].len / 8 != pieces ||
        pieces < 1)
        return PyErr_SetString(PyExc_ValueError, "starts must have one entry more than the other arrays of pieces"), -1;
    if (l->item < 1 || l->item > 8 || v[5].len / 8 < r->slots || v[6].len / 8 < r->slots)
        return PyErr_SetString(PyExc_ValueError, "items must have 1 to 8 bytes, and each slot an address and a length"),
               -1;
    if (c->starts[0] != 0 || c->starts[pieces] < r->rows)
        return PyErr_SetString(PyExc_ValueError, "the pieces of a column must cover all rows"), -1;
    return 0;
}

/* reader_list(reader, starts, offsets, fds, items, counts, address, length, *, item, wide, text): add a column of rows
 * of varying length. */
static PyObject *reader_list(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "", "", "", "", "", "item", "wide", "text", NULL};
    static const char *const names[7] = {"starts", "offsets", "fds", "items", "counts", "address", "length"};
    static const Py_ssize_t sizes[7] = {8, 8, 4, 8, 8, 8, 8};
    PyObject *arrays[7];
    long long item;
    int wide, text;
    reader_object *r;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&OOOOOOO$Lpp", words, cp_reader_of, &r, &arrays[0], &arrays[1],
                                     &arrays[2], &arrays[3], &arrays[4], &arrays[5], &arrays[6], &item, &wide, &text))
        return NULL;
    Py_buffer *v = cp_reader_room(r);
    cp_lists *lists = v ? malloc(sizeof *lists) : NULL;
    if (!lists)
        return PyErr_NoMemory();
    if (cp_buffers(arrays, v, 7, sizes, 5, names) == 0) {
        cp_column *c = &r->reader.columns[r->reader.column_count];
        enum cp_type kind = wide ? CP_I64 : CP_I32;
        *lists = (cp_lists){v[3].buf, v[4].buf, item, text, v[5].buf, v[6].buf};
        *c = (cp_column){v[1].len / 8, v[0].buf, v[1].buf, v[2].buf, {NULL, 0, 1, kind, kind, 0}, lists};
        if (list_check(r, c, lists, v) == 0) {
            r->reader.column_count++;
            Py_RETURN_NONE;
        }
        for (int i = 0; i < 7; i++)
            PyBuffer_Release(&v[i]);
    }
    free(lists);
    return NULL;
}

/* reader_listed(reader) -> bytes of the rows of varying length whose offsets were last read */
static PyObject *reader_listed(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    reader_object *r = PyCapsule_GetPointer(capsule, READER);
    return r ? PyLong_FromLongLong(atomic_load(&r->reader.read.listed)) : NULL;
}

/* reader_items(reader, extents, into, owner, bundles, urgent): read the items of rows whose offsets were read -> None,
 * or (errno, fd, row) of the first failure */
static PyObject *reader_items(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(extents, "extents", 8);
    CP_ARRAY(into, "into", 4);
    CP_ARRAY(owner, "owner", 4, CP_WRITE);
    reader_object *r;
    cp_bundles *b;
    int status = -2, urgent;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&p", cp_reader_of, &r, CP_HOLD(extents), CP_HOLD(into), CP_HOLD(owner),
                          bundles_of, &b, &urgent))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (owner.count >= r->slots && cp_extents_ok(r, extents.at, extents.count / 2, into.at, into.count))
        status = cp_reader_items(&r->reader, (cp_runs){extents.at, extents.count / 2, into.at, NULL, NULL}, owner.at, b,
                                 urgent);
    Py_END_ALLOW_THREADS
    return cp_read_result(status, &r->reader.read);
}

PyMethodDef cp_lists_methods[] = {
    {"bundles_drop", bundles_drop, METH_VARARGS, "Free bundles."},
    {"bundles_look", bundles_look, METH_O, "Return the bytes and rows of bundles."},
    {"bundles_new", bundles_new, METH_O, "Create bundles."},
    {"bundles_release", bundles_release, METH_VARARGS, "Release rows."},
    {"bundles_retire", bundles_retire, METH_VARARGS, "Retire bundles whose rows have moved."},
    {"bundles_tell", bundles_tell, METH_VARARGS, "Write the bytes and rows of each bundle."},
    {"reader_items", reader_items, METH_VARARGS, "Read the items of rows of varying length."},
    {"reader_list", CP_BY_NAME(reader_list), "Add a column of rows of varying length."},
    {"reader_listed", reader_listed, METH_O, "Return the bytes of such rows last read."},
    {NULL, NULL, 0, NULL},
};
