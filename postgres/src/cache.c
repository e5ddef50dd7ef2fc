/* Models that predict, kept by each backend and known by the version of their row. */
#include "corgipile.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

enum { MOST = 64 };

static const char *const version_query =
    "SELECT xmin, cmin, ctid, " CORGI_HOLDERS " FROM corgipile.models WHERE name operator(pg_catalog.=) $1";

/* For version 0.1, in which every reader of the table may use all models. */
static const char *const old_query = "SELECT xmin, cmin, ctid FROM corgipile.models WHERE name operator(pg_catalog.=) $1";

/* Fetch the version of the row that the snapshot sees: the transaction that wrote it, the command of that transaction,
 * which may have emptied the table in between, and the place. Refuses a caller without the right. */
CorgiVersion corgi_find_model(const char *name, CorgiRight right)
{
    CorgiVersion found = {.writer = InvalidTransactionId};
    static SPIPlanPtr kept = NULL;
    Oid types[] = {TEXTOID};
    Datum values[1];
    bool null, old = right == CORGI_USE && !corgi_has_rights();
    CorgiCaller caller = corgi_become_owner();
    if (old)
        corgi_check_models(ACL_SELECT, caller.user);
    else
        (void) corgi_models_table();
    SPI_connect();
    if (kept == NULL && !old) {
        SPIPlanPtr plan = SPI_prepare(version_query, lengthof(types), types);
        if (plan == NULL || SPI_keepplan(plan) != 0)
            elog(ERROR, "preparing to read corgipile.models failed");
        kept = plan;
    }
    values[0] = CStringGetTextDatum(name);
    if ((old ? SPI_execute_with_args(old_query, 1, types, values, NULL, true, 1)
             : SPI_execute_plan(kept, values, NULL, true, 1)) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
    if (SPI_processed > 0) {
        HeapTuple row = SPI_tuptable->vals[0];
        TupleDesc columns = SPI_tuptable->tupdesc;
        found.writer = DatumGetTransactionId(SPI_getbinval(row, columns, 1, &null));
        found.command = DatumGetCommandId(SPI_getbinval(row, columns, 2, &null));
        found.place = *(ItemPointer) DatumGetPointer(SPI_getbinval(row, columns, 3, &null));
        if (!old) {
            CorgiHolders holders = corgi_holders_at(row, columns, 4);
            corgi_check_right(right, caller.user, &holders, name);
        }
    }
    SPI_finish();
    corgi_become_caller(caller);
    return found;
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

/* Make what scores rows by one model, in the current memory context. */
static void make_room(CorgiCached *c)
{
    bool hashed = c->model->encoding != NULL && c->model->encoding->hashing != NULL;
    c->learner = hashed ? NULL : corgi_model_learner(c->model, false); /* rows that are hashed are sparse */
    c->scores = palloc(sizeof *c->scores * (Size) c->model->outputs);
    c->row = hashed ? NULL : palloc((Size) (c->model->width * c->model->bytes));
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
    if (new.model->groups > 0)
        new.each = palloc_extended(sizeof *new.each * (Size) new.model->groups, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    else
        make_room(&new);
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

/* Return the model as the snapshot sees it. It is good as long as `loads` stays. */
CorgiCached *corgi_cached_model(const char *name)
{
    static uint64 clock = 0;
    CorgiVersion version = corgi_find_model(name, CORGI_USE);
    CorgiCached *e = entry_of(name);
    if (e->model == NULL || strcmp(e->name, name) != 0 || !corgi_same_version(&e->version, &version)) {
        load(e, name);
        e->version = version;
    }
    e->asked = ++clock;
    return e;
}

/* Let go of all groups of a model. */
static void forget_groups(CorgiCached *c)
{
    for (int64 k = 0; k < c->model->groups; k++)
        if (c->each[k] != NULL)
            MemoryContextDelete(c->each[k]->context);
    memset(c->each, 0, sizeof *c->each * (Size) c->model->groups);
    c->ready = 0;
}

/* Return the model of one of the groups of a model, which stays until the next is asked for: all are kept within work_mem. */
CorgiCached *corgi_cached_group(CorgiCached *c, int64 k)
{
    MemoryContext outside = CurrentMemoryContext, context;
    CorgiCached *one;
    if (c->each[k] != NULL)
        return c->each[k];
    if (c->ready / 1024 >= (Size) work_mem)
        forget_groups(c);
    context = AllocSetContextCreate(outside, "corgipile model of a group", ALLOCSET_SMALL_SIZES);
    MemoryContextSwitchTo(context);
    one = palloc0(sizeof *one);
    one->context = context;
    one->name = c->name;
    one->model = corgi_model_of_group(c->model, k);
    make_room(one);
    MemoryContextSwitchTo(outside);
    MemoryContextSetParent(context, c->context); /* no sooner, so that an error leaves nothing there */
    c->ready += MemoryContextMemAllocated(context, true);
    return c->each[k] = one;
}
