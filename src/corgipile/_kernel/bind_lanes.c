/* Binds plans in parallel lanes, kernel/plan/lanes.h, and the rows of steps without reading, kernel/plan/follow.h. */
#include "objects.h"
#include "plan/follow.h"
#include "plan/lanes.h"

#define LANES "corgipile.lanes"
CP_CAPSULE(lanes_of, LANES)

typedef struct {
    cp_lanes lanes;
    PyObject *plans; /* list that keeps the plans alive */
} lanes_object;

static void lanes_destroy(PyObject *capsule)
{
    lanes_object *o = PyCapsule_GetPointer(capsule, LANES);
    cp_lanes_free(&o->lanes);
    Py_DecRef(o->plans);
    free(o);
}

/* lanes_new(slots, ahead) */
static PyObject *lanes_new(PyObject *Py_UNUSED(self), PyObject *args)
{
    long long slots, ahead;
    if (!PyArg_ParseTuple(args, "LL", &slots, &ahead))
        return NULL;
    if (slots < 0 || slots > INT32_MAX || ahead < 0 || ahead > 64)
        return PyErr_Format(PyExc_ValueError, "lanes must have 0 to 2^31 - 1 slots, got %lld, and 0 to 64 steps ahead",
                            slots);
    lanes_object *o = calloc(1, sizeof *o);
    if (!o || cp_lanes_init(&o->lanes, slots, ahead) < 0) {
        free(o);
        return PyErr_NoMemory();
    }
    o->plans = PyList_New(0);
    PyObject *capsule = o->plans ? PyCapsule_New(o, LANES, lanes_destroy) : NULL;
    if (!capsule) {
        cp_lanes_free(&o->lanes);
        Py_XDECREF(o->plans);
        free(o);
    }
    return capsule;
}

/* lanes_add(lanes, plan, *, ...) -> its number; from now on only the lanes advance the plan */
static PyObject *lanes_add(PyObject *Py_UNUSED(self), PyObject *args, PyObject *named)
{
    static char *names[] = {"",       "",       "each",    "first", "stop", "group",
                            "groups", "worker", "workers", "place", "skip", NULL};
    PyObject *plan;
    long long each, first, stop, group, groups, worker, workers, place, skip;
    lanes_object *o;
    plan_object *p;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O$LLLLLLLLL", names, lanes_of, &o, &plan, &each, &first, &stop,
                                     &group, &groups, &worker, &workers, &place, &skip) ||
        !cp_plan_of(plan, &p))
        return NULL;
    if (first < 0 || first >= stop || stop > each || groups < 1 || workers < 1 || place < 0 || skip < 0)
        return PyErr_Format(PyExc_ValueError, "lane columns must be a range within `each`, got %lld to %lld of %lld",
                            first, stop, each);
    cp_lane lane = {.plan = &p->plan, .each = each, .first = first, .stop = stop, .group = group, .groups = groups,
                    .worker = worker, .workers = workers, .place = place, .skip = skip};
    if (PyList_Append(o->plans, plan) < 0)
        return NULL;
    int64_t number = cp_lanes_add(&o->lanes, &lane);
    return number < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(number);
}

/* Return whether takes name existing lanes and fill `visits` slots. */
static int takes_fit(const cp_lanes *l, const cp_take *takes, int64_t count, int64_t visits)
{
    int64_t filled = 0;
    for (int64_t i = 0; i < count; i++) {
        const cp_take *t = &takes[i];
        if (t->lane < 0 || t->lane >= l->count || t->count < 1 || t->at < 0 || t->stride < 0 || t->count > visits)
            return 0;
        int64_t width = l->lanes[t->lane].stop - l->lanes[t->lane].first;
        if (t->at + width > visits || (t->count > 1 && t->stride > (visits - t->at - width) / (t->count - 1)))
            return 0;
        filled += t->count * width;
    }
    return filled == visits;
}

/* lanes_next(lanes, takes int64[n, 4], visit int32[...]) -> extents, into: bytes of int64 and int32 */
static PyObject *lanes_next(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(takes, "takes", 8);
    CP_ARRAY(visit, "visit", 4, CP_WRITE);
    lanes_object *o;
    int status;
    if (!PyArg_ParseTuple(args, "O&O&O&", lanes_of, &o, CP_HOLD(takes), CP_HOLD(visit)))
        return NULL;
    int64_t count = takes.bytes / (Py_ssize_t)sizeof(cp_take);
    if (!takes_fit(&o->lanes, takes.at, count, visit.count))
        return PyErr_Format(PyExc_ValueError, "takes must name existing lanes and fill visit");
    Py_BEGIN_ALLOW_THREADS
    status = cp_lanes_next(&o->lanes, takes.at, count, visit.at, visit.count);
    Py_END_ALLOW_THREADS
    const cp_lanes *l = &o->lanes;
    if (status == CP_LANES_NO_MEMORY)
        return PyErr_NoMemory();
    if (status != CP_LANES_MADE)
        return PyErr_Format(PyExc_RuntimeError, status == CP_LANES_ENDED ? "a lane ended before its last batch"
                                                                         : "the lanes outgrew their slots");
    return Py_BuildValue("y#y#", l->extents ? (const char *)l->extents : "", (Py_ssize_t)(16 * l->extent_count),
                         l->into ? (const char *)l->into : "", (Py_ssize_t)(4 * l->reads));
}

/* follow(extents, into, visit, row_of, rows): kernel/plan/follow.h */
static PyObject *follow(PyObject *Py_UNUSED(self), PyObject *args)
{
    CP_ARRAY(extents, "extents", 8);
    CP_ARRAY(into, "into", 4);
    CP_ARRAY(visit, "visit", 4);
    CP_ARRAY(row_of, "row_of", 8, CP_WRITE);
    CP_ARRAY(rows, "rows", 8, CP_WRITE);
    int status = -1;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&", CP_HOLD(extents), CP_HOLD(into), CP_HOLD(visit), CP_HOLD(row_of),
                          CP_HOLD(rows)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (rows.count >= visit.count)
        status = cp_follow(extents.at, extents.count / 2, into.at, into.count, visit.at, visit.count, row_of.at,
                           row_of.count, rows.at);
    Py_END_ALLOW_THREADS
    if (status < 0)
        return PyErr_Format(PyExc_ValueError, "extents must match `into`, and slots must lie within row_of");
    Py_RETURN_NONE;
}

PyMethodDef cp_lanes_methods[] = {
    {"follow", follow, METH_VARARGS, "Write the rows that a step visits."},
    {"lanes_new", lanes_new, METH_VARARGS, "Create lanes that share the slots of a buffer."},
    {"lanes_add", CP_BY_NAME(lanes_add), "Add a plan as a lane."},
    {"lanes_next", lanes_next, METH_VARARGS, "Write the next step of the lanes."},
    {NULL, NULL, 0, NULL},
};
