/* Binds the expansion of sparse rows: kernel/io/expand.h. */
#include "bind.h"
#include "io/expand.h"

static int is_integer(int type) { return type >= 0 && type < CP_F32; }

/* expand(out, indices, index_ends, values, value_ends, first, count, *, width, index_type, value_type, wide) -> first
 * invalid row, or -1 */
static PyObject *expand(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "", "", "", "", "width", "index_type", "value_type", "wide", NULL};
    CP_ARRAY(out, "out", 0, CP_WRITE);
    CP_ARRAY(indices, "indices");
    CP_ARRAY(index_ends, "index_ends", 8);
    CP_ARRAY(values, "values");
    CP_ARRAY(value_ends, "value_ends", 8);
    long long first, count, width;
    int index_type, value_type, wide, fits = 0;
    int64_t bad = -1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O&O&O&O&LL$Liip", words, CP_HOLD(out), CP_HOLD(indices),
                                     CP_HOLD(index_ends), CP_HOLD(values), CP_HOLD(value_ends), &first, &count, &width,
                                     &index_type, &value_type, &wide))
        return NULL;
    if (is_integer(index_type) && value_type >= 0 && value_type < CP_TYPES) {
        cp_sparse_rows s = {indices.at, values.at, index_ends.at, value_ends.at, index_ends.count - 1,
                            indices.bytes / cp_type_bytes[index_type], values.bytes / cp_type_bytes[value_type],
                            (enum cp_type)index_type, (enum cp_type)value_type};
        fits = value_ends.count == index_ends.count && s.rows >= 0 && first >= 0 && count >= 0 && first <= s.rows &&
               count <= s.rows - first && width > 0 && width <= (int64_t)1 << 40 &&
               (!count || width * (wide ? 8 : 4) <= out.bytes / count);
        Py_BEGIN_ALLOW_THREADS
        if (fits)
            bad = cp_expand(out.at, width, wide, &s, first, count);
        Py_END_ALLOW_THREADS
    }
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "rows must lie within the arrays and fit `out`, and types must be known");
    return PyLong_FromLongLong(bad);
}

PyMethodDef cp_expand_methods[] = {
    {"expand", CP_BY_NAME(expand), "Expand sparse rows to dense ones."},
    {NULL, NULL, 0, NULL},
};
