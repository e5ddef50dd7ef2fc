/* Capsules shared by several binding files: a plan and a reader. */
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

#define CP_HELD 7 /* most buffers of a column; fixed-width ones have fewer */

typedef struct {
    cp_reader reader;
    Py_buffer *held; /* CP_HELD per column: starts, offsets, fds, target; or items, counts, address, length after fds */
    Py_buffer picks[2]; /* words and ranks, if rows are selected */
    PyObject *kept;     /* object that owns the rows' memory, or NULL */
    int64_t room, slots, rows;
} reader_object;

/* Make space for one more column; returns its zeroed buffers, or NULL if out of memory. */
Py_buffer *cp_reader_room(reader_object *r);

/* Return whether slots lie from `least` up to the limit. */
int cp_slots_ok(const int32_t *slots, int64_t count, int64_t limit, int32_t least);

#endif
