/* Parsers of the arguments encode and missing of corgipile.train. */
#include "options.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "parser/parse_coerce.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))

/* Return an argument of any type as text. */
char *corgi_argument_text(Datum value, Oid type)
{
    Oid output;
    bool varlena;
    if (type == UNKNOWNOID)
        return DatumGetCString(value);
    getTypeOutputInfo(type, &output, &varlena);
    return OidOutputFunctionCall(output, value);
}

/* Split an array. Returns its number of elements. */
int corgi_elements(Datum array, Datum **values, bool **nulls)
{
    ArrayType *a = DatumGetArrayTypeP(array);
    int16 length;
    bool by_value;
    char align;
    int count;
    get_typlenbyvalalign(ARR_ELEMTYPE(a), &length, &by_value, &align);
    deconstruct_array(a, ARR_ELEMTYPE(a), length, by_value, align, values, nulls, &count);
    return count;
}

/* Parse the bucket count after the colon of hash:256. */
static int64 read_buckets(const char *text, const char *way)
{
    int64 buckets = strlen(text) > 7 ? 0 : atol(text);
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text) || buckets < 1 || buckets > CORGI_MAX_BUCKETS)
        REFUSE("buckets of encode must be a number from 1 to %d, got \"%s\"", CORGI_MAX_BUCKETS, way);
    return buckets;
}

static CorgiEncodeOption *read_way(const char *way, const char *column)
{
    CorgiEncodeOption *wish = palloc(sizeof *wish);
    *wish = (CorgiEncodeOption){.column = column, .buckets = CORGI_BUCKETS};
    if (strcmp(way, "onehot") == 0)
        wish->way = CORGI_ONEHOT;
    else if (strcmp(way, "ordinal") == 0)
        wish->way = CORGI_ORDINAL;
    else if (strcmp(way, "hash") == 0 || strncmp(way, "hash:", 5) == 0) {
        wish->way = CORGI_HASH;
        wish->buckets = way[4] ? read_buckets(way + 5, way) : CORGI_BUCKETS;
    } else
        REFUSE(
            "encode must be 'onehot', 'ordinal', 'hash' or 'hash:' and a number, or a JSON object of these by column, "
            "got \"%s\"",
            way);
    return wish;
}

/* Parse a JSON object with an encoding for each column. */
static List *read_object(const char *text)
{
    Jsonb *object = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
    JsonbIterator *at = JsonbIteratorInit(&object->root);
    JsonbIteratorToken token;
    JsonbValue value;
    List *wishes = NIL;
    char *column = NULL;
    while ((token = JsonbIteratorNext(&at, &value, true)) != WJB_DONE) {
        bool string = value.type == jbvString;
        if (token == WJB_KEY)
            column = pnstrdup(value.val.string.val, value.val.string.len);
        else if (token == WJB_VALUE && string)
            wishes = lappend(wishes, read_way(pnstrdup(value.val.string.val, value.val.string.len), column));
        else if (token == WJB_VALUE)
            REFUSE("encode of column \"%s\" must be a text, such as \"onehot\"", column);
    }
    return wishes;
}

/* Parse encode: one encoding for all text columns, or an object by column. */
List *corgi_read_encode(Datum value, Oid type)
{
    char *text = corgi_argument_text(value, type);
    return text[strspn(text, " \t\n\r")] == '{' ? read_object(text) : list_make1(read_way(text, NULL));
}

/* Parse column names: one, or an array. `what` names the argument. */
List *corgi_read_names(Datum value, Oid type, const char *what)
{
    Oid item = get_element_type(getBaseType(type)), output;
    bool varlena, *nulls;
    Datum *values;
    List *names = NIL;
    if (type != UNKNOWNOID && TypeCategory(OidIsValid(item) ? item : getBaseType(type)) != TYPCATEGORY_STRING)
        REFUSE("%s must be names of columns, got %s", what, format_type_be(type));
    if (!OidIsValid(item))
        return list_make1(corgi_argument_text(value, type));
    getTypeOutputInfo(item, &output, &varlena);
    int count = corgi_elements(value, &values, &nulls);
    for (int i = 0; i < count; i++) {
        if (nulls[i])
            REFUSE("%s holds a NULL; column names are needed", what);
        names = lappend(names, OidOutputFunctionCall(output, values[i]));
    }
    if (names == NIL)
        REFUSE("%s is an empty list; name at least one column", what);
    return names;
}

/* Parse missing, the treatment of NULL and NaN. Sets `fill` if it is a number. */
CorgiMissing corgi_read_missing(Datum value, Oid type, double *fill)
{
    char *text = corgi_argument_text(value, type), *end;
    *fill = 0;
    if (strcmp(text, "error") == 0)
        return CORGI_MISSING_ERROR;
    if (strcmp(text, "mean") == 0)
        return CORGI_MISSING_MEAN;
    if (strcmp(text, "skip") == 0)
        return CORGI_MISSING_SKIP;
    *fill = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(*fill))
        REFUSE("missing must be 'error', 'mean', 'skip' or a finite number, got \"%s\"", text);
    return CORGI_MISSING_NUMBER;
}
