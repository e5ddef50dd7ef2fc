/* Versions of models: an update stores what it replaces, and rollback restores it.
 * The trigger keep_version stores versions, so any kind of update does. Each version names its predecessor, to which
 * rollback goes. Versions keep their numbers, and a new one gets a new number. */
#include "rights.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(corgipile_rollback);

static bool rolling_back = false; /* this backend is in a rollback */

/* Run a statement with a model's name and a number. */
static void execute_for_model(const char *query, const char *name, int64 number)
{
    Oid types[] = {TEXTOID, INT8OID};
    Datum values[] = {CStringGetTextDatum(name), Int64GetDatum(number)};
    corgi_execute(query, lengthof(types), types, values, NULL, false);
}

/* Refuse an update of a row's version numbers, except by rollback. */
void corgi_check_version(Relation rel, HeapTuple old, HeapTuple new, const char *name)
{
    static const char *const numbers[] = {"version", "before"};
    TupleDesc columns = RelationGetDescr(rel);
    for (int i = 0; i < lengthof(numbers) && !rolling_back; i++) {
        int at = SPI_fnumber(columns, numbers[i]);
        bool null, null_before;
        Datum before = heap_getattr(old, at, columns, &null_before), now = heap_getattr(new, at, columns, &null);
        if (null != null_before || (!null && DatumGetInt64(before) != DatumGetInt64(now)))
            ereport(ERROR, errcode(ERRCODE_GENERATED_ALWAYS),
                    errmsg("the version number of model \"%s\" cannot be changed", name),
                    errhint("SELECT corgipile.rollback(model, version) restores a version."));
    }
}

#define FIGURES "epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy, holdout_r2, rows, seconds"
static const char *const find_query =
    "SELECT " CORGI_HOLDERS ", version, before FROM corgipile.models WHERE name operator(pg_catalog.=) $1 FOR NO KEY "
    "UPDATE";
static const char *const kept_query =
    "SELECT pg_catalog.string_agg(version::pg_catalog.text, ', ' ORDER BY version), "
    "pg_catalog.bool_or(version operator(pg_catalog.=) $2) FROM corgipile.past WHERE model operator(pg_catalog.=) $1";
static const char *const restore_query =
    "UPDATE corgipile.models m SET kind = p.kind, dims = p.dims, classes = p.classes, coefficients = p.coefficients, "
    "intercepts = p.intercepts, params = p.params, source = p.source, created = p.created, learnt = p.learnt, "
    "version = p.version, before = p.before FROM corgipile.past p WHERE m.name operator(pg_catalog.=) $1 AND p.model "
    "operator(pg_catalog.=) $1 AND p.version operator(pg_catalog.=) $2";
static const char *const clear_query = "DELETE FROM corgipile.history WHERE model operator(pg_catalog.=) $1";
static const char *const history_query =
    "INSERT INTO corgipile.history (model, " FIGURES ") SELECT model, " FIGURES
    " FROM corgipile.past_history WHERE model operator(pg_catalog.=) $1 AND version operator(pg_catalog.=) $2";
static const char *const remove_query =
    "DELETE FROM corgipile.past WHERE model operator(pg_catalog.=) $1 AND version operator(pg_catalog.=) $2";

/* Lock the model after checking that the caller may replace it. Returns its version and the previous one, 0 if none. */
static void lock_model(const char *name, Oid user, int64 *version, int64 *before)
{
    bool null;
    if (corgi_execute_for(find_query, name, false) == 0)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no model \"%s\"", name),
                errhint("SELECT name FROM corgipile.models lists them."));
    CorgiHolders holders = corgi_holders_at(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
    corgi_check_right(CORGI_REPLACE, user, &holders, name);
    *version = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 5, &null));
    *before = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 6, &null));
    *before = null ? 0 : *before;
}

/* Refuse a version that is not stored. */
static void check_stored(const char *name, int64 version, int64 wanted)
{
    bool null;
    execute_for_model(kept_query, name, wanted);
    char *stored = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
    bool is_stored = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &null));
    if (!null && is_stored)
        return;
    ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
            wanted == 0 ? errmsg("model \"%s\" has no version before " INT64_FORMAT, name, version)
                        : errmsg("version " INT64_FORMAT " of model \"%s\" is not stored", wanted, name),
            stored ? errdetail("Its version is " INT64_FORMAT "; also stored: %s.", version, stored)
                 : errdetail("Its version is " INT64_FORMAT ", and no other is stored.", version));
}

static void restore_version(const char *name, int64 version)
{
    rolling_back = true;
    PG_TRY();
    {
        execute_for_model(restore_query, name, version);
    }
    PG_FINALLY();
    {
        rolling_back = false;
    }
    PG_END_TRY();
    if (SPI_processed != 1)
        elog(ERROR, "restoring a version of model \"%s\" failed", name);
    corgi_execute_for(clear_query, name, false);
    execute_for_model(history_query, name, version);
    execute_for_model(remove_query, name, version);
}

/* rollback(model, version): restores a version. */
Datum corgipile_rollback(PG_FUNCTION_ARGS)
{
    int64 version, before;
    Oid user = GetUserId();
    if (PG_ARGISNULL(0))
        PG_RETURN_NULL();
    char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    PreventCommandIfReadOnly("corgipile.rollback");
    corgi_check_models(ACL_UPDATE, user);
    corgi_lock_name(name);
    CorgiCaller caller = corgi_open_tables();
    lock_model(name, user, &version, &before);
    int64 wanted = PG_ARGISNULL(1) ? before : PG_GETARG_INT64(1);
    if (wanted != version) {
        check_stored(name, version, wanted);
        restore_version(name, wanted);
    }
    corgi_close_tables(caller);
    PG_RETURN_INT64(wanted);
}
