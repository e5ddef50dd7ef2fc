/* Multilabel training: each model learns its label from all rows. Models with equal settings visit a row together
 * (kernel/sgd/multi_model.h). */
#include "model_stack.h"

#include "sgd/state.h"

enum { MAX_CHUNK_ROWS = 4096, MIN_CHUNK_ROWS = 64 }; /* rows that all models visit before the next ones */
static const int64 numbers_per_check = INT64CONST(1) << 26; /* numbers between two checks for a cancel request */

/* Allocate the kernel's arguments. */
void corgi_allocate_labels(CorgiModelStack *c)
{
    const Size count = (Size) c->count;
    c->states = palloc_extended(count * sizeof *c->states, MCXT_ALLOC_HUGE);
    c->status = palloc_extended(count * sizeof *c->status, MCXT_ALLOC_HUGE);
    c->learnt = palloc_extended(count * sizeof *c->learnt, MCXT_ALLOC_HUGE);
    for (int64 k = 0; k < c->count; k++)
        c->states[k] = corgi_learner_state(c->each[k]);
}

/* Resume a model behind refused rows that may be skipped. Returns the remaining status. */
static int skip_refused(CorgiModelStack *c, const CorgiRun *run, int64 k, const int32 *visit, int64 count)
{
    while (corgi_learner_skips(run, c->status[k])) {
        int64 more;
        c->skipped[k]++;
        c->learnt[k]++;
        corgi_learn_each(&c->states[k], 1, run, k, visit + c->learnt[k], count - c->learnt[k], &c->status[k], &more);
        c->learnt[k] += more;
    }
    if (c->status[k] != CP_SGD_DIVERGED || !corgi_learner_is_watched(c->each[k]))
        return c->status[k];
    c->failed[k] = true;
    return CP_SGD_OK;
}

/* Let adjacent models learn from rows. */
static int learn_run(CorgiModelStack *c, const CorgiRun *run, int64 from, int64 to, const int32 *visit, int64 count,
                     int32 *refused)
{
    int status = CP_SGD_OK;
    corgi_learn_each(c->states + from, to - from, run, from, visit, count, c->status + from, c->learnt + from);
    for (int64 k = from; k < to && status == CP_SGD_OK; k++) {
        status = c->status[k] == CP_SGD_OK ? CP_SGD_OK : skip_refused(c, run, k, visit, count);
        *refused = status != CP_SGD_OK ? visit[c->learnt[k]] : 0;
    }
    return status;
}

/* Learn from some rows by slot, as corgi_stack_learn does. Thread-safe. */
int corgi_labels_learn(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done,
                       int32 *refused)
{
    const int64 numbers = (run->sizes.row_bytes / run->source.bytes + 1) * c->count;
    const int64 piece =
        Min(count - *done, Max(Min(numbers_per_check / numbers, (int64) MAX_CHUNK_ROWS), (int64) MIN_CHUNK_ROWS));
    int status = CP_SGD_OK;
    for (int64 from = 0, to; from < c->count && status == CP_SGD_OK; from = to + 1) {
        for (to = from; to < c->count && c->running[to] && !c->failed[to];)
            to++;
        if (to > from)
            status = learn_run(c, run, from, to, visit + *done, piece, refused);
    }
    *done += piece;
    return status;
}

/* Return the means of label metrics, added one by one as Python does. */
cp_figures corgi_labels_mean(const cp_figures *each, int64 count)
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

/* Return the pass's rows and the mean loss of running models so far. */
cp_figures corgi_labels_so_far(const CorgiModelStack *c)
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
