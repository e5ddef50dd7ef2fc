/* corgipile.predict, predict_proba and decision: a stored model applied to one row. */
#include "corgipile.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sgd/totals.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(corgipile_predict);
PG_FUNCTION_INFO_V1(corgipile_predict_bool);
PG_FUNCTION_INFO_V1(corgipile_predict_proba);
PG_FUNCTION_INFO_V1(corgipile_decision);

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

/* What a snapshot sees, in a few numbers: transactions only leave the set of running ones, so bounds and counts tell
 * two of them apart. Within one transaction, commands and subtransactions are numbered. */
typedef struct {
    TransactionId xmin, xmax;
    uint32 running, running_sub;
    CommandId command;
    SubTransactionId sub;
    Oid user;
} Sight;

/* A place of a call: the model that it used last, and when that was found to be current. */
typedef struct {
    Sight sight;
    CorgiCached *cached;
    uint64 loads;
    Size name_bytes;
    bool list, pair;        /* the features are one array, two arrays of a sparse row, else one argument each */
    bool literal;           /* a list without a type, such as '{1, 2}' */
    int count;              /* of arguments with features */
    Oid types[FLEXIBLE_ARRAY_MEMBER]; /* of a number in each */
} Site;

static Sight look(void)
{
    Snapshot s = GetActiveSnapshot();
    return (Sight){.xmin = s->xmin, .xmax = s->xmax, .running = s->xcnt, .running_sub = (uint32) s->subxcnt,
                   .command = s->curcid, .sub = GetCurrentSubTransactionId(), .user = GetUserId()};
}

/* Refuse a type of features; where it has a cast to an array of numbers, as pgvector's types have, say so. */
static void refuse_type(Oid type, bool alone)
{
    const char *cast = corgi_cast_to_list(type);
    ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
            errmsg("features are %s; numbers, or one array of numbers, are needed", format_type_be(type)),
            cast ? errhint("Write x::%s for x.", cast) : alone && type == TEXTOID ? errhint("Write x::float8[] for x.") : 0);
}

/* A literal without a type, alone, is read as double precision[]. */
static Oid literal_type(Oid type, bool alone, Site *s)
{
    if (type != UNKNOWNOID || !alone)
        return type;
    s->literal = true;
    return FLOAT8ARRAYOID;
}

/* Find out what the arguments of a call are. */
static Site *make_site(FunctionCallInfo fcinfo)
{
    int count = PG_NARGS() - 1, lists = 0;
    Site *s = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, offsetof(Site, types) + sizeof(Oid) * (Size) count);
    s->count = count;
    for (int i = 0; i < count; i++) {
        Oid type = literal_type(get_fn_expr_argtype(fcinfo->flinfo, i + 1), count == 1, s);
        Oid item = get_element_type(getBaseType(type));
        bool list = OidIsValid(item) && count <= 2;
        s->types[i] = getBaseType(list ? item : type);
        lists += list;
        if (!corgi_is_number(s->types[i]))
            refuse_type(type, count == 1);
    }
    s->list = lists == 1 && count == 1;
    s->pair = lists == 2;
    if (lists == 1 && !s->list)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "features are an array and a number; numbers, one array of numbers, or an "
               "array of indices and one of values, are needed");
    if (s->pair && !corgi_is_pair(s->types[0], s->types[1]))
        REFUSE(ERRCODE_DATATYPE_MISMATCH,
               "sparse features are %s[] and %s[]; integer[] and real[] (or double precision[]) are needed",
               format_type_be(s->types[0]), format_type_be(s->types[1]));
    fcinfo->flinfo->fn_extra = s;
    return s;
}

/* Read a list that came without a type. */
static Datum read_literal(Datum text)
{
    Oid input, parameter;
    getTypeInputInfo(FLOAT8ARRAYOID, &input, &parameter);
    return OidInputFunctionCall(input, DatumGetCString(text), parameter, -1);
}

/* Take the features out of the arguments of a call; returns how many there are. */
static int64 read_row(FunctionCallInfo fcinfo, const Site *s, const CorgiModel *m, char *to)
{
    const char *why = NULL;
    int64 found = s->count;
    if (s->list)
        found = corgi_read_array(s->literal ? read_literal(PG_GETARG_DATUM(1)) : PG_GETARG_DATUM(1), s->types[0], m->bytes, m->width, to, &why);
    else if (found == m->width)
        for (int i = 0; i < s->count; i++)
            corgi_read_number(s->types[i], PG_GETARG_DATUM(i + 1), m->bytes, to + i * m->bytes);
    if (why != NULL)
        REFUSE(ERRCODE_DATA_EXCEPTION, "the row to predict %s", why);
    return found;
}

/* Find the model of a call: the one used last, for as long as the snapshot stays. */
static CorgiCached *find_model(Site *s, const text *name)
{
    Sight now = look();
    Size bytes = VARSIZE_ANY_EXHDR(name);
    if (s->cached == NULL || s->loads != s->cached->loads || memcmp(&now, &s->sight, sizeof now) != 0 ||
        s->name_bytes != bytes || memcmp(VARDATA_ANY(name), s->cached->name, bytes) != 0) {
        char *shown = text_to_cstring(name);
        s->cached = NULL;
        s->cached = corgi_cached_model(shown);
        s->loads = s->cached->loads;
        s->sight = now;
        s->name_bytes = bytes;
        pfree(shown);
    }
    return s->cached;
}

static void score_row(FunctionCallInfo fcinfo, const Site *site, const CorgiCached *c)
{
    const CorgiModel *m = c->model;
    int64 found = read_row(fcinfo, site, m, c->row);
    if (found != m->width)
        REFUSE(ERRCODE_DATA_EXCEPTION,
               "the row has " INT64_FORMAT " features; model \"%s\" was trained with " INT64_FORMAT, found, c->name,
               m->width);
    corgi_learner_decide(c->learner, c->row, c->scores);
}

/* Score the row of a call. */
static const CorgiCached *score(FunctionCallInfo fcinfo)
{
    Site *site = fcinfo->flinfo->fn_extra ? fcinfo->flinfo->fn_extra : make_site(fcinfo);
    CorgiCached *c = find_model(site, PG_GETARG_TEXT_PP(0));
    if (site->pair)
        corgi_score_pair(c, PG_GETARG_DATUM(1), PG_GETARG_DATUM(2), site->types[1]);
    else
        score_row(fcinfo, site, c);
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

/* The number of the class of the row. A margin of 0 is the first class. */
static int64 best_class(const CorgiCached *c)
{
    int64 best = 0;
    if (!cp_loss_per_class(c->model->of.loss))
        return c->scores[0] > 0;
    for (int64 k = 1; k < c->model->outputs; k++)
        best = c->scores[k] > c->scores[best] ? k : best;
    return best;
}

/* Class of the row, or the number that is predicted of it. */
Datum corgipile_predict(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    const CorgiModel *m = c->model;
    if (cp_losses[m->of.loss].exponential)
        PG_RETURN_FLOAT8(cp_exp(c->scores[0]));
    PG_RETURN_FLOAT8(corgi_predicts_numbers(&m->of) ? c->scores[0] : m->class_values[best_class(c)]);
}

/* Class of the row by a model whose label is boolean. */
Datum corgipile_predict_bool(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    const CorgiModel *m = c->model;
    if (corgi_predicts_numbers(&m->of) || m->classes != 2 || m->class_values[0] != 0 || m->class_values[1] != 1)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" has not the classes false and true; use corgipile.predict",
               c->name);
    PG_RETURN_BOOL(best_class(c) == 1);
}

Datum corgipile_decision(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    PG_RETURN_DATUM(to_array(c->scores, c->model->outputs));
}

/* Probabilities of the classes; two classes are a softmax of 0 and the score. */
Datum corgipile_predict_proba(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    const CorgiModel *m = c->model;
    double *p = palloc0(sizeof *p * (Size) Max(m->classes, 2));
    if (!cp_losses[m->of.loss].probability)
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "a model of kind %s has no probabilities; train %s", m->kind,
               corgi_loss_names(corgi_has_probability));
    memcpy(p + (m->outputs == 1), c->scores, sizeof *p * (Size) m->outputs);
    corgi_probabilities(p, m->classes);
    PG_RETURN_DATUM(to_array(p, m->classes));
}
