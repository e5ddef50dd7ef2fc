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

/* Find a model's entry; else take a new one, or the one that was asked for longest ago. */
static CorgiCached *entry_of(const char *name)
{
    static CorgiCached *entries[MOST];
    static int count = 0;
    CorgiCached *oldest = NULL;
    for (int i = 0; i < count; i++) {
        if (strcmp(entries[i]->name, name) == 0)
            return entries[i];
        if (oldest == NULL || entries[i]->asked < oldest->asked)
            oldest = entries[i];
    }
    if (count == MOST)
        return oldest;
    entries[count] = MemoryContextAllocZero(TopMemoryContext, sizeof(CorgiCached));
    entries[count]->context = AllocSetContextCreate(TopMemoryContext, "corgipile model", ALLOCSET_SMALL_SIZES);
    entries[count]->name = "";
    return entries[count++];
}

static void load(CorgiCached *e, const char *name)
{
    MemoryContext outside;
    CorgiModel *m;
    e->loads++;
    e->name = "";
    e->model = NULL;
    MemoryContextReset(e->context);
    outside = MemoryContextSwitchTo(e->context);
    m = corgi_load_model(name, false);
    e->machine = corgi_model_machine(m, false);
    e->sparse = NULL;
    e->scores = palloc(sizeof *e->scores * (Size) m->outputs);
    e->row = palloc((Size) (m->width * m->bytes));
    e->name = pstrdup(name);
    e->model = m; /* the last, for nothing of the entry serves if an error came before */
    MemoryContextSwitchTo(outside);
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
    e->asked = ++clock;
    if (e->model == NULL || strcmp(e->name, name) != 0 || !TransactionIdEquals(e->writer, writer) ||
        !ItemPointerEquals(&e->place, &place)) {
        load(e, name);
        e->writer = writer;
        e->place = place;
    }
    return e;
}
