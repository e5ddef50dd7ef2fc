/* Binds the selection of rows by bits: kernel/io/row_mask.h. */
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
static PyObject *reader_pick(PyObject *Py_UNUSED(self), PyObject *args)
{
    static const char *const names[2] = {"words", "ranks"};
    static const Py_ssize_t sizes[2] = {8, 8};
    PyObject *arrays[2];
    Py_buffer buffers[2];
    reader_object *r;
    if (!PyArg_ParseTuple(args, "O&OO", cp_reader_of, &r, &arrays[0], &arrays[1]) ||
        cp_buffers(arrays, buffers, 2, sizes, 2, names) < 0)
        return NULL;
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
    CP_ARRAY(words, "words", 8);
    CP_ARRAY(ranks, "ranks", 8);
    CP_ARRAY(array, "rows", 8, CP_WRITE);
    if (!PyArg_ParseTuple(args, "O&O&O&", CP_HOLD(words), CP_HOLD(ranks), CP_HOLD(array)))
        return NULL;
    cp_bits bits = {words.at, ranks.at, ranks.count - 1};
    int64_t *rows = array.at;
    int bad = bits.blocks < 1 || words.bytes != bits.blocks * (CP_BITS_BLOCK / 8);
    int64_t most = bad ? 0 : select ? bits.ranks[bits.blocks] : bits.blocks * CP_BITS_BLOCK + 1;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < array.count && !bad; i++) {
        bad = rows[i] < 0 || rows[i] >= most;
        rows[i] = bad ? 0 : select ? cp_bits_select(&bits, rows[i]) : cp_bits_rank(&bits, rows[i]);
    }
    Py_END_ALLOW_THREADS
    return bad ? PyErr_Format(PyExc_ValueError, "rows and picks must lie within the bits") : Py_NewRef(Py_None);
}

/* bits_select(words, ranks, rows): replace numbers of picks by rows, in place */
static PyObject *bits_select(PyObject *Py_UNUSED(self), PyObject *args)
{
    return bits_map(args, 1);
}

/* bits_rank(words, ranks, rows): replace rows by the number of picks before them, in place */
static PyObject *bits_rank(PyObject *Py_UNUSED(self), PyObject *args)
{
    return bits_map(args, 0);
}

PyMethodDef cp_row_mask_methods[] = {
    {"bits_rank", bits_rank, METH_VARARGS, "Count the picks before rows."},
    {"bits_select", bits_select, METH_VARARGS, "Return the rows of picks."},
    {"reader_pick", reader_pick, METH_VARARGS, "Select rows of the columns."},
    {NULL, NULL, 0, NULL},
};
