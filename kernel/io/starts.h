/* Pieces, or blocks, by where they start. */
#ifndef CP_STARTS_H
#define CP_STARTS_H

#include <stdint.h>

/* Which of `count` ascending starts, of which the first is not above `row`, is the last that is not. */
static inline int64_t cp_last_start(const int64_t *starts, int64_t count, int64_t row)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t mid = (low + high + 1) / 2;
        if (starts[mid] <= row)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

#endif
