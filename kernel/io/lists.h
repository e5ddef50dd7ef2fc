/* Offsets of rows of varying length: the file position and the length of each row, stored by slot. */
#pragma once

#include "io/parts.h"

/* Return an offset, of 32 bits unless `wide`. */
static inline int64_t cp_offset(const char *offsets, int64_t i, int wide)
{
    int32_t narrow;
    int64_t value;
    if (wide) {
        memcpy(&value, offsets + 8 * i, sizeof value);
        return value;
    }
    memcpy(&narrow, offsets + 4 * i, sizeof narrow);
    return narrow;
}

/* Store the offsets of a part, one more than its rows; they must ascend within the items. Returns 0, or -1 and sets
 * errno; then the part begins with the invalid row. */
static inline int cp_lists_note(cp_read *r, cp_part *p, const char *offsets)
{
    const cp_column *c = p->column;
    const cp_lists *l = c->lists;
    int64_t piece = cp_last_start(c->starts, c->pieces, p->first_row), most = l->counts[piece], bytes = 0;
    int wide = c->target.from == CP_I64;
    int64_t low = cp_offset(offsets, 0, wide);
    for (int64_t i = 0; i < p->rows; i++) {
        int64_t high = cp_offset(offsets, i + 1, wide);
        int32_t slot = p->into[i];
        if (low < 0 || high < low || high > most) {
            p->first_row += i;
            errno = CP_BAD_OFFSETS;
            return -1;
        }
        if (slot >= 0) {
            l->address[slot] = (uint64_t)(l->items[piece] + low * l->item);
            l->length[slot] = high - low;
            bytes += (high - low) * l->item;
        }
        low = high;
    }
    atomic_fetch_add(&r->listed, bytes);
    return 0;
}
