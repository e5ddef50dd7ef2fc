/* Reads many byte ranges of one file: close ranges by one call that drops the gaps, cached ones first, then the rest by
 * several threads. Writes ranges, too. */
#pragma once

#include <sched.h>

#include "io/pread.h"

#define CP_RANGES_PER_CALL 32
#ifndef CP_RANGES_SHARED
#define CP_RANGES_SHARED (1 << 20) /* bytes whose copying from the cache is worth a thread */
#endif
#define CP_RANGES_COPIERS 4        /* most threads that copy: more do not use more memory bandwidth */

typedef struct {
    int fd, wait;
    int64_t count;
    const int64_t *offsets, *lengths, *to; /* [count]; `to`: position of each in `out`, or its address if that is
                                            * NULL */
    char *out;
    int64_t *firsts; /* [calls + 1] first range of each call */
    char *waits;     /* [calls] not all of it is cached */
    int64_t calls;
    atomic_int waiting, failed;
    int error;      /* errno of the first failure, 0: the file ended early */
    int64_t broken; /* its range */
} cp_ranges;

/* Return the destination of a range. */
static inline char *cp_range_to(const cp_ranges *r, int64_t i)
{
    return (char *)((uintptr_t)r->out + (uintptr_t)r->to[i]);
}

/* Join close ranges into calls. */
static inline void cp_ranges_join(cp_ranges *r)
{
    r->calls = 0;
    for (int64_t i = 0; i < r->count; i++) {
        int64_t first = r->calls ? r->firsts[r->calls - 1] : 0, end = i ? r->offsets[i - 1] + r->lengths[i - 1] : 0;
        int joins = i && i - first < CP_RANGES_PER_CALL && r->offsets[i] >= end && r->offsets[i] - end <= CP_GAP_BYTES
                    && r->offsets[i] + r->lengths[i] - r->offsets[first] <= CP_STAGE_BYTES;
        if (!joins)
            r->firsts[r->calls++] = i;
    }
    r->firsts[r->calls] = r->count;
}

/* Read the ranges of one call at once; returns 0 if it came short. */
static inline int cp_ranges_read_call(const cp_ranges *r, int64_t from, int64_t to)
{
    struct iovec parts[2 * CP_RANGES_PER_CALL];
    char between[CP_GAP_BYTES];
    int64_t at = r->offsets[from], bytes = 0;
    int count = 0;
    for (int64_t i = from; i < to; i++) {
        if (r->offsets[i] > at)
            parts[count++] = (struct iovec){between, (size_t)(r->offsets[i] - at)};
        parts[count++] = (struct iovec){cp_range_to(r, i), (size_t)r->lengths[i]};
        at = r->offsets[i] + r->lengths[i];
    }
    bytes = at - r->offsets[from];
    return cp_preadv_some(r->fd, parts, count, r->offsets[from], r->wait) == bytes;
}

static inline void cp_ranges_call(void *context, int64_t task, int worker)
{
    cp_ranges *r = context;
    int64_t from = r->firsts[task], to = r->firsts[task + 1];
    (void)worker;
    if (atomic_load(&r->failed) || (r->wait && !r->waits[task]))
        return;
    r->waits[task] = !cp_ranges_read_call(r, from, to);
    if (r->waits[task] && !r->wait)
        atomic_store(&r->waiting, 1);
    /* One by one after a short read: by a signal, a huge range or the end of the file. */
    for (int64_t i = from; r->waits[task] && r->wait && i < to; i++) {
        int expected = 0;
        if (cp_pread_all(r->fd, cp_range_to(r, i), r->lengths[i], r->offsets[i], 1) < 0 &&
            atomic_compare_exchange_strong(&r->failed, &expected, 1)) {
            r->error = errno;
            r->broken = i;
        }
    }
}

/* Return how many threads copy cached bytes: up to one per processor, if there are many bytes. */
static inline int cp_ranges_copiers(const cp_ranges *r, int threads)
{
    int64_t bytes = 0;
    int most = 1;
    for (int64_t i = 0; i < r->count; i++)
        bytes += r->lengths[i];
#ifdef CPU_COUNT
    cpu_set_t set;
    if (bytes >= CP_RANGES_SHARED && !sched_getaffinity(0, sizeof set, &set))
        most = CPU_COUNT(&set);
#endif
    most = most < CP_RANGES_COPIERS ? most : CP_RANGES_COPIERS;
    return most < threads ? most : threads;
}

/* Make the calls with this many threads. Returns 0, or -1 if out of memory. */
static inline int cp_ranges_calls(cp_ranges *r, int threads)
{
    cp_pool pool;
    int64_t helpers = (r->calls < threads ? r->calls : threads) - 1;
    if (helpers <= 0) {
        for (int64_t i = 0; i < r->calls; i++)
            cp_ranges_call(r, i, 0);
        return 0;
    }
    if (cp_pool_start(&pool, (int)helpers) < 0)
        return -1;
    cp_pool_run(&pool, cp_ranges_call, r, r->calls, (int)helpers, 0);
    cp_pool_stop(&pool);
    return 0;
}

/* Read all ranges. Returns 0, -1 if out of memory, 1 after a failed read (see `error` and `broken`). */
static inline int cp_ranges_read(cp_ranges *r, int threads)
{
    r->firsts = malloc(sizeof *r->firsts * (size_t)(r->count + 1));
    r->waits = calloc((size_t)(r->count + 1), 1);
    atomic_store(&r->failed, 0);
    atomic_store(&r->waiting, 0);
    int status = r->firsts && r->waits ? 0 : -1;
    if (!status) {
        cp_ranges_join(r);
        r->wait = 0;
        status = cp_ranges_calls(r, cp_ranges_copiers(r, threads));
        r->wait = 1;
    }
    if (!status && atomic_load(&r->waiting))
        status = cp_ranges_calls(r, threads);
    status = status ? status : atomic_load(&r->failed);
    free(r->firsts);
    free(r->waits);
    return status;
}

static inline int cp_pwrite_all(int fd, const char *data, int64_t bytes, int64_t offset)
{
    while (bytes > 0) {
        ssize_t put = pwrite(fd, data, (size_t)bytes, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) /* nothing was written, and no error set */
            return put ? errno : EIO;
        data += put;
        offset += put;
        bytes -= put;
    }
    return 0;
}

/* Write ranges of memory to a file, ranges adjacent in both by one call. Returns 0, or errno. */
static inline int cp_ranges_write(int fd, const char *data, const int64_t *starts, const int64_t *lengths,
                                  const int64_t *offsets, int64_t count)
{
    for (int64_t i = 0; i < count;) {
        int64_t first = i, bytes = 0;
        do
            bytes += lengths[i++];
        while (i < count && starts[i] == starts[first] + bytes && offsets[i] == offsets[first] + bytes);
        int error = cp_pwrite_all(fd, data + starts[first], bytes, offsets[first]);
        if (error)
            return error;
    }
    return 0;
}
