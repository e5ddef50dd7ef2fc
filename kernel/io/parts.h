/* Types for reading rows: columns, runs, and the parts and requests that they are split into; and the calls that read
 * bytes. */
#pragma once

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
#ifdef RWF_NOWAIT
#include <sys/syscall.h>
#include <sys/vfs.h>
#ifndef cp_preadv2 /* the system call itself: older C libraries have no function for it */
#define cp_preadv2(fd, parts, count, offset, flags) syscall(SYS_preadv2, fd, parts, count, offset, 0L, flags)
#endif
#endif

#define CP_TMPFS 0x01021994
#define CP_STAGE_BYTES ((int64_t)256 << 10) /* bytes staged at once: half of a common L2 cache */
#define CP_GAP_BYTES ((int64_t)8 << 10)     /* bytes worth reading over instead of making another call */

#define CP_REQUESTS_AHEAD 64                /* requests in flight while one is waited for */
#define CP_MAX_PARTS (1 << 15)              /* parts planned before they are read: records outgrow narrow rows */
#define CP_WIDE_ROW_BYTES 4096              /* bytes from which a row is read straight into its slot */

#define CP_MEMORY (-2)                /* instead of a file descriptor: offsets are addresses */

enum { CP_BAD_OFFSETS = -1, CP_BAD_TEXT = -2 }; /* instead of an errno: an invalid row of varying length */

/* Rows of varying length: first item and item count of each piece, and the row of each slot. */
typedef struct {
    const int64_t *items, *counts; /* [pieces] */
    int64_t item;                  /* bytes per item */
    int text;                      /* the bytes of a row are UTF-8 */
    uint64_t *address;             /* [slots] first item of the row: its file offset, later its address */
    int64_t *length;               /* [slots] number of items */
} cp_lists;

/* Location of one column: rows starts[i] .. starts[i + 1] are contiguous in fds[i] from offsets[i] on. For rows of
 * varying length these are their 32 or 64 bit offsets, one more than rows. */
typedef struct {
    int64_t pieces;
    const int64_t *starts, *offsets;
    const int32_t *fds;
    cp_target target;
    const cp_lists *lists; /* NULL: rows have a fixed width */
} cp_column;

/* Runs of rows, extents[k][2], whose rows go to the slots into[0 .. rows), in the order of `sweep` unless NULL. `swept`
 * has the number of sweep entries of each run, -1 for none; NULL: one per row. */
typedef struct {
    const int64_t *extents;
    int64_t count;
    const int32_t *into, *sweep;
    const int64_t *swept;
} cp_runs;

/* Part of a run: `rows` rows of one piece, for into[0 .. rows); or of all pieces of several scalar columns that are
 * adjacent in the slots, `column` the first of them. */
typedef struct {
    int32_t fd;
    const cp_column *column;
    int64_t columns, offset, rows, first_row;
    const int32_t *into;
} cp_part;

/* Parts read by one task: by one call if they are close together; otherwise one call per part, staged contiguously and
 * swept. */
typedef struct {
    int64_t from, to;
    const int32_t *sweep;
    int64_t swept; /* entries of sweep */
    int waits;     /* not all of it is cached */
} cp_request;

typedef struct {
    cp_part *parts;
    cp_request *requests;
    int64_t part_count, part_room, request_count;
    int waited;            /* whether the last read had to wait for the device */
    int wait;              /* whether requests may block: those that need not come first */
    int soon;              /* whether blocking requests are prefetched some requests ahead, since they were not
                            * announced earlier */
    char **stages;                    /* one per worker and one for a guest, allocated on first use */
    int64_t stage_bytes;              /* CP_STAGE_BYTES, or the widest row */
    atomic_llong bytes, listed;       /* listed: bytes of rows of varying length whose offsets were read */
    atomic_int failed, waiting, quit; /* quit: abandon the rest */
    int error;                        /* errno of the first failure, 0: the file ended early */
    int64_t error_row;
    int32_t error_fd;
} cp_read;

/* Return the bytes per row in the file. */
static inline int64_t cp_row_bytes(const cp_column *c) { return c->target.items * cp_type_bytes[c->target.from]; }

/* Return the bytes that adjacent parts share: an offset ends one row and begins the next. */
static inline int64_t cp_shared_bytes(const cp_column *c) { return c->lists ? cp_row_bytes(c) : 0; }

static inline int64_t cp_part_bytes(const cp_part *p)
{
    return p->rows * cp_row_bytes(p->column) + cp_shared_bytes(p->column);
}

/* Return the rows of one request: a full stage, at least one row. */
static inline int64_t cp_rows_per_stage(int64_t width)
{
    return width < CP_STAGE_BYTES ? CP_STAGE_BYTES / width : 1;
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

/* Return whether rows go to consecutive slots. */
static inline int cp_consecutive(const int32_t *into, int64_t rows)
{
    int32_t gaps = into[0] < 0;
    for (int64_t i = 0; i < rows; i++)
        gaps |= into[i] ^ (into[0] + (int32_t)i);
    return gaps == 0;
}

/* Read the cached bytes, or any bytes if `wait`. A file system in memory has all bytes but does not support the
 * query. */
static inline ssize_t cp_preadv_some(int fd, const struct iovec *parts, int count, int64_t offset, int wait)
{
#ifdef RWF_NOWAIT
    if (!wait) {
        struct statfs system;
        ssize_t done = cp_preadv2(fd, parts, count, (off_t)offset, RWF_NOWAIT);
        if (done >= 0 || errno != EOPNOTSUPP || fstatfs(fd, &system) < 0 || system.f_type != CP_TMPFS)
            return done;
    }
#endif
    return preadv(fd, parts, count, (off_t)offset);
}

static inline ssize_t cp_pread_some(int fd, char *to, int64_t bytes, int64_t offset, int wait)
{
    struct iovec part = {to, (size_t)bytes};
    return cp_preadv_some(fd, &part, 1, offset, wait);
}

/* Read exactly `bytes` bytes; returns -1 and sets errno (0 at the end of the file; EAGAIN if it would have to wait). */
static inline int cp_pread_all(int fd, char *to, int64_t bytes, int64_t offset, int wait)
{
    while (bytes > 0) {
        ssize_t done = cp_pread_some(fd, to, bytes, offset, wait);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0 && !wait) { /* any error is reported by the blocking read */
            errno = EAGAIN;
            return -1;
        }
        if (done <= 0) {
            errno = done ? errno : 0;
            return -1;
        }
        to += done;
        offset += done;
        bytes -= done;
    }
    return 0;
}

/* Read a part, or the bytes of several, from a file or from memory. */
static inline int cp_fetch(const cp_read *r, const cp_part *p, char *to, int64_t bytes)
{
    if (p->fd != CP_MEMORY)
        return cp_pread_all(p->fd, to, bytes, p->offset, r->wait);
    memcpy(to, (const char *)(uintptr_t)p->offset, (size_t)bytes);
    return 0;
}

/* Prefetch bytes that will be read soon. */
static inline void cp_prefetch_bytes(int fd, int64_t offset, int64_t bytes)
{
#ifdef POSIX_FADV_WILLNEED
    posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
#else
    (void)fd, (void)offset, (void)bytes;
#endif
}

/* Prefetch the bytes of a request, if the number exists. Transposed columns are skipped: their bytes are scattered. */
static inline void cp_request_prefetch(const cp_read *r, int64_t task)
{
    const cp_request *request = task < r->request_count ? &r->requests[task] : NULL;
    for (int64_t i = request ? request->from : 0; request && i < request->to; i++) {
        const cp_part *p = &r->parts[i];
        if (p->fd >= 0)
            cp_prefetch_bytes(p->fd, p->offset, cp_part_bytes(p));
    }
}

/* Prefetch runs that will be read soon, so that the device is busy while rows are copied. */
static inline void cp_read_prefetch(const cp_column *columns, int64_t column_count, const int64_t *extents,
                                    int64_t extent_count)
{
    for (int64_t e = 0; e < extent_count; e++)
        for (int64_t i = 0; i < column_count; i++) {
            const cp_column *c = &columns[i];
            int64_t width = cp_row_bytes(c), row = extents[2 * e];
            while (row < extents[2 * e + 1]) {
                int64_t piece = cp_last_start(c->starts, c->pieces, row), stop = c->starts[piece + 1];
                stop = stop < extents[2 * e + 1] ? stop : extents[2 * e + 1];
                cp_prefetch_bytes(c->fds[piece], c->offsets[piece] + (row - c->starts[piece]) * width,
                        (stop - row) * width + cp_shared_bytes(c));
                row = stop;
            }
        }
}
