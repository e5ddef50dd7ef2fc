/* Early stopping: the weights of the epoch with the least validation loss, which predict if patience is set. */
#include "learning.h"


enum { HELD_LOSS = 3 }; /* index in a model's figures */

struct CorgiBest {
    int64 epoch;            /* -1: none yet */
    double loss;
    double *weights;        /* [outputs][width], then [outputs] intercepts, for unscaled rows */
};

static int64 outputs_of(const CorgiRun *run) { return corgi_outputs(&run->options.of, run->survey.class_count); }

/* Return the validation loss of an earlier model's epoch; infinite if unknown. */
static double past_loss(const CorgiModel *past, int64 epoch)
{
    Datum *values;
    bool *nulls;
    int count = corgi_elements(past->figures[HELD_LOSS], &values, &nulls);
    return epoch < count && !nulls[epoch] ? DatumGetFloat8(values[epoch]) : INFINITY;
}

/* Start tracking the best epoch if patience is set, from a warm start's best epoch if any. */
void corgi_begin_best(CorgiRun *run)
{
    const CorgiModel *past = run->past;
    int64 outputs = outputs_of(run), count = outputs * run->survey.width;
    if (run->options.patience == 0)
        return;
    if (run->survey.held == 0)
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
                errmsg("holdout %g leaves out none of " INT64_FORMAT " rows, so early stopping has no validation "
                                                                     "rows",
                       run->options.holdout, run->survey.rows));
    run->best = palloc(sizeof *run->best);
    *run->best = (struct CorgiBest){-1, INFINITY};
    run->best->weights = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(double) * (Size) (count + outputs));
    if (past == NULL || past->best < 0 || past->best >= past->epochs)
        return;
    run->best->epoch = past->best;
    run->best->loss = past_loss(past, past->best);
    memcpy(run->best->weights, past->coefficients, sizeof(double) * (Size) count);
    memcpy(run->best->weights + count, past->intercepts, sizeof(double) * (Size) outputs);
}

/* Store the weights if they are the best so far. Returns whether patience is exhausted. */
bool corgi_note_best(CorgiRun *run, CorgiLearner *learner, int64 epoch, const cp_figures *held)
{
    struct CorgiBest *best = run->best;
    if (best == NULL)
        return false;
    if (best->epoch < 0 || held->loss < best->loss) {
        best->epoch = epoch;
        best->loss = held->loss;
        corgi_get_folded(run, learner, best->weights, best->weights + outputs_of(run) * run->survey.width);
    }
    return epoch - best->epoch >= run->options.patience;
}

int64 corgi_best_epoch(const CorgiRun *run) { return run->best->epoch; }

/* Copy the predicting weights, for unscaled rows. */
void corgi_get_predictor(const CorgiRun *run, CorgiLearner *learner, double *coefficients, double *intercepts)
{
    int64 outputs = outputs_of(run), count = outputs * run->survey.width;
    if (run->best == NULL || run->best->epoch < 0) {
        corgi_get_folded(run, learner, coefficients, intercepts);
        return;
    }
    memcpy(coefficients, run->best->weights, sizeof(double) * (Size) count);
    memcpy(intercepts, run->best->weights + count, sizeof(double) * (Size) outputs);
}
