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

static int rows_visit(rows_object *r, PyObject *visit)
{
    int at = rows_hold(r, visit, sizeof(int32_t), 0, "visit");
    if (at < 0)
        return -1;
    r->rows.visit = r->view[at].buf;
    r->rows.m = r->view[at].len / (Py_ssize_t)sizeof(int32_t);
    return 0;
}

/* Take labels of `type`, one per slot. */
static int rows_labels(rows_object *r, PyObject *y, int type)
{
    if (type < 0 || type >= CP_TYPES)
        return PyErr_Format(PyExc_ValueError, "type of labels must be one of cp_type, got %d", type), -1;
    int at = rows_hold(r, y, cp_type_bytes[type], 0, "labels");
    if (at < 0)
        return -1;
    r->rows.y = r->view[at].buf;
    r->rows.y_type = (enum cp_type)type;
    if (r->view[at].len / cp_type_bytes[type] < r->rows.slots)
        r->rows.slots = r->view[at].len / cp_type_bytes[type];
    return 0;
}

/* Take weights of `type`, one per slot; None: all 1. */
static int rows_weights(rows_object *r, PyObject *weights, int type)
{
    if (weights == Py_None)
        return 0;
    if (type < 0 || type >= CP_TYPES)
        return PyErr_Format(PyExc_ValueError, "type of weights must be one of cp_type, got %d", type), -1;
    int at = rows_hold(r, weights, cp_type_bytes[type], 0, "weights");
    if (at < 0)
        return -1;
    r->rows.weight = r->view[at].buf;
    r->rows.weight_type = (enum cp_type)type;
    if (r->view[at].len / cp_type_bytes[type] < r->rows.slots)
        r->rows.slots = r->view[at].len / cp_type_bytes[type];
    return 0;
}

static inline int rows_dense(rows_object *r, const cp_sgd *s, PyObject *x)
{
    int at = rows_hold(r, x, s->bytes, 0, "features");
    if (at < 0)
        return -1;
    if (s->sparse)
        return PyErr_SetString(PyExc_ValueError, "the model needs sparse rows"), -1;
    r->rows.x = r->view[at].buf;
    r->rows.stride = s->features * s->bytes;
    r->rows.slots = r->view[at].len / r->rows.stride;
    if (r->view[at].len % r->rows.stride)
        return PyErr_Format(PyExc_ValueError, "features must be whole rows, got %zd bytes for rows of %lld",
                            r->view[at].len, (long long)r->rows.stride), -1;
    return 0;
}

static inline int rows_sparse(rows_object *r, const cp_sgd *s, PyObject *indices, PyObject *values, PyObject *lengths)
{
    int i = rows_hold(r, indices, 8, 0, "index addresses"), v, l;
    if (i < 0 || (v = rows_hold(r, values, 8, 0, "value addresses")) < 0 ||
        (l = rows_hold(r, lengths, 8, 0, "lengths")) < 0)
        return -1;
    if (!s->sparse)
        return PyErr_SetString(PyExc_ValueError, "the model needs dense rows"), -1;
    if (r->view[i].len != r->view[v].len || r->view[i].len != r->view[l].len)
        return PyErr_SetString(PyExc_ValueError, "addresses and lengths must have the same length"), -1;
    r->rows.indices = r->view[i].buf;
    r->rows.values = r->view[v].buf;
    r->rows.lengths = r->view[l].buf;
    r->rows.slots = r->view[i].len / 8;
    return 0;
}
