/* corgipile.evaluate: a stored model measured on a table or on the rows of a query. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "sgd/totals.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(corgipile_evaluate);

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))

enum { MODEL, SOURCE, FEATURES, LABEL, QUERY, WHERE }; /* arguments */
enum { COLUMNS = 8 };

static char *text_argument(FunctionCallInfo fcinfo, int at)
{
    return PG_ARGISNULL(at) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(at));
}

/* Return the multilabel columns: one array column, or one per label. */
static List *label_columns(const CorgiOptions *o, const CorgiModel *m)
{
    List *columns = NIL;
    if (o->label != NULL)
        return list_make1((char *) o->label);
    for (int64 k = 0; k < m->labels->count; k++)
        columns = lappend(columns, m->labels->names[k].text);
    return columns;
}

/* Choose rows and columns to read; unnamed columns are those of training. */
static CorgiOptions evaluation_options(FunctionCallInfo fcinfo, const CorgiModel *m, const char *name)
{
    CorgiOptions o = {.kind = m->kind,
                      .of = m->of,
                      .features = m->features,
                      .label = m->label,
                      .encoding = m->encoding,
                      .query = text_argument(fcinfo, QUERY),
                      .by = corgi_group_column(m),
                      .where = text_argument(fcinfo, WHERE),
                      .weight = text_argument(fcinfo, PG_NARGS() - 1)};
    o.weight = o.weight ? o.weight : m->weight;
    corgi_check_rows(PG_ARGISNULL(SOURCE), o.query, o.where);
    o.source = PG_ARGISNULL(SOURCE) ? InvalidOid : PG_GETARG_OID(SOURCE);
    if (!PG_ARGISNULL(FEATURES))
        o.features =
            corgi_read_names(PG_GETARG_DATUM(FEATURES), get_fn_expr_argtype(fcinfo->flinfo, FEATURES), "features");
    if (!PG_ARGISNULL(LABEL))
        o.label = text_argument(fcinfo, LABEL);
    if (m->labels != NULL) {
        o.labels = label_columns(&o, m);
        o.label = corgi_name_of_sets(o.labels);
    }
    if (o.features == NIL || o.label == NULL)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("the params of model \"%s\" do not name its training columns", name),
                errhint("Give features and label."));
    return o;
}

/* Set the width and precision of the rows to the model's. */
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

/* Load the model of a call; NULL if its name is NULL. */
CorgiModel *corgi_model_to_evaluate(FunctionCallInfo fcinfo, char **name)
{
    if (PG_ARGISNULL(MODEL))
        return NULL;
    *name = text_argument(fcinfo, MODEL);
    corgi_find_model(*name, CORGI_USE);
    return corgi_load_model(*name, true);
}

/* Refuse models that predict numbers and multilabel models. */
void corgi_need_classes(const CorgiModel *m, const char *name, const char *what)
{
    if (m->labels != NULL)
        corgi_require_single(m, name, psprintf("corgipile.%s uses", what));
    if (corgi_predicts_numbers(&m->of))
        REFUSE("model \"%s\" is of kind %s and predicts numbers; corgipile.%s needs a classifier", name, m->kind, what);
}

/* Measure a model on the rows of a call. `watch`, unless NULL, observes each row. */
cp_figures corgi_evaluate_rows(FunctionCallInfo fcinfo, CorgiModel *m, const char *name, CorgiWatch *watch)
{
    CorgiRun run = {.options = evaluation_options(fcinfo, m, name), .watch = watch};
    CorgiLearner *evaluator;
    cp_figures figures;
    if (run.options.query != NULL)
        corgi_open_query(&run);
    corgi_open_source(&run.source, &run.options);
    corgi_open_where(&run);
    fit_source(&run, m, name);
    if (m->groups > 0)
        run.stack = corgi_make_evaluation_stack(m, name, run.source.sparse);
    else if (m->labels != NULL)
        run.truth = corgi_make_truth(m, name, &run.source);
    else if (watch != NULL)
        watch->scorer = corgi_model_learner(m, run.source.sparse);
    if (watch != NULL)
        watch->truth = run.truth;
    evaluator = run.stack || run.truth ? NULL : corgi_model_learner(m, run.source.sparse);
    figures = corgi_measure(&run, evaluator, false, run.snapshot ? run.snapshot : GetActiveSnapshot());
    corgi_check_weight(&figures, "the evaluated rows");
    corgi_close_source(&run.source);
    corgi_close_query(&run);
    return figures;
}

/* Sums that evaluate accumulates itself. */
typedef struct {
    CorgiWatch watch;
    const CorgiModel *model;
    CorgiRanks *ranks;      /* of a binary classifier */
    double squares, absolutes;  /* weighted error sums of a regressor */
} Sums;

static void add_row(CorgiWatch *w, double label, double weight, const double *scores)
{
    Sums *s = (Sums *) w;
    double error;
    if (s->ranks != NULL)
        corgi_rank_row(s->ranks, label, weight, scores);
    if (!corgi_predicts_numbers(&s->model->of))
        return;
    error = corgi_predicted_number(s->model, scores) - label;
    s->squares += weight * (error * error);
    s->absolutes += weight * fabs(error);
}

static void fill_metrics(const CorgiModel *m, const cp_figures *f, const Sums *s, Datum *values, bool *nulls)
{
    bool numbers = corgi_predicts_numbers(&m->of), none = f->rows == 0;
    double area = 0;
    nulls[0] = none;
    nulls[1] = none || numbers;
    nulls[2] = none || !numbers;
    nulls[4] = s->ranks == NULL || !corgi_auc(s->ranks, &area);
    nulls[5] = none || !cp_losses[m->of.loss].probability || cp_losses[m->of.loss].rest;
    nulls[6] = nulls[7] = none || !numbers;
    values[0] = values[5] = Float8GetDatum(f->loss);
    values[1] = values[2] = Float8GetDatum(f->score);
    values[3] = Int64GetDatum(f->rows);
    values[4] = Float8GetDatum(area);
    values[6] = Float8GetDatum(none ? 0 : sqrt(s->squares / f->weight));
    values[7] = Float8GetDatum(none ? 0 : s->absolutes / f->weight);
}

Datum corgipile_evaluate(PG_FUNCTION_ARGS)
{
    TupleDesc columns;
    Sums sums = {.watch = {.row = add_row}};
    CorgiModel *m;
    cp_figures f;
    Datum values[COLUMNS];
    bool nulls[COLUMNS] = {false};
    char *name;
    if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "corgipile.evaluate returns a row");
    if (columns->natts != COLUMNS)
        corgi_refuse_version();
    m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        PG_RETURN_NULL();
    sums.model = m;
    sums.ranks = m->classes == 2 && m->labels == NULL ? corgi_make_ranks(m, 1, !PG_ARGISNULL(PG_NARGS() - 1)) : NULL;
    f = corgi_evaluate_rows(fcinfo, m, name, sums.ranks != NULL || corgi_predicts_numbers(&m->of) ? &sums.watch : NULL);
    fill_metrics(m, &f, &sums, values, nulls);
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(columns, values, nulls)));
}
