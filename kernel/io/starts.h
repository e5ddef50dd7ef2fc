/* Lookup of pieces, or blocks, by their starts. */
#pragma once

#include <stdint.h>

/* Return the last of `count` ascending starts that is <= `row`; the first must be. */
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
