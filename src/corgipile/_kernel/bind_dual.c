/* Binds linear models by dual coordinate descent: kernel/dual/dual.h. */
#include "bind.h"
#include "dual/dual.h"
#include "sgd_rows.h"

#define DUAL "corgipile.dual"

typedef struct {
    cp_dual *state;
    void *memory;
    int busy; /* in a call that has released the GIL */
} dual_object;

/* Arguments of a call. */
typedef struct {
    rows_object held;
    const int64_t *number;
    double *a;
} call_object;

static void dual_destroy(PyObject *capsule)
{
    dual_object *m = PyCapsule_GetPointer(capsule, DUAL);
    free(m->memory);
    free(m);
}

static dual_object *dual_of(PyObject *capsule)
{
    dual_object *m = PyCapsule_GetPointer(capsule, DUAL);
    if (m && m->busy)
        return PyErr_SetString(PyExc_RuntimeError, "another thread is using this model"), NULL;
    return m;
}

static PyObject *dual_create(const cp_dual_shape *shape)
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
    static char *names[] = {"", "", "number_bytes", "sparse", "features", "outputs", "intercept", "bound", "isa",
                            "weighted", "class_weight", NULL};
    cp_dual_shape shape = {0};
    long long features, outputs;
    int loss;
    PyObject *classes, *weights = Py_None, *capsule = NULL;
    rows_object held = {0};
    int first, weight = -1;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "iO$ipLLpdipO", names, &loss, &classes, &shape.bytes, &shape.sparse,
                                     &features, &outputs, &shape.intercept, &shape.bound, &shape.isa, &shape.weighted,
                                     &weights))
        return NULL;
    if (loss < 0 || loss >= CP_LOSS_COUNT || !cp_dual_has((enum cp_loss)loss) || (shape.bytes != 4 && shape.bytes != 8))
        return PyErr_Format(PyExc_ValueError, "loss %d must have a dual, and reals 4 or 8 bytes", loss);
    shape.loss = (enum cp_loss)loss;
    if (features < 1 || features > INT32_MAX || outputs < 1 || outputs > INT32_MAX || features * outputs > 1ll << 40
        || (!cp_loss_per_class(shape.loss) && outputs != 1) || !(shape.bound > 0) || shape.bound - shape.bound != 0)
        return PyErr_Format(PyExc_ValueError, "features %lld, outputs %lld or bound is out of range", features,
                            outputs);
    shape.features = features;
    shape.outputs = outputs;
    if ((first = rows_hold(&held, classes, sizeof(double), 0, "classes")) >= 0 &&
        (weights == Py_None || (weight = rows_hold(&held, weights, sizeof(double), 0, "weights of classes")) >= 0)) {
        const Py_ssize_t bytes = (Py_ssize_t)sizeof(double) * (cp_loss_per_class(shape.loss) ? (Py_ssize_t)outputs : 2);
        shape.classes = held.view[first].buf;
        shape.class_weight = weight < 0 ? NULL : held.view[weight].buf;
        if (held.view[first].len != bytes || (weight >= 0 && held.view[weight].len != bytes))
            PyErr_Format(PyExc_ValueError, "class values and their weights must be %zd each",
                         bytes / (Py_ssize_t)sizeof(double));
        else
            capsule = dual_create(&shape);
    }
    rows_release(&held);
    return capsule;
}

/* Take the rows of a call: an array if dense; index addresses, value addresses and lengths if sparse. */
static int call_rows(call_object *c, const cp_dual *s, PyObject *rows)
{
    rows_object *r = &c->held;
    int part[3];
    if (s->sparse != PyTuple_Check(rows))
        return PyErr_SetString(PyExc_ValueError, s->sparse ? "the model needs sparse rows"
                                                           : "the model needs dense rows"), -1;
    if (!s->sparse) {
        if ((part[0] = rows_hold(r, rows, s->bytes, 0, "features")) < 0)
            return -1;
        r->rows.x = r->view[part[0]].buf;
        r->rows.stride = s->features * s->bytes;
        r->rows.slots = r->view[part[0]].len / r->rows.stride;
        return 0;
    }
    for (int i = 0; i < 3; i++)
        if (PyTuple_Size(rows) < 3 || (part[i] = rows_hold(r, PyTuple_GetItem(rows, i), 8, 0, "sparse rows")) < 0
            || r->view[part[i]].len != r->view[part[0]].len)
            return PyErr_Occurred()
                       ? -1
                       : (PyErr_SetString(PyExc_ValueError,
                                          "sparse rows must be index addresses, value addresses and lengths"),
                          -1);
    r->rows.indices = r->view[part[0]].buf;
    r->rows.values = r->view[part[1]].buf;
    r->rows.lengths = r->view[part[2]].buf;
    r->rows.slots = r->view[part[0]].len / 8;
    return 0;
}

/* Take the numbers of the visited rows and the dual variables; None: rows are only evaluated. */
static int call_variables(call_object *c, const cp_dual *s, PyObject *number, PyObject *a)
{
    rows_object *r = &c->held;
    int rows, first;
    if (a == Py_None)
        return 0;
    if ((rows = rows_hold(r, number, sizeof(int64_t), 0, "row numbers")) < 0
        || (first = rows_hold(r, a, 8, 1, "dual variables")) < 0)
        return -1;
    c->number = r->view[rows].buf;
    c->a = r->view[first].buf;
    uint64_t top = 0;
    for (int64_t i = 0; i < r->rows.m && i < r->view[rows].len / 8; i++)
        top = (uint64_t)c->number[i] > top ? (uint64_t)c->number[i] : top;
    if (r->view[rows].len / 8 < r->rows.m || (r->rows.m && top >= (uint64_t)(r->view[first].len / 8 / s->stride)))
        return PyErr_SetString(PyExc_ValueError, "row numbers must match the visits and lie within the dual variables"),
               -1;
    return 0;
}

/* Take all arguments: rows, labels, y_type, weights, weights_type, visit, number, a. */
static int call_take(call_object *c, const cp_dual *s, PyObject *const *objects, int type, int weights_type)
{
    if (objects[2] != Py_None && !s->weighted)
        return PyErr_SetString(PyExc_ValueError, "sample weights need a model created with weighted=True"), -1;
    return call_rows(c, s, objects[0]) < 0 || rows_labels(&c->held, objects[1], type) < 0 ||
                   rows_weights(&c->held, objects[2], weights_type) < 0 || rows_visit(&c->held, objects[3]) < 0 ||
                   call_variables(c, s, objects[4], objects[5]) < 0
               ? -1
               : 0;
}

/* dual_learn(model, rows, labels, y_type, weights, weights_type, visit, number, a) -> status, done */
static PyObject *dual_learn(PyObject *self, PyObject *args)
{
    PyObject *capsule, *g[6], *result = NULL;
    call_object c = {0};
    dual_object *m;
    int type, weights_type, status;
    int64_t done = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOiOiOOO", &capsule, &g[0], &g[1], &type, &g[2], &weights_type, &g[3], &g[4], &g[5])
        || !(m = dual_of(capsule)))
        return NULL;
    if (call_take(&c, m->state, g, type, weights_type) == 0) {
        m->busy = 1;
        Py_BEGIN_ALLOW_THREADS
        status = cp_dual_learn(m->state, &c.held.rows, c.number, c.a, &done);
        Py_END_ALLOW_THREADS
        m->busy = 0;
        result = Py_BuildValue("iL", status, (long long)done);
    }
    rows_release(&c.held);
    return result;
}

/* dual_again(model, rows, labels, y_type, weights, weights_type, visit, number, a, passes, still, key) */
static PyObject *dual_again(PyObject *self, PyObject *args)
{
    PyObject *capsule, *g[6], *result = NULL;
    call_object c = {0};
    dual_object *m;
    int type, weights_type;
    long long passes;
    unsigned long long key;
    double still;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOiOiOOOLdK", &capsule, &g[0], &g[1], &type, &g[2], &weights_type, &g[3], &g[4],
                          &g[5], &passes, &still, &key)
        || !(m = dual_of(capsule)))
        return NULL;
    if (g[5] == Py_None)
        return PyErr_SetString(PyExc_ValueError, "dual variables must not be None"), NULL;
    if (call_take(&c, m->state, g, type, weights_type) == 0) {
        int32_t *places = malloc((size_t)c.held.rows.m * sizeof *places + 1);
        if (places) {
            m->busy = 1;
            Py_BEGIN_ALLOW_THREADS
            cp_dual_again(m->state, &c.held.rows, c.number, c.a, places, passes, still, key);
            Py_END_ALLOW_THREADS
            m->busy = 0;
            result = Py_NewRef(Py_None);
        } else
            PyErr_NoMemory();
        free(places);
    }
    rows_release(&c.held);
    return result;
}

static PyObject *dual_begin(PyObject *self, PyObject *capsule)
{
    dual_object *m = dual_of(capsule);
    (void)self;
    if (!m)
        return NULL;
    cp_dual_begin(m->state);
    Py_RETURN_NONE;
}

/* dual_figures(model) -> rows; weighted sums of losses, of correct rows and of weights; |w|^2 */
static PyObject *dual_figures(PyObject *self, PyObject *capsule)
{
    dual_object *m = dual_of(capsule);
    (void)self;
    return m ? Py_BuildValue("Ldddd", (long long)m->state->rows, m->state->sum, m->state->correct, m->state->weight,
                             cp_dual_norm(m->state)) : NULL;
}

/* dual_value(model, a) -> contribution of whole rows' dual variables to the dual function */
static PyObject *dual_value(PyObject *self, PyObject *args)
{
    PyObject *capsule, *a;
    dual_object *m;
    Py_buffer view;
    double sum;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &a) || !(m = dual_of(capsule))
        || cp_buffer(a, &view, 8, 0, "dual variables") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    sum = cp_dual_value(m->state, view.buf, view.len / 8 / m->state->stride);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyFloat_FromDouble(sum);
}

/* dual_get(model, weights, biases): copy them out, as doubles */
static PyObject *dual_get(PyObject *self, PyObject *args)
{
    PyObject *capsule, *coef, *bias, *result = NULL;
    rows_object held = {0};
    dual_object *m;
    int first, second;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &coef, &bias) || !(m = dual_of(capsule)))
        return NULL;
    const cp_dual *s = m->state;
    if ((first = rows_hold(&held, coef, 8, 1, "weights")) >= 0
        && (second = rows_hold(&held, bias, 8, 1, "biases")) >= 0) {
        const Py_buffer *w = &held.view[first], *b = &held.view[second];
        if (w->len == s->features * s->outputs * 8 && b->len == s->outputs * 8) {
            memcpy(w->buf, CP_AT(s, const double, w), (size_t)w->len);
            memcpy(b->buf, CP_AT(s, const double, bias), (size_t)b->len);
            result = Py_NewRef(Py_None);
        } else
            PyErr_Format(PyExc_ValueError, "weights must be [%lld, %lld] and biases [%lld]", (long long)s->outputs,
                         (long long)s->features, (long long)s->outputs);
    }
    rows_release(&held);
    return result;
}

PyMethodDef cp_dual_methods[] = {
    {"dual_again", dual_again, METH_VARARGS, "Revisit rows in memory."},
    {"dual_begin", dual_begin, METH_O, "Begin a pass."},
    {"dual_figures", dual_figures, METH_O, "Return the totals of a pass, and the squared length of the weights."},
    {"dual_get", dual_get, METH_VARARGS, "Copy weights out."},
    {"dual_learn", dual_learn, METH_VARARGS, "Visit rows in place."},
    {"dual_new", CP_BY_NAME(dual_new), "Create a model."},
    {"dual_value", dual_value, METH_VARARGS, "Return the contribution of dual variables to the dual function."},
    {NULL, NULL, 0, NULL},
};
