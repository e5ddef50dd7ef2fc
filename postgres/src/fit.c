/* Pass before the survey that fits encoders: text classes, categories, and fill values of missing numbers.
 * Classes come from all rows, as for numeric labels; everything else comes from training rows only, as in Python. */
#include "operators.h"

#include <math.h>

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_enum.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

/* Add the values of an enum type to a list, in their order. */
static void add_enum(Oid type, CorgiNames *names)
{
    ScanKeyData key;
    Relation rel = table_open(EnumRelationId, AccessShareLock),
             index = index_open(EnumTypIdSortOrderIndexId, AccessShareLock);
    HeapTuple row;
    ScanKeyInit(&key, Anum_pg_enum_enumtypid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(type));
    SysScanDesc scan = systable_beginscan_ordered(rel, index, NULL, 1, &key);
    while (HeapTupleIsValid(row = systable_getnext_ordered(scan, ForwardScanDirection))) {
        const char *label = NameStr(((Form_pg_enum) GETSTRUCT(row))->enumlabel);
        corgi_add_name(names, label, strlen(label));
    }
    systable_endscan_ordered(scan);
    index_close(index, AccessShareLock);
    table_close(rel, AccessShareLock);
}

static bool has_categories(const CorgiEncoder *e) { return e->way == CORGI_ONEHOT || e->way == CORGI_ORDINAL; }

/* Return whether an encoder must be fitted to rows. */
static bool needs_fit(const CorgiEncoder *e) { return has_categories(e) || (e->way == CORGI_AS_NUMBER && e->filled); }

static void refuse_categories(const CorgiEncoder *e, int64 most)
{
    ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
            e->values->count > most
                ? errmsg("column \"%s\" has more than " INT64_FORMAT " different values, too many for %s", e->column,
                         most, e->way == CORGI_ONEHOT ? "onehot" : "ordinal")
                : errmsg("the different values of column \"%s\" take more than %d MB", e->column, CORGI_MAX_TEXT >> 20),
            errhint("Set encode => '{\"%s\": \"hash:1024\"}', or leave it out.", e->column));
}

static void add_category(CorgiEncoder *e, const CorgiColumn *c, Datum value, bool null, bool kept)
{
    int64 most = e->way == CORGI_ONEHOT ? CORGI_MAX_ONEHOT : CORGI_MAX_VALUES;
    Size length;
    const char *text = null ? NULL : corgi_text_of(c->type, value, &length);
    if (text == NULL)
        e->null_known = kept;
    else
        corgi_add_name(e->values, text, length);
    if (unlikely(e->values->count > most || e->values->bytes > CORGI_MAX_TEXT))
        refuse_categories(e, most);
}

static void add_number(CorgiEncoder *e, const CorgiColumn *c, Datum value, bool null)
{
    double number = null ? NAN : corgi_number_of(c->type, value);
    if (isnan(number))
        return;
    cp_sum_add(e->total, number);
    e->found++;
}

static void fit_row(const CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    const CorgiEncoding *e = part->encoding;
    bool kept = run->options.missing != CORGI_MISSING_ERROR && run->options.missing != CORGI_MISSING_SKIP;
    for (int i = 0; i < e->count; i++) {
        const CorgiColumn *c = &part->features[i];
        CorgiEncoder *encoder = &e->features[i];
        Datum value = row->tts_values[c->attnum - 1];
        bool null = row->tts_isnull[c->attnum - 1];
        if (has_categories(encoder))
            add_category(encoder, c, value, null, kept);
        else if (needs_fit(encoder))
            add_number(encoder, c, value, null);
    }
}

/* Record which numbers are missing in a validation row, so that measuring fills them. */
static void note_missing(const CorgiSource *part, TupleTableSlot *row)
{
    for (int i = 0; i < part->encoding->count; i++) {
        const CorgiColumn *c = &part->features[i];
        CorgiEncoder *encoder = &part->encoding->features[i];
        if (encoder->way == CORGI_AS_NUMBER && encoder->filled && !encoder->holed)
            encoder->holed =
                row->tts_isnull[c->attnum - 1] || isnan(corgi_number_of(c->type, row->tts_values[c->attnum - 1]));
    }
}

/* Add a row's class. The survey handles missing ones. */
static void add_class(const CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    const CorgiColumn *c = &part->label;
    CorgiNames *classes = part->encoding->classes;
    int64 most = corgi_max_classes(run->options.kind);
    Size length;
    if (row->tts_isnull[c->attnum - 1])
        return;
    const char *text = corgi_text_of(c->type, row->tts_values[c->attnum - 1], &length);
    corgi_add_name(classes, text, length);
    if (likely(classes->count <= most))
        return;
    if (most == 2)
        corgi_check_class_names(classes, "the labels have", run->options.kind);
    REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "the labels have more than %d values", CP_MAX_CLASSES);
}

/* Read all rows, block by block as the epochs do. Returns the number of training rows. */
static int64 read_rows(CorgiRun *run, CustomScanState *blocks, bool classes, bool features)
{
    MemoryContext leftovers = AllocSetContextCreate(CurrentMemoryContext, "corgipile fit", ALLOCSET_DEFAULT_SIZES);
    const CorgiSource *source = &run->source;
    int64 number = 0, learnt = 0;
    int count;
    for (CorgiPlace at = {0}; corgi_settle(source, &at); at.page += source->block_pages) {
        const CorgiSource *part = &source->parts[at.part];
        MemoryContext outside = MemoryContextSwitchTo(leftovers);
        CorgiScan *scan;
        corgi_block_seek(blocks, &at);
        while ((scan = corgi_block_next(blocks, &count)) != NULL)
            for (int i = 0; i < count; i++) {
                bool held = corgi_held_out(run, number++);
                TupleTableSlot *row = corgi_scan_row(scan, i);
                if (corgi_row_matches(run, part, number - 1, row)) {
                    slot_getsomeattrs(row, part->last);
                    if (classes)
                        add_class(run, part, row);
                    if (features && !held)
                        fit_row(run, part, row);
                    else if (features)
                        note_missing(part, row);
                    learnt += !held;
                }
                if (i % 64 == 0)
                    MemoryContextReset(leftovers);
            }
        MemoryContextSwitchTo(outside);
    }
    corgi_end_loop(blocks);
    run->passes++;
    MemoryContextDelete(leftovers);
    return learnt;
}

static void settle_encoder(CorgiEncoder *e, const CorgiRun *run, int64 rows)
{
    if (has_categories(e)) {
        if (!e->ordered)
            corgi_sort_names(e->values, e->family == CORGI_NUMBER);
        if (e->values->count + e->null_known == 0)
            REFUSE(ERRCODE_DATA_EXCEPTION, "column \"%s\" has no values to use as categories", e->column);
        e->width = e->way == CORGI_ONEHOT ? e->values->count + e->null_known : 1;
    } else if (needs_fit(e)) {
        e->whole = e->found == rows;
        if (run->options.missing != CORGI_MISSING_MEAN)
            return;
        if (e->found == 0)
            REFUSE(ERRCODE_DATA_EXCEPTION, "column \"%s\" has no values, so its mean cannot replace missing ones",
                   e->column);
        e->fill = cp_sum_value(*e->total) / (double) e->found;
        if (!isfinite(e->fill))
            REFUSE(ERRCODE_DATA_EXCEPTION, "column \"%s\" has the mean %g, which cannot replace missing values",
                   e->column, e->fill);
    }
}

/* Fit the encoders that need it, and attach them to the columns. */
void corgi_fit_encoding(CorgiRun *run, CustomScanState *blocks)
{
    CorgiSource *s = &run->source;
    CorgiEncoding *e = s->encoding;
    bool features = false;
    int64 rows;
    if (e == NULL || e == run->options.encoding)
        return;
    bool classes = e->classes != NULL && run->options.classes == NULL;
    for (int i = 0; i < e->count; i++) {
        features |= needs_fit(&e->features[i]);
        e->features[i].total = palloc0(sizeof(cp_sum));
        if (has_categories(&e->features[i]) && e->features[i].ordered)
            add_enum(s->features[i].type, e->features[i].values);
    }
    if (classes || features) {
        rows = read_rows(run, blocks, classes, features);
        for (int i = 0; i < e->count && rows > 0; i++)
            settle_encoder(&e->features[i], run, rows);
        if (classes && rows > 0)
            corgi_check_class_names(e->classes, "the labels have", run->options.kind);
    }
    if (e->hashing != NULL)
        corgi_settle_hashing(e, true);
    corgi_attach_encodings(s, e);
    corgi_block_close(blocks); /* open scans use the old encoders */
}
