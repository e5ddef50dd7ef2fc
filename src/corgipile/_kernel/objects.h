/* What several binding files take from Python: a plan and a reader, each a capsule. */
#ifndef CP_OBJECTS_H
#define CP_OBJECTS_H

#include "bind.h"
#include "io/prefetch.h"

#define PLAN "corgipile.plan"
#define READER "corgipile.reader"

typedef struct {
    cp_plan plan;
    Py_buffer cuts, order;
} plan_object;

typedef struct {
    cp_reader reader;
    Py_buffer *held; /* four a column: starts, offsets, fds, target */
    Py_buffer picks[2]; /* words and ranks, if rows are picks */
    PyObject *kept;     /* what keeps memory that rows lie in, or NULL */
    int64_t room, slots, rows;
} reader_object;

#endif
