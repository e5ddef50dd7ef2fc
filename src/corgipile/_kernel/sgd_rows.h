/* Rows that Python passes to the SGD kernel: the buffers that a call holds. */
#pragma once

#include "bind.h"
#include "sgd/sgd.h"

enum { ROWS_VIEWS = 8 }; /* most arrays of a call */

typedef struct {
    cp_rows rows;
    Py_buffer view[ROWS_VIEWS];
    int held;
} rows_object;

static int rows_hold(rows_object *r, PyObject *object, Py_ssize_t item, int writable, const char *what)
{
    if (r->held == ROWS_VIEWS)
        return PyErr_SetString(PyExc_SystemError, "a call must hold at most 8 arrays"), -1;
    if (cp_buffer(object, &r->view[r->held], item, writable, what) < 0)
        return -1;
    return r->held++;
}

static void rows_release(rows_object *r)
{
    while (r->held > 0)
        PyBuffer_Release(&r->view[--r->held]);
}

/* Declares rows that are released at the end of their scope. */
#define ROWS(r) rows_object r __attribute__((cleanup(rows_release))) = {.held = 0}

static int rows_visit(rows_object *r, PyObject *visit)
{
    int at = rows_hold(r, visit, sizeof(int32_t), 0, "visit");
    if (at < 0)
        return -1;
    r->rows.visit = r->view[at].buf;
    r->rows.m = r->view[at].len / (Py_ssize_t)sizeof(int32_t);
    return 0;
}

/* Take numbers of `type`, one per slot. */
static int rows_numbers(rows_object *r, PyObject *numbers, int type, const char *what, const void **to)
{
    if (type < 0 || type >= CP_TYPES)
        return PyErr_Format(PyExc_ValueError, "type of %s must be one of cp_type, got %d", what, type), -1;
    int at = rows_hold(r, numbers, cp_type_bytes[type], 0, what);
    if (at < 0)
        return -1;
    *to = r->view[at].buf;
    if (r->view[at].len / cp_type_bytes[type] < r->rows.slots)
        r->rows.slots = r->view[at].len / cp_type_bytes[type];
    return 0;
}

/* Take the features: an array, or (index addresses, value addresses, lengths). */
static int rows_features(rows_object *r, PyObject *features, int bytes, int sparse, int64_t width)
{
    static const char *const names[] = {"index addresses", "value addresses", "lengths"};
    const int parts = sparse ? 3 : 1, first = r->held;
    if (PyTuple_Check(features) != sparse || (sparse && PyTuple_Size(features) < parts))
        return PyErr_SetString(PyExc_ValueError,
                               sparse ? "the model needs sparse rows" : "the model needs dense rows"), -1;
    for (int i = 0; i < parts; i++)
        if (rows_hold(r, sparse ? PyTuple_GetItem(features, i) : features, sparse ? 8 : bytes, 0,
                      sparse ? names[i] : "features") < 0)
            return -1;
    const Py_buffer *v = &r->view[first];
    if (!sparse) {
        r->rows.x = v->buf;
        r->rows.stride = width * bytes;
        r->rows.slots = v->len / r->rows.stride;
        if (v->len % r->rows.stride)
            return PyErr_Format(PyExc_ValueError, "features must be whole rows, got %zd bytes for rows of %lld", v->len,
                                (long long)r->rows.stride), -1;
        return 0;
    }
    if (v[0].len != v[1].len || v[0].len != v[2].len)
        return PyErr_SetString(PyExc_ValueError, "addresses and lengths must have the same length"), -1;
    r->rows.indices = v[0].buf;
    r->rows.values = v[1].buf;
    r->rows.lengths = v[2].buf;
    r->rows.slots = v[0].len / 8;
    return 0;
}

/* Labels, sample weights (None: all 1) and visits of a call, as Python passes them. */
typedef struct {
    PyObject *features, *labels, *weights, *visit;
    int label_type, weight_type;
} rows_arguments;

static inline int rows_take(rows_object *r, const rows_arguments *a, int bytes, int sparse, int64_t width)
{
    if (rows_features(r, a->features, bytes, sparse, width) < 0 ||
        rows_numbers(r, a->labels, a->label_type, "labels", &r->rows.y) < 0)
        return -1;
    r->rows.y_type = (enum cp_type)a->label_type;
    if (a->weights != Py_None) {
        if (rows_numbers(r, a->weights, a->weight_type, "weights", &r->rows.weight) < 0)
            return -1;
        r->rows.weight_type = (enum cp_type)a->weight_type;
    }
    return rows_visit(r, a->visit);
}
