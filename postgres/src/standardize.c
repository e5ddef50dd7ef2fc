/* Standardised features: whether they are to be, by what, and weights of such rows as weights of the rows as they are.
 *
 * All that becomes a number of the model is of the kernel, so it is the same in Python: kernel/sgd/scale_sample.h says whether
 * features need it, kernel/sgd/moments.h by what. Rows are standardised in their slots; nothing else sees them so. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "io/gather.h"
#include "sgd/moments.h"
#include "utils/memutils.h"

struct CorgiScaling {
    int64 width;
    int bytes;
    double *center, *scale;
    char *take, *by;        /* reals: what is taken from a feature, what it is multiplied by; a sparse one is divided by it */
};

static void *take(Size bytes) { return MemoryContextAllocHuge(CurrentMemoryContext, bytes); }

typedef struct {
    cp_look *seen;
    double *numbers;
} Glance;

static void take_row(void *to, const CorgiSource *part, TupleTableSlot *row)
{
    const Glance *g = to;
    slot_getsomeattrs(row, part->last);
    corgi_read_features(part, row, g->seen->width, (char *) g->numbers);
    cp_look_add(g->seen, g->numbers);
}

/* Look at some rows, from four places of the table. */
static cp_looked look(const CorgiRun *run, Snapshot snapshot)
{
    const CorgiSurvey *v = &run->survey;
    MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "corgipile look", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(context);
    Glance g = {.seen = memset(take(cp_look_size(v->width)), 0, cp_look_size(v->width)),
                .numbers = take(sizeof *g.numbers * (Size) v->width)};
    int64 runs[CP_LOOK_RUNS][2], stop = 0;
    cp_looked found;
    g.seen->width = v->width;
    for (int i = 0; i < CP_LOOK_RUNS; i++) {
        runs[i][0] = cp_look_run(v->rows, v->width, i, stop, &stop);
        runs[i][1] = stop;
    }
    corgi_read_runs(run, snapshot, runs, CP_LOOK_RUNS, take_row, &g);
    found = cp_look_end(g.seen, v->rows);
    MemoryContextSwitchTo(outside);
    MemoryContextDelete(context);
    return found;
}

/* Read whole numbers that real may not hold as double precision: differences of large ones would be lost. */
static void widen(CorgiSource *s)
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

/* Decide whether features are standardised: that may change what numbers are computed in. */
void corgi_choose_scaling(CorgiRun *run, Snapshot snapshot)
{
    CorgiChoice choice = run->options.standardize;
    const CorgiModel *past = run->past;
    cp_looked seen = {.scales = CP_SCALES_FINE};
    if (!run->source.sparse && (choice == CORGI_NO || (choice == CORGI_AS_NEEDED && past == NULL)))
        seen = look(run, snapshot);
    if (seen.scales == CP_ROWS_ASIDE && !run->options.intercept) /* which nothing can be moved into */
        seen.scales = CP_SCALES_FINE;
    if (choice == CORGI_AS_NEEDED)
        run->standardize = past ? past->standardized : seen.scales != CP_SCALES_FINE;
    else
        run->standardize = choice == CORGI_YES;
    if (seen.scales != CP_SCALES_FINE)
        corgi_tell_scales(&seen, run), run->hinted = !run->standardize;
    if (run->standardize)
        widen(&run->source);
}

/* Begin to find out what features are standardised by. */
struct cp_moments *corgi_begin_moments(const CorgiRun *run)
{
    Size size = cp_moments_size(run->survey.width);
    cp_moments *m = memset(take(size), 0, size);
    m->width = run->survey.width;
    return m;
}

/* Take in the rows in the first slots of the buffer. */
void corgi_add_moments(struct cp_moments *m, const CorgiRun *run, int64 rows)
{
    const CorgiBuffer *b = &run->buffer;
    for (int64 i = 0; i < rows; i++)
        if (run->source.sparse)
            cp_moments_add_entries(m, (const int32_t *) (uintptr_t) b->indices[i], (const void *) (uintptr_t) b->values[i],
                                   b->lengths[i], run->source.bytes);
        else
            cp_moments_add(m, b->x + i * b->stride, run->source.bytes);
    m->rows += run->source.sparse ? rows : 0;
}

/* Make what rows are standardised by in their slots. */
static CorgiScaling *make(const CorgiRun *run)
{
    CorgiScaling *s = palloc0(sizeof *s);
    s->width = run->survey.width;
    s->bytes = run->source.bytes;
    s->center = take(sizeof *s->center * (Size) s->width);
    s->scale = take(sizeof *s->scale * (Size) s->width);
    s->take = take((Size) (s->width * s->bytes));
    s->by = take((Size) (s->width * s->bytes));
    return s;
}

static CorgiScaling *settle(CorgiScaling *s, bool sparse)
{
    for (int64 j = 0; j < s->width; j++) {
        double by = sparse ? s->scale[j] : 1 / s->scale[j];
        cp_cast(s->take + j * s->bytes, s->bytes == 8, (const char *) &s->center[j], CP_F64, 1);
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
    CorgiScaling *s = make(run);
    bool sparse = run->source.sparse;
    int64 bad = cp_moments_scaling(m, sparse, !sparse && run->options.intercept,
                                   run->options.standardize == CORGI_AS_NEEDED, s->bytes, s->center, s->scale);
    if (bad >= 0)
        ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                errmsg("feature %s has numbers so large that their spread is beyond what double precision holds",
                       corgi_feature_name(&run->source, bad)),
                errhint("standardize => false learns from features as they are."));
    pfree(m);
    return settle(s, sparse);
}

/* Standardise by what an earlier model was standardised by. */
CorgiScaling *corgi_past_scaling(const CorgiRun *run)
{
    CorgiScaling *s = make(run);
    memcpy(s->center, run->past->learnt, sizeof(double) * (Size) s->width);
    memcpy(s->scale, run->past->learnt + s->width + 1, sizeof(double) * (Size) s->width);
    return settle(s, run->source.sparse);
}

/* Standardise rows in their slots. */
void corgi_scale_rows(const CorgiRun *run, const int32 *slots, int count)
{
    const CorgiScaling *s = run->scaling;
    const CorgiBuffer *b = &run->buffer;
    for (int i = 0; i < count; i++)
        if (run->source.sparse)
            cp_scale_entries((void *) (uintptr_t) b->values[slots[i]], (const int32_t *) (uintptr_t) b->indices[slots[i]],
                             b->lengths[slots[i]], s->bytes, s->by);
        else
            cp_scale_row(b->x + slots[i] * b->stride, s->bytes, s->width, s->take, s->by);
}

/* Make of weights of standardised rows weights of the rows as they are, as reals of so many bytes hold; or `back`. */
static void fold(const CorgiScaling *s, int bytes, bool back, int64 outputs, double *coefficients, double *intercepts)
{
    for (int64 k = 0; k < outputs; k++)
        cp_fold(s->center, s->scale, s->width, bytes, back, coefficients + k * s->width, intercepts + k);
}

/* Copy what a learner has learnt, for rows as they are. */
void corgi_get_folded(const CorgiRun *run, CorgiLearner *learner, double *coefficients, double *intercepts)
{
    corgi_learner_get(learner, false, coefficients, intercepts);
    if (run->scaling != NULL)
        fold(run->scaling, run->scaling->bytes, false, corgi_outputs(&run->options.of, run->survey.class_count),
             coefficients, intercepts);
}

/* Write what features are standardised by: two lines [width + 1]. */
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

/* Write a model as it was learnt, which going on to the same bits takes: what was taken from features, what they were
 * divided by, the weights of each output, the intercept behind them, and what the learner knows beside them. */
void corgi_get_learnt(const CorgiRun *run, CorgiLearner *learner, double *to)
{
    int64 outputs = corgi_learner_outputs(learner), width = run->survey.width, line = width + 1;
    double *coefficients = take(sizeof *coefficients * (Size) (outputs * line)), *intercepts = coefficients + outputs * width;
    corgi_learner_get(learner, true, coefficients, intercepts);
    corgi_write_scaling(run, to);
    for (int64 k = 0; k < outputs; k++) {
        memcpy(to + (k + 2) * line, coefficients + k * width, sizeof *to * (Size) width);
        to[(k + 3) * line - 1] = intercepts[k];
    }
    if (corgi_learner_lines(learner) > 0)
        corgi_learner_keep(learner, to + (outputs + 2) * line, false);
    pfree(coefficients);
}

/* Put an earlier model as it was learnt, if its row has that, it was learnt in the same way, and nobody has changed the
 * weights that predict since, which cannot be told of those of an epoch before the last. */
static bool put_learnt(const CorgiRun *run, CorgiLearner *learner)
{
    const CorgiModel *m = run->past;
    int64 line = m->width + 1, count = m->outputs * m->width;
    double *coefficients, *intercepts, *folded;
    bool same;
    if (m->learnt == NULL || m->standardized != (run->scaling != NULL) || m->beside != corgi_learner_lines(learner) ||
        (m->beside > 0 && strcmp(m->how, corgi_how(&run->options)) != 0))
        return false;
    coefficients = take(sizeof *coefficients * (Size) (2 * m->outputs * line));
    intercepts = coefficients + count;
    folded = intercepts + m->outputs;
    for (int64 k = 0; k < m->outputs; k++) {
        memcpy(coefficients + k * m->width, m->learnt + (k + 2) * line, sizeof(double) * (Size) m->width);
        intercepts[k] = m->learnt[(k + 3) * line - 1];
    }
    corgi_learner_set(learner, coefficients, intercepts);
    if (m->beside > 0)
        corgi_learner_keep(learner, m->learnt + (m->outputs + 2) * line, true);
    corgi_get_folded(run, learner, folded, folded + count);
    same = m->best >= 0 || (memcmp(folded, m->coefficients, sizeof(double) * (Size) count) == 0 &&
                            memcmp(folded + count, m->intercepts, sizeof(double) * (Size) m->outputs) == 0);
    pfree(coefficients);
    return same;
}

/* Let a learner go on from an earlier model. */
void corgi_go_on(const CorgiRun *run, CorgiLearner *learner)
{
    const CorgiModel *m = run->past;
    int64 count = m->outputs * m->width;
    double *coefficients;
    if (put_learnt(run, learner))
        return;
    coefficients = take(sizeof *coefficients * (Size) (count + m->outputs));
    memcpy(coefficients, m->coefficients, sizeof(double) * (Size) count);
    memcpy(coefficients + count, m->intercepts, sizeof(double) * (Size) m->outputs);
    if (run->scaling != NULL)
        fold(run->scaling, m->bytes, true, m->outputs, coefficients, coefficients + count);
    corgi_learner_set(learner, coefficients, coefficients + count);
    pfree(coefficients);
}
