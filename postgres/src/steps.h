/* Steps of an epoch, planned without server calls, so that a thread can do it. */
#pragma once

#include "plan/plan.h"

/* Steps in the ring: one being learnt, one loaded, one planned ahead. */
enum { CORGI_STEPS = 3 };
enum { CORGI_NO_MEMORY = -1, CORGI_BROKEN_BOUND = -2 };

typedef struct corgi_step {
    int64_t from, to;       /* positions of the blocks to load */
    int64_t reads, visits;
    int32_t *into, *visit;
    int64_t read_room, visit_room;
} corgi_step;

typedef struct corgi_steps {
    cp_plan plan;
    corgi_step ring[CORGI_STEPS];
    int64_t *extents;
    int32_t *sweep;
    int64_t extent_room, sweep_room;
} corgi_steps;

static inline void corgi_steps_free(corgi_steps *s)
{
    cp_plan_free(&s->plan);
    free(s->extents);
    free(s->sweep);
    for (int i = 0; i < CORGI_STEPS; i++) {
        free(s->ring[i].into);
        free(s->ring[i].visit);
    }
    memset(s, 0, sizeof *s);
}

/* Allocate `count` items of `bytes` bytes, discarding the old ones. Returns CORGI_NO_MEMORY on failure. */
static inline int corgi_make_room(void **array, int64_t *room, int64_t count, size_t bytes)
{
    if (count <= *room)
        return 0;
    free(*array);
    *room = count + count / 4;
    *array = malloc((size_t)*room * bytes);
    if (*array == NULL)
        *room = 0;
    return *array ? 0 : CORGI_NO_MEMORY;
}

/* Plan step `number`, modulo CORGI_STEPS. Returns 1, 0 at the epoch's end, or an error below 0. */
static inline int corgi_plan_step(corgi_steps *s, int64_t number)
{
    cp_plan *plan = &s->plan;
    corgi_step *step = &s->ring[number % CORGI_STEPS];
    int more = cp_plan_begin(plan);
    if (more <= 0)
        return more;
    if (corgi_make_room((void **)&s->extents, &s->extent_room, 2 * plan->extents, sizeof *s->extents) < 0 ||
        corgi_make_room((void **)&s->sweep, &s->sweep_room, plan->reads, sizeof *s->sweep) < 0 ||
        corgi_make_room((void **)&step->into, &step->read_room, plan->reads, sizeof *step->into) < 0 ||
        corgi_make_room((void **)&step->visit, &step->visit_room, plan->visits, sizeof *step->visit) < 0)
        return CORGI_NO_MEMORY;
    step->from = plan->load_from;
    step->to = plan->load_to;
    step->reads = plan->reads;
    step->visits = plan->visits;
    return cp_plan_next(plan, s->extents, step->into, s->sweep, step->visit) < 0 ? CORGI_BROKEN_BOUND : 1;
}
