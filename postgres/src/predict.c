/* corgipile.predict, predict_proba and decision: a stored model applied to one row. */
#include "arguments.h"
#include "composite.h"
#include "learning.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sgd/totals.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(corgipile_predict);
PG_FUNCTION_INFO_V1(corgipile_predict_bool);
PG_FUNCTION_INFO_V1(corgipile_predict_text);
PG_FUNCTION_INFO_V1(corgipile_predict_labels);
PG_FUNCTION_INFO_V1(corgipile_class_names);
PG_FUNCTION_INFO_V1(corgipile_predict_proba);
PG_FUNCTION_INFO_V1(corgipile_decision);

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

/* Fingerprint of a snapshot. Transactions only leave the set of running ones, so bounds and counts identify it; within
 * a transaction, commands and subtransactions are numbered. */
typedef struct {
    TransactionId xmin, xmax;
    uint32 running, running_sub;
    CommandId command;
    SubTransactionId sub;
    Oid user;
} SnapshotKey;

/* State of a call site: the last model and the snapshot in which it was current. */
typedef struct {
    SnapshotKey snapshot;
    CorgiCached *cached;
    uint64 loads;
    Size name_bytes;
    CorgiArguments arguments;
    CorgiRecord *fields;    /* of a record, after the first one */
    int count;              /* of arguments, without a record */
    Oid *given;             /* their types */
    MemoryContext context;  /* owner of the fields */
} CallSite;

static SnapshotKey snapshot_key(void)
{
    Snapshot s = GetActiveSnapshot();
    return (SnapshotKey){.xmin = s->xmin, .xmax = s->xmax, .running = s->xcnt, .running_sub = (uint32) s->subxcnt,
                   .command = s->curcid, .sub = GetCurrentSubTransactionId(), .user = GetUserId()};
}

static CallSite *make_site(FunctionCallInfo fcinfo)
{
    MemoryContext before = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
    int count = PG_NARGS() - 1;
    CallSite *s = palloc0(sizeof *s);
    s->arguments.record = count == 1 && corgi_is_record(get_fn_expr_argtype(fcinfo->flinfo, 1));
    if (!s->arguments.record) {
        s->count = count;
        s->given = palloc(sizeof *s->given * (Size) count);
        for (int i = 0; i < count; i++)
            s->given[i] = get_fn_expr_argtype(fcinfo->flinfo, i + 1);
        s->arguments.types = palloc(sizeof *s->given * (Size) count);
    }
    MemoryContextSwitchTo(before);
    fcinfo->flinfo->fn_extra = s;
    return s;
}

/* Find a model's features in a record. */
static void open_record(FunctionCallInfo fcinfo, CallSite *s, const CorgiCached *c)
{
    s->fields = NULL;
    if (s->context == NULL)
        s->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "corgipile fields", ALLOCSET_SMALL_SIZES);
    MemoryContextReset(s->context);
    s->fields = corgi_open_record(PG_GETARG_DATUM(1), c->name, s->context);
    s->arguments.types = MemoryContextAlloc(s->context, sizeof(Oid) * (Size) Max(s->fields->count, 1));
    s->arguments.row = s->fields->row;
}

/* Classify the arguments: features, then the row's group if the model has groups. */
static void set_types(CallSite *s, const CorgiCached *c)
{
    CorgiArguments *a = &s->arguments;
    int count = a->record ? s->fields->count : s->count;
    a->grouped = c->model->groups > 0;
    if (a->grouped && count < 2)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" needs the row's group after the features, as in its column "
                                          "\"%s\"",
               c->name, corgi_group_column(c->model));
    corgi_note_types(a, count - a->grouped, a->record ? s->fields->types : s->given);
}

/* Return the model of a call; cached while the snapshot is unchanged. */
static CorgiCached *find_model(FunctionCallInfo fcinfo, CallSite *s)
{
    const text *name = PG_GETARG_TEXT_PP(0);
    SnapshotKey now = snapshot_key();
    Size bytes = VARSIZE_ANY_EXHDR(name);
    if (s->cached == NULL || s->loads != s->cached->loads || memcmp(&now, &s->snapshot, sizeof now) != 0 ||
        s->name_bytes != bytes || memcmp(VARDATA_ANY(name), s->cached->name, bytes) != 0) {
        char *shown = text_to_cstring(name);
        s->cached = NULL;
        CorgiCached *current = corgi_cached_model(shown);
        if (s->arguments.record)
            open_record(fcinfo, s, current);
        set_types(s, current);
        corgi_check_arguments(&s->arguments, current);
        s->cached = current;
        s->loads = s->cached->loads;
        s->snapshot = now;
        s->name_bytes = bytes;
        pfree(shown);
    }
    return s->cached;
}

static void score_row(const CorgiArguments *a, const CorgiCached *c)
{
    const CorgiModel *m = c->model;
    int64 count = corgi_read_arguments(a, m, c->row);
    if (count != m->width)
        REFUSE(ERRCODE_DATA_EXCEPTION,
               "the row has " INT64_FORMAT " features; model \"%s\" was trained with " INT64_FORMAT, count, c->name,
               m->width);
    corgi_learner_decide(c->learner, c->row, c->scores);
}

static bool any_null(const CorgiArguments *a)
{
    for (int i = 0; i < a->count; i++)
        if (a->row[i].isnull)
            return true;
    return false;
}

/* Score the row of a call. Returns NULL if it has a NULL without a replacement. */
static const CorgiCached *score_call(FunctionCallInfo fcinfo)
{
    CallSite *site = fcinfo->flinfo->fn_extra ? fcinfo->flinfo->fn_extra : make_site(fcinfo);
    CorgiArguments *a = &site->arguments;
    if (PG_ARGISNULL(0) || (a->record && PG_ARGISNULL(1)))
        return NULL;
    if (site->fields && !corgi_record_fits(site->fields, PG_GETARG_DATUM(1)))
        site->cached = NULL; /* the cached fields are of another record type */
    if (!a->record)
        a->row = &fcinfo->args[1];
    CorgiCached *c = find_model(fcinfo, site);
    if (a->record)
        corgi_read_record(site->fields, PG_GETARG_DATUM(1));
    c = corgi_group_of_arguments(a, c);
    bool columns = corgi_takes_columns(c->model) && !a->list;
    if (!columns && any_null(a))
        return NULL;
    if (columns && c->model->encoding->hashing != NULL) {
        if (!corgi_score_arguments(a, c))
            return NULL;
    } else if (columns) {
        if (!corgi_encode_arguments(a, c->model, c->row))
            return NULL;
        corgi_learner_decide(c->learner, c->row, c->scores);
    } else if (a->pair)
        corgi_score_pair(c, a->row[0].value, a->row[1].value, a->types[1]);
    else
        score_row(a, c);
    for (int64 k = 0; k < c->model->outputs; k++)
        if (unlikely(!isfinite(c->scores[k])))
            REFUSE(ERRCODE_INVALID_PARAMETER_VALUE,
                   "the row to predict has a feature that is NaN, infinite or too large");
    return c;
}

static Datum to_array(const double *values, int64 count)
{
    Datum *items = palloc(sizeof *items * (Size) count);
    for (int64 i = 0; i < count; i++)
        items[i] = Float8GetDatum(values[i]);
    return PointerGetDatum(
        construct_array(items, (int) count, FLOAT8OID, sizeof(double), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static void refuse_labels(const CorgiCached *c)
{
    if (unlikely(c->model->labels != NULL))
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" is a multi-label model; use corgipile.predict_labels",
               c->name);
}

/* Return the row's class, or its predicted number. */
Datum corgipile_predict(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score_call(fcinfo);
    if (c == NULL)
        PG_RETURN_NULL();
    const CorgiModel *m = c->model;
    refuse_labels(c);
    if (unlikely(corgi_class_names(m) != NULL))
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" has text classes; use corgipile.predict_text", c->name);
    if (corgi_predicts_numbers(&m->of))
        PG_RETURN_FLOAT8(corgi_predicted_number(m, c->scores));
    PG_RETURN_FLOAT8(m->class_values[corgi_best_class(m, c->scores)]);
}

/* Return the row's class from a model with a boolean label. */
Datum corgipile_predict_bool(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score_call(fcinfo);
    if (c == NULL)
        PG_RETURN_NULL();
    const CorgiModel *m = c->model;
    refuse_labels(c);
    if (corgi_predicts_numbers(&m->of) || m->classes != 2 || m->class_values[0] != 0 || m->class_values[1] != 1 ||
        corgi_class_names(m) != NULL)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" must have the classes false and true; use %s", c->name,
               corgi_class_names(m) ? "corgipile.predict_text" : "corgipile.predict");
    PG_RETURN_BOOL(corgi_best_class(c->model, c->scores) == 1);
}

/* Return the name of the row's class. */
Datum corgipile_predict_text(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score_call(fcinfo);
    if (c == NULL)
        PG_RETURN_NULL();
    refuse_labels(c);
    if (corgi_class_names(c->model) == NULL)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" has no text classes; use corgipile.predict", c->name);
    PG_RETURN_TEXT_P(cstring_to_text(corgi_class_names(c->model)->names[corgi_best_class(c->model, c->scores)].text));
}

/* Return the row's predicted labels. */
Datum corgipile_predict_labels(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score_call(fcinfo);
    ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext, false);
    if (c == NULL)
        PG_RETURN_NULL();
    if (c->model->labels == NULL)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" is no multi-label model; use corgipile.predict, predict_bool "
                                          "or predict_text", c->name);
    for (int64 k = 0; k < c->model->outputs; k++)
        if (c->scores[k] > 0)
            names = accumArrayResult(names, CStringGetTextDatum(c->model->labels->names[k].text), false, TEXTOID,
                                     CurrentMemoryContext);
    PG_RETURN_DATUM(makeArrayResult(names, CurrentMemoryContext));
}

/* Return a model's class names, or the labels of a multilabel model. */
Datum corgipile_class_names(PG_FUNCTION_ARGS)
{
    char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    const CorgiModel *m = corgi_cached_model(name)->model;
    const CorgiNames *names = m->labels ? m->labels : corgi_class_names(m);
    if (names == NULL)
        PG_RETURN_NULL();
    PG_RETURN_ARRAYTYPE_P(corgi_text_array(names));
}

Datum corgipile_decision(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score_call(fcinfo);
    if (c == NULL)
        PG_RETURN_NULL();
    PG_RETURN_DATUM(to_array(c->scores, c->model->outputs));
}

/* Return the probability of each label. */
static Datum label_probabilities(const CorgiCached *c)
{
    double *p = palloc(sizeof *p * (Size) c->model->outputs);
    for (int64 k = 0; k < c->model->outputs; k++) {
        double both[] = {0, c->scores[k]};
        corgi_probabilities(&c->model->of, both, lengthof(both));
        p[k] = both[1];
    }
    return to_array(p, c->model->outputs);
}

/* Return the class probabilities. For two classes they are a softmax of 0 and the score. */
Datum corgipile_predict_proba(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score_call(fcinfo);
    if (c == NULL)
        PG_RETURN_NULL();
    const CorgiModel *m = c->model;
    if (!cp_losses[m->of.loss].probability)
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "a model of kind %s has no probabilities; train %s", m->kind,
               corgi_loss_names(corgi_has_probability));
    if (m->labels != NULL)
        PG_RETURN_DATUM(label_probabilities(c));
    double *p = palloc0(sizeof *p * (Size) Max(m->classes, 2));
    memcpy(p + (m->outputs == 1), c->scores, sizeof *p * (Size) m->outputs);
    corgi_probabilities(&m->of, p, m->classes);
    PG_RETURN_DATUM(to_array(p, m->classes));
}
