/* Riffle: deals rows from staggered piles.
 *
 * The row dealt p-th of the block at position k (N blocks of b rows) is visited at time
 *
 *     k + 1/2 + R ((p + u)/b - 1/2),   reflected into [0, N],
 *
 * where R = 2n piles and u in [0, 1) is a jitter keyed by the row. Times are integers with 32 bits of fraction, so that
 * every machine deals the same order. Step 0 loads n blocks and visits up to time 1/2; step j loads `group` more
 * blocks, whose dealing starts during it, and visits up to 1/2 + j group.
 *
 * Rows are stored in dealt order in chunks of 2^shift slots, and a chunk is freed when its last row is visited: about n
 * + 1/2 blocks are buffered at any time. Or blocks stay whole, as read: nothing is copied, but R piles need R blocks of
 * memory. */
#pragma once

#include "plan/chunks.h"

enum {
    CP_DUE_BLOCKS = 64,
    CP_PREFETCH_SHARES = 12
}; /* blocks checked together; shares between a prefetch and its use */

/* Return the buffer slots that a plan of these sizes needs. */
static inline int64_t cp_slots(const cp_spec *s, int64_t widest, int64_t blocks)
{
    if (cp_order(s->kind)->deals)
        return cp_chunk_bound(s, widest, blocks) * cp_chunk_rows(s, widest);
    int64_t n = cp_min64(s->buffer, blocks);
    return cp_min64((1 + s->ahead) * n, blocks + n) * widest;
}

/* Return the most bytes that a plan and its steps take, for any rows. A step is visited while others are loaded and the
 * next is built, and a host may have copies of the slots of two. With whole blocks the first step is over before all of
 * them are loaded. */
static inline int64_t cp_plan_bytes(const cp_spec *s, int64_t widest, int64_t blocks)
{
    int64_t steps = s->ahead + 2, n = cp_min64(s->buffer, blocks), run = 2 * (int64_t)sizeof(int64_t);
    if (!cp_order(s->kind)->deals)
        return steps * n * (run + 8 * widest) + 8 * n * widest;
    int64_t half = cp_half(s, blocks), group = cp_min64(s->group, blocks), ring = 2 * half + group * (1 + s->ahead);
    int64_t size = cp_chunk_rows(s, widest),
            each = (int64_t)(sizeof(cp_clock) + sizeof(int64_t) + 3 * sizeof(cp_share));
    int64_t waiting = ring * (each + 4 * ((widest + size - 1) / size) + (s->whole ? 4 * widest : 0));
    int64_t made = group * (run + (s->whole ? 8 : 12) * widest) * steps + 18 * group * widest;
    return waiting + 12 * cp_chunk_bound(s, widest, blocks) + made + (s->whole ? 0 : half * (run + 8 * widest));
}

static inline int cp_riffle_alloc(cp_plan *plan)
{
    const cp_spec *s = &plan->spec;
    plan->piles = 2 * cp_half(s, plan->count);
    plan->ring = plan->piles + s->group * (1 + s->ahead);
    plan->chunk_rows = cp_chunk_rows(s, plan->widest);
    plan->chunks_per_block = (plan->widest + plan->chunk_rows - 1) / plan->chunk_rows;
    plan->chunks = cp_chunk_bound(s, plan->widest, plan->count);
    for (plan->free_mask = 1; plan->free_mask < plan->chunks; plan->free_mask *= 2)
        ;
    plan->clocks = malloc(sizeof(cp_clock) * (size_t)plan->ring);
    plan->due = malloc(sizeof(int64_t) * (size_t)plan->ring);
    plan->table = malloc(sizeof(int32_t) * (size_t)(plan->ring * plan->chunks_per_block));
    plan->perms = malloc(sizeof(int32_t) * (size_t)(s->whole ? plan->ring * plan->widest : 1));
    plan->remaining = calloc((size_t)cp_max64(plan->chunks, 1), sizeof(int32_t));
    plan->free_queue = malloc(sizeof(int32_t) * (size_t)plan->free_mask--);
    plan->freed_at = calloc((size_t)s->ahead + 1, sizeof(int64_t));
    plan->shares = malloc(sizeof(cp_share) * 3 * (size_t)cp_max64(plan->ring, 1));
    if (!plan->clocks || !plan->due || !plan->table || !plan->perms || !plan->remaining || !plan->free_queue ||
        !plan->freed_at || !plan->shares)
        return -1;
    for (int64_t i = 0; i < plan->chunks; i++)
        plan->free_queue[i] = (int32_t)i;
    plan->free_tail = plan->chunks;
    for (int i = 0; i <= s->ahead; i++)
        plan->freed_at[i] = plan->chunks;
    return 0;
}

static inline void cp_window(const cp_plan *plan, int64_t step, int64_t *from, int64_t *to)
{
    int64_t half = (int64_t)1 << 31, end = (plan->count << 32) + 1;
    *from = step ? half + (((step - 1) * plan->spec.group) << 32) : 0;
    *to = cp_min64(half + ((step * plan->spec.group) << 32), end);
    if (step == plan->steps - 1)
        *to = end;
}

static inline int64_t cp_loaded_by(const cp_plan *plan, int64_t step)
{
    return cp_min64(plan->count, plan->piles / 2 + step * plan->spec.group);
}

static inline void cp_share_add(cp_plan *plan, int64_t ring, int32_t from, int32_t to, int32_t side)
{
    if (from < to) {
        plan->shares[plan->share_count++] = (cp_share){ring, from, to, side};
        plan->visits += to - from;
    }
}

static inline int cp_grow(cp_plan *plan, int64_t need)
{
    if (need <= plan->capacity)
        return 0;
    need += need / 2;
    free(plan->dealt);
    free(plan->counts);
    plan->dealt = malloc(sizeof(uint64_t) * (size_t)need);
    plan->counts = malloc(sizeof(uint32_t) * (size_t)(need + 1));
    plan->capacity = plan->dealt && plan->counts ? need : 0;
    return plan->capacity ? 0 : -1;
}

/* Set the blocks to load in the next step: the new ones, and after a resume all with buffered rows. */
static inline void cp_riffle_loads(cp_plan *plan)
{
    int64_t from, to;
    cp_window(plan, plan->step, &from, &to);
    plan->load_to = cp_loaded_by(plan, plan->step);
    plan->load_from = plan->step ? cp_loaded_by(plan, plan->step - 1) : 0;
    if (plan->step == plan->start && plan->start > 0)
        plan->load_from = cp_min64(plan->load_to, cp_max64(0, (from >> 32) - plan->piles / 2));
}

/* Return a lower bound of a block's next visit time after `to`. The bound is exact
 * if rows are more distant than windows; otherwise a block of few rows would be checked many times per row. */
static inline int64_t cp_due(const cp_plan *plan, cp_clock *c, int64_t to)
{
    int64_t end = plan->count << 32, due = INT64_MAX, t;
    int32_t p = cp_before(c, cp_min64(to, end));
    if (p < c->rows)
        due = c->slope >> 32 < plan->spec.group ? c->base + c->slope * p : cp_time(c, p);
    if (c->base < 0 && (p = cp_before(c, 1 - to)) > 0)
        due = cp_min64(due, -cp_time(c, p - 1));
    if (c->base + (plan->piles << 32) > end && (p = cp_before(c, 2 * end - to + 1)) > 0 &&
        (t = cp_time(c, p - 1)) >= end)
        due = cp_min64(due, 2 * end - t);
    return due;
}

/* Collect the dealt rows of one buffered block that are visited at from <= time < to. */
static inline void cp_block_shares(cp_plan *plan, int64_t ring, int64_t from, int64_t to)
{
    int64_t end = plan->count << 32;
    cp_clock *c = &plan->clocks[ring];
    int32_t first = cp_before(c, cp_max64(from, 0));
    cp_share_add(plan, ring, first, cp_before(c, cp_min64(to, end)), 0);
    if (c->base < 0 && from <= -c->base)
        cp_share_add(plan, ring, cp_before(c, 1 - to), cp_before(c, cp_min64(1 - from, 0)), -1);
    if (c->base + (plan->piles << 32) > end)
        cp_share_add(plan, ring, cp_before(c, cp_max64(2 * end - to + 1, end)), cp_before(c, 2 * end - from + 1), 1);
    plan->due[ring] = cp_due(plan, c, to);
}

/* Collect the shares of all buffered blocks for the next step. Due blocks are found first, so that their clocks are
 * prefetched together. Returns -1 if out of memory. */
static inline int cp_riffle_shares(cp_plan *plan)
{
    int64_t from, to, rings[CP_DUE_BLOCKS];
    cp_window(plan, plan->step, &from, &to);
    int64_t k = cp_max64(0, (from >> 32) - plan->piles / 2), ring = k % plan->ring;
    plan->share_count = plan->visits = 0;
    while (k < plan->load_to) {
        int64_t stop = cp_min64(plan->load_to, k + CP_DUE_BLOCKS);
        int count = 0;
        for (; k < stop; k++, ring = ring + 1 < plan->ring ? ring + 1 : 0) {
            rings[count] = ring;
            count += plan->due[ring] < to;
        }
        for (int i = 0; i < count; i++)
            __builtin_prefetch(&plan->clocks[rings[i]]);
        for (int i = 0; i < count; i++)
            cp_block_shares(plan, rings[i], from, to);
    }
    return cp_grow(plan, plan->visits + 1);
}

/* Prefetch what writing a share needs: for blocks of few rows most of the work is waiting for memory. */
static inline __attribute__((always_inline)) void cp_share_fetch(const cp_plan *plan, const cp_share *share)
{
    __builtin_prefetch(&plan->clocks[share->ring]);
    __builtin_prefetch(plan->table + share->ring * plan->chunks_per_block);
    if (plan->spec.whole)
        __builtin_prefetch(plan->perms + share->ring * plan->widest + share->from);
}

/* Write the slots of one share with the time bucket of each; scale is buckets per unit of time. */
static inline void cp_share_write(const cp_plan *plan, const cp_share *share, int64_t from, uint64_t scale,
                                  uint64_t *dealt)
{
    const int32_t *table = plan->table + share->ring * plan->chunks_per_block;
    const int32_t *perm = plan->spec.whole ? plan->perms + share->ring * plan->widest : NULL;
    const cp_clock *c = &plan->clocks[share->ring];
    int32_t p = share->from, base = (int32_t)(*table * plan->chunk_rows);
    int32_t shift = cp_chunk_shift(plan->widest), mask = (1 << shift) - 1;
    int64_t sign = share->side ? -1 : 1, slope = sign * c->slope, jitter = sign * (c->slope >> 16);
    int64_t origin = share->side > 0 ? 2 * (plan->count << 32) - from : share->side < 0 ? -from : from;
    int64_t offset = sign * (c->base - origin) + slope * p;
    uint64_t jitters = cp_jitters(c, p) >> (p & 3) * 16;
    uint32_t *counts = plan->counts + 1;
    for (; p < share->to; offset += slope) {
        uint64_t bucket = cp_high((uint64_t)(offset + jitter * (int64_t)(jitters & 0xFFFF)), scale);
        int32_t slot = perm ? base + perm[p] : (table[p >> shift] << shift) + (p & mask);
        *dealt++ = bucket << 32 | (uint32_t)slot;
        counts[bucket]++;
        jitters = ++p & 3 ? jitters >> 16 : cp_jitters(c, p);
    }
}

/* Order the rows of a window by time with one counting sort: as many buckets as rows, ties by age of the block. */
static inline void cp_riffle_visit(cp_plan *plan, int64_t from, int64_t to, int32_t *visit)
{
    int64_t visits = plan->visits, at = 0;
    uint64_t scale = (uint64_t)(((unsigned __int128)visits << 64) / (unsigned __int128)(to - from + 1));
    uint32_t *counts = plan->counts;
    memset(counts, 0, sizeof *counts * (size_t)(visits + 1));
    for (const cp_share *share = plan->shares, *stop = share + plan->share_count; share < stop; share++) {
        if (stop - share > CP_PREFETCH_SHARES)
            cp_share_fetch(plan, share + CP_PREFETCH_SHARES);
        cp_share_write(plan, share, from, scale, plan->dealt + at);
        at += share->to - share->from;
    }
    for (int64_t i = 0; i < visits; i++)
        counts[i + 1] += counts[i];
    for (int64_t i = 0; i < visits; i++)
        visit[counts[plan->dealt[i] >> 32]++] = (int32_t)plan->dealt[i];
    for (int64_t i = 0; i < plan->share_count; i++)
        cp_share_release(plan, &plan->shares[i]);
}

/* Write one step: assign slots to the rows just read, then visit the rows that fall into the step's window. */
static inline int cp_riffle_step(cp_plan *plan, int32_t *into, int32_t *sweep, int32_t *visit)
{
    int64_t from, to;
    int64_t *freed = &plan->freed_at[plan->step % (plan->spec.ahead + 1)];
    cp_window(plan, plan->step, &from, &to);
    plan->free_stop = *freed;
    for (int64_t k = plan->load_from; k < plan->load_to; k++) {
        int32_t rows = plan->clocks[k % plan->ring].rows;
        if (cp_riffle_place(plan, k, from, into, sweep) < 0)
            return -1;
        into += rows;
        if (!plan->spec.whole)
            sweep += rows;
    }
    cp_riffle_visit(plan, from, to, visit);
    *freed = plan->free_tail;
    return 0;
}
