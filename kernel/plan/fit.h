/* Fits a shared order to its memory: how many blocks it mixes and loads at a time.
 *
 * Riffle keeps blocks as they were read where that leaves piles enough, for what is written in one run is written
 * fastest; balanced blocks need few piles. Orders that mix nothing load as many blocks as make a step worth its
 * overhead. What the plan itself takes counts, too: of narrow rows it is as much as the rows. */
#ifndef CP_FIT_H
#define CP_FIT_H

#include "plan/plan.h"
#include <math.h>

enum { CP_STEP_ROWS = 8192, CP_STEP_BYTES = 2 << 20 }; /* of a step that is worth its overhead and still fits a cache */
enum { CP_BALANCED_BLOCKS = 64, CP_NEAR_BYTES = 4 << 20 }; /* near: of a buffer that stays in a core's reach */
enum { CP_PLAN_BYTES = 4 << 20 }; /* that a plan may take beside any budget */
enum { CP_WHOLE_PILES = 192 }; /* with so many, a batch of 256 rows varies hardly more than with twice as many */

static inline int64_t cp_step_rows(double row_bytes)
{
    return cp_max64(1, cp_min64(CP_STEP_ROWS, (int64_t)(CP_STEP_BYTES / row_bytes)));
}

/* What there is to fit into. `wanted`: rows of the buffer asked for, or 0; `budget`: rows in memory, or -1 for any;
 * `near`: rows of a buffer that costs little, so that it is filled even if fewer blocks would do; `balanced`: 0, or how
 * many balanced blocks do if that is more than usual; `spare`: riffle's blocks too are no more than do. */
typedef struct {
    int64_t rows, blocks, widest, wanted, budget, step, near;
    double row_bytes;
    int balanced, spare;
} cp_room;

/* The rows in memory: a slot each, and as many as take what the plan takes more than it may beside the budget. */
static inline int64_t cp_taken(const cp_spec *spec, const cp_room *r)
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
        if (r->budget < 0 || cp_taken(spec, r) <= r->budget)
            low = spec->buffer;
        else
            high = spec->buffer - 1;
    }
    return low;
}

/* Set `buffer`, and `group` and `whole` where Riffle has them 0 and -1. The smallest sizes that work may still need more
 * than the budget. */
static inline void cp_fit(cp_spec *spec, const cp_room *r)
{
    int64_t step = (r->step + r->widest - 1) / r->widest;
    int64_t held = (r->wanted ? r->wanted : r->budget >= 0 ? r->budget : r->rows) / r->widest;
    if (cp_order(spec->kind)->deals) {
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

#endif
