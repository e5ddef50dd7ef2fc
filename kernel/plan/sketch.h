/* Describes blocks by one number each, close for similar blocks: the rank key of plan/balance.h.
 *
 * Values are classes while they are few whole numbers. With two classes the number is the share of the second; with
 * more, the rank of the most frequent class (the smallest on ties) plus half its share; otherwise it is the mean. A
 * block leaves three numbers, however many classes there are, so memory does not grow with them. */
#pragma once

#include "check.h"
#include "io/gather.h"
#include "plan/permute.h"
#include <math.h>

enum { CP_SKETCH_INTEGERS = 1024, CP_SKETCH_FLOATS = 64 }; /* most classes of an integer column, of a float column */
enum { CP_SKETCH_BITS = 12, CP_SKETCH_PLACES = 1 << CP_SKETCH_BITS, CP_SKETCH_RUN = 512 };

/* Summary of a block. */
typedef struct {
    double sum;
    int64_t often;
    int32_t dominant;          /* the class that occurs `often` times, numbered by first occurrence */
} cp_sketched;

/* Begin by setting `most`, `cuts` and `told`; all else is zero. */
typedef struct {
    int64_t most;                      /* most classes */
    const int64_t *cuts;               /* [blocks + 1] rows */
    cp_sketched *told;                 /* [blocks] */
    int64_t blocks;                    /* ended so far */
    int32_t classes, found;            /* so far; in this block */
    int32_t means;                     /* no classes, or too many: only sums count */
    double sum;                        /* of this block */
    double value[CP_SKETCH_INTEGERS];  /* of each class */
    int64_t count[CP_SKETCH_INTEGERS]; /* in this block */
    int32_t seen[CP_SKETCH_INTEGERS];  /* [found] */
    int16_t place[CP_SKETCH_PLACES];   /* hash table: 1 + class, or 0 */
} cp_sketch;

/* Return the class of a value, adding a new one if needed; -1 if it cannot be a class. */
static inline int32_t cp_sketch_class(cp_sketch *s, double y)
{
    uint64_t bits, at;
    y += 0.0; /* turns -0 into 0 */
    memcpy(&bits, &y, sizeof bits);
    for (at = bits * CP_GOLDEN >> (64 - CP_SKETCH_BITS); s->place[at]; at = (at + 1) % CP_SKETCH_PLACES)
        if (s->value[s->place[at] - 1] == y)
            return s->place[at] - 1;
    if (s->classes == s->most || y != floor(y) || y - y != 0)
        return -1;
    s->value[s->classes] = y;
    s->place[at] = (int16_t)++s->classes;
    return s->classes - 1;
}

/* Count rows of this block while their values are classes; a run of equal values at the start is counted at once.
 * Returns the number counted. */
static inline int64_t cp_sketch_count(cp_sketch *s, const double *y, int64_t n)
{
    int64_t run = 1;
    while (run < n && y[run] == y[0])
        run++;
    for (int64_t i = 0; i < n; i += run, run = 1) {
        int32_t class = cp_sketch_class(s, y[i]);
        if (class < 0)
            return i;
        if (s->count[class] == 0)
            s->seen[s->found++] = class;
        s->count[class] += run;
    }
    return n;
}

/* Convert the counts of this block into a sum. */
static inline void cp_sketch_sum(cp_sketch *s)
{
    for (int32_t i = 0; i < s->found; i++) {
        s->sum += s->value[s->seen[i]] * (double)s->count[s->seen[i]];
        s->count[s->seen[i]] = 0;
    }
    s->found = 0;
}

/* Add rows of this block. Returns the number added: those before the first NaN or infinity. */
static inline int64_t cp_sketch_add(cp_sketch *s, const double *y, int64_t n)
{
    int64_t i = s->means ? 0 : cp_sketch_count(s, y, n);
    double sum;
    if (i == n || y[i] - y[i] != 0)
        return i;
    cp_sketch_sum(s);
    s->means = 1;
    for (sum = s->sum; i < n && y[i] - y[i] == 0; i++)
        sum += y[i];
    s->sum = sum;
    return i;
}

static inline void cp_sketch_end_block(cp_sketch *s)
{
    cp_sketched *told = &s->told[s->blocks++];
    *told = (cp_sketched){.often = 0};
    for (int32_t i = 0; i < s->found; i++) {
        int32_t class = s->seen[i];
        int64_t count = s->count[class];
        CP_CHECK(class < s->classes && count > 0 && !s->means);
        if (count > told->often || (count == told->often && s->value[class] < s->value[told->dominant])) {
            told->often = count;
            told->dominant = class;
        }
    }
    cp_sketch_sum(s);
    told->sum = s->sum;
    s->sum = 0;
}

/* Add rows that follow `row` others and are contiguous, ending each of `blocks` blocks at its cut. Returns the number
 * added: those before the first NaN or infinity. */
static inline int64_t cp_sketch_rows(cp_sketch *s, int64_t blocks, int64_t row, const char *values, enum cp_type type,
                                     int64_t count)
{
    double y[CP_SKETCH_RUN];
    for (int64_t done = 0, n;; done += n) {
        while (s->blocks < blocks && s->cuts[s->blocks + 1] <= row + done)
            cp_sketch_end_block(s);
        if (done == count || s->blocks == blocks)
            return done;
        n = s->cuts[s->blocks + 1] - row - done;
        n = n < count - done ? n : count - done;
        n = n < CP_SKETCH_RUN ? n : CP_SKETCH_RUN;
        cp_cast((char *)y, 1, values + done * cp_type_bytes[type], type, n);
        int64_t added = cp_sketch_add(s, y, n);
        if (added < n)
            return done + added;
    }
}

/* Write one number for each ended block; 0 for an empty one. */
static inline void cp_sketch_values(const cp_sketch *s, double *out)
{
    int32_t rank[CP_SKETCH_INTEGERS] = {0}; /* rank of each class in ascending order */
    for (int32_t i = 0; i < s->classes; i++)
        for (int32_t j = 0; j < s->classes; j++)
            rank[i] += s->value[j] < s->value[i];
    for (int64_t i = 0; i < s->blocks; i++) {
        const cp_sketched *told = &s->told[i];
        int64_t count = s->cuts[i + 1] - s->cuts[i], often = told->often;
        double rows = (double)(count ? count : 1), place = rank[told->dominant];
        if (s->means)
            out[i] = told->sum == told->sum ? told->sum / rows : 0; /* NaN: overflow on both sides */
        else if (s->classes > 2)
            out[i] = count ? place + (double)often / rows / 2 : 0;
        else
            out[i] = (double)(rank[told->dominant] == s->classes - 1 ? often : count - often) / rows;
    }
}
