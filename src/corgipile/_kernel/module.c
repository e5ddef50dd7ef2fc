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

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "corgipile._kernel",
    "Bindings of the C kernel; see kernel/*.h.",
    -1,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyMethodDef *tables[] = {cp_plan_methods, cp_stream_methods, cp_rows_methods, cp_picks_methods, cp_records_methods,
                             cp_run_methods,  cp_sgd_methods,    cp_text_methods, cp_memory_methods,
                             cp_sketch_methods, cp_losses_methods, cp_expand_methods, cp_sums_methods,
                             cp_moments_methods, cp_fields_methods, cp_visits_methods, cp_dual_methods,
                             cp_lanes_methods, cp_groups_methods, cp_hashed_methods, cp_lists_methods,
                             cp_aside_methods, cp_permute_methods};
    const cp_constant *constants[] = {cp_plan_constants, cp_memory_constants, cp_sums_constants, cp_moments_constants,
                                      cp_hashed_constants};
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module && i < sizeof tables / sizeof *tables; i++)
        if (PyModule_AddFunctions(module, tables[i]) < 0)
            Py_CLEAR(module);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        for (const cp_constant *c = constants[i]; module && c->name; c++)
            if (PyModule_AddIntConstant(module, c->name, c->value) < 0)
                Py_CLEAR(module);
    if (module && cp_losses_constants(module) < 0)
        Py_CLEAR(module);
    return module;
}
