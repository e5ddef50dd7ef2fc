/* Arguments of corgipile.predict and related calls: their types, their checks against a model, and their values. */
#include "arguments.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

/* Refuse a feature type. The hint names a cast to an array of numbers if the type has one, as pgvector's do. */
static void refuse_type(Oid type, bool alone)
{
    const char *cast = corgi_cast_to_list(type);
    ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
            errmsg("features must be numbers or one array of numbers, got %s", format_type_be(type)),
            cast                       ? errhint("Write x::%s for x.", cast)
            : alone && type == TEXTOID ? errhint("Write x::float8[] for x.")
                                       : 0);
}

/* Record the types of a call's features. The model checks them later. */
void corgi_note_types(CorgiArguments *a, int count, Oid *given)
{
    int lists = 0;
    a->count = count;
    a->given = given;
    for (int i = 0; i < count; i++) {
        Oid item = get_element_type(getBaseType(given[i]));
        bool list = OidIsValid(item) && count <= 2;
        a->types[i] = getBaseType(list ? item : given[i]);
        lists += list;
    }
    a->list = lists == 1 && count == 1;
    a->pair = lists == 2;
    a->mixed = lists == 1 && count == 2;
}

/* Check that the arguments are numbers, one array of numbers, or a sparse pair of arrays. */
static void check_numbers(CorgiArguments *a)
{
    a->literal = a->count == 1 && a->types[0] == UNKNOWNOID;
    for (int i = 0; i < a->count && !a->literal; i++)
        if (!corgi_is_number(a->types[i]))
            refuse_type(a->given[i], a->count == 1);
    if (a->mixed)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "features must be numbers, one array of numbers, or an array of indices and "
               "one of values, got an array and a number");
    if (a->pair && !corgi_is_pair(a->types[0], a->types[1]))
        REFUSE(ERRCODE_DATATYPE_MISMATCH,
               "sparse features must be integer[] and real[] (or double precision[]), got %s[] and %s[]",
               format_type_be(a->types[0]), format_type_be(a->types[1]));
}

/* Return whether a model takes columns one by one, each with its own encoder. */
bool corgi_takes_columns(const CorgiModel *m)
{
    return m->encoding != NULL && m->encoding->features->way != CORGI_AS_VECTOR;
}

/* Return whether all columns are numbers, so that one array can hold a row. */
static bool all_numbers(const CorgiEncoding *e)
{
    if (e->hashing != NULL)
        return false;
    for (int i = 0; i < e->count; i++)
        if (e->features[i].way != CORGI_AS_NUMBER)
            return false;
    return true;
}

/* Check that an argument's type suits its encoder. An untyped literal counts as text. */
static void check_column(const CorgiArguments *a, int i, const CorgiEncoder *e, const char *name)
{
    bool untyped = a->types[i] == UNKNOWNOID, number = e->way == CORGI_AS_NUMBER;
    CorgiFamily family = untyped ? CORGI_TEXT : corgi_family(a->types[i]);
    if (number ? family == CORGI_NUMBER || family == CORGI_TIME : family == e->family)
        return;
    ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
            errmsg("feature %d is %s; model \"%s\" takes %s for its column \"%s\"", i + 1,
                   untyped ? "a literal without a type" : format_type_be(a->types[i]), name,
                   number || e->family == CORGI_NUMBER ? "a number"
                   : e->family == CORGI_TIME           ? "a date or time"
                                                       : "text",
                   e->column));
}

/* Check the arguments against the model. */
void corgi_check_arguments(CorgiArguments *a, const CorgiCached *c)
{
    const CorgiEncoding *e = c->model->encoding;
    a->literal = false;
    if (!corgi_takes_columns(c->model) || (a->list && all_numbers(e))) {
        check_numbers(a);
        return;
    }
    if (a->count != e->count || a->list || a->pair || a->mixed)
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "the row has %d features; model \"%s\" was trained with %d columns", a->count,
               c->name, e->count);
    for (int i = 0; i < a->count; i++)
        if (a->types[i] != UNKNOWNOID || a->record || !a->row[i].isnull)
            check_column(a, i, &e->features[i], c->name);
}

/* Parse an array literal that has no type. */
static Datum parse_literal(Datum text)
{
    Oid input, parameter;
    getTypeInputInfo(FLOAT8ARRAYOID, &input, &parameter);
    return OidInputFunctionCall(input, DatumGetCString(text), parameter, -1);
}

/* Read the array of features. Replaces missing elements by the encoder's fill value, if any. */
static int64 read_list(const CorgiArguments *a, const CorgiModel *m, char *to, const char **why)
{
    const CorgiEncoding *e = m->encoding;
    Datum array = a->literal ? parse_literal(a->row[0].value) : a->row[0].value;
    Oid type = a->literal ? FLOAT8OID : a->types[0];
    if (e == NULL)
        return corgi_read_array(array, type, m->bytes, m->width, to, why);
    int64 read_count = corgi_read_array_with_nulls(array, type, m->bytes, m->width, to, why);
    for (int64 i = 0; i < m->width && *why == NULL && read_count == m->width; i++) {
        const CorgiEncoder *one = &e->features[corgi_takes_columns(m) ? i : 0];
        if (one->filled)
            corgi_fill(one->fill, 1, m->bytes, to + i * m->bytes);
    }
    return read_count;
}

/* Return an argument and its type. An untyped literal becomes text. */
static NullableDatum typed_argument(const CorgiArguments *a, int i, Oid *type)
{
    NullableDatum one = a->row[i];
    *type = a->types[i] == UNKNOWNOID ? TEXTOID : a->types[i];
    if (a->types[i] == UNKNOWNOID && !one.isnull)
        one.value = CStringGetTextDatum(DatumGetCString(one.value));
    return one;
}

/* Return the model that scores a row. For models by group, the last argument selects the group's model. */
CorgiCached *corgi_group_of_arguments(const CorgiArguments *a, CorgiCached *c)
{
    if (!a->grouped)
        return c;
    NullableDatum value = a->row[a->count];
    Oid type = a->given[a->count];
    if (type == UNKNOWNOID && !value.isnull)
        value.value = CStringGetTextDatum(DatumGetCString(value.value));
    return corgi_cached_group(
        c, corgi_find_group(c->model, c->name, type == UNKNOWNOID ? TEXTOID : type, value, NULL, NULL));
}

/* Score hashed arguments. Returns false if a value is missing and has no replacement. */
bool corgi_score_arguments(const CorgiArguments *a, CorgiCached *c)
{
    Oid *types = palloc(sizeof *types * (Size) a->count);
    NullableDatum *row = palloc(sizeof *row * (Size) a->count);
    for (int i = 0; i < a->count; i++)
        row[i] = typed_argument(a, i, &types[i]);
    bool scored = corgi_score_hashed(c, types, row);
    pfree(types);
    pfree(row);
    return scored;
}

/* Encode each argument as its column. Returns false if a value is missing and has no replacement. */
bool corgi_encode_arguments(const CorgiArguments *a, const CorgiModel *m, char *to)
{
    for (int i = 0; i < a->count; i++) {
        CorgiColumn c = {.encoder = &m->encoding->features[i]};
        NullableDatum one = typed_argument(a, i, &c.type);
        if (!corgi_encode(&c, one.value, one.isnull, m->bytes, to))
            return false;
        to += c.encoder->width * m->bytes;
    }
    return true;
}

/* Read the features from the arguments. Returns their number. */
int64 corgi_read_arguments(const CorgiArguments *a, const CorgiModel *m, char *to)
{
    const char *why = NULL;
    int64 read_count = a->count;
    if (a->list || a->literal)
        read_count = read_list(a, m, to, &why);
    else if (read_count == m->width)
        for (int i = 0; i < a->count; i++)
            corgi_read_number(a->types[i], a->row[i].value, m->bytes, to + i * m->bytes);
    if (why != NULL)
        REFUSE(ERRCODE_DATA_EXCEPTION, "the row to predict %s", why);
    return read_count;
}
