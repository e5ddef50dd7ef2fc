/* Puts blocks in an order of which every stretch samples all kinds of blocks evenly.
 *
 * Blocks are ranked by one number each (ties in random order); rank r gets the place frac(r * 0.618... + u), u keyed by
 * the epoch, and blocks are laid out by place: by the three-distance theorem every window holds evenly spaced ranks. */
#ifndef CP_BALANCE_H
#define CP_BALANCE_H

#include "plan/blocks.h"
#include "check.h"

typedef struct {
    double value;
    uint64_t place;
    int64_t block;
} cp_ranked;

static inline int cp_by_value(const void *a, const void *b)
{
    const cp_ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Write the rank at each place without sorting: by the same theorem a rank's place is followed by that `on` ranks
 * further, or `back` ranks before, or both, where `on` is the first rank past rank 0's place and `back` the last. */
static inline void cp_lay_out(int64_t count, uint64_t first, int64_t *order)
{
    int64_t on = 0, back = 0, rank = 0;
    for (int64_t i = 1; i < count; i++) {
        uint64_t place = (uint64_t)i * CP_GOLDEN;
        on = on && (uint64_t)on * CP_GOLDEN < place ? on : i;
        back = (uint64_t)back * CP_GOLDEN > place ? back : i;
        rank = (uint64_t)rank * CP_GOLDEN + first < place + first ? rank : i;
    }
    for (int64_t i = 0; i < count; i++) {
        CP_CHECK(rank >= 0 && rank < count);
        order[i] = rank;
        rank += rank < count - on ? on : rank >= back ? -back : on - back;
    }
}

/* Write the block at each position into order[count]. Returns -1 without memory. */
static inline int cp_balance(const double *values, int64_t count, uint64_t key, int64_t *order)
{
    cp_ranked *ranked = malloc(sizeof *ranked * (size_t)(count ? count : 1));
    uint64_t ties = cp_derive2(key, CP_KEY_BALANCE), first = cp_random(ties, (uint64_t)count);
    if (!ranked)
        return -1;
    for (int64_t i = 0; i < count; i++) {
        CP_CHECK(values[i] == values[i]);
        ranked[i] = (cp_ranked){values[i], cp_random(ties, (uint64_t)i), i};
    }
    qsort(ranked, (size_t)count, sizeof *ranked, cp_by_value);
    cp_lay_out(count, first, order);
    for (int64_t i = 0; i < count; i++)
        order[i] = ranked[order[i]].block;
    free(ranked);
    return 0;
}

#endif
