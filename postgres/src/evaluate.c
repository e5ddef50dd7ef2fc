/* corgipile.evaluate and corgipile.evaluate_labels: mean metrics of a stored model. */
#include "corgipile.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "sgd/totals.h"

PG_FUNCTION_INFO_V1(corgipile_evaluate);
PG_FUNCTION_INFO_V1(corgipile_evaluate_labels);

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))

enum { COLUMNS = 8 };

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
    if (s->ranks != NULL)
        corgi_rank_row(s->ranks, label, weight, scores);
    if (!corgi_predicts_numbers(&s->model->of))
        return;
    double error = corgi_predicted_number(s->model, scores) - label;
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
    Datum values[COLUMNS];
    bool nulls[COLUMNS] = {false};
    char *name;
    if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
        elog(ERROR, "corgipile.evaluate returns a row");
    if (columns->natts != COLUMNS)
        corgi_refuse_version();
    CorgiModel *m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        PG_RETURN_NULL();
    sums.model = m;
    sums.ranks = m->classes == 2 && m->labels == NULL ? corgi_make_ranks(m, 1, !PG_ARGISNULL(PG_NARGS() - 1)) : NULL;
    cp_figures f =
        corgi_evaluate_rows(fcinfo, m, name, sums.ranks != NULL || corgi_predicts_numbers(&m->of) ? &sums.watch : NULL);
    fill_metrics(m, &f, &sums, values, nulls);
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(columns, values, nulls)));
}

/* evaluate_labels(model, ...): metrics of a multilabel model. */
Datum corgipile_evaluate_labels(PG_FUNCTION_ARGS)
{
    TupleDesc columns;
    CorgiWatch watch = {0};
    char *name;
    double figures[9] = {0};
    Datum values[10];
    bool nulls[10] = {false};
    if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE || columns->natts != lengthof(values))
        elog(ERROR, "corgipile.evaluate_labels returns a row of %d columns", (int) lengthof(values));
    CorgiModel *m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        PG_RETURN_NULL();
    if (m->labels == NULL)
        REFUSE("model \"%s\" is no multi-label model; use corgipile.evaluate", name);
    cp_figures f = corgi_evaluate_rows(fcinfo, m, name, &watch);
    figures[0] = f.loss;
    figures[1] = f.score;
    corgi_truth_metrics(watch.truth, f.weight, &figures[2], figures + 3, figures + 6);
    for (int i = 0; i < lengthof(figures); i++) {
        values[i] = Float8GetDatum(figures[i]);
        nulls[i] = f.rows == 0;
    }
    values[lengthof(figures)] = Int64GetDatum(f.rows);
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(columns, values, nulls)));
}
