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

/* Create a model with class values and class weights. */
static PyObject *model_of_classes(cp_sgd_shape *shape, const cp_array *classes, const cp_array *weights)
{
    const int64_t count = cp_sgd_classes(shape);
    shape->classes = classes->at;
    if (classes->count != count)
        return PyErr_Format(PyExc_ValueError, "classes must have %lld values, got %lld", (long long)count,
                            (long long)classes->count);
    shape->class_weight = weights->at;
    if (weights->view.obj && (weights->count != count || count == 0))
        return PyErr_Format(PyExc_ValueError, "class weights must have one entry per class");
    return model_create(shape);
}

/* sgd_new(loss, parameter, classes, *, ...) */
static PyObject *sgd_new(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *names[] = {"",          "",   "",    "number_bytes", "sparse", "features", "outputs",      "batch",
                            "intercept", "l2", "isa", "average",      "step",   "l1",       "class_weight", "max_norm",
                            "rows",      NULL};
    CP_ARRAY(classes, "classes", 8);
    CP_ARRAY(weights, "class weights", 8, CP_READ, 1);
    cp_sgd_shape shape = {0};
    long long features, outputs, batch, rows = 0;
    int loss, step;
    if (!PyArg_ParseTupleAndKeywords(args, named, "idO&$ipLLLpdipidO&dL", names, &loss, &shape.parameter,
                                     CP_HOLD(classes), &shape.bytes, &shape.sparse, &features, &outputs, &batch,
                                     &shape.intercept, &shape.l2, &shape.isa, &shape.average, &step, &shape.l1,
                                     CP_HOLD(weights), &shape.max_norm, &rows))
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
    return model_of_classes(&shape, &classes, &weights);
}

/* sgd_learn(model, rows, y, y_type, visit, weights, weights_type) -> status, done */
static PyObject *sgd_learn(PyObject *Py_UNUSED(self), PyObject *args)
{
    ROWS(r);
    rows_arguments a = {.weights = Py_None};
    model_object *m;
    int status;
    int64_t done = 0;
    if (!PyArg_ParseTuple(args, "O&OOiO|Oi", model_take, &m, &a.features, &a.labels, &a.label_type, &a.visit,
                          &a.weights, &a.weight_type) ||
        rows_take(&r, &a, m->state->bytes, m->state->sparse, m->state->features) < 0)
        return NULL;
    m->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = cp_sgd_learn(m->state, &r.rows, &done);
    Py_END_ALLOW_THREADS
    m->busy = 0;
    return Py_BuildValue("iL", status, (long long)done);
}

/* sgd_decide(model, rows, visit, out) */
static PyObject *sgd_decide(PyObject *Py_UNUSED(self), PyObject *args)
{
    ROWS(r);
    PyObject *features, *visit, *out;
    model_object *m;
    int status, at;
    if (!PyArg_ParseTuple(args, "O&OOO", model_take, &m, &features, &visit, &out) ||
        rows_features(&r, features, m->state->bytes, m->state->sparse, m->state->features) < 0 ||
        rows_visit(&r, visit) < 0 || (at = rows_hold(&r, out, m->state->bytes, 1, "out")) < 0)
        return NULL;
    if (r.view[at].len < r.rows.m * m->state->outputs * m->state->bytes)
        return PyErr_Format(PyExc_ValueError, "out must hold all scores, got %zd bytes", r.view[at].len);
    m->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = cp_sgd_decide(m->state, &r.rows, r.view[at].buf);
    Py_END_ALLOW_THREADS
    m->busy = 0;
    return PyLong_FromLong(status);
}

/* sgd_begin(model, rate) */
static PyObject *sgd_begin(PyObject *Py_UNUSED(self), PyObject *args)
{
    double rate;
    model_object *m;
    if (!PyArg_ParseTuple(args, "O&d", model_take, &m, &rate))
        return NULL;
    if (!(rate >= 0) || (m->state->rule == CP_SAME && !(rate * m->state->l2 < 1)))
        return PyErr_Format(PyExc_ValueError, "rate must not be negative, and rate * l2 must be below 1");
    cp_sgd_begin(m->state, rate);
    Py_RETURN_NONE;
}

static PyObject *sgd_flush(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    model_object *m = model_of(capsule);
    if (!m)
        return NULL;
    cp_sgd_flush(m->state);
    Py_RETURN_NONE;
}

/* sgd_figures(model) -> rows, mean loss, accuracy or R^2, total weight */
static PyObject *sgd_figures(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    model_object *m = model_of(capsule);
    if (!m)
        return NULL;
    cp_figures f = cp_sgd_figures(m->state);
    return Py_BuildValue("Lddd", (long long)f.rows, f.loss, f.score, f.weight);
}

/* sgd_rests(model, losses) -> whether a default learning rate should be reduced */
static PyObject *sgd_rests(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(losses, "losses", 8);
    model_object *m;
    if (!PyArg_ParseTuple(args, "O&O&", model_take, &m, CP_HOLD(losses)))
        return NULL;
    return PyBool_FromLong(cp_sgd_has_plateaued(m->state, losses.at, losses.count));
}

/* Direction of a copy of weights. */
enum direction { OUT, IN, PREDICTOR };

static PyObject *weights(PyObject *args, enum direction direction)
{
    CP_ARRAY(coef, "weights", 0, direction != IN);
    CP_ARRAY(bias, "biases", 0, direction != IN);
    PyObject *arrays[2];
    model_object *m;
    if (!PyArg_ParseTuple(args, "O&OO", model_take, &m, &arrays[0], &arrays[1]))
        return NULL;
    cp_sgd *s = m->state;
    coef.item = bias.item = s->bytes;
    if (!cp_hold(arrays[0], &coef) || !cp_hold(arrays[1], &bias))
        return NULL;
    if (coef.count != s->features * s->outputs || bias.count != s->outputs)
        return PyErr_Format(PyExc_ValueError, "weights must be [%lld, %lld] and biases [%lld]", (long long)s->outputs,
                            (long long)s->features, (long long)s->outputs);
    switch (direction) {
    case OUT: cp_sgd_get(s, coef.at, bias.at); break;
    case IN: cp_sgd_set(s, coef.at, bias.at); break;
    case PREDICTOR: cp_sgd_predictor(s, coef.at, bias.at); break;
    }
    Py_RETURN_NONE;
}

/* sgd_get(model, weights, biases): copy out of a flushed model */
static PyObject *sgd_get(PyObject *Py_UNUSED(self), PyObject *args)
{
    return weights(args, OUT);
}

/* sgd_predictor(model, weights, biases): copy out the weights that predict */
static PyObject *sgd_predictor(PyObject *Py_UNUSED(self), PyObject *args)
{
    return weights(args, PREDICTOR);
}

/* sgd_set(model, weights, biases) */
static PyObject *sgd_set(PyObject *Py_UNUSED(self), PyObject *args)
{
    return weights(args, IN);
}

/* sgd_lines(model) -> lines of the optimizer state */
static PyObject *sgd_lines(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    model_object *m = model_of(capsule);
    return m ? PyLong_FromLongLong(cp_sgd_optimizer_lines(m->state)) : NULL;
}

/* sgd_keep(model, lines, into): copy the optimizer state out of a flushed model, or into it */
static PyObject *sgd_keep(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(lines, "lines", 8);
    PyObject *array;
    model_object *m;
    int into;
    if (!PyArg_ParseTuple(args, "O&Op", model_take, &m, &array, &into))
        return NULL;
    lines.writable = !into;
    if (!cp_hold(array, &lines))
        return NULL;
    if (lines.count != cp_sgd_optimizer_lines(m->state) * (m->state->features + 1))
        return PyErr_Format(PyExc_ValueError, "lines must be [%lld, %lld]",
                            (long long)cp_sgd_optimizer_lines(m->state), (long long)m->state->features + 1);
    cp_sgd_copy_optimizer_state(m->state, lines.at, into);
    Py_RETURN_NONE;
}

/* sgd_bytes(model) -> bytes of its memory */
static PyObject *sgd_bytes(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    model_object *m = model_of(capsule);
    return m ? PyLong_FromSize_t(m->state->size + CP_LINE + sizeof *m) : NULL;
}

/* sgd_isa() -> best vector level of this CPU */
static PyObject *sgd_isa(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    return PyLong_FromLong(cp_sgd_isa());
}

PyMethodDef cp_sgd_methods[] = {
    {"sgd_begin", sgd_begin, METH_VARARGS, "Begin an epoch with a learning rate."},
    {"sgd_bytes", sgd_bytes, METH_O, "Return the bytes of a model."},
    {"sgd_decide", sgd_decide, METH_VARARGS, "Score rows."},
    {"sgd_learn", sgd_learn, METH_VARARGS, "Learn from rows in place."},
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
    {NULL, NULL, 0, NULL},
};
