/* Linear models by dual coordinate descent: kernel/dual/dual.h. */
#include "bind.h"
#include "dual/dual.h"

#define DUAL "corgipile.dual"

typedef struct {
    cp_dual *state;
    void *memory;
    int busy; /* in a call that has let go of the GIL */
} dual_object;

/* What a call works on, and the buffers that keep it. */
typedef struct {
    cp_rows rows;
    const int64_t *number;
    double *a;
    Py_buffer view[8];
    int held;
} call_object;

static void dual_destroy(PyObject *capsule)
{
    dual_object *m = PyCapsule_GetPointer(capsule, DUAL);
    free(m->memory);
    free(m);
}

static dual_object *dual_take(PyObject *capsule)
{
    dual_object *m = PyCapsule_GetPointer(capsule, DUAL);
    if (m && m->busy)
        return PyErr_SetString(PyExc_RuntimeError, "another thread is using this model"), NULL;
    return m;
}

static PyObject *dual_make(const cp_dual_shape *shape)
{
    dual_object *m = calloc(1, sizeof *m);
    if (!m || !(m->memory = calloc(1, cp_dual_size(shape) + CP_LINE))) {
        free(m);
        return PyErr_NoMemory();
    }
    m->state = (cp_dual *)(((uintptr_t)m->memory + CP_LINE - 1) / CP_LINE * CP_LINE);
    cp_dual_init(m->state, shape);
    PyObject *capsule = PyCapsule_New(m, DUAL, dual_destroy);
    if (!capsule) {
        free(m->memory);
        free(m);
    }
    return capsule;
}

/* dual_new(loss, classes, *, ...) */
static PyObject *dual_new(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"", "", "number_bytes", "sparse", "features", "outputs", "intercept", "bound", "isa", NULL};
    cp_dual_shape shape = {0};
    long long features, outputs;
    int loss;
    PyObject *classes, *capsule = NULL;
    Py_buffer view;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "iO$ipLLpdi", names, &loss, &classes, &shape.bytes, &shape.sparse,
                                     &features, &outputs, &shape.intercept, &shape.bound, &shape.isa))
        return NULL;
    if (loss < 0 || loss >= CP_LOSS_COUNT || !cp_dual_has((enum cp_loss)loss) || (shape.bytes != 4 && shape.bytes != 8))
        return PyErr_Format(PyExc_ValueError, "loss %d has no dual, or reals have not 4 or 8 bytes", loss);
    shape.loss = (enum cp_loss)loss;
    if (features < 1 || features > INT32_MAX || outputs < 1 || outputs > INT32_MAX || features * outputs > 1ll << 40
        || (!cp_loss_per_class(shape.loss) && outputs != 1) || !(shape.bound > 0) || shape.bound - shape.bound != 0)
        return PyErr_Format(PyExc_ValueError, "%lld features, %lld outputs or the bound are out of range", features, outputs);
    shape.features = features;
    shape.outputs = outputs;
    if (cp_buffer(classes, &view, sizeof(double), 0, "classes") < 0)
        return NULL;
    shape.classes = view.buf;
    if (view.len / (Py_ssize_t)sizeof(double) != (cp_loss_per_class(shape.loss) ? outputs : 2))
        PyErr_Format(PyExc_ValueError, "%zd class values are not as many as are needed", view.len / (Py_ssize_t)sizeof(double));
    else
        capsule = dual_make(&shape);
    PyBuffer_Release(&view);
    return capsule;
}

static Py_buffer *call_hold(call_object *c, PyObject *object, Py_ssize_t item, int writable, const char *what)
{
    return cp_buffer(object, &c->view[c->held], item, writable, what) < 0 ? NULL : &c->view[c->held++];
}

static void call_release(call_object *c)
{
    while (c->held > 0)
        PyBuffer_Release(&c->view[--c->held]);
}

/* Dense rows are an array, sparse ones a tuple of index addresses, value addresses and lengths. */
static int call_rows(call_object *c, const cp_dual *s, PyObject *rows)
{
    Py_buffer *part[3];
    if (s->sparse != PyTuple_Check(rows))
        return PyErr_SetString(PyExc_ValueError, s->sparse ? "the model was made for sparse rows"
                                                           : "the model was made for dense rows"), -1;
    if (!s->sparse) {
        if (!(part[0] = call_hold(c, rows, s->bytes, 0, "features")))
            return -1;
        c->rows.x = part[0]->buf;
        c->rows.stride = s->features * s->bytes;
        c->rows.slots = part[0]->len / c->rows.stride;
        return 0;
    }
    for (int i = 0; i < 3; i++)
        if (PyTuple_Size(rows) < 3 || !(part[i] = call_hold(c, PyTuple_GetItem(rows, i), 8, 0, "sparse rows"))
            || part[i]->len != part[0]->len)
            return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "sparse rows need addresses and lengths"), -1);
    c->rows.indices = part[0]->buf;
    c->rows.values = part[1]->buf;
    c->rows.lengths = part[2]->buf;
    c->rows.slots = part[0]->len / 8;
    return 0;
}

static int call_labels(call_object *c, PyObject *y, int type)
{
    if (type < 0 || type >= CP_TYPES)
        return PyErr_Format(PyExc_ValueError, "labels have no type %d", type), -1;
    Py_buffer *view = call_hold(c, y, cp_type_bytes[type], 0, "labels");
    if (!view)
        return -1;
    c->rows.y = view->buf;
    c->rows.y_type = (enum cp_type)type;
    c->rows.slots = view->len / cp_type_bytes[type] < c->rows.slots ? view->len / cp_type_bytes[type] : c->rows.slots;
    return 0;
}

/* Slots, the numbers of their rows, and the dual variables; None: rows are judged only. */
static int call_visit(call_object *c, const cp_dual *s, PyObject *visit, PyObject *number, PyObject *a)
{
    Py_buffer *slots = call_hold(c, visit, sizeof(int32_t), 0, "visit"), *rows, *view;
    if (!slots)
        return -1;
    c->rows.visit = slots->buf;
    c->rows.m = slots->len / (Py_ssize_t)sizeof(int32_t);
    if (a == Py_None)
        return 0;
    if (!(rows = call_hold(c, number, sizeof(int64_t), 0, "row numbers")) || !(view = call_hold(c, a, 8, 1, "dual variables")))
        return -1;
    c->number = rows->buf;
    c->a = view->buf;
    uint64_t top = 0;
    for (int64_t i = 0; i < c->rows.m && i < rows->len / 8; i++)
        top = (uint64_t)c->number[i] > top ? (uint64_t)c->number[i] : top;
    if (rows->len / 8 < c->rows.m || (c->rows.m && top >= (uint64_t)(view->len / 8 / s->outputs)))
        return PyErr_SetString(PyExc_ValueError, "row numbers are too few, or beyond the dual variables"), -1;
    return 0;
}

/* dual_learn(model, rows, labels, y_type, visit, number, a) -> status, done */
static PyObject *dual_learn(PyObject *self, PyObject *args)
{
    PyObject *capsule, *rows, *y, *visit, *number, *a, *result = NULL;
    call_object c = {0};
    dual_object *m;
    int type, status;
    int64_t done = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOiOOO", &capsule, &rows, &y, &type, &visit, &number, &a) || !(m = dual_take(capsule)))
        return NULL;
    if (call_rows(&c, m->state, rows) == 0 && call_labels(&c, y, type) == 0
        && call_visit(&c, m->state, visit, number, a) == 0) {
        m->busy = 1;
        Py_BEGIN_ALLOW_THREADS
        status = cp_dual_learn(m->state, &c.rows, c.number, c.a, &done);
        Py_END_ALLOW_THREADS
        m->busy = 0;
        result = Py_BuildValue("iL", status, (long long)done);
    }
    call_release(&c);
    return result;
}

/* dual_again(model, rows, labels, y_type, visit, number, a, passes, still, key) */
static PyObject *dual_again(PyObject *self, PyObject *args)
{
    PyObject *capsule, *rows, *y, *visit, *number, *a, *result = NULL;
    call_object c = {0};
    dual_object *m;
    int type;
    long long passes;
    unsigned long long key;
    double still;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOiOOOLdK", &capsule, &rows, &y, &type, &visit, &number, &a, &passes, &still, &key)
        || !(m = dual_take(capsule)))
        return NULL;
    if (a == Py_None)
        return PyErr_SetString(PyExc_ValueError, "dual variables are needed"), NULL;
    if (call_rows(&c, m->state, rows) == 0 && call_labels(&c, y, type) == 0
        && call_visit(&c, m->state, visit, number, a) == 0) {
        int32_t *places = malloc((size_t)c.rows.m * sizeof *places + 1);
        if (places) {
            m->busy = 1;
            Py_BEGIN_ALLOW_THREADS
            cp_dual_again(m->state, &c.rows, c.number, c.a, places, passes, still, key);
            Py_END_ALLOW_THREADS
            m->busy = 0;
            result = Py_NewRef(Py_None);
        } else
            PyErr_NoMemory();
        free(places);
    }
    call_release(&c);
    return result;
}

static PyObject *dual_begin(PyObject *self, PyObject *capsule)
{
    dual_object *m = dual_take(capsule);
    (void)self;
    if (!m)
        return NULL;
    cp_dual_begin(m->state);
    Py_RETURN_NONE;
}

/* dual_figures(model) -> rows, sum of their losses, correct ones, |w|^2 */
static PyObject *dual_figures(PyObject *self, PyObject *capsule)
{
    dual_object *m = dual_take(capsule);
    (void)self;
    return m ? Py_BuildValue("LdLd", (long long)m->state->rows, m->state->sum, (long long)m->state->correct,
                             cp_dual_norm(m->state)) : NULL;
}

/* dual_value(model, a) -> what these dual variables add to the dual function */
static PyObject *dual_value(PyObject *self, PyObject *args)
{
    PyObject *capsule, *a;
    dual_object *m;
    Py_buffer view;
    double sum;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &a) || !(m = dual_take(capsule))
        || cp_buffer(a, &view, 8, 0, "dual variables") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    sum = cp_dual_value(m->state, view.buf, view.len / 8);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyFloat_FromDouble(sum);
}

/* dual_get(model, weights, biases): copy them out, as doubles */
static PyObject *dual_get(PyObject *self, PyObject *args)
{
    PyObject *capsule, *coef, *bias, *result = NULL;
    call_object c = {0};
    Py_buffer *w, *b;
    dual_object *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &coef, &bias) || !(m = dual_take(capsule)))
        return NULL;
    const cp_dual *s = m->state;
    if ((w = call_hold(&c, coef, 8, 1, "weights")) && (b = call_hold(&c, bias, 8, 1, "biases"))) {
        if (w->len == s->features * s->outputs * 8 && b->len == s->outputs * 8) {
            memcpy(w->buf, CP_AT(s, const double, w), (size_t)w->len);
            memcpy(b->buf, CP_AT(s, const double, bias), (size_t)b->len);
            result = Py_NewRef(Py_None);
        } else
            PyErr_Format(PyExc_ValueError, "weights must be [%lld, %lld] and biases [%lld]", (long long)s->outputs,
                         (long long)s->features, (long long)s->outputs);
    }
    call_release(&c);
    return result;
}

PyMethodDef cp_dual_methods[] = {
    {"dual_again", dual_again, METH_VARARGS, "Visit rows that are in memory again."},
    {"dual_begin", dual_begin, METH_O, "Begin a pass."},
    {"dual_figures", dual_figures, METH_O, "Return what a pass added up, and the squared length of the weights."},
    {"dual_get", dual_get, METH_VARARGS, "Copy weights out."},
    {"dual_learn", dual_learn, METH_VARARGS, "Visit rows in place."},
    {"dual_new", CP_BY_NAME(dual_new), "Make a model."},
    {"dual_value", dual_value, METH_VARARGS, "Sum what dual variables add to the dual function."},
    {NULL, NULL, 0, NULL},
};
