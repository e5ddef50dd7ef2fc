/* The SGD kernel (kernel/sgd/sgd.h) with the server's memory and errors. */
#include "learning.h"

#include "sgd/baseline.h"
#include "sgd/evaluate.h"
#include "sgd/multi_model.h"

enum { NUMBERS_PER_CHECK = 1 << 22 }; /* numbers read between two checks for a cancel request */

struct CorgiLearner {
    cp_sgd *state;
    int64 rows;             /* training rows; 0: scores only */
    bool watched;             /* watches for a diverging rate */
    bool counts_labels;            /* counts labels for that */
    cp_untrained untrained;
};

static CorgiLearner *make_learner(const cp_sgd_shape *shape)
{
    CorgiLearner *m = palloc0(sizeof *m);
    Size size = cp_sgd_size(shape);
    char *memory = MemoryContextAllocHuge(CurrentMemoryContext, size + CP_LINE);
    m->state = (cp_sgd *) TYPEALIGN(CP_LINE, memory);
    memset(m->state, 0, size);
    cp_sgd_init(m->state, shape);
    m->rows = shape->rows;
    return m;
}

/* Return a learner that only scores and measures rows. */
CorgiLearner *corgi_learner(cp_loss_choice of, int bytes, bool sparse, int64 width, int64 outputs,
                            const double *classes)
{
    cp_sgd_shape shape = {.loss = of.loss,
                          .parameter = of.parameter,
                          .bytes = bytes,
                          .sparse = sparse,
                          .intercept = 1,
                          .isa = -1,
                          .features = width,
                          .outputs = outputs,
                          .batch = 1,
                          .classes = classes};
    return make_learner(&shape);
}

/* Return a learner that measures what another one of the run has learnt. */
CorgiLearner *corgi_evaluation_learner(const CorgiRun *run)
{
    const CorgiSurvey *v = &run->survey;
    cp_loss_choice of = run->options.of;
    int64 outputs = corgi_outputs(&of, v->class_count);
    return corgi_learner(of, run->source.bytes, run->source.sparse, v->width, outputs, v->classes);
}

static cp_sgd_shape kernel_shape(const CorgiRun *run)
{
    const CorgiOptions *o = &run->options;
    const CorgiSurvey *v = &run->survey;
    return (cp_sgd_shape){.loss = o->of.loss,
                          .parameter = o->of.parameter,
                          .bytes = run->source.bytes,
                          .sparse = run->source.sparse,
                          .intercept = o->intercept,
                          .isa = -1,
                          .features = v->width,
                          .outputs = corgi_outputs(&o->of, v->class_count),
                          .batch = o->batch,
                          .l2 = o->l2,
                          .average = o->average,
                          .step = o->step,
                          .l1 = o->l1,
                          .max_norm = o->max_norm,
                          .classes = v->classes,
                          .class_weight = v->class_weight};
}

/* Return a learner for `rows` training rows. */
CorgiLearner *corgi_learner_for(const CorgiRun *run, int64 rows)
{
    cp_sgd_shape shape = kernel_shape(run);
    shape.rows = rows;
    return make_learner(&shape);
}

/* Return the share of buffer_size that a model takes: for hashed features, whose number is independent of the rows, the
 * largest optimizer state and the saved copy, as Python counts it; otherwise 0. */
int64 corgi_learner_bytes(const CorgiRun *run)
{
    cp_sgd_shape shape = kernel_shape(run);
    if (corgi_hashing(&run->source) == NULL)
        return 0;
    shape.step = CP_STEP_AUTO;
    shape.l1 = shape.max_norm = 0;
    cp_sgd layout = cp_sgd_layout(&shape);
    return (int64) layout.size +
           shape.features *
               (shape.outputs * 2 * shape.bytes + cp_sgd_optimizer_lines(&layout) * (int64) sizeof(double));
}

/* Return the memory of a training learner; a lower bound while classes and features are unknown. */
int64 corgi_learner_size(const CorgiRun *run)
{
    cp_sgd_shape shape = kernel_shape(run);
    shape.features = Max(shape.features, 1);
    shape.outputs = Max(shape.outputs, 1);
    return (int64) cp_sgd_size(&shape) + CP_LINE + (int64) sizeof(CorgiLearner);
}

/* Reset a learner to its initial state. */
void corgi_learner_forget(CorgiLearner *m, const CorgiRun *run)
{
    cp_sgd_shape shape = kernel_shape(run);
    shape.rows = m->rows;
    memset(m->state, 0, cp_sgd_size(&shape));
    cp_sgd_init(m->state, &shape);
}

/* Start or stop watching for a diverging rate. `count` restarts the label counts; else they are known. */
void corgi_learner_watch(CorgiLearner *m, bool watched, bool count)
{
    m->watched = watched;
    m->counts_labels = watched && count;
    if (count)
        m->untrained = (cp_untrained){0};
}

bool corgi_learner_is_watched(const CorgiLearner *m) { return m->watched; }

/* Count the labels of rows by slot, if requested. Thread-safe. */
void corgi_learner_count(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count)
{
    const cp_labelled rows = {run->options.of, run->buffer.y, run->buffer.weight, count};
    if (m->counts_labels && corgi_predicts_numbers(&rows.of))
        cp_untrained_add(&m->untrained, &rows, visit);
}

/* Return the rate at which to restart an epoch with this loss (NaN: weights overflowed), or 0 to go on. */
double corgi_learner_restart_rate(const CorgiLearner *m, const CorgiRun *run, double rate, double loss)
{
    const CorgiOptions *o = &run->options;
    return !m->watched
               ? 0
               : cp_sgd_restart_rate(o->step, rate, loss,
                                     cp_untrained_loss(&m->untrained, o->of, run->survey.class_count),
                              cp_untrained_distance(&m->untrained));
}

bool corgi_learner_has_plateaued(const CorgiLearner *m, const double *losses, int64 count)
{
    return cp_sgd_has_plateaued(m->state, losses, count);
}

void corgi_learner_begin(CorgiLearner *m, double rate) { cp_sgd_begin(m->state, rate); }

/* Return whether to skip a row that the kernel refused: the row is at fault, and skipping was requested. */
bool corgi_learner_skips(const CorgiRun *run, int status)
{
    return run->source.lenient && (status == CP_SGD_BAD_LABEL || status == CP_SGD_LABEL_VALUE ||
                                   status == CP_SGD_BAD_VALUE || status == CP_SGD_BAD_WEIGHT);
}

static cp_rows buffer_rows(const CorgiBuffer *b, const int32 *visit, int64 count)
{
    return (cp_rows){.x = b->x,
                     .y = b->y,
                     .y_type = CP_F64,
                     .slots = b->slots,
                     .stride = b->stride,
                     .indices = b->indices,
                     .values = b->values,
                     .lengths = b->lengths,
                     .visit = visit,
                     .m = count,
                     .weight = b->weight,
                     .weight_type = CP_F64};
}

cp_sgd *corgi_learner_state(const CorgiLearner *m) { return m->state; }

/* Let learners learn from the same rows by slot, learner i from label `first` + i of the rows' label sets. Sets each
 * one's status and number of learnt rows. Thread-safe. */
void corgi_learn_each(cp_sgd *const *states, int64 count, const CorgiRun *run, CorgiLabelSets sets, int64 first,
                      const int32 *visit, int64 rows, int *status, int64 *done)
{
    cp_rows all = buffer_rows(&run->buffer, visit, rows);
    all.set = sets.has + first;
    all.sets = sets.count;
    all.labels = sets.labels;
    cp_sgd_learn_all(states, count, &all, status, done);
}

/* Return the number of visits between two checks for a cancel request. */
int64 corgi_learner_piece(const CorgiLearner *m, const CorgiRun *run)
{
    const CorgiBuffer *b = &run->buffer;
    int64 row_bytes = run->source.sparse ? Max(b->heaviest / b->widest, 1) : b->stride;
    return Max(NUMBERS_PER_CHECK * (int64) m->state->bytes / (row_bytes * m->state->outputs), 1);
}

/* Learn from rows by slot, from visit[*done] on. Moves `done` behind the last row learnt. Returns a kernel status.
 * Thread-safe. */
int corgi_learner_learn(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count, int64 *done)
{
    cp_rows rows = buffer_rows(&run->buffer, visit + *done, count - *done);
    int64_t learnt;
    int status = cp_sgd_learn(m->state, &rows, &learnt);
    *done += learnt;
    return status;
}

/* End an epoch: apply the last batch, stop counting labels, and return the epoch's metrics. */
cp_figures corgi_learner_end(CorgiLearner *m)
{
    m->counts_labels = false;
    cp_sgd_flush(m->state);
    return cp_sgd_figures(m->state);
}

/* Return a learner's memory in bytes. */
int64 corgi_learner_memory(const CorgiLearner *m) { return (int64) (sizeof *m + m->state->size + CP_LINE); }

/* Copy an epoch's running totals out of a learner, or into it. */
void corgi_learner_totals(CorgiLearner *m, cp_sgd_totals *totals, bool into)
{
    *(into ? &m->state->totals : totals) = into ? *totals : m->state->totals;
}

/* Return the number of scores per row. */
int64 corgi_learner_outputs(const CorgiLearner *m) { return m->state->outputs; }

/* Return the epoch's metrics so far. */
cp_figures corgi_learner_figures(const CorgiLearner *m) { return cp_sgd_figures(m->state); }

/* Copy weights, [outputs][features], and intercepts out of a flushed learner: the predicting or the last ones. */
void corgi_learner_get(CorgiLearner *m, bool last, double *coefficients, double *intercepts)
{
    int bytes = m->state->bytes;
    int64 outputs = m->state->outputs, count = outputs * m->state->features;
    enum cp_type type = bytes == 4 ? CP_F32 : CP_F64;
    char *weights = MemoryContextAllocHuge(CurrentMemoryContext, (Size) (count + outputs) * bytes);
    (last ? cp_sgd_get : cp_sgd_predictor)(m->state, weights, weights + count * bytes);
    cp_cast((char *) coefficients, 1, weights, type, count);
    cp_cast((char *) intercepts, 1, weights + count * bytes, type, outputs);
    pfree(weights);
}

/* Return a learner's rows of optimizer state, each [width + 1]. */
int64 corgi_learner_state_rows(const CorgiLearner *m) { return cp_sgd_optimizer_lines(m->state); }

/* Copy the optimizer state out of a flushed learner, or into it. */
void corgi_learner_copy_state(CorgiLearner *m, double *lines, bool into)
{
    cp_sgd_copy_optimizer_state(m->state, lines, into);
}

void corgi_learner_set(CorgiLearner *m, const double *coefficients, const double *intercepts)
{
    int bytes = m->state->bytes;
    int64 outputs = m->state->outputs, count = outputs * m->state->features;
    char *weights = MemoryContextAllocHuge(CurrentMemoryContext, (Size) (count + outputs) * bytes);
    cp_cast(weights, bytes == 8, (const char *) coefficients, CP_F64, count);
    cp_cast(weights + count * bytes, bytes == 8, (const char *) intercepts, CP_F64, outputs);
    cp_sgd_set(m->state, weights, weights + count * bytes);
    pfree(weights);
}

static int score_rows(CorgiLearner *m, cp_rows rows, double *scores)
{
    const int32_t first = 0;
    int64 outputs = m->state->outputs;
    char *out = palloc((Size) (outputs * m->state->bytes));
    rows.slots = rows.m = 1;
    rows.visit = &first;
    int status = cp_sgd_decide(m->state, &rows, out);
    if (status == CP_SGD_OK)
        cp_cast((char *) scores, 1, out, m->state->bytes == 4 ? CP_F32 : CP_F64, outputs);
    pfree(out);
    return status;
}

/* Score one row. */
void corgi_learner_decide(CorgiLearner *m, const char *row, double *scores)
{
    cp_rows rows = {.x = row, .stride = m->state->features * m->state->bytes};
    if (score_rows(m, rows, scores) != CP_SGD_OK)
        elog(ERROR, "kernel failed to score a row");
}

/* Score rows by slot: scores[row][output]. Returns a kernel status. */
int corgi_learner_score_rows(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count, double *scores)
{
    cp_rows rows = buffer_rows(&run->buffer, visit, count);
    bool wide = m->state->bytes == sizeof(double);
    Size numbers = (Size) (count * m->state->outputs);
    char *out = wide ? (char *) scores : palloc(numbers * sizeof(float));
    int status = cp_sgd_decide(m->state, &rows, out);
    if (!wide && status == CP_SGD_OK)
        cp_cast((char *) scores, 1, out, CP_F32, (int64) numbers);
    if (!wide)
        pfree(out);
    return status;
}

/* Score rows that the kernel has measured before. */
void corgi_learner_decide_rows(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count, double *scores)
{
    if (corgi_learner_score_rows(m, run, visit, count, scores) != CP_SGD_OK)
        elog(ERROR, "kernel failed to score rows");
}

/* Count a row scored by one of several models, with its weight if rows have weights. */
void corgi_add_score(const CorgiModel *m, double score, bool there, const double *weight, cp_sgd_totals *totals)
{
    cp_evaluate_score(m->of, m->bytes, score, there ? 1 : -1, weight, totals);
}

cp_figures corgi_score_figures(const CorgiModel *m, const cp_sgd_totals *totals)
{
    return cp_evaluate_figures(m->of, totals);
}

/* Score one sparse row. Returns a kernel status. */
int corgi_learner_decide_pair(CorgiLearner *m, const int32 *indices, const char *values, int64 count, double *scores)
{
    const uint64_t index_at = (uintptr_t) indices, values_at = (uintptr_t) values;
    const int64_t length = count;
    cp_rows rows = {.indices = &index_at, .values = &values_at, .lengths = &length};
    return score_rows(m, rows, scores);
}

void corgi_probabilities(const cp_loss_choice *of, double *scores, int64 classes)
{
    cp_sgd_probabilities(of->loss, scores, classes);
}

/* Return the loss of the best constant, from weighted class frequencies; the loss of zero weights if they are
 * unknown. */
double corgi_chance(const cp_loss_choice *of, const int64 *counts_labels, const double *weight, int64 classes)
{
    double rows = 0;
    if (counts_labels == NULL)
        return cp_zero_loss_of_classes(*of, classes);
    double *share = palloc(sizeof *share * (Size) classes);
    for (int64 k = 0; k < classes; k++)
        rows += share[k] = (double) counts_labels[k] * (weight ? weight[k] : 1);
    for (int64 k = 0; k < classes; k++)
        share[k] /= rows;
    double chance = cp_least_loss_of_classes(*of, share, classes);
    pfree(share);
    return chance;
}
