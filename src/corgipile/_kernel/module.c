/* The module `corgipile._kernel`: tables of functions and constants of the binding files. */
#include "bind.h"

int cp_buffer(PyObject *object, Py_buffer *view, Py_ssize_t item, int writable, const char *what)
{
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return -1;
    if (item && view->itemsize != item) {
        PyErr_Format(PyExc_TypeError, "%s has elements of %zd bytes, must have %zd", what, view->itemsize, item);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

int cp_hold(PyObject *object, void *array)
{
    cp_array *a = array;
    if (a->optional && object == Py_None)
        return 1;
    if (cp_buffer(object, &a->view, a->item, a->writable, a->name) < 0)
        return 0;
    a->at = a->view.buf;
    a->bytes = a->view.len;
    a->count = a->view.itemsize ? a->view.len / a->view.itemsize : 0;
    return 1;
}

void cp_release(cp_array *array)
{
    PyBuffer_Release(&array->view); /* does nothing if it is zeroed */
}

int cp_buffers(PyObject **objects, Py_buffer *views, int count, const Py_ssize_t *items, int first_writable,
               const char *const *names)
{
    for (int i = 0; i < count; i++)
        if (cp_buffer(objects[i], &views[i], items[i], i >= first_writable, names[i]) < 0) {
            while (i-- > 0)
                PyBuffer_Release(&views[i]);
            return -1;
        }
    return 0;
}

int cp_uncapsule(PyObject *capsule, void *to, const char *name)
{
    void *pointer = PyCapsule_GetPointer(capsule, name);
    memcpy(to, &pointer, sizeof pointer);
    return pointer != NULL;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "corgipile._kernel",
    .m_doc = "Bindings of the C kernel; see kernel/*.h.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
#define TABLE(name) cp_##name##_methods,
    PyMethodDef *tables[] = {CP_TABLES(TABLE)};
    const cp_constant *constants[] = {cp_plan_constants, cp_memory_constants, cp_sums_constants, cp_moments_constants,
                                      cp_hashed_constants, cp_losses_constants};
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module && i < sizeof tables / sizeof *tables; i++)
        if (PyModule_AddFunctions(module, tables[i]) < 0)
            Py_CLEAR(module);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        for (const cp_constant *c = constants[i]; module && c->name; c++)
            if (PyModule_AddIntConstant(module, c->name, c->value) < 0)
                Py_CLEAR(module);
    if (module && cp_add_losses(module) < 0)
        Py_CLEAR(module);
    return module;
}
