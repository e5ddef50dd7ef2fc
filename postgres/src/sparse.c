/* Sparse rows: an array of increasing feature numbers from 0, and an array of values; or hashed columns. */

#include "numbers.h"
#include "reading.h"

#include "plan/content.h"
#include "sgd/rows.h"
#include "utils/memutils.h"

/* Return the bytes of a sparse row: indices, then aligned values. */
static int64 pair_bytes(int64 count, int bytes)
{
    return TYPEALIGN(bytes, count * sizeof(int32)) + count * bytes;
}

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

/* Raise an error about a row's indices, by the kernel status. */
void corgi_refuse_indices(const CorgiColumn *c, const ItemPointerData *tid, int status, int64 width)
{
    if (status == CP_SGD_BAD_ORDER)
        REFUSE(ERRCODE_DATA_EXCEPTION, "%s has indices in column \"%s\" that repeat or fall; they must increase",
               corgi_row_name(c, tid), c->name);
    REFUSE(ERRCODE_DATA_EXCEPTION,
           "%s has an index in column \"%s\" outside the " INT64_FORMAT " features%s, which begin at 0",
           corgi_row_name(c, tid), c->name, width, width == CORGI_MAX_NUMBERS ? " that a model can have" : "");
}

static CorgiList open_list(const CorgiColumn *c, TupleTableSlot *row)
{
    bool null;
    Datum value = slot_getattr(row, c->attnum, &null);
    const char *why = NULL;
    if (unlikely(null))
        corgi_null_value(c, row, "feature");
    CorgiList list = corgi_open_list(value, c->type, &why);
    if (unlikely(why != NULL))
        REFUSE(ERRCODE_DATA_EXCEPTION, "%s: column \"%s\" %s", corgi_row_name(c, &row->tts_tid), c->name, why);
    return list;
}

/* Return a row's bytes in the buffer, and widen `width` to its features. */
int64 corgi_survey_pair(const CorgiSource *s, TupleTableSlot *row, int64 *width)
{
    const CorgiColumn *c = s->features;
    const CorgiHashing *h = corgi_hashing(s);
    if (h != NULL) {
        *width = corgi_hashed_width(h);
        return pair_bytes(corgi_hash_row(s, row)->entries, s->bytes);
    }
    CorgiList list = open_list(c, row);
    int64 count = list.count;
    int32 *index = palloc(sizeof *index * (Size) (count + 1));
    memcpy(index, list.numbers, sizeof *index * (Size) count);
    corgi_close_list(&list);
    int status = cp_check_indices(index, count, CORGI_MAX_NUMBERS);
    if (unlikely(status != CP_SGD_OK))
        corgi_refuse_indices(c, &row->tts_tid, status, CORGI_MAX_NUMBERS);
    if (count > 0)
        *width = Max(*width, (int64) index[count - 1] + 1);
    pfree(index);
    return pair_bytes(count, s->bytes);
}

/* Put indices and values behind the previous rows. Returns false if they do not fit. */
static bool put_entries(int bytes, const char *index, const char *values, enum cp_type type, int64 count,
                        CorgiBuffer *b, int64 slot)
{
    int64 size = pair_bytes(count, bytes);
    char *to = b->next + size - count * bytes;
    if (size > b->stop - b->next)
        return false;
    memcpy(b->next, index, sizeof(int32) * (Size) count);
    corgi_copy_numbers(to, bytes, values, type, count);
    b->indices[slot] = (uintptr_t) b->next;
    b->values[slot] = (uintptr_t) to;
    b->lengths[slot] = count;
    b->next += size;
    return true;
}

/* Put an index and a value array into a slot. Returns false if they do not fit. */
bool corgi_put_pair(const CorgiSource *s, const CorgiList *index, const CorgiList *values, CorgiBuffer *b, int64 slot)
{
    return put_entries(s->bytes, index->numbers, values->numbers, corgi_stored_type(s->features[1].type), index->count,
                       b, slot);
}

static void check_pair(const CorgiSource *s, const CorgiList *index, const CorgiList *values, const TupleTableSlot *row)
{
    if (unlikely(index->count != values->count))
        REFUSE(ERRCODE_DATA_EXCEPTION,
               "%s has " INT64_FORMAT " indices in column \"%s\" and " INT64_FORMAT
               " values in column \"%s\"; the counts must be equal",
               corgi_row_name(s->features, &row->tts_tid), index->count, s->features[0].name, values->count,
               s->features[1].name);
}

/* Project entries to CP_CONTENT_FEATURES numbers by signed hashing, as corgipile.loader.numbers does. */
static void project(const char *index, const char *values, enum cp_type type, int64 count, double *out)
{
    double *value = palloc(sizeof *value * (Size) (count + 1));
    if (count > 0)
        corgi_copy_numbers((char *) value, sizeof *value, values, type, count);
    memset(out, 0, sizeof *out * CP_CONTENT_FEATURES);
    for (int copy = 1; copy <= CP_HASH_COPIES; copy++) {
        double sums[CP_CONTENT_FEATURES] = {0};
        for (int64 i = 0; i < count; i++) {
            int32 place;
            memcpy(&place, index + i * sizeof place, sizeof place);
            uint64 hashed = ((uint64) (int64) place + 1) * CP_GOLDEN;
            hashed = (hashed ^ hashed >> 29) * CP_GOLDEN;
            hashed >>= 64 - 6 * copy;
            sums[hashed % CP_CONTENT_FEATURES] += hashed & CP_CONTENT_FEATURES ? value[i] : -value[i];
        }
        for (int i = 0; i < CP_CONTENT_FEATURES; i++)
            out[i] += sums[i];
    }
    pfree(value);
}

/* Project a row to CP_CONTENT_FEATURES numbers. */
void corgi_project_pair(const CorgiSource *s, TupleTableSlot *row, double *out)
{
    if (corgi_hashing(s) != NULL) {
        const cp_hashed *hashed = corgi_hash_row(s, row);
        project((const char *) hashed->indices, (const char *) hashed->values, CP_F32, hashed->entries, out);
        return;
    }
    CorgiList index = open_list(&s->features[0], row);
    CorgiList values = open_list(&s->features[1], row);
    check_pair(s, &index, &values, row);
    project(index.numbers, values.numbers, corgi_stored_type(s->features[1].type), index.count, out);
    corgi_close_list(&index);
    corgi_close_list(&values);
}

/* Put a row into the buffer. Returns false if it does not fit. */
bool corgi_read_pair(const CorgiSource *s, TupleTableSlot *row, CorgiBuffer *b, int64 slot)
{
    if (corgi_hashing(s) != NULL) {
        const cp_hashed *hashed = corgi_hash_row(s, row);
        return put_entries(s->bytes, (const char *) hashed->indices, (const char *) hashed->values, CP_F32,
                           hashed->entries, b, slot);
    }
    CorgiList index = open_list(&s->features[0], row);
    CorgiList values = open_list(&s->features[1], row);
    check_pair(s, &index, &values, row);
    bool fits = corgi_put_pair(s, &index, &values, b, slot);
    corgi_close_list(&index);
    corgi_close_list(&values);
    return fits;
}
