/* Stored models by group and multilabel models: one row for all of them, like Python's one file. */
#include "models.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

/* Groups of a stored model. */
struct CorgiGroupIndex {
    const char *by;
    const char *type;       /* JSON type of the values; NULL: null is the only one */
    CorgiNames *values;     /* values except null, as text, in group order */
    int64 null_at;          /* group number of null; -1: none */
};

/* Python's checks of a file, see corgipile.linear.groups.Groups.check. */
#define SHAPE \
    "strict $ ? (@.by.type() == \"string\" && @.groups.type() == \"array\" && @.groups.size() > 0 && " \
    "@.of_groups.type() == \"object\" && !exists(@.of_groups.* ? (@.type() != \"array\")) && !exists(@.groups[*] ? (" \
    "@.type() == \"object\" || @.type() == \"array\" || (@.type() == \"number\" && @.floor() != @))))"
#define COUNTS "strict $.of_groups.* ? (@.size() != $n)"
#define RATES \
    "$ ? (exists(@.learning_rates) && (@.learning_rates.type() != \"array\" || @.learning_rates.size() != $n || " \
    "exists(@.learning_rates[*] ? (@.type() != \"number\" || @ <= 0))))"

/* Query for groups: their number (0 if damaged), column, values, and value types. */
#define EACH(what) "ARRAY(SELECT " what " FROM pg_catalog.jsonb_path_query(params, '$.groups[*]') g)"
static const char *const groups_query =
    "SELECT CASE WHEN NOT pg_catalog.jsonb_path_exists(params, '" SHAPE "') THEN 0 ELSE (SELECT CASE WHEN "
    "pg_catalog.jsonb_path_exists(params, '" COUNTS "', n) OR pg_catalog.jsonb_path_exists(params, '" RATES "', n) OR "
    "(SELECT pg_catalog.count(DISTINCT g) operator(pg_catalog.<) pg_catalog.count(*) FROM "
    "pg_catalog.jsonb_path_query(params, '$.groups[*]') g) THEN 0 ELSE (n operator(pg_catalog.->>) "
    "'n')::pg_catalog.int8 END FROM "
    "pg_catalog.jsonb_build_object('n', pg_catalog.jsonb_array_length(params operator(pg_catalog.->) 'groups')) n) "
    "END, params operator(pg_catalog.->>) 'by', " EACH("g operator(pg_catalog.#>>) '{}'") ", "
    "" EACH("pg_catalog.jsonb_typeof(g)")
    " FROM corgipile.models WHERE name operator(pg_catalog.=) $1 AND params operator(pg_catalog.?) 'by'";

/* Query for labels: all texts or all integers, else damaged. */
#define LABELS \
    "strict $ ? (@.labels.type() == \"array\" && @.labels.size() > 0 && " \
    "(!exists(@.labels[*] ? (@.type() != \"string\")) || " \
    "!exists(@.labels[*] ? (@.type() != \"number\" || @.floor() != @))))"
static const char *const labels_query =
    "SELECT ARRAY(SELECT l operator(pg_catalog.#>>) '{}' FROM pg_catalog.jsonb_path_query(params, '$.labels[*]') l "
    "WHERE pg_catalog.jsonb_path_exists(params, '" LABELS "') AND NOT params operator(pg_catalog.?) 'by' AND NOT "
    "pg_catalog.jsonb_path_exists(params, '" RATES "', pg_catalog.jsonb_build_object('n', "
    "pg_catalog.jsonb_array_length(params "
    "operator(pg_catalog.->) 'labels')))), params operator(pg_catalog.@?) '$.labels[0] ? (@.type() == \"number\")' "
    "FROM corgipile.models WHERE name operator(pg_catalog.=) $1 AND params operator(pg_catalog.?) 'labels'";

static void refuse_damaged(const char *name, const char *what)
{
    ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED),
            errmsg("the row of model \"%s\" in corgipile.models is damaged: its %s are invalid", name, what));
}

static List *texts_at(int column)
{
    bool null;
    return corgi_text_list(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &null));
}

/* Read the group values. */
static void read_group_values(struct CorgiGroupIndex *known, List *values, List *types, const char *name)
{
    ListCell *value, *type;
    forboth(value, values, type, types) {
        const char *text = lfirst(value), *of = lfirst(type);
        if (text == NULL) {
            known->null_at = foreach_current_index(value);
            continue;
        }
        if (known->type != NULL && strcmp(known->type, of) != 0)
            refuse_damaged(name, "groups");
        known->type = known->type ? known->type : pstrdup(of);
        /* as corgi_text_of writes it */
        text = strcmp(of, "boolean") != 0 ? text : strcmp(text, "true") == 0 ? "1" : "0";
        corgi_add_name(known->values, text, strlen(text));
    }
}

/* Load the labels of a multilabel model, if any. */
static void load_labels(CorgiModel *m, const char *name, MemoryContext context)
{
    ListCell *cell;
    bool null;
    if (corgi_execute_for(labels_query, name, true) == 0)
        return;
    List *texts = texts_at(1);
    m->whole = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &null));
    MemoryContext before = MemoryContextSwitchTo(context);
    m->labels = corgi_make_names();
    foreach (cell, texts)
        corgi_add_name(m->labels, lfirst(cell), strlen(lfirst(cell)));
    MemoryContextSwitchTo(before);
    if (m->labels->count == 0 || m->labels->count < list_length(texts) ||
        cp_losses[m->of.loss].labels != CP_TWO_CLASSES)
        refuse_damaged(name, "labels");
}

/* Load a model's groups or labels, if any. Called within SPI. */
void corgi_load_members(CorgiModel *m, const char *name, MemoryContext context)
{
    bool null;
    load_labels(m, name, context);
    if (corgi_execute_for(groups_query, name, true) == 0)
        return;
    m->groups = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null));
    if (null || m->groups == 0)
        refuse_damaged(name, "groups");
    List *texts = texts_at(3);
    List *kinds = texts_at(4);
    MemoryContext before = MemoryContextSwitchTo(context);
    m->known = palloc0(sizeof *m->known);
    m->known->by = pstrdup(SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2));
    m->known->values = corgi_make_names();
    m->known->null_at = -1;
    read_group_values(m->known, texts, kinds, name);
    MemoryContextSwitchTo(before);
}

/* Return a model's group column; NULL for a single model. */
const char *corgi_group_column(const CorgiModel *m) { return m->groups ? m->known->by : NULL; }

/* Return the model of one group. */
CorgiModel *corgi_model_of_group(const CorgiModel *m, int64 k)
{
    CorgiModel *one = palloc(sizeof *one);
    *one = *m;
    one->groups = 0;
    one->known = NULL;
    one->learnt = NULL;
    one->coefficients += k * m->outputs * m->width;
    one->intercepts += k * m->outputs;
    return one;
}

/* Return the JSON type of a group column's type; NULL if unsupported. */
static const char *json_type(Oid type)
{
    if (type == BOOLOID)
        return "boolean";
    if (type == INT2OID || type == INT4OID || type == INT8OID || type == NUMERICOID)
        return "number";
    return corgi_is_text(type) ? "string" : NULL;
}

/* Return the text of a group value. A numeric keeps its digits, so that only a whole one matches. */
static const char *group_text(Oid type, Datum value, Size *length)
{
    if (type != NUMERICOID)
        return corgi_text_of(type, value, length);
    char *text = DatumGetCString(DirectFunctionCall1(numeric_out, DirectFunctionCall1(numeric_trim_scale, value)));
    *length = strlen(text);
    return text;
}

/* Return the group number of a value. Errors name the row by `c` and `tid`; NULL for a row to predict. */
int64 corgi_find_group(const CorgiModel *m, const char *name, Oid type, NullableDatum value, const CorgiColumn *c,
                       const ItemPointerData *tid)
{
    struct CorgiGroupIndex *known = m->known;
    const char *of = json_type(getBaseType(type)), *text = NULL;
    int64 group = known->null_at;
    Size length = 0;
    if (of == NULL || (known->type != NULL && strcmp(of, known->type) != 0))
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                errmsg("the group is %s; model \"%s\" takes %s for its column \"%s\"", format_type_be(type), name,
                       known->type == NULL || *known->type == 's' ? "text"
                       : *known->type == 'n'                      ? "a whole number"
                                                                  : "a boolean",
                       known->by));
    if (!value.isnull) {
        text = group_text(getBaseType(type), value.value, &length);
        group = corgi_find_name(known->values, text, length);
        group += group >= 0 && known->null_at >= 0 && group >= known->null_at;
    }
    if (unlikely(group < 0))
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("%s is of group %s of \"%s\", which has no model in \"%s\"",
                       tid ? corgi_row_name(c, tid) : "the row to predict",
                       text ? psprintf("\"%.*s\"", (int) length, text) : "NULL", known->by, name),
                errdetail("There are models of %s%s.", corgi_list_names(known->values),
                          known->null_at < 0 ? "" : known->values->count ? " and NULL" : "NULL"));
    return group;
}

/* Refuse several models in an operation `what` that needs one. */
void corgi_require_single(const CorgiModel *m, const char *name, const char *what)
{
    const char *of = m->labels ? "label" : "group";
    if (m->groups == 0 && m->labels == NULL)
        return;
    ereport(
        ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
        errmsg("\"%s\" holds models of " INT64_FORMAT " %ss; %s one model", name,
               m->labels ? m->labels->count : m->groups, of, what),
        errhint(
            "SELECT corgipile.export('%s') returns a file. Python extracts the model of one %s for corgipile.import: "
            "corgipile.load(path).of(%s).pack().",
            name, of, of));
}
