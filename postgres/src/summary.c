/* corgipile.summary: standard errors of coefficients from one pass over the rows, as corgipile.linear.standard_errors
 * computes them.
 * Sandwich estimator: the inverse of H (second derivatives of the loss) and G (outer products of row gradients). Sums
 * are per class, so that class weights can be applied afterwards. */
#include "learning.h"
#include "metrics.h"
#include "symmetric.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "io/gather.h"
#include "miscadmin.h"
#include "sgd/totals.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(corgipile_summary);

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))
#define NORMAL_95 1.959963984540054
#define MAX_MARGIN 700 /* margin */

enum { MAX_FEATURES = 1024, SIDES = 2 };

/* Sums over the rows of a class, or over all rows. */
typedef struct {
    double *curves, *products; /* [n][n], lower halves: second derivatives, gradient products */
    double *gradient;       /* [n] */
    double weight;
    int64 rows;
} Sums;

typedef struct {
    CorgiWatch watch;
    const CorgiModel *model;
    Sums sums[SIDES];
    int64 n;                /* features, then the intercept */
    bool intercept, dual;   /* dual: the penalty included the intercept */
    double l2, *row;        /* row: [n], a row's features and 1 */
    char **names;           /* [n], after the first row */
    char *class_weight;     /* as given; NULL: 1 */
    MemoryContext memory;   /* owner of all of it */
} Summary;

/* Read the model's training parameters. */
static void read_params(Summary *s, CorgiModel *m, const char *name)
{
    static const char *const query =
        "SELECT p operator(pg_catalog.->>) 'l2', p operator(pg_catalog.->>) 'l1', p operator(pg_catalog.->>) "
        "'max_norm', p operator(pg_catalog.->>) 'intercept', p operator(pg_catalog.->>) 'weight', "
        "p operator(pg_catalog.->>) 'class_weight', p operator(pg_catalog.->>) 'solver' FROM (SELECT params AS p "
        "FROM corgipile.models WHERE name operator(pg_catalog.=) $1) AS q";
    MemoryContext outside = CurrentMemoryContext;
    CorgiCaller caller = corgi_open_tables();
    char *params[7];
    if (corgi_execute_for(query, name, true) == 0)
        elog(ERROR, "reading corgipile.models failed");
    for (int i = 0; i < lengthof(params); i++)
        params[i] = corgi_text_at(i + 1, outside);
    corgi_close_tables(caller);
    if (params[1] != NULL && strtod(params[1], NULL) > 0)
        REFUSE("weights under an L1 penalty have no standard errors; train with l1 => 0");
    if (params[2] != NULL)
        REFUSE("weights at their bound have no standard errors; train with max_norm => NULL");
    s->l2 = params[0] ? strtod(params[0], NULL) : 0;
    s->intercept = params[3] == NULL || strcmp(params[3], "false") != 0;
    m->weight = params[4];
    s->class_weight = params[5];
    s->dual = params[6] != NULL && strcmp(params[6], "dual") == 0;
}

static void check_kind(const CorgiModel *m)
{
    if (m->of.loss != CP_LOGISTIC && m->of.loss != CP_SQUARED && m->of.loss != CP_POISSON)
        REFUSE("standard errors need a model of kind logistic, linear, poisson, got %s", m->kind);
    if (m->width > MAX_FEATURES)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("standard errors need at most %d features, got " INT64_FORMAT, MAX_FEATURES, m->width));
}

/* Return a feature's name, with the value of a category. */
static char *feature_name(const CorgiSource *source, int64 i)
{
    for (int k = 0; source->encoded && !source->features->list && k < source->feature_columns; k++) {
        const CorgiEncoder *e = source->features[k].encoder;
        if (e != NULL && e->way == CORGI_ONEHOT && i < e->width)
            return e->values != NULL && i < e->values->count ? psprintf("%s=%s", e->column, e->values->names[i].text)
                                                             : psprintf("%s missing", e->column);
        if (i < (e ? e->width : 1))
            return e != NULL && e->width > 1 ? psprintf("%s[" INT64_FORMAT "]", e->column, i + 1)
                                             : pstrdup(source->features[k].name);
        i -= e ? e->width : 1;
    }
    return source->features->list || source->sparse ? psprintf("%s[" INT64_FORMAT "]", source->features->name, i + 1)
                                                    : pstrdup(source->features[i].name);
}

static void name_features(Summary *s, const CorgiSource *source)
{
    MemoryContext outside = MemoryContextSwitchTo(s->memory);
    s->names = palloc(sizeof *s->names * (Size) s->n);
    for (int64 i = 0; i < s->model->width; i++)
        s->names[i] = feature_name(source, i);
    if (s->intercept)
        s->names[s->model->width] = "(intercept)";
    MemoryContextSwitchTo(outside);
}

/* Copy a slot's features as doubles, and append the intercept's 1. */
static void copy_row(Summary *s, const CorgiRun *run, int32 slot)
{
    const CorgiBuffer *b = &run->buffer;
    enum cp_type type = run->source.bytes == sizeof(double) ? CP_F64 : CP_F32;
    int64 width = s->model->width;
    if (run->source.sparse) {
        const int32 *index = (const int32 *) (uintptr_t) b->indices[slot];
        double *values = palloc(sizeof *values * (Size) Max(b->lengths[slot], 1));
        cp_cast((char *) values, 1, (const char *) (uintptr_t) b->values[slot], type, b->lengths[slot]);
        memset(s->row, 0, sizeof *s->row * (Size) width);
        for (int64 i = 0; i < b->lengths[slot]; i++)
            s->row[index[i]] = values[i];
        pfree(values);
    } else
        cp_cast((char *) s->row, 1, b->x + (int64) slot * b->stride, type, width);
    if (s->intercept)
        s->row[width] = 1;
}

static void add_row(CorgiWatch *w, const CorgiRun *run, int32 slot, double label, double weight)
{
    Summary *s = (Summary *) w;
    const CorgiModel *m = s->model;
    bool second = m->of.loss == CP_LOGISTIC && label == m->class_values[1];
    Sums *to = &s->sums[second];
    double margin = m->intercepts[0], mean, slope, curve;
    copy_row(s, run, slot);
    for (int64 i = 0; i < m->width; i++)
        margin += m->coefficients[i] * s->row[i];
    if (m->of.loss == CP_LOGISTIC) {
        mean = 1 / (1 + cp_exp(-Max(Min(margin, MAX_MARGIN), -MAX_MARGIN)));
        slope = mean - second;
        curve = mean * (1 - mean);
    } else {
        mean = m->of.loss == CP_POISSON ? cp_exp(Max(Min(margin, MAX_MARGIN), -MAX_MARGIN)) : margin;
        slope = mean - label;
        curve = m->of.loss == CP_POISSON ? mean : 1;
    }
    curve *= weight;
    slope *= weight;
    for (int64 i = 0; i < s->n; i++) {
        double bend = curve * s->row[i], square = slope * slope * s->row[i];
        double *curves = to->curves + i * s->n, *products = to->products + i * s->n;
        if (s->row[i] == 0)
            continue;
        to->gradient[i] += slope * s->row[i];
        for (int64 j = 0; j <= i; j++) {
            curves[j] += bend * s->row[j];
            products[j] += square * s->row[j];
        }
    }
    to->weight += weight;
    to->rows++;
    if (to->rows % 4096 == 0)
        CHECK_FOR_INTERRUPTS();
    if (s->names == NULL)
        name_features(s, &run->source);
}

/* Add the second class's sums to the first's, both with class weights. */
static void combine_classes(Summary *s)
{
    Sums *a = &s->sums[0], *b = &s->sums[1];
    double by[SIDES] = {1, 1};
    if (s->class_weight != NULL)
        corgi_weights_of(s->model, s->class_weight, (int64[SIDES]){a->rows, b->rows}, by);
    for (int64 i = 0; i < s->n * s->n; i++) {
        a->curves[i] = by[0] * a->curves[i] + (b->curves ? by[1] * b->curves[i] : 0);
        a->products[i] = by[0] * by[0] * a->products[i] + (b->curves ? by[1] * by[1] * b->products[i] : 0);
    }
    for (int64 i = 0; i < s->n; i++)
        a->gradient[i] = by[0] * a->gradient[i] + (b->curves ? by[1] * b->gradient[i] : 0);
    a->weight = by[0] * a->weight + by[1] * b->weight;
    a->rows += b->rows;
}

/* Refuse a singular matrix, and name the features involved. */
static void refuse_singular(const Summary *s, const double *share, const char *why)
{
    StringInfoData list;
    double most = 0;
    int named = 0;
    initStringInfo(&list);
    for (int64 i = 0; i < s->n; i++)
        most = Max(most, fabs(share[i]));
    for (int64 i = 0; i < s->n && named < 10; i++)
        if (fabs(share[i]) > most / 10)
            appendStringInfo(&list, "%s\"%s\"", named++ ? ", " : "", s->names[i]);
    ereport(ERROR, errcode(ERRCODE_DATA_EXCEPTION), errmsg("the information matrix is singular: %s %s", list.data, why),
            errhint("Leave one of them out."));
}

/* Add the L2 penalty: on weights of standardised features if training used them. The dual solver also penalised the
 * intercept, of the features as trained. */
static void add_penalty(Summary *s)
{
    const CorgiModel *m = s->model;
    Sums *a = &s->sums[0];
    int64 width = m->width;
    const double *center = m->learnt, *scale = m->learnt ? m->learnt + width + 1 : NULL;
    double strength = s->l2 * (double) a->rows, shifted = m->intercepts[0];
    for (int64 i = 0; i < width; i++) {
        double own = strength * (scale ? scale[i] * scale[i] : 1);
        a->curves[i * s->n + i] += own;
        a->gradient[i] += own * m->coefficients[i];
        shifted += center ? center[i] * m->coefficients[i] : 0;
    }
    for (int64 i = 0; s->dual && s->intercept && i < s->n; i++) {
        double by = strength * (i == width ? 1 : center ? center[i] : 0);
        a->gradient[i] += by * shifted;
        for (int64 j = 0; j <= i; j++)
            a->curves[i * s->n + j] += by * (j == width ? 1 : center ? center[j] : 0);
    }
}

/* Add the penalty and factor the matrix of second derivatives. */
static CorgiSymmetric factor_matrix(Summary *s)
{
    CorgiSymmetric h = {.at = s->sums[0].curves, .n = s->n, .size = palloc(sizeof(double) * (Size) s->n),
                        .order = palloc(sizeof(int64) * (Size) s->n)};
    double *share = palloc0(sizeof *share * (Size) s->n);
    bool flat = false;
    add_penalty(s);
    for (int64 i = 0; i < h.n; i++) {
        share[i] = !(h.at[i * h.n + i] > 0 && isfinite(h.at[i * h.n + i]));
        flat |= share[i] != 0;
    }
    if (flat)
        refuse_singular(s, share, "do not vary in the rows");
    corgi_factor(&h);
    if (h.rank < h.n) {
        corgi_null_vector(&h, share);
        refuse_singular(s, share, "are sums of each other, or constant");
    }
    return h;
}

/* Return the variance of a coefficient: a row of the inverse, squared by the gradient products. */
static double variance(const Sums *a, const double *line, int64 n)
{
    double sum = 0;
    for (int64 i = 0; i < n; i++) {
        double part = a->products[i * n + i] * line[i] / 2;
        for (int64 j = 0; j < i; j++)
            part += a->products[i * n + j] * line[j];
        sum += 2 * part * line[i];
    }
    return sum;
}

/* Return a coefficient's row: its standard error, and the size of a Newton step in standard errors. */
static void put_coefficient(const Summary *s, int64 i, double error, double step, ReturnSetInfo *result)
{
    double coefficient = i < s->model->width ? s->model->coefficients[i] : s->model->intercepts[0],
           z = coefficient / error;
    bool nulls[8] = {[3] = error == 0, [4] = error == 0, [7] = error == 0};
    Datum values[8] = {CStringGetTextDatum(s->names[i]), Float8GetDatum(coefficient), Float8GetDatum(error),
                       Float8GetDatum(z), Float8GetDatum(erfc(fabs(z) / sqrt(2))),
                       Float8GetDatum(coefficient - NORMAL_95 * error), Float8GetDatum(coefficient + NORMAL_95 * error),
                       Float8GetDatum(fabs(step) / error)};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void put_coefficients(Summary *s, ReturnSetInfo *result)
{
    CorgiSymmetric h = factor_matrix(s);
    double *room = palloc(sizeof *room * (Size) h.n), *step = palloc(sizeof *step * (Size) h.n),
           *line = palloc(sizeof *line * (Size) h.n), *unit = palloc0(sizeof *unit * (Size) h.n);
    corgi_solve(&h, s->sums[0].gradient, step, room);
    for (int64 i = 0; i < h.n; i++) {
        CHECK_FOR_INTERRUPTS();
        unit[i] = 1;
        corgi_solve(&h, unit, line, room);
        unit[i] = 0;
        put_coefficient(s, i, sqrt(Max(variance(&s->sums[0], line, h.n), 0)), step[i], result);
    }
}

/* summary(model, ...): one row per coefficient, the intercept last. */
Datum corgipile_summary(PG_FUNCTION_ARGS)
{
    ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
    Summary s = {.watch = {.slot = add_row}, .memory = CurrentMemoryContext};
    char *name;
    InitMaterializedSRF(fcinfo, 0);
    CorgiModel *m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        return (Datum) 0;
    corgi_find_model(name, CORGI_READ);
    corgi_require_single(m, name, "standard errors use");
    check_kind(m);
    read_params(&s, m, name);
    s.model = m;
    s.n = m->width + s.intercept;
    s.row = palloc(sizeof *s.row * (Size) s.n);
    for (int i = 0; i < (m->of.loss == CP_LOGISTIC ? SIDES : 1); i++) {
        s.sums[i].curves = palloc0(sizeof(double) * (Size) (s.n * s.n));
        s.sums[i].products = palloc0(sizeof(double) * (Size) (s.n * s.n));
        s.sums[i].gradient = palloc0(sizeof(double) * (Size) s.n);
    }
    (void) corgi_evaluate_rows(fcinfo, m, name, &s.watch);
    combine_classes(&s);
    if (s.sums[0].rows == 0 || !(s.sums[0].weight > 0))
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND), errmsg("there are no rows with a weight above 0"));
    put_coefficients(&s, result);
    return (Datum) 0;
}
