/* Rows that come to a function as one record: ROW(a, b), whose fields stand in the model's order, or the row of a table or
 * of another type that has a name, whose fields are found by theirs. */
#include "corgipile.h"

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

/* Find a column of a row by its name. */
static int find(TupleDesc columns, const char *name, const char *model)
{
    const char *cast;
    for (int i = 0; i < columns->natts; i++) {
        Form_pg_attribute a = TupleDescAttr(columns, i);
        if (!a->attisdropped && strcmp(NameStr(a->attname), name) == 0)
            return i;
    }
    cast = corgi_cast_to_list(columns->tdtypeid);
    ereport(ERROR, errcode(ERRCODE_UNDEFINED_COLUMN),
            errmsg("the row is %s, which has no column \"%s\"; model \"%s\" was trained with it",
                   format_type_be(columns->tdtypeid), name, model),
            cast ? errhint("Write x::%s for x.", cast) : 0);
}

/* Make what reads the features of a model from records like one; it stays as long as the context. */
CorgiRecord *corgi_open_record(Datum record, const char *model, MemoryContext context)
{
    HeapTupleHeader row = DatumGetHeapTupleHeader(record);
    TupleDesc seen = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
    bool named = seen->tdtypeid != RECORDOID;
    const List *names = named ? corgi_model_columns(model) : NIL;
    MemoryContext before = MemoryContextSwitchTo(context);
    CorgiRecord *f = palloc0(sizeof *f);
    f->columns = CreateTupleDescCopy(seen);
    ReleaseTupleDesc(seen);
    f->count = named ? list_length(names) : f->columns->natts;
    f->values = palloc(sizeof *f->values * (Size) f->columns->natts);
    f->nulls = palloc(sizeof *f->nulls * (Size) f->columns->natts);
    f->place = palloc(sizeof *f->place * (Size) f->count);
    f->types = palloc(sizeof *f->types * (Size) f->count);
    f->row = palloc(sizeof *f->row * (Size) f->count);
    for (int i = 0; i < f->count; i++) {
        f->place[i] = named ? find(f->columns, list_nth(names, i), model) : i;
        f->types[i] = TupleDescAttr(f->columns, f->place[i])->atttypid;
    }
    MemoryContextSwitchTo(before);
    return f;
}

/* Return whether a record has the fields that were opened: calls may be given records of several types. */
bool corgi_record_fits(const CorgiRecord *f, Datum record)
{
    HeapTupleHeader row = DatumGetHeapTupleHeader(record);
    return f->columns->tdtypeid == HeapTupleHeaderGetTypeId(row) && f->columns->tdtypmod == HeapTupleHeaderGetTypMod(row);
}

void corgi_read_record(CorgiRecord *f, Datum record)
{
    HeapTupleHeader row = DatumGetHeapTupleHeader(record);
    HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(row), .t_data = row};
    heap_deform_tuple(&tuple, f->columns, f->values, f->nulls);
    for (int i = 0; i < f->count; i++)
        f->row[i] = (NullableDatum){.value = f->values[f->place[i]], .isnull = f->nulls[f->place[i]]};
}
