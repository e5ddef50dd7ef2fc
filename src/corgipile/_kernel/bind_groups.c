/* Binds several linear models that learn at once, from their own rows or from the same: kernel/sgd/multi_model.h. */
#include "bind.h"
#include "sgd/multi_model.h"
#include "sgd/epochs.h"
#include "sgd_model.h"
#include "sgd_rows.h"

/* Models of one row format; they are busy until the end of their scope once models_begin has marked them. */
typedef struct {
    model_object **all;
    cp_sgd **states;
    Py_ssize_t count, busy;
} models_object;

static void models_release(models_object *models)
{
    for (Py_ssize_t i = 0; i < models->busy; i++)
        models->all[i]->busy = 0;
    free(models->all), free(models->states);
}

#define MODELS(models) models_object models __attribute__((cleanup(models_release))) = {.count = 0}

/* Take the models of a list; a converter for "O&". */
static int models_take(PyObject *list, void *to)
{
    models_object *models = to;
    const Py_ssize_t count = PyList_Size(list);
    if (count < 0)
        return 0;
    models->all = calloc((size_t)count + 1, sizeof *models->all);
    models->states = calloc((size_t)count + 1, sizeof *models->states);
    if (!models->all || !models->states)
        return PyErr_NoMemory(), 0;
    if (count == 0)
        return PyErr_SetString(PyExc_ValueError, "models must not be empty"), 0;
    models->count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!model_take(PyList_GetItem(list, i), &models->all[i]))
            return 0;
        const cp_sgd *s = models->states[i] = models->all[i]->state, *first = models->states[0];
        if (s->bytes != first->bytes || s->sparse != first->sparse || s->features != first->features)
            return PyErr_SetString(PyExc_ValueError, "models of one call must have the same rows"), 0;
    }
    return 1;
}

/* Mark the models as busy. Returns -1 with an exception set if one is listed twice. */
static int models_begin(models_object *models)
{
    for (; models->busy < models->count; models->busy++) {
        if (models->all[models->busy]->busy)
            return PyErr_SetString(PyExc_ValueError, "models must be distinct"), -1;
        models->all[models->busy]->busy = 1;
    }
    return 0;
}

static int models_rows(const models_object *models, rows_object *r, const rows_arguments *a)
{
    const cp_sgd *s = models->states[0];
    return rows_take(r, a, s->bytes, s->sparse, s->features);
}

/* sgd_groups(models, starts, rows, y, y_type, visit, weights, weights_type): train model i on the visits from starts[i]
 * to starts[i + 1]; rows: an array, or (indices, values, lengths) */
static PyObject *sgd_groups(PyObject *Py_UNUSED(self), PyObject *args)
{
    MODELS(models);
    ROWS(r);
    CP_ARRAY(starts, "starts", 8);
    rows_arguments a;
    if (!PyArg_ParseTuple(args, "O&O&OOiOOi", models_take, &models, CP_HOLD(starts), &a.features, &a.labels,
                          &a.label_type, &a.visit, &a.weights, &a.weight_type) ||
        models_rows(&models, &r, &a) < 0)
        return NULL;
    int status = CP_SGD_OK;
    int64_t done = 0, place = r.rows.m;
    const int64_t *start = starts.at, count = models.count;
    if (starts.count != count + 1 || start[0] < 0 || start[count] > r.rows.m)
        return PyErr_Format(PyExc_ValueError, "starts must have one entry more than models, within the visits");
    for (int64_t i = 0; i < count; i++)
        if (start[i] > start[i + 1])
            return PyErr_Format(PyExc_ValueError, "starts must not decrease");
    if (models_begin(&models) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < count && !status; i++) {
        cp_rows part = r.rows;
        part.visit += start[i];
        part.m = start[i + 1] - start[i];
        if (part.m && (status = cp_sgd_learn(models.states[i], &part, &done)))
            place = start[i] + done;
    }
    Py_END_ALLOW_THREADS
    return Py_BuildValue("iL", status, (long long)place);
}

/* Return a list of pairs. */
static PyObject *results_of(const int *status, const int64_t *numbers, Py_ssize_t count)
{
    PyObject *result = PyList_New(count);
    for (Py_ssize_t i = 0; result && i < count; i++)
        if (PyList_SetItem(result, i, Py_BuildValue("iL", status[i], (long long)numbers[i])) < 0)
            Py_CLEAR(result);
    return result;
}

/* Train each model on the same rows; returns status and visits done per model. */
static PyObject *learn_each(models_object *models, const cp_rows *rows)
{
    PyObject *result = NULL;
    int *status = calloc((size_t)models->count, sizeof *status);
    int64_t *done = calloc((size_t)models->count, sizeof *done);
    if (!status || !done)
        PyErr_NoMemory();
    else if (models_begin(models) == 0) {
        Py_BEGIN_ALLOW_THREADS
        cp_sgd_learn_all(models->states, models->count, rows, status, done);
        Py_END_ALLOW_THREADS
        result = results_of(status, done, models->count);
    }
    free(status), free(done);
    return result;
}

/* sgd_at_once(model): most models like it that visit a row at once */
static PyObject *sgd_at_once(PyObject *Py_UNUSED(self), PyObject *args)
{
    const model_object *m;
    if (!PyArg_ParseTuple(args, "O&", model_take, &m))
        return NULL;
    return PyLong_FromLongLong(cp_sgd_at_once(m->state));
}

/* sgd_each(models, rows, y, y_type, visit, weights, weights_type, sets, labels, first); rows: as above; sets: None, or
 * bytes by set and label, where y is the set of each row and model i has label first + i */
static PyObject *sgd_each(PyObject *Py_UNUSED(self), PyObject *args)
{
    MODELS(models);
    ROWS(r);
    CP_ARRAY(sets, "sets of labels", 1, .optional = 1);
    rows_arguments a;
    long long labels, first;
    if (!PyArg_ParseTuple(args, "O&OOiOOiO&LL", models_take, &models, &a.features, &a.labels, &a.label_type, &a.visit,
                          &a.weights, &a.weight_type, CP_HOLD(sets), &labels, &first) ||
        models_rows(&models, &r, &a) < 0)
        return NULL;
    if (sets.at) {
        if (labels < 1 || first < 0 || first > labels - models.count || sets.bytes % labels)
            return PyErr_Format(PyExc_ValueError, "sets must have one byte per label, and one label per model");
        r.rows.set = (const uint8_t *)sets.at + first;
        r.rows.sets = sets.bytes / labels;
        r.rows.labels = labels;
    }
    return learn_each(&models, &r.rows);
}

PyMethodDef cp_groups_methods[] = {
    {"sgd_at_once", sgd_at_once, METH_VARARGS, "Return how many such models visit a row at once."},
    {"sgd_each", sgd_each, METH_VARARGS, "Train several models on the same rows."},
    {"sgd_groups", sgd_groups, METH_VARARGS, "Train several models, each on its own rows."},
    {NULL, NULL, 0, NULL},
};
