/* Capsules shared by several binding files: a plan and a reader. */
#pragma once

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

CP_CAPSULE(cp_plan_of, PLAN)
CP_CAPSULE(cp_reader_of, READER)

/* Make space for one more column; returns its zeroed buffers, or NULL if out of memory. */
Py_buffer *cp_reader_room(reader_object *r);

/* Return whether slots lie from `least` up to the limit. */
int cp_slots_ok(const int32_t *slots, int64_t count, int64_t limit, int32_t least);

/* Return whether extents lie within the reader's table and fill `rows` entries of `into`, which lie in its buffer. */
int cp_extents_ok(const reader_object *r, const int64_t *extents, int64_t count, const int32_t *into, int64_t rows);

/* Return None, or (errno, fd, row) of the failed request of status 1; raises for statuses below 0. */
PyObject *cp_read_result(int status, const cp_read *read);
