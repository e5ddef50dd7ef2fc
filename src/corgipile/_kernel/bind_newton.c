/* Binds Newton's method for linear models: kernel/newton/newton.h. Different threads may fill different lanes. */
#include "bind.h"
#include "newton/newton.h"
#include "newton/shrink.h"
#include "sgd_rows.h"

#define NEWTON "corgipile.newton"

static void newton_destroy(PyObject *capsule)
{
    free(PyCapsule_GetContext(capsule)); /* the memory; the state in it is aligned */
}

CP_CAPSULE(newton_of, NEWTON)

static PyObject *newton_create(const cp_newton_shape *shape)
{
    void *memory = calloc(1, cp_newton_size(shape) + CP_LINE);
    if (!memory)
        return PyErr_NoMemory();
    cp_newton *s = (cp_newton *)(((uintptr_t)memory + CP_LINE - 1) / CP_LINE * CP_LINE);
    cp_newton_init(s, shape);
    PyObject *capsule = PyCapsule_New(s, NEWTON, NULL);
    if (!capsule || PyCapsule_SetContext(capsule, memory) < 0 || PyCapsule_SetDestructor(capsule, newton_destroy) < 0) {
        free(memory);
        Py_CLEAR(capsule);
    }
    return capsule;
}

/* newton_new(loss, parameter, classes, *, ...) */
static PyObject *newton_new(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *names[] = {"", "", "", "number_bytes", "sparse", "features", "outputs", "intercept", "skip",
                            "class_weight", "isa", NULL};
    CP_ARRAY(classes, "classes", 8);
    CP_ARRAY(weights, "weights of classes", 8, CP_READ, 1);
    cp_newton_shape shape = {0};
    long long features, outputs;
    int loss;
    if (!PyArg_ParseTupleAndKeywords(args, named, "idO&$ipLLppO&i", names, &loss, &shape.parameter, CP_HOLD(classes),
                                     &shape.bytes, &shape.sparse, &features, &outputs, &shape.intercept, &shape.skip,
                                     CP_HOLD(weights), &shape.isa))
        return NULL;
    if (loss < 0 || loss >= CP_LOSS_COUNT || !cp_newton_has((enum cp_loss)loss)
        || (shape.bytes != 4 && shape.bytes != 8))
        return PyErr_Format(PyExc_ValueError, "loss %d must have second derivatives, and reals 4 or 8 bytes", loss);
    shape.loss = (enum cp_loss)loss;
    const int per_class = cp_loss_per_class(shape.loss);
    const long long count = per_class ? outputs : cp_losses[loss].labels == CP_NUMBERS ? 0 : 2;
    if (features < 1 || outputs < 1 || features > 1 << 20 || outputs > CP_MAX_CLASSES || features * outputs > 1 << 20
        || (!per_class && outputs != 1) || classes.count != count || (weights.view.obj && weights.count != count))
        return PyErr_Format(PyExc_ValueError, "features %lld, outputs %lld or classes %lld are out of range", features,
                            outputs, (long long)classes.count);
    shape.features = features;
    shape.outputs = outputs;
    shape.classes = classes.at;
    shape.class_weight = weights.at;
    return newton_create(&shape);
}

/* newton_lanes(state) -> number of lanes */
static PyObject *newton_lanes(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    cp_newton *s;
    return newton_of(capsule, &s) ? PyLong_FromLongLong(s->lanes) : NULL;
}

/* newton_begin(state, matrix, start, blend, width, weights, center, factor) */
static PyObject *newton_begin(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(weights, "weights", 8);
    CP_ARRAY(center, "center", 8);
    CP_ARRAY(factor, "factor", 8);
    cp_newton *s;
    int matrix, start;
    double blend, width;
    if (!PyArg_ParseTuple(args, "O&ipddO&O&O&", newton_of, &s, &matrix, &start, &blend, &width,
                          CP_HOLD(weights), CP_HOLD(center), CP_HOLD(factor)))
        return NULL;
    if (weights.count != s->form.outputs * s->width || center.count != s->form.features
        || factor.count != center.count || matrix < CP_NEWTON_NONE || matrix > CP_NEWTON_TRIANGLE)
        return PyErr_Format(PyExc_ValueError, "weights must be [%lld, %lld], center and factor one per feature",
                            (long long)s->form.outputs, (long long)s->width);
    cp_newton_begin(s, (enum cp_newton_matrix)matrix, start, blend, width, weights.at, center.at, factor.at);
    Py_RETURN_NONE;
}

/* newton_add(state, lane, rows, labels, y_type, weights, weights_type, visit, first) -> status, place */
static PyObject *newton_add(PyObject *Py_UNUSED(self), PyObject *args)
{
    ROWS(r);
    rows_arguments given;
    cp_newton *s;
    long long lane, first;
    if (!PyArg_ParseTuple(args, "O&LOOiOiOL", newton_of, &s, &lane, &given.features, &given.labels, &given.label_type,
                          &given.weights, &given.weight_type, &given.visit, &first)
        || rows_take(&r, &given, s->form.bytes, s->form.sparse, s->form.features) < 0)
        return NULL;
    if (lane < 0 || lane >= s->lanes || first < 0 || !cp_slots_fit(r.rows.visit, r.rows.m, r.rows.slots))
        return PyErr_Format(PyExc_ValueError, "lane %lld or a slot is out of range", lane);
    Py_BEGIN_ALLOW_THREADS
    cp_newton_add(s, lane, &r.rows, first);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("iL", s->lane[lane].totals.status, (long long)s->lane[lane].totals.bad);
}

/* newton_end(state, gradient [outputs, width], matrices [pairs, size, size] or None) -> rows, skipped, wrong; weighted
 * sums of losses, correct rows, squared errors, labels, squared labels, weights */
static PyObject *newton_end(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(gradient, "gradient", 8, CP_WRITE);
    CP_ARRAY(matrix, "matrices", 8, CP_WRITE, 1);
    cp_newton *s;
    if (!PyArg_ParseTuple(args, "O&O&O&", newton_of, &s, CP_HOLD(gradient), CP_HOLD(matrix)))
        return NULL;
    const int64_t outputs = s->form.outputs, width = s->width, size = width + (s->pass == CP_NEWTON_TRIANGLE);
    if (gradient.count != outputs * width || (matrix.at && matrix.count != s->pairs * size * size))
        return PyErr_Format(PyExc_ValueError, "gradient must be [%lld, %lld], matrices [%lld, %lld, %lld]",
                            (long long)outputs, (long long)width, (long long)s->pairs, (long long)size,
                            (long long)size);
    Py_BEGIN_ALLOW_THREADS
    cp_newton_end(s);
    for (int64_t k = 0; k < outputs; k++)
        for (int64_t j = 0; j < width; j++)
            ((double *)gradient.at)[k * width + j] = s->lane->high[k * s->padded + j] + s->lane->low[k * s->padded + j];
    for (int64_t i = 0; matrix.at && i < s->pairs * size; i++)
        memcpy((double *)matrix.at + i * size, s->lane->matrix + (i / size * s->padded + i % size) * s->padded,
               (size_t)size * sizeof(double));
    Py_END_ALLOW_THREADS
    const cp_newton_totals *t = &s->lane->totals;
    return Py_BuildValue("LLLdddddd", (long long)t->rows, (long long)t->skipped, (long long)t->wrong,
                         t->loss + t->lost, t->correct, t->squares, t->sum, t->square, t->weight);
}

/* Return the size of a square matrix; -1 with an error set unless it is one, with `more` rows of its size. */
static int64_t size_of(const cp_array *matrix, const cp_array *more)
{
    int64_t n = (int64_t)sqrt((double)matrix->count);
    if (n > 0 && n * n == matrix->count && more->count % n == 0)
        return n;
    return PyErr_SetString(PyExc_ValueError, "the matrix must be square, and fit the other array"), -1;
}

/* newton_factor(matrix, tolerance): Cholesky in place -> smallest relative pivot */
static PyObject *newton_factor(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(matrix, "matrix", 8, CP_WRITE);
    double tolerance, least;
    if (!PyArg_ParseTuple(args, "O&d", CP_HOLD(matrix), &tolerance))
        return NULL;
    const int64_t n = size_of(&matrix, &matrix);
    if (n < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    least = cp_cholesky(matrix.at, n, tolerance);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(least);
}

/* newton_rotate(triangle, rows, tolerance): rotate rows, which are overwritten, into a triangle whose last column is a
 * right-hand side; then make dependent columns 0 -> smallest other diagonal, relative to its column */
static PyObject *newton_rotate(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(triangle, "triangle", 8, CP_WRITE);
    CP_ARRAY(rows, "rows", 8, CP_WRITE);
    double tolerance, least;
    if (!PyArg_ParseTuple(args, "O&O&d", CP_HOLD(triangle), CP_HOLD(rows), &tolerance))
        return NULL;
    const int64_t n = size_of(&triangle, &rows);
    double *work = n < 0 ? NULL : malloc((size_t)n * 2 * sizeof *work);
    if (!work)
        return n < 0 ? NULL : PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    cp_triangle_add(triangle.at, n, 0, rows.at, rows.count / n, n, work);
    least = cp_triangle_rank(triangle.at, n, n, tolerance, work);
    Py_END_ALLOW_THREADS
    free(work);
    return PyFloat_FromDouble(least);
}

/* newton_solve(triangle, right, whole): solve R x = b in place, or, `whole`, R'R x = b */
static PyObject *newton_solve(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(triangle, "triangle", 8);
    CP_ARRAY(right, "right-hand side", 8, CP_WRITE);
    int whole;
    if (!PyArg_ParseTuple(args, "O&O&p", CP_HOLD(triangle), CP_HOLD(right), &whole))
        return NULL;
    const int64_t n = size_of(&triangle, &right);
    if (n < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (whole)
        cp_triangle_forward(triangle.at, n, n, right.at);
    cp_triangle_back(triangle.at, n, n, right.at);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* newton_shrink(matrix, slope, weights, l1, sweeps): coordinate descent in place -> whether weights still move */
static PyObject *newton_shrink(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(matrix, "matrix", 8);
    CP_ARRAY(slope, "slopes", 8, CP_WRITE);
    CP_ARRAY(weights, "weights", 8, CP_WRITE);
    CP_ARRAY(l1, "l1", 8);
    long long sweeps;
    int moved;
    if (!PyArg_ParseTuple(args, "O&O&O&O&L", CP_HOLD(matrix), CP_HOLD(slope), CP_HOLD(weights), CP_HOLD(l1), &sweeps))
        return NULL;
    const int64_t n = size_of(&matrix, &matrix);
    if (n < 0 || slope.count != n || weights.count != n || l1.count != n)
        return n < 0 ? NULL : PyErr_Format(PyExc_ValueError, "slopes, weights and l1 must be %lld each", (long long)n);
    Py_BEGIN_ALLOW_THREADS
    moved = cp_shrink(matrix.at, n, l1.at, sweeps, slope.at, weights.at);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(moved);
}

PyMethodDef cp_newton_methods[] = {
    {"newton_add", newton_add, METH_VARARGS, "Add rows to the sums of a lane."},
    {"newton_begin", newton_begin, METH_VARARGS, "Begin a pass."},
    {"newton_end", newton_end, METH_VARARGS, "End a pass and copy its sums out."},
    {"newton_factor", newton_factor, METH_VARARGS, "Factor a matrix by Cholesky."},
    {"newton_lanes", newton_lanes, METH_O, "Return the number of lanes."},
    {"newton_new", CP_BY_NAME(newton_new), "Create a state."},
    {"newton_rotate", newton_rotate, METH_VARARGS, "Rotate rows into a triangle and find its rank."},
    {"newton_shrink", newton_shrink, METH_VARARGS, "Minimise a quadratic model with an L1 penalty."},
    {"newton_solve", newton_solve, METH_VARARGS, "Solve a triangular system."},
    {NULL, NULL, 0, NULL},
};
