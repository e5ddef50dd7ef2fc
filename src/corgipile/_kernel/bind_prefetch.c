/* Binds plans that run over a reader ahead of their consumer: kernel/io/prefetch.h. */
#include "objects.h"

#define RUN "corgipile.run"
#define SIGNAL_CHECK_NS 50000000 /* nanoseconds between two checks for signals */

typedef struct {
    cp_run run;
    PyObject *plan, *reader;
} run_object;

static void run_destroy(PyObject *capsule)
{
    run_object *o = PyCapsule_GetPointer(capsule, RUN);
    Py_BEGIN_ALLOW_THREADS
    cp_run_free(&o->run);
    Py_END_ALLOW_THREADS
    Py_DecRef(o->plan);
    Py_DecRef(o->reader);
    free(o);
}

/* run_new(plan, reader, far, room, places): the run owns both; `far` rows are prefetched from a slow device; with
 * `places` > 0 the run is staged, in pieces of `room` rows */
static PyObject *run_new(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *plan_capsule, *reader_capsule;
    long long far, room, places;
    plan_object *plan;
    reader_object *reader;
    if (!PyArg_ParseTuple(args, "OOLLL", &plan_capsule, &reader_capsule, &far, &room, &places) ||
        !cp_plan_of(plan_capsule, &plan) || !cp_reader_of(reader_capsule, &reader))
        return NULL;
    const cp_plan *p = &plan->plan;
    int64_t slots = places ? reader->slots / places : reader->slots;
    if (p->spec.rows > reader->rows || (places ? room : cp_slots(&p->spec, p->widest, p->spec.blocks)) > slots)
        return PyErr_Format(PyExc_ValueError, "the plan's rows and slots must not exceed the reader's");
    if (places && (places < 3 || room < 1))
        return PyErr_Format(PyExc_ValueError, "a staged run needs 3 places of at least one row");
    run_object *o = calloc(1, sizeof *o);
    if (!o)
        return PyErr_NoMemory();
    cp_run_init(&o->run, &plan->plan, &reader->reader, far);
    if (places && cp_run_stage(&o->run, room, places) < 0) {
        free(o);
        return PyErr_NoMemory();
    }
    o->plan = Py_NewRef(plan_capsule);
    o->reader = Py_NewRef(reader_capsule);
    PyObject *capsule = PyCapsule_New(o, RUN, run_destroy);
    if (!capsule) {
        Py_DecRef(o->plan);
        Py_DecRef(o->reader);
        free(o->run.into);
        free(o);
    }
    return capsule;
}

/* run_next(run): wait for the next step -> bytearray of int32, the slots to visit; of a staged run [slots of the rows,
 * slots to visit, whether the piece ends its step]. None at the end, False once stopped, (errno, fd, row) of the failed
 * request. */
static PyObject *run_next(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    run_object *o = PyCapsule_GetPointer(capsule, RUN);
    const cp_step *step;
    int status;
    if (!o)
        return NULL;
    do {
        Py_BEGIN_ALLOW_THREADS
        status = cp_run_next(&o->run, SIGNAL_CHECK_NS, &step);
        Py_END_ALLOW_THREADS
        if (status == CP_RUN_WAIT && PyErr_CheckSignals() < 0)
            return NULL;
    } while (status == CP_RUN_WAIT);
    const cp_read *read = &o->run.reader->read;
    switch (status) {
    case CP_RUN_STEP:
        if (o->run.room)
            return Py_BuildValue("[y#y#O]", (const char *)step->into, (Py_ssize_t)(4 * step->reads),
                                 (const char *)step->visit, (Py_ssize_t)(4 * step->visits),
                                 step->last ? Py_True : Py_False);
        return PyByteArray_FromStringAndSize((const char *)step->visit, (Py_ssize_t)(4 * step->visits));
    case CP_RUN_END:
        Py_RETURN_NONE;
    case CP_RUN_STOPPED:
        Py_RETURN_FALSE;
    case CP_RUN_FAILED:
        return Py_BuildValue("(iiL)", read->error, (int)read->error_fd, (long long)read->error_row);
    case CP_RUN_NO_MEMORY:
        return PyErr_NoMemory();
    default:
        return PyErr_SetString(PyExc_RuntimeError, "the plan outgrew its buffer bound"), NULL;
    }
}

/* run_look(run) -> loaded steps not yet visited, nanoseconds that the thread waited for slots */
static PyObject *run_look(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    run_object *o = PyCapsule_GetPointer(capsule, RUN);
    cp_run_figures figures;
    if (!o)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    figures = cp_run_figures_of(&o->run);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("LL", (long long)figures.ready, (long long)figures.waited);
}

/* run_stop(run): end it at once; returns when its thread has ended */
static PyObject *run_stop(PyObject *Py_UNUSED(self), PyObject *capsule)
{
    run_object *o = PyCapsule_GetPointer(capsule, RUN);
    if (!o)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    cp_run_stop(&o->run);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyMethodDef cp_run_methods[] = {
    {"run_new", run_new, METH_VARARGS, "Create a run of a plan over a reader."},
    {"run_next", run_next, METH_O, "Wait for the next step."},
    {"run_look", run_look, METH_O, "Return the progress of a run."},
    {"run_stop", run_stop, METH_O, "End a run."},
    {NULL, NULL, 0, NULL},
};
