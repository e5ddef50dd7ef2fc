/* Per-backend cache of models that predict, keyed by the version of their row. */
#include "models.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

enum { MAX_CACHED_MODELS = 64 };

static const char *const version_query =
    "SELECT xmin, cmin, ctid, " CORGI_HOLDERS " FROM corgipile.models WHERE name operator(pg_catalog.=) $1";

/* Return the version of a model's row in the current snapshot: its transaction, command and position. The command
 * matters because a transaction may have emptied the table in between. Refuses a caller without the right. */
CorgiVersion corgi_find_model(const char *name, CorgiRight right)
{
    CorgiVersion version = {.writer = InvalidTransactionId};
    static SPIPlanPtr saved_plan = NULL;
    Oid types[] = {TEXTOID};
    Datum values[1];
    bool null;
    CorgiCaller caller = corgi_open_tables();
    if (saved_plan == NULL) {
        SPIPlanPtr plan = SPI_prepare(version_query, lengthof(types), types);
        if (plan == NULL || SPI_keepplan(plan) != 0)
            elog(ERROR, "preparing to read corgipile.models failed");
        saved_plan = plan;
    }
    values[0] = CStringGetTextDatum(name);
    if (SPI_execute_plan(saved_plan, values, NULL, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
    if (SPI_processed > 0) {
        HeapTuple row = SPI_tuptable->vals[0];
        TupleDesc columns = SPI_tuptable->tupdesc;
        version.writer = DatumGetTransactionId(SPI_getbinval(row, columns, 1, &null));
        version.command = DatumGetCommandId(SPI_getbinval(row, columns, 2, &null));
        version.place = *(ItemPointer) DatumGetPointer(SPI_getbinval(row, columns, 3, &null));
        CorgiHolders holders = corgi_holders_at(row, columns, 4);
        corgi_check_right(right, caller.user, &holders, name);
    }
    corgi_close_tables(caller);
    return version;
}

/* Return a model's cache entry, or else an unused, new or least recently used one. */
static CorgiCached *find_entry(const char *name)
{
    static CorgiCached *entries[MAX_CACHED_MODELS];
    static int count = 0;
    CorgiCached *oldest = NULL;
    for (int i = 0; i < count; i++) {
        if (entries[i]->model != NULL && strcmp(entries[i]->name, name) == 0)
            return entries[i];
        if (oldest == NULL || entries[i]->asked < oldest->asked)
            oldest = entries[i];
    }
    if (oldest != NULL && (count == MAX_CACHED_MODELS || oldest->model == NULL))
        return oldest;
    entries[count] = MemoryContextAllocZero(TopMemoryContext, sizeof(CorgiCached));
    return entries[count++];
}

/* Allocate the learner and buffers that score rows, in the current memory context. */
static void make_scorer(CorgiCached *c)
{
    bool hashed = c->model->encoding != NULL && c->model->encoding->hashing != NULL;
    c->learner = hashed ? NULL : corgi_model_learner(c->model, false); /* hashed rows are sparse */
    c->scores = palloc(sizeof *c->scores * (Size) c->model->outputs);
    c->row = hashed ? NULL : palloc((Size) (c->model->width * c->model->bytes));
}

/* Load a model into an entry. On error the entry keeps its old model, because the new one belongs to the caller's
 * context until it is complete. */
static void load_entry(CorgiCached *e, const char *name)
{
    MemoryContext outside = CurrentMemoryContext;
    CorgiCached new = {.loads = e->loads + 1,
                       .context = AllocSetContextCreate(outside, "corgipile model", ALLOCSET_SMALL_SIZES)};
    MemoryContextSwitchTo(new.context);
    new.name = pstrdup(name);
    new.model = corgi_load_model(name, false);
    if (new.model->groups > 0)
        new.each = palloc_extended(sizeof *new.each * (Size) new.model->groups, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    else
        make_scorer(&new);
    MemoryContextSwitchTo(outside);
    MemoryContextSetParent(new.context, TopMemoryContext);
    if (e->context != NULL)
        MemoryContextDelete(e->context);
    *e = new;
}

bool corgi_same_version(const CorgiVersion *a, const CorgiVersion *b)
{
    return TransactionIdEquals(a->writer, b->writer) && a->command == b->command &&
           ItemPointerEquals((ItemPointer) &a->place, (ItemPointer) &b->place);
}

/* Return the model in the current snapshot's version. It stays valid until `loads` changes. */
CorgiCached *corgi_cached_model(const char *name)
{
    static uint64 clock = 0;
    CorgiVersion version = corgi_find_model(name, CORGI_USE);
    CorgiCached *e = find_entry(name);
    if (e->model == NULL || strcmp(e->name, name) != 0 || !corgi_same_version(&e->version, &version)) {
        load_entry(e, name);
        e->version = version;
    }
    e->asked = ++clock;
    return e;
}

/* Free the cached models of all groups. */
static void forget_groups(CorgiCached *c)
{
    for (int64 k = 0; k < c->model->groups; k++)
        if (c->each[k] != NULL)
            MemoryContextDelete(c->each[k]->context);
    memset(c->each, 0, sizeof *c->each * (Size) c->model->groups);
    c->ready = 0;
}

/* Return the model of a group, valid until the next call. Groups stay cached within work_mem. */
CorgiCached *corgi_cached_group(CorgiCached *c, int64 k)
{
    MemoryContext outside = CurrentMemoryContext;
    if (c->each[k] != NULL)
        return c->each[k];
    if (c->ready / 1024 >= (Size) work_mem)
        forget_groups(c);
    MemoryContext context = AllocSetContextCreate(outside, "corgipile model of a group", ALLOCSET_SMALL_SIZES);
    MemoryContextSwitchTo(context);
    CorgiCached *member = palloc0(sizeof *member);
    member->context = context;
    member->name = c->name;
    member->model = corgi_model_of_group(c->model, k);
    make_scorer(member);
    MemoryContextSwitchTo(outside);
    MemoryContextSetParent(context, c->context); /* last, so that an error leaks nothing */
    c->ready += MemoryContextMemAllocated(context, true);
    return c->each[k] = member;
}
