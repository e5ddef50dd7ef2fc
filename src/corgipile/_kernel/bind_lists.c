/* Binds rows of varying length: kernel/io/lists.h, kernel/io/bundles.h and kernel/io/items.h. */
#define _GNU_SOURCE
#include "objects.h"
#include "io/items.h"

#define BUNDLES "corgipile.bundles"

static void bundles_destroy(PyObject *capsule)
{
    cp_bundles *b = PyCapsule_GetPointer(capsule, BUNDLES);
    cp_bundles_free(b);
    free(b);
}

/* bundles_new() -> empty bundles */
static PyObject *bundles_new(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    cp_bundles *b = malloc(sizeof *b);
    if (!b)
        return PyErr_NoMemory();
    cp_bundles_init(b);
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
static PyObject *bundles_release(PyObject *self, PyObject *args)
{
    PyObject *capsule, *owner_array, *slot_array;
    Py_buffer owner, slots;
    cp_bundles *b;
    int64_t left = -1;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &owner_array, &slot_array) ||
        !(b = PyCapsule_GetPointer(capsule, BUNDLES)) || cp_buffer(owner_array, &owner, 4, 1, "owner") < 0)
        return NULL;
    if (cp_buffer(slot_array, &slots, 4, 0, "slots") == 0) {
        Py_BEGIN_ALLOW_THREADS
        if (owners_ok(b, owner.buf, slots.buf, slots.len / 4, owner.len / 4))
            left = cp_bundles_release(b, owner.buf, slots.buf, slots.len / 4);
        Py_END_ALLOW_THREADS
        PyBuffer_Release(&slots);
        if (left < 0)
            PyErr_SetString(PyExc_ValueError, "slots must lie within the buffer and have valid owners");
    }
    PyBuffer_Release(&owner);
    return left < 0 ? NULL : PyLong_FromLongLong(left);
}

/* bundles_look(bundles) -> bytes, rows, and the number of entries, free ones included */
static PyObject *bundles_look(PyObject *self, PyObject *capsule)
{
    const cp_bundles *b = PyCapsule_GetPointer(capsule, BUNDLES);
    (void)self;
    return b ? Py_BuildValue("LLL", (long long)b->bytes, (long long)b->rows, (long long)b->count) : NULL;
}

/* bundles_tell(bundles, out): bytes, rows and live rows of each entry, int64[count][3]; zeros for free entries */
static PyObject *bundles_tell(PyObject *self, PyObject *args)
{
    PyObject *capsule, *array;
    Py_buffer out;
    cp_bundles *b;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &array) || !(b = PyCapsule_GetPointer(capsule, BUNDLES)) ||
        cp_buffer(array, &out, 8, 1, "out") < 0)
        return NULL;
    int64_t count = out.len / 24 < b->count ? out.len / 24 : b->count, (*figures)[3] = out.buf;
    for (int64_t i = 0; i < count; i++) {
        const cp_bundle *bundle = &b->all[i];
        figures[i][0] = bundle->data ? bundle->bytes : 0, figures[i][1] = bundle->data ? bundle->rows : 0;
        figures[i][2] = bundle->data ? bundle->alive : 0;
    }
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* End bundles that own no slot any more: with `drop` they are freed, else they stay readable. */
static PyObject *bundles_end(PyObject *args, int drop)
{
    PyObject *capsule, *array;
    Py_buffer numbers;
    cp_bundles *b;
    int bad = 0;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &array) || !(b = PyCapsule_GetPointer(capsule, BUNDLES)) ||
        cp_buffer(array, &numbers, 8, 0, "numbers") < 0)
        return NULL;
    const int64_t *number = numbers.buf;
    for (int64_t i = 0; i < numbers.len / 8; i++)
        bad |= number[i] < 0 || number[i] >= b->count || !b->all[number[i]].data;
    for (int64_t i = 0; !bad && i < numbers.len / 8; i++) {
        if (drop) {
            cp_bundle_drop(b, number[i]);
            continue;
        }
        b->rows -= b->all[number[i]].rows;
        b->all[number[i]].rows = b->all[number[i]].alive = 0;
    }
    PyBuffer_Release(&numbers);
    return bad ? PyErr_Format(PyExc_ValueError, "numbers must be those of existing bundles") : Py_NewRef(Py_None);
}

/* bundles_retire(bundles, numbers): their rows have moved, but may still be read */
static PyObject *bundles_retire(PyObject *self, PyObject *args)
{
    (void)self;
    return bundles_end(args, 0);
}

/* bundles_drop(bundles, numbers): free them */
static PyObject *bundles_drop(PyObject *self, PyObject *args)
{
    (void)self;
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
static PyObject *reader_list(PyObject *self, PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "", "", "", "", "", "item", "wide", "text", NULL};
    static const char *const names[7] = {"starts", "offsets", "fds", "items", "counts", "address", "length"};
    static const Py_ssize_t sizes[7] = {8, 8, 4, 8, 8, 8, 8};
    PyObject *capsule, *arrays[7];
    long long item;
    int wide, text, got = 0;
    reader_object *r;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOOOOOOO$Lpp", words, &capsule, &arrays[0], &arrays[1], &arrays[2],
                                     &arrays[3], &arrays[4], &arrays[5], &arrays[6], &item, &wide, &text) ||
        !(r = PyCapsule_GetPointer(capsule, READER)))
        return NULL;
    Py_buffer *v = cp_reader_room(r);
    cp_lists *lists = v ? malloc(sizeof *lists) : NULL;
    if (!lists)
        return PyErr_NoMemory();
    for (; got < 7; got++)
        if (cp_buffer(arrays[got], &v[got], sizes[got], got > 4, names[got]) < 0)
            break;
    if (got == 7) {
        cp_column *c = &r->reader.columns[r->reader.column_count];
        enum cp_type kind = wide ? CP_I64 : CP_I32;
        *lists = (cp_lists){v[3].buf, v[4].buf, item, text, v[5].buf, v[6].buf};
        *c = (cp_column){v[1].len / 8, v[0].buf, v[1].buf, v[2].buf, {NULL, 0, 1, kind, kind, 0}, lists};
        if (list_check(r, c, lists, v) == 0) {
            r->reader.column_count++;
            Py_RETURN_NONE;
        }
    }
    while (got-- > 0)
        PyBuffer_Release(&v[got]);
    free(lists);
    return NULL;
}

/* reader_listed(reader) -> bytes of the rows of varying length whose offsets were last read */
static PyObject *reader_listed(PyObject *self, PyObject *capsule)
{
    reader_object *r = PyCapsule_GetPointer(capsule, READER);
    (void)self;
    return r ? PyLong_FromLongLong(atomic_load(&r->reader.read.listed)) : NULL;
}

/* reader_items(reader, extents, into, owner, bundles, urgent): read the items of rows whose offsets were read -> None,
 * or (errno, fd, row) of the first failure */
static PyObject *reader_items(PyObject *self, PyObject *args)
{
    PyObject *capsule, *arrays[3], *bundles_capsule;
    Py_buffer v[3];
    static const char *const names[3] = {"extents", "into", "owner"};
    static const Py_ssize_t sizes[3] = {8, 4, 4};
    reader_object *r;
    cp_bundles *b;
    int status = -2, urgent, got = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOp", &capsule, &arrays[0], &arrays[1], &arrays[2], &bundles_capsule, &urgent) ||
        !(r = PyCapsule_GetPointer(capsule, READER)) || !(b = PyCapsule_GetPointer(bundles_capsule, BUNDLES)))
        return NULL;
    for (; got < 3; got++)
        if (cp_buffer(arrays[got], &v[got], sizes[got], got == 2, names[got]) < 0)
            break;
    if (got == 3) {
        Py_BEGIN_ALLOW_THREADS
        const int64_t *e = v[0].buf;
        int64_t count = v[0].len / 16, rows = 0, bad = 0;
        for (int64_t i = 0; i < count; i++) {
            bad |= e[2 * i] < 0 || e[2 * i] > e[2 * i + 1] || e[2 * i + 1] > r->rows;
            rows += e[2 * i + 1] - e[2 * i];
        }
        if (!bad && rows == v[1].len / 4 && v[2].len / 4 >= r->slots
            && cp_slots_ok(v[1].buf, rows, r->slots, INT32_MIN))
            status = cp_reader_items(&r->reader, (cp_runs){e, count, v[1].buf, NULL, NULL}, v[2].buf, b, urgent);
        Py_END_ALLOW_THREADS
    }
    while (got-- > 0)
        PyBuffer_Release(&v[got]);
    if (status == -2 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "extents must lie within the table, and slots within the buffer");
    if (status == -1)
        PyErr_NoMemory();
    if (status < 0)
        return NULL;
    const cp_read *read = &r->reader.read;
    return status ? Py_BuildValue("(iiL)", read->error, (int)read->error_fd, (long long)read->error_row)
                  : Py_NewRef(Py_None);
}

PyMethodDef cp_lists_methods[] = {
    {"bundles_drop", bundles_drop, METH_VARARGS, "Free bundles."},
    {"bundles_look", bundles_look, METH_O, "Return the bytes and rows of bundles."},
    {"bundles_new", bundles_new, METH_NOARGS, "Create bundles."},
    {"bundles_release", bundles_release, METH_VARARGS, "Release rows."},
    {"bundles_retire", bundles_retire, METH_VARARGS, "Retire bundles whose rows have moved."},
    {"bundles_tell", bundles_tell, METH_VARARGS, "Write the bytes and rows of each bundle."},
    {"reader_items", reader_items, METH_VARARGS, "Read the items of rows of varying length."},
    {"reader_list", CP_BY_NAME(reader_list), "Add a column of rows of varying length."},
    {"reader_listed", reader_listed, METH_O, "Return the bytes of such rows last read."},
    {NULL, NULL, 0, NULL},
};
