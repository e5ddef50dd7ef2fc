/* Computes the rows that the steps of an order visit, without reading them. */
#pragma once

#include <stdint.h>

/* Record the row that a step loads into each slot, and write the rows that it visits; slot -1 is skipped. Returns -1 if
 * the runs do not match the slots, or a slot is outside the buffer. */
static inline int cp_follow(const int64_t *extents, int64_t runs, const int32_t *into, int64_t reads,
                            const int32_t *visit, int64_t visits, int64_t *row_of, int64_t slots, int64_t *rows)
{
    int64_t at = 0;
    for (int64_t run = 0; run < runs; run++)
        for (int64_t row = extents[2 * run]; row < extents[2 * run + 1]; row++, at++) {
            if (at == reads || into[at] < -1 || into[at] >= slots)
                return -1;
            if (into[at] >= 0)
                row_of[into[at]] = row;
        }
    for (int64_t i = 0; i < visits; i++) {
        if (visit[i] < 0 || visit[i] >= slots)
            return -1;
        rows[i] = row_of[visit[i]];
    }
    return at == reads ? 0 : -1;
}
