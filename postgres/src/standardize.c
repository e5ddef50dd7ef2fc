/* Feature standardisation: the decision, its parameters, and conversion of weights between scaled and unscaled rows.
 * The kernel computes every number, so results equal Python's: kernel/sgd/scale_sample.h decides, kernel/sgd/moments.h
 * gives the parameters. Rows are scaled in their slots only. */
#include "learning.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "io/gather.h"
#include "sgd/moments.h"
#include "utils/memutils.h"

struct CorgiScaling {
    int64 width;
    int bytes;
    double *center, *scale;
    char *shift, *by;        /* reals: subtrahend and factor of each feature; sparse features are divided */
};

static void *allocate(Size bytes) { return MemoryContextAllocHuge(CurrentMemoryContext, bytes); }

typedef struct {
    cp_scale_sample *seen;
    double *numbers;
} ScaleSample;

static void sample_row(void *to, const CorgiSource *part, TupleTableSlot *row)
{
    const ScaleSample *g = to;
    slot_getsomeattrs(row, part->last);
    corgi_read_features(part, row, g->seen->width, (char *) g->numbers);
    cp_look_add(g->seen, g->numbers);
}

/* Sample rows from four places of the table. */
static cp_scale_result sample_scales(const CorgiRun *run, Snapshot snapshot)
{
    const CorgiSurvey *v = &run->survey;
    MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "corgipile look", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(context);
    ScaleSample g = {.seen = memset(allocate(cp_look_size(v->width)), 0, cp_look_size(v->width)),
                .numbers = allocate(sizeof *g.numbers * (Size) v->width)};
    int64 runs[CP_LOOK_RUNS][2], stop = 0;
    g.seen->width = v->width;
    for (int i = 0; i < CP_LOOK_RUNS; i++) {
        runs[i][0] = cp_look_run(v->rows, v->width, i, stop, &stop);
        runs[i][1] = stop;
    }
    corgi_read_runs(run, snapshot, runs, CP_LOOK_RUNS, sample_row, &g);
    cp_scale_result sample = cp_scale_sample_end(g.seen, v->rows);
    MemoryContextSwitchTo(outside);
    MemoryContextDelete(context);
    return sample;
}

/* Read int4 and int8 columns as double precision: real would lose differences of large ones. */
static void widen_integers(CorgiSource *s)
{
    bool wide = false;
    for (int i = 0; i < s->feature_columns && corgi_hashing(s) == NULL; i++) {
        const CorgiColumn *c = &s->features[i];
        wide |= !c->list && (c->type == INT4OID || c->type == INT8OID) &&
                (c->encoder == NULL || c->encoder->way == CORGI_AS_NUMBER);
    }
    for (int i = -1; wide && i < s->part_count; i++)
        (i < 0 ? s : &s->parts[i])->bytes = sizeof(double);
}

/* Decide whether to standardise features. This may change the precision. */
void corgi_choose_scaling(CorgiRun *run, Snapshot snapshot)
{
    CorgiChoice choice = run->options.standardize;
    const CorgiModel *past = run->past;
    cp_scale_result seen = {.scales = CP_SCALES_FINE};
    if (!run->source.sparse && (choice == CORGI_NO || (choice == CORGI_AS_NEEDED && past == NULL)))
        seen = sample_scales(run, snapshot);
    if (seen.scales == CP_ROWS_OFF_CENTRE && !run->options.intercept) /* without an intercept to shift */
        seen.scales = CP_SCALES_FINE;
    if (choice == CORGI_AS_NEEDED)
        run->standardize = past ? past->standardized : seen.scales != CP_SCALES_FINE;
    else
        run->standardize = choice == CORGI_YES;
    if (seen.scales != CP_SCALES_FINE)
        corgi_report_scales(&seen, run), run->hinted = !run->standardize;
    if (run->standardize)
        widen_integers(&run->source);
}

/* Begin accumulating the moments of features. */
struct cp_moments *corgi_begin_moments(const CorgiRun *run)
{
    Size size = cp_moments_size(run->survey.width);
    cp_moments *m = memset(allocate(size), 0, size);
    m->width = run->survey.width;
    return m;
}

/* Add the rows in the first slots of the buffer. */
void corgi_add_moments(struct cp_moments *m, const CorgiRun *run, int64 rows)
{
    const CorgiBuffer *b = &run->buffer;
    for (int64 i = 0; i < rows; i++)
        if (run->source.sparse)
            cp_moments_add_entries(m, (const int32_t *) (uintptr_t) b->indices[i],
                                   (const void *) (uintptr_t) b->values[i], b->lengths[i], run->source.bytes);
        else
            cp_moments_add(m, b->x + i * b->stride, run->source.bytes);
    m->rows += run->source.sparse ? rows : 0;
}

/* Allocate scaling parameters. */
static CorgiScaling *make_scaling(const CorgiRun *run)
{
    CorgiScaling *s = palloc0(sizeof *s);
    s->width = run->survey.width;
    s->bytes = run->source.bytes;
    s->center = allocate(sizeof *s->center * (Size) s->width);
    s->scale = allocate(sizeof *s->scale * (Size) s->width);
    s->shift = allocate((Size) (s->width * s->bytes));
    s->by = allocate((Size) (s->width * s->bytes));
    return s;
}

static CorgiScaling *finish_scaling(CorgiScaling *s, bool sparse)
{
    for (int64 j = 0; j < s->width; j++) {
        double by = sparse ? s->scale[j] : 1 / s->scale[j];
        cp_cast(s->shift + j * s->bytes, s->bytes == 8, (const char *) &s->center[j], CP_F64, 1);
        cp_cast(s->by + j * s->bytes, s->bytes == 8, (const char *) &by, CP_F64, 1);
    }
    return s;
}

/* Returns whether the default scaling left features, such as flags, as they are: then the default alone repeats it. */
bool corgi_kept_flags(const CorgiRun *run)
{
    const CorgiScaling *s = run->scaling;
    bool kept = false;
    for (int64 j = 0; s != NULL && run->past == NULL && j < s->width; j++)
        kept |= s->center[j] == 0 && s->scale[j] == 1;
    return kept && run->options.standardize == CORGI_AS_NEEDED;
}

CorgiScaling *corgi_end_moments(struct cp_moments *m, const CorgiRun *run)
{
    CorgiScaling *s = make_scaling(run);
    bool sparse = run->source.sparse;
    int64 bad = cp_moments_scaling(m, sparse, !sparse && run->options.intercept,
                                   run->options.standardize == CORGI_AS_NEEDED, s->bytes, s->center, s->scale);
    if (bad >= 0)
        ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                errmsg("feature %s has numbers so large that their spread is beyond what double precision holds",
                       corgi_feature_name(&run->source, bad)),
                errhint("standardize => false learns from features as they are."));
    pfree(m);
    return finish_scaling(s, sparse);
}

/* Return the scaling of an earlier model. */
CorgiScaling *corgi_past_scaling(const CorgiRun *run)
{
    CorgiScaling *s = make_scaling(run);
    memcpy(s->center, run->past->learnt, sizeof(double) * (Size) s->width);
    memcpy(s->scale, run->past->learnt + s->width + 1, sizeof(double) * (Size) s->width);
    return finish_scaling(s, run->source.sparse);
}

/* Standardise rows in their slots. */
void corgi_scale_rows(const CorgiRun *run, const int32 *slots, int count)
{
    const CorgiScaling *s = run->scaling;
    const CorgiBuffer *b = &run->buffer;
    for (int i = 0; i < count; i++)
        if (run->source.sparse)
            cp_scale_entries((void *) (uintptr_t) b->values[slots[i]],
                             (const int32_t *) (uintptr_t) b->indices[slots[i]], b->lengths[slots[i]], s->bytes, s->by);
        else
            cp_scale_row(b->x + slots[i] * b->stride, s->bytes, s->width, s->shift, s->by);
}

/* Convert weights of scaled rows to unscaled ones, rounded to `bytes`; or `back`. */
static void fold_weights(const CorgiScaling *s, int bytes, bool back, int64 outputs, double *coefficients,
                         double *intercepts)
{
    for (int64 k = 0; k < outputs; k++)
        cp_fold(s->center, s->scale, s->width, bytes, back, coefficients + k * s->width, intercepts + k);
}

/* Copy a learner's model, for unscaled rows. */
void corgi_get_folded(const CorgiRun *run, CorgiLearner *learner, double *coefficients, double *intercepts)
{
    corgi_learner_get(learner, false, coefficients, intercepts);
    if (run->scaling != NULL)
        fold_weights(run->scaling, run->scaling->bytes, false, corgi_outputs(&run->options.of, run->survey.class_count),
             coefficients, intercepts);
}

/* Copy a flushed learner's model, for unscaled rows, into a measuring learner. */
void corgi_learner_copy_model(const CorgiRun *run, CorgiLearner *evaluator, CorgiLearner *learner)
{
    int64 outputs = corgi_learner_outputs(evaluator), count = outputs * run->survey.width;
    double *weights = allocate(sizeof *weights * (Size) (count + outputs));
    corgi_get_folded(run, learner, weights, weights + count);
    corgi_learner_set(evaluator, weights, weights + count);
    pfree(weights);
}

/* Write the scaling: two rows [width + 1], centre and scale. */
void corgi_write_scaling(const CorgiRun *run, double *to)
{
    const CorgiScaling *s = run->scaling;
    const int64 width = run->survey.width, line = width + 1;
    for (int64 j = 0; j < width; j++) {
        to[j] = s ? s->center[j] : 0;
        to[line + j] = s ? s->scale[j] : 1;
    }
    to[line - 1] = 0;
    to[2 * line - 1] = 1;
}

/* Write a learner's weights, the predicting or the last ones, with each output's intercept: [outputs][width + 1]. */
void corgi_write_weights(CorgiLearner *learner, int64 width, bool last, double *to)
{
    const int64 outputs = corgi_learner_outputs(learner), line = width + 1;
    double *coefficients = allocate(sizeof *coefficients * (Size) (outputs * line));
    corgi_learner_get(learner, last, coefficients, coefficients + outputs * width);
    for (int64 k = 0; k < outputs; k++) {
        memcpy(to + k * line, coefficients + k * width, sizeof *to * (Size) width);
        to[k * line + width] = coefficients[outputs * width + k];
    }
    pfree(coefficients);
}

/* Write the training state, from which a warm start continues bit for bit: centre, scale, weights, and the optimizer
 * state. */
void corgi_get_learnt(const CorgiRun *run, CorgiLearner *learner, double *to)
{
    const int64 width = run->survey.width, line = width + 1;
    corgi_write_scaling(run, to);
    corgi_write_weights(learner, width, true, to + 2 * line);
    if (corgi_learner_state_rows(learner) > 0)
        corgi_learner_copy_state(learner, to + (corgi_learner_outputs(learner) + 2) * line, false);
}

/* Restore an earlier model's training state if it is stored, comes from an equal optimizer, and its predicting weights
 * are unchanged; weights of an earlier best epoch cannot be checked. */
static bool restore_learnt(const CorgiRun *run, CorgiLearner *learner)
{
    const CorgiModel *m = run->past;
    int64 line = m->width + 1, count = m->outputs * m->width;
    if (m->learnt == NULL || m->standardized != (run->scaling != NULL) ||
        m->beside != corgi_learner_state_rows(learner) ||
        (m->beside > 0 && strcmp(m->how, corgi_describe_optimizer(&run->options)) != 0))
        return false;
    double *coefficients = allocate(sizeof *coefficients * (Size) (2 * m->outputs * line));
    double *intercepts = coefficients + count;
    double *folded = intercepts + m->outputs;
    for (int64 k = 0; k < m->outputs; k++) {
        memcpy(coefficients + k * m->width, m->learnt + (k + 2) * line, sizeof(double) * (Size) m->width);
        intercepts[k] = m->learnt[(k + 3) * line - 1];
    }
    corgi_learner_set(learner, coefficients, intercepts);
    if (m->beside > 0)
        corgi_learner_copy_state(learner, m->learnt + (m->outputs + 2) * line, true);
    corgi_get_folded(run, learner, folded, folded + count);
    bool same = m->best >= 0 || (memcmp(folded, m->coefficients, sizeof(double) * (Size) count) == 0 &&
                                 memcmp(folded + count, m->intercepts, sizeof(double) * (Size) m->outputs) == 0);
    pfree(coefficients);
    return same;
}

/* Continue an earlier model in a learner. */
void corgi_resume(const CorgiRun *run, CorgiLearner *learner)
{
    const CorgiModel *m = run->past;
    int64 count = m->outputs * m->width;
    if (restore_learnt(run, learner))
        return;
    double *coefficients = allocate(sizeof *coefficients * (Size) (count + m->outputs));
    memcpy(coefficients, m->coefficients, sizeof(double) * (Size) count);
    memcpy(coefficients + count, m->intercepts, sizeof(double) * (Size) m->outputs);
    if (run->scaling != NULL)
        fold_weights(run->scaling, m->bytes, true, m->outputs, coefficients, coefficients + count);
    corgi_learner_set(learner, coefficients, coefficients + count);
    pfree(coefficients);
}
