/* Binds the SVMlight parser, the row scanner of text, and the nesting depth of JSON. */
#include "bind.h"
#include "formats/lines.h"
#include "formats/nesting.h"
#include "formats/svmlight.h"

enum { STARTS, LABELS, ENDS, INDICES, VALUES, ARRAYS };

static const char *const names[ARRAYS] = {"starts", "labels", "ends", "indices", "values"};
static const Py_ssize_t sizes[ARRAYS] = {8, 8, 4, 4, 4};

/* Get the arrays that are not None; `room` gets the smallest number of elements of row arrays (0) and of entry arrays
 * (1). */
static int get_arrays(PyObject **objects, Py_buffer *views, int64_t *room)
{
    room[0] = room[1] = INT32_MAX;
    for (int i = 0; i < ARRAYS; i++) {
        if (objects[i] == Py_None)
            continue;
        if (cp_buffer(objects[i], &views[i], sizes[i], 1, names[i]) < 0)
            return -1;
        int64_t elements = views[i].len / sizes[i];
        int64_t *least = &room[i >= INDICES];
        *least = elements < *least ? elements : *least;
    }
    if (objects[LABELS] == Py_None || (objects[INDICES] == Py_None) != (objects[VALUES] == Py_None)) {
        PyErr_SetString(PyExc_TypeError, "labels must not be None, and indices and values must come together");
        return -1;
    }
    return 0;
}

/* svmlight_parse(text, labels, *, final=True, base=0, starts=None, ends=None, indices=None, values=None) */
static PyObject *svmlight_parse(PyObject *self, PyObject *args, PyObject *named)
{
    static char *words[] = {"", "", "final", "base", "starts", "ends", "indices", "values", NULL};
    PyObject *source, *objects[ARRAYS], *result = NULL;
    Py_buffer text = {0}, views[ARRAYS] = {{0}};
    int64_t room[2];
    int final = 1, base = 0;
    cp_svm s = {0};
    (void)self;
    for (int i = 0; i < ARRAYS; i++)
        objects[i] = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO|$piOOOO", words, &source, &objects[LABELS], &final, &base,
                                     &objects[STARTS], &objects[ENDS], &objects[INDICES], &objects[VALUES]))
        return NULL;
    if (cp_buffer(source, &text, 1, 0, "text") < 0)
        return NULL;
    if (get_arrays(objects, views, room) == 0) {
        s.rows_max = room[0];
        s.entries_max = room[1];
        s.starts = views[STARTS].buf;
        s.labels = views[LABELS].buf;
        s.ends = views[ENDS].buf;
        s.indices = views[INDICES].buf;
        s.values = views[VALUES].buf;
        s.base = base;
        Py_BEGIN_ALLOW_THREADS
        cp_svm_parse(&s, text.buf, text.len, final);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("LLLLLLLiLL", (long long)s.consumed, (long long)s.rows, (long long)s.entries,
                               (long long)s.lines, (long long)s.largest, (long long)s.zero_line,
                               (long long)s.zero_column, s.code, (long long)s.line, (long long)s.column);
    }
    for (int i = 0; i < ARRAYS; i++)
        if (views[i].obj)
            PyBuffer_Release(&views[i]);
    PyBuffer_Release(&text);
    return result;
}

static PyObject *lines_scan(PyObject *self, PyObject *args)
{
    PyObject *source, *places, *result = NULL;
    Py_buffer text = {0}, starts = {0};
    int final, mark, quote;
    long long fields;
    cp_lines s = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OpiiLO", &source, &final, &mark, &quote, &fields, &places))
        return NULL;
    if (cp_buffer(source, &text, 1, 0, "text") < 0)
        return NULL;
    if (cp_buffer(places, &starts, 8, 1, "starts") == 0) {
        s.mark = (char)mark;
        s.quote = (char)quote;
        s.rows_max = starts.len / 8;
        s.starts = starts.buf;
        s.fields = fields;
        Py_BEGIN_ALLOW_THREADS
        cp_lines_scan(&s, text.buf, text.len, final);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("LLLiLL", (long long)s.consumed, (long long)s.rows, (long long)s.fields, s.code,
                               (long long)s.at, (long long)s.got);
        PyBuffer_Release(&starts);
    }
    PyBuffer_Release(&text);
    return result;
}

static PyObject *json_depth(PyObject *self, PyObject *source)
{
    Py_buffer text = {0};
    int64_t depth;
    (void)self;
    if (cp_buffer(source, &text, 1, 0, "text") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    depth = cp_nesting(text.buf, text.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromLongLong(depth);
}

PyMethodDef cp_text_methods[] = {
    {"json_depth", json_depth, METH_O, "Return the nesting depth of brackets."},
    {"lines_scan", lines_scan, METH_VARARGS, "Find the rows of text."},
    {"svmlight_parse", CP_BY_NAME(svmlight_parse), "Parse SVMlight text into arrays."},
    {NULL, NULL, 0, NULL},
};
