/* Hashed rows of a table or of a call, by kernel/text/hashed.h. */
#include "source.h"

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

enum { MAX_RETAINED_BYTES = 1 << 20 }; /* bytes that stay allocated between rows */

/* Free the memory of a long row. */
void corgi_trim_hashing(CorgiHashing *h)
{
    int64 retained = h->row.room + h->row.features.room + h->row.spare.room + h->row.words.room;
    for (int i = 0; i < h->source_count; i++)
        retained += h->row.items[i].room;
    if (retained > MAX_RETAINED_BYTES) {
        cp_hashed_free(&h->row);
        memset(&h->row, 0, sizeof h->row);
    }
}

/* Read the value of a hashed column. Returns false if it is missing and has no replacement. */
static bool read_source(CorgiHashing *h, int i, Oid type, NullableDatum given)
{
    const CorgiHashedSource *one = &h->sources[i];
    cp_hashed_column *c = &h->columns[i];
    Size length = 0;
    if (one->kind == CP_HASHED_NUMBER) {
        double number = given.isnull ? NAN : corgi_number_of(type, given.value);
        h->numbers[i] = isnan(number) && one->filled ? one->fill : number;
        return !given.isnull || one->filled;
    }
    const char *text = given.isnull ? NULL : corgi_text_of(type, given.value, &length);
    c->bytes = (const uint8_t *) "";
    h->offsets[i][1] = 0;
    if (text == NULL)
        return !h->strict;
    c->bytes = (const uint8_t *) pg_server_to_any(text, (int) length, PG_UTF8);
    h->offsets[i][1] = c->bytes == (const uint8_t *) text ? (int64) length : (int64) strlen((const char *) c->bytes);
    return true;
}

/* Hash a row of `values`, with types and encoders from `columns`. `h->row` holds its features until the next row.
 * Returns a missing column without a replacement, whose feature is NaN, or -1. */
static int hash_row(CorgiHashing *h, const CorgiColumn *columns, const NullableDatum *values)
{
    int missing_column = -1;
    int32_t end;
    char *to = (char *) h->row_beside;
    MemoryContext outside = MemoryContextSwitchTo(h->texts);
    corgi_trim_hashing(h);
    MemoryContextReset(h->texts); /* an error may have left some */
    for (int i = 0; i < h->source_count; i++)
        if (!read_source(h, i, columns[h->sources[i].at].type, values[h->sources[i].at]))
            missing_column = h->sources[i].at;
    for (int i = 0; i < h->beside_count; i++) {
        const CorgiColumn *c = &columns[h->beside[i]];
        const NullableDatum *one = &values[h->beside[i]];
        if (!corgi_encode(c, one->value, one->isnull, sizeof(float), to))
            missing_column = h->beside[i];
        to += (c->encoder ? c->encoder->width : 1) * (int64) sizeof(float);
    }
    uint8_t missing = missing_column >= 0;
    h->row.bits = h->bits;
    h->row.ngrams = h->ngrams;
    h->row.columns = h->columns;
    h->row.columns_count = h->source_count;
    h->row.terms = h->terms;
    h->row.terms_count = h->term_count;
    h->row.beside = h->row_beside;
    h->row.beside_count = h->beside_width;
    h->row.missing = &missing;
    h->row.entries = 0;
    if (cp_hashed_rows(&h->row, 1, &end) < 0)
        ereport(ERROR, errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"));
    MemoryContextSwitchTo(outside);
    MemoryContextReset(h->texts);
    return missing_column;
}

/* Hash a row of a table. */
const cp_hashed *corgi_hash_row(const CorgiSource *s, TupleTableSlot *row)
{
    CorgiHashing *h = corgi_hashing(s);
    slot_getsomeattrs(row, s->last);
    for (int i = 0; i < s->feature_columns; i++) {
        AttrNumber at = s->features[i].attnum;
        h->values[i] = (NullableDatum){.value = row->tts_values[at - 1], .isnull = row->tts_isnull[at - 1]};
    }
    int missing_column = hash_row(h, s->features, h->values);
    if (unlikely(missing_column >= 0 && !s->lenient))
        ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                errmsg("%s has a %s in feature column \"%s\"",
                       corgi_row_name(&s->features[missing_column], &row->tts_tid),
                       h->values[missing_column].isnull ? "NULL" : "NaN", s->features[missing_column].name),
                errhint("Set missing => 'skip' to skip such rows, or 'mean' or a number to fill numbers and treat "
                        "text as empty."));
    return &h->row;
}

/* Hash the row of a call, with columns of these types. Returns NULL if a value is missing and has no replacement. */
const cp_hashed *corgi_hash_call(const CorgiEncoding *e, const Oid *types, const NullableDatum *row)
{
    CorgiColumn *columns = palloc0(sizeof *columns * (Size) e->count);
    for (int i = 0; i < e->count; i++)
        columns[i] = (CorgiColumn){.type = types[i], .encoder = &e->features[i]};
    int missing_column = hash_row(e->hashing, columns, row);
    pfree(columns);
    return missing_column < 0 ? &e->hashing->row : NULL;
}
