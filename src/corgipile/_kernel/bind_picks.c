/* Binds the selection of rows by bits: kernel/io/picks.h. */
#define _GNU_SOURCE
#include "objects.h"

/* Return whether ranks match the bits, and all selected rows lie in the columns. */
static int bits_ok(const cp_bits *b, const reader_object *r)
{
    int64_t rank = 0, last = -1;
    int bad = b->blocks < 1 || b->ranks[0] != 0;
    for (int64_t i = 0; i < b->blocks && !bad; i++) {
        for (int64_t w = i * (CP_BITS_BLOCK / 64); w < (i + 1) * (CP_BITS_BLOCK / 64); w++) {
            rank += __builtin_popcountll(b->words[w]);
            last = b->words[w] ? 64 * w + 63 - __builtin_clzll(b->words[w]) : last;
        }
        bad = b->ranks[i + 1] != rank;
    }
    for (int64_t c = 0; c < r->reader.column_count; c++)
        bad |= last >= r->reader.columns[c].starts[r->reader.columns[c].pieces];
    return !bad && rank == r->rows;
}

/* reader_pick(reader, words, ranks): from now on rows are numbered among the selected ones. The columns must have been
 * added. */
static PyObject *reader_pick(PyObject *self, PyObject *args)
{
    PyObject *capsule, *words, *ranks;
    reader_object *r;
    Py_buffer buffers[2];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &words, &ranks) || !(r = PyCapsule_GetPointer(capsule, READER)) ||
        cp_buffer(words, &buffers[0], 8, 0, "words") < 0)
        return NULL;
    if (cp_buffer(ranks, &buffers[1], 8, 0, "ranks") < 0) {
        PyBuffer_Release(&buffers[0]);
        return NULL;
    }
    cp_bits bits = {buffers[0].buf, buffers[1].buf, buffers[1].len / 8 - 1};
    if (r->picks[0].buf || buffers[0].len != bits.blocks * (CP_BITS_BLOCK / 8) || !bits_ok(&bits, r)) {
        PyBuffer_Release(&buffers[0]);
        PyBuffer_Release(&buffers[1]);
        return PyErr_Format(PyExc_ValueError, "words and ranks must select %lld rows of the columns, and only once",
                            (long long)r->rows);
    }
    memcpy(r->picks, buffers, sizeof buffers);
    cp_reader_pick(&r->reader, bits);
    Py_RETURN_NONE;
}

/* Replace numbers of picks by their rows, or rows by the number of picks before them. */
static PyObject *bits_map(PyObject *args, int select)
{
    PyObject *arrays[3];
    Py_buffer v[3];
    int got = 0, bad = 0;
    static const char *const names[3] = {"words", "ranks", "rows"};
    if (!PyArg_ParseTuple(args, "OOO", &arrays[0], &arrays[1], &arrays[2]))
        return NULL;
    for (; got < 3; got++)
        if (cp_buffer(arrays[got], &v[got], 8, got == 2, names[got]) < 0)
            break;
    if (got == 3) {
        cp_bits bits = {v[0].buf, v[1].buf, v[1].len / 8 - 1};
        int64_t *rows = v[2].buf;
        bad = bits.blocks < 1 || v[0].len != bits.blocks * (CP_BITS_BLOCK / 8);
        int64_t most = bad ? 0 : select ? bits.ranks[bits.blocks] : bits.blocks * CP_BITS_BLOCK + 1;
        Py_BEGIN_ALLOW_THREADS
        for (int64_t i = 0; i < v[2].len / 8 && !bad; i++) {
            bad = rows[i] < 0 || rows[i] >= most;
            rows[i] = bad ? 0 : select ? cp_bits_select(&bits, rows[i]) : cp_bits_rank(&bits, rows[i]);
        }
        Py_END_ALLOW_THREADS
    }
    int all = got == 3;
    while (got-- > 0)
        PyBuffer_Release(&v[got]);
    if (bad)
        PyErr_SetString(PyExc_ValueError, "rows and picks must lie within the bits");
    if (!all || bad)
        return NULL;
    Py_RETURN_NONE;
}

/* bits_select(words, ranks, rows): replace numbers of picks by rows, in place */
static PyObject *bits_select(PyObject *self, PyObject *args)
{
    (void)self;
    return bits_map(args, 1);
}

/* bits_rank(words, ranks, rows): replace rows by the number of picks before them, in place */
static PyObject *bits_rank(PyObject *self, PyObject *args)
{
    (void)self;
    return bits_map(args, 0);
}

PyMethodDef cp_picks_methods[] = {
    {"bits_rank", bits_rank, METH_VARARGS, "Count the picks before rows."},
    {"bits_select", bits_select, METH_VARARGS, "Return the rows of picks."},
    {"reader_pick", reader_pick, METH_VARARGS, "Select rows of the columns."},
    {NULL, NULL, 0, NULL},
};
