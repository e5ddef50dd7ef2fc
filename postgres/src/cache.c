/* Models that predict, kept by each backend and known by the version of their row. */
#include "corgipile.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

enum { MOST = 64 };

static const char *const version_query =
    "SELECT xmin, ctid FROM corgipile.models WHERE name operator(pg_catalog.=) $1";

/* Fetch the transaction that wrote the row which the snapshot sees, and its place: both tell versions apart. A row that
 * is not there has no writer. */
static void look_up(const char *name, TransactionId *writer, ItemPointerData *place)
{
    static SPIPlanPtr kept = NULL;
    Oid types[] = {TEXTOID};
    Datum values[1];
    bool null;
    SPI_connect();
    if (kept == NULL) {
        SPIPlanPtr plan = SPI_prepare(version_query, lengthof(types), types);
        if (plan == NULL || SPI_keepplan(plan) != 0)
            elog(ERROR, "preparing to read corgipile.models failed");
        kept = plan;
    }
    values[0] = CStringGetTextDatum(name);
    if (SPI_execute_plan(kept, values, NULL, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
    *writer = InvalidTransactionId;
    if (SPI_processed > 0) {
        HeapTuple row = SPI_tuptable->vals[0];
        *writer = DatumGetTransactionId(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &null));
        *place = *(ItemPointer) DatumGetPointer(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &null));
    }
    SPI_finish();
}

/* Find a model's entry; else take one that never held a model, a new one, or the one asked for longest ago. */
static CorgiCached *entry_of(const char *name)
{
    static CorgiCached *entries[MOST];
    static int count = 0;
    CorgiCached *oldest = NULL;
    for (int i = 0; i < count; i++) {
        if (entries[i]->model != NULL && strcmp(entries[i]->name, name) == 0)
            return entries[i];
        if (oldest == NULL || entries[i]->asked < oldest->asked)
            oldest = entries[i];
    }
    if (oldest != NULL && (count == MOST || oldest->model == NULL))
        return oldest;
    entries[count] = MemoryContextAllocZero(TopMemoryContext, sizeof(CorgiCached));
    return entries[count++];
}

/* Put a model into an entry, in place of the one there. An error leaves that one as it was: what is loaded belongs to
 * the caller until all of it is there. */
static void load(CorgiCached *e, const char *name)
{
    MemoryContext outside = CurrentMemoryContext;
    CorgiCached new = {.loads = e->loads + 1,
                       .context = AllocSetContextCreate(outside, "corgipile model", ALLOCSET_SMALL_SIZES)};
    MemoryContextSwitchTo(new.context);
    new.name = pstrdup(name);
    new.model = corgi_load_model(name, false);
    new.machine = corgi_model_machine(new.model, false);
    new.scores = palloc(sizeof *new.scores * (Size) new.model->outputs);
    new.row = palloc((Size) (new.model->width * new.model->bytes));
    MemoryContextSwitchTo(outside);
    MemoryContextSetParent(new.context, TopMemoryContext);
    if (e->context != NULL)
        MemoryContextDelete(e->context);
    *e = new;
}

/* Return the model as the snapshot sees it. It is good as long as `loads` stays. */
CorgiCached *corgi_cached_model(const char *name)
{
    static uint64 clock = 0;
    TransactionId writer;
    ItemPointerData place;
    CorgiCached *e;
    look_up(name, &writer, &place);
    e = entry_of(name);
    if (e->model == NULL || strcmp(e->name, name) != 0 || !TransactionIdEquals(e->writer, writer) ||
        !ItemPointerEquals(&e->place, &place)) {
        load(e, name);
        e->writer = writer;
        e->place = place;
    }
    e->asked = ++clock;
    return e;
}
