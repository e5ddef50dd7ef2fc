/* Versions of models: an update keeps what it replaces, and rollback restores it.
 * A trigger keeps versions, so any kind of update does. Each version names its predecessor, to which rollback goes.
 * Versions keep their numbers, and a new one gets a new number. */
#include "compat.h"
#include "rights.h"
#include "settings.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(corgipile_keep_version);
PG_FUNCTION_INFO_V1(corgipile_rollback);

/* Versioned columns, with the same names in corgipile.past. */
static const char *const versioned[] = {"kind",   "dims",   "classes", "coefficients", "intercepts",
                                        "params", "source", "created", "learnt"};
static bool rolling_back = false; /* this backend is in a rollback */

static const char *const store_query =
    "INSERT INTO corgipile.past (model, version, before, kind, dims, classes, coefficients, intercepts, params, "
    "source, "
    "created, learnt, until) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, pg_catalog.clock_timestamp())";
#define FIGURES "epoch, loss, accuracy, r2, holdout_loss, holdout_accuracy, holdout_r2, rows, seconds"
static const char *const store_history_query =
    "INSERT INTO corgipile.past_history (model, version, " FIGURES ") SELECT model, $2, " FIGURES
    " FROM corgipile.history WHERE model operator(pg_catalog.=) $1";
static const char *const prune_query =
    "DELETE FROM corgipile.past WHERE model operator(pg_catalog.=) $1 AND version operator(pg_catalog.=) ANY "
    "(ARRAY(SELECT "
    "version FROM corgipile.past WHERE model operator(pg_catalog.=) $1 ORDER BY until DESC, version DESC OFFSET $2))";
static const char *const next_query =
    "SELECT GREATEST($2, (SELECT pg_catalog.max(version) FROM corgipile.past WHERE model operator(pg_catalog.=) $1)) "
    "operator(pg_catalog.+) 1::pg_catalog.int8";

/* Run a statement with a model's name and a number. */
static void execute_for_model(const char *query, Datum name, int64 number)
{
    Oid types[] = {TEXTOID, INT8OID};
    Datum values[] = {name, Int64GetDatum(number)};
    corgi_execute(query, lengthof(types), types, values, NULL, false);
}

static Datum column_value(const TriggerData *t, HeapTuple row, const char *name, bool *null)
{
    TupleDesc columns = RelationGetDescr(t->tg_relation);
    return heap_getattr(row, SPI_fnumber(columns, name), columns, null);
}

/* Compare two values. An unchanged external value is not fetched. */
static bool same_value(Datum a, Datum b, Form_pg_attribute of)
{
    const char *x = DatumGetPointer(a), *y = DatumGetPointer(b);
    if (of->attlen == -1 && VARATT_IS_EXTERNAL_ONDISK(x) && VARATT_IS_EXTERNAL_ONDISK(y) &&
        memcmp(x, y, VARSIZE_EXTERNAL(x)) == 0)
        return true;
    return datum_image_eq(a, b, of->attbyval, of->attlen);
}

static bool same_column(const TriggerData *t, const char *name)
{
    TupleDesc columns = RelationGetDescr(t->tg_relation);
    Form_pg_attribute a = TupleDescAttr(columns, SPI_fnumber(columns, name) - 1);
    bool null, null_before;
    Datum before = column_value(t, t->tg_trigtuple, name, &null_before),
          now = column_value(t, t->tg_newtuple, name, &null);
    return null == null_before && (null || same_value(before, now, a));
}

static bool same_model(const TriggerData *t)
{
    for (int i = 0; i < lengthof(versioned); i++)
        if (!same_column(t, versioned[i]))
            return false;
    return true;
}

/* Store the replaced version and its epochs. */
static void store_version(const TriggerData *t, Datum name, Datum version)
{
    Oid types[] = {TEXTOID,        INT8OID,        INT8OID,  TEXTOID, INT4OID,        FLOAT8ARRAYOID,
                   FLOAT8ARRAYOID, FLOAT8ARRAYOID, JSONBOID, TEXTOID, TIMESTAMPTZOID, FLOAT8ARRAYOID};
    Datum values[lengthof(types)] = {name, version};
    char nulls[lengthof(types)];
    bool null;
    memset(nulls, ' ', sizeof nulls);
    values[2] = column_value(t, t->tg_trigtuple, "before", &null);
    nulls[2] = null ? 'n' : ' ';
    for (int i = 0; i < lengthof(versioned); i++) {
        values[3 + i] = column_value(t, t->tg_trigtuple, versioned[i], &null);
        nulls[3 + i] = null ? 'n' : ' ';
    }
    corgi_execute(store_query, lengthof(types), types, values, nulls, false);
    execute_for_model(store_history_query, name, DatumGetInt64(version));
}

/* Store the replaced version and delete the oldest ones. Returns the new version's number. */
static int64 replace_version(const TriggerData *t, Datum name, Datum version)
{
    CorgiCaller caller = corgi_open_tables();
    bool null;
    execute_for_model(next_query, name, DatumGetInt64(version));
    int64 next = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null));
    if (corgi_versions > 1 || rolling_back)
        store_version(t, name, version);
    if (!rolling_back)
        execute_for_model(prune_query, name, corgi_versions - 1);
    corgi_close_tables(caller);
    return next;
}

/* Trigger before a model changes. */
Datum corgipile_keep_version(PG_FUNCTION_ARGS)
{
    TriggerData *t = corgi_trigger_of(fcinfo);
    TupleDesc columns = RelationGetDescr(t->tg_relation);
    bool null, nulls[2] = {false};
    Datum name = column_value(t, t->tg_trigtuple, "name", &null),
          version = column_value(t, t->tg_trigtuple, "version", &null);
    int at[2] = {SPI_fnumber(columns, "version"), SPI_fnumber(columns, "before")};
    Datum values[2];
    if (!rolling_back && !(same_column(t, "version") && same_column(t, "before")))
        ereport(ERROR, errcode(ERRCODE_GENERATED_ALWAYS),
                errmsg("the version number of model \"%s\" cannot be changed", TextDatumGetCString(name)),
                errhint("SELECT corgipile.rollback(model, version) restores a version."));
    if (same_model(t) && !rolling_back)
        return PointerGetDatum(t->tg_newtuple);
    values[0] = Int64GetDatum(replace_version(t, name, version));
    values[1] = version;
    if (rolling_back)
        return PointerGetDatum(t->tg_newtuple);
    return PointerGetDatum(heap_modify_tuple_by_cols(t->tg_newtuple, columns, lengthof(at), at, values, nulls));
}

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
    execute_for_model(kept_query, CStringGetTextDatum(name), wanted);
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
    Datum model = CStringGetTextDatum(name);
    rolling_back = true;
    PG_TRY();
    {
        execute_for_model(restore_query, model, version);
    }
    PG_FINALLY();
    {
        rolling_back = false;
    }
    PG_END_TRY();
    if (SPI_processed != 1)
        elog(ERROR, "restoring a version of model \"%s\" failed", name);
    corgi_execute_for(clear_query, name, false);
    execute_for_model(history_query, model, version);
    execute_for_model(remove_query, model, version);
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
