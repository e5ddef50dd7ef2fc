/* Learners of several models: by group, each on its group's rows (corgipile.linear.group_sgd in Python), or by label,
 * each on all rows (model_stack_labels.c). */
#include "model_stack.h"

#include "miscadmin.h"
#include "sgd/state.h"

enum { VISITS_PER_DEAL = 8192 }; /* visits distributed to groups at a time */

/* Return the number of models. */
int64 corgi_model_count(const CorgiRun *run)
{
    return run->groups ? corgi_group_count(run->groups) : run->labels ? corgi_label_count(run->labels) : 1;
}

/* Return the share of buffer_size that several models and their row assignments take. */
int64 corgi_stack_bytes(const CorgiRun *run)
{
    return run->groups ? corgi_groups_bytes(run) : run->labels ? corgi_labels_bytes(run) : 0;
}

static CorgiModelStack *make_stack(int64 groups, int64 seats)
{
    CorgiModelStack *c = palloc0(sizeof *c);
    Size count = (Size) groups;
    c->count = groups;
    c->seats = seats;
    c->each = palloc_extended((Size) seats * sizeof *c->each, MCXT_ALLOC_HUGE);
    c->rate = palloc_extended(count * sizeof *c->rate, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->losses = palloc_extended(count * sizeof *c->losses, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->figures = palloc_extended(count * sizeof *c->figures, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->skipped = palloc_extended(count * sizeof *c->skipped, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->running = palloc_extended(count, MCXT_ALLOC_HUGE);
    c->failed = palloc_extended(count, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->starts = palloc_extended(count * sizeof *c->starts, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->touched = palloc(VISITS_PER_DEAL * sizeof *c->touched);
    c->visit = palloc(VISITS_PER_DEAL * sizeof *c->visit);
    c->group = palloc(VISITS_PER_DEAL * sizeof *c->group);
    memset(c->running, true, count);
    return c;
}

/* Return one learner per group or label at the initial rate; NULL for a single model. */
CorgiModelStack *corgi_make_stack(const CorgiRun *run)
{
    const int64 count = corgi_model_count(run);
    int64 *rows = run->groups ? corgi_group_rows(run) : NULL;
    CorgiModelStack *c;
    if (run->groups == NULL && run->labels == NULL)
        return NULL;
    c = make_stack(count, count);
    for (int64 k = 0; k < count; k++) {
        c->each[k] = corgi_learner_for(run, rows ? rows[k] : run->survey.rows);
        c->rate[k] = run->options.learning_rate;
    }
    if (rows != NULL)
        pfree(rows);
    else
        corgi_allocate_labels(c);
    return c;
}

/* Return learners that score rows with stored models by group. Learners stay within work_mem, except the first; metrics
 * of all groups are kept. */
CorgiModelStack *corgi_make_evaluation_stack(const CorgiModel *m, const char *name, bool sparse)
{
    CorgiLearner *first = corgi_model_learner(m, sparse);
    const int64 most = work_mem * INT64CONST(1024) / corgi_learner_memory(first);
    CorgiModelStack *c = make_stack(m->groups, Max(Min(m->groups, most), 1));
    c->model = m;
    c->name = name;
    c->each[0] = first;
    for (int64 k = 1; k < c->seats; k++)
        c->each[k] = corgi_model_learner(corgi_model_of_group(m, k), sparse);
    if (c->seats == c->count)
        return c;
    c->seated = palloc_extended((Size) c->seats * sizeof *c->seated, MCXT_ALLOC_HUGE);
    c->totals = palloc_extended((Size) c->count * sizeof *c->totals, MCXT_ALLOC_HUGE);
    for (int64 k = 0; k < c->seats; k++)
        c->seated[k] = k;
    for (int64 k = 0; k < c->count; k++)
        corgi_learner_totals(first, &c->totals[k], false);
    return c;
}

/* Return a group's learner, which replaces another group's if there are too few. */
static CorgiLearner *group_learner(CorgiModelStack *c, int64 k)
{
    const int64 seat = k % c->seats, before = c->seated ? c->seated[seat] : k;
    CorgiLearner *learner = c->each[seat];
    if (before == k)
        return learner;
    corgi_learner_totals(learner, &c->totals[before], false);
    corgi_learner_set(learner, c->model->coefficients + k * c->model->outputs * c->model->width,
                      c->model->intercepts + k * c->model->outputs);
    corgi_learner_totals(learner, &c->totals[k], true);
    c->seated[seat] = k;
    return learner;
}

/* Return the number of scores per row. */
int64 corgi_stack_outputs(const CorgiModelStack *c) { return corgi_learner_outputs(c->each[0]); }

/* Return the group of a row to be measured. */
int32 corgi_group_of_row(const CorgiModelStack *c, const CorgiSource *part, TupleTableSlot *row)
{
    NullableDatum value;
    value.value = slot_getattr(row, part->by.attnum, &value.isnull);
    return (int32) corgi_find_group(c->model, c->name, part->by.type, value, &part->by, &row->tts_tid);
}

/* Score rows by slot as corgi_learner_decide_rows does, each with its group's model. */
void corgi_stack_decide(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, double *scores)
{
    const int64 outputs = corgi_stack_outputs(c);
    for (int64 i = 0; i < count; i++)
        corgi_learner_decide_rows(group_learner(c, run->buffer.group[visit[i]]), run, visit + i, 1,
                                  scores + i * outputs);
}

/* Return the bytes per model: its learner and bookkeeping. */
int64 corgi_member_bytes(const CorgiRun *run)
{
    const CorgiModelStack *c = NULL;
    return corgi_learner_size(run) +
           (int64) (sizeof *c->each + sizeof *c->rate + sizeof *c->losses + sizeof *c->figures + sizeof *c->skipped +
                    2 * sizeof(bool) + sizeof *c->starts + sizeof(CorgiName));
}

/* Return the weighted means of group metrics. */
static cp_figures mean_metrics(const cp_figures *each, int64 count)
{
    cp_figures all = {0};
    for (int64 k = 0; k < count; k++) {
        all.rows += each[k].rows;
        all.loss += each[k].loss * each[k].weight;
        all.score += each[k].score * each[k].weight;
        all.weight += each[k].weight;
    }
    all.loss /= all.weight != 0 ? all.weight : 1;
    all.score /= all.weight != 0 ? all.weight : 1;
    return all;
}

/* Begin a pass of the running groups: all, or only those with a reduced rate. */
void corgi_stack_begin(CorgiModelStack *c, const CorgiRun *run, int64 epoch)
{
    const CorgiOptions *o = &run->options;
    c->so_far = (cp_figures){0};
    for (int64 k = 0; k < c->count; k++) {
        if (!c->running[k]) {
            c->so_far.rows += c->figures[k].rows;
            c->so_far.loss += c->figures[k].loss * c->figures[k].weight;
            c->so_far.weight += c->figures[k].weight;
            continue;
        }
        c->failed[k] = false;
        c->skipped[k] = 0;
        corgi_learner_watch(group_learner(c, k), o->adaptive && cp_sgd_reduced_rate(c->rate[k]) > 0, epoch == 0);
        corgi_learner_begin(group_learner(c, k), cp_sgd_rate(o->step, c->rate[k], o->decay, epoch));
    }
}

/* Group the next visits by group, keeping their order. Returns the number of groups among them. */
static int64 deal_visits(CorgiModelStack *c, const int32 *group, const int32 *visit, int64 count)
{
    int64 touched = 0;
    int32 from = 0;
    for (int64 i = 0; i < count; i++) {
        c->group[i] = group[visit[i]];
        if (c->starts[c->group[i]]++ == 0)
            c->touched[touched++] = c->group[i];
    }
    for (int64 t = 0; t < touched; t++) {
        const int32 own = c->starts[c->touched[t]];
        c->starts[c->touched[t]] = from;
        from += own;
    }
    for (int64 i = 0; i < count; i++)
        c->visit[c->starts[c->group[i]]++] = visit[i]; /* starts become ends */
    return touched;
}

/* Let a group learn from visits. Returns a kernel status, and sets the slot of a refused row. */
static int learn_group(CorgiModelStack *c, const CorgiRun *run, int64 k, const int32 *visit, int64 count,
                       int32 *refused)
{
    CorgiLearner *learner = group_learner(c, k);
    const cp_figures before = corgi_learner_figures(learner);
    cp_figures after;
    int status = CP_SGD_OK;
    int64 done = 0;
    corgi_learner_count(learner, run, visit, count);
    while (status == CP_SGD_OK && done < count) {
        status = corgi_learner_learn(learner, run, visit, count, &done);
        if (corgi_learner_skips(run, status)) {
            status = CP_SGD_OK;
            c->skipped[k]++;
            done++;
        }
    }
    if (status == CP_SGD_DIVERGED && corgi_learner_is_watched(learner)) {
        c->failed[k] = true;
        return CP_SGD_OK;
    }
    *refused = status != CP_SGD_OK ? visit[done] : 0;
    after = corgi_learner_figures(learner);
    c->so_far.rows += after.rows - before.rows;
    c->so_far.loss += after.loss * after.weight - before.loss * before.weight;
    c->so_far.weight += after.weight - before.weight;
    return status;
}

/* Learn from some rows by slot, from visit[*done] on, and advance `done`. Returns a kernel status. Thread-safe. */
int corgi_stack_learn(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done,
                      int32 *refused)
{
    const int64 piece = Min(count - *done, VISITS_PER_DEAL);
    int64 touched;
    int status = CP_SGD_OK;
    int32 from = 0;
    if (run->labels != NULL)
        return corgi_labels_learn(c, run, visit, count, done, refused);
    touched = deal_visits(c, run->buffer.group, visit + *done, piece);
    for (int64 t = 0; t < touched; t++) {
        const int32 k = c->touched[t], to = c->starts[k];
        c->starts[k] = 0;
        if (status == CP_SGD_OK && c->running[k] && !c->failed[k])
            status = learn_group(c, run, k, c->visit + from, to - from, refused);
        from = to;
    }
    *done += piece;
    return status;
}

/* Return the pass's rows and loss so far, for progress reports. */
cp_figures corgi_stack_so_far(const CorgiModelStack *c)
{
    cp_figures so_far = c->so_far;
    if (c->states != NULL)
        return corgi_labels_so_far(c);
    so_far.loss /= so_far.weight > 0 ? so_far.weight : 1;
    return so_far;
}

/* End a pass. Returns the metrics of all models, and sets the number of skipped rows. */
cp_figures corgi_stack_end(CorgiModelStack *c, int64 *skipped)
{
    *skipped = 0;
    for (int64 k = 0; k < c->count; k++) {
        if (c->running[k])
            c->figures[k] = corgi_learner_end(group_learner(c, k));
        *skipped += c->skipped[k];
    }
    if (c->states != NULL) {
        *skipped = c->skipped[0]; /* all visit the same rows */
        return corgi_labels_mean(c->figures, c->count);
    }
    return mean_metrics(c->figures, c->count);
}

/* Copy the models, one after the other, for unscaled rows. */
void corgi_stack_get(const CorgiModelStack *c, const CorgiRun *run, double *coefficients, double *intercepts)
{
    const int64 outputs = corgi_learner_outputs(c->each[0]);
    for (int64 k = 0; k < c->count; k++)
        corgi_get_folded(run, c->each[k], coefficients + k * outputs * run->survey.width, intercepts + k * outputs);
}

/* Write the training state of models with standardised features, as corgi_get_learnt does for the predicting
 * weights. */
void corgi_stack_write_state(const CorgiModelStack *c, const CorgiRun *run, double *to)
{
    const int64 outputs = corgi_learner_outputs(c->each[0]), width = run->survey.width, line = width + 1;
    double *coefficients = MemoryContextAllocHuge(CurrentMemoryContext, sizeof *coefficients * (Size) (outputs * line));
    corgi_write_scaling(run, to);
    for (int64 k = 0; k < c->count; k++) {
        corgi_learner_get(c->each[k], false, coefficients, coefficients + outputs * width);
        for (int64 i = 0; i < outputs; i++) {
            double *at = to + (k * outputs + i + 2) * line;
            memcpy(at, coefficients + i * width, sizeof *at * (Size) width);
            at[width] = coefficients[outputs * width + i];
        }
    }
    pfree(coefficients);
}
