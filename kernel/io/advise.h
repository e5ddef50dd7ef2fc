/* Advises the system on bytes of mapped files: many ranges per call, and no thread waits unless it asks to. */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__linux__) && !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ 22 /* since Linux 5.14; EINVAL before */
#endif

enum { CP_ADVICE_NORMAL, CP_ADVICE_RANDOM, CP_ADVICE_SOON, CP_ADVICE_NOW, CP_ADVICE_COUNT };

/* Return the system's number for an advice: read on as usual, read only what is touched, begin to read, read and map;
 * -1 if it has none. */
static inline int cp_advice(int what)
{
    static const int numbers[CP_ADVICE_COUNT] = {
        MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED,
#ifdef MADV_POPULATE_READ
        MADV_POPULATE_READ,
#else
        -1,
#endif
    };
    return numbers[what];
}

/* Advise on ranges of memory, in whole pages; a range that touches the previous one is merged into it. Returns 0 or the
 * errno of the first failure after trying all ranges: results never depend on advice. */
static inline int cp_advise(const uint64_t *address, const uint64_t *length, int64_t count, int what)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = 0, to = 0;
    int failed = 0, advice = cp_advice(what);
    if (advice < 0)
        return ENOSYS;
    for (int64_t i = 0; i <= count; i++) {
        uint64_t first = i < count ? address[i] & ~(page - 1) : 0;
        uint64_t last = i < count ? (address[i] + length[i] + page - 1) & ~(page - 1) : 0;
        if (i < count && (!length[i] || (first >= from && first <= to && from < to))) {
            to = length[i] && last > to ? last : to;
            continue;
        }
        if (from < to && madvise((void *)(uintptr_t)from, (size_t)(to - from), advice) < 0 && !failed)
            failed = errno;
        from = first;
        to = last;
    }
    return failed;
}
