/* Array of small codes, one per training row. */
#include "codes.h"

#include "utils/memutils.h"

enum { INITIAL_ROWS = 1024 };

CorgiCodes *corgi_make_codes(void)
{
    CorgiCodes *c = palloc0(sizeof *c);
    c->width = 1;
    c->room = INITIAL_ROWS;
    c->codes = palloc((Size) c->room);
    return c;
}

static void put_code(CorgiCodes *c, int64 row, int64 code)
{
    switch (c->width) {
    case 1: ((uint8 *) c->codes)[row] = (uint8) code; break;
    case 2: ((uint16 *) c->codes)[row] = (uint16) code; break;
    default: ((int32 *) c->codes)[row] = (int32) code;
    }
}

/* Widen the array so that `code` fits. */
static void widen_codes(CorgiCodes *c, int64 code)
{
    CorgiCodes wide = *c;
    if (code <= (c->width == 1 ? PG_UINT8_MAX : c->width == 2 ? PG_UINT16_MAX : PG_INT32_MAX))
        return;
    wide.width = code <= PG_UINT16_MAX ? 2 : 4;
    wide.codes = MemoryContextAllocHuge(GetMemoryChunkContext(c->codes), (Size) (wide.room * wide.width));
    for (int64 i = 0; i < c->rows; i++)
        put_code(&wide, i, corgi_code_at(c, i));
    pfree(c->codes);
    *c = wide;
}

/* Append the code of the next row. Returns whether the array grew. */
bool corgi_add_code(CorgiCodes *c, int64 code)
{
    const bool grows = c->rows == c->room;
    widen_codes(c, code);
    if (grows) {
        c->room += c->room / 4 + INITIAL_ROWS;
        c->codes = repalloc_huge(c->codes, (Size) (c->room * c->width));
    }
    put_code(c, c->rows++, code);
    return grows;
}

/* Free the codes. The row count stays. */
void corgi_drop_codes(CorgiCodes *c)
{
    pfree(c->codes);
    c->codes = NULL;
}

/* Replace each code by `numbers[code]` after the last row. New codes must not be larger. */
void corgi_number_codes(CorgiCodes *c, const int32 *numbers)
{
    for (int64 i = 0; i < c->rows; i++)
        put_code(c, i, numbers[corgi_code_at(c, i)]);
    if (c->rows < c->room)
        c->codes = repalloc_huge(c->codes, (Size) (Max(c->rows, 1) * c->width));
    c->room = Max(c->rows, 1);
}
