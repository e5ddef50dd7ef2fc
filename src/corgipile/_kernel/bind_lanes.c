/* Binds plans in parallel lanes, kernel/plan/lanes.h, and the rows of steps without reading, kernel/plan/follow.h. */
#define _GNU_SOURCE
#include "objects.h"
#include "plan/follow.h"
#include "plan/lanes.h"

#define LANES "corgipile.lanes"

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
static PyObject *lanes_new(PyObject *self, PyObject *args)
{
    long long slots, ahead;
    (void)self;
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
static PyObject *lanes_add(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"",       "",       "each",    "first", "stop", "group",
                            "groups", "worker", "workers", "place", "skip", NULL};
    PyObject *capsule, *plan;
    long long each, first, stop, group, groups, worker, workers, place, skip;
    lanes_object *o;
    plan_object *p;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO$LLLLLLLLL", names, &capsule, &plan, &each, &first, &stop, &group,
                                     &groups, &worker, &workers, &place, &skip) ||
        !(o = PyCapsule_GetPointer(capsule, LANES)) || !(p = PyCapsule_GetPointer(plan, PLAN)))
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
static PyObject *lanes_next(PyObject *self, PyObject *args)
{
    PyObject *capsule, *objects[2];
    Py_buffer takes, visit;
    lanes_object *o;
    int status = CP_LANES_MADE;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &capsule, &objects[0], &objects[1]) ||
        !(o = PyCapsule_GetPointer(capsule, LANES)) || cp_buffer(objects[0], &takes, 8, 0, "takes") < 0)
        return NULL;
    if (cp_buffer(objects[1], &visit, 4, 1, "visit") < 0) {
        PyBuffer_Release(&takes);
        return NULL;
    }
    int64_t count = takes.len / (Py_ssize_t)sizeof(cp_take), visits = visit.len / 4;
    int fits = takes_fit(&o->lanes, takes.buf, count, visits);
    Py_BEGIN_ALLOW_THREADS
    if (fits)
        status = cp_lanes_next(&o->lanes, takes.buf, count, visit.buf, visits);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&takes);
    PyBuffer_Release(&visit);
    const cp_lanes *l = &o->lanes;
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "takes must name existing lanes and fill visit");
    if (status == CP_LANES_NO_MEMORY)
        return PyErr_NoMemory();
    if (status != CP_LANES_MADE)
        return PyErr_Format(PyExc_RuntimeError, status == CP_LANES_ENDED ? "a lane ended before its last batch"
                                                                         : "the lanes outgrew their slots");
    return Py_BuildValue("y#y#", l->extents ? (const char *)l->extents : "", (Py_ssize_t)(16 * l->extent_count),
                         l->into ? (const char *)l->into : "", (Py_ssize_t)(4 * l->reads));
}

/* follow(extents, into, visit, row_of, rows): kernel/plan/follow.h */
static PyObject *follow(PyObject *self, PyObject *args)
{
    PyObject *arrays[5];
    Py_buffer views[5];
    static const char *const names[5] = {"extents", "into", "visit", "row_of", "rows"};
    static const Py_ssize_t items[5] = {8, 4, 4, 8, 8};
    int status = 0, got = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOO", &arrays[0], &arrays[1], &arrays[2], &arrays[3], &arrays[4]))
        return NULL;
    for (; got < 5; got++)
        if (cp_buffer(arrays[got], &views[got], items[got], got > 2, names[got]) < 0)
            break;
    if (got == 5) {
        Py_BEGIN_ALLOW_THREADS
        status = views[4].len / 8 < views[2].len / 4
                     ? -1
                     : cp_follow(views[0].buf, views[0].len / 16, views[1].buf, views[1].len / 4, views[2].buf,
                                 views[2].len / 4, views[3].buf, views[3].len / 8, views[4].buf);
        Py_END_ALLOW_THREADS
        if (status < 0)
            PyErr_SetString(PyExc_ValueError, "extents must match `into`, and slots must lie within row_of");
    }
    while (got-- > 0)
        PyBuffer_Release(&views[got]);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef cp_lanes_methods[] = {
    {"follow", follow, METH_VARARGS, "Write the rows that a step visits."},
    {"lanes_new", lanes_new, METH_VARARGS, "Create lanes that share the slots of a buffer."},
    {"lanes_add", CP_BY_NAME(lanes_add), "Add a plan as a lane."},
    {"lanes_next", lanes_next, METH_VARARGS, "Write the next step of the lanes."},
    {NULL, NULL, 0, NULL},
};
