/* Linear models that learn side by side, each from rows of its own. */
#include "bind.h"
#include "sgd/epochs.h"
#include "sgd_model.h"
#include "sgd_rows.h"

/* Take all models of a list, of the same form; returns an array for the caller to free. */
static model_object **models_take(PyObject *list)
{
    const Py_ssize_t count = PyList_Size(list);
    model_object **all = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *all);
    if (!all)
        return count < 0 ? NULL : (model_object **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        const cp_sgd *s;
        if (!(all[i] = model_take(PyList_GetItem(list, i))))
            break;
        s = all[i]->state;
        if (s->bytes != all[0]->state->bytes || s->sparse != all[0]->state->sparse || s->features != all[0]->state->features) {
            PyErr_SetString(PyExc_ValueError, "models of one call must take the same rows");
            break;
        }
    }
    if (count == 0)
        PyErr_SetString(PyExc_ValueError, "a model is needed");
    if (!PyErr_Occurred())
        return all;
    free(all);
    return NULL;
}

/* Let each model learn from its part of the visits: model i from starts[i] to starts[i + 1]. */
static PyObject *learn_groups(model_object **all, Py_ssize_t count, rows_object *r, PyObject *starts)
{
    int status = CP_SGD_OK, at = rows_hold(r, starts, sizeof(int64_t), 0, "starts");
    int64_t done = 0, place = r->rows.m;
    if (at < 0)
        return NULL;
    const int64_t *start = r->view[at].buf;
    if (r->view[at].len != (count + 1) * (Py_ssize_t)sizeof *start || start[0] < 0 || start[count] > r->rows.m)
        return PyErr_SetString(PyExc_ValueError, "starts must be one more than models, within the visits"), NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (start[i] > start[i + 1])
            return PyErr_SetString(PyExc_ValueError, "starts must not fall"), NULL;
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

/* sgd_groups(models, starts, rows, y, y_type, visit, weights, weights_type); rows: an array, or (indices, values, lengths) */
static PyObject *sgd_groups(PyObject *self, PyObject *args)
{
    PyObject *models, *starts, *rows, *y, *visit, *weights, *result = NULL;
    rows_object r = {0};
    model_object **all;
    int type, weights_type, held;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OOOiOOi", &PyList_Type, &models, &starts, &rows, &y, &type, &visit, &weights, &weights_type) ||
        !(all = models_take(models)))
        return NULL;
    if (PyTuple_Check(rows) && PyTuple_Size(rows) == 3)
        held = rows_sparse(&r, all[0]->state, PyTuple_GetItem(rows, 0), PyTuple_GetItem(rows, 1), PyTuple_GetItem(rows, 2));
    else
        held = rows_dense(&r, all[0]->state, rows);
    if (held == 0 && rows_labels(&r, y, type) == 0 && rows_weights(&r, weights, weights_type) == 0 && rows_visit(&r, visit) == 0)
        result = learn_groups(all, PyList_Size(models), &r, starts);
    rows_release(&r);
    free(all);
    return result;
}

PyMethodDef cp_groups_methods[] = {
    {"sgd_groups", sgd_groups, METH_VARARGS, "Let each of several models learn from rows of its own."},
    {NULL, NULL, 0, NULL},
};
