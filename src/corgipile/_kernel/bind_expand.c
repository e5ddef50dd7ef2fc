/* Binds the expansion of sparse rows: kernel/io/expand.h. */
#include "bind.h"
#include "io/expand.h"

static int is_integer(int type) { return type >= 0 && type < CP_F32; }

/* Return whether the arrays match their sizes and `out` fits the rows. */
static int expand_ok(const cp_sparse_rows *s, const Py_buffer *out, const Py_buffer *v, int64_t width, int wide,
                     int64_t first, int64_t count)
{
    int64_t bytes = wide ? 8 : 4;
    return v[3].len == v[1].len && s->rows >= 0 && first >= 0 && count >= 0 && first <= s->rows &&
           count <= s->rows - first && width > 0 && width <= (int64_t)1 << 40 &&
           (!count || width * bytes <= out->len / count);
}

/* expand(out, indices, index_ends, values, value_ends, first, count, *, width, index_type, value_type, wide) -> first
 * invalid row, or -1 */
static PyObject *expand(PyObject *self, PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "", "", "", "", "", "width", "index_type", "value_type", "wide", NULL};
    static const char *const names[5] = {"indices", "index_ends", "values", "value_ends", "out"};
    static const Py_ssize_t sizes[5] = {0, 8, 0, 8, 0};
    PyObject *arrays[5];
    Py_buffer v[5];
    long long first, count, width;
    int index_type, value_type, wide, got = 0, fits = 0;
    int64_t bad = -1;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOOOOLL$Liip", words, &arrays[4], &arrays[0], &arrays[1], &arrays[2],
                                     &arrays[3], &first, &count, &width, &index_type, &value_type, &wide))
        return NULL;
    for (; got < 5; got++)
        if (cp_buffer(arrays[got], &v[got], sizes[got], got == 4, names[got]) < 0)
            break;
    if (got == 5 && is_integer(index_type) && value_type >= 0 && value_type < CP_TYPES) {
        cp_sparse_rows s = {v[0].buf, v[2].buf, v[1].buf, v[3].buf, v[1].len / 8 - 1,
                            v[0].len / cp_type_bytes[index_type], v[2].len / cp_type_bytes[value_type],
                            (enum cp_type)index_type, (enum cp_type)value_type};
        fits = expand_ok(&s, &v[4], v, width, wide, first, count);
        Py_BEGIN_ALLOW_THREADS
        if (fits)
            bad = cp_expand(v[4].buf, width, wide, &s, first, count);
        Py_END_ALLOW_THREADS
    }
    if (got == 5 && !fits)
        PyErr_SetString(PyExc_ValueError, "rows must lie within the arrays and fit `out`, and types must be known");
    while (got-- > 0)
        PyBuffer_Release(&v[got]);
    return fits ? PyLong_FromLongLong(bad) : NULL;
}

PyMethodDef cp_expand_methods[] = {
    {"expand", CP_BY_NAME(expand), "Expand sparse rows to dense ones."},
    {NULL, NULL, 0, NULL},
};
