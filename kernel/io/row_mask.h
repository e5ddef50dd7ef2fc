/* Selected rows of a table by a bit per row: the n-th selected row, and runs of selected rows as runs of the table. */
#pragma once

#include "io/starts.h"
#include <stdlib.h>

#define CP_BITS_BLOCK 512 /* rows between two entries of `ranks` */

/* words[i] has the bits of rows 64 i .. 64 i + 63, up to whole blocks; ranks[i] is the number of picks before block i,
 * ranks[blocks] the total. */
typedef struct {
    const uint64_t *words;
    const int64_t *ranks;
    int64_t blocks;
} cp_bits;

/* Return the row of pick n, which must exist. */
static inline int64_t cp_bits_select(const cp_bits *b, int64_t n)
{
    int64_t block = cp_last_start(b->ranks, b->blocks, n);
    const uint64_t *word = b->words + block * (CP_BITS_BLOCK / 64);
    int64_t row = block * CP_BITS_BLOCK, left = n - b->ranks[block];
    for (int set; (set = __builtin_popcountll(*word)) <= left; word++, row += 64)
        left -= set;
    uint64_t bits = *word;
    while (left-- > 0)
        bits &= bits - 1;
    return row + __builtin_ctzll(bits);
}

/* Return the number of picks before a row, at most the number of rows. */
static inline int64_t cp_bits_rank(const cp_bits *b, int64_t row)
{
    int64_t block = row / CP_BITS_BLOCK, rank = b->ranks[block], word = block * (CP_BITS_BLOCK / 64);
    for (; word < row / 64; word++)
        rank += __builtin_popcountll(b->words[word]);
    return row % 64 ? rank + __builtin_popcountll(b->words[word] & ((1ull << row % 64) - 1)) : rank;
}

/* Runs of selected rows as runs of the table. Up to `gap` rows between two picks are read too, into no slot; larger
 * gaps end the run. swept[e]: sweep entries of run e, or -1 if it cannot be swept. */
typedef struct {
    cp_bits bits;
    int64_t gap, count; /* count: of extents */
    int64_t *extents, *swept;
    int32_t *into, *sweep, *at;
    int64_t extent_room, row_room, pick_room;
} cp_picks;

static inline void cp_picks_free(cp_picks *p)
{
    free(p->extents), free(p->swept), free(p->into), free(p->sweep), free(p->at);
}

/* Return a larger array with the same content; the old one if out of memory. */
static inline void *cp_picks_grown(void *array, int64_t bytes, int *failed)
{
    void *larger = realloc(array, (size_t)bytes);
    *failed |= !larger;
    return larger ? larger : array;
}

static inline int cp_picks_fit(cp_picks *p, int64_t extents, int64_t rows, int64_t picks)
{
    int failed = 0;
    if (extents > p->extent_room) {
        int64_t room = extents + extents / 2;
        p->extents = cp_picks_grown(p->extents, 16 * room, &failed);
        p->swept = cp_picks_grown(p->swept, 8 * room, &failed);
        p->extent_room = failed ? p->extent_room : room;
    }
    if (rows > p->row_room) {
        int64_t room = rows + rows / 2;
        p->into = cp_picks_grown(p->into, 4 * room, &failed);
        p->row_room = failed ? p->row_room : room;
    }
    if (picks > p->pick_room) {
        int64_t room = picks + picks / 2;
        p->sweep = cp_picks_grown(p->sweep, 4 * room, &failed);
        p->at = cp_picks_grown(p->at, 4 * room, &failed);
        p->pick_room = failed ? p->pick_room : room;
    }
    return -failed;
}

/* Append one run of picks: its extents, its slots with gaps, and at[i], the position of pick i in the run. Returns the
 * rows appended. */
static inline int64_t cp_picks_run(cp_picks *p, int64_t first, int64_t picks, const int32_t *into, int32_t *to)
{
    const uint64_t *word = p->bits.words + first / 64;
    uint64_t bits = *word & (~0ull << first % 64);
    int64_t next = first, n = 0;
    p->extents[2 * p->count] = first;
    for (int64_t i = 0; i < picks; i++, bits &= bits - 1) {
        while (!bits)
            bits = *++word;
        int64_t row = (word - p->bits.words) * 64 + __builtin_ctzll(bits);
        if (row - next > p->gap) {
            p->extents[2 * p->count + 1] = next;
            p->swept[p->count++] = -1;
            p->extents[2 * p->count] = next = row;
        }
        for (; next < row; next++)
            to[n++] = -1;
        p->at[i] = (int32_t)n;
        to[n++] = into[i];
        next = row + 1;
    }
    p->extents[2 * p->count + 1] = next;
    p->swept[p->count++] = -1;
    return n;
}

/* Convert runs of picks into runs of the table. Returns 0, or -1 if out of memory. */
static inline int cp_picks_map(cp_picks *p, const int64_t *extents, int64_t count, const int32_t *into,
                               const int32_t *sweep)
{
    int64_t rows = 0, picked = 0, swept = 0;
    p->count = 0;
    for (int64_t e = 0; e < count; e++) {
        int64_t start = extents[2 * e], picks = extents[2 * e + 1] - start, before = p->count;
        if (!picks)
            continue;
        int64_t first = cp_bits_select(&p->bits, start), last = cp_bits_select(&p->bits, start + picks - 1);
        int64_t most = p->gap < (last - first) / picks ? picks * (p->gap + 1) : last - first + 1;
        if (cp_picks_fit(p, p->count + picks, rows + most, picked + picks) < 0)
            return -1;
        rows += cp_picks_run(p, first, picks, into, p->into + rows);
        if (sweep && p->count == before + 1) {
            for (int64_t i = 0; i < picks; i++)
                p->sweep[swept + i] = p->at[sweep[i]];
            p->swept[before] = picks;
            swept += picks;
        }
        picked += picks;
        into += picks;
        sweep = sweep ? sweep + picks : NULL;
    }
    return 0;
}
