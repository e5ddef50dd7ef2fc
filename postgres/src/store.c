/* Storage of trained models in the table corgipile.models. */
#include "members.h"
#include "settings.h"

#include "access/toast_internals.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "sgd/state.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/json.h"
#include "utils/snapmgr.h"

enum { MAX_ENCODING_BYTES = 192 << 20 }; /* bytes; the server's limit for a jsonb document */
/* bytes: of a name, to fit into an index; of a row besides its weights */
enum { MAX_NAME_BYTES = 1000, OTHER_ROW_BYTES = 1 << 20 };

static const char *const insert_query =
    "INSERT INTO corgipile.models AS m (name, kind, dims, classes, coefficients, intercepts, params, source, owner, "
    "may_use, may_read, learnt) VALUES ($1, $2, $3, $4, $5, $6, $7::pg_catalog.jsonb, $8, $9::corgipile.role, "
    "$10::corgipile.role[], "
    "$11::corgipile.role[], $12) ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, dims = excluded.dims, "
    "classes = excluded.classes, coefficients = excluded.coefficients, intercepts = excluded.intercepts, "
    "params = excluded.params, source = excluded.source, learnt = excluded.learnt, created = pg_catalog.now() "
    "WHERE corgipile.may('replace', $9::corgipile.role, m.owner, m.may_use, m.may_read, m.may_replace)";

static const char *const lock_query =
    "SELECT " CORGI_HOLDERS " FROM corgipile.models WHERE name operator(pg_catalog.=) $1 FOR NO KEY UPDATE";
static const char *const latest_query = "SELECT 1 FROM corgipile.models WHERE name operator(pg_catalog.=) $1";

static void refuse_owner(const char *name, Oid owner)
{
    char *owner_name = GetUserNameFromId(owner, true);
    ereport(
        ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
        errmsg("model \"%s\" belongs to %s; choose another name", name, owner_name ? owner_name : "a missing role"));
}

/* Refuse to replace a model that another transaction stored after this one's snapshot. */
static void check_latest(const char *name)
{
    PushActiveSnapshot(GetLatestSnapshot());
    bool stored = corgi_execute_for(latest_query, name, true) > 0;
    PopActiveSnapshot();
    if (stored)
        ereport(ERROR, errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                errmsg("could not serialize access: model \"%s\" was stored by a concurrent transaction", name));
}

/* Check before the first epoch that the model can be stored, and lock its name and row until the transaction ends.
 * `what` names the command. */
void corgi_check_name(const char *name, Oid user, const char *what)
{
    PreventCommandIfReadOnly(what);
    if (strlen(name) > MAX_NAME_BYTES)
        ereport(ERROR, errcode(ERRCODE_NAME_TOO_LONG),
                errmsg("name has %zu bytes; the limit is %d", strlen(name), MAX_NAME_BYTES));
    corgi_check_models(ACL_INSERT, user);
    corgi_lock_name(name);
    CorgiCaller caller = corgi_open_tables();
    if (corgi_execute_for(lock_query, name, false) > 0) {
        CorgiHolders holders = corgi_holders_at(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
        corgi_check_models(ACL_UPDATE, user);
        if (!corgi_may(CORGI_REPLACE, user, &holders))
            refuse_owner(name, holders.owner);
    } else
        check_latest(name);
    corgi_close_tables(caller);
}

static void check_encoding(const CorgiRun *run)
{
    StringInfoData json;
    if (run->source.encoding == NULL)
        return;
    initStringInfo(&json);
    corgi_write_encoding(&json, run->source.encoding, run->options.label, true);
    if (json.len > MAX_ENCODING_BYTES)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("the categories of all columns take %d MB; the limit of a model is %d MB", json.len >> 20,
                       MAX_ENCODING_BYTES >> 20),
                errhint("Set encode => 'hash:1024', or leave columns out."));
    pfree(json.data);
}

/* Refuse a model that is too large for a row; `learnt` counts the rows [width + 1] of training state. */
void corgi_check_weights(int64 outputs, int64 width, int64 classes, int64 learnt)
{
    int64 most = (int64) (MaxAllocSize - OTHER_ROW_BYTES) / (int64) sizeof(double) - outputs - classes;
    most = (most - learnt) * outputs / (outputs + learnt);
    if (outputs * width > most)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("the model has " INT64_FORMAT " weights; a row can hold " INT64_FORMAT, outputs * width, most),
                errhint("Train without a name, or on fewer features."));
}

/* Return the number of outputs of all models of a run. */
static int64 outputs_of(const CorgiRun *run)
{
    return corgi_outputs(&run->options.of, run->survey.class_count) * corgi_model_count(run);
}

/* Return the rows [width + 1] of training state to store; 0 if the weights suffice. Group models have no optimizer
 * state. */
static int64 state_rows(const CorgiRun *run, const CorgiLearner *learner)
{
    int64 beside = learner ? corgi_learner_state_rows(learner) : 0;
    return run->standardize || beside > 0 || run->best != NULL ? outputs_of(run) + 2 + beside : 0;
}

/* Refuse a model in training that is too large. */
void corgi_check_size(const CorgiRun *run, const CorgiLearner *learner)
{
    const CorgiSurvey *v = &run->survey;
    corgi_check_weights(outputs_of(run), v->width, v->class_count, state_rows(run, learner));
    check_encoding(run);
}

/* Return an uninitialised array of doubles; with two dimensions an array of rows. */
ArrayType *corgi_make_doubles(int dimensions, int64 rows, int64 columns)
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

/* Write the training parameters. The sizes in blocks let Python train the same model. */
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
    add_flag(&json, "lists", run->source.features->list);
    if (list_length(o->labels) > 1)
        appendStringInfoString(&json, ", \"label\": null");
    else
        add_text(&json, "label", o->label);
    if (run->source.label.type == BOOLOID && !corgi_predicts_numbers(&o->of))
        add_text(&json, "class_type", "bool");
    add_text(&json, "order", o->order_name);
    add_text(&json, "numbers", run->source.bytes == 4 ? "real" : "double precision");
    add_integer(&json, "epochs", o->epochs);
    add_integer(&json, "batch_size", o->batch);
    add_integer(&json, "seed", o->seed);
    if (run->members != NULL)
        corgi_stack_write_params(&json, run->stack, run);
    else
        add_number(&json, "learning_rate", o->learning_rate);
    add_number(&json, "decay", o->decay);
    add_number(&json, "l2", o->l2);
    add_number(&json, "l1", o->l1);
    if (o->max_norm > 0)
        add_number(&json, "max_norm", o->max_norm);
    add_text(&json, "step", cp_steps[o->step].name);
    add_flag(&json, "intercept", o->intercept);
    add_flag(&json, "average", o->average);
    if (o->content)
        add_text(&json, "balance", "content");
    else
        add_flag(&json, "balance", o->balance);
    if (o->automatic)
        add_text(&json, "asked_order", "auto");
    if (corgi_kept_flags(run))
        appendStringInfoString(&json, ", \"standardize\": null");
    else
        add_flag(&json, "standardize", run->scaling != NULL);
    if (run->best != NULL) {
        add_integer(&json, "patience", o->patience);
        add_integer(&json, "best_epoch", corgi_best_epoch(run));
    }
    if (o->weight != NULL)
        add_text(&json, "weight", o->weight);
    if (corgi_is_balanced(o))
        add_text(&json, "class_weight", o->class_weight);
    else if (o->class_weight != NULL)
        appendStringInfo(&json, ", \"class_weight\": %s", o->class_weight);
    if (o->holdout > 0)
        add_number(&json, "holdout", o->holdout);
    if (o->tolerance >= 0)
        add_number(&json, "tolerance", o->tolerance);
    if (o->warm_start != NULL)
        add_text(&json, "warm_start", o->warm_start);
    if (run->source.encoding != NULL) {
        appendStringInfoString(&json, ", \"encoding\": ");
        corgi_write_encoding(&json, run->source.encoding, o->label, !run->source.lenient);
    }
    if (o->where != NULL)
        add_text(&json, "where", o->where);
    if (run->source.lenient)
        add_text(&json, "on_bad", "skip");
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

/* Return a text[]; NULL for NULL. */
ArrayType *corgi_text_array(const CorgiNames *names)
{
    if (names == NULL)
        return NULL;
    Datum *texts = palloc(sizeof *texts * (Size) Max(names->count, 1));
    for (int64 i = 0; i < names->count; i++)
        texts[i] = CStringGetTextDatum(names->names[i].text);
    return construct_array(texts, (int) names->count, TEXTOID, -1, false, TYPALIGN_INT);
}

/* Return the weights in stored form. */
CorgiWeights corgi_get_weights(const CorgiRun *run, CorgiLearner *learner)
{
    const CorgiSurvey *v = &run->survey;
    int64 outputs = outputs_of(run);
    CorgiWeights w = {.coefficients = corgi_make_doubles(2, outputs, v->width),
                      .intercepts = corgi_make_doubles(1, 0, outputs)};
    w.names = corgi_text_array(run->source.label.classes);
    w.classes = v->class_count ? corgi_make_doubles(1, 0, v->class_count) : construct_empty_array(FLOAT8OID);
    if (learner == NULL)
        corgi_stack_get(run->stack, run, (double *) ARR_DATA_PTR(w.coefficients),
                        (double *) ARR_DATA_PTR(w.intercepts));
    else
        corgi_get_predictor(run, learner, (double *) ARR_DATA_PTR(w.coefficients),
                            (double *) ARR_DATA_PTR(w.intercepts));
    if (v->class_count)
        memcpy(ARR_DATA_PTR(w.classes), v->classes, sizeof(double) * (Size) v->class_count);
    return w;
}

/* Return the training state; NULL if the weights suffice. */
static ArrayType *learnt(const CorgiRun *run, CorgiLearner *learner)
{
    int64 lines = state_rows(run, learner);
    if (lines == 0)
        return NULL;
    ArrayType *a = corgi_make_doubles(2, lines, run->survey.width + 1);
    if (learner == NULL)
        corgi_stack_write_state(run->stack, run, (double *) ARR_DATA_PTR(a));
    else
        corgi_get_learnt(run, learner, (double *) ARR_DATA_PTR(a));
    return a;
}

/* Compress an array as the server would, and free it, because storing copies the row. */
static ArrayType *compress_array(ArrayType *a)
{
    ArrayType *small =
        a ? (ArrayType *) DatumGetPointer(toast_compress_datum(PointerGetDatum(a), InvalidCompressionMethod)) : NULL;
    if (small == NULL)
        return a;
    pfree(a);
    return small;
}

/* Return a list with PUBLIC, or an empty one. */
static Datum public_list(bool included)
{
    Datum role = Int64GetDatum(ACL_ID_PUBLIC);
    return PointerGetDatum(construct_array(&role, included, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Store a row under its name, replacing an earlier one. Called within SPI as the table's owner. */
void corgi_store_row(const CorgiRow *row)
{
    Oid types[] = {TEXTOID, TEXTOID, INT4OID, FLOAT8ARRAYOID, FLOAT8ARRAYOID, FLOAT8ARRAYOID, TEXTOID, TEXTOID, INT8OID,
                   INT8ARRAYOID, INT8ARRAYOID, FLOAT8ARRAYOID};
    Datum values[] = {CStringGetTextDatum(row->name),
                      CStringGetTextDatum(row->kind),
                      Int32GetDatum((int32) row->width),
                      PointerGetDatum(row->weights.classes),
                      PointerGetDatum(row->weights.coefficients),
                      PointerGetDatum(row->weights.intercepts),
                      CStringGetTextDatum(row->params),
                      CStringGetTextDatum(row->source),
                      Int64GetDatum(row->user),
                      public_list(corgi_share == CORGI_USE),
                      public_list(corgi_share == CORGI_READ),
                      PointerGetDatum(row->learnt)};
    /* a custom plan would hold copies of the values, as large as the model */
    SPIPlanPtr plan = SPI_prepare_cursor(insert_query, lengthof(types), types, CURSOR_OPT_GENERIC_PLAN);
    if (plan == NULL ||
        SPI_execute_plan(plan, values, row->learnt ? NULL : "           n", false, 0) != SPI_OK_INSERT)
        elog(ERROR, "storing model \"%s\" failed", row->name);
    if (SPI_processed == 0)
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("model \"%s\" was stored by another role meanwhile", row->name));
}

/* Store the trained model and its epochs. */
void corgi_store_model(const CorgiRun *run, CorgiLearner *learner, const CorgiHistory *history, const CorgiModel *past)
{
    const CorgiOptions *o = &run->options;
    CorgiRow row = {.name = o->name, .kind = o->kind, .user = o->user, .width = run->survey.width,
                    .weights = corgi_get_weights(run, learner), .params = params_of(run),
                    .source = o->query ? o->query : corgi_sql_name(run->source.rel)};
    row.weights.coefficients = compress_array(row.weights.coefficients);
    row.learnt = compress_array(learnt(run, learner));
    CorgiCaller caller = corgi_open_tables();
    corgi_store_row(&row);
    corgi_store_history(history, o, past);
    corgi_close_tables(caller);
}
