/* The SGD kernel: kernel/sgd/sgd.h with the server's memory and errors. */
#include "corgipile.h"

#include "utils/memutils.h"

#include "sgd/multi_model.h"
#include "sgd/baseline.h"
#include "sgd/evaluate.h"

enum { PIECE = 1 << 22 }; /* numbers read between two checks for a cancel request */

struct CorgiLearner {
    cp_sgd *state;
    int64 rows;             /* that it learns from; 0: it learns from none */
    bool tried;             /* it is seen whether its rate diverges */
    bool counts;            /* labels, for that */
    cp_untrained untrained;
};

static CorgiLearner *make(const cp_sgd_shape *shape)
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

/* Make a learner that only scores and measures rows. */
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
    return make(&shape);
}

/* Make a learner that measures what another one of the run has learnt. */
CorgiLearner *corgi_learner_judge(const CorgiRun *run)
{
    const CorgiSurvey *v = &run->survey;
    cp_loss_choice of = run->options.of;
    int64 outputs = corgi_outputs(&of, v->class_count);
    return corgi_learner(of, run->source.bytes, run->source.sparse, v->width, outputs, v->classes);
}

static cp_sgd_shape shape_for(const CorgiRun *run)
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

/* Make a learner that learns from so many rows. */
CorgiLearner *corgi_learner_for(const CorgiRun *run, int64 rows)
{
    cp_sgd_shape shape = shape_for(run);
    shape.rows = rows;
    return make(&shape);
}

/* Return what of buffer_size a model takes: of hashed features, whose number does not depend on the rows, while it learns by
 * the step that keeps as much as any, and as what is saved, as Python counts it; of others nothing. */
int64 corgi_learner_bytes(const CorgiRun *run)
{
    cp_sgd_shape shape = shape_for(run);
    cp_sgd layout;
    if (corgi_hashing(&run->source) == NULL)
        return 0;
    shape.step = CP_STEP_AUTO;
    shape.l1 = shape.max_norm = 0;
    layout = cp_sgd_layout(&shape);
    return (int64) layout.size + shape.features * (shape.outputs * 2 * shape.bytes + cp_sgd_lines(&layout) * (int64) sizeof(double));
}

/* Return the memory of a learner that learns, of at least so much where classes and features are not known yet. */
int64 corgi_learner_size(const CorgiRun *run)
{
    cp_sgd_shape shape = shape_for(run);
    shape.features = Max(shape.features, 1);
    shape.outputs = Max(shape.outputs, 1);
    return (int64) cp_sgd_size(&shape) + CP_LINE + (int64) sizeof(CorgiLearner);
}

/* Forget all that was learnt. */
void corgi_learner_forget(CorgiLearner *m, const CorgiRun *run)
{
    cp_sgd_shape shape = shape_for(run);
    shape.rows = m->rows;
    memset(m->state, 0, cp_sgd_size(&shape));
    cp_sgd_init(m->state, &shape);
}

/* From now on, see whether the rate diverges, or do so no longer; count labels for that anew, or know them. */
void corgi_learner_try(CorgiLearner *m, bool tried, bool count)
{
    m->tried = tried;
    m->counts = tried && count;
    if (count)
        m->untrained = (cp_untrained){0};
}

bool corgi_learner_is_tried(const CorgiLearner *m) { return m->tried; }

/* Count the labels of rows by slot, where that is asked for. A thread may call this. */
void corgi_learner_count(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count)
{
    const cp_labelled rows = {run->options.of, run->buffer.y, run->buffer.weight, count};
    if (m->counts && corgi_predicts_numbers(&rows.of))
        cp_untrained_add(&m->untrained, &rows, visit);
}

/* Return the rate at which an epoch is begun again where one is tried, as its loss says (NaN: weights overflowed), or 0. */
double corgi_learner_again(const CorgiLearner *m, const CorgiRun *run, double rate, double loss)
{
    const CorgiOptions *o = &run->options;
    return !m->tried ? 0 : cp_sgd_again(o->step, rate, loss, cp_untrained_loss(&m->untrained, o->of, run->survey.class_count),
                                        cp_untrained_far(&m->untrained));
}

bool corgi_learner_rests(const CorgiLearner *m, const double *losses, int64 count) { return cp_sgd_rests(m->state, losses, count); }

void corgi_learner_begin(CorgiLearner *m, double rate) { cp_sgd_begin(m->state, rate); }

/* Return whether a row that the kernel refused is left out: the blame is the row's, and that was asked for. */
bool corgi_learner_skips(const CorgiRun *run, int status)
{
    return run->source.lenient && (status == CP_SGD_BAD_LABEL || status == CP_SGD_LABEL_VALUE || status == CP_SGD_BAD_VALUE ||
                                    status == CP_SGD_BAD_WEIGHT);
}

/* Say why the kernel refused the row in a slot. */
void corgi_learner_refuse(const CorgiRun *run, int status, int32 slot)
{
    const CorgiBuffer *b = &run->buffer;
    const CorgiColumn *c = run->source.parts[b->part ? b->part[slot] : 0].features;
    const char *row = corgi_row_name(c, &b->tid[slot]);
    if (run->groups != NULL)
        row = psprintf("%s of group %s", row, corgi_group_name(run->groups, b->group[slot]));
    switch (status) {
    case CP_SGD_BAD_LABEL:
        if (corgi_predicts_numbers(&run->options.of))
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("%s has label %g; a %s model takes labels of 0 or more", row, b->y[slot],
                           corgi_loss_name(&run->options.of)));
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("%s has label %g, which is none of the classes", row, b->y[slot]));
        break;
    case CP_SGD_BAD_WEIGHT:
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("%s has weight %g; a finite number of 0 or more is needed", row, b->weight[slot]));
        break;
    case CP_SGD_BAD_VALUE:
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("%s has a feature that is NaN or infinite; finite numbers are needed", row));
        break;
    case CP_SGD_BAD_INDEX:
    case CP_SGD_BAD_ORDER:
        corgi_refuse_indices(c, &b->tid[slot], status, run->survey.width);
        break;
    case CP_SGD_DIVERGED:
        if (run->options.learning_rate == 0)
            ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                    errmsg("%s has a score beyond what %s can hold", row,
                           run->source.bytes == 4 ? "real" : "double precision"));
        ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                errmsg("training diverged: %s brought the weights beyond what %s can hold", row,
                       run->source.bytes == 4 ? "real" : "double precision"),
                corgi_hint_rate(run));
        break;
    default:
        elog(ERROR, "%s was refused by the kernel with status %d", row, status);
    }
}

static cp_rows rows_in(const CorgiBuffer *b, const int32 *visit, int64 count)
{
    return (cp_rows){.x = b->x, .y = b->y, .y_type = CP_F64, .slots = b->slots, .stride = b->stride, .indices = b->indices,
                     .values = b->values, .lengths = b->lengths, .visit = visit, .m = count, .weight = b->weight,
                     .weight_type = CP_F64};
}

cp_sgd *corgi_learner_state(const CorgiLearner *m) { return m->state; }

/* Let learners learn from the same rows by slot, each by the label of its number from `first` on, of those that the sets of rows
 * have. Sets the status of each, and how many rows it has learnt. A thread may call this. */
void corgi_learn_each(cp_sgd *const *states, int64 count, const CorgiRun *run, int64 first, const int32 *visit, int64 rows,
                      int *status, int64 *done)
{
    cp_rows all = rows_in(&run->buffer, visit, rows);
    int64 sets;
    all.set = corgi_label_sets(run->labels, &sets) + first;
    all.sets = sets;
    all.labels = corgi_label_count(run->labels);
    cp_sgd_learn_all(states, count, &all, status, done);
}

/* Learn from rows by slot, from visit[*done] on, one piece: the model does not depend on how rows are cut into calls.
 * Moves `done` on to the row after the last one learnt. Returns a status of the kernel. A thread may call this. */
int corgi_learner_learn(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count, int64 *done)
{
    const CorgiBuffer *b = &run->buffer;
    int64 row_bytes = run->source.sparse ? Max(b->heaviest / b->widest, 1) : b->stride;
    int64 piece = Max(PIECE * (int64) m->state->bytes / (row_bytes * m->state->outputs), 1);
    cp_rows rows = rows_in(b, visit + *done, Min(piece, count - *done));
    int64_t learnt;
    int status = cp_sgd_learn(m->state, &rows, &learnt);
    *done += learnt;
    return status;
}

/* End an epoch: apply the last batch, however short, and return its figures. Labels are all counted now. */
cp_figures corgi_learner_end(CorgiLearner *m)
{
    m->counts = false;
    cp_sgd_flush(m->state);
    return cp_sgd_figures(m->state);
}

/* Return the bytes that a learner takes. */
int64 corgi_learner_held(const CorgiLearner *m) { return (int64) (sizeof *m + m->state->size + CP_LINE); }

/* Copy what an epoch added up so far out of a learner, or into it. */
void corgi_learner_totals(CorgiLearner *m, cp_sgd_totals *totals, bool into)
{
    *(into ? &m->state->totals : totals) = into ? *totals : m->state->totals;
}

/* Return the number of scores of a row. */
int64 corgi_learner_outputs(const CorgiLearner *m) { return m->state->outputs; }

/* Return the figures of the epoch so far. */
cp_figures corgi_learner_figures(const CorgiLearner *m) { return cp_sgd_figures(m->state); }

/* Copy weights, [outputs][features], and intercepts out of a flushed learner: those that predict, or the last ones. */
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

/* Return how many lines [width + 1] a learner knows beside its weights. */
int64 corgi_learner_lines(const CorgiLearner *m) { return cp_sgd_lines(m->state); }

/* Copy them out of a flushed learner, or into it. */
void corgi_learner_keep(CorgiLearner *m, double *lines, bool into) { cp_sgd_keep(m->state, lines, into); }

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

/* Let a judge measure rows as they are by what a flushed learner has learnt. */
void corgi_learner_show(const CorgiRun *run, CorgiLearner *judge, CorgiLearner *learner)
{
    int64 count = judge->state->outputs * judge->state->features;
    double *weights = MemoryContextAllocHuge(CurrentMemoryContext, sizeof *weights * (Size) (count + judge->state->outputs));
    corgi_get_folded(run, learner, weights, weights + count);
    corgi_learner_set(judge, weights, weights + count);
    pfree(weights);
}

static int decide(CorgiLearner *m, cp_rows rows, double *scores)
{
    const int32_t first = 0;
    int64 outputs = m->state->outputs;
    char *out = palloc((Size) (outputs * m->state->bytes));
    int status;
    rows.slots = rows.m = 1;
    rows.visit = &first;
    status = cp_sgd_decide(m->state, &rows, out);
    if (status == CP_SGD_OK)
        cp_cast((char *) scores, 1, out, m->state->bytes == 4 ? CP_F32 : CP_F64, outputs);
    pfree(out);
    return status;
}

/* Score one row. */
void corgi_learner_decide(CorgiLearner *m, const char *row, double *scores)
{
    cp_rows rows = {.x = row, .stride = m->state->features * m->state->bytes};
    if (decide(m, rows, scores) != CP_SGD_OK)
        elog(ERROR, "the kernel refused to score a row");
}

/* Score rows by slot: scores[row][output]. Returns a status of the kernel. */
int corgi_learner_try_rows(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count, double *scores)
{
    cp_rows rows = rows_in(&run->buffer, visit, count);
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
    if (corgi_learner_try_rows(m, run, visit, count, scores) != CP_SGD_OK)
        elog(ERROR, "the kernel refused to score rows");
}

/* Count a row that one of several models has scored, for its weight where rows have some. */
void corgi_judge_score(const CorgiModel *m, double score, bool there, const double *weight, cp_sgd_totals *totals)
{
    cp_judge_score(m->of, m->bytes, score, there ? 1 : -1, weight, totals);
}

cp_figures corgi_judge_figures(const CorgiModel *m, const cp_sgd_totals *totals) { return cp_judge_figures(m->of, totals); }

/* Score one sparse row. Returns a status of the kernel. */
int corgi_learner_decide_pair(CorgiLearner *m, const int32 *indices, const char *values, int64 count, double *scores)
{
    const uint64_t index_at = (uintptr_t) indices, values_at = (uintptr_t) values;
    const int64_t length = count;
    cp_rows rows = {.indices = &index_at, .values = &values_at, .lengths = &length};
    return decide(m, rows, scores);
}

void corgi_probabilities(const cp_loss_choice *of, double *scores, int64 classes) { cp_sgd_probabilities(of->loss, scores, classes); }

/* Return the loss of the best constant, that of a model that has learnt nothing but how common the classes are, each by its
 * weight; where it is not known how common, of weights of zero. */
double corgi_chance(const cp_loss_choice *of, const int64 *counts, const double *weight, int64 classes)
{
    double rows = 0, chance, *share;
    if (counts == NULL)
        return cp_zero_loss_of_classes(*of, classes);
    share = palloc(sizeof *share * (Size) classes);
    for (int64 k = 0; k < classes; k++)
        rows += share[k] = (double) counts[k] * (weight ? weight[k] : 1);
    for (int64 k = 0; k < classes; k++)
        share[k] /= rows;
    chance = cp_least_loss_of_classes(*of, share, classes);
    pfree(share);
    return chance;
}
