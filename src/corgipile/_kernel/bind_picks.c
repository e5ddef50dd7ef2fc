/* Rows picked by one bit a row: kernel/io/picks.h. */
#define _GNU_SOURCE
#include "objects.h"

/* Whether ranks count the bits, and all rows picked lie in the columns. */
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

/* reader_pick(reader, words, ranks): the rows asked for are picks among those of the columns, which were added before. */
static PyObject *reader_pick(PyObject *self, PyObject *args)
{
    PyObject *capsule, *words, *ranks;
    reader_object *r;
    Py_buffer given[2];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &words, &ranks) || !(r = PyCapsule_GetPointer(capsule, READER)) ||
        cp_buffer(words, &given[0], 8, 0, "words") < 0)
        return NULL;
    if (cp_buffer(ranks, &given[1], 8, 0, "ranks") < 0) {
        PyBuffer_Release(&given[0]);
        return NULL;
    }
    cp_bits bits = {given[0].buf, given[1].buf, given[1].len / 8 - 1};
    if (r->picks[0].buf || given[0].len != bits.blocks * (CP_BITS_BLOCK / 8) || !bits_ok(&bits, r)) {
        PyBuffer_Release(&given[0]);
        PyBuffer_Release(&given[1]);
        return PyErr_Format(PyExc_ValueError, "words and ranks must pick %lld rows of the columns, once",
                            (long long)r->rows);
    }
    memcpy(r->picks, given, sizeof given);
    cp_reader_pick(&r->reader, bits);
    Py_RETURN_NONE;
}

/* Replace numbers of picks by their rows, or rows by the picks before them. */
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
    int whole = got == 3;
    while (got-- > 0)
        PyBuffer_Release(&v[got]);
    if (bad)
        PyErr_SetString(PyExc_ValueError, "a row or a pick lies outside the bits");
    if (!whole || bad)
        return NULL;
    Py_RETURN_NONE;
}

/* bits_select(words, ranks, rows): numbers of picks become rows, in place. */
static PyObject *bits_select(PyObject *self, PyObject *args)
{
    (void)self;
    return bits_map(args, 1);
}

/* bits_rank(words, ranks, rows): rows become how many picks lie before them, in place. */
static PyObject *bits_rank(PyObject *self, PyObject *args)
{
    (void)self;
    return bits_map(args, 0);
}

PyMethodDef cp_picks_methods[] = {
    {"bits_rank", bits_rank, METH_VARARGS, "Count the picks before rows."},
    {"bits_select", bits_select, METH_VARARGS, "Find the rows of picks."},
    {"reader_pick", reader_pick, METH_VARARGS, "Let rows be picks among those of the columns."},
    {NULL, NULL, 0, NULL},
};
