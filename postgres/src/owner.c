/* The table of models, and access to it as its owner. */
#include "rights.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

Oid corgi_models_table(void)
{
    Oid schema = get_namespace_oid("corgipile", true);
    Oid table = OidIsValid(schema) ? get_relname_relid("models", schema) : InvalidOid;
    if (!OidIsValid(table))
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_TABLE), errmsg("there is no table corgipile.models"),
                errhint("Run CREATE EXTENSION corgipile."));
    return table;
}

static Oid owner_of(Oid table)
{
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "the table of models no longer exists");
    Oid owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return owner;
}

/* Set the search path of the extension's own queries to pg_catalog, so that no object of the caller replaces a name.
 * They run before corgi_leave_path, the caller's own SQL outside. An error restores the caller's search path. */
int corgi_enter_path(void)
{
    int level = NewGUCNestLevel();
    (void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                             false);
    return level;
}

void corgi_leave_path(int level) { AtEOXact_GUC(true, level); }

/* Become the owner of the model tables, with a search path free of other roles' objects. An error restores the caller
 * and its path. */
CorgiCaller corgi_become_owner(void)
{
    CorgiCaller caller = {.path = corgi_enter_path()};
    GetUserIdAndSecContext(&caller.user, &caller.context);
    SetUserIdAndSecContext(owner_of(corgi_models_table()),
                           caller.context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
    return caller;
}

void corgi_become_caller(CorgiCaller caller)
{
    SetUserIdAndSecContext(caller.user, caller.context);
    corgi_leave_path(caller.path);
}

/* Become the owner, to query the model tables by SPI until corgi_close_tables. */
CorgiCaller corgi_open_tables(void)
{
    CorgiCaller caller = corgi_become_owner();
    SPI_connect();
    return caller;
}

void corgi_close_tables(CorgiCaller caller)
{
    SPI_finish();
    corgi_become_caller(caller);
}

/* Run a query by SPI. */
void corgi_execute(const char *query, int count, Oid *types, Datum *values, const char *nulls, bool reads)
{
    int status = SPI_execute_with_args(query, count, types, values, nulls, reads, 0);
    if (status < 0)
        elog(ERROR, "a query of the model tables failed: %s", SPI_result_code_string(status));
}

/* Run a query on a model's name, its parameter. Returns the number of rows. */
uint64 corgi_execute_for(const char *query, const char *name, bool reads)
{
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    corgi_execute(query, lengthof(types), types, values, NULL, reads);
    return SPI_processed;
}

/* Return a column of the query's first row, or NULL. */
char *corgi_text_at(int column, MemoryContext context)
{
    char *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);
    return value == NULL ? NULL : MemoryContextStrdup(context, value);
}
