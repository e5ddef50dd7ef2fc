/* corgipile.import: stores a model file's bytes as a model. Nothing in the bytes is trusted. */
#include "models.h"
#include "safetensors.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(corgipile_import);

/* Metadata and arrays of a file. The queries run in functions with a trusted search path. */
typedef struct {
    CorgiTensors file;
    Datum meta;             /* jsonb */
    char *kind, *class_type, *params;
    int64 width, outputs, class_count, groups; /* groups: or labels; 1 for one model */
    int bytes;
    CorgiWeights weights;
    ArrayType *learnt;
} Import;

#define TYPE(of) "coalesce(jsonb_typeof(" of "), 'nothing')"
#define FEATURE "jsonb_path_query(m, '$.params.encoding.features[*]') e"
#define HASHING "(m #> '{params,encoding,hashing}')"
/* encoders of features and of the label */
#define ENCODER "jsonb_path_query(m #- '{params,encoding,hashing}', '$.params.encoding.*[*]') e"
/* Query for errors in the metadata, features the extension lacks, the kind, and the type of the classes. */
static const char *const check_query =
    "SELECT CASE WHEN m -> 'format' IS DISTINCT FROM '1' THEN 'format ' || coalesce(m ->> 'format', 'NULL') || "
    "' is not known; this version reads format 1' "
    "WHEN " TYPE("m -> 'kind'") " <> 'string' OR " TYPE("m -> 'class_type'") " <> 'string' OR "
    TYPE("m -> 'classes'") " <> 'array' THEN 'its kind or its classes are missing' "
    "WHEN " TYPE("m -> 'params'") " <> 'object' OR " TYPE("m -> 'history'") " <> 'array' "
    "THEN 'parameters or history are missing' "
    "WHEN " TYPE("m #> '{params,features}'") " NOT IN ('array', 'null', 'nothing') "
    "OR EXISTS (SELECT FROM jsonb_path_query(m, '$.params.features[*]') f WHERE jsonb_typeof(f) NOT IN ('string', "
    "'null')) OR m @? '$.params.features[*] ? (@ == null)' AND jsonb_typeof(m #> '{params,features}') = 'array' "
    "THEN 'its features are no list of names' "
    "WHEN " TYPE("m #> '{params,label}'") " NOT IN ('string', 'null', 'nothing') THEN 'its label is no name' "
    "WHEN " TYPE("m #> '{params,lists}'") " NOT IN ('boolean', 'null', 'nothing') THEN 'lists is neither true nor "
    "false' WHEN EXISTS (SELECT FROM jsonb_array_elements(m -> 'history') r WHERE " TYPE("r -> 'loss'") " <> 'number') "
    "THEN 'an epoch of its history has no loss' "
    "WHEN NOT encoded AND " TYPE("m #> '{params,encoding}'") " <> 'null' AND m -> 'params' ? 'encoding' "
    "OR encoded AND (m #> '{params,encoding,version}' IS DISTINCT FROM '1' "
    "OR " TYPE("m #> '{params,encoding,features}'") " <> 'array' "
    "OR " TYPE("m #> '{params,encoding,label}'") " NOT IN ('object', 'null') "
    "OR EXISTS (SELECT FROM " ENCODER " WHERE jsonb_typeof(e) = 'object' AND (" TYPE("e -> 'column'") " <> 'string' "
    "OR (e - ARRAY['how', 'column'] - CASE e ->> 'how' WHEN 'categories' THEN ARRAY['way', 'values', 'buckets', "
    "'family', "
    "'strict', 'unknown'] WHEN 'classes' THEN ARRAY['values', 'strict'] ELSE ARRAY['fill'] END) <> '{}'))) THEN 'its "
    "encoding is damaged' WHEN encoded AND m #> '{params,encoding}' ? 'hashing' AND (" TYPE(HASHING) " <> 'object' "
    "OR CASE jsonb_typeof(" HASHING ") WHEN 'object' THEN " HASHING " - ARRAY['bits', 'ngrams', 'sources', 'terms', "
    "'strict'] <> '{}' "
    "END OR EXISTS (SELECT FROM jsonb_path_query(m, '$.params.encoding.hashing.sources[*]') e WHERE CASE "
    "jsonb_typeof(e) "
    "WHEN 'object' THEN e - ARRAY['column', 'kind', 'family', 'fill'] <> '{}' ELSE true END)) THEN 'how columns are "
    "hashed is damaged' WHEN " TYPE("m #> '{params,left_out}'") " NOT IN ('object', 'nothing') "
    "OR " TYPE("m #> '{params,notes}'") " NOT IN ('array', 'nothing') THEN 'the notes on its columns are damaged' "
    "WHEN encoded AND NOT m #> '{params,encoding}' ? 'hashing' "
    "AND m #> '{params,features}' IS DISTINCT FROM to_jsonb(ARRAY(SELECT e -> 'column' FROM " FEATURE ")) "
    "THEN 'its features are not those that are encoded' "
    "WHEN (m ->> 'class_type' = 'str' OR m @? '$.params.encoding.label.values[*] ? (@.type() == \"string\")') AND "
    "(NOT encoded OR m -> 'classes' IS DISTINCT FROM m #> '{params,encoding,label,values}') "
    "THEN 'its classes are not those of its label' "
    "WHEN m ->> 'class_type' = 'str' AND getdatabaseencoding() = 'UTF8' AND EXISTS (SELECT FROM (SELECT c #>> '{}' "
    "COLLATE \"C\" AS c, lag(c #>> '{}') OVER (ORDER BY n) COLLATE \"C\" AS before FROM jsonb_array_elements(m -> "
    "'classes') WITH ORDINALITY q (c, n)) q WHERE c <= before) THEN 'its classes do not ascend' "
    "WHEN EXISTS (SELECT FROM jsonb_array_elements(m -> 'classes') c WHERE jsonb_typeof(c) <> CASE m ->> 'class_type' "
    "WHEN 'str' THEN 'string' WHEN 'bool' THEN 'boolean' ELSE 'number' END) THEN 'its classes are not ' || (m ->> "
    "'class_type') END, CASE WHEN m -> 'format' IS DISTINCT FROM '1' THEN NULL WHEN (m ->> 'class_type') !~ "
    "'^(str|bool|u?int(8|16|32|64)|float(16|32|64))$' "
    "THEN 'classes of type ' || (m ->> 'class_type') "
    "ELSE coalesce((SELECT format('the encoder \"%s\" of column \"%s\"', concat_ws(' ', coalesce(e ->> 'how', 'none'), "
    "e ->> 'way', e ->> 'family'), e ->> 'column') FROM " FEATURE " WHERE NOT coalesce(e ->> 'how' IN ('number', "
    "'vector') "
    "OR e ->> 'how' = 'categories' AND e ->> 'way' IN ('onehot', 'ordinal', 'hash') AND e ->> 'family' IN ('text', "
    "'number', 'time'), false) LIMIT 1), "
    "(SELECT format('the encoder \"%s\" of label \"%s\"', e ->> 'how', e ->> 'column') FROM jsonb_path_query(m, "
    "'$.params.encoding.label') e WHERE jsonb_typeof(e) = 'object' AND NOT coalesce(e ->> 'how' = 'classes' "
    "AND NOT e @? '$.values[*] ? (@.type() != \"string\")' "
    "OR e ->> 'how' = 'number' AND e ->> 'fill' IS NULL, false)), "
    "(SELECT format('lists together with other columns: \"%s\"', string_agg(e ->> 'column', '\", \"')) FROM " FEATURE
    " HAVING count(*) FILTER (WHERE e ->> 'how' = 'vector') > 0 AND (count(*) > 2 OR bool_or(e ->> 'how' <> 'vector') "
    "OR m #> '{params,encoding}' ? 'hashing'))) END, "
    "m ->> 'kind', m ->> 'class_type', ARRAY(SELECT c #>> '{}' FROM jsonb_path_query(m, '$.classes[*]') c), "
    "CASE WHEN jsonb_typeof(m #> '{params,features}') = 'array' THEN jsonb_array_length(m #> '{params,features}') "
    "ELSE 0 END, m #>> '{params,lists}', encoded, CASE WHEN m -> 'params' ? 'by' THEN CASE WHEN jsonb_typeof(m #> "
    "'{params,groups}') = 'array' "
    "THEN jsonb_array_length(m #> '{params,groups}') ELSE 0 END WHEN jsonb_typeof(m #> '{params,labels}') = 'array' "
    "THEN jsonb_array_length(m #> '{params,labels}') WHEN m -> 'params' ? 'labels' THEN 0 ELSE 1 END "
    "FROM (SELECT $1 AS m, coalesce(jsonb_typeof($1 #> '{params,encoding}') = 'object', false) AS encoded) q";

/* Query for the row's params beyond its other columns: class types that the classes do not show, and figures of epochs
 * beyond corgipile.history. */
#define FIGURES "'loss', 'accuracy', 'r2', 'rows', 'seconds', 'test_loss', 'test_accuracy', 'test_r2'"
static const char *const params_query =
    "SELECT ((m -> 'params') - 'class_type' || jsonb_build_object('numbers', $2) || CASE WHEN m ->> 'class_type' <> "
    "CASE WHEN $3 THEN 'int64' ELSE 'float64' END AND m ->> 'class_type' <> 'str' "
    "THEN jsonb_build_object('class_type', m -> 'class_type') ELSE '{}' END || CASE WHEN r.records @? '$[*].*' THEN "
    "jsonb_build_object('imported', jsonb_build_object('records', r.records)) ELSE '{}' END)::text "
    "FROM (SELECT $1 AS m) q, LATERAL (SELECT "
    "coalesce(jsonb_agg(r - ARRAY[" FIGURES "] - CASE WHEN r -> 'epoch' = to_jsonb(n - 1) THEN 'epoch' ELSE '' END "
    "ORDER BY n), '[]') AS records FROM jsonb_array_elements(m -> 'history') WITH ORDINALITY h (r, n)) r";
#define NUMBER(name, type) "CASE WHEN r -> '" name "' <> 'null' THEN (r ->> '" name "')::" type " END"
static const char *const history_query =
    "INSERT INTO corgipile.history (model, epoch, loss, accuracy, r2, rows, seconds, holdout_loss, holdout_accuracy, "
    "holdout_r2) "
    "SELECT $1, n - 1, " NUMBER("loss", "float8") ", " NUMBER("accuracy", "float8") ", " NUMBER("r2", "float8") ", "
    NUMBER("rows", "int8") ", " NUMBER("seconds", "float8") ", " NUMBER("test_loss", "float8") ", "
    NUMBER("test_accuracy", "float8") ", " NUMBER("test_r2", "float8") " FROM jsonb_array_elements($2 -> 'history') "
    "WITH ORDINALITY h (r, n)";
static const char *const forget_query = "DELETE FROM corgipile.history WHERE model = $1";
static const char *const version_query = "SELECT version FROM corgipile.models WHERE name = $1";

static char *text_at(int column) { return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column); }

/* Read the classes: indices of text, or else the numbers. */
static void read_classes(Import *m, List *texts)
{
    bool integers = strstr(m->class_type, "int") != NULL;
    ListCell *cell;
    int64 i = 0;
    m->class_count = list_length(texts);
    m->weights.classes = m->class_count ? corgi_make_doubles(1, 0, m->class_count) : construct_empty_array(FLOAT8OID);
    double *to = (double *) ARR_DATA_PTR(m->weights.classes);
    foreach (cell, texts) {
        char *text = lfirst(cell);
        if (strcmp(m->class_type, "str") == 0)
            to[i] = (double) i;
        else if (strcmp(m->class_type, "bool") == 0)
            to[i] = strcmp(text, "true") == 0;
        else
            to[i] = DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(text)));
        if (integers && fabs(to[i]) >= 9007199254740992.0) /* also rejects rounded neighbours */
            ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("the extension cannot hold the class %s; integers below 2^53 in size are exact", text));
        if (!isfinite(to[i]) || (integers && to[i] != floor(to[i])) || (i > 0 && to[i] <= to[i - 1]))
            corgi_bad_content("its classes are not finite, ascending numbers of their type");
        i++;
    }
}

/* Check the metadata. */
static void check_metadata(Import *m)
{
    Oid types[] = {JSONBOID};
    bool null;
    corgi_execute(check_query, lengthof(types), types, &m->meta, NULL, true);
    const char *error = text_at(1);
    const char *unsupported = text_at(2);
    if (unsupported != NULL)
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("the extension cannot hold %s", unsupported));
    if (error != NULL)
        corgi_bad_content("%s", error);
    m->kind = text_at(3);
    m->class_type = text_at(4);
    int64 names = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 6, &null));
    const char *lists = text_at(7);
    bool encoded = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 8, &null));
    m->groups = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 9, &null));
    read_classes(m, corgi_text_list(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 5, &null)));
    if (!encoded && lists != NULL && *lists == 'f' && names > 1 && names < m->width)
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("the extension cannot hold lists together with other columns: " INT64_FORMAT
                       " columns have " INT64_FORMAT " features",
                       names, m->width));
    if (!encoded && lists != NULL && *lists == 'f' && names != m->width)
        corgi_bad_content("it has " INT64_FORMAT " names for " INT64_FORMAT " features", names, m->width);
}

/* Return a tensor of a given shape; `rows` is 0 for one dimension. */
static const CorgiTensor *require_tensor(const Import *m, const char *name, int bytes, int64 rows, int64 columns)
{
    const CorgiTensor *t = corgi_find_tensor(&m->file, name);
    if (t == NULL)
        corgi_bad_content("tensor \"%s\" is missing", name);
    if (t->bytes != bytes || t->dimensions != (rows ? 2 : 1) || t->rows != Max(rows, 1) || t->columns != columns)
        corgi_bad_content("the shape of tensor \"%s\" does not match the model", name);
    return t;
}

static bool is_known(const char *name)
{
    static const char *const known[] = {"coef", "intercept", "center", "scale", "learnt_coef", "learnt_intercept",
                                        "beside"};
    for (int i = 0; i < lengthof(known); i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

/* Read the model's size. */
static void read_shape(Import *m)
{
    const CorgiTensor *coef = corgi_find_tensor(&m->file, "coef");
    for (int i = 0; i < m->file.count; i++)
        if (!is_known(m->file.tensors[i].name))
            corgi_bad_content("tensor \"%s\" is none of a model", m->file.tensors[i].name);
    if (coef == NULL || coef->dimensions != 2 || coef->rows < 1 || coef->columns < 1)
        corgi_bad_content("it has no coefficients");
    m->width = coef->columns;
    m->outputs = coef->rows;
    m->bytes = coef->bytes;
}

/* Return the rows of optimizer state. */
static int64 state_rows(const Import *m)
{
    const CorgiTensor *t = corgi_find_tensor(&m->file, "beside");
    return t == NULL ? 0 : require_tensor(m, "beside", 8, Max(t->rows, 2), m->width + 1)->rows;
}

/* Read the training state, see corgi_get_learnt. */
static void read_learnt(Import *m)
{
    int64 line = m->width + 1;
    const CorgiTensor *center = require_tensor(m, "center", 8, 0, m->width),
                      *scale = require_tensor(m, "scale", 8, 0, m->width);
    const CorgiTensor *coef = require_tensor(m, "learnt_coef", m->bytes, m->outputs, m->width);
    const CorgiTensor *intercept = require_tensor(m, "learnt_intercept", m->bytes, 0, m->outputs);
    const CorgiTensor *beside = corgi_find_tensor(&m->file, "beside");
    int64 lines = state_rows(m);
    m->learnt = corgi_make_doubles(2, m->outputs + 2 + lines, line);
    double *to = (double *) ARR_DATA_PTR(m->learnt);
    corgi_take_numbers(center, 0, m->width, to);
    corgi_take_numbers(scale, 0, m->width, to + line);
    to[line - 1] = 0;
    to[2 * line - 1] = 1;
    for (int64 i = 0; i < m->width; i++)
        if (!(to[line + i] > 0))
            corgi_bad_content("tensor \"scale\" has a number that is not above 0");
    for (int64 k = 0; k < m->outputs; k++) {
        corgi_take_numbers(coef, k * m->width, m->width, to + (k + 2) * line);
        corgi_take_numbers(intercept, k, 1, to + (k + 3) * line - 1);
    }
    if (lines > 0) {
        const double *counts = to + (m->outputs + 1 + lines) * line; /* the last row, which starts with the rows seen */
        corgi_take_numbers(beside, 0, lines * line, to + (m->outputs + 2) * line);
        if (!(counts[0] >= 0 && counts[0] < 0x1p62))
            corgi_bad_content("tensor \"beside\" has no row count");
    }
}

static void read_arrays(Import *m)
{
    cp_loss_choice of = corgi_loss_of(m->kind, m->class_count);
    int64 learnt = m->file.count > 2 ? m->outputs + 2 + state_rows(m) : 0;
    int64 most = corgi_max_classes(m->kind);
    if (corgi_outputs(&of, m->class_count) * m->groups != m->outputs || m->class_count < Min(most, 2) ||
        m->class_count > most)
        corgi_bad_content("a %s model has " INT64_FORMAT " classes, " INT64_FORMAT " outputs%s", m->kind,
                          m->class_count, m->outputs,
                          m->groups == 1 ? "" : psprintf(" of " INT64_FORMAT " groups or labels", m->groups));
    corgi_check_weights(m->outputs, m->width, m->class_count, learnt);
    m->weights.coefficients = corgi_make_doubles(2, m->outputs, m->width);
    m->weights.intercepts = corgi_make_doubles(1, 0, m->outputs);
    corgi_take_numbers(corgi_find_tensor(&m->file, "coef"), 0, m->outputs * m->width,
                       (double *) ARR_DATA_PTR(m->weights.coefficients));
    corgi_take_numbers(require_tensor(m, "intercept", m->bytes, 0, m->outputs), 0, m->outputs,
                       (double *) ARR_DATA_PTR(m->weights.intercepts));
    if (learnt > 0)
        read_learnt(m);
}

static void read_params(Import *m)
{
    Oid types[] = {JSONBOID, TEXTOID, BOOLOID};
    const double *classes = (const double *) ARR_DATA_PTR(m->weights.classes);
    bool whole = true;
    Datum values[3];
    for (int64 i = 0; i < m->class_count; i++)
        whole &= classes[i] == floor(classes[i]) && fabs(classes[i]) <= 9007199254740992.0;
    values[0] = m->meta;
    values[1] = CStringGetTextDatum(m->bytes == 4 ? "real" : "double precision");
    values[2] = BoolGetDatum(whole);
    corgi_execute(params_query, lengthof(types), types, values, NULL, true);
    m->params = text_at(1);
}

static void read_content(Import *m, const bytea *content)
{
    m->file = corgi_read_tensors(VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content));
    m->meta = DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(m->file.meta)));
    read_shape(m);
    check_metadata(m);
    read_arrays(m);
    read_params(m);
}

/* Store the model and its epochs. Returns its version. */
static int64 store_import(const Import *m, const char *name, Oid user)
{
    CorgiRow row = {.name = name, .kind = m->kind, .params = m->params, .source = "imported", .user = user,
                    .width = m->width, .weights = m->weights, .learnt = m->learnt};
    Oid types[] = {TEXTOID, JSONBOID};
    Datum values[] = {CStringGetTextDatum(name), m->meta};
    bool null;
    CorgiCaller caller = corgi_become_owner();
    corgi_store_row(&row);
    corgi_execute(forget_query, 1, types, values, NULL, false);
    corgi_execute(history_query, 2, types, values, NULL, false);
    corgi_execute(version_query, 1, types, values, NULL, false);
    int64 version = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null));
    corgi_become_caller(caller);
    CommandCounterIncrement();
    PushActiveSnapshot(GetTransactionSnapshot()); /* sees what another session committed while this statement waited for
                                                   * it */
    (void) corgi_load_model(name, true); /* rejects a damaged model now rather than at its first use */
    PopActiveSnapshot();
    return version;
}

/* Return whether an error of a parser is about the content. */
static bool is_content(const ErrorData *e)
{
    int category = ERRCODE_TO_CATEGORY(e->sqlerrcode);
    return e->sqlerrcode != ERRCODE_INVALID_BINARY_REPRESENTATION &&
           (category == ERRCODE_DATA_EXCEPTION || e->sqlerrcode == ERRCODE_DATA_CORRUPTED ||
            e->sqlerrcode == ERRCODE_CHARACTER_NOT_IN_REPERTOIRE || e->sqlerrcode == ERRCODE_UNTRANSLATABLE_CHARACTER ||
            e->sqlerrcode == ERRCODE_STATEMENT_TOO_COMPLEX);
}

/* import(model, content): stores a file's model under a name, replacing an earlier one. Returns its version. */
Datum corgipile_import(PG_FUNCTION_ARGS)
{
    char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    MemoryContext outside = CurrentMemoryContext;
    Import m = {0};
    volatile int64 version = 0;
    Oid user = GetUserId();
    int path = corgi_enter_path();
    if (*name == '\0')
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("model must be a name of at least one "
                                                                        "character, got an empty one"));
    corgi_check_name(name, user, "corgipile.import");
    PG_TRY();
    {
        SPI_connect();
        read_content(&m, PG_GETARG_BYTEA_PP(1));
        version = store_import(&m, name, user);
        SPI_finish();
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(outside);
        ErrorData *e = CopyErrorData();
        if (!is_content(e))
            PG_RE_THROW();
        FlushErrorState();
        corgi_bad_content("%s", e->message);
    }
    PG_END_TRY();
    corgi_leave_path(path);
    PG_RETURN_INT64(version);
}
