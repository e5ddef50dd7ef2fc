/* Encodings as JSON, in the format of Encoding in Python, and back. */
#include "models.h"

#include <math.h>

#include "executor/spi.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"

static const char *const ways[] = {"", "", "onehot", "ordinal", "hash"};
static const char *const families[] = {"", "text", "number", "time"};
static const char *const kinds[] = {
    [CP_HASHED_WORDS] = "words", [CP_HASHED_CATEGORY] = "category", [CP_HASHED_NUMBER] = "number"};

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
    appendStringInfo(
        json, ", \"way\": \"%s\", \"buckets\": " INT64_FORMAT ", \"family\": \"%s\", \"strict\": %s, \"values\": ",
        ways[e->way], e->buckets, families[e->family], e->strict ? "true" : "false");
    write_names(json, e->values, e->null_known);
    appendStringInfoString(json, e->unknown && !e->null_known ? ", \"unknown\": true}" : "}");
}

static void write_hashing(StringInfo json, const CorgiEncoding *e)
{
    const CorgiHashing *h = e->hashing;
    appendStringInfo(json, ", \"hashing\": {\"bits\": %d, \"ngrams\": %d, \"strict\": %s, \"sources\": [", h->bits,
                     h->ngrams, h->strict ? "true" : "false");
    for (int i = 0; i < h->source_count; i++) {
        const CorgiHashedSource *one = &h->sources[i];
        appendStringInfo(json, "%s{\"column\": ", i ? ", " : "");
        escape_json(json, e->features[one->at].column);
        appendStringInfo(json, ", \"kind\": \"%s\", \"family\": \"%s\", \"fill\": %s}", kinds[one->kind],
                         one->kind == CP_HASHED_CATEGORY ? families[one->family] : "",
                         one->filled ? float8out_internal(one->fill) : "null");
    }
    appendStringInfoString(json, "], \"terms\": [");
    for (int t = 0; t < h->term_count; t++)
        for (int i = 0; i < h->terms[t].count; i++) {
            appendStringInfoString(json, i ? ", " : t ? "], [" : "[");
            escape_json(json, e->features[h->sources[h->terms[t].columns[i]].at].column);
        }
    appendStringInfoString(json, "]]}");
}

/* Write an encoding; `label` is the label's column. */
void corgi_write_encoding(StringInfo json, const CorgiEncoding *e, const char *label, bool strict)
{
    const CorgiHashing *h = e->hashing;
    appendStringInfoString(json, "{\"version\": 1, \"features\": [");
    for (int i = 0; i < (h ? h->beside_count : e->count); i++) {
        appendStringInfoString(json, i ? ", " : "");
        write_encoder(json, &e->features[h ? h->beside[i] : i]);
    }
    appendStringInfo(json, "], \"label\": {\"how\": \"%s\", \"column\": ", e->classes ? "classes" : "number");
    escape_json(json, label);
    if (e->classes != NULL) {
        appendStringInfo(json, ", \"strict\": %s, \"values\": ", strict ? "true" : "false");
        write_names(json, e->classes, false);
    } else
        appendStringInfoString(json, ", \"fill\": null");
    appendStringInfoChar(json, '}');
    if (h != NULL)
        write_hashing(json, e);
    appendStringInfoChar(json, '}');
}

#define TEXT(path) "e operator(pg_catalog.->>) '" path "'"
#define VALUES(of, path) \
    "ARRAY(SELECT v operator(pg_catalog.#>>) '{}' FROM pg_catalog.jsonb_path_query(" of ", '" path "') v)"
#define MODEL " FROM corgipile.models WHERE name operator(pg_catalog.=) $1"
static const char *const features_query =
    "SELECT " TEXT("how") ", " TEXT("column") ", " TEXT("fill") ", " TEXT("way") ", " TEXT("buckets") ", "
    TEXT("family") ", " TEXT("strict") ", " VALUES("e", "$.values[*]") ", " TEXT("unknown")
    " FROM (SELECT params" MODEL ") m, pg_catalog.jsonb_path_query(params, '$.encoding.features[*]') "
    "WITH ORDINALITY q (e, number) ORDER BY number";
static const char *const label_query =
    "SELECT params operator(pg_catalog.#>>) '{encoding,label,how}', "
    "" VALUES("params", "$.encoding.label.values[*]") ", "
    "params operator(pg_catalog.#>>) '{encoding,version}', params operator(pg_catalog.#>>) '{encoding,hashing,bits}', "
    "params operator(pg_catalog.#>>) '{encoding,hashing,ngrams}', "
    "params operator(pg_catalog.#>>) '{encoding,hashing,strict}', "
    "params operator(pg_catalog.#>) '{encoding,hashing}' IS NOT NULL" MODEL;
static const char *const sources_query =
    "SELECT " TEXT("column") ", " TEXT("kind") ", " TEXT("family") ", " TEXT("fill") " FROM (SELECT params" MODEL ") "
    "m, pg_catalog.jsonb_path_query(params, '$.encoding.hashing.sources[*]') WITH ORDINALITY q (e, number) ORDER BY "
    "number";
static const char *const terms_query =
    "SELECT " VALUES("e", "$[*]") " FROM (SELECT params" MODEL ") m, "
    "pg_catalog.jsonb_path_query(params, '$.encoding.hashing.terms[*]') WITH ORDINALITY q (e, number) ORDER BY number";

static void refuse_damaged(const char *name) __attribute__((noreturn));
static void refuse_damaged(const char *name)
{
    ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED),
            errmsg("the row of model \"%s\" in corgipile.models is damaged: its encoding is unknown", name));
}

static const char *text_at(uint64 row, int column)
{
    const char *value = SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
    return value ? value : "";
}

static int list_index(const char *const *list, int count, const char *text)
{
    for (int i = 1; i < count; i++)
        if (*text != '\0' && strcmp(list[i], text) == 0)
            return i;
    return 0;
}

/* Read a list of texts. Only the last may be NULL, and only if `null` can report it. */
static CorgiNames *names_at(uint64 row, int column, bool *null, const char *name, MemoryContext context)
{
    bool none;
    Datum array = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &none);
    MemoryContext outside = MemoryContextSwitchTo(context);
    CorgiNames *names = corgi_make_names();
    ListCell *cell;
    MemoryContextSwitchTo(outside);
    List *texts = corgi_text_list(array);
    foreach (cell, texts) {
        const char *text = lfirst(cell);
        int64 before = names->count;
        if (text == NULL && null != NULL && lnext(texts, cell) == NULL)
            *null = true;
        else if (text == NULL || (corgi_add_name(names, text, strlen(text)), names->count == before))
            refuse_damaged(name);
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
        refuse_damaged(name);
    return number;
}

static CorgiEncoder categories_at(uint64 row, const char *name, MemoryContext context)
{
    CorgiEncoder e = {.way = list_index(ways, lengthof(ways), text_at(row, 4)), .buckets = atoi(text_at(row, 5)),
                      .family = list_index(families, lengthof(families), text_at(row, 6)),
                      .strict = strcmp(text_at(row, 7), "false") != 0,
                      .unknown = strcmp(text_at(row, 9), "true") == 0};
    e.values = names_at(row, 8, &e.null_known, name, context);
    e.width = e.way == CORGI_HASH ? e.buckets : e.way == CORGI_ONEHOT ? e.values->count + e.null_known : 1;
    if (e.way < CORGI_ONEHOT || e.family == CORGI_NO_FAMILY || e.width < 1 || e.buckets > CORGI_MAX_BUCKETS ||
        (e.way == CORGI_HASH) != (e.buckets > 0))
        refuse_damaged(name);
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
        refuse_damaged(name);
    e.column = MemoryContextStrdup(context, text_at(row, 2));
    return e;
}

/* Return the index of a column; `count` if absent. */
static int column_index(const CorgiEncoder *features, int count, const char *column)
{
    int at = 0;
    while (at < count && strcmp(features[at].column, column) != 0)
        at++;
    return at;
}

/* Read the next hashed column. */
static void read_source(CorgiEncoding *e, uint64 row, const char *name, MemoryContext context)
{
    CorgiHashing *h = e->hashing;
    CorgiHashedSource *one = &h->sources[h->source_count];
    CorgiEncoder *column = &e->features[e->count];
    const char *kind = text_at(row, 2);
    one->at = h->source_count++;
    for (one->kind = CP_HASHED_WORDS; strcmp(kinds[one->kind], kind) != 0; one->kind++)
        if (one->kind == CP_HASHED_NUMBER)
            refuse_damaged(name);
    one->family = one->kind == CP_HASHED_WORDS ? CORGI_TEXT : one->kind == CP_HASHED_NUMBER ? CORGI_NUMBER
                  : (CorgiFamily) list_index(families, lengthof(families), text_at(row, 3));
    one->filled = one->kind == CP_HASHED_NUMBER && *text_at(row, 4) != '\0';
    one->fill = one->filled ? number_at(row, 4, name) : 0;
    *column = (CorgiEncoder){.column = MemoryContextStrdup(context, text_at(row, 1)),
                             .way = CORGI_HASHED,
                             .family = one->family,
                             .strict = true};
    if (one->kind == CP_HASHED_NUMBER)
        column->way = CORGI_AS_NUMBER;
    if (one->family == CORGI_NO_FAMILY || *column->column == '\0' ||
        column_index(e->features, e->count, column->column) < e->count)
        refuse_damaged(name);
    e->count++;
}

/* Read the hashed terms. */
static void read_terms(CorgiEncoding *e, const char *name)
{
    CorgiHashing *h = e->hashing;
    bool none;
    corgi_execute_for(terms_query, name, true);
    if (SPI_processed < 1 || SPI_processed > CP_MAX_HASHED_COLUMNS)
        refuse_damaged(name);
    for (; h->term_count < (int) SPI_processed; h->term_count++) {
        cp_hashed_term *t = &h->terms[h->term_count];
        List *names =
            corgi_text_list(SPI_getbinval(SPI_tuptable->vals[h->term_count], SPI_tuptable->tupdesc, 1, &none));
        ListCell *cell;
        if (names == NIL || list_length(names) > CP_MAX_CROSSED)
            refuse_damaged(name);
        foreach (cell, names) {
            int at = lfirst(cell) ? column_index(e->features, h->source_count, lfirst(cell)) : h->source_count;
            if (at == h->source_count)
                refuse_damaged(name);
            t->columns[t->count++] = at;
        }
    }
}

/* Read the hashing of columns. Hashed columns come first, plain ones follow. */
static void read_hashing(CorgiEncoding *e, const char *name, MemoryContext context)
{
    const CorgiEncoder *plain = e->features;
    int beside = e->count;
    corgi_execute_for(label_query, name, true);
    if (strcmp(text_at(0, 7), "t") != 0)
        return;
    e->hashing = corgi_new_hashing(context);
    e->hashing->bits = atoi(text_at(0, 4));
    e->hashing->ngrams = atoi(text_at(0, 5));
    e->hashing->strict = strcmp(text_at(0, 6), "false") != 0;
    if (e->hashing->bits < 1 || e->hashing->bits > CP_MAX_HASH_BITS || e->hashing->ngrams < 1 ||
        e->hashing->ngrams > CP_MAX_NGRAMS)
        refuse_damaged(name);
    corgi_execute_for(sources_query, name, true);
    int count = (int) Min(SPI_processed, CP_MAX_HASHED_COLUMNS + 1);
    if (count < 1 || count > CP_MAX_HASHED_COLUMNS)
        refuse_damaged(name);
    e->features = MemoryContextAllocZero(context, sizeof *e->features * (Size) (count + beside));
    e->hashing->beside = MemoryContextAlloc(context, sizeof *e->hashing->beside * (Size) Max(beside, 1));
    e->count = 0;
    for (int i = 0; i < count; i++)
        read_source(e, (uint64) i, name, context);
    read_terms(e, name);
    for (int i = 0; i < beside; i++) {
        int at = column_index(e->features, e->count, plain[i].column);
        if (plain[i].way == CORGI_AS_VECTOR)
            refuse_damaged(name);
        e->features[at] = plain[i];
        e->count = Max(e->count, at + 1);
        e->hashing->beside[e->hashing->beside_count++] = at;
    }
    corgi_settle_hashing(e, false);
}

/* Read a model's encoding; NULL if its columns are plain numbers. Called within SPI. */
CorgiEncoding *corgi_read_encoding(const char *name, MemoryContext context)
{
    CorgiEncoding *e = MemoryContextAllocZero(context, sizeof *e);
    corgi_execute_for(label_query, name, true);
    if (SPI_processed == 0 || *text_at(0, 3) == '\0')
        return NULL;
    if (strcmp(text_at(0, 3), "1") != 0)
        refuse_damaged(name);
    if (strcmp(text_at(0, 1), "classes") == 0)
        e->classes = names_at(0, 2, NULL, name, context);
    corgi_execute_for(features_query, name, true);
    e->count = (int) SPI_processed;
    e->features = MemoryContextAllocZero(context, sizeof *e->features * (Size) Max(e->count, 1));
    for (int i = 0; i < e->count; i++)
        e->features[i] = encoder_at((uint64) i, name, context);
    read_hashing(e, name, context);
    return e;
}
