/* Steps of a plan in memory: queues of them, and pieces of steps that are too large for their place. */
#pragma once

#include "plan/permute.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct cp_step {
    struct cp_step *next;
    int64_t extent_count, reads, visits, room;
    int announced, last; /* last: no later piece belongs to its step */
    int64_t *extents; /* owns the memory of all four */
    int32_t *into, *sweep, *visit;
} cp_step;

typedef struct {
    cp_step *first, *last;
} cp_steps;

static inline void cp_steps_push(cp_steps *q, cp_step *step)
{
    step->next = NULL;
    *(q->first ? &q->last->next : &q->first) = step;
    q->last = step;
}

static inline cp_step *cp_steps_pop(cp_steps *q)
{
    cp_step *step = q->first;
    if (step)
        q->first = step->next;
    return step;
}

static inline void cp_steps_free(cp_step *step)
{
    for (cp_step *next; step; step = next) {
        next = step->next;
        free(step->extents);
        free(step);
    }
}

/* Allocate the arrays of a step; memory left by a much larger step is freed. */
static inline int cp_step_fit(cp_step *step, int64_t extents, int64_t reads, int64_t visits, int64_t swept)
{
    int64_t need = 16 * extents + 4 * (reads + swept + visits) + 64;
    if (need > step->room || need < step->room / 8) {
        free(step->extents);
        step->room = need + need / 4;
        step->extents = malloc((size_t)step->room);
        if (!step->extents) {
            step->room = 0;
            return -1;
        }
    }
    step->extent_count = extents, step->reads = reads, step->visits = visits, step->last = 1;
    step->into = (int32_t *)(void *)(step->extents + 2 * extents);
    step->visit = step->into + reads;
    step->sweep = swept ? step->visit + visits : NULL;
    return 0;
}

/* Fill a piece with at most `room` rows of `step` from `*done` on, and after the last row with at most `room` visits
 * from `*seen` on; both are advanced. Returns -1 if out of memory. */
static inline int cp_step_cut(const cp_step *step, int64_t room, int64_t *done, int64_t *seen, cp_step *piece)
{
    const int64_t *extent = step->extents;
    int64_t reads = cp_min64(room, step->reads - *done), at = *done, count = 0, left = reads;
    int64_t visits = *done + reads < step->reads ? 0 : cp_min64(room, step->visits - *seen);
    for (; reads && at >= extent[1] - extent[0]; extent += 2)
        at -= extent[1] - extent[0];
    for (int64_t rows = -at; reads && rows < reads; count++)
        rows += extent[2 * count + 1] - extent[2 * count];
    if (cp_step_fit(piece, count, reads, visits, 0) < 0)
        return -1;
    for (int64_t e = 0; e < count; e++, at = 0) {
        int64_t start = extent[2 * e] + at, rows = cp_min64(extent[2 * e + 1] - start, left);
        piece->extents[2 * e] = start;
        piece->extents[2 * e + 1] = start + rows;
        left -= rows;
    }
    memcpy(piece->into, step->into + *done, 4 * (size_t)reads);
    memcpy(piece->visit, step->visit + *seen, 4 * (size_t)visits);
    *done += reads;
    *seen += visits;
    piece->last = *done == step->reads && *seen == step->visits;
    return 0;
}
