/* Descriptions of blocks: kernel/plan/sketch.h. */
#include "bind.h"
#include "plan/sketch.h"

#include <stdlib.h>

#define SKETCH "corgipile.sketch"

typedef struct {
    cp_sketch sketch;
    Py_buffer cuts;
    int64_t blocks, rows;
} sketch_object;

static void sketch_destroy(PyObject *capsule)
{
    sketch_object *object = PyCapsule_GetPointer(capsule, SKETCH);
    if (object->cuts.obj)
        PyBuffer_Release(&object->cuts);
    free(object->sketch.told);
    free(object);
}

/* sketch_new(cuts int64[blocks + 1], floats) -> sketch */
static PyObject *sketch_new(PyObject *self, PyObject *args)
{
    PyObject *cuts, *capsule;
    sketch_object *object;
    int floats;
    (void)self;
    if (!PyArg_ParseTuple(args, "Op", &cuts, &floats))
        return NULL;
    object = calloc(1, sizeof *object);
    if (!object)
        return PyErr_NoMemory();
    capsule = PyCapsule_New(object, SKETCH, sketch_destroy);
    if (!capsule) {
        free(object);
        return NULL;
    }
    if (cp_buffer(cuts, &object->cuts, 8, 0, "cuts") == 0) {
        object->blocks = object->cuts.len / 8 - 1;
        object->sketch.cuts = object->cuts.buf;
        object->sketch.most = floats ? CP_SKETCH_FLOATS : CP_SKETCH_INTEGERS;
        if (object->blocks < 0)
            PyErr_SetString(PyExc_ValueError, "cuts is empty; one more than there are blocks are needed");
        else if ((object->sketch.told = calloc((size_t)object->blocks + 1, sizeof *object->sketch.told)))
            return capsule;
        else
            PyErr_NoMemory();
    }
    Py_DecRef(capsule);
    return NULL;
}

/* sketch_add(sketch, values, type) -> rows added: fewer than there are values if the next one is not finite */
static PyObject *sketch_add(PyObject *self, PyObject *args)
{
    PyObject *capsule, *array;
    sketch_object *object;
    Py_buffer values;
    int64_t added = -1;
    int type;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOi", &capsule, &array, &type) || !(object = PyCapsule_GetPointer(capsule, SKETCH)))
        return NULL;
    if (type < 0 || type >= CP_TYPES)
        return PyErr_Format(PyExc_ValueError, "there is no number type %d", type);
    if (cp_buffer(array, &values, cp_type_bytes[type], 0, "values") < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    added = cp_sketch_rows(&object->sketch, object->blocks, object->rows, values.buf, type,
                           values.len / cp_type_bytes[type]);
    Py_END_ALLOW_THREADS
    object->rows += added;
    PyBuffer_Release(&values);
    return PyLong_FromLongLong(added);
}

/* sketch_values(sketch, out float64[blocks]): blocks that lack rows are told by those they have. */
static PyObject *sketch_values(PyObject *self, PyObject *args)
{
    PyObject *capsule, *array;
    sketch_object *object;
    Py_buffer out;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &array) || !(object = PyCapsule_GetPointer(capsule, SKETCH)) ||
        cp_buffer(array, &out, 8, 1, "out") < 0)
        return NULL;
    if (out.len / 8 == object->blocks) {
        Py_BEGIN_ALLOW_THREADS
        while (object->sketch.blocks < object->blocks)
            cp_sketch_end_block(&object->sketch);
        cp_sketch_values(&object->sketch, out.buf);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "out must have one number a block");
    }
    PyBuffer_Release(&out);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyMethodDef cp_sketch_methods[] = {
    {"sketch_add", sketch_add, METH_VARARGS, "Add rows to a sketch."},
    {"sketch_new", sketch_new, METH_VARARGS, "Begin to describe blocks."},
    {"sketch_values", sketch_values, METH_VARARGS, "Write one number a block."},
    {NULL, NULL, 0, NULL},
};
