/* Riffle: deals rows from staggered piles.
 *
 * The row dealt p-th of the block at position k (N blocks of b rows) is visited at time
 *     k + 1/2 + R ((p + u)/b - 1/2),   reflected into [0, N],
 * where R = 2n piles and u in [0, 1) is a jitter keyed by the row. Times are integers, 32 bits of them fraction, so that
 * every machine deals alike. Step 0 loads n blocks and visits up to time 1/2; step j loads `group` more blocks, which
 * begin to be dealt during it, and visits up to 1/2 + j group. Rows are laid out in dealt order in chunks of 2^shift
 * slots, and a chunk is given back when its last row was visited: about n + 1/2 blocks wait at any time. */
#ifndef CP_RIFFLE_H
#define CP_RIFFLE_H

#include "blocks.h"

static inline int64_t cp_chunks_per_block(int64_t widest, int shift)
{
    return (widest + ((int64_t)1 << shift) - 1) >> shift;
}

/* Buffer slots that a plan of these sizes needs: a bound that no seed, step or table can break. For Riffle, a block of
 * which r rows wait holds at most r / chunk + 4 chunks (both ends of at most two runs, one row of rounding each). */
static inline int64_t cp_slots(const cp_spec *s, int64_t widest, int64_t blocks)
{
    int64_t n = cp_min64(s->buffer, blocks), in_step = (1 + s->ahead) * s->group;
    if (s->kind != CP_RIFFLE)
        return cp_min64((1 + s->ahead) * n, blocks + n) * widest;
    int64_t per_block = cp_chunks_per_block(widest, s->shift);
    int64_t waiting = ((n + in_step) * widest) >> s->shift;
    int64_t bound = waiting + 1 + (s->shift ? 4 : 2) * (2 * n + in_step);
    if (per_block == 1)
        bound = cp_min64(bound, 2 * n + in_step);
    return cp_min64(bound, blocks * per_block) << s->shift;
}

static inline int cp_riffle_alloc(cp_plan *plan)
{
    const cp_spec *s = &plan->spec;
    plan->piles = 2 * cp_min64(s->buffer, plan->count);
    plan->ring = plan->piles + s->group * (1 + s->ahead);
    plan->chunks_per_block = cp_chunks_per_block(plan->widest, s->shift);
    plan->chunks = cp_slots(s, plan->widest, plan->count) >> s->shift;
    plan->rows_of = calloc((size_t)plan->ring, sizeof(int32_t));
    plan->table = malloc(sizeof(int32_t) * (size_t)(plan->ring * plan->chunks_per_block));
    plan->remaining = calloc((size_t)plan->chunks, sizeof(int32_t));
    plan->free_queue = malloc(sizeof(int32_t) * (size_t)plan->chunks);
    plan->freed_at = calloc((size_t)s->ahead + 1, sizeof(int64_t));
    plan->shares = malloc(sizeof(cp_share) * 3 * (size_t)plan->ring);
    if (!plan->rows_of || !plan->table || !plan->remaining || !plan->free_queue || !plan->freed_at || !plan->shares)
        return -1;
    for (int64_t i = 0; i < plan->chunks; i++)
        plan->free_queue[i] = (int32_t)i;
    plan->free_tail = plan->chunks;
    for (int i = 0; i <= s->ahead; i++)
        plan->freed_at[i] = plan->chunks;
    return 0;
}

typedef struct {
    int64_t base, slope; /* dealt row p falls into [base + slope p, base + slope (p + 1)) */
    uint64_t key;
    int32_t rows;
} cp_clock;

static inline cp_clock cp_clock_of(const cp_plan *plan, int64_t k)
{
    cp_clock c = {.rows = plan->rows_of[k % plan->ring]};
    c.base = (k << 32) + ((int64_t)1 << 31) - (plan->piles << 31);
    c.slope = (plan->piles << 32) / cp_max64(c.rows, 1);
    c.key = cp_derive2(plan->spec.key ^ CP_KEY_JITTER, (uint64_t)(plan->first + k));
    return c;
}

static inline int64_t cp_time(const cp_clock *c, int64_t p)
{
    return c->base + c->slope * p + (int64_t)cp_high(cp_random(c->key, (uint64_t)p), (uint64_t)c->slope);
}

/* The number of dealt rows whose time is before t; times ascend with p. */
static inline int32_t cp_before(const cp_clock *c, int64_t t)
{
    if (t <= c->base)
        return 0;
    int64_t p = (t - c->base) / c->slope;
    if (p >= c->rows)
        return c->rows;
    return (int32_t)(p + (cp_time(c, p) < t));
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

static inline void cp_share_add(cp_plan *plan, int64_t k, int32_t from, int32_t to, int32_t side)
{
    if (from < to) {
        plan->shares[plan->share_count++] = (cp_share){k, from, to, side};
        plan->visits += to - from;
    }
}

static inline int cp_grow(cp_plan *plan, int64_t need)
{
    if (need <= plan->capacity)
        return 0;
    need += need / 2;
    free(plan->slots);
    free(plan->buckets);
    free(plan->counts);
    plan->slots = malloc(sizeof(int32_t) * (size_t)need);
    plan->buckets = malloc(sizeof(uint32_t) * (size_t)need);
    plan->counts = malloc(sizeof(uint32_t) * (size_t)(need + 1));
    plan->capacity = plan->slots && plan->buckets && plan->counts ? need : 0;
    return plan->capacity ? 0 : -1;
}

/* Find the blocks to load for the next step: the new ones, and at a resumed start all that have rows waiting. */
static inline void cp_riffle_loads(cp_plan *plan)
{
    int64_t from, to;
    cp_window(plan, plan->step, &from, &to);
    plan->load_to = cp_loaded_by(plan, plan->step);
    plan->load_from = plan->step ? cp_loaded_by(plan, plan->step - 1) : 0;
    if (plan->step == plan->start && plan->start > 0)
        plan->load_from = cp_min64(plan->load_to, cp_max64(0, (from >> 32) - plan->piles / 2));
}

/* Collect which dealt rows of which waiting blocks are visited by the next step. Returns -1 without memory. */
static inline int cp_riffle_shares(cp_plan *plan)
{
    int64_t from, to, end = plan->count << 32;
    cp_window(plan, plan->step, &from, &to);
    int64_t k = cp_max64(0, (from >> 32) - plan->piles / 2);
    plan->share_count = plan->visits = 0;
    for (; k < plan->load_to; k++) {
        cp_clock c = cp_clock_of(plan, k);
        cp_share_add(plan, k, cp_before(&c, cp_max64(from, 0)), cp_before(&c, cp_min64(to, end)), 0);
        if (c.base < 0 && from <= -c.base)
            cp_share_add(plan, k, cp_before(&c, 1 - to), cp_before(&c, cp_min64(1 - from, 0)), -1);
        if (c.base + (plan->piles << 32) > end)
            cp_share_add(plan, k, cp_before(&c, cp_max64(2 * end - to + 1, end)), cp_before(&c, 2 * end - from + 1), 1);
    }
    return cp_grow(plan, plan->visits + 1);
}

static inline int32_t *cp_chunk_row(cp_plan *plan, int64_t k)
{
    return plan->table + (k % plan->ring) * plan->chunks_per_block;
}

static inline int64_t cp_visit_time(const cp_clock *c, int64_t p, int64_t end)
{
    int64_t t = cp_time(c, p);
    return t < 0 ? -t : t >= end ? 2 * end - t : t;
}

/* Give the rows of one block their slots: dealt row p is the perm[p]-th of the block, and slots ascend with p. */
static inline int cp_riffle_place(cp_plan *plan, int64_t k, int64_t from, int32_t *into, int32_t *perm)
{
    int32_t rows = plan->rows_of[k % plan->ring], shift = plan->spec.shift, *table = cp_chunk_row(plan, k);
    cp_clock c = cp_clock_of(plan, k);
    int resumed = plan->step == plan->start && plan->start > 0;
    for (int32_t i = 0; i < rows; i++)
        perm[i] = i;
    cp_shuffle32(perm, (uint64_t)rows, cp_derive2(plan->spec.key ^ CP_KEY_ROWS, (uint64_t)(plan->first + k)));
    for (int32_t p = 0; p < rows; p++) {
        int32_t *chunk = &table[p >> shift];
        if ((p & ((1 << shift) - 1)) == 0)
            *chunk = -1;
        if (resumed && cp_visit_time(&c, p, plan->count << 32) < from) {
            into[perm[p]] = -1;
            continue;
        }
        if (*chunk < 0) {
            if (plan->free_head == plan->freed_at[plan->step % (plan->spec.ahead + 1)])
                return -1; /* cannot happen while cp_slots is a bound; checked because memory depends on it */
            *chunk = plan->free_queue[plan->free_head++ % plan->chunks];
        }
        plan->remaining[*chunk]++;
        into[perm[p]] = (*chunk << shift) + (p & ((1 << shift) - 1));
    }
    return 0;
}

/* Write the slots of one share with the bucket of time each falls into. */
static inline int64_t cp_share_write(cp_plan *plan, const cp_share *share, int64_t from, int64_t span, int64_t at)
{
    int64_t end = plan->count << 32;
    cp_clock c = cp_clock_of(plan, share->position);
    int32_t shift = plan->spec.shift, mask = (1 << shift) - 1, *table = cp_chunk_row(plan, share->position);
    int64_t origin = share->side > 0 ? 2 * end - from : from;
    int64_t sign = share->side ? -1 : 1;
    uint64_t scale = (uint64_t)((((unsigned __int128)plan->visits) << 64) / (unsigned __int128)(span + 1));
    for (int32_t p = share->from; p < share->to; p++, at++) {
        int64_t offset = share->side < 0 ? -cp_time(&c, p) - from : sign * (cp_time(&c, p) - origin);
        uint32_t bucket = (uint32_t)cp_high((uint64_t)offset, scale);
        plan->slots[at] = (table[p >> shift] << shift) + (p & mask);
        plan->buckets[at] = bucket;
        plan->counts[bucket + 1]++;
    }
    return at;
}

/* Give back the chunks whose last row was visited by this share. */
static inline void cp_share_release(cp_plan *plan, const cp_share *share)
{
    int32_t shift = plan->spec.shift, *table = cp_chunk_row(plan, share->position);
    for (int32_t p = share->from; p < share->to;) {
        int32_t next = (int32_t)cp_min64(((p >> shift) + 1) << shift, share->to), chunk = table[p >> shift];
        plan->remaining[chunk] -= next - p;
        if (plan->remaining[chunk] == 0)
            plan->free_queue[plan->free_tail++ % plan->chunks] = chunk;
        p = next;
    }
}

/* Order the rows of a window by time with one counting sort: as many buckets as rows, ties by age of the block. */
static inline void cp_riffle_visit(cp_plan *plan, int64_t from, int64_t to, int32_t *visit)
{
    int64_t at = 0;
    memset(plan->counts, 0, sizeof(uint32_t) * (size_t)(plan->visits + 1));
    for (int64_t i = 0; i < plan->share_count; i++)
        at = cp_share_write(plan, &plan->shares[i], from, to - from, at);
    for (int64_t i = 0; i < plan->visits; i++)
        plan->counts[i + 1] += plan->counts[i];
    for (int64_t i = 0; i < at; i++)
        visit[plan->counts[plan->buckets[i]]++] = plan->slots[i];
    for (int64_t i = 0; i < plan->share_count; i++)
        cp_share_release(plan, &plan->shares[i]);
}

/* Write one step: first give the rows just read their slots, then visit what falls into the step's window. */
static inline int cp_riffle_step(cp_plan *plan, int32_t *into, int32_t *sweep, int32_t *visit)
{
    int64_t from, to;
    cp_window(plan, plan->step, &from, &to);
    for (int64_t k = plan->load_from; k < plan->load_to; k++) {
        if (cp_riffle_place(plan, k, from, into, sweep) < 0)
            return -1;
        into += plan->rows_of[k % plan->ring];
        sweep += plan->rows_of[k % plan->ring];
    }
    cp_riffle_visit(plan, from, to, visit);
    plan->freed_at[plan->step % (plan->spec.ahead + 1)] = plan->free_tail;
    return 0;
}

#endif
