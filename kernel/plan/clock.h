/* Visit times of the rows of a block: Riffle's rule, see plan/riffle.h. */
#pragma once

#include "plan/blocks.h"

static inline cp_clock cp_clock_make(const cp_plan *plan, int64_t k, int32_t rows)
{
    cp_clock c = {.rows = rows, .asked = INT64_MIN};
    c.base = (k << 32) + ((int64_t)1 << 31) - (plan->piles << 31);
    c.slope = (plan->piles << 32) / cp_max64(rows, 1);
    c.pace = 1.0 / (double)c.slope;
    c.key = cp_derive2(plan->spec.key ^ CP_KEY_JITTER, (uint64_t)(plan->first + k));
    return c;
}

/* Return the jitters of four rows: 16 bits each. */
static inline uint64_t cp_jitters(const cp_clock *c, int64_t p) { return cp_random(c->key, (uint64_t)p >> 2); }

static inline int64_t cp_time_with(const cp_clock *c, int64_t p, uint64_t jitters)
{
    return c->base + c->slope * p + (c->slope >> 16) * (int64_t)(jitters >> (p & 3) * 16 & 0xFFFF);
}

static inline int64_t cp_time(const cp_clock *c, int64_t p) { return cp_time_with(c, p, cp_jitters(c, p)); }

/* Return the number of dealt rows whose time is before t; times ascend with p. */
static inline int32_t cp_before(cp_clock *c, int64_t t)
{
    int64_t offset = t - c->base, p;
    if (t <= c->base)
        return 0;
    if (offset >= c->slope * c->rows)
        return c->rows;
    if (t == c->asked)
        return c->before;
    p = (int64_t)((double)offset * c->pace); /* offset / slope, at most one off */
    p -= c->slope * p > offset;
    p += c->slope * (p + 1) <= offset;
    c->asked = t;
    return c->before = (int32_t)(p + (cp_time(c, p) < t));
}

static inline int64_t cp_visit_time(const cp_clock *c, int64_t p, int64_t end)
{
    int64_t t = cp_time(c, p);
    return t < 0 ? -t : t >= end ? 2 * end - t : t;
}
