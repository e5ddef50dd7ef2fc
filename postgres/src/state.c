/* What was found out about columns as JSON, the same as of Encoding in Python, and back. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"

static const char *const ways[] = {"", "", "onehot", "ordinal", "hash"};
static const char *const families[] = {"", "text", "number", "time"};

static void write_names(StringInfo json, const CorgiNames *names, bool null)
{
    int64 count = names ? names->count : 0;
    appendStringInfoChar(json, '[');
    for (int64 i = 0; i < count; i++) {
        appendStringInfoString(json, i ? ", " : "");
        escape_json(json, names->names[i].text);
    }
    appendStringInfo(json, "%s]", null ? count ? ", null" : "null" : "");
}

static void write_encoder(StringInfo json, const CorgiEncoder *e)
{
    bool number = e->way == CORGI_AS_NUMBER;
    appendStringInfo(json, "{\"how\": \"%s\", \"column\": ",
                     number ? "number" : e->way == CORGI_AS_VECTOR ? "vector" : "categories");
    escape_json(json, e->column);
    if (number || e->way == CORGI_AS_VECTOR) {
        appendStringInfo(json, ", \"fill\": %s}", e->filled ? float8out_internal(e->fill) : "null");
        return;
    }
    appendStringInfo(json, ", \"way\": \"%s\", \"buckets\": " INT64_FORMAT ", \"family\": \"%s\", \"strict\": %s, \"values\": ",
                     ways[e->way], e->buckets, families[e->family], e->strict ? "true" : "false");
    write_names(json, e->values, e->null_known);
    appendStringInfoChar(json, '}');
}

/* Write an encoding; `label` is the column of the label. */
void corgi_write_encoding(StringInfo json, const CorgiEncoding *e, const char *label, bool strict)
{
    appendStringInfoString(json, "{\"version\": 1, \"features\": [");
    for (int i = 0; i < e->count; i++) {
        appendStringInfoString(json, i ? ", " : "");
        write_encoder(json, &e->features[i]);
    }
    appendStringInfo(json, "], \"label\": {\"how\": \"%s\", \"column\": ", e->classes ? "classes" : "number");
    escape_json(json, label);
    if (e->classes != NULL) {
        appendStringInfo(json, ", \"strict\": %s, \"values\": ", strict ? "true" : "false");
        write_names(json, e->classes, false);
    } else
        appendStringInfoString(json, ", \"fill\": null");
    appendStringInfoString(json, "}}");
}

#define TEXT(path) "e operator(pg_catalog.->>) '" path "'"
#define VALUES(of, path) "ARRAY(SELECT v operator(pg_catalog.#>>) '{}' FROM pg_catalog.jsonb_path_query(" of ", '" path "') v)"
#define MODEL " FROM corgipile.models WHERE name operator(pg_catalog.=) $1"
static const char *const features_query =
    "SELECT " TEXT("how") ", " TEXT("column") ", " TEXT("fill") ", " TEXT("way") ", " TEXT("buckets") ", "
    TEXT("family") ", " TEXT("strict") ", " VALUES("e", "$.values[*]") " FROM (SELECT params" MODEL ") m, "
    "pg_catalog.jsonb_path_query(params, '$.encoding.features[*]') WITH ORDINALITY q (e, number) ORDER BY number";
static const char *const label_query =
    "SELECT params operator(pg_catalog.#>>) '{encoding,label,how}', " VALUES("params", "$.encoding.label.values[*]") ", "
    "params operator(pg_catalog.#>>) '{encoding,version}'" MODEL;

static void damaged(const char *name) __attribute__((noreturn));
static void damaged(const char *name)
{
    ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED),
            errmsg("the row of model \"%s\" in corgipile.models is damaged: its encoding is not known", name));
}

static void fetch(const char *query, const char *name)
{
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    if (SPI_execute_with_args(query, 1, types, values, NULL, true, 0) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
}

static const char *text_at(uint64 row, int column)
{
    const char *value = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
    return value ? value : "";
}

static int listed(const char *const *list, int count, const char *text)
{
    for (int i = 1; i < count; i++)
        if (*text != '\0' && strcmp(list[i], text) == 0)
            return i;
    return 0;
}

/* Read a list of texts; a NULL in it is noted, if there may be one, as the last. */
static CorgiNames *names_at(uint64 row, int column, bool *null, const char *name, MemoryContext context)
{
    bool none;
    Datum array = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &none);
    MemoryContext outside = MemoryContextSwitchTo(context);
    CorgiNames *names = corgi_make_names();
    List *texts;
    ListCell *cell;
    MemoryContextSwitchTo(outside);
    texts = corgi_text_list(array);
    foreach (cell, texts) {
        const char *text = lfirst(cell);
        int64 before = names->count;
        if (text == NULL && null != NULL && lnext(texts, cell) == NULL)
            *null = true;
        else if (text == NULL || (corgi_add_name(names, text, strlen(text)), names->count == before))
            damaged(name);
    }
    return names;
}

/* Read a finite number. */
static double number_at(uint64 row, int column, const char *name)
{
    const char *text = text_at(row, column);
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number))
        damaged(name);
    return number;
}

static CorgiEncoder categories_at(uint64 row, const char *name, MemoryContext context)
{
    CorgiEncoder e = {.way = listed(ways, lengthof(ways), text_at(row, 4)), .buckets = atoi(text_at(row, 5)),
                      .family = listed(families, lengthof(families), text_at(row, 6)),
                      .strict = strcmp(text_at(row, 7), "false") != 0};
    e.values = names_at(row, 8, &e.null_known, name, context);
    e.width = e.way == CORGI_HASH ? e.buckets : e.way == CORGI_ONEHOT ? e.values->count + e.null_known : 1;
    if (e.way < CORGI_ONEHOT || e.family == CORGI_NO_FAMILY || e.width < 1 || e.buckets > CORGI_MOST_BUCKETS ||
        (e.way == CORGI_HASH) != (e.buckets > 0))
        damaged(name);
    return e;
}

static CorgiEncoder encoder_at(uint64 row, const char *name, MemoryContext context)
{
    const char *how = text_at(row, 1);
    CorgiEncoder e = {.strict = true};
    if (strcmp(how, "categories") == 0)
        e = categories_at(row, name, context);
    else if (strcmp(how, "number") == 0 || strcmp(how, "vector") == 0) {
        e.way = *how == 'n' ? CORGI_AS_NUMBER : CORGI_AS_VECTOR;
        e.width = e.way == CORGI_AS_NUMBER;
        e.filled = *text_at(row, 3) != '\0';
        e.fill = e.filled ? number_at(row, 3, name) : 0;
    } else
        damaged(name);
    e.column = MemoryContextStrdup(context, text_at(row, 2));
    return e;
}

/* Read how a model encodes columns; NULL where it takes numbers as they are. Called within SPI. */
CorgiEncoding *corgi_read_encoding(const char *name, MemoryContext context)
{
    CorgiEncoding *e = MemoryContextAllocZero(context, sizeof *e);
    fetch(label_query, name);
    if (SPI_processed == 0 || *text_at(0, 3) == '\0')
        return NULL;
    if (strcmp(text_at(0, 3), "1") != 0)
        damaged(name);
    if (strcmp(text_at(0, 1), "classes") == 0)
        e->classes = names_at(0, 2, NULL, name, context);
    fetch(features_query, name);
    e->count = (int) SPI_processed;
    e->features = MemoryContextAllocZero(context, sizeof *e->features * (Size) Max(e->count, 1));
    for (int i = 0; i < e->count; i++)
        e->features[i] = encoder_at((uint64) i, name, context);
    return e;
}
