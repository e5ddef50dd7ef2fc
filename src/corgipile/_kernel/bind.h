/* Shared declarations of the binding files; each adds its functions to the module `corgipile._kernel`. Arrays come in
 * through the buffer protocol and are checked here. The GIL is released around kernel calls. */
#ifndef CP_BIND_H
#define CP_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

extern PyMethodDef cp_plan_methods[];    /* bind_plan.c: orders */
extern PyMethodDef cp_permute_methods[]; /* bind_permute.c: hash, permutations */
extern PyMethodDef cp_lanes_methods[];   /* bind_lanes.c: orders in parallel lanes */
extern PyMethodDef cp_stream_methods[];  /* bind_stream.c: sliding window, reservoir */
extern PyMethodDef cp_rows_methods[];    /* bind_rows.c: gather, scatter, batched pread */
extern PyMethodDef cp_lists_methods[];   /* bind_lists.c: rows of varying length */
extern PyMethodDef cp_expand_methods[];  /* bind_expand.c: sparse rows made dense */
extern PyMethodDef cp_picks_methods[];   /* bind_picks.c: rows selected by bits */
extern PyMethodDef cp_records_methods[]; /* bind_records.c: TFRecord, Example, byte ranges */
extern PyMethodDef cp_run_methods[];     /* bind_prefetch.c: plans run ahead */
extern PyMethodDef cp_aside_methods[];   /* bind_async_gather.c: rows gathered in a thread */
extern PyMethodDef cp_sgd_methods[];     /* bind_sgd.c: SGD steps */
extern PyMethodDef cp_groups_methods[];  /* bind_groups.c: several models at once */
extern PyMethodDef cp_dual_methods[];    /* bind_dual.c: dual coordinate descent */
extern PyMethodDef cp_losses_methods[];  /* bind_losses.c: losses and learning rates */
extern PyMethodDef cp_text_methods[];    /* bind_text.c: SVMlight parser */
extern PyMethodDef cp_hashed_methods[];  /* bind_hashed.c: text hashed to sparse rows */
extern PyMethodDef cp_fields_methods[];  /* bind_fields.c: columns of delimited text */
extern PyMethodDef cp_sketch_methods[];  /* bind_sketch.c: descriptions of blocks */
extern PyMethodDef cp_sums_methods[];    /* bind_sums.c: exact sums */
extern PyMethodDef cp_moments_methods[]; /* bind_moments.c: scaling of features */
extern PyMethodDef cp_visits_methods[];  /* bind_visits.c: counters of an audit */
extern PyMethodDef cp_memory_methods[];  /* bind_memory.c: advice on mapped files */

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
int cp_losses_constants(PyObject *module);       /* adds the table of losses, and constants of kernel/sgd */

/* Get a C-contiguous buffer of `item`-byte elements (item 0: any), writable if requested. On failure sets TypeError or
 * ValueError with the name `what` and returns -1; then there is nothing to release. */
int cp_buffer(PyObject *object, Py_buffer *view, Py_ssize_t item, int writable, const char *what);

#endif
