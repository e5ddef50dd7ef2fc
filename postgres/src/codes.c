/* A small number for each row to learn from. */
#include "codes.h"

#include "utils/memutils.h"

enum { FIRST_ROWS = 1024 };

CorgiCodes *corgi_make_codes(void)
{
    CorgiCodes *c = palloc0(sizeof *c);
    c->width = 1;
    c->room = FIRST_ROWS;
    c->codes = palloc((Size) c->room);
    return c;
}

static void put(CorgiCodes *c, int64 row, int64 code)
{
    switch (c->width) {
    case 1: ((uint8 *) c->codes)[row] = (uint8) code; break;
    case 2: ((uint16 *) c->codes)[row] = (uint16) code; break;
    default: ((int32 *) c->codes)[row] = (int32) code;
    }
}

/* Make codes wide enough for one. */
static void widen(CorgiCodes *c, int64 code)
{
    CorgiCodes wide = *c;
    if (code <= (c->width == 1 ? PG_UINT8_MAX : c->width == 2 ? PG_UINT16_MAX : PG_INT32_MAX))
        return;
    wide.width = code <= PG_UINT16_MAX ? 2 : 4;
    wide.codes = MemoryContextAllocHuge(GetMemoryChunkContext(c->codes), (Size) (wide.room * wide.width));
    for (int64 i = 0; i < c->rows; i++)
        put(&wide, i, corgi_code_at(c, i));
    pfree(c->codes);
    *c = wide;
}

/* Take in the code of the next row; say whether they took more memory for it. */
bool corgi_add_code(CorgiCodes *c, int64 code)
{
    const bool grows = corgi_codes_full(c);
    widen(c, code);
    if (grows) {
        c->room += c->room / 4 + FIRST_ROWS;
        c->codes = repalloc_huge(c->codes, (Size) (c->room * c->width));
    }
    put(c, c->rows++, code);
    return grows;
}

/* Give back their memory; rows are counted on. */
void corgi_drop_codes(CorgiCodes *c)
{
    pfree(c->codes);
    c->codes = NULL;
}

/* Give each code, once all rows are seen, another number, no larger than there are. */
void corgi_number_codes(CorgiCodes *c, const int32 *numbers)
{
    for (int64 i = 0; i < c->rows; i++)
        put(c, i, numbers[corgi_code_at(c, i)]);
    if (c->rows < c->room)
        c->codes = repalloc_huge(c->codes, (Size) (Max(c->rows, 1) * c->width));
    c->room = Max(c->rows, 1);
}
