/* Makes numbers of a value, by what was found out about its column. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "io/gather.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_crc.h"

static void put(double value, int bytes, char *to) { cp_cast(to, bytes == 8, (const char *) &value, CP_F64, 1); }

/* Put the same number in so many places. */
void corgi_put_same(double value, int64 width, int bytes, char *to)
{
    for (int64 i = 0; i < width; i++)
        put(value, bytes, to + i * bytes);
}

/* Put a number in place of each NaN. */
void corgi_fill(double value, int64 width, int bytes, char *to)
{
    for (int64 i = 0; i < width; i++)
        if (bytes == 8 ? isnan(((double *) to)[i]) : isnan(((float *) to)[i]))
            put(value, bytes, to + i * bytes);
}

/* Numbers of few digits are filled as real, as Python does. */
static double as_stored(const CorgiColumn *c, double value)
{
    bool small = c->type == BOOLOID || c->type == INT2OID || c->type == FLOAT4OID;
    return small ? (double) (float) value : value;
}

static bool encode_number(const CorgiColumn *c, Datum value, bool null, int bytes, char *to)
{
    const CorgiEncoder *e = c->encoder;
    double number = null ? NAN : corgi_number_of(c->type, value);
    if (isnan(number) && e->filled)
        number = as_stored(c, e->fill);
    put(number, bytes, to);
    return !null || e->filled;
}

/* The bucket of a category, by the same sum as Python's. */
static int64 bucket_of(const CorgiEncoder *e, const char *text, Size length)
{
    StringInfoData named;
    const char *utf8;
    pg_crc32 sum;
    initStringInfo(&named);
    appendStringInfo(&named, "%s%s", e->column, text ? "=" : " missing");
    if (text != NULL)
        appendBinaryStringInfo(&named, text, (int) length);
    utf8 = pg_server_to_any(named.data, named.len, PG_UTF8);
    INIT_TRADITIONAL_CRC32(sum);
    COMP_TRADITIONAL_CRC32(sum, utf8, strlen(utf8));
    FIN_TRADITIONAL_CRC32(sum);
    return (int64) sum % e->buckets;
}

/* Return the number of a category, CORGI_UNNAMED if it was not there when the column was fitted. */
static int64 code_of(const CorgiEncoder *e, const char *text, Size length)
{
    if (e->way == CORGI_HASH)
        return bucket_of(e, text, length);
    return text ? corgi_find_name(e->values, text, length) : e->values->count;
}

/* Find the number of a category. Texts that are made for it, which may be as long as a block, are gone behind it. Returns
 * false where it is missing and nothing stands for that. */
static bool find_code(const CorgiColumn *c, Datum value, bool null, int64 *code)
{
    static MemoryContext texts = NULL;
    MemoryContext outside;
    Size length = 0;
    const char *text;
    if (texts == NULL)
        texts = AllocSetContextCreate(TopMemoryContext, "corgipile categories", ALLOCSET_SMALL_SIZES);
    outside = MemoryContextSwitchTo(texts);
    MemoryContextReset(texts); /* after an error there is some */
    text = null ? NULL : corgi_text_of(c->type, value, &length);
    if (text != NULL || c->encoder->null_known) /* else what was never seen */
        *code = code_of(c->encoder, text, length);
    MemoryContextSwitchTo(outside);
    MemoryContextReset(texts);
    return text != NULL || c->encoder->null_known || c->encoder->unknown;
}

static bool encode_category(const CorgiColumn *c, Datum value, bool null, int bytes, char *to)
{
    const CorgiEncoder *e = c->encoder;
    int64 code = CORGI_UNNAMED;
    if (!find_code(c, value, null, &code)) {
        corgi_put_same(NAN, e->width, bytes, to);
        return false;
    }
    if (e->way == CORGI_ORDINAL) {
        put((double) code, bytes, to);
        return true;
    }
    corgi_put_same(0, e->width, bytes, to);
    if (code != CORGI_UNNAMED)
        put(1, bytes, to + code * bytes);
    return true;
}

/* Put the numbers of a value that is no array. Returns false where it is missing and nothing stands for that: it is NaN
 * then. */
bool corgi_encode(const CorgiColumn *c, Datum value, bool null, int bytes, char *to)
{
    if (c->encoder != NULL && c->encoder->way != CORGI_AS_NUMBER)
        return encode_category(c, value, null, bytes, to);
    if (c->encoder != NULL)
        return encode_number(c, value, null, bytes, to);
    if (null)
        put(NAN, bytes, to);
    else
        corgi_read_number(c->type, value, bytes, to);
    return !null;
}
