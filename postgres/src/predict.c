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
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(corgipile_predict);
PG_FUNCTION_INFO_V1(corgipile_predict_bool);
PG_FUNCTION_INFO_V1(corgipile_predict_text);
PG_FUNCTION_INFO_V1(corgipile_class_names);
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
    bool list, pair, mixed; /* the features are one array, two arrays of a sparse row, an array and a number, else one
                             * argument each */
    bool literal;           /* a list without a type, such as '{1, 2}' */
    int count;              /* of features that came apart */
    Oid *types, *given;     /* of a number in each, and as they came */
    bool record;            /* they are fields of one argument */
    CorgiRecord *fields;    /* of it, once the first has come */
    MemoryContext context;  /* that holds them */
    const NullableDatum *row;
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

/* Find out what the features of a call are by their types; whether they serve is for the model to say. */
static void note_types(Site *s, int count, Oid *given)
{
    int lists = 0;
    s->count = count;
    s->given = given;
    for (int i = 0; i < count; i++) {
        Oid item = get_element_type(getBaseType(given[i]));
        bool list = OidIsValid(item) && count <= 2;
        s->types[i] = getBaseType(list ? item : given[i]);
        lists += list;
    }
    s->list = lists == 1 && count == 1;
    s->pair = lists == 2;
    s->mixed = lists == 1 && count == 2;
}

static Site *make_site(FunctionCallInfo fcinfo)
{
    MemoryContext before = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
    int count = PG_NARGS() - 1;
    Site *s = palloc0(sizeof *s);
    s->record = count == 1 && corgi_is_record(get_fn_expr_argtype(fcinfo->flinfo, 1));
    if (!s->record) {
        Oid *given = palloc(sizeof *given * (Size) count);
        for (int i = 0; i < count; i++)
            given[i] = get_fn_expr_argtype(fcinfo->flinfo, i + 1);
        s->types = palloc(sizeof *s->types * (Size) count);
        note_types(s, count, given);
    }
    MemoryContextSwitchTo(before);
    fcinfo->flinfo->fn_extra = s;
    return s;
}

/* Find the features of a model in a record. */
static void open_record(FunctionCallInfo fcinfo, Site *s, const CorgiCached *c)
{
    s->fields = NULL;
    if (s->context == NULL)
        s->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "corgipile fields", ALLOCSET_SMALL_SIZES);
    MemoryContextReset(s->context);
    s->fields = corgi_open_record(PG_GETARG_DATUM(1), c->name, s->context);
    s->types = MemoryContextAlloc(s->context, sizeof *s->types * (Size) Max(s->fields->count, 1));
    note_types(s, s->fields->count, s->fields->types);
    s->row = s->fields->row;
}

/* Check that arguments are numbers, an array of them or a sparse pair. */
static void check_numbers(Site *s)
{
    s->literal = s->count == 1 && s->types[0] == UNKNOWNOID;
    for (int i = 0; i < s->count && !s->literal; i++)
        if (!corgi_is_number(s->types[i]))
            refuse_type(s->given[i], s->count == 1);
    if (s->mixed)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "features are an array and a number; numbers, one array of numbers, or an "
               "array of indices and one of values, are needed");
    if (s->pair && !corgi_is_pair(s->types[0], s->types[1]))
        REFUSE(ERRCODE_DATATYPE_MISMATCH,
               "sparse features are %s[] and %s[]; integer[] and real[] (or double precision[]) are needed",
               format_type_be(s->types[0]), format_type_be(s->types[1]));
}

/* Return whether a model takes columns one by one, each by its encoder. */
static bool takes_columns(const CorgiModel *m)
{
    return m->encoding != NULL && m->encoding->features->way != CORGI_AS_VECTOR;
}

/* Return whether a row can be one array: all columns are numbers. */
static bool all_numbers(const CorgiEncoding *e)
{
    if (e->hashing != NULL)
        return false;
    for (int i = 0; i < e->count; i++)
        if (e->features[i].way != CORGI_AS_NUMBER)
            return false;
    return true;
}

/* Check that an argument is such as its encoder takes; a literal without a type is text. */
static void check_column(const Site *s, int i, const CorgiEncoder *e, const char *name)
{
    bool untyped = s->types[i] == UNKNOWNOID, number = e->way == CORGI_AS_NUMBER;
    CorgiFamily family = untyped ? CORGI_TEXT : corgi_family(s->types[i]);
    if (number ? family == CORGI_NUMBER || family == CORGI_TIME : family == e->family)
        return;
    ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
            errmsg("feature %d is %s; model \"%s\" takes %s for its column \"%s\"", i + 1,
                   untyped ? "a literal without a type" : format_type_be(s->types[i]), name,
                   number || e->family == CORGI_NUMBER ? "a number" : e->family == CORGI_TIME ? "a date or time" : "text",
                   e->column));
}

/* Check arguments against the model that they are for. */
static void check_site(Site *s, const CorgiCached *c)
{
    const CorgiEncoding *e = c->model->encoding;
    s->literal = false;
    if (!takes_columns(c->model) || (s->list && all_numbers(e))) {
        check_numbers(s);
        return;
    }
    if (s->count != e->count || s->list || s->pair || s->mixed)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "the row has %d features; model \"%s\" was trained with %d columns", s->count,
               c->name, e->count);
    for (int i = 0; i < s->count; i++)
        if (s->types[i] != UNKNOWNOID || s->record || !s->row[i].isnull)
            check_column(s, i, &e->features[i], c->name);
}

/* Read a list that came without a type. */
static Datum read_literal(Datum text)
{
    Oid input, parameter;
    getTypeInputInfo(FLOAT8ARRAYOID, &input, &parameter);
    return OidInputFunctionCall(input, DatumGetCString(text), parameter, -1);
}

/* Take an array of features out of the arguments; a number stands for what is missing, where the model has one. */
static int64 read_list(const Site *s, const CorgiModel *m, char *to, const char **why)
{
    const CorgiEncoding *e = m->encoding;
    Datum array = s->literal ? read_literal(s->row[0].value) : s->row[0].value;
    Oid type = s->literal ? FLOAT8OID : s->types[0];
    int64 found;
    if (e == NULL)
        return corgi_read_array(array, type, m->bytes, m->width, to, why);
    found = corgi_read_holed(array, type, m->bytes, m->width, to, why);
    for (int64 i = 0; i < m->width && *why == NULL && found == m->width; i++) {
        const CorgiEncoder *one = &e->features[takes_columns(m) ? i : 0];
        if (one->filled)
            corgi_fill(one->fill, 1, m->bytes, to + i * m->bytes);
    }
    return found;
}

/* Return an argument of a call, and its type: a literal without one is text. */
static NullableDatum typed(const Site *s, int i, Oid *type)
{
    NullableDatum one = s->row[i];
    *type = s->types[i] == UNKNOWNOID ? TEXTOID : s->types[i];
    if (s->types[i] == UNKNOWNOID && !one.isnull)
        one.value = CStringGetTextDatum(DatumGetCString(one.value));
    return one;
}

/* Score the arguments of a call, which are hashed. Returns false where one is missing and nothing stands for it. */
static bool score_hashed(const Site *s, CorgiCached *c)
{
    Oid *types = palloc(sizeof *types * (Size) s->count);
    NullableDatum *row = palloc(sizeof *row * (Size) s->count);
    bool scored;
    for (int i = 0; i < s->count; i++)
        row[i] = typed(s, i, &types[i]);
    scored = corgi_score_hashed(c, types, row);
    pfree(types);
    pfree(row);
    return scored;
}

/* Encode the arguments of a call, each as its column. Returns false where one is missing and nothing stands for it. */
static bool encode_row(const Site *s, const CorgiModel *m, char *to)
{
    for (int i = 0; i < s->count; i++) {
        CorgiColumn c = {.encoder = &m->encoding->features[i]};
        NullableDatum one = typed(s, i, &c.type);
        if (!corgi_encode(&c, one.value, one.isnull, m->bytes, to))
            return false;
        to += c.encoder->width * m->bytes;
    }
    return true;
}

/* Take the features out of the arguments of a call; returns how many there are. */
static int64 read_row(const Site *s, const CorgiModel *m, char *to)
{
    const char *why = NULL;
    int64 found = s->count;
    if (s->list || s->literal)
        found = read_list(s, m, to, &why);
    else if (found == m->width)
        for (int i = 0; i < s->count; i++)
            corgi_read_number(s->types[i], s->row[i].value, m->bytes, to + i * m->bytes);
    if (why != NULL)
        REFUSE(ERRCODE_DATA_EXCEPTION, "the row to predict %s", why);
    return found;
}

/* Find the model of a call: the one used last, for as long as the snapshot stays. */
static CorgiCached *find_model(FunctionCallInfo fcinfo, Site *s)
{
    const text *name = PG_GETARG_TEXT_PP(0);
    Sight now = look();
    Size bytes = VARSIZE_ANY_EXHDR(name);
    if (s->cached == NULL || s->loads != s->cached->loads || memcmp(&now, &s->sight, sizeof now) != 0 ||
        s->name_bytes != bytes || memcmp(VARDATA_ANY(name), s->cached->name, bytes) != 0) {
        char *shown = text_to_cstring(name);
        CorgiCached *found;
        s->cached = NULL;
        found = corgi_cached_model(shown);
        if (s->record)
            open_record(fcinfo, s, found);
        check_site(s, found);
        s->cached = found;
        s->loads = s->cached->loads;
        s->sight = now;
        s->name_bytes = bytes;
        pfree(shown);
    }
    return s->cached;
}

static void score_row(const Site *site, const CorgiCached *c)
{
    const CorgiModel *m = c->model;
    int64 found = read_row(site, m, c->row);
    if (found != m->width)
        REFUSE(ERRCODE_DATA_EXCEPTION,
               "the row has " INT64_FORMAT " features; model \"%s\" was trained with " INT64_FORMAT, found, c->name,
               m->width);
    corgi_learner_decide(c->learner, c->row, c->scores);
}

static bool any_null(const Site *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->row[i].isnull)
            return true;
    return false;
}

/* Score the row of a call. Returns NULL where it has a NULL that nothing stands for. */
static const CorgiCached *score(FunctionCallInfo fcinfo)
{
    Site *site = fcinfo->flinfo->fn_extra ? fcinfo->flinfo->fn_extra : make_site(fcinfo);
    CorgiCached *c;
    bool columns;
    if (PG_ARGISNULL(0) || (site->record && PG_ARGISNULL(1)))
        return NULL;
    if (site->fields && !corgi_record_fits(site->fields, PG_GETARG_DATUM(1)))
        site->cached = NULL; /* what is known is of other fields */
    if (!site->record)
        site->row = &fcinfo->args[1];
    c = find_model(fcinfo, site);
    if (site->record)
        corgi_read_record(site->fields, PG_GETARG_DATUM(1));
    columns = takes_columns(c->model) && !site->list;
    if (!columns && any_null(site))
        return NULL;
    if (columns && c->model->encoding->hashing != NULL) {
        if (!score_hashed(site, c))
            return NULL;
    } else if (columns) {
        if (!encode_row(site, c->model, c->row))
            return NULL;
        corgi_learner_decide(c->learner, c->row, c->scores);
    } else if (site->pair)
        corgi_score_pair(c, site->row[0].value, site->row[1].value, site->types[1]);
    else
        score_row(site, c);
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

/* Class of the row, or the number that is predicted of it. */
Datum corgipile_predict(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    const CorgiModel *m;
    if (c == NULL)
        PG_RETURN_NULL();
    m = c->model;
    if (unlikely(corgi_class_names(m) != NULL))
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" has classes of text; use corgipile.predict_text", c->name);
    if (corgi_predicts_numbers(&m->of))
        PG_RETURN_FLOAT8(corgi_predicted_number(m, c->scores));
    PG_RETURN_FLOAT8(m->class_values[corgi_best_class(m, c->scores)]);
}

/* Class of the row by a model whose label is boolean. */
Datum corgipile_predict_bool(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    const CorgiModel *m;
    if (c == NULL)
        PG_RETURN_NULL();
    m = c->model;
    if (corgi_predicts_numbers(&m->of) || m->classes != 2 || m->class_values[0] != 0 || m->class_values[1] != 1 ||
        corgi_class_names(m) != NULL)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" has not the classes false and true; use %s", c->name,
               corgi_class_names(m) ? "corgipile.predict_text" : "corgipile.predict");
    PG_RETURN_BOOL(corgi_best_class(c->model, c->scores) == 1);
}

/* Class of the row by its name. */
Datum corgipile_predict_text(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    if (c == NULL)
        PG_RETURN_NULL();
    if (corgi_class_names(c->model) == NULL)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "model \"%s\" has no classes of text; use corgipile.predict", c->name);
    PG_RETURN_TEXT_P(cstring_to_text(corgi_class_names(c->model)->names[corgi_best_class(c->model, c->scores)].text));
}

/* The classes of a model by name. */
Datum corgipile_class_names(PG_FUNCTION_ARGS)
{
    char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    const CorgiNames *names = corgi_class_names(corgi_cached_model(name)->model);
    if (names == NULL)
        PG_RETURN_NULL();
    PG_RETURN_ARRAYTYPE_P(corgi_text_array(names));
}

Datum corgipile_decision(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    if (c == NULL)
        PG_RETURN_NULL();
    PG_RETURN_DATUM(to_array(c->scores, c->model->outputs));
}

/* Probabilities of the classes; two classes are a softmax of 0 and the score. */
Datum corgipile_predict_proba(PG_FUNCTION_ARGS)
{
    const CorgiCached *c = score(fcinfo);
    const CorgiModel *m;
    double *p;
    if (c == NULL)
        PG_RETURN_NULL();
    m = c->model;
    if (!cp_losses[m->of.loss].probability)
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "a model of kind %s has no probabilities; train %s", m->kind,
               corgi_loss_names(corgi_has_probability));
    p = palloc0(sizeof *p * (Size) Max(m->classes, 2));
    memcpy(p + (m->outputs == 1), c->scores, sizeof *p * (Size) m->outputs);
    corgi_probabilities(&m->of, p, m->classes);
    PG_RETURN_DATUM(to_array(p, m->classes));
}
