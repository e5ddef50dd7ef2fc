/* Binds the parser of columns of delimited text: kernel/formats/fields.h. */
#include "bind.h"
#include "formats/fields.h"
#include <stdlib.h>

typedef struct {
    Py_buffer to, known;
} held;

/* Return whether the rows of a field, in order or in slots, fit its memory. */
static int field_fits(const cp_fields *s, const cp_field *f, const held *h, long long at, int64_t slots)
{
    int from = (int)f->to.from, to = (int)f->to.to;
    if (from < 0 || from > CP_FIELD_BOOL || to < 0 || to >= CP_TYPES || at < 0)
        return 0;
    if (from != to && (from == CP_FIELD_BOOL ? to != CP_U8 : to != CP_F32 && to != CP_F64))
        return 0;
    if (f->to.stride < cp_type_bytes[to] || (f->known && h->known.len < (s->rows + 7) / 8))
        return 0;
    return slots == 0
           || (slots <= h->to.len / f->to.stride && at + (slots - 1) * f->to.stride + cp_type_bytes[to] <= h->to.len);
}

/* Take a field: (array, at, stride, type in the text, type in memory, null mask or None), or None. */
static int field_get(const cp_fields *s, cp_field *f, held *h, PyObject *wanted, int64_t slots)
{
    PyObject *to, *known;
    long long at, stride;
    int from_type, to_type;
    if (wanted == Py_None)
        return 0;
    if (!PyTuple_Check(wanted))
        return PyErr_SetString(PyExc_TypeError, "fields must be None or tuples"), -1;
    if (!PyArg_ParseTuple(wanted, "OLLiiO", &to, &at, &stride, &from_type, &to_type, &known) ||
        cp_buffer(to, &h->to, 0, 1, "to") < 0)
        return -1;
    if (known != Py_None && cp_buffer(known, &h->known, 1, 1, "known") < 0)
        return -1;
    f->wanted = 1;
    f->to = (cp_target){(char *)h->to.buf + at, stride, 1, (enum cp_type)from_type, (enum cp_type)to_type, 0};
    f->known = h->known.buf;
    if (field_fits(s, f, h, at, slots))
        return 0;
    PyErr_SetString(PyExc_ValueError, "rows must fit `to` and `known`, and types must match");
    return -1;
}

/* Parse rows; returns a list with the nulls per field, -1 for fields with an unsure value, or None if the rows do not
 * match. */
static PyObject *fields_run(cp_fields *s, const cp_array *text)
{
    int read;
    Py_BEGIN_ALLOW_THREADS
    read = cp_fields_read(s, text->at, text->bytes);
    Py_END_ALLOW_THREADS
    if (!read)
        Py_RETURN_NONE;
    PyObject *counts = PyList_New((Py_ssize_t)s->count);
    for (int64_t i = 0; counts && i < s->count; i++) {
        PyObject *nulls = PyLong_FromLongLong(s->fields[i].unsure ? -1 : s->fields[i].nulls);
        if (!nulls || PyList_SetItem(counts, (Py_ssize_t)i, nulls) < 0)
            Py_CLEAR(counts);
    }
    return counts;
}

/* Return the number of slots needed; -1 if an entry is below -1. */
static int64_t slots_of(const int32_t *into, int64_t count)
{
    int64_t slots = 0;
    for (int64_t i = 0; i < count; i++) {
        if (into[i] < -1)
            return -1;
        slots = into[i] >= slots ? (int64_t)into[i] + 1 : slots;
    }
    return slots;
}

/* fields_read(text, rows, mark, into, fields): `into` is None if rows go in order. */
static PyObject *fields_read(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(text, "text", 1);
    CP_ARRAY(into, "into", 4, CP_READ, 1);
    PyObject *wanted, *result = NULL;
    long long rows;
    int mark;
    if (!PyArg_ParseTuple(args, "O&LiO&O!", CP_HOLD(text), &rows, &mark, CP_HOLD(into), &PyList_Type, &wanted))
        return NULL;
    cp_fields s = {.mark = (char)mark, .rows = rows, .count = (int64_t)PyList_Size(wanted), .into = into.at};
    int64_t slots = !into.view.obj ? rows : into.count == rows ? slots_of(s.into, rows) : -1;
    if (rows < 0 || slots < 0 || s.count == 0)
        return PyErr_Format(PyExc_ValueError, "fields must not be empty, and each row needs a slot");
    held *holds = calloc((size_t)s.count + 1, sizeof *holds);
    s.fields = calloc((size_t)s.count + 1, sizeof *s.fields);
    int taken = holds && s.fields;
    if (!taken)
        PyErr_NoMemory();
    for (int64_t i = 0; taken && i < s.count; i++)
        taken = field_get(&s, &s.fields[i], &holds[i], PyList_GetItem(wanted, (Py_ssize_t)i), slots) == 0;
    if (taken)
        result = fields_run(&s, &text);
    for (int64_t i = 0; holds && i < s.count; i++) {
        PyBuffer_Release(&holds[i].to);
        PyBuffer_Release(&holds[i].known);
    }
    free(s.fields);
    free(holds);
    return result;
}

PyMethodDef cp_fields_methods[] = {
    {"fields_read", fields_read, METH_VARARGS, "Parse columns of delimited text."},
    {NULL, NULL, 0, NULL},
};
