/* corgipile.export: a stored model as the bytes of a model file. */
#include "models.h"
#include "safetensors.h"

#include "fmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(corgipile_export);

/* Query for the metadata, as Model.save writes it. This file's functions run with a trusted search path and full float
 * digits. */
#define FIGURE(name, column) "'" name "', CASE WHEN pg_catalog.abs(" column ") < 'Infinity' THEN " column " END"
static const char *const meta_query =
    "SELECT json_build_object('format', 1, 'kind', kind, "
    "'classes', CASE WHEN named THEN params #> '{encoding,label,values}' "
    "WHEN params ->> 'class_type' = 'bool' THEN (SELECT jsonb_agg(c <> 0 ORDER BY c) FROM unnest(classes) c) "
    "ELSE to_jsonb(classes) END, "
    "'class_type', coalesce(params ->> 'class_type', CASE WHEN named THEN 'str' WHEN whole THEN 'int64' "
    "ELSE 'float64' END), 'params', params - 'imported' - 'numbers' - 'class_type', 'history', coalesce((SELECT "
    "json_agg(jsonb_strip_nulls(jsonb_build_object('epoch', epoch, 'loss', loss, " FIGURE("accuracy", "accuracy") ", "
    FIGURE("r2", "r2") ", 'rows', rows, 'seconds', seconds, " FIGURE("test_loss", "holdout_loss") ", "
    FIGURE("test_accuracy", "holdout_accuracy") ", " FIGURE("test_r2", "holdout_r2") ")) "
    "|| coalesce(params #> ARRAY['imported', 'records', epoch::text], '{}') ORDER BY epoch) "
    "FROM corgipile.history WHERE model = name), '[]'))::text "
    "FROM corgipile.models, LATERAL (SELECT params @? '$.encoding.label.values[0] ? (@.type() == \"string\")' AS "
    "named, "
    "(SELECT coalesce(bool_and(c = floor(c) AND abs(c) <= 9007199254740992), true) FROM unnest(classes) c) AS whole) f "
    "WHERE name = $1";

/* Return the metadata of the visible model, in the current memory context. */
static char *meta_of(const char *name)
{
    MemoryContext context = CurrentMemoryContext;
    CorgiCaller caller = corgi_open_tables();
    if (corgi_execute_for(meta_query, name, true) != 1)
        elog(ERROR, "reading corgipile.models failed");
    char *meta = corgi_text_at(1, context);
    corgi_close_tables(caller);
    return meta;
}

/* export(model): the bytes of a file that Python loads. */
Datum corgipile_export(PG_FUNCTION_ARGS)
{
    char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    CorgiOutput outputs[7];
    int count = 0;
    corgi_find_model(name, CORGI_READ);
    const CorgiModel *m = corgi_load_model(name, true);
    int64 line = m->width + 1;
    int64 rows = m->outputs * Max(m->groups, 1);
    if (m->learnt != NULL) { /* 8-byte tensors first, so that all numbers are aligned */
        outputs[count++] = (CorgiOutput){"center", 8, 0, m->width, m->learnt, line};
        outputs[count++] = (CorgiOutput){"scale", 8, 0, m->width, m->learnt + line, line};
        if (m->beside > 0)
            outputs[count++] = (CorgiOutput){"beside", 8, m->beside, line, m->learnt + (rows + 2) * line, line};
    }
    outputs[count++] = (CorgiOutput){"coef", m->bytes, rows, m->width, m->coefficients, m->width};
    outputs[count++] = (CorgiOutput){"intercept", m->bytes, 0, rows, m->intercepts, rows};
    if (m->learnt != NULL) {
        double *constants = palloc(sizeof *constants * (Size) rows);
        for (int64 k = 0; k < rows; k++)
            constants[k] = m->learnt[(k + 3) * line - 1];
        outputs[count++] = (CorgiOutput){"learnt_coef", m->bytes, rows, m->width, m->learnt + 2 * line, line};
        outputs[count++] = (CorgiOutput){"learnt_intercept", m->bytes, 0, rows, constants, rows};
    }
    PG_RETURN_BYTEA_P(corgi_write_tensors(meta_of(name), outputs, count));
}
