/* Writes a trained model to the table corgipile.models. */
#include "corgipile.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "sgd_state.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/json.h"

static const char *const insert =
    "INSERT INTO corgipile.models (name, kind, dims, classes, coefficients, intercepts, params, history, source) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb, $8::pg_catalog.jsonb, $9) "
    "ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, dims = excluded.dims, classes = excluded.classes, "
    "coefficients = excluded.coefficients, intercepts = excluded.intercepts, params = excluded.params, "
    "history = excluded.history, source = excluded.source, created = pg_catalog.now()";

static const char *const owner_query =
    "SELECT owner FROM corgipile.models WHERE name operator(pg_catalog.=) $1 "
    "AND owner operator(pg_catalog.<>) current_user AND pg_catalog.row_security_active('corgipile.models')";

/* Refuse before the first epoch what could not be stored after the last. */
void corgi_check_name(const char *name)
{
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    PreventCommandIfReadOnly("corgipile.train with a name");
    SPI_connect();
    if (SPI_execute_with_args(owner_query, lengthof(types), types, values, NULL, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
    if (SPI_processed > 0)
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("model \"%s\" belongs to %s; choose another name", name,
                       SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1)));
    SPI_finish();
}

/* Make an array of doubles to be filled in; more than one row makes it an array of arrays. */
static ArrayType *make_array(int dimensions, int64 rows, int64 columns)
{
    int64 count = dimensions == 2 ? rows * columns : columns;
    Size size = ARR_OVERHEAD_NONULLS(dimensions) + sizeof(double) * (Size) count;
    ArrayType *a = palloc0(size);
    SET_VARSIZE(a, size);
    a->ndim = dimensions;
    a->elemtype = FLOAT8OID;
    ARR_DIMS(a)[dimensions - 1] = (int) columns;
    ARR_DIMS(a)[0] = (int) (dimensions == 2 ? rows : columns);
    for (int i = 0; i < dimensions; i++)
        ARR_LBOUND(a)[i] = 1;
    return a;
}

static void add_text(StringInfo json, const char *name, const char *value)
{
    appendStringInfo(json, "%s\"%s\": ", json->len > 1 ? ", " : "", name);
    escape_json(json, value);
}

static void add_number(StringInfo json, const char *name, double value)
{
    appendStringInfo(json, "%s\"%s\": %s", json->len > 1 && json->data[json->len - 1] != '{' ? ", " : "", name,
                     float8out_internal(value));
}

static void add_integer(StringInfo json, const char *name, int64 value)
{
    appendStringInfo(json, ", \"%s\": " INT64_FORMAT, name, value);
}

static void add_flag(StringInfo json, const char *name, bool value)
{
    appendStringInfo(json, ", \"%s\": %s", name, value ? "true" : "false");
}

/* Write what the model was trained with; the sizes in blocks let Python train the same one. */
static char *params_of(const CorgiRun *run)
{
    const CorgiOptions *o = &run->options;
    StringInfoData json;
    initStringInfo(&json);
    appendStringInfoString(&json, "{\"features\": [");
    for (int i = 0; i < run->source.feature_columns; i++) {
        appendStringInfoString(&json, i ? ", " : "");
        escape_json(&json, run->source.features[i].name);
    }
    appendStringInfoChar(&json, ']');
    add_text(&json, "label", o->label);
    add_text(&json, "order", o->order_name);
    add_text(&json, "numbers", run->source.bytes == 4 ? "real" : "double precision");
    add_integer(&json, "epochs", o->epochs);
    add_integer(&json, "batch_size", o->batch);
    add_integer(&json, "seed", o->seed);
    add_number(&json, "learning_rate", o->learning_rate);
    add_number(&json, "decay", o->decay);
    add_number(&json, "l2", o->l2);
    add_flag(&json, "intercept", o->intercept);
    add_flag(&json, "balance", o->balance);
    if (o->holdout > 0)
        add_number(&json, "holdout", o->holdout);
    if (o->tolerance >= 0)
        add_number(&json, "tolerance", o->tolerance);
    if (o->warm_start != NULL)
        add_text(&json, "warm_start", o->warm_start);
    add_integer(&json, "rows", run->survey.rows);
    add_integer(&json, "blocks", run->survey.blocks);
    add_integer(&json, "block_pages", run->source.block_pages);
    add_integer(&json, "buffer_blocks", run->sizes.buffer_blocks);
    add_integer(&json, "group", run->sizes.group);
    add_flag(&json, "whole", run->sizes.whole);
    add_integer(&json, "buffer_bytes", run->sizes.slots * run->sizes.row_bytes);
    appendStringInfoChar(&json, '}');
    return json.data;
}

/* Store the model under its name, in place of the caller's earlier one. */
void corgi_store_model(const CorgiRun *run, CorgiMachine *machine, char *history)
{
    const CorgiOptions *o = &run->options;
    const CorgiSurvey *v = &run->survey;
    int64 outputs = o->loss == CP_SOFTMAX ? v->class_count : 1;
    ArrayType *coefficients = make_array(2, outputs, v->width), *intercepts = make_array(1, 0, outputs);
    ArrayType *classes = v->class_count ? make_array(1, 0, v->class_count) : construct_empty_array(FLOAT8OID);
    Oid types[] = {TEXTOID,        TEXTOID, INT4OID, FLOAT8ARRAYOID, FLOAT8ARRAYOID,
                   FLOAT8ARRAYOID, TEXTOID, TEXTOID, TEXTOID};
    Datum values[lengthof(types)];
    corgi_machine_get(machine, (double *) ARR_DATA_PTR(coefficients), (double *) ARR_DATA_PTR(intercepts));
    if (v->class_count)
        memcpy(ARR_DATA_PTR(classes), v->classes, sizeof(double) * (Size) v->class_count);
    values[0] = CStringGetTextDatum(o->name);
    values[1] = CStringGetTextDatum(o->kind);
    values[2] = Int32GetDatum((int32) v->width);
    values[3] = PointerGetDatum(classes);
    values[4] = PointerGetDatum(coefficients);
    values[5] = PointerGetDatum(intercepts);
    values[6] = CStringGetTextDatum(params_of(run));
    values[7] = CStringGetTextDatum(history);
    values[8] = CStringGetTextDatum(corgi_sql_name(run->source.rel));
    SPI_connect();
    if (SPI_execute_with_args(insert, lengthof(types), types, values, NULL, false, 0) != SPI_OK_INSERT)
        elog(ERROR, "storing model \"%s\" failed", o->name);
    SPI_finish();
}
