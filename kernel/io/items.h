/* Reads the items of rows of varying length into bundles, after their offsets: close ranges by one call, cached ones
 * first, the rest by all threads. */
#pragma once

#include "io/bundles.h"
#include "io/pread.h"
#include "text/letters.h"

#define CP_BUNDLE_END_BYTES ((int64_t)16 << 10) /* bytes from which a bundle ends with the current run */
#define CP_BUNDLE_MAX_BYTES ((int64_t)64 << 10) /* most bytes of a bundle with more than one row */
#define CP_MAX_ITEM_RANGES 8192                 /* ranges read at a time, plus those of one bundle */
#define CP_MAX_CALL_RANGES 32                   /* most ranges per call */
#define CP_ITEM_GAP ((int64_t)2 << 10)     /* bytes between ranges that are read and dropped: copying them from the
                                            * cache costs as much as a call */

/* Contiguous items of one column in a file, and their destination. */
typedef struct {
    int32_t fd;
    int64_t offset, bytes, row; /* row: the first */
    char *to;
} cp_item_range;

typedef struct {
    cp_read *read;
    cp_pool *pool;
    int helpers;
    const cp_column *columns;
    int64_t column_count;
    cp_runs runs;
    int32_t *owner; /* [slots] */
    cp_bundles *bundles;
    cp_item_range *ranges;
    int64_t range_count, range_room;
    int64_t *firsts; /* of each call */
    char *waits;
    int64_t calls;
    int wait;
} cp_items;

/* The next row of the runs: its number, and its position among the rows of all runs. */
typedef struct {
    int64_t run, row, at;
} cp_walk;

static inline cp_walk cp_walk_begin(const cp_runs *runs)
{
    return (cp_walk){0, runs->count ? runs->extents[0] : 0, 0};
}

/* Advance to the next run at the end of this one; returns whether there is a row. */
static inline int cp_walk_on(const cp_runs *runs, cp_walk *w)
{
    while (w->run < runs->count && w->row >= runs->extents[2 * w->run + 1])
        if (++w->run < runs->count)
            w->row = runs->extents[2 * w->run];
    return w->run < runs->count;
}

static inline int64_t cp_list_bytes(const cp_lists *l, int32_t slot) { return l->length[slot] * l->item; }

static inline int64_t cp_row_items(const cp_items *t, int32_t slot)
{
    int64_t bytes = 0;
    for (int64_t c = 0; c < t->column_count; c++)
        bytes += t->columns[c].lists ? cp_list_bytes(t->columns[c].lists, slot) : 0;
    return bytes;
}

/* Return the end of the bundle that begins at `w`; sets the number of its rows that go to slots. */
static inline cp_walk cp_bundle_end(const cp_items *t, cp_walk w, int64_t *rows)
{
    int64_t bytes = 0, run = w.run;
    *rows = 0;
    for (; cp_walk_on(&t->runs, &w); w.row++, w.at++) {
        int32_t slot = t->runs.into[w.at];
        if (w.run != run && bytes >= CP_BUNDLE_END_BYTES)
            break;
        run = w.run;
        if (slot < 0)
            continue;
        int64_t more = cp_row_items(t, slot);
        if (*rows && bytes + more > CP_BUNDLE_MAX_BYTES)
            break;
        bytes += more;
        ++*rows;
    }
    return w;
}

static inline int cp_item_range_add(cp_items *t, cp_item_range range)
{
    if (t->range_count == t->range_room) {
        int64_t room = t->range_room ? 2 * t->range_room : 256;
        cp_item_range *ranges = realloc(t->ranges, sizeof *ranges * (size_t)room);
        if (!ranges)
            return -1;
        t->ranges = ranges;
        t->range_room = room;
    }
    t->ranges[t->range_count++] = range;
    return 0;
}

/* Place the rows of one column from `w` to `stop` at `to` on, and add the ranges to read. */
static inline int cp_items_place(cp_items *t, const cp_column *c, cp_walk w, cp_walk stop, char *to)
{
    const cp_lists *l = c->lists;
    int64_t piece = -1, open = -1; /* open: the range that the next row may extend */
    for (; w.at < stop.at && cp_walk_on(&t->runs, &w); w.row++, w.at++) {
        int32_t slot = t->runs.into[w.at];
        int64_t bytes = slot < 0 ? 0 : cp_list_bytes(l, slot);
        if (slot < 0)
            continue;
        if (piece < 0 || w.row < c->starts[piece] || w.row >= c->starts[piece + 1])
            piece = cp_last_start(c->starts, c->pieces, w.row);
        cp_item_range new = {c->fds[piece], (int64_t)l->address[slot], bytes, w.row, to};
        cp_item_range *last = open < 0 ? NULL : &t->ranges[open];
        l->address[slot] = (uint64_t)(uintptr_t)to;
        to += bytes;
        if (!bytes)
            continue;
        if (last && last->fd == new.fd && last->offset + last->bytes == new.offset) {
            last->bytes += bytes;
            continue;
        }
        open = t->range_count;
        if (cp_item_range_add(t, new) < 0)
            return -1;
    }
    return 0;
}

/* Create the bundle of the rows from `w` to `stop`. Returns -1 if out of memory. */
static inline int cp_bundle_fill(cp_items *t, cp_walk w, cp_walk stop, int64_t rows)
{
    int64_t bytes = 0, from = 0;
    for (cp_walk v = w; v.at < stop.at && cp_walk_on(&t->runs, &v); v.row++, v.at++)
        bytes += t->runs.into[v.at] < 0 ? 0 : cp_row_items(t, t->runs.into[v.at]);
    /* columns are aligned to 16 bytes */
    int64_t number = cp_bundle_make(t->bundles, bytes + 16 * t->column_count, rows);
    if (number < 0)
        return -1;
    for (cp_walk v = w; v.at < stop.at && cp_walk_on(&t->runs, &v); v.row++, v.at++)
        if (t->runs.into[v.at] >= 0)
            t->owner[t->runs.into[v.at]] = cp_bundle_owner(number);
    for (int64_t c = 0; c < t->column_count; c++) {
        if (!t->columns[c].lists)
            continue;
        bytes = 0;
        for (cp_walk v = w; v.at < stop.at && cp_walk_on(&t->runs, &v); v.row++, v.at++)
            bytes += t->runs.into[v.at] < 0 ? 0 : cp_list_bytes(t->columns[c].lists, t->runs.into[v.at]);
        if (cp_items_place(t, &t->columns[c], w, stop, t->bundles->all[number].data + from) < 0)
            return -1;
        from += (bytes + 15) / 16 * 16;
    }
    return 0;
}

/* Join close ranges into calls; the gap may be larger on a device. */
static inline void cp_items_join(cp_items *t)
{
    const int64_t gap = t->wait ? CP_GAP_BYTES : CP_ITEM_GAP;
    t->calls = 0;
    for (int64_t i = 0; i < t->range_count; i++) {
        const cp_item_range *range = &t->ranges[i], *last = i ? range - 1 : range;
        int64_t first = t->calls ? t->firsts[t->calls - 1] : 0, end = last->offset + last->bytes;
        if (i && i - first < CP_MAX_CALL_RANGES && range->fd == last->fd && range->offset >= end
            && range->offset - end <= gap && range->offset + range->bytes - t->ranges[first].offset <= CP_STAGE_BYTES)
            continue;
        t->waits[t->calls] = 1;
        t->firsts[t->calls++] = i;
    }
    t->firsts[t->calls] = t->range_count;
}

/* Read the ranges of one call at once; returns 0 if it came short. */
static inline int cp_items_read_call(const cp_items *t, int64_t from, int64_t to)
{
    struct iovec parts[2 * CP_MAX_CALL_RANGES];
    char between[CP_GAP_BYTES];
    const cp_item_range *first = &t->ranges[from];
    int64_t at = first->offset;
    int count = 0;
    for (const cp_item_range *range = first; range < t->ranges + to; range++) {
        if (range->offset > at)
            parts[count++] = (struct iovec){between, (size_t)(range->offset - at)};
        parts[count++] = (struct iovec){range->to, (size_t)range->bytes};
        at = range->offset + range->bytes;
    }
    return cp_preadv_some(first->fd, parts, count, first->offset, t->wait) == at - first->offset;
}

static inline void cp_items_call(void *context, int64_t task, int worker)
{
    cp_items *t = context;
    cp_read *r = t->read;
    int64_t from = t->firsts[task], to = t->firsts[task + 1], bytes = 0;
    (void)worker;
    if (atomic_load(&r->failed) || !t->waits[task])
        return;
    t->waits[task] = !cp_items_read_call(t, from, to);
    if (t->waits[task] && !t->wait)
        atomic_store(&r->waiting, 1);
    for (int64_t i = from; i < to; i++) {
        const cp_item_range *range = &t->ranges[i]; /* one by one after a short read, by a signal or at the end of the
                                                   * file */
        bytes += range->bytes;
        if (t->waits[task] && t->wait && cp_pread_all(range->fd, range->to, range->bytes, range->offset, 1) < 0) {
            cp_part part = {.fd = range->fd, .first_row = range->row};
            cp_read_fail(r, &part, errno);
        }
    }
    if (!t->waits[task] || t->wait)
        atomic_fetch_add(&r->bytes, bytes);
}

/* Drop the ranges that were read. */
static inline void cp_items_drop_read(cp_items *t)
{
    int64_t left = 0;
    for (int64_t k = 0; k < t->calls; k++)
        for (int64_t i = t->firsts[k]; t->waits[k] && i < t->firsts[k + 1]; i++)
            t->ranges[left++] = t->ranges[i];
    t->range_count = left;
}

/* Read all ranges added so far. Returns 0, -1 if out of memory, 1 after a failed read. */
static inline int cp_items_flush(cp_items *t)
{
    cp_read *r = t->read;
    t->firsts = malloc(sizeof *t->firsts * (size_t)(t->range_count + 1));
    t->waits = malloc((size_t)t->range_count + 1);
    int status = t->firsts && t->waits ? 0 : -1;
    for (t->wait = 0; !status && t->wait < 2; t->wait++) {
        atomic_store(&r->waiting, 0);
        cp_items_join(t);
        cp_pool_run(t->pool, cp_items_call, t, t->calls, t->wait ? t->pool->count : t->helpers, 0);
        if (!atomic_load(&r->waiting))
            break;
        cp_items_drop_read(t);
    }
    free(t->firsts);
    free(t->waits);
    t->range_count = 0;
    return status ? status : atomic_load(&r->failed);
}

/* Return whether bytes are valid UTF-8. */
static inline int cp_is_utf8(const uint8_t *p, int64_t bytes)
{
    const uint8_t *end = p + bytes;
    uint64_t eight;
    uint32_t code;
    while (p < end) {
        if (end - p >= 8) {
            memcpy(&eight, p, 8);
            if (!(eight & 0x8080808080808080u)) {
                p += 8;
                continue;
            }
        }
        int step = *p < 0x80 ? 1 : cp_utf8_read(p, end, &code);
        if (!step)
            return 0;
        p += step;
    }
    return 1;
}

/* Check that rows of text columns are valid UTF-8. Returns 0, or 1 and sets the failure of the read. */
static inline int cp_items_check(cp_items *t, cp_walk w, cp_walk stop)
{
    for (; w.at < stop.at && cp_walk_on(&t->runs, &w); w.row++, w.at++)
        for (int64_t c = 0; c < t->column_count; c++) {
            const cp_column *column = &t->columns[c];
            const cp_lists *l = column->lists;
            int32_t slot = t->runs.into[w.at];
            if (!l || !l->text || slot < 0 || cp_is_utf8((const uint8_t *)(uintptr_t)l->address[slot], l->length[slot]))
                continue;
            cp_part part = {.fd = column->fds[cp_last_start(column->starts, column->pieces, w.row)],
                            .first_row = w.row};
            cp_read_fail(t->read, &part, CP_BAD_TEXT);
            return 1;
        }
    return 0;
}

/* Read the items of all rows of the runs, whose offsets must have been read. Returns 0, -1 if out of memory, 1 after a
 * failed read. */
static inline int cp_items_read(cp_items *t)
{
    int status = 0, text = 0;
    cp_walk w = cp_walk_begin(&t->runs), done = w;
    atomic_store(&t->read->failed, 0);
    for (int64_t c = 0; c < t->column_count; c++)
        text |= t->columns[c].lists && t->columns[c].lists->text;
    while (!status && cp_walk_on(&t->runs, &w)) {
        int64_t rows;
        cp_walk stop = cp_bundle_end(t, w, &rows);
        status = rows ? cp_bundle_fill(t, w, stop, rows) : 0;
        w = stop;
        if (!status && (t->range_count >= CP_MAX_ITEM_RANGES || !cp_walk_on(&t->runs, &w))) {
            status = cp_items_flush(t);
            status = !status && text ? cp_items_check(t, done, w) : status;
            done = w;
        }
    }
    free(t->ranges);
    return status;
}
