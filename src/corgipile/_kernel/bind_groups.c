/* Binds several linear models that learn at once, from their own rows or from the same: kernel/sgd/folds.h. */
#include "bind.h"
#include "sgd/folds.h"
#include "sgd/epochs.h"
#include "sgd_model.h"
#include "sgd_rows.h"

/* Take all models of a list, of one row format; returns an array for the caller to free. */
static model_object **models_take(PyObject *list)
{
    const Py_ssize_t count = PyList_Size(list);
    model_object **all = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *all);
    if (!all)
        return count < 0 ? NULL : (model_object **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        const cp_sgd *s;
        if (!(all[i] = model_of(PyList_GetItem(list, i))))
            break;
        s = all[i]->state;
        if (s->bytes != all[0]->state->bytes || s->sparse != all[0]->state->sparse
            || s->features != all[0]->state->features) {
            PyErr_SetString(PyExc_ValueError, "models of one call must have the same rows");
            break;
        }
    }
    if (count == 0)
        PyErr_SetString(PyExc_ValueError, "models must not be empty");
    if (!PyErr_Occurred())
        return all;
    free(all);
    return NULL;
}

/* Train each model on its part of the visits: model i from starts[i] to starts[i + 1]. */
static PyObject *learn_groups(model_object **all, Py_ssize_t count, rows_object *r, PyObject *starts)
{
    int status = CP_SGD_OK, at = rows_hold(r, starts, sizeof(int64_t), 0, "starts");
    int64_t done = 0, place = r->rows.m;
    if (at < 0)
        return NULL;
    const int64_t *start = r->view[at].buf;
    if (r->view[at].len != (count + 1) * (Py_ssize_t)sizeof *start || start[0] < 0 || start[count] > r->rows.m)
        return PyErr_SetString(PyExc_ValueError, "starts must have one entry more than models, within the visits"),
               NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (start[i] > start[i + 1])
            return PyErr_SetString(PyExc_ValueError, "starts must not decrease"), NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        all[i]->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count && !status; i++) {
        cp_rows part = r->rows;
        part.visit += start[i];
        part.m = start[i + 1] - start[i];
        if (part.m && (status = cp_sgd_learn(all[i]->state, &part, &done)))
            place = start[i] + done;
    }
    Py_END_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++)
        all[i]->busy = 0;
    return Py_BuildValue("iL", status, (long long)place);
}

/* Take the rows of a call: an array, or (indices, values, lengths). */
static int rows_any(rows_object *r, const cp_sgd *s, PyObject *rows)
{
    if (PyTuple_Check(rows) && PyTuple_Size(rows) == 3)
        return rows_sparse(r, s, PyTuple_GetItem(rows, 0), PyTuple_GetItem(rows, 1), PyTuple_GetItem(rows, 2));
    return rows_dense(r, s, rows);
}

/* sgd_groups(models, starts, rows, y, y_type, visit, weights, weights_type); rows: an array, or (indices, values,
 * lengths) */
static PyObject *sgd_groups(PyObject *self, PyObject *args)
{
    PyObject *models, *starts, *rows, *y, *visit, *weights, *result = NULL;
    rows_object r = {0};
    model_object **all;
    int type, weights_type;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OOOiOOi", &PyList_Type, &models, &starts, &rows, &y, &type, &visit, &weights,
                          &weights_type)
        || !(all = models_take(models)))
        return NULL;
    if (rows_any(&r, all[0]->state, rows) == 0 && rows_labels(&r, y, type) == 0
        && rows_weights(&r, weights, weights_type) == 0 && rows_visit(&r, visit) == 0)
        result = learn_groups(all, PyList_Size(models), &r, starts);
    rows_release(&r);
    free(all);
    return result;
}

/* Train each model on the same rows with its own label; returns status and visits done per model. */
static PyObject *learn_each(model_object **all, Py_ssize_t count, const cp_rows *rows)
{
    PyObject *result = NULL;
    cp_sgd **states = calloc((size_t)count, sizeof *states);
    int *status = calloc((size_t)count, sizeof *status);
    int64_t *done = calloc((size_t)count, sizeof *done);
    Py_ssize_t busy_count = 0;
    for (; states && busy_count < count && !all[busy_count]->busy; busy_count++) { /* a model listed twice is busy */
        all[busy_count]->busy = 1;
        states[busy_count] = all[busy_count]->state;
    }
    if (!states || !status || !done)
        PyErr_NoMemory();
    else if (busy_count < count)
        PyErr_SetString(PyExc_ValueError, "models must be distinct");
    else {
        Py_BEGIN_ALLOW_THREADS
        cp_sgd_learn_all(states, count, rows, status, done);
        Py_END_ALLOW_THREADS
        result = PyList_New(count);
    }
    for (Py_ssize_t i = 0; i < busy_count; i++)
        all[i]->busy = 0;
    for (Py_ssize_t i = 0; result && i < count; i++)
        if (PyList_SetItem(result, i, Py_BuildValue("iL", status[i], (long long)done[i])) < 0)
            Py_CLEAR(result);
    free(states), free(status), free(done);
    return result;
}

/* sgd_at_once(model): most models like it that visit a row at once */
static PyObject *sgd_at_once(PyObject *self, PyObject *args)
{
    PyObject *model;
    const model_object *first_model;
    (void)self;
    if (!PyArg_ParseTuple(args, "O", &model) || !(first_model = model_of(model)))
        return NULL;
    return PyLong_FromLongLong(cp_sgd_at_once(first_model->state));
}

/* sgd_each(models, rows, y, y_type, visit, weights, weights_type, sets, labels, first); y: the label set of each row;
 * sets: bytes by set and label, of which model i has label first + i; rows: as above */
static PyObject *sgd_each(PyObject *self, PyObject *args)
{
    PyObject *models, *rows, *y, *visit, *weights, *sets, *result = NULL;
    rows_object r = {0};
    model_object **all;
    long long labels, first;
    int type, weights_type, at;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OOiOOiOLL", &PyList_Type, &models, &rows, &y, &type, &visit, &weights, &weights_type,
                          &sets, &labels, &first)
        || !(all = models_take(models)))
        return NULL;
    const Py_ssize_t count = PyList_Size(models);
    if (rows_any(&r, all[0]->state, rows) == 0 && rows_labels(&r, y, type) == 0
        && rows_weights(&r, weights, weights_type) == 0 && rows_visit(&r, visit) == 0
        && (at = rows_hold(&r, sets, 1, 0, "sets of labels")) >= 0) {
        if (labels < 1 || first < 0 || first > labels - count || r.view[at].len % labels)
            PyErr_SetString(PyExc_ValueError, "sets must have one byte per label, and one label per model");
        else {
            r.rows.set = (const uint8_t *)r.view[at].buf + first;
            r.rows.sets = r.view[at].len / labels;
            r.rows.labels = labels;
            result = learn_each(all, count, &r.rows);
        }
    }
    rows_release(&r);
    free(all);
    return result;
}

/* Return the team number of each model. */
static PyObject *teams_of(model_object **all, Py_ssize_t count, int64_t rows, cp_parts *p)
{
    cp_sgd **states = calloc((size_t)count, sizeof *states);
    int64_t *team = calloc((size_t)count, sizeof *team);
    PyObject *result = NULL;
    p->group = calloc((size_t)count, sizeof *p->group);
    for (Py_ssize_t i = 0; states && i < count; i++)
        states[i] = all[i]->state;
    if (!states || !team || !p->group)
        PyErr_NoMemory();
    else {
        cp_sgd_teams(states, count, rows, p, team);
        result = PyList_New(count);
    }
    for (Py_ssize_t i = 0; result && i < count; i++)
        if (PyList_SetItem(result, i, PyLong_FromLongLong(team[i])) < 0)
            Py_CLEAR(result);
    free(states), free(team), free(p->group);
    return result;
}

/* sgd_teams(models, theirs, of): which models visit rows at once if rows belong to the folds `of`, and each model skips
 * its own */
static PyObject *sgd_teams(PyObject *self, PyObject *args)
{
    PyObject *models, *objects[2], *result = NULL;
    Py_buffer theirs, of;
    model_object **all;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OO", &PyList_Type, &models, &objects[0], &objects[1])
        || !(all = models_take(models)))
        return NULL;
    if (cp_buffer(objects[0], &theirs, 1, 0, "parts of models") == 0) {
        if (cp_buffer(objects[1], &of, 1, 0, "parts of rows") == 0) {
            cp_parts p = {.of = of.buf, .model_fold = theirs.buf};
            if (theirs.len != PyList_Size(models))
                PyErr_SetString(PyExc_ValueError, "parts must have one entry per model");
            else
                result = teams_of(all, PyList_Size(models), of.len, &p);
            PyBuffer_Release(&of);
        }
        PyBuffer_Release(&theirs);
    }
    free(all);
    return result;
}

/* Train all models; returns status and visits done per model. */
static PyObject *learn_parts(model_object **all, Py_ssize_t count, const cp_rows *rows, cp_parts *p)
{
    PyObject *result = NULL;
    cp_sgd **states = calloc((size_t)count, sizeof *states);
    Py_ssize_t busy_count = 0;
    p->left = calloc((size_t)count, sizeof *p->left);
    p->status = calloc((size_t)count, 2 * sizeof *p->status);
    p->done = calloc((size_t)count, 2 * sizeof *p->done);
    p->visit = calloc((size_t)p->each, sizeof *p->visit);
    p->number = calloc((size_t)p->each, sizeof *p->number);
    p->group = calloc((size_t)count, sizeof *p->group);
    for (; states && busy_count < count && !all[busy_count]->busy; busy_count++) { /* a model listed twice is busy */
        all[busy_count]->busy = 1;
        states[busy_count] = all[busy_count]->state;
    }
    if (!states || !p->left || !p->status || !p->done || !p->visit || !p->number || !p->group)
        PyErr_NoMemory();
    else if (busy_count < count)
        PyErr_SetString(PyExc_ValueError, "models must be distinct");
    else {
        Py_BEGIN_ALLOW_THREADS
        cp_sgd_learn_parts(states, count, rows, p);
        Py_END_ALLOW_THREADS
        result = PyList_New(count);
    }
    for (Py_ssize_t i = 0; i < busy_count; i++)
        all[i]->busy = 0;
    for (Py_ssize_t i = 0; result && i < count; i++)
        if (PyList_SetItem(result, i, Py_BuildValue("iL", p->status[i], (long long)p->done[i])) < 0)
            Py_CLEAR(result);
    free(states), free(p->left), free(p->status), free(p->done), free(p->visit), free(p->number), free(p->group);
    return result;
}

/* sgd_parts(models, theirs, own, rows, y, y_type, visit, weights, weights_type, of, each); rows: as above */
static PyObject *sgd_parts(PyObject *self, PyObject *args)
{
    PyObject *models, *theirs, *rows, *y, *visit, *weights, *of, *result = NULL;
    rows_object r = {0};
    cp_parts p = {0};
    model_object **all;
    long long each;
    int type, weights_type, t, o;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OpOOiOOiOL", &PyList_Type, &models, &theirs, &p.own, &rows, &y, &type, &visit,
                          &weights, &weights_type, &of, &each)
        || !(all = models_take(models)))
        return NULL;
    const Py_ssize_t count = PyList_Size(models);
    if (rows_any(&r, all[0]->state, rows) == 0 && rows_labels(&r, y, type) == 0
        && rows_weights(&r, weights, weights_type) == 0 && rows_visit(&r, visit) == 0
        && (t = rows_hold(&r, theirs, 1, 0, "parts of models")) >= 0
        && (o = rows_hold(&r, of, 1, 0, "parts of visits")) >= 0) {
        p.model_fold = r.view[t].buf;
        p.of = r.view[o].buf;
        p.each = each < r.rows.m ? each : r.rows.m + (r.rows.m == 0);
        if (r.view[t].len != count || r.view[o].len != r.rows.m || each < 1)
            PyErr_SetString(PyExc_ValueError,
                            "parts must have one entry per model and per visit, and `each` must be at least 1");
        else
            result = learn_parts(all, count, &r.rows, &p);
    }
    rows_release(&r);
    free(all);
    return result;
}

PyMethodDef cp_groups_methods[] = {
    {"sgd_at_once", sgd_at_once, METH_VARARGS, "Return how many such models visit a row at once."},
    {"sgd_each", sgd_each, METH_VARARGS, "Train several models on the same rows, each with its own labels."},
    {"sgd_groups", sgd_groups, METH_VARARGS, "Train several models, each on its own rows."},
    {"sgd_parts", sgd_parts, METH_VARARGS, "Train several models on the same rows, except one fold each."},
    {"sgd_teams", sgd_teams, METH_VARARGS, "Return which of several models visit rows at once."},
    {NULL, NULL, 0, NULL},
};
