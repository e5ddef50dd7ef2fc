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

#define CP_HELD 7 /* buffers of a column, of which those of one width have fewer */

typedef struct {
    cp_reader reader;
    Py_buffer *held; /* CP_HELD a column: starts, offsets, fds, target; or items, counts, address, length after fds */
    Py_buffer picks[2]; /* words and ranks, if rows are picks */
    PyObject *kept;     /* what keeps memory that rows lie in, or NULL */
    int64_t room, slots, rows;
} reader_object;

/* Make room for one more column; returns where its buffers are held, none yet, or NULL without memory. */
Py_buffer *cp_reader_room(reader_object *r);

/* Whether slots lie from `least` up to the limit. */
int cp_slots_ok(const int32_t *slots, int64_t count, int64_t limit, int32_t least);

#endif
