/* Array of small codes, one per training row, as wide as the largest code needs. */
#pragma once

#include "postgres.h"

typedef struct {
    char *codes;            /* [room] of `width` bytes each: 1, 2 or 4 */
    int64 rows, room;
    int width;
} CorgiCodes;

extern CorgiCodes *corgi_make_codes(void);
extern bool corgi_add_code(CorgiCodes *c, int64 code);
extern void corgi_drop_codes(CorgiCodes *c);
extern void corgi_number_codes(CorgiCodes *c, const int32 *numbers);

static inline int64 corgi_code_at(const CorgiCodes *c, int64 row)
{
    switch (c->width) {
    case 1: return ((const uint8 *) c->codes)[row];
    case 2: return ((const uint16 *) c->codes)[row];
    default: return ((const int32 *) c->codes)[row];
    }
}
