/* Encoding of a value as numbers by its fitted column encoder. */
#include "source.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "io/gather.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"
#include "utils/pg_crc.h"

static void put_number(double value, int bytes, char *to) { cp_cast(to, bytes == 8, (const char *) &value, CP_F64, 1); }

/* Put the same number `width` times. */
void corgi_put_same(double value, int64 width, int bytes, char *to)
{
    for (int64 i = 0; i < width; i++)
        put_number(value, bytes, to + i * bytes);
}

/* Replace each NaN by a number. */
void corgi_fill(double value, int64 width, int bytes, char *to)
{
    for (int64 i = 0; i < width; i++)
        if (bytes == 8 ? isnan(((double *) to)[i]) : isnan(((float *) to)[i]))
            put_number(value, bytes, to + i * bytes);
}

/* Round the fill value of low-precision columns to real, as Python does. */
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
    put_number(number, bytes, to);
    return !null || e->filled;
}

/* Return a category's bucket, by the same checksum as Python's. */
static int64 bucket_of(const CorgiEncoder *e, const char *text, Size length)
{
    StringInfoData named;
    pg_crc32 sum;
    initStringInfo(&named);
    appendStringInfo(&named, "%s%s", e->column, text ? "=" : " missing");
    if (text != NULL)
        appendBinaryStringInfo(&named, text, (int) length);
    const char *utf8 = pg_server_to_any(named.data, named.len, PG_UTF8);
    INIT_TRADITIONAL_CRC32(sum);
    COMP_TRADITIONAL_CRC32(sum, utf8, strlen(utf8));
    FIN_TRADITIONAL_CRC32(sum);
    return (int64) sum % e->buckets;
}

/* Return a category's number; CORGI_UNNAMED if it was absent when the column was fitted. */
static int64 code_of(const CorgiEncoder *e, const char *text, Size length)
{
    if (e->way == CORGI_HASH)
        return bucket_of(e, text, length);
    return text ? corgi_find_name(e->values, text, length) : e->values->count;
}

/* Find a category's number. Frees the temporary texts, which may be as long as a block. Returns false if the value is
 * missing and has no replacement. */
static bool find_code(const CorgiColumn *c, Datum value, bool null, int64 *code)
{
    static MemoryContext texts = NULL;
    Size length = 0;
    if (texts == NULL)
        texts = AllocSetContextCreate(TopMemoryContext, "corgipile categories", ALLOCSET_SMALL_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(texts);
    MemoryContextReset(texts); /* an error may have left some */
    const char *text = null ? NULL : corgi_text_of(c->type, value, &length);
    if (text != NULL || c->encoder->null_known) /* else an unknown category */
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
        put_number((double) code, bytes, to);
        return true;
    }
    corgi_put_same(0, e->width, bytes, to);
    if (code != CORGI_UNNAMED)
        put_number(1, bytes, to + code * bytes);
    return true;
}

/* Encode a scalar value. Returns false, with NaN, if it is missing and has no replacement. */
bool corgi_encode(const CorgiColumn *c, Datum value, bool null, int bytes, char *to)
{
    if (c->encoder != NULL && c->encoder->way != CORGI_AS_NUMBER)
        return encode_category(c, value, null, bytes, to);
    if (c->encoder != NULL)
        return encode_number(c, value, null, bytes, to);
    if (null)
        put_number(NAN, bytes, to);
    else
        corgi_read_number(c->type, value, bytes, to);
    return !null;
}
