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

static int dual_take(PyObject *capsule, void *model)
{
    dual_object *m = dual_of(capsule);
    memcpy(model, &m, sizeof m);
    return m != NULL;
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
static PyObject *dual_new(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *names[] = {"", "", "number_bytes", "sparse", "features", "outputs", "intercept", "bound", "isa",
                            "weighted", "class_weight", NULL};
    CP_ARRAY(classes, "classes", 8);
    CP_ARRAY(weights, "weights of classes", 8, CP_READ, 1);
    cp_dual_shape shape = {0};
    long long features, outputs;
    int loss;
    if (!PyArg_ParseTupleAndKeywords(args, named, "iO&$ipLLpdipO&", names, &loss, CP_HOLD(classes), &shape.bytes,
                                     &shape.sparse, &features, &outputs, &shape.intercept, &shape.bound, &shape.isa,
                                     &shape.weighted, CP_HOLD(weights)))
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
    shape.classes = classes.at;
    shape.class_weight = weights.at;
    const int64_t count = cp_loss_per_class(shape.loss) ? outputs : 2;
    if (classes.count != count || (weights.view.obj && weights.count != count))
        return PyErr_Format(PyExc_ValueError, "class values and their weights must be %lld each", (long long)count);
    return dual_create(&shape);
}

/* Take the rows, and for dual variables, which None leaves out, check the numbers of the visited rows. */
static int dual_rows(rows_object *r, const cp_dual *s, const rows_arguments *arguments, const cp_array *numbers,
                     const cp_array *a)
{
    if (arguments->weights != Py_None && !s->weighted)
        return PyErr_SetString(PyExc_ValueError, "sample weights need a model created with weighted=True"), -1;
    if (rows_take(r, arguments, s->bytes, s->sparse, s->features) < 0)
        return -1;
    if (!a->view.obj)
        return 0;
    const int64_t *number = numbers->at;
    uint64_t top = 0;
    for (int64_t i = 0; i < r->rows.m && i < numbers->count; i++)
        top = (uint64_t)number[i] > top ? (uint64_t)number[i] : top;
    if (numbers->count < r->rows.m || (r->rows.m && top >= (uint64_t)(a->count / s->stride)))
        return PyErr_SetString(PyExc_ValueError, "row numbers must match the visits and lie within the dual variables"),
               -1;
    return 0;
}

/* dual_learn(model, rows, labels, y_type, weights, weights_type, visit, number, a) -> status, done */
static PyObject *dual_learn(PyObject *Py_UNUSED(self), PyObject *args)
{
    ROWS(r);
    CP_ARRAY(number, "row numbers", 8, CP_READ, 1);
    CP_ARRAY(a, "dual variables", 8, CP_WRITE, 1);
    rows_arguments given;
    dual_object *m;
    int status;
    int64_t done = 0;
    if (!PyArg_ParseTuple(args, "O&OOiOiOO&O&", dual_take, &m, &given.features, &given.labels, &given.label_type,
                          &given.weights, &given.weight_type, &given.visit, CP_HOLD(number), CP_HOLD(a)) ||
        dual_rows(&r, m->state, &given, &number, &a) < 0)
        return NULL;
    m->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    status = cp_dual_learn(m->state, &r.rows, number.at, a.at, &done);
    Py_END_ALLOW_THREADS
    m->busy = 0;
    return Py_BuildValue("iL", status, (long long)done);
}

/* dual_again(model, rows, labels, y_type, weights, weights_type, visit, number, a, passes, still, key) */
static PyObject *dual_again(PyObject *Py_UNUSED(self), PyObject *args)
{
    ROWS(r);
    CP_ARRAY(number, "row numbers", 8);
    CP_ARRAY(a, "dual variables", 8, CP_WRITE);
    rows_arguments given;
    dual_object *m;
    long long passes;
    unsigned long long key;
    double still;
    if (!PyArg_ParseTuple(args, "O&OOiOiOO&O&LdK", dual_take, &m, &given.features, &given.labels, &given.label_type,
                          &given.weights, &given.weight_type, &given.visit, CP_HOLD(number), CP_HOLD(a), &passes,
                          &still, &key) ||
        dual_rows(&r, m->state, &given, &number, &a) < 0)
        return NULL;
    int32_t *places = malloc((size_t)r.rows.m * sizeof *places + 1);
    if (!places)
        return PyErr_NoMemory();
    m->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    cp_dual_again(m->state, &r.rows, number.at, a.at, places, passes, still, key);
    Py_END_ALLOW_THREADS
    m->busy = 0;
    free(places);
    Py_RETURN_NONE;
}

static PyObject *dual_begin(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    dual_object *m = dual_of(capsule);
    if (!m)
        return NULL;
    cp_dual_begin(m->state);
    Py_RETURN_NONE;
}

/* dual_figures(model) -> rows; weighted sums of losses, of correct rows and of weights; |w|^2 */
static PyObject *dual_figures(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    dual_object *m = dual_of(capsule);
    return m ? Py_BuildValue("Ldddd", (long long)m->state->rows, m->state->sum, m->state->correct, m->state->weight,
                             cp_dual_norm(m->state)) : NULL;
}

/* dual_value(model, a) -> contribution of whole rows' dual variables to the dual function */
static PyObject *dual_value(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(a, "dual variables", 8);
    dual_object *m;
    double sum;
    if (!PyArg_ParseTuple(args, "O&O&", dual_take, &m, CP_HOLD(a)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    sum = cp_dual_value(m->state, a.at, a.count / m->state->stride);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(sum);
}

/* dual_get(model, weights, biases): copy them out, as doubles */
static PyObject *dual_get(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(coef, "weights", 8, CP_WRITE);
    CP_ARRAY(bias, "biases", 8, CP_WRITE);
    dual_object *m;
    if (!PyArg_ParseTuple(args, "O&O&O&", dual_take, &m, CP_HOLD(coef), CP_HOLD(bias)))
        return NULL;
    const cp_dual *s = m->state;
    if (coef.count != s->features * s->outputs || bias.count != s->outputs)
        return PyErr_Format(PyExc_ValueError, "weights must be [%lld, %lld] and biases [%lld]", (long long)s->outputs,
                            (long long)s->features, (long long)s->outputs);
    memcpy(coef.at, CP_AT(s, const double, w), (size_t)coef.bytes);
    memcpy(bias.at, CP_AT(s, const double, bias), (size_t)bias.bytes);
    Py_RETURN_NONE;
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
