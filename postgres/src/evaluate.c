/* corgipile.evaluate: a stored model measured on a table. */
#include "corgipile.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(corgipile_evaluate);

/* Say which columns to read: those that are named, else those of training. */
static CorgiOptions choose(FunctionCallInfo fcinfo, const CorgiModel *m, const char *name)
{
    bool one = get_fn_expr_argtype(fcinfo->flinfo, 2) == TEXTOID;
    CorgiOptions o = {.source = PG_GETARG_OID(1), .kind = m->kind, .of = m->of, .features = m->features,
                      .label = m->label, .encoding = m->encoding};
    if (!PG_ARGISNULL(2))
        o.features = corgi_feature_names(PG_GETARG_DATUM(2), one);
    if (!PG_ARGISNULL(3))
        o.label = text_to_cstring(PG_GETARG_TEXT_PP(3));
    if (o.features == NIL || o.label == NULL)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("the params of model \"%s\" do not name the columns it was trained on", name),
                errhint("Give features and label."));
    return o;
}

/* Read rows as the model has them: so many numbers, real or double precision. */
static void fit_source(CorgiRun *run, const CorgiModel *m, const char *name)
{
    CorgiSource *s = &run->source;
    if (!s->features->list && corgi_scalar_width(s) != m->width)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("there are %d feature columns; model \"%s\" was trained with " INT64_FORMAT " features",
                       s->feature_columns, name, m->width));
    run->survey.width = m->width;
    s->bytes = m->bytes;
    for (int i = 0; i < s->part_count; i++)
        s->parts[i].bytes = m->bytes;
}

Datum corgipile_evaluate(PG_FUNCTION_ARGS)
{
    TupleDesc columns;
    CorgiRun run = {0};
    CorgiModel *m;
    cp_figures f;
    Datum values[4];
    bool nulls[4] = {false};
    char *name;
    if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
        PG_RETURN_NULL();
    if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "corgipile.evaluate returns a row");
    name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    corgi_find_model(name, CORGI_USE);
    m = corgi_load_model(name, true);
    run.options = choose(fcinfo, m, name);
    corgi_open_source(&run.source, &run.options);
    fit_source(&run, m, name);
    f = corgi_measure(&run, corgi_model_learner(m, run.source.sparse), false, GetActiveSnapshot());
    corgi_close_source(&run.source);
    values[0] = Float8GetDatum(f.loss);
    values[1] = values[2] = Float8GetDatum(f.score);
    values[3] = Int64GetDatum(f.rows);
    nulls[0] = f.rows == 0;
    nulls[1] = f.rows == 0 || corgi_predicts_numbers(&m->of);
    nulls[2] = f.rows == 0 || !corgi_predicts_numbers(&m->of);
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(columns, values, nulls)));
}
