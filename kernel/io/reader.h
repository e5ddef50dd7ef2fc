/* Reads the columns of one table into one buffer, all rows or selected ones, with several threads. */
#pragma once

#include "io/items.h"
#include "io/row_mask.h"
#include "io/pread.h"

#define CP_LISTS_PER_THREAD 128 /* runs whose offsets are worth another thread */

/* A reader of one table's columns into one buffer. */
typedef struct {
    cp_pool pool;
    cp_read read;
    cp_column *columns; /* owned by the caller */
    int64_t column_count;
    cp_picks picks; /* selected rows, by which the caller numbers rows, unless bits.words is NULL */
    int cores;
} cp_reader;

/* Start a reader of `threads` threads, including the caller's. Returns -1 if out of memory. */
static inline int cp_reader_start(cp_reader *r, int threads)
{
    *r = (cp_reader){.read = {.stage_bytes = CP_STAGE_BYTES}, .cores = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    r->read.stages = calloc((size_t)threads + 1, sizeof(char *));
    if (r->read.stages && cp_pool_start(&r->pool, threads - 1) == 0)
        return 0;
    free(r->read.stages);
    return -1;
}

static inline void cp_reader_stop(cp_reader *r)
{
    cp_pool_stop(&r->pool);
    for (int i = 0; i <= r->pool.count + 1; i++)
        free(r->read.stages[i]);
    free(r->read.stages);
    free(r->read.parts);
    free(r->read.requests);
    cp_picks_free(&r->picks);
}

/* Prefetch runs, like cp_read_prefetch, in the caller's row numbers. */
static inline void cp_reader_prefetch(const cp_reader *r, const int64_t *extents, int64_t extent_count)
{
    const cp_bits *bits = &r->picks.bits;
    if (!bits->words)
        cp_read_prefetch(r->columns, r->column_count, extents, extent_count);
    for (int64_t e = 0; bits->words && e < extent_count; e++)
        if (extents[2 * e] < extents[2 * e + 1]) {
            int64_t run[2] = {cp_bits_select(bits, extents[2 * e]), cp_bits_select(bits, extents[2 * e + 1] - 1) + 1};
            cp_read_prefetch(r->columns, r->column_count, run, 1);
        }
}

/* Select rows from now on; the columns must be set. Close rows are read as one range. */
static inline void cp_reader_pick(cp_reader *r, cp_bits bits)
{
    int64_t widest = 1;
    for (int64_t c = 0; c < r->column_count; c++)
        widest = cp_row_bytes(&r->columns[c]) > widest ? cp_row_bytes(&r->columns[c]) : widest;
    r->picks.bits = bits;
    r->picks.gap = CP_GAP_BYTES / widest;
    r->read.stage_bytes = r->read.stage_bytes > 2 * CP_STAGE_BYTES ? r->read.stage_bytes : 2 * CP_STAGE_BYTES;
}

/* Read runs, like cp_read_rows. If the consumer waits (`urgent`), all cores copy cached bytes; otherwise those that
 * neither the consumer nor the caller needs. Waking a thread pays for a full stage, not for less. */
static inline int cp_reader_read(cp_reader *r, const int64_t *extents, int64_t extent_count, const int32_t *into,
                                 const int32_t *sweep, int urgent)
{
    int64_t rows = 0, bytes = 0, listed = 0, helpers = r->cores - (urgent ? 1 : 2), worth;
    for (int64_t e = 0; e < extent_count; e++)
        rows += extents[2 * e + 1] - extents[2 * e];
    for (int64_t c = 0; c < r->column_count; c++) {
        bytes += rows * cp_row_bytes(&r->columns[c]);
        listed += r->columns[c].lists != NULL;
    }
    worth =
        bytes / CP_STAGE_BYTES + listed * extent_count / CP_LISTS_PER_THREAD; /* for offsets the calls take the time */
    helpers = helpers < worth ? helpers : worth;
    cp_picks *p = &r->picks;
    cp_runs runs = {extents, extent_count, into, sweep, NULL};
    if (p->bits.words) {
        if (cp_picks_map(p, extents, extent_count, into, sweep) < 0)
            return -1;
        runs = (cp_runs){p->extents, p->count, p->into, sweep ? p->sweep : NULL, p->swept};
    }
    return cp_read_rows(&r->read, &r->pool, r->columns, r->column_count, runs, (int)helpers);
}

/* Read the items of rows of varying length of the same runs, after their offsets. Returns as cp_items_read does. */
static inline int cp_reader_items(cp_reader *r, cp_runs runs, int32_t *owner, cp_bundles *bundles, int urgent)
{
    cp_picks *p = &r->picks;
    if (p->bits.words) {
        if (cp_picks_map(p, runs.extents, runs.count, runs.into, NULL) < 0)
            return -1;
        runs = (cp_runs){p->extents, p->count, p->into, NULL, NULL};
    }
    cp_items t = {.read = &r->read, .pool = &r->pool, .columns = r->columns, .column_count = r->column_count,
                  .helpers = r->cores - (urgent ? 1 : 2), .runs = runs, .owner = owner, .bundles = bundles};
    return cp_items_read(&t);
}
