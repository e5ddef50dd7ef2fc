/* Fast path that copies rows of a heap page into the buffer without deforming them.
 * It handles numbers and arrays stored inline and uncompressed. A page with any other row, a damaged one included,
 * takes the general path, corgi_put_row. */

#include "numbers.h"
#include "reading.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"

enum { PREFETCH_DISTANCE = 4, MAX_PREFETCH_BYTES = 512 }; /* rows between prefetch and use; bytes per row */

static uint8 alignment(char code)
{
    switch (code) {
    case TYPALIGN_CHAR: return 1;
    case TYPALIGN_SHORT: return ALIGNOF_SHORT;
    case TYPALIGN_INT: return ALIGNOF_INT;
    default: return ALIGNOF_DOUBLE;
    }
}

/* Return a field's offset if the previous one ends at `offset`; -1 if it varies by row, because only long arrays and
 * text are aligned. */
static int32 field_offset(const CorgiField *f, int32 offset)
{
    int32 aligned = offset < 0 ? -1 : (int32) TYPEALIGN(f->align, offset);
    return f->length == -1 && aligned != offset ? -1 : aligned;
}

static bool is_wanted(const CorgiSource *s, AttrNumber attribute)
{
    bool wanted = attribute == s->label.attnum || attribute == s->weight.attnum;
    for (int i = 0; i < s->feature_columns; i++)
        wanted |= attribute == s->features[i].attnum;
    return wanted;
}

/* Describe a row's fields up to the last needed one. */
CorgiFields corgi_make_fields(const CorgiSource *s)
{
    CorgiFields fields = {.last = s->last, .serve = corgi_stored_type(s->label.type) != CP_TYPES};
    int32 offset = 0;
    fields.serve &= corgi_hashing(s) == NULL;
    fields.serve &= s->weight.name == NULL || corgi_stored_type(s->weight.type) != CP_TYPES;
    for (int i = 0; i < s->feature_columns; i++)
        fields.serve &= corgi_stored_type(s->features[i].type) != CP_TYPES && s->features[i].encoder == NULL;
    fields.all = palloc(sizeof *fields.all * (Size) s->last);
    fields.some = palloc(sizeof *fields.some * (Size) s->last);
    fields.where = palloc0(sizeof *fields.where * (Size) s->last);
    for (int16 i = 0; i < s->last; i++) {
        Form_pg_attribute a = TupleDescAttr(RelationGetDescr(s->rel), i);
        CorgiField f = {.at = i, .length = a->attlen, .align = alignment(a->attalign), .wanted = is_wanted(s, i + 1)};
        f.offset = field_offset(&f, offset);
        offset = f.offset < 0 || f.length < 0 ? -1 : f.offset + f.length;
        if (f.offset >= 0 && fields.count > 0 && !fields.some[fields.count - 1].wanted)
            fields.count--; /* no need to step over it */
        fields.some[fields.count++] = fields.all[i] = f;
    }
    return fields;
}

/* Find the fields of a row. `nulls` is its null bitmap or NULL. Returns false if a wanted field is NULL. */
static pg_attribute_always_inline bool locate(const CorgiField *f, int count, const char *data, bits8 *nulls,
                                              const char **where)
{
    uint32 at = 0;
    for (const CorgiField *end = f + count; f < end; f++) {
        if (nulls != NULL && att_isnull(f->at, nulls)) {
            if (f->wanted)
                return false;
            continue;
        }
        if (nulls == NULL && f->offset >= 0)
            at = f->offset;
        else if (f->length != -1 || !VARATT_NOT_PAD_BYTE(data + at))
            at = TYPEALIGN(f->align, at);
        where[f->at] = data + at;
        if (f + 1 < end)
            at = att_addlength_pointer(at, f->length, data + at);
    }
    return true;
}

static inline bool locate_fields(const CorgiFields *fields, HeapTupleHeader tuple)
{
    const char *data = (const char *) tuple + tuple->t_hoff;
    if (unlikely(HeapTupleHeaderGetNatts(tuple) < fields->last))
        return false;
    if (unlikely(tuple->t_infomask & HEAP_HASNULL))
        return locate(fields->all, fields->last, data, tuple->t_bits, fields->where);
    return locate(fields->some, fields->count, data, NULL, fields->where);
}

/* Put a row's features into a slot. */
static inline bool put_features(const CorgiSource *s, const CorgiFields *fields, int64 width, CorgiBuffer *b,
                                int64 slot)
{
    const CorgiColumn *c = s->features;
    char *to = b->x + slot * b->stride;
    CorgiList list, values;
    if (c->list) {
        if (!corgi_plain_list(fields->where[c->attnum - 1], c->type, &list))
            return false;
        if (s->sparse)
            return corgi_plain_list(fields->where[c[1].attnum - 1], c[1].type, &values) &&
                   list.count == values.count && corgi_put_pair(s, &list, &values, b, slot);
        if (list.count == width)
            corgi_copy_numbers(to, s->bytes, list.numbers, corgi_stored_type(c->type), width);
        return list.count == width;
    }
    for (int i = 0; i < s->feature_columns; i++)
        cp_cast(to + i * s->bytes, s->bytes == 8, fields->where[c[i].attnum - 1], corgi_stored_type(c[i].type), 1);
    return true;
}

static inline bool put_row(const CorgiSource *s, const CorgiFields *fields, HeapTupleHeader tuple, int64 width,
                           CorgiBuffer *b, int64 slot)
{
    double y = 0;
    if (unlikely(!locate_fields(fields, tuple)))
        return false;
    if (s->labels == NULL)
        cp_cast((char *) &y, 1, fields->where[s->label.attnum - 1], corgi_stored_type(s->label.type), 1);
    b->y[slot] = y;
    if (b->weight != NULL)
        cp_cast((char *) &b->weight[slot], 1, fields->where[s->weight.attnum - 1], corgi_stored_type(s->weight.type),
                1);
    return likely(isfinite(y) && corgi_is_exact(s->label.type, y)) && likely(put_features(s, fields, width, b, slot));
}

static inline void prefetch_slot(const CorgiSource *s, const CorgiBuffer *b, int64 slot)
{
    __builtin_prefetch(&b->y[slot], 1);
    __builtin_prefetch(&b->tid[slot], 1);
    for (int64 at = 0; !s->sparse && at < Min(b->stride, MAX_PREFETCH_BYTES); at += 64)
        __builtin_prefetch(b->x + slot * b->stride + at, 1);
}

/* Prefetch a row. Rows fill a page from its end, which hardware prefetchers do not predict. */
static inline void prefetch_row(const CorgiPage *page, OffsetNumber item)
{
    ItemId id = PageGetItemId(page->page, item);
    const char *row = PageGetItem(page->page, id);
    for (int at = 0; at < Min((int) ItemIdGetLength(id), MAX_PREFETCH_BYTES); at += 64)
        __builtin_prefetch(row + at);
    __builtin_prefetch(row + ItemIdGetLength(id) - 1);
}

/* Put the rows `which` of a page into the slots `into`. Returns false if they must take the general path; their slots
 * may have been overwritten. */
bool corgi_put_page_rows(const CorgiSource *s, const CorgiFields *fields, const CorgiPage *page, const int16 *which,
                         int count, int64 width, CorgiBuffer *b, const int32 *into)
{
    char *next = b->next;
    ItemPointerData tid;
    for (int i = 0; i < count; i++) {
        OffsetNumber item = page->items[which[i]];
        if (i + PREFETCH_DISTANCE < count) {
            prefetch_row(page, page->items[which[i + PREFETCH_DISTANCE]]);
            prefetch_slot(s, b, into[i + PREFETCH_DISTANCE]);
        }
        if (!put_row(s, fields, (HeapTupleHeader) PageGetItem(page->page, PageGetItemId(page->page, item)), width, b,
                     into[i])) {
            b->next = next;
            return false;
        }
        ItemPointerSet(&tid, page->number, item);
        corgi_note_origin(b, into[i], s, tid);
    }
    return true;
}
