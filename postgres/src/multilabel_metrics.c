/* Multilabel metrics: actual labels against predicted ones. */
#include "corgipile.h"

#include <math.h>

#include "sgd/state.h"

enum { MAX_LABEL_BYTES = 4 << 20, SCORES_PER_CALL = 1 << 17 }; /* of buffered rows' labels; per kernel call */

struct CorgiTruth {
    const CorgiModel *model;
    CorgiLearner *scorer;
    CorgiTags tags;         /* of the last row */
    uint8 *actual;           /* [rows][labels]: labels of the buffered rows */
    CorgiTally *tallies;    /* [labels] */
    cp_sgd_totals *totals;  /* [labels] */
    double *scores;
    double right;           /* weight of rows whose labels are all right */
};

/* Refuse labels of another type, or a number of columns other than the labels'. */
static void check_columns(const CorgiModel *m, const char *name, const CorgiSource *s)
{
    if (!s->labels->list && s->label_columns != m->labels->count)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("there are %d columns of labels; model \"%s\" has " INT64_FORMAT " labels", s->label_columns,
                       name, m->labels->count));
    if (s->labels->list && corgi_is_text(s->labels->type) == m->whole)
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                errmsg("label column \"%s\" has %s; the labels of model \"%s\" are %s", s->labels->name,
                       m->whole ? "text" : "whole numbers", name, m->whole ? "whole numbers" : "text"));
}

CorgiTruth *corgi_make_truth(const CorgiModel *m, const char *name, const CorgiSource *source)
{
    CorgiTruth *t = palloc0(sizeof *t);
    check_columns(m, name, source);
    t->model = m;
    t->scorer = corgi_model_learner(m, source->sparse);
    t->tags = corgi_make_tags();
    t->actual = MemoryContextAllocHuge(CurrentMemoryContext, (Size) (corgi_truth_rows(t) * m->outputs));
    t->tallies = palloc_extended(sizeof *t->tallies * (Size) m->outputs, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    t->totals = palloc_extended(sizeof *t->totals * (Size) m->outputs, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 k = 0; k < m->outputs; k++)
        t->totals[k].ln = 1;
    t->scores = MemoryContextAllocHuge(CurrentMemoryContext,
                                       sizeof *t->scores * (Size) Max((int64) SCORES_PER_CALL, m->outputs));
    return t;
}

/* Return the most rows that can be buffered. */
int64 corgi_truth_rows(const CorgiTruth *t) { return Max(MAX_LABEL_BYTES / t->model->outputs, 1); }

/* Record the labels of a buffered row. */
void corgi_note_truth(CorgiTruth *t, const CorgiSource *part, TupleTableSlot *row, int64 at)
{
    uint8 *actual = t->actual + at * t->model->outputs;
    corgi_read_tags(part, row, t->model->labels, true, &t->tags);
    memset(actual, 0, (Size) t->model->outputs);
    for (int64 i = 0; i < t->tags.count; i++)
        actual[t->tags.at[i]] = 1;
}

/* Count a row by its scores. */
static void count_row(CorgiTruth *t, int32 slot, const double *weight, const double *scores)
{
    const int64 labels = t->model->outputs;
    const uint8 *actual = t->actual + slot * labels;
    const double counts = weight ? *weight : 1;
    bool right = true;
    for (int64 k = 0; k < labels; k++) {
        CorgiTally *one = &t->tallies[k];
        const bool predicted = scores[k] > 0;
        corgi_add_score(t->model, scores[k], actual[k], weight, &t->totals[k]);
        one->rows += actual[k];
        one->hits += predicted && actual[k] ? counts : 0;
        one->predicted += predicted ? counts : 0;
        one->actual += actual[k] ? counts : 0;
        right &= predicted == (actual[k] != 0);
    }
    t->right += right ? counts : 0;
}

/* Raise an error about a row without a finite score. */
static void refuse_row(const CorgiRun *run, const CorgiTruth *t, int32 slot)
{
    const CorgiBuffer *b = &run->buffer;
    const char *values = run->source.sparse ? (const char *) (uintptr_t) b->values[slot] : b->x + slot * b->stride;
    const int64 count = run->source.sparse ? b->lengths[slot] : t->model->width;
    bool finite = true;
    for (int64 i = 0; i < count; i++)
        finite &=
            run->source.bytes == 4 ? isfinite(((const float *) values)[i]) : isfinite(((const double *) values)[i]);
    corgi_learner_refuse(run, finite ? CP_SGD_DIVERGED : CP_SGD_BAD_VALUE, slot);
}

/* Score some rows. Raises an error that names a refused row. */
static void score_batch(CorgiTruth *t, const CorgiRun *run, const int32 *visit, int64 count)
{
    const double *weight = run->buffer.weight;
    for (int64 i = 0; i < count && weight != NULL; i++)
        if (!(weight[visit[i]] >= 0 && isfinite(weight[visit[i]])))
            corgi_learner_refuse(run, CP_SGD_BAD_WEIGHT, visit[i]);
    if (corgi_learner_score_rows(t->scorer, run, visit, count, t->scores) != CP_SGD_OK)
        for (int64 i = 0; i < count; i++) {
            const int status = corgi_learner_score_rows(t->scorer, run, visit + i, 1, t->scores);
            if (status != CP_SGD_OK)
                corgi_learner_refuse(run, status, visit[i]);
        }
    for (int64 i = 0; i < count * t->model->outputs; i++)
        if (unlikely(!isfinite(t->scores[i])))
            refuse_row(run, t, visit[i / t->model->outputs]);
}

/* Count buffered rows. */
void corgi_evaluate_labels(CorgiTruth *t, const CorgiRun *run, const int32 *visit, int64 count)
{
    const int64 labels = t->model->outputs, most = Max(SCORES_PER_CALL / labels, 1);
    for (int64 from = 0; from < count; from += most) {
        const int64 some = Min(most, count - from);
        score_batch(t, run, visit + from, some);
        for (int64 i = 0; i < some; i++) {
            const int32 slot = visit[from + i];
            count_row(t, slot, run->buffer.weight ? &run->buffer.weight[slot] : NULL, t->scores + i * labels);
        }
    }
}

/* Return the means of loss and accuracy over labels. */
cp_figures corgi_truth_figures(const CorgiTruth *t)
{
    cp_figures all = {0};
    for (int64 k = 0; k < t->model->outputs; k++) {
        const cp_figures one = corgi_score_figures(t->model, &t->totals[k]);
        all.rows = one.rows;
        all.weight = one.weight;
        all.loss += one.loss;
        all.score += one.score;
    }
    all.loss /= (double) t->model->outputs;
    all.score /= (double) t->model->outputs;
    return all;
}

static double ratio(double part, double whole) { return whole == 0 ? NAN : part / whole; }

/* Compute precision, recall and F1; NaN if 0 / 0. */
void corgi_f1_metrics(const CorgiTally *t, double *figures)
{
    figures[0] = ratio(t->hits, t->predicted);
    figures[1] = ratio(t->hits, t->actual);
    figures[2] = ratio(2 * t->hits, t->predicted + t->actual);
}

const CorgiTally *corgi_truth_tallies(const CorgiTruth *t) { return t->tallies; }

/* Compute the share of rows whose labels are all right, then micro and macro averages of precision, recall and F1, in
 * which 0 / 0 counts as 0. */
void corgi_truth_metrics(const CorgiTruth *t, double weight, double *right, double *micro, double *macro)
{
    const int64 labels = t->model->outputs;
    CorgiTally all = {.rows = 0};
    *right = ratio(t->right, weight);
    for (int64 k = 0; k < labels; k++) {
        double figures[3];
        corgi_f1_metrics(&t->tallies[k], figures);
        for (int i = 0; i < lengthof(figures); i++)
            macro[i] += isnan(figures[i]) ? 0 : figures[i] / (double) labels;
        all.hits += t->tallies[k].hits;
        all.predicted += t->tallies[k].predicted;
        all.actual += t->tallies[k].actual;
    }
    corgi_f1_metrics(&all, micro);
    for (int i = 0; i < 3; i++)
        micro[i] = isnan(micro[i]) ? 0 : micro[i];
}
