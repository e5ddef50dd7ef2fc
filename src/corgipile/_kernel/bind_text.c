/* Binds the SVMlight parser, the row scanner of text, and the nesting depth of JSON. */
#include "bind.h"
#include "formats/lines.h"
#include "formats/nesting.h"
#include "formats/svmlight.h"

/* Return the smallest number of elements of two arrays, of those that are not None. */
static int64_t smallest(const cp_array *a, const cp_array *b)
{
    int64_t least = a->view.obj && a->count < INT32_MAX ? a->count : INT32_MAX;
    return b->view.obj && b->count < least ? b->count : least;
}

/* svmlight_parse(text, labels, *, final=True, base=0, starts=None, ends=None, indices=None, values=None) */
static PyObject *svmlight_parse(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "final", "base", "starts", "ends", "indices", "values", NULL};
    CP_ARRAY(text, "text", 1);
    CP_ARRAY(labels, "labels", 8, CP_WRITE, 1);
    CP_ARRAY(starts, "starts", 8, CP_WRITE, 1);
    CP_ARRAY(ends, "ends", 4, CP_WRITE, 1);
    CP_ARRAY(indices, "indices", 4, CP_WRITE, 1);
    CP_ARRAY(values, "values", 4, CP_WRITE, 1);
    int final = 1, base = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O&|$piO&O&O&O&", words, CP_HOLD(text), CP_HOLD(labels), &final,
                                     &base, CP_HOLD(starts), CP_HOLD(ends), CP_HOLD(indices), CP_HOLD(values)))
        return NULL;
    if (!labels.view.obj || !indices.view.obj != !values.view.obj)
        return PyErr_Format(PyExc_TypeError, "labels must not be None, and indices and values must come together");
    cp_svm s = {.starts = starts.at, .labels = labels.at, .ends = ends.at, .indices = indices.at, .values = values.at,
                .base = base, .entries_max = smallest(&indices, &values)};
    s.rows_max = smallest(&labels, &starts);
    s.rows_max = ends.view.obj && ends.count < s.rows_max ? ends.count : s.rows_max;
    Py_BEGIN_ALLOW_THREADS
    cp_svm_parse(&s, text.at, text.bytes, final);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("LLLLLLLiLL", (long long)s.consumed, (long long)s.rows, (long long)s.entries,
                         (long long)s.lines, (long long)s.largest, (long long)s.zero_line, (long long)s.zero_column,
                         s.code, (long long)s.line, (long long)s.column);
}

static PyObject *lines_scan(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(text, "text", 1);
    CP_ARRAY(starts, "starts", 8, CP_WRITE);
    int final, mark, quote;
    long long fields;
    if (!PyArg_ParseTuple(args, "O&piiLO&", CP_HOLD(text), &final, &mark, &quote, &fields, CP_HOLD(starts)))
        return NULL;
    cp_lines s = {.mark = (char)mark, .quote = (char)quote, .rows_max = starts.count, .starts = starts.at,
                  .fields = fields};
    Py_BEGIN_ALLOW_THREADS
    cp_lines_scan(&s, text.at, text.bytes, final);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("LLLiLL", (long long)s.consumed, (long long)s.rows, (long long)s.fields, s.code,
                         (long long)s.at, (long long)s.got);
}

static PyObject *json_depth(PyObject *Py_UNUSED(self), PyObject *source)
{
    CP_ARRAY(text, "text", 1);
    int64_t depth;
    if (!cp_hold(source, &text))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    depth = cp_nesting(text.at, text.bytes);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong(depth);
}

PyMethodDef cp_text_methods[] = {
    {"json_depth", json_depth, METH_O, "Return the nesting depth of brackets."},
    {"lines_scan", lines_scan, METH_VARARGS, "Find the rows of text."},
    {"svmlight_parse", CP_BY_NAME(svmlight_parse), "Parse SVMlight text into arrays."},
    {NULL, NULL, 0, NULL},
};
