/* Riffle: deals rows from staggered piles.
 *
 * The row dealt p-th of the block at position k (N blocks of b rows) is visited at time
 *     k + 1/2 + R ((p + u)/b - 1/2),   reflected into [0, N],
 * where R = 2n piles and u in [0, 1) is a jitter keyed by the row. Times are integers, 32 bits of them fraction, so that
 * every machine deals alike. Step 0 loads n blocks and visits up to time 1/2; step j loads `group` more blocks, which
 * begin to be dealt during it, and visits up to 1/2 + j group.
 *
 * Rows are laid out in dealt order in chunks of 2^shift slots, and a chunk is given back when its last row was visited:
 * about n + 1/2 blocks wait at any time. Or blocks stay whole, as they were read: nothing is copied, but R piles need R
 * blocks of memory. */
#ifndef CP_RIFFLE_H
#define CP_RIFFLE_H

#include "blocks.h"

/* Half the piles: the blocks loaded before the first row is visited. */
static inline int64_t cp_half(const cp_spec *s, int64_t blocks)
{
    return cp_min64(s->whole ? cp_max64(1, s->buffer / 2) : s->buffer, blocks);
}

/* log2 of the rows of a chunk: at least 128 chunks a block, for those that are half dealt waste memory. */
static inline int32_t cp_chunk_shift(int64_t widest)
{
    int32_t shift = 0;
    while (widest / 128 >> (shift + 1))
        shift++;
    return shift;
}

static inline int64_t cp_chunk_rows(const cp_spec *s, int64_t widest)
{
    return s->whole ? widest : (int64_t)1 << cp_chunk_shift(widest);
}

/* Chunks of the buffer: a bound that no seed, step or table can break. A block of which r rows wait holds at most
 * r / chunk + 4 chunks (both ends of at most two runs, one row of rounding each). */
static inline int64_t cp_chunk_bound(const cp_spec *s, int64_t widest, int64_t blocks)
{
    int64_t n = cp_half(s, blocks), in_step = (1 + s->ahead) * s->group, size = cp_chunk_rows(s, widest);
    int64_t bound = (n + in_step) * widest / size + 1 + (size > 1 ? 4 : 2) * (2 * n + in_step);
    if (s->whole)
        bound = 2 * n + in_step;
    return cp_min64(bound, blocks * ((widest + size - 1) / size));
}

/* Buffer slots that a plan of these sizes needs. */
static inline int64_t cp_slots(const cp_spec *s, int64_t widest, int64_t blocks)
{
    if (s->kind == CP_RIFFLE)
        return cp_chunk_bound(s, widest, blocks) * cp_chunk_rows(s, widest);
    int64_t n = cp_min64(s->buffer, blocks);
    return cp_min64((1 + s->ahead) * n, blocks + n) * widest;
}

static inline int cp_riffle_alloc(cp_plan *plan)
{
    const cp_spec *s = &plan->spec;
    plan->piles = 2 * cp_half(s, plan->count);
    plan->ring = plan->piles + s->group * (1 + s->ahead);
    plan->chunk_rows = cp_chunk_rows(s, plan->widest);
    plan->chunks_per_block = (plan->widest + plan->chunk_rows - 1) / plan->chunk_rows;
    plan->chunks = cp_chunk_bound(s, plan->widest, plan->count);
    plan->rows_of = calloc((size_t)plan->ring, sizeof(int32_t));
    plan->table = malloc(sizeof(int32_t) * (size_t)(plan->ring * plan->chunks_per_block));
    plan->perms = malloc(sizeof(int32_t) * (size_t)(s->whole ? plan->ring * plan->widest : 1));
    plan->remaining = calloc((size_t)cp_max64(plan->chunks, 1), sizeof(int32_t));
    plan->free_queue = malloc(sizeof(int32_t) * (size_t)cp_max64(plan->chunks, 1));
    plan->freed_at = calloc((size_t)s->ahead + 1, sizeof(int64_t));
    plan->shares = malloc(sizeof(cp_share) * 3 * (size_t)cp_max64(plan->ring, 1));
    if (!plan->rows_of || !plan->table || !plan->perms || !plan->remaining || !plan->free_queue || !plan->freed_at ||
        !plan->shares)
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

/* The jitters of four rows: 16 bits each. */
static inline uint64_t cp_jitters(const cp_clock *c, int64_t p) { return cp_random(c->key, (uint64_t)p >> 2); }

static inline int64_t cp_time_with(const cp_clock *c, int64_t p, uint64_t jitters)
{
    return c->base + c->slope * p + (c->slope >> 16) * (int64_t)(jitters >> (p & 3) * 16 & 0xFFFF);
}

static inline int64_t cp_time(const cp_clock *c, int64_t p) { return cp_time_with(c, p, cp_jitters(c, p)); }

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

/* Take a free chunk; -1 if there is none, which cannot happen while cp_chunk_bound is a bound. */
static inline int32_t cp_take_chunk(cp_plan *plan)
{
    if (plan->free_head == plan->freed_at[plan->step % (plan->spec.ahead + 1)])
        return -1;
    return plan->free_queue[plan->free_head++ % plan->chunks];
}

/* Keep a block as it lies: its rows go to consecutive slots, and dealt row p is the one at perm[p]. */
static inline int cp_place_whole(cp_plan *plan, int64_t k, int32_t waiting, int32_t *into)
{
    int32_t rows = plan->rows_of[k % plan->ring], *chunk = cp_chunk_row(plan, k);
    *chunk = waiting ? cp_take_chunk(plan) : 0;
    if (*chunk < 0)
        return -1;
    plan->remaining[*chunk] += waiting;
    int32_t base = (int32_t)(*chunk * plan->chunk_rows);
    for (int32_t i = 0; i < rows; i++)
        into[i] = waiting ? base + i : -1;
    return 0;
}

/* Lay a block out in dealt order, chunk by chunk: dealt row p is the perm[p]-th of the block, and slots ascend with p.
 * Rows visited before `from` are not kept. */
static inline int cp_place_dealt(cp_plan *plan, int64_t k, int64_t from, const int32_t *perm, int32_t *into)
{
    int32_t rows = plan->rows_of[k % plan->ring], *table = cp_chunk_row(plan, k), size = (int32_t)plan->chunk_rows;
    int resumed = plan->step == plan->start && plan->start > 0;
    cp_clock c = cp_clock_of(plan, k);
    for (int32_t p = 0; p < rows; p += size, table++) {
        int32_t stop = p + size < rows ? p + size : rows, waiting = 0, base;
        for (int32_t q = p; q < stop; q++)
            waiting += !resumed || cp_visit_time(&c, q, plan->count << 32) >= from;
        *table = waiting ? cp_take_chunk(plan) : 0;
        if (*table < 0)
            return -1;
        plan->remaining[*table] += waiting;
        base = *table * size - p;
        if (waiting == stop - p)
            for (int32_t q = p; q < stop; q++)
                into[perm[q]] = base + q;
        else
            for (int32_t q = p; q < stop; q++)
                into[perm[q]] = cp_visit_time(&c, q, plan->count << 32) < from ? -1 : base + q;
    }
    return 0;
}

/* Give the rows of one block their slots, in an order drawn for the block. */
static inline int cp_riffle_place(cp_plan *plan, int64_t k, int64_t from, int32_t *into, int32_t *sweep)
{
    int32_t rows = plan->rows_of[k % plan->ring], waiting = rows;
    int32_t *perm = plan->spec.whole ? plan->perms + k % plan->ring * plan->widest : sweep;
    for (int32_t i = 0; i < rows; i++)
        perm[i] = i;
    cp_shuffle32(perm, (uint64_t)rows, cp_derive2(plan->spec.key ^ CP_KEY_ROWS, (uint64_t)(plan->first + k)));
    if (!plan->spec.whole)
        return cp_place_dealt(plan, k, from, perm, into);
    if (plan->step == plan->start && plan->start > 0) {
        cp_clock c = cp_clock_of(plan, k);
        for (int32_t p = 0; p < rows; p++)
            waiting -= cp_visit_time(&c, p, plan->count << 32) < from;
    }
    return cp_place_whole(plan, k, waiting, into);
}

/* Write the slots of one share with the bucket of time each falls into. */
static inline int64_t cp_share_write(cp_plan *plan, const cp_share *share, int64_t from, int64_t span, int64_t at)
{
    int64_t end = plan->count << 32, origin = share->side > 0 ? 2 * end - from : share->side < 0 ? -from : from;
    int32_t shift = plan->spec.whole ? 31 : cp_chunk_shift(plan->widest), *table = cp_chunk_row(plan, share->position);
    const int32_t *perm = plan->spec.whole ? plan->perms + share->position % plan->ring * plan->widest : NULL;
    cp_clock c = cp_clock_of(plan, share->position);
    uint64_t scale = (uint64_t)((((unsigned __int128)plan->visits) << 64) / (unsigned __int128)(span + 1)), jitters = 0;
    for (int32_t p = share->from; p < share->to; p++, at++) {
        if (p == share->from || (p & 3) == 0)
            jitters = cp_jitters(&c, p);
        int64_t offset = cp_time_with(&c, p, jitters) - origin;
        uint32_t bucket = (uint32_t)cp_high((uint64_t)(share->side ? -offset : offset), scale);
        int32_t base = (int32_t)(table[p >> shift] * plan->chunk_rows);
        plan->slots[at] = perm ? base + perm[p] : base + (p & ((1 << shift) - 1));
        plan->buckets[at] = bucket;
        plan->counts[bucket + 1]++;
    }
    return at;
}

/* Give back the chunks whose last row was visited by this share. */
static inline void cp_share_release(cp_plan *plan, const cp_share *share)
{
    int32_t *table = cp_chunk_row(plan, share->position);
    for (int64_t p = share->from, next; p < share->to; p = next) {
        int32_t chunk = table[p / plan->chunk_rows];
        next = cp_min64((p / plan->chunk_rows + 1) * plan->chunk_rows, share->to);
        plan->remaining[chunk] -= (int32_t)(next - p);
        if (plan->remaining[chunk] == 0)
            plan->free_queue[plan->free_tail++ % plan->chunks] = chunk;
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
        sweep += plan->spec.whole ? 0 : plan->rows_of[k % plan->ring];
    }
    cp_riffle_visit(plan, from, to, visit);
    plan->freed_at[plan->step % (plan->spec.ahead + 1)] = plan->free_tail;
    return 0;
}

#endif
