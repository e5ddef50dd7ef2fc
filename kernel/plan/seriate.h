/* Orders blocks that are described by vectors so that every stretch of the order samples all kinds of blocks evenly.
 *
 * Blocks are seriated by bisection: all are split at the median of their leading principal direction, both halves
 * likewise, and the second is reversed if its other end is closer to the last block of the first. The result, with
 * similar blocks adjacent in every direction that matters, is interleaved by halves (balance.h).
 *
 * Then, of the next CP_WINDOW blocks, the one comes first that leaves the running sum of all vectors closest to its
 * share of the total. A block that has waited CP_MAX_WAIT places comes at once, since a greedy choice would leave
 * outliers to the end. A small table has a shorter window: a window of most blocks would give the same order in every
 * epoch. Orders that deal many blocks at a time visit a mean of these sums over as many places, so a sum that stays on
 * one side weighs more than one that swings. Therefore a fraction of all past sums is added, as in a second-order
 * sigma-delta modulator. The remainder at the end is spread by passes in both directions, CP_PASSES in all. The last
 * pass begins at a random block and takes it, so that every block is equally often the last of an epoch.
 *
 * Every number is an integer and every sum exact, so that all machines and hosts get the same order. */
#pragma once

#include "plan/balance.h"

enum {
    CP_TRAITS = 64,         /* most numbers per vector */
    CP_POWER_STEPS = 6,     /* of the power iteration that finds a direction */
    CP_POWER_BLOCKS = 1024, /* blocks sampled by it, evenly spaced */
    CP_MAX_DIRECTION = 511, /* largest number of a direction: a product with 64 numbers of 16 bits fits into 32 */
    CP_MAX_POWER_WEIGHT = 1
        << 12, /* largest weight of a block in a power step: sums over CP_SUM_BLOCKS blocks fit into 32 bits
                          * too */
    CP_SUM_BLOCKS = 8,
    CP_WINDOW = 24,
    CP_MIN_WINDOWS = 4, /* fewest windows per table */
    CP_MAX_WAIT = 48,
    CP_PASSES = 3,
    CP_PAST_DIVISOR = 32, /* divisor of the past sums */
};

#define CP_MAX_RUNNING_SUM ((int64_t)1 << 37) /* largest sum that counts: its product with a vector fits into 64 bits */

typedef struct {
    const int16_t *vectors; /* [count][width] */
    int32_t width;
    uint64_t ties;
    int32_t *blocks;        /* [count] in the order so far */
    int32_t *projection;    /* [count] projection on the direction by which blocks are split */
    int16_t *sample;        /* [CP_POWER_BLOCKS][width] */
} cp_series;

static inline int32_t cp_dot(const int16_t *a, const int16_t *b, int32_t width)
{
    int32_t sum = 0;
    for (int32_t d = 0; d < width; d++)
        sum += (int32_t)a[d] * b[d];
    return sum;
}

static inline int64_t cp_clamp(int64_t x, int64_t most) { return x > most ? most : x < -most ? -most : x; }

/* Scale sums to a direction; all zeros stay zeros. */
static inline void cp_scale_direction(const int64_t *sums, int32_t width, int16_t *direction)
{
    int64_t largest = 0;
    for (int32_t d = 0; d < width; d++)
        largest = cp_max64(largest, sums[d] < 0 ? -sums[d] : sums[d]);
    for (int32_t d = 0; d < width; d++)
        direction[d] = (int16_t)(sums[d] / (largest / CP_MAX_DIRECTION + 1));
}

/* Copy the centred vectors of a stretch, or an evenly spaced sample of them. Returns their number. */
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
            s->sample[i * s->width + d] = (int16_t)cp_clamp(s->sample[i * s->width + d] - mean[d], INT16_MAX);
    return count;
}

/* Do one step of the power iteration: sum the sampled vectors, weighted by their projection on the direction. */
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
        for (int64_t stop = cp_min64(i + CP_SUM_BLOCKS, count); i < stop; i++) {
            int16_t times = (int16_t)(weight[i] / (largest / CP_MAX_POWER_WEIGHT + 1));
            for (int32_t d = 0; d < s->width; d++)
                sums[d] += (int32_t)times * s->sample[i * s->width + d];
        }
        for (int32_t d = 0; d < s->width; d++)
            next[d] += sums[d];
    }
}

/* Set the leading principal direction of a stretch; zeros if all its blocks are equal. */
static inline void cp_direction(const cp_series *s, int64_t from, int64_t to, int16_t *direction)
{
    int64_t count = cp_sample(s, from, to), next[CP_TRAITS];
    uint64_t key = cp_derive2(s->ties, (uint64_t)(from + to));
    for (int32_t d = 0; d < s->width; d++)
        direction[d] = (int16_t)((int64_t)cp_below(key, (uint64_t)d, 2 * CP_MAX_DIRECTION + 1) - CP_MAX_DIRECTION);
    for (int step = 0; step < CP_POWER_STEPS; step++) {
        cp_power(s, count, direction, next);
        cp_scale_direction(next, s->width, direction);
    }
}

/* Return whether block x comes before block y along the direction, ties at random. */
static inline int cp_comes_first(const cp_series *s, int32_t x, int32_t projection, int32_t y, int32_t other)
{
    if (projection != other)
        return projection < other;
    return cp_random(s->ties, (uint64_t)x) < cp_random(s->ties, (uint64_t)y);
}

static inline void cp_exchange_blocks(cp_series *s, int64_t i, int64_t j)
{
    int32_t block = s->blocks[i], projection = s->projection[i];
    s->blocks[i] = s->blocks[j], s->projection[i] = s->projection[j];
    s->blocks[j] = block, s->projection[j] = projection;
}

/* Partition a stretch so that the blocks up to `middle` are those that come first along the direction. */
static inline void cp_split(cp_series *s, int64_t from, int64_t to, int64_t middle)
{
    for (int64_t low = from, high = to - 1; low < high;) {
        int64_t i = low, j = high, at = low + (high - low) / 2;
        int32_t pivot = s->blocks[at], projection = s->projection[at];
        while (i <= j) {
            while (cp_comes_first(s, s->blocks[i], s->projection[i], pivot, projection))
                i++;
            while (cp_comes_first(s, pivot, projection, s->blocks[j], s->projection[j]))
                j--;
            if (i <= j)
                cp_exchange_blocks(s, i++, j--);
        }
        low = middle <= j ? low : i;
        high = middle >= i ? high : j;
    }
}

static inline int64_t cp_square_distance(const cp_series *s, int32_t x, int32_t y)
{
    const int16_t *a = s->vectors + x * (int64_t)s->width, *b = s->vectors + y * (int64_t)s->width;
    int64_t sum = 0;
    for (int32_t d = 0; d < s->width; d++)
        sum += (int64_t)(a[d] - b[d]) * (a[d] - b[d]);
    return sum;
}

/* Seriate the blocks of a stretch; two blocks get a random order. */
static inline void cp_bisect(cp_series *s, int64_t from, int64_t to)
{
    int64_t middle = from + (to - from) / 2;
    int16_t direction[CP_TRAITS];
    if (to - from == 2 && cp_comes_first(s, s->blocks[middle], 0, s->blocks[from], 0))
        cp_exchange_blocks(s, from, middle);
    if (to - from < 3)
        return;
    cp_direction(s, from, to, direction);
    for (int64_t i = from; i < to; i++)
        s->projection[i] = cp_dot(s->vectors + s->blocks[i] * (int64_t)s->width, direction, s->width);
    cp_split(s, from, to, middle);
    cp_bisect(s, from, middle);
    cp_bisect(s, middle, to);
    int32_t last = s->blocks[middle - 1];
    if (cp_square_distance(s, last, s->blocks[to - 1]) < cp_square_distance(s, last, s->blocks[middle]))
        for (int64_t i = middle, j = to - 1; i < j; i++, j--)
            cp_exchange_blocks(s, i, j);
}

/* The sum of the vectors so far, less their share of the total. The share is subtracted per place as an integer
 * quotient, plus one whenever the remainders add up to one. `past` sums all such sums. */
typedef struct {
    int64_t sum[CP_TRAITS], past[CP_TRAITS], each[CP_TRAITS], rest[CP_TRAITS], owed[CP_TRAITS];
} cp_running_sum;

static inline void cp_running_sum_begin(cp_running_sum *b, const int16_t *vectors, int64_t count, int32_t width)
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

/* Advance by one place: subtract its share of the total. */
static inline void cp_running_sum_advance(cp_running_sum *b, int64_t count, int32_t width)
{
    for (int32_t d = 0; d < width; d++) {
        b->owed[d] += b->rest[d];
        b->sum[d] -= b->each[d] + (b->owed[d] >= count);
        b->owed[d] -= b->owed[d] >= count ? count : 0;
    }
}

/* Return which of the waiting blocks leaves the smallest sum, the first on ties. Their own lengths count half;
 * otherwise blocks close to the mean would come first and the others together. */
static inline int cp_choose(const cp_running_sum *b, const int16_t *vectors, int32_t width, const int64_t *waiting,
                            int waiting_count)
{
    int best = 0;
    int64_t least = INT64_MAX, off[CP_TRAITS];
    for (int32_t d = 0; d < width; d++)
        off[d] = 4 * cp_clamp(b->sum[d] + b->past[d] / CP_PAST_DIVISOR, CP_MAX_RUNNING_SUM);
    for (int i = 0; i < waiting_count; i++) {
        const int16_t *vector = vectors + waiting[i] * width;
        int64_t more = 0;
        for (int32_t d = 0; d < width; d++)
            more += vector[d] * (off[d] + vector[d]);
        best = more < least ? i : best;
        least = cp_min64(more, least);
    }
    return best;
}

/* Reorder blocks after the first so that the sum of their vectors deviates less from its share. */
static inline void cp_reorder(const int16_t *vectors, int64_t count, int32_t width, int64_t *order)
{
    int64_t waiting[CP_WINDOW], since[CP_WINDOW], next = 0;
    int waiting_count = 0, window = (int)cp_min64(CP_WINDOW, cp_max64(count / CP_MIN_WINDOWS, 1));
    cp_running_sum sheet;
    cp_running_sum_begin(&sheet, vectors, count, width);
    for (int64_t place = 0; place < count; place++) {
        for (; waiting_count < window && next < count; next++) {
            since[waiting_count] = place;
            waiting[waiting_count++] = order[next];
        }
        cp_running_sum_advance(&sheet, count, width);
        int due = place == 0 || place - since[0] >= CP_MAX_WAIT;
        int chosen = due ? 0 : cp_choose(&sheet, vectors, width, waiting, waiting_count);
        order[place] = waiting[chosen];
        for (int32_t d = 0; d < width; d++) {
            sheet.sum[d] += vectors[waiting[chosen] * width + d];
            sheet.past[d] = cp_clamp(sheet.past[d] + sheet.sum[d], CP_PAST_DIVISOR * CP_MAX_RUNNING_SUM);
        }
        waiting_count--;
        memmove(waiting + chosen, waiting + chosen + 1, sizeof *waiting * (size_t)(waiting_count - chosen));
        memmove(since + chosen, since + chosen + 1, sizeof *since * (size_t)(waiting_count - chosen));
    }
}

static inline void cp_reverse(int64_t *order, int64_t count)
{
    for (int64_t i = 0, j = count - 1; i < j; i++, j--) {
        int64_t block = order[i];
        order[i] = order[j];
        order[j] = block;
    }
}

/* Begin before position `first` and go backwards, round the ends. */
static inline void cp_rotate(int64_t *order, int64_t count, int64_t first)
{
    cp_reverse(order, first);
    cp_reverse(order + first, count - first);
}

/* Write the block at each position into order[count]. `vectors` is [count][width], 1 to CP_TRAITS numbers each; count
 * is at most CP_MAX_BLOCKS. Returns -1 if out of memory. */
static inline int cp_balance_vectors(const int16_t *vectors, int64_t count, int32_t width, uint64_t key, int64_t *order)
{
    cp_series s = {.vectors = vectors, .width = width, .ties = cp_derive2(key, CP_KEY_BALANCE)};
    size_t bytes = sizeof(int32_t) * (size_t)count;
    int status = -1;
    if (count == 0)
        return 0;
    CP_CHECK(width >= 1 && width <= CP_TRAITS && count <= CP_MAX_BLOCKS);
    s.blocks = malloc(bytes);
    s.projection = malloc(bytes);
    s.sample = malloc(sizeof(int16_t) * CP_POWER_BLOCKS * (size_t)width);
    if (s.blocks && s.projection && s.sample && cp_interleave_ranks(count, NULL, key, order) == 0) {
        for (int64_t i = 0; i < count; i++)
            s.blocks[i] = (int32_t)i;
        cp_shuffle32_long(s.blocks, (uint64_t)count, s.ties);
        cp_bisect(&s, 0, count);
        for (int64_t i = 0; i < count; i++)
            order[i] = s.blocks[order[i]];
        for (int pass = 0; pass < CP_PASSES; pass++) {
            if (pass == CP_PASSES - 1)
                cp_rotate(order, count, (int64_t)cp_below(s.ties, (uint64_t)CP_MAX_BLOCKS + 1, (uint64_t)count));
            cp_reorder(vectors, count, width, order);
            cp_reverse(order, count);
        }
        status = 0;
    }
    free(s.blocks), free(s.projection), free(s.sample);
    return status;
}
