/* Where the rows of Riffle wait: in chunks of slots, given back when their last row was visited. */
#ifndef CP_CHUNKS_H
#define CP_CHUNKS_H

#include "plan/clock.h"

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
    int64_t n = cp_half(s, blocks), in_step = (1 + s->ahead) * cp_min64(s->group, blocks), size = cp_chunk_rows(s, widest);
    int64_t bound = (n + in_step) * widest / size + 1 + (size > 1 ? 4 : 2) * (2 * n + in_step);
    if (s->whole)
        bound = 2 * n + in_step;
    return cp_min64(bound, blocks * ((widest + size - 1) / size));
}

/* Take a free chunk; -1 if there is none, which cannot happen while cp_chunk_bound is a bound. */
static inline int32_t cp_take_chunk(cp_plan *plan)
{
    if (plan->free_head == plan->free_stop)
        return -1;
    return plan->free_queue[plan->free_head++ & plan->free_mask];
}

/* Keep a block as it lies: its rows go to consecutive slots, and dealt row p is the one at perm[p]. */
static inline int cp_place_whole(cp_plan *plan, int64_t ring, int32_t waiting, int32_t *into)
{
    int32_t rows = plan->clocks[ring].rows, *chunk = plan->table + ring;
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
static inline int cp_place_dealt(cp_plan *plan, int64_t ring, int64_t from, const int32_t *perm, int32_t *into)
{
    const cp_clock *c = &plan->clocks[ring];
    int32_t rows = c->rows, *table = plan->table + ring * plan->chunks_per_block, size = (int32_t)plan->chunk_rows;
    int resumed = plan->step == plan->start && plan->start > 0;
    for (int32_t p = 0; p < rows; p += size, table++) {
        int32_t stop = p + size < rows ? p + size : rows, waiting = stop - p, base;
        for (int32_t q = p; resumed && q < stop; q++)
            waiting -= cp_visit_time(c, q, plan->count << 32) < from;
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
                into[perm[q]] = cp_visit_time(c, q, plan->count << 32) < from ? -1 : base + q;
    }
    return 0;
}

/* The same for chunks of one row, where all wait. */
static inline int cp_place_single(cp_plan *plan, int64_t ring, const int32_t *perm, int32_t *into)
{
    int32_t rows = plan->clocks[ring].rows, *table = plan->table + ring * plan->chunks_per_block;
    if (plan->free_stop - plan->free_head < rows)
        return -1;
    for (int32_t p = 0; p < rows; p++) {
        int32_t chunk = cp_take_chunk(plan);
        table[p] = into[perm[p]] = chunk;
        plan->remaining[chunk] = 1;
    }
    return 0;
}

/* Give the rows of one block their slots, in an order drawn for the block. */
static inline int cp_riffle_place(cp_plan *plan, int64_t k, int64_t from, int32_t *into, int32_t *sweep)
{
    int64_t ring = k % plan->ring;
    const cp_clock *c = &plan->clocks[ring];
    int32_t rows = c->rows, waiting = rows, *perm = plan->spec.whole ? plan->perms + ring * plan->widest : sweep;
    for (int32_t i = 0; i < rows; i++)
        perm[i] = i;
    cp_shuffle32(perm, (uint64_t)rows, cp_derive2(plan->spec.key ^ CP_KEY_ROWS, (uint64_t)(plan->first + k)));
    int resumed = plan->step == plan->start && plan->start > 0;
    if (plan->chunk_rows == 1 && !plan->spec.whole && !resumed)
        return cp_place_single(plan, ring, perm, into);
    if (!plan->spec.whole)
        return cp_place_dealt(plan, ring, from, perm, into);
    if (resumed)
        for (int32_t p = 0; p < rows; p++)
            waiting -= cp_visit_time(c, p, plan->count << 32) < from;
    return cp_place_whole(plan, ring, waiting, into);
}

/* Give back the chunks whose last row was visited by this share. */
static inline void cp_share_release(cp_plan *plan, const cp_share *share)
{
    const int32_t *table = plan->table + share->ring * plan->chunks_per_block;
    int32_t shift = plan->spec.whole ? 31 : cp_chunk_shift(plan->widest), *remaining = plan->remaining, *queue = plan->free_queue;
    int64_t tail = plan->free_tail, mask = plan->free_mask;
    for (int32_t p = share->from; shift == 0 && p < share->to; p++) {
        remaining[table[p]] = 0;
        queue[tail++ & mask] = table[p];
    }
    for (int64_t p = share->from, next; shift > 0 && p < share->to; p = next) {
        int32_t chunk = table[p >> shift];
        next = cp_min64(((p >> shift) + 1) << shift, share->to);
        remaining[chunk] -= (int32_t)(next - p);
        if (remaining[chunk] == 0)
            queue[tail++ & mask] = chunk;
    }
    plan->free_tail = tail;
}

#endif
