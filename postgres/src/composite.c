/* Rows passed as one record: ROW(a, b) with fields in the model's order, or a named row type with columns matched by
 * name. */
#include "composite.h"
#include "models.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

bool corgi_is_record(Oid type)
{
    Oid base = getBaseType(type);
    return base == RECORDOID || get_typtype(base) == TYPTYPE_COMPOSITE;
}

/* Return the index of a record's column with this name. */
static int find_field(TupleDesc columns, const char *name, const char *model)
{
    const char *cast = corgi_cast_to_list(columns->tdtypeid);
    int match = -1;
    for (int i = 0; i < columns->natts; i++) {
        Form_pg_attribute a = TupleDescAttr(columns, i);
        if (a->attisdropped || strcmp(NameStr(a->attname), name) != 0)
            continue;
        if (match >= 0)
            ereport(ERROR, errcode(ERRCODE_AMBIGUOUS_COLUMN), errmsg("the row has two columns \"%s\"", name),
                    errhint("Give the columns of model \"%s\" as ROW(a, b), in training order.", model));
        match = i;
    }
    if (match < 0)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_COLUMN),
                errmsg("the row is %s, which has no column \"%s\"; model \"%s\" was trained with it",
                       format_type_be(columns->tdtypeid), name, model),
                cast ? errhint("Write x::%s for x.", cast)
                     : errhint("Name its columns as in training, or give ROW(a, b) in training order."));
    return match;
}

/* Return n for the name fn that ROW gives to field n, 0 for any other name. */
static int field_number(const char *name)
{
    int number = *name == 'f' ? atoi(name + 1) : 0;
    return strcmp(name, psprintf("f%d", number)) == 0 ? number : 0;
}

/* Return whether all fields have the names that ROW gives them: f1, f2 and so on. */
static bool is_nameless(TupleDesc columns)
{
    for (int i = 0; i < columns->natts; i++)
        if (field_number(NameStr(TupleDescAttr(columns, i)->attname)) != i + 1)
            return false;
    return columns->tdtypeid == RECORDOID;
}

/* Return the columns to take by name from a record, or NIL if its fields are in the model's order. A query may name its
 * own columns f1 and f2, as ROW does: refused if names and positions disagree. */
static const List *record_columns(TupleDesc columns, const char *model)
{
    bool nameless = is_nameless(columns), here = true, same = true;
    const List *names = corgi_model_columns(model, !nameless);
    const ListCell *cell;
    if (!nameless)
        return names;
    foreach (cell, names) {
        int number = field_number(lfirst(cell));
        here &= number >= 1 && number <= columns->natts;
        same &= number == foreach_current_index(cell) + 1;
    }
    if (names != NIL && here && !(same && list_length(names) == columns->natts))
        ereport(ERROR, errcode(ERRCODE_AMBIGUOUS_COLUMN),
                errmsg("columns f1 to f%d of the row are ambiguous: ROW uses these names, and model \"%s\" was trained "
                       "on them in another order", columns->natts, model),
                errhint("Select the columns in training order: predict(m, r) FROM (SELECT b, a FROM t) r."));
    return NIL;
}

/* Return a reader of a model's features from records of this type, allocated in `context`. */
CorgiRecord *corgi_open_record(Datum record, const char *model, MemoryContext context)
{
    HeapTupleHeader row = DatumGetHeapTupleHeader(record);
    TupleDesc seen = lookup_rowtype_tupdesc_copy(HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
    const List *names = record_columns(seen, model);
    MemoryContext before = MemoryContextSwitchTo(context);
    CorgiRecord *f = palloc0(sizeof *f);
    f->columns = CreateTupleDescCopy(seen);
    f->count = names ? list_length(names) : f->columns->natts;
    f->values = palloc(sizeof *f->values * (Size) f->columns->natts);
    f->nulls = palloc(sizeof *f->nulls * (Size) f->columns->natts);
    f->place = palloc(sizeof *f->place * (Size) f->count);
    f->types = palloc(sizeof *f->types * (Size) f->count);
    f->row = palloc(sizeof *f->row * (Size) f->count);
    for (int i = 0; i < f->count; i++) {
        f->place[i] = names ? find_field(f->columns, list_nth(names, i), model) : i;
        f->types[i] = TupleDescAttr(f->columns, f->place[i])->atttypid;
    }
    MemoryContextSwitchTo(before);
    return f;
}

/* Return whether a record has the reader's type: one call may pass records of several types. */
bool corgi_record_fits(const CorgiRecord *f, Datum record)
{
    HeapTupleHeader row = DatumGetHeapTupleHeader(record);
    return f->columns->tdtypeid == HeapTupleHeaderGetTypeId(row) &&
           f->columns->tdtypmod == HeapTupleHeaderGetTypMod(row);
}

void corgi_read_record(CorgiRecord *f, Datum record)
{
    HeapTupleHeader row = DatumGetHeapTupleHeader(record);
    HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(row), .t_data = row};
    heap_deform_tuple(&tuple, f->columns, f->values, f->nulls);
    for (int i = 0; i < f->count; i++)
        f->row[i] = (NullableDatum){.value = f->values[f->place[i]], .isnull = f->nulls[f->place[i]]};
}
