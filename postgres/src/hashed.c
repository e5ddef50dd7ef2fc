/* Rows whose features are hashed, by kernel/text/hashed.h: of a table and of a call. */
#include "corgipile.h"

#include "mb/pg_wchar.h"

enum { MOST_KEPT = 1 << 20 }; /* of what one row took, for the next */

/* Let go of what a long row took. */
void corgi_trim_hashing(CorgiHashing *h)
{
    int64 kept = h->row.room + h->row.features.room + h->row.spare.room + h->row.words.room;
    for (int i = 0; i < h->source_count; i++)
        kept += h->row.items[i].room;
    if (kept > MOST_KEPT) {
        cp_hashed_free(&h->row);
        memset(&h->row, 0, sizeof h->row);
    }
}

/* Take the value of a column that is hashed. Returns false where it is missing and nothing stands for that. */
static bool take_source(CorgiHashing *h, int i, Oid type, NullableDatum given)
{
    const CorgiHashedSource *one = &h->sources[i];
    cp_hashed_column *c = &h->columns[i];
    Size length = 0;
    const char *text;
    if (one->kind == CP_HASHED_NUMBER) {
        double number = given.isnull ? NAN : corgi_number_of(type, given.value);
        h->numbers[i] = isnan(number) && one->filled ? one->fill : number;
        return !given.isnull || one->filled;
    }
    text = given.isnull ? NULL : corgi_text_of(type, given.value, &length);
    c->bytes = (const uint8_t *) "";
    h->offsets[i][1] = 0;
    if (text == NULL)
        return !h->strict;
    c->bytes = (const uint8_t *) pg_server_to_any(text, (int) length, PG_UTF8);
    h->offsets[i][1] = c->bytes == (const uint8_t *) text ? (int64) length : (int64) strlen((const char *) c->bytes);
    return true;
}

/* Hash a row: `values` of the columns, whose types and encoders `columns` say. Its features are in `h->row` until the next.
 * Returns the column that is missing where nothing stands for that, so that a feature is NaN, or -1. */
static int hash_row(CorgiHashing *h, const CorgiColumn *columns, const NullableDatum *values)
{
    int hole = -1;
    int32_t end;
    uint8_t missing;
    char *to = (char *) h->row_beside;
    MemoryContext outside = MemoryContextSwitchTo(h->texts);
    corgi_trim_hashing(h);
    MemoryContextReset(h->texts); /* after an error there is some */
    for (int i = 0; i < h->source_count; i++)
        if (!take_source(h, i, columns[h->sources[i].at].type, values[h->sources[i].at]))
            hole = h->sources[i].at;
    for (int i = 0; i < h->beside_count; i++) {
        const CorgiColumn *c = &columns[h->beside[i]];
        const NullableDatum *one = &values[h->beside[i]];
        if (!corgi_encode(c, one->value, one->isnull, sizeof(float), to))
            hole = h->beside[i];
        to += (c->encoder ? c->encoder->width : 1) * (int64) sizeof(float);
    }
    missing = hole >= 0;
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
    return hole;
}

/* Hash a row of a table. */
const cp_hashed *corgi_hash_row(const CorgiSource *s, TupleTableSlot *row)
{
    CorgiHashing *h = corgi_hashing(s);
    int hole;
    slot_getsomeattrs(row, s->last);
    for (int i = 0; i < s->feature_columns; i++) {
        AttrNumber at = s->features[i].attnum;
        h->values[i] = (NullableDatum){.value = row->tts_values[at - 1], .isnull = row->tts_isnull[at - 1]};
    }
    hole = hash_row(h, s->features, h->values);
    if (unlikely(hole >= 0 && !s->lenient))
        ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
                errmsg("%s has a %s in feature column \"%s\"", corgi_row_name(&s->features[hole], &row->tts_tid),
                       h->values[hole].isnull ? "NULL" : "NaN", s->features[hole].name),
                errhint("missing => 'skip' leaves such rows out; 'mean' or a number stands for numbers, and text then has no "
                        "words."));
    return &h->row;
}

/* Hash the row of a call, whose columns have these types. Returns NULL where one is missing and nothing stands for it. */
const cp_hashed *corgi_hash_call(const CorgiEncoding *e, const Oid *types, const NullableDatum *row)
{
    CorgiColumn *columns = palloc0(sizeof *columns * (Size) e->count);
    int hole;
    for (int i = 0; i < e->count; i++)
        columns[i] = (CorgiColumn){.type = types[i], .encoder = &e->features[i]};
    hole = hash_row(e->hashing, columns, row);
    pfree(columns);
    return hole < 0 ? &e->hashing->row : NULL;
}
