/* Reads runs of rows of several fixed-width columns straight into buffer slots: requests sorted by the order of the
 * runs, neighbours coalesced, read by a small pool, each byte staged in cache-sized pieces and scattered once. */
#ifndef CP_PREAD_H
#define CP_PREAD_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first system header: pread is POSIX, not C11"
#endif

#include "io/gather.h"
#include "io/pool.h"
#include "io/starts.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#define CP_STAGE ((int64_t)256 << 10) /* bytes staged at once: half of a common L2 cache */
#define CP_GAP ((int64_t)8 << 10)     /* bytes worth reading over instead of asking twice */

#define CP_MEMORY (-2)                /* in place of a file: offsets are addresses */

/* Where one column lies: rows starts[i] .. starts[i + 1] back to back in fds[i] from offsets[i]. */
typedef struct {
    int64_t pieces;
    const int64_t *starts, *offsets;
    const int32_t *fds;
    cp_target target;
} cp_column;

/* Runs of rows, extents[k][2], whose rows go to the slots into[0 .. rows), in sweep order where sweep is not NULL. `swept`
 * says how many entries of sweep each run has, -1 for one without; NULL: one for each row. */
typedef struct {
    const int64_t *extents;
    int64_t count;
    const int32_t *into, *sweep;
    const int64_t *swept;
} cp_runs;

/* A part of a run: `rows` rows of one piece, going to into[0 .. rows). */
typedef struct {
    int32_t fd;
    const cp_column *column;
    int64_t offset, rows, first_row;
    const int32_t *into;
} cp_part;

/* Parts read by one task: one call where they lie close together, else one a part, staged back to back and swept. */
typedef struct {
    int64_t from, to;
    const int32_t *sweep;
    int64_t swept; /* entries of sweep */
    int waits; /* not all of it is cached */
} cp_request;

typedef struct {
    cp_part *parts;
    cp_request *requests;
    int64_t part_count, part_room, request_count;
    int waited;            /* whether the last reading had to wait for the device */
    int wait;              /* whether requests may block: first those that need not are served, then the others */
    char **stages;         /* one a worker and one for a guest, made when first needed */
    int64_t stage_bytes;   /* CP_STAGE, or the widest row */
    atomic_llong bytes;
    atomic_int failed, waiting, quit; /* quit: nobody wants the rest any more */
    int error;             /* errno of the first failure, 0: the file ended early */
    int64_t error_row;
    int32_t error_fd;
} cp_read;

/* Bytes of a row in the file. */
static inline int64_t cp_row_bytes(const cp_column *c) { return c->target.items * cp_type_bytes[c->target.from]; }

static inline int64_t cp_part_bytes(const cp_part *p) { return p->rows * cp_row_bytes(p->column); }

/* Rows of one request: a stage full, at least one. */
static inline int64_t cp_rows_per_stage(int64_t width)
{
    return width < CP_STAGE ? CP_STAGE / width : 1;
}

static inline int cp_part_add(cp_read *r, cp_part part)
{
    if (r->part_count == r->part_room) {
        int64_t room = r->part_room ? 2 * r->part_room : 256;
        cp_part *parts = realloc(r->parts, sizeof *parts * (size_t)room);
        cp_request *requests = realloc(r->requests, sizeof *requests * (size_t)room);
        r->parts = parts ? parts : r->parts;
        r->requests = requests ? requests : r->requests;
        if (!parts || !requests)
            return -1;
        r->part_room = room;
    }
    r->parts[r->part_count++] = part;
    return 0;
}

/* Split one run of rows into parts of at most a stage, none crossing a piece. */
static inline int cp_parts_of_run(cp_read *r, const cp_column *c, int64_t start, int64_t stop, const int32_t *into)
{
    int64_t width = cp_row_bytes(c), most = cp_rows_per_stage(width);
    while (start < stop) {
        int64_t piece = cp_last_start(c->starts, c->pieces, start), rows = c->starts[piece + 1] - start;
        rows = rows < stop - start ? rows : stop - start;
        rows = rows < most ? rows : most;
        cp_part part = {c->fds[piece], c, c->offsets[piece] + (start - c->starts[piece]) * width, rows, start, into};
        if (cp_part_add(r, part) < 0)
            return -1;
        start += rows;
        into += rows;
    }
    return 0;
}

/* Join the parts from `from` on that follow each other closely in one file into one request. */
static inline void cp_coalesce(cp_read *r, int64_t from)
{
    for (int64_t i = from; i < r->part_count; i++) {
        const cp_part *p = &r->parts[i], *q = i > from ? p - 1 : p;
        cp_request *last = r->requests + (i > from ? r->request_count - 1 : 0);
        int64_t end = q->offset + cp_part_bytes(q);
        if (i > from && q->column == p->column && q->fd == p->fd && p->offset >= end && p->offset - end <= CP_GAP &&
            p->offset + cp_part_bytes(p) - r->parts[last->from].offset <= CP_STAGE)
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

/* Read what is cached, or whatever there is if `wait`. */
static inline ssize_t cp_pread_some(int fd, char *to, int64_t bytes, int64_t offset, int wait)
{
#ifdef RWF_NOWAIT
    struct iovec part = {to, (size_t)bytes};
    if (!wait)
        return preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT);
#endif
    return pread(fd, to, (size_t)bytes, (off_t)offset);
}

/* Read exactly `bytes` bytes; returns -1 and sets errno (0 at the end of the file; EAGAIN if it would have to wait). */
static inline int cp_pread_all(int fd, char *to, int64_t bytes, int64_t offset, int wait)
{
    while (bytes > 0) {
        ssize_t got = cp_pread_some(fd, to, bytes, offset, wait);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 && !wait) { /* whatever it is, the reading that waits will tell */
            errno = EAGAIN;
            return -1;
        }
        if (got <= 0) {
            errno = got ? errno : 0;
            return -1;
        }
        to += got;
        offset += got;
        bytes -= got;
    }
    return 0;
}

/* Whether the rows go to consecutive slots without gaps, so that the bytes can be read where they belong. */
static inline int cp_in_place(const cp_part *p)
{
    const cp_target *t = &p->column->target;
    if (t->from != t->to || t->stride != t->items * cp_type_bytes[t->from] || p->into[0] < 0)
        return 0;
    int32_t apart = 0;
    for (int64_t i = 0; i < p->rows; i++)
        apart |= p->into[i] ^ (p->into[0] + (int32_t)i);
    return apart == 0;
}

/* Read a part, or the bytes of several, from a file or from memory. */
static inline int cp_fetch(const cp_read *r, const cp_part *p, char *to, int64_t bytes)
{
    if (p->fd != CP_MEMORY)
        return cp_pread_all(p->fd, to, bytes, p->offset, r->wait);
    memcpy(to, (const char *)(uintptr_t)p->offset, (size_t)bytes);
    return 0;
}

static inline char *cp_stage_of(cp_read *r, int worker)
{
    if (!r->stages[worker])
        r->stages[worker] = malloc((size_t)r->stage_bytes);
    return r->stages[worker];
}

/* Stage the parts of one run back to back, then put its rows into slots in sweep order. Returns the part that failed. */
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

/* Read parts that lie close together by one call, in place or through the stage. Returns the part that failed. */
static inline const cp_part *cp_read_near(cp_read *r, const cp_request *request, char *stage)
{
    const cp_part *first = &r->parts[request->from], *last = &r->parts[request->to - 1];
    const cp_target *t = &first->column->target;
    int64_t bytes = last->offset + cp_part_bytes(last) - first->offset;
    int in_place = first == last && cp_in_place(first);
    char *to = in_place ? t->base + first->into[0] * t->stride : stage;
    int there = first->fd == CP_MEMORY && !in_place; /* rows go from where they lie to their slots */
    const char *rows = there ? (const char *)(uintptr_t)first->offset : stage;
    if (!there && cp_fetch(r, first, to, bytes) < 0)
        return first;
    atomic_fetch_add(&r->bytes, bytes);
    for (const cp_part *p = first; !in_place && p <= last; p++)
        cp_scatter(&p->column->target, rows + (p->offset - first->offset), p->into, p->rows);
    return NULL;
}

static inline void cp_read_request(void *context, int64_t task, int worker)
{
    cp_read *r = context;
    cp_request *request = &r->requests[task];
    char *stage = cp_stage_of(r, worker);
    if (atomic_load(&r->failed) || atomic_load(&r->quit) || (r->wait && !request->waits))
        return;
    errno = ENOMEM;
    const cp_part *failed = !stage            ? &r->parts[request->from]
                            : request->sweep  ? cp_read_sweep(r, request, stage)
                                              : cp_read_near(r, request, stage);
    request->waits = failed && !r->wait && errno == EAGAIN;
    if (request->waits)
        atomic_store(&r->waiting, 1);
    else if (failed)
        cp_read_fail(r, failed, errno);
}

/* Make the requests of one column: a run that is swept and fits a stage is one, other runs are coalesced. */
static inline int cp_plan_reads(cp_read *r, const cp_column *c, const cp_runs *runs)
{
    const int32_t *into = runs->into, *sweep = runs->sweep;
    int64_t from = r->part_count, width = cp_row_bytes(c);
    for (int64_t e = 0; e < runs->count; e++) {
        int64_t start = runs->extents[2 * e], stop = runs->extents[2 * e + 1];
        int64_t entries = runs->swept ? runs->swept[e] : stop - start;
        int fits = sweep && start < stop && entries >= 0 && (stop - start) * width <= r->stage_bytes;
        if (fits) { /* what is waiting to be coalesced comes first */
            cp_coalesce(r, from);
            from = r->part_count;
        }
        if (cp_parts_of_run(r, c, start, stop, into) < 0)
            return -1;
        if (fits) {
            r->requests[r->request_count++] = (cp_request){from, r->part_count, sweep, entries, 0};
            from = r->part_count;
        }
        into += stop - start;
        if (sweep && entries > 0)
            sweep += entries;
    }
    cp_coalesce(r, from);
    return 0;
}

/* Read the runs of every column into slots. What is cached is copied by the caller and `helpers` threads, for the rest
 * all threads wait. Returns 0, or -1 without memory, or 1 after a failed read (error, error_fd, error_row say which). */
static inline int cp_read_rows(cp_read *r, cp_pool *pool, const cp_column *columns, int64_t column_count, cp_runs runs,
                               int helpers)
{
    r->part_count = r->request_count = 0;
    atomic_store(&r->failed, 0);
    for (int64_t c = 0; c < column_count; c++)
        if (cp_plan_reads(r, &columns[c], &runs) < 0)
            return -1;
    r->waited = 0;
    for (r->wait = 0; r->wait < 2; r->wait++) {
        atomic_store(&r->waiting, 0);
        cp_pool_run(pool, cp_read_request, r, r->request_count, r->wait ? pool->count : helpers, !r->wait);
        if (!atomic_load(&r->waiting))
            break;
        r->waited = 1;
    }
    return atomic_load(&r->failed);
}

/* Begin to fetch runs that will be read soon, so that the device is busy while rows are moved. */
static inline void cp_read_soon(const cp_column *columns, int64_t column_count, const int64_t *extents,
                                int64_t extent_count)
{
#ifdef POSIX_FADV_WILLNEED
    for (int64_t e = 0; e < extent_count; e++)
        for (int64_t i = 0; i < column_count; i++) {
            const cp_column *c = &columns[i];
            int64_t width = cp_row_bytes(c), row = extents[2 * e];
            while (row < extents[2 * e + 1]) {
                int64_t piece = cp_last_start(c->starts, c->pieces, row), stop = c->starts[piece + 1];
                stop = stop < extents[2 * e + 1] ? stop : extents[2 * e + 1];
                posix_fadvise(c->fds[piece], (off_t)(c->offsets[piece] + (row - c->starts[piece]) * width),
                              (off_t)((stop - row) * width), POSIX_FADV_WILLNEED);
                row = stop;
            }
        }
#else
    (void)columns, (void)column_count, (void)extents, (void)extent_count;
#endif
}

#endif
