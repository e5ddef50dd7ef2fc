/* Binds losses, baselines and learning rates: kernel/sgd/losses.h, baseline.h and epochs.h. */
#include "bind.h"
#include "sgd/baseline.h"
#include "sgd/epochs.h"
#include "sgd/sgd.h"

/* sgd_probabilities(loss, scores[rows, classes], classes): in place */
static PyObject *sgd_probabilities(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(scores, "scores", 8, CP_WRITE);
    long long classes;
    int loss;
    if (!PyArg_ParseTuple(args, "iO&L", &loss, CP_HOLD(scores), &classes))
        return NULL;
    if (loss < 0 || loss >= CP_LOSS_COUNT)
        classes = 0;
    double *row = scores.at;
    for (int64_t rows = classes > 0 ? scores.count / classes : 0; rows > 0; rows--, row += classes)
        cp_sgd_probabilities((enum cp_loss)loss, row, classes);
    Py_RETURN_NONE;
}

/* sgd_exp(array): in place */
static PyObject *sgd_exp(PyObject *Py_UNUSED(self), PyObject *array)
{
    CP_ARRAY(scores, "scores", 8, CP_WRITE);
    if (!cp_hold(array, &scores))
        return NULL;
    for (int64_t i = 0; i < scores.count; i++)
        ((double *)scores.at)[i] = cp_exp(((double *)scores.at)[i]);
    Py_RETURN_NONE;
}

/* sgd_loss(text, classes) -> parse status, loss, parameter */
static PyObject *sgd_loss(PyObject *Py_UNUSED(self), PyObject *args)
{
    const char *text;
    long long classes;
    cp_loss_choice choice = {0};
    if (!PyArg_ParseTuple(args, "sL", &text, &classes))
        return NULL;
    int status = (int)cp_loss_read(text, classes, &choice);
    return Py_BuildValue("iid", status, (int)choice.loss, choice.parameter);
}

static int read_choice(cp_loss_choice *of, int loss, double parameter)
{
    if (loss < 0 || loss >= CP_LOSS_COUNT)
        return PyErr_Format(PyExc_ValueError, "loss must be 0 to %d, got %d", CP_LOSS_COUNT - 1, loss), -1;
    *of = (cp_loss_choice){(enum cp_loss)loss, parameter};
    return 0;
}

/* sgd_constant(loss, parameter, labels, weights) -> mean loss of a margin of 0, and of the best margin */
static PyObject *sgd_constant(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(labels, "labels", 8);
    CP_ARRAY(weights, "weights", 8);
    double parameter;
    int loss;
    cp_loss_choice of;
    if (!PyArg_ParseTuple(args, "idO&O&", &loss, &parameter, CP_HOLD(labels), CP_HOLD(weights)) ||
        read_choice(&of, loss, parameter) < 0)
        return NULL;
    if (weights.count != labels.count)
        return PyErr_Format(PyExc_ValueError, "labels and weights must have the same length");
    const cp_labelled rows = {of, labels.at, weights.at, labels.count};
    return Py_BuildValue("dd", cp_mean_loss(&rows, 0), cp_least_loss(&rows));
}

/* sgd_constant_of_classes(loss, parameter, shares) -> loss of zero weights, and of the best constant */
static PyObject *sgd_constant_of_classes(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(shares, "shares", 8);
    double parameter;
    int loss;
    cp_loss_choice of;
    if (!PyArg_ParseTuple(args, "idO&", &loss, &parameter, CP_HOLD(shares)) || read_choice(&of, loss, parameter) < 0)
        return NULL;
    return Py_BuildValue("dd", cp_zero_loss_of_classes(of, shares.count),
                         cp_least_loss_of_classes(of, shares.at, shares.count));
}

/* Add each label to the sums of its model; number NULL: to the first. */
static PyObject *add_untrained(cp_labelled rows, const int64_t *number, cp_untrained *sums, int64_t models)
{
    const cp_labelled all = rows;
    for (int64_t i = 0; number && i < all.count; i++)
        if (number[i] < 0 || number[i] >= models)
            return PyErr_Format(PyExc_ValueError, "numbers of models must be 0 to %lld, got %lld",
                                (long long)models - 1, (long long)number[i]);
    if (!number)
        cp_untrained_add(sums, &rows, NULL);
    for (int64_t i = 0; number && i < all.count; i++) {
        rows = (cp_labelled){all.of, all.y + i, all.weight ? all.weight + i : NULL, 1};
        cp_untrained_add(sums + number[i], &rows, NULL);
    }
    Py_RETURN_NONE;
}

/* sgd_untrained(loss, parameter, labels, weights, sums[models, 3], numbers): add the loss of zero weights on numeric
 * labels, and their weights, to the sums of their models; weights and numbers, those of the models, may be None */
static PyObject *sgd_untrained(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(labels, "labels", 8);
    CP_ARRAY(weights, "weights", 8, CP_READ, 1);
    CP_ARRAY(sums, "sums", 8, CP_WRITE);
    CP_ARRAY(numbers, "numbers", 8, CP_READ, 1);
    double parameter;
    int loss;
    cp_loss_choice of;
    if (!PyArg_ParseTuple(args, "idO&O&O&O&", &loss, &parameter, CP_HOLD(labels), CP_HOLD(weights), CP_HOLD(sums),
                          CP_HOLD(numbers)) ||
        read_choice(&of, loss, parameter) < 0)
        return NULL;
    if ((weights.at && weights.count != labels.count) || (numbers.at && numbers.count != labels.count))
        return PyErr_Format(PyExc_ValueError, "labels, weights and numbers must have the same length");
    const int64_t models = sums.bytes / (Py_ssize_t)sizeof(cp_untrained);
    if (models < 1 || sums.bytes % (Py_ssize_t)sizeof(cp_untrained) || cp_losses[loss].labels != CP_NUMBERS)
        return PyErr_Format(PyExc_ValueError,
                            "loss must be a regression loss, and sums must have three entries per model");
    return add_untrained((cp_labelled){of, labels.at, weights.at, labels.count}, numbers.at, sums.at, models);
}

static PyObject *sgd_adrift(PyObject *Py_UNUSED(self), PyObject *args)
{
    double loss, untrained;
    if (!PyArg_ParseTuple(args, "dd", &loss, &untrained))
        return NULL;
    return PyBool_FromLong(cp_sgd_diverged(loss, untrained));
}

/* sgd_again(step, rate, mean loss, untrained, far) -> learning rate of a restart, or 0 */
static PyObject *sgd_again(PyObject *Py_UNUSED(self), PyObject *args)
{
    int step;
    double rate, mean, untrained, far;
    if (!PyArg_ParseTuple(args, "idddd", &step, &rate, &mean, &untrained, &far))
        return NULL;
    if (step < 0 || step >= CP_STEP_COUNT)
        return PyErr_Format(PyExc_ValueError, "step must be one of the table, got %d", step);
    return PyFloat_FromDouble(cp_sgd_restart_rate((enum cp_step)step, rate, mean, untrained, far));
}

static PyObject *sgd_lowered(PyObject *Py_UNUSED(self), PyObject *rate)
{
    const double value = PyFloat_AsDouble(rate);
    return value == -1 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(cp_sgd_reduced_rate(value));
}

static PyObject *sgd_rate(PyObject *Py_UNUSED(self), PyObject *args)
{
    int step;
    double rate, decay;
    long long epoch;
    if (!PyArg_ParseTuple(args, "iddL", &step, &rate, &decay, &epoch))
        return NULL;
    if (step < 0 || step >= CP_STEP_COUNT)
        return PyErr_Format(PyExc_ValueError, "step must be 0 to %d, got %d", CP_STEP_COUNT - 1, step);
    return PyFloat_FromDouble(cp_sgd_rate((enum cp_step)step, rate, decay, epoch));
}

/* sgd_verdict(losses, tolerance) -> one of enum cp_verdict */
static PyObject *sgd_verdict(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(losses, "losses", 8);
    double tolerance;
    if (!PyArg_ParseTuple(args, "O&d", CP_HOLD(losses), &tolerance))
        return NULL;
    return PyLong_FromLong(losses.count ? cp_verdict(losses.at, losses.count, tolerance) : CP_GO_ON);
}

PyMethodDef cp_losses_methods[] = {
    {"sgd_again", sgd_again, METH_VARARGS, "Return the learning rate of a restart with a default rate, or 0."},
    {"sgd_adrift", sgd_adrift, METH_VARARGS, "Return whether the loss of an epoch shows that training diverged."},
    {"sgd_constant", sgd_constant, METH_VARARGS, "Return the loss of a margin of 0, and of the best margin."},
    {"sgd_constant_of_classes", sgd_constant_of_classes, METH_VARARGS,
     "Return the loss of zero weights and of the best constant, from class shares."},
    {"sgd_exp", sgd_exp, METH_O, "Turn scores into predictions of a logarithmic link."},
    {"sgd_loss", sgd_loss, METH_VARARGS, "Parse the name of a loss and its parameter."},
    {"sgd_lowered", sgd_lowered, METH_O, "Return the reduced learning rate, or 0."},
    {"sgd_probabilities", sgd_probabilities, METH_VARARGS, "Turn scores of classes into probabilities."},
    {"sgd_rate", sgd_rate, METH_VARARGS, "Return the learning rate of an epoch."},
    {"sgd_untrained", sgd_untrained, METH_VARARGS, "Add the loss of zero weights on numeric labels."},
    {"sgd_verdict", sgd_verdict, METH_VARARGS, "Return whether training continues, from the losses so far."},
    {NULL, NULL, 0, NULL},
};

/* Return one tuple per line of the table: name, labels, probability, exponential, not_negative, of_mean, rest, score,
 * parameter, below. */
static PyObject *make_losses(void)
{
    PyObject *losses = PyTuple_New(CP_LOSS_COUNT);
    for (int i = 0; losses && i < CP_LOSS_COUNT; i++) {
        const cp_loss_facts *f = &cp_losses[i];
        PyObject *line = Py_BuildValue("siOOOOOszd", f->name, (int)f->labels, f->probability ? Py_True : Py_False,
                                       f->exponential ? Py_True : Py_False, f->not_negative ? Py_True : Py_False,
                                       f->of_mean ? Py_True : Py_False, f->rest ? Py_True : Py_False,
                                       cp_loss_score((enum cp_loss)i), f->parameter, f->below);
        if (!line || PyTuple_SetItem(losses, i, line) < 0)
            Py_CLEAR(losses);
    }
    return losses;
}

/* Return one tuple per line of the table: name, default rate, whether it takes a decay, whether it has one rate for all
 * weights, whether the rate is fixed. */
static PyObject *make_steps(void)
{
    PyObject *steps = PyTuple_New(CP_STEP_COUNT);
    for (int i = 0; steps && i < CP_STEP_COUNT; i++) {
        const cp_step_facts *f = &cp_steps[i];
        PyObject *line = Py_BuildValue("sdOOO", f->name, f->usual, f->fading == CP_BY_FACTOR ? Py_True : Py_False,
                                       f->rule == CP_SAME ? Py_True : Py_False, f->fixed ? Py_True : Py_False);
        if (!line || PyTuple_SetItem(steps, i, line) < 0)
            Py_CLEAR(steps);
    }
    return steps;
}

const cp_constant cp_losses_constants[] = {
    {"TWO_CLASSES", CP_TWO_CLASSES},
    {"CLASSES", CP_CLASSES},
    {"NUMBERS", CP_NUMBERS},
    {"MOST_CLASSES", CP_MAX_CLASSES},
    {"LOSS_UNKNOWN", CP_LOSS_UNKNOWN},
    {"LOSS_TAKES_NONE", CP_LOSS_TAKES_NONE},
    {"LOSS_BAD_PARAMETER", CP_LOSS_BAD_PARAMETER},
    {"BAD_LABEL", CP_SGD_BAD_LABEL},
    {"LABEL_VALUE", CP_SGD_LABEL_VALUE},
    {"BAD_VALUE", CP_SGD_BAD_VALUE},
    {"BAD_WEIGHT", CP_SGD_BAD_WEIGHT},
    {"BAD_INDEX", CP_SGD_BAD_INDEX},
    {"BAD_ORDER", CP_SGD_BAD_ORDER},
    {"DIVERGED", CP_SGD_DIVERGED},
    {"ENOUGH", CP_ENOUGH},
    {"LOSS_GROWS", CP_LOSS_GROWS},
    {NULL, 0},
};

int cp_add_losses(PyObject *module)
{
    PyObject *losses = make_losses(), *steps = make_steps();
    int added = losses && steps && PyModule_AddObjectRef(module, "LOSSES", losses) == 0 &&
                PyModule_AddObjectRef(module, "STEPS", steps) == 0;
    Py_XDECREF(losses);
    Py_XDECREF(steps);
    return added ? 0 : -1;
}
