/* Learners of one or several models. A row trains the one model, its group's (corgipile.linear.group_sgd in Python), or
 * those of all labels: models with equal settings then visit a row together (kernel/sgd/multi_model.h). */
#include "members.h"
#include "model_stack.h"

#include "miscadmin.h"
#include "sgd/state.h"

enum { VISITS_PER_DEAL = 8192 }; /* visits distributed to groups at a time */
enum { MAX_CHUNK_ROWS = 4096, MIN_CHUNK_ROWS = 64 }; /* rows that all labels' models visit before the next ones */
static const int64 numbers_per_check = INT64CONST(1) << 26; /* numbers between two checks for a cancel request */

static CorgiModelStack *allocate_stack(int64 groups, int64 seats)
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

/* Allocate the kernel's arguments. */
static void allocate_labels(CorgiModelStack *c, const CorgiRun *run)
{
    const Size count = (Size) c->count;
    c->sets = corgi_label_sets(run->members);
    c->states = palloc_extended(count * sizeof *c->states, MCXT_ALLOC_HUGE);
    c->status = palloc_extended(count * sizeof *c->status, MCXT_ALLOC_HUGE);
    c->learnt = palloc_extended(count * sizeof *c->learnt, MCXT_ALLOC_HUGE);
    for (int64 k = 0; k < c->count; k++)
        c->states[k] = corgi_learner_state(c->each[k]);
}

/* Return one learner per model at the initial rate, or at the state of a warm start. */
CorgiModelStack *corgi_make_stack(const CorgiRun *run, const CorgiHistory *past)
{
    const int64 count = corgi_model_count(run);
    int64 *rows = corgi_rows_per_model(run);
    CorgiModelStack *c = allocate_stack(count, count);
    for (int64 k = 0; k < count; k++) {
        c->each[k] = corgi_learner_for(run, rows ? rows[k] : run->survey.rows);
        c->rate[k] = run->options.learning_rate;
    }
    if (rows != NULL)
        pfree(rows);
    if (corgi_are_labels(run->members))
        allocate_labels(c, run);
    if (run->past != NULL)
        corgi_resume(run, c->each[0]);
    c->epochs = past->past;
    c->losses[0][1] = past->past ? past->losses[past->past - 1] : 0;
    c->watched = run->options.adaptive && past->past == 0;
    c->recount = true;
    return c;
}

/* Return the one learner; NULL for models by group or label. */
CorgiLearner *corgi_single_learner(const CorgiModelStack *c, const CorgiRun *run)
{
    return run->members ? NULL : c->each[0];
}

/* Return learners that score rows with stored models by group. Learners stay within work_mem, except the first; metrics
 * of all groups are kept. */
CorgiModelStack *corgi_make_evaluation_stack(const CorgiModel *m, const char *name, bool sparse)
{
    CorgiLearner *first = corgi_model_learner(m, sparse);
    const int64 most = work_mem * INT64CONST(1024) / corgi_learner_memory(first);
    CorgiModelStack *c = allocate_stack(m->groups, Max(Min(m->groups, most), 1));
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

/* Return a model's learner, which replaces another group's if there are too few. */
static CorgiLearner *seated_learner(CorgiModelStack *c, int64 k)
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
        corgi_learner_decide_rows(seated_learner(c, run->buffer.group[visit[i]]), run, visit + i, 1,
                                  scores + i * outputs);
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

/* Begin a pass of the running models: all, or only those with another rate. */
void corgi_stack_begin(CorgiModelStack *c, const CorgiRun *run, int64 epoch)
{
    const CorgiOptions *o = &run->options;
    c->so_far = (cp_figures){0};
    c->left = 0;
    for (int64 k = 0; k < c->count; k++) {
        if (!c->running[k]) {
            c->so_far.rows += c->figures[k].rows;
            c->so_far.loss += c->figures[k].loss * c->figures[k].weight;
            c->so_far.weight += c->figures[k].weight;
            continue;
        }
        c->left++;
        c->failed[k] = false;
        c->skipped[k] = 0;
        corgi_learner_watch(seated_learner(c, k), c->watched && cp_sgd_reduced_rate(c->rate[k]) > 0, c->recount);
        corgi_learner_begin(seated_learner(c, k), cp_sgd_rate(o->step, c->rate[k], o->decay, epoch));
    }
    c->recount = false;
}

/* Return whether all running models overflowed at a rate under watch: the rest of the pass is of no use. */
bool corgi_stack_has_failed(const CorgiModelStack *c) { return c->left == 0; }

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

/* Return whether a model diverged at a watched rate, and record this. */
static bool note_failure(CorgiModelStack *c, int64 k, int status)
{
    if (status != CP_SGD_DIVERGED || !corgi_learner_is_watched(seated_learner(c, k)))
        return false;
    c->failed[k] = true;
    c->left--;
    return true;
}

/* Let a model learn from visits. Returns a kernel status, and sets the slot of a refused row. */
static int learn_model(CorgiModelStack *c, const CorgiRun *run, int64 k, const int32 *visit, int64 count,
                       int32 *refused)
{
    CorgiLearner *learner = seated_learner(c, k);
    const cp_figures before = corgi_learner_figures(learner);
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
    if (note_failure(c, k, status))
        return CP_SGD_OK;
    *refused = status != CP_SGD_OK ? visit[done] : 0;
    cp_figures after = corgi_learner_figures(learner);
    c->so_far.rows += after.rows - before.rows;
    c->so_far.loss += after.loss * after.weight - before.loss * before.weight;
    c->so_far.weight += after.weight - before.weight;
    return status;
}

/* Let the groups learn from a piece of visits. */
static int learn_groups(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int32 *refused)
{
    const int64 touched = deal_visits(c, run->buffer.group, visit, count);
    int status = CP_SGD_OK;
    int32 from = 0;
    for (int64 t = 0; t < touched; t++) {
        const int32 k = c->touched[t], to = c->starts[k];
        c->starts[k] = 0;
        if (status == CP_SGD_OK && c->running[k] && !c->failed[k])
            status = learn_model(c, run, k, c->visit + from, to - from, refused);
        from = to;
    }
    return status;
}

/* Resume a label's model behind refused rows that may be skipped. Returns the remaining status. */
static int skip_refused(CorgiModelStack *c, const CorgiRun *run, int64 k, const int32 *visit, int64 count)
{
    while (corgi_learner_skips(run, c->status[k])) {
        int64 more;
        c->skipped[k]++;
        c->learnt[k]++;
        corgi_learn_each(&c->states[k], 1, run, c->sets, k, visit + c->learnt[k], count - c->learnt[k], &c->status[k],
                         &more);
        c->learnt[k] += more;
    }
    return note_failure(c, k, c->status[k]) ? CP_SGD_OK : c->status[k];
}

/* Let the models of adjacent labels learn from rows. */
static int learn_adjacent(CorgiModelStack *c, const CorgiRun *run, int64 from, int64 to, const int32 *visit,
                          int64 count, int32 *refused)
{
    int status = CP_SGD_OK;
    corgi_learn_each(c->states + from, to - from, run, c->sets, from, visit, count, c->status + from, c->learnt + from);
    for (int64 k = from; k < to && status == CP_SGD_OK; k++) {
        status = c->status[k] == CP_SGD_OK ? CP_SGD_OK : skip_refused(c, run, k, visit, count);
        *refused = status != CP_SGD_OK ? visit[c->learnt[k]] : 0;
    }
    return status;
}

/* Let the models of all labels learn from a piece of visits. */
static int learn_labels(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int32 *refused)
{
    int status = CP_SGD_OK;
    for (int64 from = 0, to; from < c->count && status == CP_SGD_OK; from = to + 1) {
        for (to = from; to < c->count && c->running[to] && !c->failed[to];)
            to++;
        if (to > from)
            status = learn_adjacent(c, run, from, to, visit, count, refused);
    }
    return status;
}

/* Return the number of visits between two checks for a cancel request. */
static int64 visits_per_piece(const CorgiModelStack *c, const CorgiRun *run)
{
    const int64 numbers = (run->sizes.row_bytes / run->source.bytes + 1) * c->count;
    if (c->states == NULL)
        return run->buffer.group ? VISITS_PER_DEAL : corgi_learner_piece(c->each[0], run);
    return Max(Min(numbers_per_check / numbers, (int64) MAX_CHUNK_ROWS), (int64) MIN_CHUNK_ROWS);
}

/* Learn from some rows by slot, from visit[*done] on, and advance `done`. Returns a kernel status: that of a refused
 * row, or CP_SGD_DIVERGED once corgi_stack_has_failed. Thread-safe. */
int corgi_stack_learn(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done,
                      int32 *refused)
{
    const int64 piece = Min(count - *done, visits_per_piece(c, run));
    const int32 *some = visit + *done;
    const int status = c->states           ? learn_labels(c, run, some, piece, refused)
                       : run->buffer.group ? learn_groups(c, run, some, piece, refused)
                                           : learn_model(c, run, 0, some, piece, refused);
    *done += piece;
    return status == CP_SGD_OK && corgi_stack_has_failed(c) ? CP_SGD_DIVERGED : status;
}

/* Return the means of label metrics, added one by one as Python does. */
static cp_figures label_metrics(const cp_figures *each, int64 count)
{
    cp_figures all = {.rows = each[0].rows, .weight = each[0].weight};
    for (int64 k = 0; k < count; k++) {
        all.loss += each[k].loss;
        all.score += each[k].score;
    }
    all.loss /= (double) count;
    all.score /= (double) count;
    return all;
}

/* Return the pass's rows and the mean loss of the labels' running models so far. */
static cp_figures labels_so_far(const CorgiModelStack *c)
{
    cp_figures all = {0};
    int64 running = 0;
    for (int64 k = 0; k < c->count; k++) {
        const cp_figures one = c->running[k] ? corgi_learner_figures(c->each[k]) : c->figures[k];
        all.rows = Max(all.rows, one.rows);
        all.weight = Max(all.weight, one.weight);
        all.loss += c->failed[k] ? 0 : one.loss;
        running += !c->failed[k];
    }
    all.loss /= (double) Max(running, 1);
    return all;
}

/* Return the pass's rows and loss so far, for progress reports. */
cp_figures corgi_stack_so_far(const CorgiModelStack *c)
{
    cp_figures so_far = c->so_far;
    if (c->states != NULL)
        return labels_so_far(c);
    so_far.loss /= so_far.weight > 0 ? so_far.weight : 1;
    return so_far;
}

/* End a pass. Returns the metrics of all models, and sets the number of skipped rows. */
cp_figures corgi_stack_end(CorgiModelStack *c, int64 *skipped)
{
    *skipped = 0;
    for (int64 k = 0; k < c->count; k++) {
        if (c->running[k])
            c->figures[k] = corgi_learner_end(seated_learner(c, k));
        *skipped += c->skipped[k];
    }
    if (c->count == 1)
        return c->figures[0];
    if (c->states != NULL) {
        *skipped = c->skipped[0]; /* all visit the same rows */
        return label_metrics(c->figures, c->count);
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
    const int64 outputs = corgi_learner_outputs(c->each[0]), line = run->survey.width + 1;
    corgi_write_scaling(run, to);
    for (int64 k = 0; k < c->count; k++)
        corgi_write_weights(c->each[k], run->survey.width, false, to + (k * outputs + 2) * line);
}
