/* What reading rows is made of: columns, runs, the parts and requests they are divided into, and the calls that fetch
 * bytes. */
#ifndef CP_PARTS_H
#define CP_PARTS_H

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
#include <sys/vfs.h>
#endif

#define CP_TMPFS 0x01021994
#define CP_STAGE ((int64_t)256 << 10) /* bytes staged at once: half of a common L2 cache */
#define CP_GAP ((int64_t)8 << 10)     /* bytes worth reading over instead of asking twice */

#define CP_SOON 64                    /* requests that are on their way while one is waited for */
#define CP_WIDE_ROW 4096              /* bytes of a row that is read straight to its slot, wherever that is */

#define CP_MEMORY (-2)                /* in place of a file: offsets are addresses */

enum { CP_BAD_OFFSETS = -1, CP_BAD_TEXT = -2 }; /* in place of an errno: what is wrong with a row of varying length */

/* Rows of varying length: where the items of each piece begin, how many there are, and what is noted of each slot's row. */
typedef struct {
    const int64_t *items, *counts; /* [pieces] */
    int64_t item;                  /* bytes of one */
    int text;                      /* the bytes of a row are UTF-8 */
    uint64_t *address;             /* [slots] where a row's items begin: in the file, and once they are read in memory */
    int64_t *length;               /* [slots] how many there are */
} cp_lists;

/* Where one column lies: rows starts[i] .. starts[i + 1] back to back in fds[i] from offsets[i]. If they vary in length
 * it is their 32 or 64 bit offsets that lie there, one more than rows. */
typedef struct {
    int64_t pieces;
    const int64_t *starts, *offsets;
    const int32_t *fds;
    cp_target target;
    const cp_lists *lists; /* NULL: rows are of one width */
} cp_column;

/* Runs of rows, extents[k][2], whose rows go to the slots into[0 .. rows), in sweep order where sweep is not NULL. `swept`
 * says how many entries of sweep each run has, -1 for one without; NULL: one for each row. */
typedef struct {
    const int64_t *extents;
    int64_t count;
    const int32_t *into, *sweep;
    const int64_t *swept;
} cp_runs;

/* A part of a run: `rows` rows of one piece, going to into[0 .. rows); or of all pieces of several columns of one number
 * a row that lie side by side in the slots, `column` the first of them. */
typedef struct {
    int32_t fd;
    const cp_column *column;
    int64_t columns, offset, rows, first_row;
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
    int soon;              /* whether those are announced to the device some requests ahead: nobody did before */
    char **stages;         /* one a worker and one for a guest, made when first needed */
    int64_t stage_bytes;   /* CP_STAGE, or the widest row */
    atomic_llong bytes, listed; /* listed: those of rows of varying length whose offsets were read */
    atomic_int failed, waiting, quit; /* quit: nobody wants the rest any more */
    int error;             /* errno of the first failure, 0: the file ended early */
    int64_t error_row;
    int32_t error_fd;
} cp_read;

/* Bytes of a row in the file. */
static inline int64_t cp_row_bytes(const cp_column *c) { return c->target.items * cp_type_bytes[c->target.from]; }

/* Bytes that parts of neighbours share: an offset ends one row and begins the next. */
static inline int64_t cp_shared_bytes(const cp_column *c) { return c->lists ? cp_row_bytes(c) : 0; }

static inline int64_t cp_part_bytes(const cp_part *p)
{
    return p->rows * cp_row_bytes(p->column) + cp_shared_bytes(p->column);
}

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

/* Whether rows go to consecutive slots without gaps. */
static inline int cp_consecutive(const int32_t *into, int64_t rows)
{
    int32_t apart = into[0] < 0;
    for (int64_t i = 0; i < rows; i++)
        apart |= into[i] ^ (into[0] + (int32_t)i);
    return apart == 0;
}

/* Read what is cached, or whatever there is if `wait`. A file system in memory has all, and cannot be asked. */
static inline ssize_t cp_preadv_some(int fd, const struct iovec *parts, int count, int64_t offset, int wait)
{
#ifdef RWF_NOWAIT
    if (!wait) {
        struct statfs system;
        ssize_t got = preadv2(fd, parts, count, (off_t)offset, RWF_NOWAIT);
        if (got >= 0 || errno != EOPNOTSUPP || fstatfs(fd, &system) < 0 || system.f_type != CP_TMPFS)
            return got;
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

/* Read a part, or the bytes of several, from a file or from memory. */
static inline int cp_fetch(const cp_read *r, const cp_part *p, char *to, int64_t bytes)
{
    if (p->fd != CP_MEMORY)
        return cp_pread_all(p->fd, to, bytes, p->offset, r->wait);
    memcpy(to, (const char *)(uintptr_t)p->offset, (size_t)bytes);
    return 0;
}

/* Begin to fetch bytes that will be read soon. */
static inline void cp_soon(int fd, int64_t offset, int64_t bytes)
{
#ifdef POSIX_FADV_WILLNEED
    posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
#else
    (void)fd, (void)offset, (void)bytes;
#endif
}

/* The same of a request, if there is one of this number; columns turned into rows lie apart, and do not. */
static inline void cp_request_soon(const cp_read *r, int64_t task)
{
    const cp_request *request = task < r->request_count ? &r->requests[task] : NULL;
    for (int64_t i = request ? request->from : 0; request && i < request->to; i++) {
        const cp_part *p = &r->parts[i];
        if (p->fd >= 0)
            cp_soon(p->fd, p->offset, cp_part_bytes(p));
    }
}

/* Begin to fetch runs that will be read soon, so that the device is busy while rows are moved. */
static inline void cp_read_soon(const cp_column *columns, int64_t column_count, const int64_t *extents,
                                int64_t extent_count)
{
    for (int64_t e = 0; e < extent_count; e++)
        for (int64_t i = 0; i < column_count; i++) {
            const cp_column *c = &columns[i];
            int64_t width = cp_row_bytes(c), row = extents[2 * e];
            while (row < extents[2 * e + 1]) {
                int64_t piece = cp_last_start(c->starts, c->pieces, row), stop = c->starts[piece + 1];
                stop = stop < extents[2 * e + 1] ? stop : extents[2 * e + 1];
                cp_soon(c->fds[piece], c->offsets[piece] + (row - c->starts[piece]) * width,
                        (stop - row) * width + cp_shared_bytes(c));
                row = stop;
            }
        }
}

#endif
