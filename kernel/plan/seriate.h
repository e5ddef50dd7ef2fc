/* Puts blocks that vectors tell apart in an order of which every stretch samples all kinds of blocks evenly.
 *
 * Blocks are seriated by bisection: all are split at the median of their leading principal direction, both halves
 * likewise, and the second is turned round where its other end is more like the last block of the first. What comes of
 * it, alike blocks side by side in every direction that matters, is laid out by halves (balance.h). Then, of the next
 * CP_WINDOW blocks, the one comes first that leaves the running sum of all vectors nearest to its share of the total; one
 * that has waited CP_LONGEST places comes at once, or greed would leave the odd ones to the end. A small table has a
 * shorter window: a window of most blocks would give the same order in every epoch. An order that deals many blocks at
 * a time visits a mean of these sums over as many places, so a sum that keeps to one side weighs more than one that
 * swings: a part of all sums so far is added to it, as a second-order sigma-delta modulator does. What is left over at the
 * end is spread by going back and forth, CP_PASSES times in all.
 *
 * Every number is an integer and every sum exact, so that all machines and hosts order alike. */
#ifndef CP_SERIATE_H
#define CP_SERIATE_H

#include "plan/balance.h"

enum {
    CP_TRAITS = 64,      /* numbers of a vector at most */
    CP_POWER_STEPS = 6,  /* of the power iteration that finds a direction */
    CP_POWER_BLOCKS = 1024, /* that it looks at: evenly spaced ones of more */
    CP_STEEPEST = 511,   /* largest number of a direction: a product with 64 numbers of 16 bits fits into 32 */
    CP_SHARP = 1 << 12,  /* largest weight of a block in a step of it: sums over CP_BURST blocks fit likewise */
    CP_BURST = 8,
    CP_WINDOW = 24,
    CP_MIN_WINDOWS = 4,  /* a table has at least so many windows */
    CP_LONGEST = 48,
    CP_PASSES = 3,
    CP_PAST = 32,       /* of all sums so far, one part in so many counts */
};

#define CP_FARTHEST ((int64_t)1 << 37) /* that a sum counts: its product with a vector fits into 64 bits */

typedef struct {
    const int16_t *vectors; /* [count][width] */
    int32_t width;
    uint64_t ties;
    int32_t *blocks;        /* [count] as far as they are in order */
    int32_t *along;         /* [count] how far each lies along the direction by which they are split */
    int16_t *sample;        /* [CP_POWER_BLOCKS][width] */
} cp_series;

static inline int32_t cp_dot(const int16_t *a, const int16_t *b, int32_t width)
{
    int32_t sum = 0;
    for (int32_t d = 0; d < width; d++)
        sum += (int32_t)a[d] * b[d];
    return sum;
}

static inline int64_t cp_within(int64_t x, int64_t most) { return x > most ? most : x < -most ? -most : x; }

/* Make a direction of sums; all zeros stay that. */
static inline void cp_shrink(const int64_t *sums, int32_t width, int16_t *direction)
{
    int64_t largest = 0;
    for (int32_t d = 0; d < width; d++)
        largest = cp_max64(largest, sums[d] < 0 ? -sums[d] : sums[d]);
    for (int32_t d = 0; d < width; d++)
        direction[d] = (int16_t)(sums[d] / (largest / CP_STEEPEST + 1));
}

/* Copy vectors of a stretch, evenly spaced ones of many, as they differ from their mean. Returns how many. */
static inline int64_t cp_sample(const cp_series *s, int64_t from, int64_t to)
{
    int64_t count = cp_min64(to - from, CP_POWER_BLOCKS), mean[CP_TRAITS] = {0};
    for (int64_t i = 0; i < count; i++) {
        const int16_t *vector = s->vectors + s->blocks[from + i * (to - from) / count] * (int64_t)s->width;
        memcpy(s->sample + i * s->width, vector, sizeof *vector * (size_t)s->width);
        for (int32_t d = 0; d < s->width; d++)
            mean[d] += vector[d];
    }
    for (int32_t d = 0; d < s->width; d++)
        mean[d] /= count;
    for (int64_t i = 0; i < count; i++)
        for (int32_t d = 0; d < s->width; d++)
            s->sample[i * s->width + d] = (int16_t)cp_within(s->sample[i * s->width + d] - mean[d], INT16_MAX);
    return count;
}

/* One step of the power iteration: the sampled vectors, each as often as it lies along the direction, summed up. */
static inline void cp_power(const cp_series *s, int64_t count, const int16_t *direction, int64_t *next)
{
    int32_t weight[CP_POWER_BLOCKS], largest = 0;
    for (int64_t i = 0; i < count; i++) {
        weight[i] = cp_dot(s->sample + i * s->width, direction, s->width);
        largest = weight[i] > largest ? weight[i] : -weight[i] > largest ? -weight[i] : largest;
    }
    memset(next, 0, sizeof *next * CP_TRAITS);
    for (int64_t i = 0; i < count;) {
        int32_t sums[CP_TRAITS] = {0};
        for (int64_t stop = cp_min64(i + CP_BURST, count); i < stop; i++) {
            int16_t times = (int16_t)(weight[i] / (largest / CP_SHARP + 1));
            for (int32_t d = 0; d < s->width; d++)
                sums[d] += (int32_t)times * s->sample[i * s->width + d];
        }
        for (int32_t d = 0; d < s->width; d++)
            next[d] += sums[d];
    }
}

/* Find the leading principal direction of a stretch; zeros where its blocks are all alike. */
static inline void cp_direction(const cp_series *s, int64_t from, int64_t to, int16_t *direction)
{
    int64_t count = cp_sample(s, from, to), next[CP_TRAITS];
    uint64_t key = cp_derive2(s->ties, (uint64_t)(from + to));
    for (int32_t d = 0; d < s->width; d++)
        direction[d] = (int16_t)((int64_t)cp_below(key, (uint64_t)d, 2 * CP_STEEPEST + 1) - CP_STEEPEST);
    for (int step = 0; step < CP_POWER_STEPS; step++) {
        cp_power(s, count, direction, next);
        cp_shrink(next, s->width, direction);
    }
}

/* Whether a block comes before another one along the direction, ties at random. */
static inline int cp_sooner(const cp_series *s, int32_t x, int32_t along, int32_t y, int32_t other)
{
    if (along != other)
        return along < other;
    return cp_random(s->ties, (uint64_t)x) < cp_random(s->ties, (uint64_t)y);
}

static inline void cp_exchange_blocks(cp_series *s, int64_t i, int64_t j)
{
    int32_t block = s->blocks[i], along = s->along[i];
    s->blocks[i] = s->blocks[j], s->along[i] = s->along[j];
    s->blocks[j] = block, s->along[j] = along;
}

/* Bring those that come before the others along the direction to the front of a stretch, up to `middle`. */
static inline void cp_split(cp_series *s, int64_t from, int64_t to, int64_t middle)
{
    for (int64_t low = from, high = to - 1; low < high;) {
        int64_t i = low, j = high, at = low + (high - low) / 2;
        int32_t pivot = s->blocks[at], along = s->along[at];
        while (i <= j) {
            while (cp_sooner(s, s->blocks[i], s->along[i], pivot, along))
                i++;
            while (cp_sooner(s, pivot, along, s->blocks[j], s->along[j]))
                j--;
            if (i <= j)
                cp_exchange_blocks(s, i++, j--);
        }
        low = middle <= j ? low : i;
        high = middle >= i ? high : j;
    }
}

static inline int64_t cp_model_folds(const cp_series *s, int32_t x, int32_t y)
{
    const int16_t *a = s->vectors + x * (int64_t)s->width, *b = s->vectors + y * (int64_t)s->width;
    int64_t sum = 0;
    for (int32_t d = 0; d < s->width; d++)
        sum += (int64_t)(a[d] - b[d]) * (a[d] - b[d]);
    return sum;
}

/* Seriate the blocks of a stretch; two lie in random order. */
static inline void cp_bisect(cp_series *s, int64_t from, int64_t to)
{
    int64_t middle = from + (to - from) / 2;
    int16_t direction[CP_TRAITS];
    if (to - from == 2 && cp_sooner(s, s->blocks[middle], 0, s->blocks[from], 0))
        cp_exchange_blocks(s, from, middle);
    if (to - from < 3)
        return;
    cp_direction(s, from, to, direction);
    for (int64_t i = from; i < to; i++)
        s->along[i] = cp_dot(s->vectors + s->blocks[i] * (int64_t)s->width, direction, s->width);
    cp_split(s, from, to, middle);
    cp_bisect(s, from, middle);
    cp_bisect(s, middle, to);
    int32_t last = s->blocks[middle - 1];
    if (cp_model_folds(s, last, s->blocks[to - 1]) < cp_model_folds(s, last, s->blocks[middle]))
        for (int64_t i = middle, j = to - 1; i < j; i++, j--)
            cp_exchange_blocks(s, i, j);
}

/* The sum of the vectors so far, less their share of the sum of all: `total` a block, of which a quotient is taken off at
 * each place, and one more as often as the remainders add up to one; and the sum of all such sums. */
typedef struct {
    int64_t sum[CP_TRAITS], past[CP_TRAITS], each[CP_TRAITS], rest[CP_TRAITS], owed[CP_TRAITS];
} cp_balance_sheet;

static inline void cp_open_sheet(cp_balance_sheet *b, const int16_t *vectors, int64_t count, int32_t width)
{
    memset(b, 0, sizeof *b);
    for (int64_t i = 0; i < count; i++)
        for (int32_t d = 0; d < width; d++)
            b->each[d] += vectors[i * width + d];
    for (int32_t d = 0; d < width; d++) {
        int64_t total = b->each[d];
        b->rest[d] = (total % count + count) % count;
        b->each[d] = (total - b->rest[d]) / count;
    }
}

/* Go on by one place: take off what the block there should bring. */
static inline void cp_next_place(cp_balance_sheet *b, int64_t count, int32_t width)
{
    for (int32_t d = 0; d < width; d++) {
        b->owed[d] += b->rest[d];
        b->sum[d] -= b->each[d] + (b->owed[d] >= count);
        b->owed[d] -= b->owed[d] >= count ? count : 0;
    }
}

/* Choose which of the blocks that wait leaves the sum smallest, the first of several; their own lengths count half, or
 * those that differ little from the mean would come first, and the others together. */
static inline int cp_choose(const cp_balance_sheet *b, const int16_t *vectors, int32_t width, const int64_t *waiting,
                            int held)
{
    int best = 0;
    int64_t least = INT64_MAX, off[CP_TRAITS];
    for (int32_t d = 0; d < width; d++)
        off[d] = 4 * cp_within(b->sum[d] + b->past[d] / CP_PAST, CP_FARTHEST);
    for (int i = 0; i < held; i++) {
        const int16_t *vector = vectors + waiting[i] * width;
        int64_t more = 0;
        for (int32_t d = 0; d < width; d++)
            more += vector[d] * (off[d] + vector[d]);
        best = more < least ? i : best;
        least = cp_min64(more, least);
    }
    return best;
}

/* Reorder blocks so that the sum of their vectors strays less from its share. */
static inline void cp_look_ahead(const int16_t *vectors, int64_t count, int32_t width, int64_t *order)
{
    int64_t waiting[CP_WINDOW], since[CP_WINDOW], next = 0;
    int held = 0, window = (int)cp_min64(CP_WINDOW, cp_max64(count / CP_MIN_WINDOWS, 1));
    cp_balance_sheet sheet;
    cp_open_sheet(&sheet, vectors, count, width);
    for (int64_t place = 0; place < count; place++) {
        for (; held < window && next < count; next++) {
            since[held] = place;
            waiting[held++] = order[next];
        }
        cp_next_place(&sheet, count, width);
        int taken = place - since[0] >= CP_LONGEST ? 0 : cp_choose(&sheet, vectors, width, waiting, held);
        order[place] = waiting[taken];
        for (int32_t d = 0; d < width; d++) {
            sheet.sum[d] += vectors[waiting[taken] * width + d];
            sheet.past[d] = cp_within(sheet.past[d] + sheet.sum[d], CP_PAST * CP_FARTHEST);
        }
        held--;
        memmove(waiting + taken, waiting + taken + 1, sizeof *waiting * (size_t)(held - taken));
        memmove(since + taken, since + taken + 1, sizeof *since * (size_t)(held - taken));
    }
}

static inline void cp_turn_round(int64_t *order, int64_t count)
{
    for (int64_t i = 0, j = count - 1; i < j; i++, j--) {
        int64_t block = order[i];
        order[i] = order[j];
        order[j] = block;
    }
}

/* Write the block at each position into order[count]. `vectors` is [count][width], 1 to CP_TRAITS numbers each, and count
 * is at most CP_MAX_BLOCKS. Returns -1 without memory. */
static inline int cp_balance_vectors(const int16_t *vectors, int64_t count, int32_t width, uint64_t key, int64_t *order)
{
    cp_series s = {.vectors = vectors, .width = width, .ties = cp_derive2(key, CP_KEY_BALANCE)};
    size_t room = sizeof(int32_t) * (size_t)count;
    int status = -1;
    if (count == 0)
        return 0;
    CP_CHECK(width >= 1 && width <= CP_TRAITS && count <= CP_MAX_BLOCKS);
    s.blocks = malloc(room);
    s.along = malloc(room);
    s.sample = malloc(sizeof(int16_t) * CP_POWER_BLOCKS * (size_t)width);
    if (s.blocks && s.along && s.sample && cp_lay_out(count, NULL, key, order) == 0) {
        for (int64_t i = 0; i < count; i++)
            s.blocks[i] = (int32_t)i;
        cp_shuffle32_long(s.blocks, (uint64_t)count, s.ties);
        cp_bisect(&s, 0, count);
        for (int64_t i = 0; i < count; i++)
            order[i] = s.blocks[order[i]];
        for (int pass = 0; pass < CP_PASSES; pass++) {
            cp_look_ahead(vectors, count, width, order);
            cp_turn_round(order, count);
        }
        status = 0;
    }
    free(s.blocks), free(s.along), free(s.sample);
    return status;
}

#endif
