/* Binds the orders of kernel/plan/plan.h. */
#include "objects.h"
#include "plan/seriate.h"
#include "plan/fit.h"

static PyObject *balance(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(values, "values", 8);
    CP_ARRAY(out, "out", 8, CP_WRITE);
    unsigned long long key;
    int status;
    if (!PyArg_ParseTuple(args, "O&KO&", CP_HOLD(values), &key, CP_HOLD(out)))
        return NULL;
    if (values.count != out.count)
        return PyErr_Format(PyExc_ValueError, "values and out must have the same length");
    Py_BEGIN_ALLOW_THREADS
    status = cp_balance(values.at, values.count, key, out.at);
    Py_END_ALLOW_THREADS
    return status < 0 ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

/* balance_vectors(vectors int16[blocks, width], width, key, out int64[blocks]) */
static PyObject *balance_vectors(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(vectors, "vectors", 2);
    CP_ARRAY(out, "out", 8, CP_WRITE);
    unsigned long long key;
    int status, width;
    if (!PyArg_ParseTuple(args, "O&iKO&", CP_HOLD(vectors), &width, &key, CP_HOLD(out)))
        return NULL;
    if (width < 1 || width > CP_TRAITS || out.count > CP_MAX_BLOCKS || vectors.count != out.count * width)
        return PyErr_Format(PyExc_ValueError,
                            "vectors of %lld bytes must have %d numbers, 1 to %d, for each of %lld blocks",
                            (long long)vectors.bytes, width, CP_TRAITS, (long long)out.count);
    Py_BEGIN_ALLOW_THREADS
    status = cp_balance_vectors(vectors.at, out.count, width, key, out.at);
    Py_END_ALLOW_THREADS
    return status < 0 ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

static void plan_destroy(PyObject *capsule)
{
    plan_object *object = PyCapsule_GetPointer(capsule, PLAN);
    cp_plan_free(&object->plan);
    PyBuffer_Release(&object->cuts);
    PyBuffer_Release(&object->order);
    free(object);
}

static int plan_arrays(plan_object *object, cp_spec *spec, PyObject *cuts, PyObject *order)
{
    if (cuts != Py_None) {
        if (cp_buffer(cuts, &object->cuts, 8, 0, "cuts") < 0)
            return -1;
        spec->cuts = object->cuts.buf;
        if (object->cuts.len / 8 != spec->blocks + 1)
            return PyErr_Format(PyExc_ValueError, "cuts must have blocks + 1 entries, got %zd", object->cuts.len / 8),
                   -1;
    }
    if (order != Py_None) {
        if (cp_buffer(order, &object->order, 8, 0, "order") < 0)
            return -1;
        spec->order = object->order.buf;
        if (object->order.len / 8 != spec->blocks)
            return PyErr_Format(PyExc_ValueError, "order must have one entry per block, got %zd",
                                object->order.len / 8), -1;
        uint64_t bad = 0, blocks = (uint64_t)spec->blocks;
        for (int64_t i = 0; i < spec->blocks; i++) /* branchless: with lanes there are many plans, each of all blocks */
            bad |= (uint64_t)spec->order[i] >= blocks;
        if (bad)
            return PyErr_SetString(PyExc_ValueError, "order must name existing blocks"), -1;
    }
    for (int64_t i = 0; spec->cuts && i < spec->blocks; i++)
        if (spec->cuts[i] > spec->cuts[i + 1] || spec->cuts[i] < 0 || spec->cuts[i + 1] > spec->rows)
            return PyErr_SetString(PyExc_ValueError, "cuts must ascend from 0 to the number of rows"), -1;
    return 0;
}

/* Convert the name of an order to its number, for "O&". */
static int order_kind(PyObject *name, void *kind)
{
    PyObject *bytes = PyUnicode_AsUTF8String(name);
    if (!bytes)
        return 0;
    *(int32_t *)kind = cp_order_named(PyBytes_AsString(bytes));
    Py_DecRef(bytes);
    if (*(int32_t *)kind >= 0)
        return 1;
    PyErr_Format(PyExc_ValueError, "order must be one of the kernel's, got %R", name);
    return 0;
}

static PyObject *plan_new(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *names[] = {"",     "",     "",       "blocks", "even",  "cuts",  "order", "first",
                            "stop", "buffer", "group", "whole",  "ahead", "start", NULL};
    cp_spec spec = {.kind = 0};
    PyObject *cuts, *order;
    unsigned long long key;
    long long rows, blocks, even, first, stop, buffer, group, start;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&LK$LLOOLLLLpiL", names, order_kind, &spec.kind, &rows, &key,
                                     &blocks, &even, &cuts, &order, &first, &stop, &buffer, &group, &spec.whole,
                                     &spec.ahead, &start))
        return NULL;
    spec.rows = rows, spec.blocks = blocks, spec.even = even, spec.key = key, spec.first_row = first;
    spec.stop_row = stop, spec.buffer = buffer, spec.group = group;
    if (blocks >= CP_MAX_BLOCKS || blocks < 0 || buffer < 1 || group < 1 || first < 0 || stop > rows || start < 0 ||
        spec.ahead < 0 || spec.ahead > 64 || (cuts == Py_None && even < 1))
        return PyErr_Format(PyExc_ValueError,
                            "a plan must have 0 to %lld blocks, got %lld, and buffer and group of at least 1",
                            (long long)CP_MAX_BLOCKS - 1, blocks);
    plan_object *object = calloc(1, sizeof *object);
    PyObject *capsule = object ? PyCapsule_New(object, PLAN, plan_destroy) : NULL;
    if (!capsule) {
        free(object);
        return object ? NULL : PyErr_NoMemory();
    }
    if (plan_arrays(object, &spec, cuts, order) == 0) {
        int status;
        if (cp_slots(&spec, cp_max64(cp_widest(&spec), 1), spec.blocks) > INT32_MAX) {
            Py_DecRef(capsule);
            return PyErr_Format(PyExc_ValueError, "a buffer must have at most 2^31 - 1 slots");
        }
        Py_BEGIN_ALLOW_THREADS
        status = cp_plan_init(&object->plan, &spec, start);
        Py_END_ALLOW_THREADS
        if (status == 0)
            return capsule;
        PyErr_NoMemory();
    }
    Py_DecRef(capsule);
    return NULL;
}

static PyObject *plan_begin(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    plan_object *object = PyCapsule_GetPointer(capsule, PLAN);
    int status;
    if (!object)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = cp_plan_begin(&object->plan);
    Py_END_ALLOW_THREADS
    if (status < 0)
        return PyErr_NoMemory();
    if (status == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLLL)", (long long)object->plan.extents, (long long)object->plan.reads,
                         (long long)object->plan.visits, (long long)cp_plan_swept(&object->plan));
}

static PyObject *plan_next(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(extents, "extents", 8, CP_WRITE);
    CP_ARRAY(into, "into", 4, CP_WRITE);
    CP_ARRAY(visit, "visit", 4, CP_WRITE);
    CP_ARRAY(sweep, "sweep", 4, CP_WRITE);
    int status;
    plan_object *object;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&", cp_plan_of, &object, CP_HOLD(extents), CP_HOLD(into), CP_HOLD(visit),
                          CP_HOLD(sweep)))
        return NULL;
    cp_plan *p = &object->plan;
    if (extents.count / 2 < p->extents || into.count < p->reads || visit.count < p->visits ||
        sweep.count < cp_plan_swept(p))
        return PyErr_Format(PyExc_ValueError,
                            "extents, into, visit and sweep must have the sizes that plan_begin returned");
    Py_BEGIN_ALLOW_THREADS
    status = cp_plan_next(p, extents.at, into.at, sweep.at, visit.at);
    Py_END_ALLOW_THREADS
    if (status < 0)
        return PyErr_Format(PyExc_RuntimeError, "the plan outgrew its buffer bound");
    return status ? Py_NewRef(Py_None) : NULL;
}

/* Parse the sizes of a plan: kind, blocks, widest, buffer, group, whole, ahead. */
static int plan_sizes(PyObject *args, cp_spec *spec, int64_t *blocks, int64_t *widest)
{
    long long sizes[4];
    *spec = (cp_spec){.kind = 0};
    if (!PyArg_ParseTuple(args, "O&LLLLpi", order_kind, &spec->kind, &sizes[0], &sizes[1], &sizes[2], &sizes[3],
                          &spec->whole, &spec->ahead))
        return 0;
    *blocks = sizes[0], *widest = sizes[1], spec->buffer = sizes[2], spec->group = sizes[3];
    return 1;
}

static PyObject *plan_slots(PyObject *Py_UNUSED(self), PyObject *args)
{
    cp_spec spec;
    int64_t blocks, widest;
    return plan_sizes(args, &spec, &blocks, &widest) ? PyLong_FromLongLong(cp_slots(&spec, widest, blocks)) : NULL;
}

static PyObject *plan_bytes(PyObject *Py_UNUSED(self), PyObject *args)
{
    cp_spec spec;
    int64_t blocks, widest;
    return plan_sizes(args, &spec, &blocks, &widest) ? PyLong_FromLongLong(cp_plan_bytes(&spec, widest, blocks)) : NULL;
}

/* plan_fit(kind, rows, row_bytes, *, ...) -> buffer blocks, group, whole */
static PyObject *plan_fit(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *names[] = {"",      "",      "",         "even",  "wanted", "budget",
                            "group", "whole", "balanced", "spare", "ahead",  NULL};
    cp_spec spec = {.kind = 0};
    cp_room room = {.spare = 0};
    long long rows, even, wanted, budget, group;
    double row_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&Ld$LLLLiipi", names, order_kind, &spec.kind, &rows, &row_bytes,
                                     &even, &wanted, &budget, &group, &spec.whole, &room.balanced, &room.spare,
                                     &spec.ahead))
        return NULL;
    if (even < 1 || !(row_bytes > 0))
        return PyErr_Format(PyExc_ValueError, "blocks must have at least 1 row, and rows more than 0 bytes");
    spec.group = group, room.rows = rows, room.blocks = (rows + even - 1) / even, room.widest = even;
    room.wanted = wanted, room.budget = budget, room.step = cp_step_rows(row_bytes);
    room.near = (int64_t)(CP_CACHED_BUFFER_BYTES / row_bytes), room.row_bytes = row_bytes;
    cp_fit(&spec, &room);
    return Py_BuildValue("(LLN)", (long long)spec.buffer, (long long)spec.group, PyBool_FromLong(spec.whole));
}

static PyObject *step_rows(PyObject *Py_UNUSED(self), PyObject *args)
{
    double row_bytes;
    if (!PyArg_ParseTuple(args, "d", &row_bytes))
        return NULL;
    return PyLong_FromLongLong(cp_step_rows(row_bytes));
}

const cp_constant cp_plan_constants[] = {
    {"KEY_BALANCE", CP_KEY_BALANCE}, {"KEY_STREAM", CP_KEY_STREAM}, {"KEY_FULL", CP_KEY_FULL},
    {"KEY_PHASES", CP_KEY_PHASES},
    {"PLAN_BYTES", CP_PLAN_BYTES},
    {"TRAITS", CP_TRAITS}, {NULL, 0}};

PyMethodDef cp_plan_methods[] = {
    {"balance", balance, METH_VARARGS, "Order blocks so that every stretch samples all values."},
    {"balance_vectors", balance_vectors, METH_VARARGS, "Order blocks likewise by vectors."},
    {"plan_begin", plan_begin, METH_O, "Begin the next step and return its sizes."},
    {"plan_fit", CP_BY_NAME(plan_fit), "Choose sizes that fit a budget."},
    {"plan_new", CP_BY_NAME(plan_new), "Create a plan."},
    {"plan_next", plan_next, METH_VARARGS, "Write the current step."},
    {"plan_bytes", plan_bytes, METH_VARARGS, "Return the most bytes that a plan and its steps take."},
    {"plan_slots", plan_slots, METH_VARARGS, "Return the buffer slots that a plan needs."},
    {"step_rows", step_rows, METH_VARARGS, "Return the rows of a step that cover its overhead."},
    {NULL, NULL, 0, NULL},
};
