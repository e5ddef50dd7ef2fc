/* A linear model as the bindings of kernel/sgd hold it. */
#pragma once

#include "bind.h"
#include "sgd/sgd.h"

#define MODEL "corgipile.sgd"

typedef struct {
    cp_sgd *state;
    void *memory;
    int busy; /* in a call that has released the GIL */
} model_object;

static inline model_object *model_of(PyObject *capsule)
{
    model_object *m = PyCapsule_GetPointer(capsule, MODEL);
    if (m && m->busy)
        return PyErr_SetString(PyExc_RuntimeError, "another thread is using this model"), NULL;
    return m;
}

static inline int model_take(PyObject *capsule, void *model)
{
    model_object *m = model_of(capsule);
    memcpy(model, &m, sizeof m);
    return m != NULL;
}
