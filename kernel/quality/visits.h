/* Counters of an audit over the rows of a training: the rows visited, their order and their classes. */
#pragma once

#include <stdint.h>
#include <string.h>

#define CP_VISITS_MAX_STEP 4096 /* largest step between visits of a rank that takes every M-th row */

/* Return the splitmix64 finaliser of a row number. */
static inline uint64_t cp_visits_hash(int64_t id)
{
    uint64_t v = (uint64_t)id + 0x9E3779B97F4A7C15u;
    v = (v ^ v >> 30) * 0xBF58476D1CE4E5B9u;
    v = (v ^ v >> 27) * 0x94D049BB133111EBu;
    return v ^ v >> 31;
}

/* One epoch of one rank. `seen` has a bit for each of `rows` rows; rows 0: coverage is not tracked. */
typedef struct {
    uint64_t *seen;
    int64_t rows;
    uint64_t bound;    /* visits whose row hash is at most this are sampled, */
    int64_t *chosen;   /* by their number in the call */
    int64_t count;     /* number sampled */
    uint64_t hash_sum; /* of all visits, modulo 2^64 */
    int64_t foreign;   /* visits of rows outside the table */
    int64_t last[2];   /* the last two visits, the later one first */
    int64_t before;    /* number of those, at most 2 */
    int64_t *places;   /* equal part of the table that each visit's row is in; NULL if rows is 0 */
    int64_t parts;
} cp_visits;

/* Add batches with the given numbers of rows. along[i]: visits in batch i that continue the step between the two
 * previous visits. `chosen` has space for all rows. */
static inline void cp_visits_add(cp_visits *v, const int64_t *ids, const int64_t *sizes, int64_t batches, double *along)
{
    uint64_t later = (uint64_t)v->last[0], earlier = (uint64_t)v->last[1];
    double scale = v->rows ? (double)v->parts / (double)v->rows : 0;
    int64_t at = 0;
    v->count = 0;
    for (int64_t batch = 0; batch < batches; batch++) {
        int64_t continued = 0;
        for (int64_t stop = at + sizes[batch]; at < stop; at++) {
            uint64_t id = (uint64_t)ids[at], step = id - later, hash = cp_visits_hash(ids[at]);
            continued += v->before == 2 && step == later - earlier && step
                         && step + CP_VISITS_MAX_STEP <= 2 * CP_VISITS_MAX_STEP;
            v->before += v->before < 2;
            earlier = later;
            later = id;
            v->hash_sum += hash;
            v->chosen[v->count] = at;
            v->count += hash <= v->bound;
            int64_t place = id < (uint64_t)v->rows ? (int64_t)((double)ids[at] * scale) : 0;
            if (id < (uint64_t)v->rows)
                v->seen[id / 64] |= (uint64_t)1 << id % 64;
            else
                v->foreign++;
            if (v->places)
                v->places[at] = place < v->parts ? place : v->parts - 1;
        }
        along[batch] = (double)continued;
    }
    v->last[0] = (int64_t)later;
    v->last[1] = (int64_t)earlier;
}

/* Look up the class of each number in a table that has -1 for unknown ones: codes[i]. Returns how many are known before
 * the first that is unknown or outside the table. */
static inline int64_t cp_classes_find(const int64_t *values, int64_t count, const int64_t *table, int64_t least,
                                      int64_t length, int64_t *codes)
{
    int64_t at = 0;
    for (; at < count; at++) {
        uint64_t place = (uint64_t)values[at] - (uint64_t)least;
        if (place >= (uint64_t)length || (codes[at] = table[place]) < 0)
            break;
    }
    return at;
}

/* Count the classes of batches: counts[batch, kind]. Unless `last` is NULL, the visits begin at number `start`;
 * last[kind] is the last visit of the kind, -1 before the first, and longest[kind] the most visits of other kinds
 * between two. Returns 0, or -1 if a code is not one of `kinds`; the arrays are then undefined. */
static inline int cp_classes_add(const int64_t *codes, const int64_t *sizes, int64_t batches, int64_t kinds,
                                 double *counts, int64_t start, int64_t *last, int64_t *longest)
{
    int64_t at = 0;
    memset(counts, 0, sizeof(double) * (size_t)(batches * kinds));
    for (int64_t batch = 0; batch < batches; batch++, counts += kinds)
        for (int64_t stop = at + sizes[batch]; at < stop; at++) {
            int64_t code = codes[at];
            if (code < 0 || code >= kinds)
                return -1;
            counts[code]++;
            if (last) {
                int64_t gap = start + at - last[code] - 1;
                last[code] = start + at;
                longest[code] = gap > longest[code] ? gap : longest[code];
            }
        }
    return 0;
}
