/* Binds linear models by stochastic gradient descent: kernel/sgd/sgd.h. */
#include "bind.h"
#include "sgd/epochs.h"
#include "sgd/sgd.h"
#include "sgd_model.h"
#include "sgd_rows.h"

static void model_destroy(PyObject *capsule)
{
    model_object *m = PyCapsule_GetPointer(capsule, MODEL);
    free(m->memory);
    free(m);
}

static PyObject *model_create(const cp_sgd_shape *shape)
{
    model_object *m = calloc(1, sizeof *m);
    if (!m || !(m->memory = calloc(1, cp_sgd_size(shape) + CP_LINE))) {
        free(m);
        return PyErr_NoMemory();
    }
    m->state = (cp_sgd *)(((uintptr_t)m->memory + CP_LINE - 1) / CP_LINE * CP_LINE);
    cp_sgd_init(m->state, shape);
    PyObject *capsule = PyCapsule_New(m, MODEL, model_destroy);
    if (!capsule) {
        free(m->memory);
        free(m);
    }
    return capsule;
}

/* Create a model with class values and class weights; weights None: 1. */
static PyObject *model_of_classes(cp_sgd_shape *shape, PyObject *classes, PyObject *weights)
{
    PyObject *capsule = NULL;
    Py_buffer view[2] = {{0}};
    const int64_t count = cp_sgd_classes(shape) * (int64_t)sizeof(double);
    if (cp_buffer(classes, &view[0], sizeof(double), 0, "classes") < 0)
        return NULL;
    shape->classes = view[0].buf;
    if (view[0].len != count)
        PyErr_Format(PyExc_ValueError, "classes must have %lld values, got %zd", (long long)cp_sgd_classes(shape),
                     view[0].len / (Py_ssize_t)sizeof(double));
    else if (weights == Py_None)
        capsule = model_create(shape);
    else if (cp_buffer(weights, &view[1], sizeof(double), 0, "class weights") == 0) {
        shape->class_weight = view[1].buf;
        if (view[1].len == count && count > 0)
            capsule = model_create(shape);
        else
            PyErr_SetString(PyExc_ValueError, "class weights must have one entry per class");
        PyBuffer_Release(&view[1]);
    }
    PyBuffer_Release(&view[0]);
    return capsule;
}

/* sgd_new(loss, parameter, classes, *, ...) */
static PyObject *sgd_new(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"",          "",   "",    "number_bytes", "sparse", "features", "outputs",      "batch",
                            "intercept", "l2", "isa", "average",      "step",   "l1",       "class_weight", "max_norm",
                            "rows",      NULL};
    cp_sgd_shape shape = {0};
    long long features, outputs, batch, rows = 0;
    int loss, step;
    PyObject *classes, *weights = Py_None;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "idO$ipLLLpdipidOdL", names, &loss, &shape.parameter, &classes,
                                     &shape.bytes, &shape.sparse, &features, &outputs, &batch, &shape.intercept,
                                     &shape.l2, &shape.isa, &shape.average, &step, &shape.l1, &weights, &shape.max_norm,
                                     &rows))
        return NULL;
    if (loss < 0 || loss >= CP_LOSS_COUNT || (shape.bytes != 4 && shape.bytes != 8))
        return PyErr_Format(PyExc_ValueError, "loss must be 0 to %d and reals 4 or 8 bytes, got %d and %d",
                            CP_LOSS_COUNT - 1, loss, shape.bytes);
    shape.loss = (enum cp_loss)loss;
    if (step < 0 || step >= CP_STEP_COUNT || !(shape.l1 >= 0) || !(shape.max_norm >= 0))
        return PyErr_Format(PyExc_ValueError, "step %d, l1 or max_norm is out of range", step);
    shape.step = (enum cp_step)step;
    if (features < 1 || features > INT32_MAX || outputs < 1 || outputs > INT32_MAX || features * outputs > 1ll << 40)
        return PyErr_Format(PyExc_ValueError, "features %lld or outputs %lld is out of range", features, outputs);
    if (batch < 1 || rows < 0 || (!cp_loss_per_class(shape.loss) && outputs != 1) || !(shape.l2 >= 0))
        return PyErr_Format(PyExc_ValueError, "batch %lld, outputs %lld, rows %lld or l2 is out of range", batch,
                            outputs, rows);
    shape.features = features;
    shape.outputs = outputs;
    shape.batch = batch;
    shape.rows = rows;
    return model_of_classes(&shape, classes, weights);
}

static PyObject *learn(model_object *m, rows_object *r)
{
    int status;
    int64_t done = 0;
    m->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = cp_sgd_learn(m->state, &r->rows, &done);
    Py_END_ALLOW_THREADS
    m->busy = 0;
    return Py_BuildValue("iL", status, (long long)done);
}

static PyObject *decide(model_object *m, rows_object *r, PyObject *out)
{
    int status, at = rows_hold(r, out, m->state->bytes, 1, "out");
    if (at < 0)
        return NULL;
    if (r->view[at].len < r->rows.m * m->state->outputs * m->state->bytes)
        return PyErr_Format(PyExc_ValueError, "out must hold all scores, got %zd bytes", r->view[at].len);
    m->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = cp_sgd_decide(m->state, &r->rows, r->view[at].buf);
    Py_END_ALLOW_THREADS
    m->busy = 0;
    return PyLong_FromLong(status);
}

/* sgd_dense(model, x, y, y_type, visit, weights, weights_type) */
static PyObject *sgd_dense(PyObject *self, PyObject *args)
{
    PyObject *capsule, *x, *y, *visit, *weights = Py_None, *result = NULL;
    rows_object r = {0};
    model_object *m;
    int type, weights_type = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOiO|Oi", &capsule, &x, &y, &type, &visit, &weights, &weights_type) ||
        !(m = model_of(capsule)))
        return NULL;
    if (rows_dense(&r, m->state, x) == 0 && rows_labels(&r, y, type) == 0 &&
        rows_weights(&r, weights, weights_type) == 0 && rows_visit(&r, visit) == 0)
        result = learn(m, &r);
    rows_release(&r);
    return result;
}

/* sgd_sparse(model, indices, values, lengths, y, y_type, visit, weights, weights_type) */
static PyObject *sgd_sparse(PyObject *self, PyObject *args)
{
    PyObject *capsule, *indices, *values, *lengths, *y, *visit, *weights = Py_None, *result = NULL;
    rows_object r = {0};
    model_object *m;
    int type, weights_type = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOiO|Oi", &capsule, &indices, &values, &lengths, &y, &type, &visit, &weights,
                          &weights_type) ||
        !(m = model_of(capsule)))
        return NULL;
    if (rows_sparse(&r, m->state, indices, values, lengths) == 0 && rows_labels(&r, y, type) == 0 &&
        rows_weights(&r, weights, weights_type) == 0 && rows_visit(&r, visit) == 0)
        result = learn(m, &r);
    rows_release(&r);
    return result;
}

/* sgd_decide(model, x, visit, out) */
static PyObject *sgd_decide(PyObject *self, PyObject *args)
{
    PyObject *capsule, *x, *visit, *out, *result = NULL;
    rows_object r = {0};
    model_object *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &capsule, &x, &visit, &out) || !(m = model_of(capsule)))
        return NULL;
    if (rows_dense(&r, m->state, x) == 0 && rows_visit(&r, visit) == 0)
        result = decide(m, &r, out);
    rows_release(&r);
    return result;
}

/* sgd_decide_sparse(model, indices, values, lengths, visit, out) */
static PyObject *sgd_decide_sparse(PyObject *self, PyObject *args)
{
    PyObject *capsule, *indices, *values, *lengths, *visit, *out, *result = NULL;
    rows_object r = {0};
    model_object *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOO", &capsule, &indices, &values, &lengths, &visit, &out) ||
        !(m = model_of(capsule)))
        return NULL;
    if (rows_sparse(&r, m->state, indices, values, lengths) == 0 && rows_visit(&r, visit) == 0)
        result = decide(m, &r, out);
    rows_release(&r);
    return result;
}

/* sgd_begin(model, rate) */
static PyObject *sgd_begin(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    double rate;
    model_object *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "Od", &capsule, &rate) || !(m = model_of(capsule)))
        return NULL;
    if (!(rate >= 0) || (m->state->rule == CP_SAME && !(rate * m->state->l2 < 1)))
        return PyErr_SetString(PyExc_ValueError, "rate must not be negative, and rate * l2 must be below 1"), NULL;
    cp_sgd_begin(m->state, rate);
    Py_RETURN_NONE;
}

static PyObject *sgd_flush(PyObject *self, PyObject *capsule)
{
    model_object *m = model_of(capsule);
    (void)self;
    if (!m)
        return NULL;
    cp_sgd_flush(m->state);
    Py_RETURN_NONE;
}

/* sgd_figures(model) -> rows, mean loss, accuracy or R^2, total weight */
static PyObject *sgd_figures(PyObject *self, PyObject *capsule)
{
    model_object *m = model_of(capsule);
    (void)self;
    if (!m)
        return NULL;
    cp_figures f = cp_sgd_figures(m->state);
    return Py_BuildValue("Lddd", (long long)f.rows, f.loss, f.score, f.weight);
}

/* sgd_rests(model, losses) -> whether a default learning rate should be reduced */
static PyObject *sgd_rests(PyObject *self, PyObject *args)
{
    PyObject *capsule, *array;
    Py_buffer losses;
    model_object *m;
    int plateaued;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &array) || !(m = model_of(capsule))
        || cp_buffer(array, &losses, 8, 0, "losses") < 0)
        return NULL;
    plateaued = cp_sgd_has_plateaued(m->state, losses.buf, losses.len / 8);
    PyBuffer_Release(&losses);
    return PyBool_FromLong(plateaued);
}

/* Direction of a copy of weights. */
enum direction { OUT, IN, PREDICTOR };

static PyObject *weights(PyObject *args, enum direction direction)
{
    PyObject *capsule, *coef, *bias, *result = NULL;
    rows_object r = {0};
    model_object *m;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &coef, &bias) || !(m = model_of(capsule)))
        return NULL;
    const cp_sgd *s = m->state;
    int c = rows_hold(&r, coef, s->bytes, direction != IN, "weights");
    int b = c < 0 ? -1 : rows_hold(&r, bias, s->bytes, direction != IN, "biases");
    if (b >= 0 && (r.view[c].len != s->features * s->outputs * s->bytes || r.view[b].len != s->outputs * s->bytes))
        PyErr_Format(PyExc_ValueError, "weights must be [%lld, %lld] and biases [%lld]", (long long)s->outputs,
                     (long long)s->features, (long long)s->outputs);
    else if (b >= 0) {
        switch (direction) {
        case OUT: cp_sgd_get(m->state, r.view[c].buf, r.view[b].buf); break;
        case IN: cp_sgd_set(m->state, r.view[c].buf, r.view[b].buf); break;
        case PREDICTOR: cp_sgd_predictor(m->state, r.view[c].buf, r.view[b].buf); break;
        }
        result = Py_NewRef(Py_None);
    }
    rows_release(&r);
    return result;
}

/* sgd_get(model, weights, biases): copy out of a flushed model */
static PyObject *sgd_get(PyObject *self, PyObject *args)
{
    (void)self;
    return weights(args, OUT);
}

/* sgd_predictor(model, weights, biases): copy out the weights that predict */
static PyObject *sgd_predictor(PyObject *self, PyObject *args)
{
    (void)self;
    return weights(args, PREDICTOR);
}

/* sgd_set(model, weights, biases) */
static PyObject *sgd_set(PyObject *self, PyObject *args)
{
    (void)self;
    return weights(args, IN);
}

/* sgd_lines(model) -> lines of the optimizer state */
static PyObject *sgd_lines(PyObject *self, PyObject *capsule)
{
    model_object *m = model_of(capsule);
    (void)self;
    return m ? PyLong_FromLongLong(cp_sgd_optimizer_lines(m->state)) : NULL;
}

/* sgd_keep(model, lines, into): copy the optimizer state out of a flushed model, or into it */
static PyObject *sgd_keep(PyObject *self, PyObject *args)
{
    PyObject *capsule, *lines, *result = NULL;
    rows_object r = {0};
    model_object *m;
    int into, at;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOp", &capsule, &lines, &into) || !(m = model_of(capsule)))
        return NULL;
    at = rows_hold(&r, lines, sizeof(double), !into, "lines");
    if (at >= 0 &&
        r.view[at].len != cp_sgd_optimizer_lines(m->state) * (m->state->features + 1) * (int64_t)sizeof(double))
        PyErr_Format(PyExc_ValueError, "lines must be [%lld, %lld]", (long long)cp_sgd_optimizer_lines(m->state),
                     (long long)m->state->features + 1);
    else if (at >= 0) {
        cp_sgd_copy_optimizer_state(m->state, r.view[at].buf, into);
        result = Py_NewRef(Py_None);
    }
    rows_release(&r);
    return result;
}

/* sgd_bytes(model) -> bytes of its memory */
static PyObject *sgd_bytes(PyObject *self, PyObject *capsule)
{
    model_object *m = model_of(capsule);
    (void)self;
    return m ? PyLong_FromSize_t(m->state->size + CP_LINE + sizeof *m) : NULL;
}

/* sgd_isa() -> best vector level of this CPU */
static PyObject *sgd_isa(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(cp_sgd_isa());
}

PyMethodDef cp_sgd_methods[] = {
    {"sgd_begin", sgd_begin, METH_VARARGS, "Begin an epoch with a learning rate."},
    {"sgd_bytes", sgd_bytes, METH_O, "Return the bytes of a model."},
    {"sgd_decide", sgd_decide, METH_VARARGS, "Score dense rows."},
    {"sgd_decide_sparse", sgd_decide_sparse, METH_VARARGS, "Score sparse rows."},
    {"sgd_dense", sgd_dense, METH_VARARGS, "Learn from dense rows in place."},
    {"sgd_rests", sgd_rests, METH_VARARGS, "Return whether a regression reached a plateau because of its steps."},
    {"sgd_figures", sgd_figures, METH_O, "Return rows, mean loss and score of the epoch."},
    {"sgd_flush", sgd_flush, METH_O, "Apply the pending updates."},
    {"sgd_get", sgd_get, METH_VARARGS, "Copy weights out."},
    {"sgd_isa", sgd_isa, METH_NOARGS, "Return the best vector level of this CPU."},
    {"sgd_keep", sgd_keep, METH_VARARGS, "Copy the optimizer state out, or in."},
    {"sgd_lines", sgd_lines, METH_O, "Return the lines of the optimizer state."},
    {"sgd_new", CP_BY_NAME(sgd_new), "Create a model."},
    {"sgd_predictor", sgd_predictor, METH_VARARGS, "Copy out the weights that predict."},
    {"sgd_set", sgd_set, METH_VARARGS, "Copy weights in."},
    {"sgd_sparse", sgd_sparse, METH_VARARGS, "Learn from sparse rows."},
    {NULL, NULL, 0, NULL},
};
