/* Fits a shared order to its memory: how many blocks it mixes and loads at a time.
 *
 * Riffle keeps blocks as they were read if that leaves enough piles, since one long write is fastest; balanced blocks
 * need few piles. Orders that do not mix load enough blocks per step to cover its overhead. The plan's own memory
 * counts too: for narrow rows it is as large as the rows. */
#pragma once

#include "plan/plan.h"
#include <math.h>

enum { CP_STEP_ROWS = 8192, CP_STEP_BYTES = 2 << 20 }; /* limits of a step that covers its overhead and still fits a
                                                        * cache */
/* Steps of large buffers are larger, for hosts that pay for each step: a share of the buffer up to this size. */
enum { CP_LARGE_STEP_BYTES = 14 << 20, CP_STEP_SHARE = 128 };
enum { CP_BALANCED_BLOCKS = 64, CP_CACHED_BUFFER_BYTES = 4 << 20 }; /* buffer size that a core caches */
enum { CP_PLAN_BYTES = 4 << 20 }; /* bytes of the plan that do not count against the budget */
enum { CP_WHOLE_PILES = 192 }; /* twice as many hardly reduce the variation of a batch of 256 rows */

static inline int64_t cp_step_rows(double row_bytes)
{
    return cp_max64(1, cp_min64(CP_STEP_ROWS, (int64_t)(CP_STEP_BYTES / row_bytes)));
}

/* Inputs of the fit. `wanted`: requested rows of the buffer, or 0; `budget`: rows in memory, or -1 for any; `near`:
 * rows of a cheap buffer, which is filled even if fewer blocks suffice; `balanced`: 0, or the number of balanced blocks
 * that suffices if above the default; `spare`: Riffle's blocks too are capped at what suffices. */
typedef struct {
    int64_t rows, blocks, widest, wanted, budget, step, near;
    double row_bytes;
    int balanced, spare;
} cp_room;

/* Return the rows in memory: one per slot, plus the plan's memory beyond CP_PLAN_BYTES in rows. */
static inline int64_t cp_memory_rows(const cp_spec *spec, const cp_room *r)
{
    int64_t over = cp_plan_bytes(spec, r->widest, r->blocks) - CP_PLAN_BYTES;
    return cp_slots(spec, r->widest, r->blocks) + (over > 0 ? (int64_t)ceil((double)over / r->row_bytes) : 0);
}

static inline int64_t cp_fit_mixed(cp_spec *spec, const cp_room *r)
{
    int64_t low = 1, high = cp_order(spec->kind)->deals && spec->whole ? 2 * r->blocks : r->blocks;
    int64_t enough = r->balanced ? cp_max64(CP_BALANCED_BLOCKS, r->balanced) : CP_WHOLE_PILES;
    if (r->balanced || (r->spare && cp_order(spec->kind)->deals))
        high = cp_min64(high, cp_max64(enough, r->near / r->widest));
    while (low < high) {
        spec->buffer = low + (high - low + 1) / 2;
        if (r->budget < 0 || cp_memory_rows(spec, r) <= r->budget)
            low = spec->buffer;
        else
            high = spec->buffer - 1;
    }
    return low;
}

/* Set `buffer`, and Riffle's `group` and `whole` if they are 0 and -1. The smallest sizes that work may still exceed
 * the budget. */
static inline void cp_fit(cp_spec *spec, const cp_room *r)
{
    int64_t step = (r->step + r->widest - 1) / r->widest;
    int64_t held = (r->wanted ? r->wanted : r->budget >= 0 ? r->budget : r->rows) / r->widest;
    if (cp_order(spec->kind)->deals) {
        int64_t large = (int64_t)(CP_LARGE_STEP_BYTES / (r->row_bytes * (double)r->widest));
        step = cp_max64(step, cp_min64(held / CP_STEP_SHARE, large));
        spec->group = spec->group ? spec->group : cp_max64(1, cp_min64(held / 8, step));
        spec->whole = spec->whole < 0 ? r->balanced || held >= CP_WHOLE_PILES : spec->whole;
    } else {
        spec->group = 1;
        spec->whole = 0;
    }
    if (r->wanted)
        spec->buffer = r->wanted / r->widest;
    else if (cp_order(spec->kind)->mixes)
        spec->buffer = cp_fit_mixed(spec, r);
    else
        spec->buffer = cp_min64(step, r->budget / (1 + spec->ahead) / r->widest);
    spec->buffer = cp_max64(1, spec->buffer);
}
