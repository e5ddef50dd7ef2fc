/* Shared declarations of the binding files; each adds its functions to the module `corgipile._kernel`. Arrays come in
 * through the buffer protocol and are checked here. The GIL is released around kernel calls. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Applies a macro to the name of each binding file's table of functions. */
#define CP_TABLES(X)                                                                                                   \
    X(async_gather) X(dual) X(expand) X(fields) X(groups) X(hashed) X(lanes) X(lists) X(losses) X(memory) X(moments)   \
    X(newton) X(permute) X(plan) X(records) X(row_mask) X(rows) X(run) X(sgd) X(sketch) X(stream) X(sums) X(text)      \
    X(visits)
#define CP_DECLARE_TABLE(name) extern PyMethodDef cp_##name##_methods[];
CP_TABLES(CP_DECLARE_TABLE)

/* Method-table entry of a function with keyword arguments. */
#define CP_BY_NAME(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

/* A constant of the kernel's enums, by its name in Python. */
typedef struct {
    const char *name;
    long value;
} cp_constant;

extern const cp_constant cp_plan_constants[];    /* purposes of keys */
extern const cp_constant cp_memory_constants[];  /* kinds of advice */
extern const cp_constant cp_sums_constants[];    /* sizes */
extern const cp_constant cp_hashed_constants[];  /* kinds of columns, bounds */
extern const cp_constant cp_moments_constants[]; /* scaling verdicts */
extern const cp_constant cp_losses_constants[];  /* labels, statuses */
int cp_add_losses(PyObject *module);             /* tables of losses and steps */

/* Get a C-contiguous buffer of `item`-byte elements (item 0: any), writable if requested. On failure sets TypeError or
 * ValueError with the name `what` and returns -1; then there is nothing to release. */
int cp_buffer(PyObject *object, Py_buffer *view, Py_ssize_t item, int writable, const char *what);

enum { CP_READ, CP_WRITE };

/* An array argument. It is held from cp_hold, a converter for "O&", to the end of its scope. */
typedef struct {
    const char *name;
    Py_ssize_t item;        /* bytes of an element; 0: any */
    int writable, optional; /* optional: None is allowed */
    void *at;               /* NULL: None */
    int64_t bytes, count;   /* count: of elements */
    Py_buffer view;
} cp_array;

#define CP_ARRAY(array, ...) cp_array array __attribute__((cleanup(cp_release))) = {.name = __VA_ARGS__}
#define CP_HOLD(array) cp_hold, &(array)
int cp_hold(PyObject *object, void *array);
void cp_release(cp_array *array);

/* Get several buffers; `items` has the element size of each. On failure none is held. */
int cp_buffers(PyObject **objects, Py_buffer *views, int count, const Py_ssize_t *items, int first_writable,
               const char *const *names);

/* Store the pointer of a capsule; for the converters of "O&" that CP_CAPSULE defines. */
int cp_uncapsule(PyObject *capsule, void *to, const char *name);
#define CP_CAPSULE(function, name)                                                                                     \
    static inline int function(PyObject *capsule, void *to)                                                            \
    {                                                                                                                  \
        return cp_uncapsule(capsule, to, name);                                                                        \
    }
