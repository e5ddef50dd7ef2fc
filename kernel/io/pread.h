/* Reads runs of rows of several fixed-width columns straight into buffer slots: close parts are coalesced into
 * requests, read by a small pool, staged in cache-sized pieces and scattered once. */
#pragma once

#include "io/interleaved_read.h"
#include "io/lists.h"

/* Split one run of rows into parts of at most a stage, each within a piece. */
static inline int cp_parts_of_run(cp_read *r, const cp_column *c, int64_t start, int64_t stop, const int32_t *into)
{
    int64_t width = cp_row_bytes(c), most = c->lists ? CP_STAGE_BYTES / width - 1 : cp_rows_per_stage(width);
    while (start < stop) {
        int64_t piece = cp_last_start(c->starts, c->pieces, start), rows = c->starts[piece + 1] - start;
        rows = rows < stop - start ? rows : stop - start;
        rows = rows < most ? rows : most;
        int64_t offset = c->offsets[piece] + (start - c->starts[piece]) * width;
        cp_part part = {c->fds[piece], c, 1, offset, rows, start, into};
        if (cp_part_add(r, part) < 0)
            return -1;
        start += rows;
        into += rows;
    }
    return 0;
}

/* Return whether two parts may be read by one call: those of two columns if they are short, as in wide tables. */
static inline int cp_joinable(const cp_part *p, const cp_part *q)
{
    int single = p->columns == 1 && q->columns == 1 && p->fd == q->fd;
    int fixed = !p->column->lists && !q->column->lists && p->fd != CP_MEMORY;
    int small = cp_part_bytes(p) <= CP_GAP_BYTES && cp_part_bytes(q) <= CP_GAP_BYTES;
    return single && (p->column == q->column || (fixed && small));
}

/* Order parts by file and offset; those of a column of lists stay together. */
static inline int cp_part_order(const void *one, const void *other)
{
    const cp_part *p = one, *q = other;
    uintptr_t lists = (uintptr_t)p->column->lists, others = (uintptr_t)q->column->lists;
    if (p->fd != q->fd)
        return p->fd < q->fd ? -1 : 1;
    if (lists != others)
        return lists < others ? -1 : 1;
    return (p->offset > q->offset) - (p->offset < q->offset);
}

/* Join close parts of one file, from `from` on, into requests. Scattered rows are sorted first: more are close then. */
static inline void cp_coalesce(cp_read *r, int64_t from)
{
    int64_t sorted = from + 1;
    while (sorted < r->part_count && cp_part_order(&r->parts[sorted - 1], &r->parts[sorted]) <= 0)
        sorted++;
    if (sorted < r->part_count && r->parts[from].fd != CP_MEMORY)
        qsort(&r->parts[from], (size_t)(r->part_count - from), sizeof *r->parts, cp_part_order);
    for (int64_t i = from; i < r->part_count; i++) {
        const cp_part *p = &r->parts[i], *q = i > from ? p - 1 : p;
        cp_request *last = r->requests + (i > from ? r->request_count - 1 : 0);
        int64_t end = q->offset + cp_part_bytes(q);
        end -= cp_shared_bytes(q->column);
        if (i > from && cp_joinable(p, q) && p->offset >= end && p->offset - end <= CP_GAP_BYTES
            && p->offset + cp_part_bytes(p) - r->parts[last->from].offset <= CP_STAGE_BYTES)
            last->to = i + 1;
        else
            r->requests[r->request_count++] = (cp_request){i, i + 1, NULL, 0, 0};
    }
}

static inline void cp_read_fail(cp_read *r, const cp_part *part, int error)
{
    int expected = 0;
    if (atomic_compare_exchange_strong(&r->failed, &expected, 1)) {
        r->error = error;
        r->error_row = part->first_row;
        r->error_fd = part->fd;
    }
}

/* Return whether the rows go to consecutive slots without conversion, so that the bytes are read in place. */
static inline int cp_in_place(const cp_part *p)
{
    const cp_target *t = &p->column->target;
    if (p->column->lists || t->from != t->to || t->stride != t->items * cp_type_bytes[t->from])
        return 0;
    return cp_consecutive(p->into, p->rows);
}

static inline char *cp_stage_of(cp_read *r, int worker)
{
    if (!r->stages[worker])
        r->stages[worker] = malloc((size_t)r->stage_bytes);
    return r->stages[worker];
}

/* Stage the parts of one run contiguously, then store its rows in sweep order. Returns the part that failed. */
static inline const cp_part *cp_read_sweep(cp_read *r, const cp_request *request, char *stage)
{
    const cp_part *first = &r->parts[request->from];
    int64_t bytes = 0;
    for (int64_t i = request->from; i < request->to; i++) {
        const cp_part *p = &r->parts[i];
        if (cp_fetch(r, p, stage + bytes, cp_part_bytes(p)) < 0)
            return p;
        bytes += cp_part_bytes(p);
    }
    atomic_fetch_add(&r->bytes, bytes);
    cp_scatter_sweep(&first->column->target, stage, first->into, request->sweep, request->swept);
    return NULL;
}

/* Return whether rows are so wide that a vectored read into slots costs less than copying them. */
static inline int cp_is_wide_row(const cp_column *c)
{
    const cp_target *t = &c->target;
    return !c->lists && t->from == t->to && t->items * cp_type_bytes[t->from] >= CP_WIDE_ROW_BYTES;
}

/* Read close parts by one call, each row into its slot, unwanted bytes into the stage; returns 0 if it came short. */
static inline int cp_read_scattered(const cp_read *r, const cp_part *first, const cp_part *last, char *stage)
{
    struct iovec to[2 * CP_STAGE_BYTES / CP_WIDE_ROW_BYTES + 2]; /* rows of a stage, and the gap before each */
    const cp_target *t = &first->column->target;
    int64_t width = cp_row_bytes(first->column), at = first->offset;
    int count = 0;
    for (const cp_part *p = first; p <= last; p++) {
        if (p->offset > at)
            to[count++] = (struct iovec){stage, (size_t)(p->offset - at)};
        for (int64_t i = 0; i < p->rows; i++)
            to[count++] = (struct iovec){p->into[i] < 0 ? stage : t->base + p->into[i] * t->stride, (size_t)width};
        at = p->offset + cp_part_bytes(p);
    }
    return cp_preadv_some(first->fd, to, count, first->offset, r->wait) == at - first->offset;
}

/* Read close parts by one call, in place or through the stage. Returns the part that failed. */
static inline const cp_part *cp_read_coalesced(cp_read *r, const cp_request *request, char *stage)
{
    cp_part *first = &r->parts[request->from], *last = &r->parts[request->to - 1];
    const cp_target *t = &first->column->target;
    int64_t bytes = last->offset + cp_part_bytes(last) - first->offset;
    int in_place = first == last && cp_in_place(first), alone = first->column == last->column;
    char *to = in_place ? t->base + first->into[0] * t->stride : stage;
    int in_memory = first->fd == CP_MEMORY && !in_place; /* rows are copied from memory to their slots */
    if (!in_memory && !in_place && alone && cp_is_wide_row(first->column)
        && cp_read_scattered(r, first, last, stage)) {
        atomic_fetch_add(&r->bytes, bytes);
        return NULL;
    }
    const char *rows = in_memory ? (const char *)(uintptr_t)first->offset : stage;
    if (!in_memory && cp_fetch(r, first, to, bytes) < 0)
        return first;
    atomic_fetch_add(&r->bytes, bytes);
    for (cp_part *p = first; !in_place && p <= last; p++)
        if (!first->column->lists)
            cp_scatter(&p->column->target, rows + (p->offset - first->offset), p->into, p->rows);
        else if (cp_lists_note(r, p, rows + (p->offset - first->offset)) < 0)
            return p;
    return NULL;
}

static inline void cp_read_request(void *context, int64_t task, int worker)
{
    cp_read *r = context;
    cp_request *request = &r->requests[task];
    char *stage = cp_stage_of(r, worker);
    if (r->wait && r->soon)
        cp_request_prefetch(r, task + CP_REQUESTS_AHEAD);
    if (atomic_load(&r->failed) || atomic_load(&r->quit) || (r->wait && !request->waits))
        return;
    errno = ENOMEM;
    const cp_part *failed = !stage                                ? &r->parts[request->from]
                            : r->parts[request->from].columns > 1 ? cp_read_interleaved(r, request, stage)
                            : request->sweep                      ? cp_read_sweep(r, request, stage)
                                                                  : cp_read_coalesced(r, request, stage);
    request->waits = failed && !r->wait && errno == EAGAIN;
    if (request->waits)
        atomic_store(&r->waiting, 1);
    else if (failed)
        cp_read_fail(r, failed, errno);
}

/* Build the requests of one column: a swept run that fits a stage is one request; other runs, from the part `*from` on,
 * are coalesced, by the caller also with those of the next column. */
static inline int cp_plan_reads(cp_read *r, const cp_column *c, const cp_runs *runs, int64_t *from)
{
    const int32_t *into = runs->into, *sweep = runs->sweep;
    int64_t width = cp_row_bytes(c);
    for (int64_t e = 0; e < runs->count; e++) {
        int64_t start = runs->extents[2 * e], stop = runs->extents[2 * e + 1];
        int64_t entries = runs->swept ? runs->swept[e] : stop - start;
        int fits = sweep && start + 1 < stop && entries >= 0 && (stop - start) * width <= r->stage_bytes;
        fits = fits && !cp_is_wide_row(c);
        if (fits) { /* parts waiting to be coalesced come first */
            cp_coalesce(r, *from);
            *from = r->part_count;
        }
        if (cp_parts_of_run(r, c, start, stop, into) < 0)
            return -1;
        if (fits) {
            r->requests[r->request_count++] = (cp_request){*from, r->part_count, sweep, entries, 0};
            *from = r->part_count;
        }
        into += stop - start;
        if (sweep && entries > 0)
            sweep += entries;
    }
    return 0;
}

/* Build the requests of columns that are transposed together: one for as many rows of a run as a stage holds. */
static inline int cp_plan_interleaved(cp_read *r, const cp_column *c, int64_t columns, const cp_runs *runs)
{
    const int32_t *into = runs->into, *sweep = runs->sweep;
    int64_t most = cp_interleaved_rows(columns, cp_type_bytes[c->target.to]);
    for (int64_t e = 0; e < runs->count; e++) {
        int64_t row = runs->extents[2 * e], stop = runs->extents[2 * e + 1];
        int64_t entries = runs->swept ? runs->swept[e] : stop - row;
        int fits = sweep && entries >= 0 && stop - row <= most;
        for (int64_t rows; row < stop; row += rows, into += rows) {
            rows = stop - row < most ? stop - row : most;
            if (cp_part_add(r, (cp_part){-1, c, columns, 0, rows, row, into}) < 0)
                return -1;
            int64_t part = r->part_count;
            r->requests[r->request_count++] = (cp_request){part - 1, part, fits ? sweep : NULL, fits ? entries : 0, 0};
        }
        if (sweep && entries > 0)
            sweep += entries;
    }
    return 0;
}

/* Send the planned requests: cached bytes are copied by the caller and `helpers` threads; all threads wait for the
 * rest. */
static inline void cp_send_requests(cp_read *r, cp_pool *pool, int helpers)
{
    for (r->wait = 0; r->wait < 2; r->wait++) {
        atomic_store(&r->waiting, 0);
        for (int64_t i = 0; r->wait && r->soon && i < CP_REQUESTS_AHEAD; i++)
            cp_request_prefetch(r, i);
        cp_pool_run(pool, cp_read_request, r, r->request_count, r->wait ? pool->count : helpers, !r->wait);
        if (!atomic_load(&r->waiting))
            break;
        r->waited = 1;
    }
    r->part_count = r->request_count = 0;
}

/* Read the runs of every column into slots, for as many columns at a time as `CP_MAX_PARTS` allows. Returns 0, -1 if
 * out of memory, 1 after a failed read (see error, error_fd, error_row). */
static inline int cp_read_rows(cp_read *r, cp_pool *pool, const cp_column *columns, int64_t column_count, cp_runs runs,
                               int helpers)
{
    int64_t rows = 0, group, from = 0;
    r->part_count = r->request_count = r->waited = 0;
    atomic_store(&r->failed, 0);
    atomic_store(&r->listed, 0);
    for (int64_t e = 0; e < runs.count; e++)
        rows += runs.extents[2 * e + 1] - runs.extents[2 * e];
    for (int64_t c = 0; c < column_count && !atomic_load(&r->failed); c += group) {
        group = rows < CP_MIN_TRANSPOSED_ROWS * runs.count ? 1 : cp_interleaved_columns(&columns[c], column_count - c);
        if (group > 1)
            cp_coalesce(r, from);
        if ((group > 1 ? cp_plan_interleaved(r, &columns[c], group, &runs)
                       : cp_plan_reads(r, &columns[c], &runs, &from)) < 0)
            return -1;
        from = group > 1 ? r->part_count : from;
        if (r->part_count < CP_MAX_PARTS && c + group < column_count)
            continue;
        cp_coalesce(r, from);
        cp_send_requests(r, pool, helpers);
        from = 0;
    }
    return atomic_load(&r->failed);
}
