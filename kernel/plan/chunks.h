/* Allocation of Riffle's buffered rows in chunks of slots, which are freed when their last row is visited. */
#pragma once

#include "plan/clock.h"

/* Return half the piles: the blocks loaded before the first row is visited. */
static inline int64_t cp_half(const cp_spec *s, int64_t blocks)
{
    return cp_min64(s->whole ? cp_max64(1, s->buffer / 2) : s->buffer, blocks);
}

/* Return log2 of the rows per chunk. A block has at least 128 chunks, since half-dealt ones waste memory. */
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

/* Return an upper bound of the buffer's chunks for every seed, step and table. A block with r buffered rows holds at
 * most r / chunk + 4 chunks (both ends of at most two runs, one row of rounding each). */
static inline int64_t cp_chunk_bound(const cp_spec *s, int64_t widest, int64_t blocks)
{
    int64_t n = cp_half(s, blocks), in_step = (1 + s->ahead) * cp_min64(s->group, blocks),
            size = cp_chunk_rows(s, widest);
    int64_t bound = (n + in_step) * widest / size + 1 + (size > 1 ? 4 : 2) * (2 * n + in_step);
    if (s->whole)
        bound = 2 * n + in_step;
    return cp_min64(bound, blocks * ((widest + size - 1) / size));
}

/* Return a free chunk; -1 if none is left, which cp_chunk_bound rules out. */
static inline int32_t cp_take_chunk(cp_plan *plan)
{
    if (plan->free_head == plan->free_stop)
        return -1;
    return plan->free_queue[plan->free_head++ & plan->free_mask];
}

/* Store a block as it was read: its rows go to consecutive slots, and dealt row p is the one at perm[p]. */
static inline int cp_place_whole(cp_plan *plan, int64_t ring, int32_t buffered, int32_t *into)
{
    int32_t rows = plan->clocks[ring].rows, *chunk = plan->table + ring;
    *chunk = buffered ? cp_take_chunk(plan) : 0;
    if (*chunk < 0)
        return -1;
    plan->remaining[*chunk] += buffered;
    int32_t base = (int32_t)(*chunk * plan->chunk_rows);
    for (int32_t i = 0; i < rows; i++)
        into[i] = buffered ? base + i : -1;
    return 0;
}

/* Store a block in dealt order, chunk by chunk: dealt row p is the perm[p]-th of the block, and slots ascend with p.
 * Rows visited before `from` are not stored. */
static inline int cp_place_dealt(cp_plan *plan, int64_t ring, int64_t from, const int32_t *perm, int32_t *into)
{
    const cp_clock *c = &plan->clocks[ring];
    int32_t rows = c->rows, *table = plan->table + ring * plan->chunks_per_block, size = (int32_t)plan->chunk_rows;
    int resumed = plan->step == plan->start && plan->start > 0;
    for (int32_t p = 0; p < rows; p += size, table++) {
        int32_t stop = p + size < rows ? p + size : rows, buffered = stop - p;
        for (int32_t q = p; resumed && q < stop; q++)
            buffered -= cp_visit_time(c, q, plan->count << 32) < from;
        *table = buffered ? cp_take_chunk(plan) : 0;
        if (*table < 0)
            return -1;
        plan->remaining[*table] += buffered;
        int32_t base = *table * size - p;
        if (buffered == stop - p)
            for (int32_t q = p; q < stop; q++)
                into[perm[q]] = base + q;
        else
            for (int32_t q = p; q < stop; q++)
                into[perm[q]] = cp_visit_time(c, q, plan->count << 32) < from ? -1 : base + q;
    }
    return 0;
}

/* Store a block in chunks of one row, if all its rows are buffered. */
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

/* Assign slots to the rows of one block, in a random order drawn for the block. */
static inline int cp_riffle_place(cp_plan *plan, int64_t k, int64_t from, int32_t *into, int32_t *sweep)
{
    int64_t ring = k % plan->ring;
    const cp_clock *c = &plan->clocks[ring];
    int32_t rows = c->rows, buffered = rows, *perm = plan->spec.whole ? plan->perms + ring * plan->widest : sweep;
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
            buffered -= cp_visit_time(c, p, plan->count << 32) < from;
    return cp_place_whole(plan, ring, buffered, into);
}

/* Free the chunks whose last row is visited by this share. */
static inline void cp_share_release(cp_plan *plan, const cp_share *share)
{
    const int32_t *table = plan->table + share->ring * plan->chunks_per_block;
    int32_t shift = plan->spec.whole ? 31 : cp_chunk_shift(plan->widest), *remaining = plan->remaining,
            *queue = plan->free_queue;
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
