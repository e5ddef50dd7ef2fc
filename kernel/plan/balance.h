/* Orders blocks so that every stretch of the order samples all kinds of blocks evenly.
 *
 * Blocks are ranked by one number each, ties in random order. The ranks are split into a lower and an upper half, whose
 * blocks alternate; each half is split likewise. Tied blocks stay in one part if possible, and parts of different sizes
 * alternate in proportion to size. So any stretch of the order holds every range of ranks in proportion, up to a few
 * blocks. Where each pair of parts starts to alternate is random, keyed by the epoch. So neighbours recur no more often
 * than in random order, and a period along the ranks does not become a slow wave. */
#pragma once

#include "plan/blocks.h"
#include "check.h"

typedef struct {
    double value;
    uint64_t place;
    int64_t block;
} cp_ranked;

static inline int cp_compare_ranked(const void *a, const void *b)
{
    const cp_ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

typedef struct {
    const int64_t *starts; /* the first rank tied with each rank, or NULL */
    uint64_t key;
} cp_ties;

/* Return the size of the lower part of `count` ranks from `from` on: half, or the size that keeps ties together if each
 * part gets an eighth or more. */
static inline int64_t cp_lower_part(const int64_t *starts, int64_t from, int64_t count)
{
    int64_t half = count / 2, least = cp_max64(count / 8, 1);
    if (!starts || starts[from + half] - from >= least)
        return starts ? starts[from + half] - from : half;
    int64_t above = starts[from + count - least] - from;
    return above > half ? above : half;
}

/* Write the `count` ranks from `from` on to `order`, by position. `scratch` has the same size. */
static inline void cp_interleave(const cp_ties *t, int64_t from, int64_t count, int64_t *order, int64_t *scratch)
{
    int64_t lower = count > 1 ? cp_lower_part(t->starts, from, count) : count, low = 0, up = lower;
    order[0] = from;
    if (count < 2)
        return;
    cp_interleave(t, from, lower, scratch, order);
    cp_interleave(t, from + lower, count - lower, scratch + lower, order + lower);
    int64_t phase = (int64_t)cp_below(t->key, (uint64_t)from << 31 | (uint64_t)count, (uint64_t)count);
    for (int64_t i = 0; i < count; i++) {
        phase += lower;
        order[i] = scratch[phase < count ? up++ : low++];
        phase -= phase < count ? 0 : count;
    }
    CP_CHECK(low == lower && up == count);
}

/* Write the rank at each position. Returns -1 if out of memory. */
static inline int cp_interleave_ranks(int64_t count, const int64_t *starts, uint64_t key, int64_t *order)
{
    cp_ties ties = {starts, cp_derive2(key, CP_KEY_PHASES)};
    int64_t *scratch = malloc(sizeof *scratch * (size_t)(count ? count : 1));
    if (!scratch)
        return -1;
    if (count)
        cp_interleave(&ties, 0, count, order, scratch);
    free(scratch);
    return 0;
}

/* Write the block at each position into order[count]. Returns -1 if out of memory. */
static inline int cp_balance(const double *values, int64_t count, uint64_t key, int64_t *order)
{
    cp_ranked *ranked = malloc(sizeof *ranked * (size_t)(count ? count : 1));
    int64_t *starts = calloc((size_t)(count ? count : 1), sizeof *starts);
    uint64_t ties = cp_derive2(key, CP_KEY_BALANCE);
    int status = -1;
    for (int64_t i = 0; ranked && i < count; i++) {
        CP_CHECK(values[i] == values[i]);
        ranked[i] = (cp_ranked){values[i], cp_random(ties, (uint64_t)i), i};
    }
    if (ranked && starts) {
        qsort(ranked, (size_t)count, sizeof *ranked, cp_compare_ranked);
        for (int64_t i = 1; i < count; i++)
            starts[i] = ranked[i].value == ranked[i - 1].value ? starts[i - 1] : i;
        status = cp_interleave_ranks(count, starts, key, order);
        for (int64_t i = 0; status == 0 && i < count; i++)
            order[i] = ranked[order[i]].block;
    }
    free(ranked), free(starts);
    return status;
}
