/* The basis of every plan: the order of a table's blocks, and the share of a rank. */
#pragma once

#include "plan/permute.h"
#include <stdlib.h>
#include <string.h>

/* The orders: name in the public API; whether blocks come at random; whether the rows of several blocks are mixed;
 * whether rows are dealt one by one (riffle.h) instead of draining a filled buffer. Every host reads names and rules
 * from here. */
#define CP_ORDERS(X)                            \
    X(CP_NO_SHUFFLE, "no_shuffle", 0, 0, 0)     \
    X(CP_BLOCK_ONLY, "block_only", 1, 0, 0)     \
    X(CP_CORGIPILE, "corgipile", 1, 1, 0)       \
    X(CP_RIFFLE, "riffle", 1, 1, 1)

#define CP_ORDER_ID(id, name, random, mixes, deals) id,
enum cp_kind { CP_ORDERS(CP_ORDER_ID) CP_ORDER_COUNT };
#undef CP_ORDER_ID

typedef struct {
    const char *name;
    int random, mixes, deals;
} cp_order_traits;

static inline const cp_order_traits *cp_order(int32_t kind)
{
#define CP_ORDER_ROW(id, name, random, mixes, deals) {name, random, mixes, deals},
    static const cp_order_traits all[] = {CP_ORDERS(CP_ORDER_ROW)};
#undef CP_ORDER_ROW
    return &all[kind];
}

/* Return the number of the order with this name, or -1. */
static inline int32_t cp_order_named(const char *name)
{
    for (int32_t kind = 0; kind < CP_ORDER_COUNT; kind++)
        if (strcmp(name, cp_order(kind)->name) == 0)
            return kind;
    return -1;
}

/* Purposes of randomness within a pass: each is hashed into the key, with the same number in every host. */
enum { CP_KEY_BLOCKS = 1, CP_KEY_ROWS, CP_KEY_JITTER, CP_KEY_BALANCE, CP_KEY_STREAM, CP_KEY_FULL, CP_KEY_PHASES };
#define CP_MAX_BLOCKS ((int64_t)1 << 30) /* times are 32.32 fixed point and reach 2 N */

typedef struct {
    int32_t kind;      /* enum cp_kind */
    int64_t rows;      /* rows of the table */
    int64_t blocks;    /* blocks of the table */
    int64_t even;      /* rows per block if cuts is NULL: block i starts at i * even */
    const int64_t *cuts;  /* int64[blocks + 1] or NULL */
    const int64_t *order; /* int64[blocks], the block at each position, or NULL: storage order or the keyed bijection */
    uint64_t key;      /* hash of (seed, epoch) */
    int64_t first_row, stop_row; /* share of this rank, in rows of the permuted sequence of blocks */
    int64_t buffer;    /* n: blocks mixed; Riffle with whole blocks: piles */
    int64_t group;     /* blocks loaded per step by Riffle; fill-and-drain loads `buffer` */
    int32_t whole;     /* Riffle: blocks stay as read until their last row is visited */
    int32_t ahead;     /* steps that may be loaded while an earlier one is visited */
} cp_spec;

/* Visit times of the rows of one buffered block. */
typedef struct {
    int64_t base, slope; /* dealt row p falls into [base + slope p, base + slope (p + 1)) */
    uint64_t key;
    double pace;         /* 1 / slope, rounded */
    int64_t asked;       /* cached time and the number of rows before it: a window begins where the last one ended */
    int32_t before, rows;
} cp_clock;

typedef struct {
    int64_t ring;     /* ring entry of the block */
    int32_t from, to; /* dealt rows from <= p < to */
    int32_t side;     /* reflection: 0 none, -1 at time 0, +1 at time N */
} cp_share;

typedef struct {
    cp_spec spec;
    cp_bijection walk;
    int64_t first, count;      /* positions of this rank's blocks */
    int64_t skip, last_rows;   /* rows skipped in its first block; rows of its last block, from the block's start */
    int64_t widest;            /* rows of the widest block */
    int64_t step, steps, start;
    /* of the current step */
    int64_t extents, reads, visits, load_from, load_to;
    /* Riffle */
    int64_t piles, ring, chunks, chunk_rows, chunks_per_block;
    cp_clock *clocks;          /* [ring] of each buffered block */
    int64_t *due;              /* [ring] lower bound of the block's next visit time: most blocks are skipped in most
                                * steps */
    int32_t *table;                                     /* [ring][chunks_per_block] chunk numbers */
    int32_t *perms;                                     /* [ring][widest] the row dealt p-th, of whole blocks */
    int32_t *remaining;                                 /* [chunks] rows not yet visited */
    int32_t *free_queue;                                /* [free_mask + 1] ring buffer of chunks */
    int64_t free_head, free_tail, free_mask, free_stop; /* free_stop: end of the chunks that the step may take */
    int64_t *freed_at;                                  /* [ahead + 1] free_tail at the end of recent steps */
    cp_share *shares;
    int64_t share_count;
    uint64_t *dealt;           /* [visits] bucket << 32 | slot, grown as needed */
    uint32_t *counts;
    int64_t capacity;
} cp_plan;

static inline int64_t cp_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t cp_max64(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t cp_cut(const cp_spec *s, int64_t block)
{
    return s->cuts ? s->cuts[block] : cp_min64(block * s->even, s->rows);
}

static inline int64_t cp_block_at(const cp_plan *plan, int64_t position)
{
    const cp_spec *s = &plan->spec;
    if (s->order)
        return s->order[position];
    return !cp_order(s->kind)->random ? position : (int64_t)cp_permute(&plan->walk, (uint64_t)position);
}

/* Set the run of rows at a position of this rank, counted from 0. */
static inline void cp_run_at(const cp_plan *plan, int64_t k, int64_t *start, int64_t *stop)
{
    int64_t block = cp_block_at(plan, plan->first + k), cut = cp_cut(&plan->spec, block);
    *start = cut + (k == 0 ? plan->skip : 0);
    *stop = k == plan->count - 1 ? cut + plan->last_rows : cp_cut(&plan->spec, block + 1);
}

/* Return the position of the block with row `row` of the permuted sequence, and set the number of rows before it. */
static inline int64_t cp_locate(const cp_plan *plan, int64_t row, int64_t *before)
{
    const cp_spec *s = &plan->spec;
    int64_t position = 0, sum = 0;
    if (!s->cuts) { /* all blocks have the same size except the table's last */
        int64_t last = s->blocks - 1, missing_rows = s->blocks * s->even - s->rows;
        int64_t at = s->order || !cp_order(s->kind)->random ? last : (int64_t)cp_unpermute(&plan->walk, (uint64_t)last);
        if (s->order && missing_rows)
            for (at = 0; at < last && s->order[at] != last; at++)
                ;
        position = row / s->even;
        if (position >= at && row >= (at + 1) * s->even - missing_rows)
            position = (row + missing_rows) / s->even;
        *before = position * s->even - (position > at ? missing_rows : 0);
        return position;
    }
    for (;; position++) {
        int64_t block = cp_block_at(plan, position), rows = cp_cut(s, block + 1) - cp_cut(s, block);
        if (row < sum + rows || position == s->blocks - 1)
            break;
        sum += rows;
    }
    *before = sum;
    return position;
}

static inline int64_t cp_widest(const cp_spec *s)
{
    if (!s->cuts)
        return cp_min64(s->even, s->rows);
    int64_t widest = 0;
    for (int64_t i = 0; i < s->blocks; i++)
        widest = cp_max64(widest, s->cuts[i + 1] - s->cuts[i]);
    return widest;
}
