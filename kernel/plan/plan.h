/* The orders that every host shares: no shuffle, block only, CorgiPile and Riffle, as steps over row numbers.
 *
 * A step is: load these runs of rows into these buffer slots, then visit these slots. A plan deals the blocks of one
 * rank. It handles row numbers only, never data, and can start at any step: the first step then reloads the rows that
 * are buffered at that point.
 *
 * Fill-and-drain (no shuffle, block only, CorgiPile): a step loads `buffer` blocks and visits all their rows. */
#pragma once

#include "check.h"
#include "plan/riffle.h"

static inline int64_t cp_step_count(const cp_plan *plan)
{
    if (plan->count == 0)
        return 0;
    if (cp_order(plan->spec.kind)->deals)
        return 1 + (plan->count - 1 + plan->spec.group) / plan->spec.group;
    return (plan->count + plan->spec.buffer - 1) / plan->spec.buffer;
}

static inline void cp_plan_free(cp_plan *plan)
{
    free(plan->clocks);
    free(plan->due);
    free(plan->table);
    free(plan->perms);
    free(plan->remaining);
    free(plan->free_queue);
    free(plan->freed_at);
    free(plan->shares);
    free(plan->dealt);
    free(plan->counts);
    memset(plan, 0, sizeof *plan);
}

/* Prepare a plan that begins with step `start`. The caller keeps cuts and order alive. Returns -1 if out of memory. */
static inline int cp_plan_init(cp_plan *plan, const cp_spec *spec, int64_t start)
{
    memset(plan, 0, sizeof *plan);
    plan->spec = *spec;
    plan->step = plan->start = start;
    plan->widest = cp_max64(cp_widest(spec), 1);
    if (spec->blocks)
        plan->walk = cp_bijection_make((uint64_t)spec->blocks, cp_derive2(spec->key, CP_KEY_BLOCKS));
    if (spec->first_row < spec->stop_row) {
        int64_t before;
        plan->first = cp_locate(plan, spec->first_row, &before);
        plan->skip = spec->first_row - before;
        int64_t last = cp_locate(plan, spec->stop_row - 1, &before);
        plan->last_rows = spec->stop_row - before;
        plan->count = last - plan->first + 1;
    }
    if (!cp_order(spec->kind)->deals)
        plan->spec.buffer = cp_max64(1, cp_min64(spec->buffer, plan->count));
    plan->spec.group = cp_max64(1, cp_min64(spec->group, plan->count));
    plan->steps = cp_step_count(plan);
    if (cp_order(spec->kind)->deals && cp_riffle_alloc(plan) < 0) {
        cp_plan_free(plan);
        return -1;
    }
    return 0;
}

/* Return the length of the current step's `sweep`: all rows read, if rows are dealt into chunks; else 0. */
static inline int64_t cp_plan_swept(const cp_plan *plan)
{
    return cp_order(plan->spec.kind)->deals && !plan->spec.whole ? plan->reads : 0;
}

/* Begin the next step: sets extents, reads and visits. Returns 1, 0 at the end of the epoch, -1 if out of memory. */
static inline int cp_plan_begin(cp_plan *plan)
{
    const cp_spec *s = &plan->spec;
    if (plan->step >= plan->steps)
        return 0;
    if (cp_order(s->kind)->deals) {
        cp_riffle_loads(plan);
    } else {
        plan->load_from = plan->step * s->buffer;
        plan->load_to = cp_min64(plan->count, plan->load_from + s->buffer);
    }
    plan->extents = plan->load_to - plan->load_from;
    plan->reads = 0;
    for (int64_t k = plan->load_from; k < plan->load_to; k++) {
        int64_t start, stop;
        cp_run_at(plan, k, &start, &stop);
        plan->reads += stop - start;
        if (cp_order(s->kind)->deals) {
            plan->clocks[k % plan->ring] = cp_clock_make(plan, k, (int32_t)(stop - start));
            plan->due[k % plan->ring] = 0;
        }
    }
    plan->visits = plan->reads;
    return cp_order(s->kind)->deals && cp_riffle_shares(plan) < 0 ? -1 : 1;
}

/* Write the slots of a fill-and-drain step, which uses the ahead + 1 regions of the buffer in turn. */
static inline void cp_drain(cp_plan *plan, int32_t *into, int32_t *visit)
{
    const cp_spec *s = &plan->spec;
    int64_t slot = (plan->step % (1 + s->ahead)) * s->buffer * plan->widest;
    for (int64_t i = 0; i < plan->reads; i++)
        visit[i] = into[i] = (int32_t)slot++;
    if (cp_order(s->kind)->mixes)
        cp_shuffle32(visit, (uint64_t)plan->visits, cp_derive2(s->key ^ CP_KEY_ROWS, (uint64_t)plan->step));
}

/* Check that a step stays inside the buffer. */
static inline void cp_check_step(const cp_plan *plan, const int32_t *into, const int32_t *visit)
{
    int64_t slots = CP_CHECKED ? cp_slots(&plan->spec, plan->widest, plan->spec.blocks) : 0;
    for (int64_t i = 0; CP_CHECKED && i < plan->reads; i++)
        CP_CHECK(into[i] >= -1 && into[i] < slots);
    for (int64_t i = 0; CP_CHECKED && i < plan->visits; i++)
        CP_CHECK(visit[i] >= 0 && visit[i] < slots);
}

/* Write the current step and advance: extents int64[extents][2], into int32[reads] (-1: not stored), visit
 * int32[visits]. Riffle without whole blocks also writes sweep int32[reads], the rows of each extent in ascending slot
 * order. Returns -1 if the buffer bound was broken. */
static inline int cp_plan_next(cp_plan *plan, int64_t *extents, int32_t *into, int32_t *sweep, int32_t *visit)
{
    for (int64_t k = plan->load_from; k < plan->load_to; k++, extents += 2)
        cp_run_at(plan, k, &extents[0], &extents[1]);
    if (cp_order(plan->spec.kind)->deals) {
        if (cp_riffle_step(plan, into, sweep, visit) < 0)
            return -1;
    } else {
        cp_drain(plan, into, visit);
    }
    cp_check_step(plan, into, visit);
    plan->step++;
    return 1;
}
