/* A device in memory that answers short, is interrupted, caches a part, fails at a byte, and records what was asked. */
#pragma once

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 2, FIRST_FD = 1000, FILE_BYTES = 1 << 20, MAX_CALLS = 1 << 15 };
enum { CACHED, COLD, MIXED }; /* bytes in the cache: all, none, some of each call */

typedef struct {
    int file, nowait, parts;
    int64_t offset, bytes;
} device_call;

static struct {
    unsigned char bytes[FILES][FILE_BYTES], wanted[FILES][FILE_BYTES];
    int64_t size[FILES], broken[FILES]; /* broken: a byte that fails, or -1 */
    int cache, choppy;                  /* choppy: calls that wait are interrupted or short, too */
    uint64_t drawn;
    int64_t moved, count;
    device_call calls[MAX_CALLS];
} device;

static void check(int truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "broken: %s\n", what);
        exit(1);
    }
}

static int64_t draw(int64_t below)
{
    device.drawn = device.drawn * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((device.drawn >> 33) % (uint64_t)below);
}

static void device_forget(void) { device.count = device.moved = 0; }

static void device_reset(uint64_t seed)
{
    device.drawn = seed * 977 + 1;
    for (int file = 0; file < FILES; file++) {
        for (int64_t i = 0; i < FILE_BYTES; i++)
            device.bytes[file][i] = (unsigned char)draw(256);
        device.size[file] = FILE_BYTES, device.broken[file] = -1;
    }
    memset(device.wanted, 0, sizeof device.wanted);
    device.cache = device.choppy = 0;
    device_forget();
}

static ssize_t device_fail(int error)
{
    errno = error;
    return -1;
}

/* Move bytes between a file and memory as a device does: all, some, or none of them. */
static ssize_t device_read(int fd, const struct iovec *parts, int count, int64_t offset, int nowait)
{
    int file = fd - FIRST_FD;
    int64_t total = 0, done = 0;
    check(file >= 0 && file < FILES && offset >= 0 && count > 0 && count <= 1024, "a call that the system accepts");
    for (int i = 0; i < count; i++)
        total += (int64_t)parts[i].iov_len;
    check(total > 0 && device.count < MAX_CALLS, "a call for some bytes");
    device.calls[device.count++] = (device_call){file, nowait, count, offset, total};
    if (nowait && (device.cache == COLD || (device.cache == MIXED && draw(3) == 0)))
        return device_fail(EAGAIN);
    if (!nowait && device.choppy && draw(4) == 0)
        return device_fail(EINTR);
    if ((nowait && device.cache == MIXED && draw(2)) || (!nowait && device.choppy && draw(2)))
        total = 1 + draw(total);
    int64_t end = device.size[file], broken = device.broken[file];
    if (broken == offset)
        return device_fail(EIO);
    end = broken > offset && broken < end ? broken : end;
    total = offset + total > end ? end - offset : total;
    for (int i = 0; i < count && done < total; i++) {
        int64_t bytes = (int64_t)parts[i].iov_len < total - done ? (int64_t)parts[i].iov_len : total - done;
        memcpy(parts[i].iov_base, device.bytes[file] + offset + done, (size_t)bytes);
        done += bytes;
    }
    device.moved += done;
    return done;
}

static inline ssize_t device_preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
    return device_read(fd, parts, count, offset, 0);
}

static inline ssize_t device_preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    check(flags == RWF_NOWAIT, "only reads that must not wait need flags");
    return device_read(fd, parts, count, offset, 1);
}

static inline ssize_t device_pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    int file = fd - FIRST_FD;
    device.calls[device.count++] = (device_call){file, 0, 1, offset, (int64_t)bytes};
    if (device.broken[file] >= offset && device.broken[file] < offset + (int64_t)bytes)
        return device.cache == COLD ? 0 : device_fail(ENOSPC); /* a device that takes nothing, or says that it is full */
    if (device.choppy && draw(4) == 0)
        return device_fail(EINTR);
    bytes = device.choppy && draw(2) ? 1 + (size_t)draw((int64_t)bytes) : bytes;
    memcpy(device.bytes[file] + offset, data, bytes);
    return (ssize_t)bytes;
}

static inline int device_fadvise(int fd, off_t offset, off_t bytes, int advice)
{
    check(advice == POSIX_FADV_WILLNEED, "advice to read");
    device.calls[device.count++] = (device_call){fd - FIRST_FD, 0, 1, offset, bytes};
    return 0;
}

/* Check calls in their order: each begins and ends with wanted bytes, drops no more than `gap` bytes at a time, and no
 * two that follow each other could have been one call of at most `stage` bytes and `most` ranges. Calls of more bytes
 * serve `widest`, one row or range. */
static inline void check_calls(int nowait, int64_t gap, int64_t stage, int64_t most, int64_t widest)
{
    const device_call *before = NULL;
    int64_t ranges_before = 0;
    for (int64_t i = 0; i < device.count; i++) {
        const device_call *c = &device.calls[i];
        const unsigned char *wanted = device.wanted[c->file] + c->offset;
        int64_t hole = 0, holes = 0;
        if (c->nowait != nowait)
            continue;
        check(wanted[0] && wanted[c->bytes - 1], "a call begins and ends with wanted bytes");
        for (int64_t k = 0; k < c->bytes; k++) {
            holes += !wanted[k] && !hole;
            hole = wanted[k] ? 0 : hole + 1;
            check(hole <= gap, "a large gap ends a call");
        }
        int64_t ranges = c->parts - (c->parts > 1 ? holes : 0), end = before ? before->offset + before->bytes : 0;
        check(ranges <= most && (c->bytes <= stage || c->bytes <= widest), "the size of a call");
        check(!before || before->file != c->file || c->offset < end || c->offset - end > gap || ranges_before == most
                  || c->offset + c->bytes - before->offset > stage, "close ranges are read by one call");
        before = c, ranges_before = ranges;
    }
}

#define preadv device_preadv
#define cp_preadv2 device_preadv2
#define pwrite device_pwrite
#undef posix_fadvise
#define posix_fadvise device_fadvise
