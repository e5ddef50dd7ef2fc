/* Runs an epoch: the backend reads the rows of one step into slots while a thread learns from those of the step before;
 * whichever has nothing to do plans the one after.
 *
 * The thread runs kernel code and nothing else: it calls no function of the server, owns no memory of it, and every
 * signal goes to the backend. It lives within one epoch, and errors, cancel requests and the end of the backend pass
 * through the place where it is joined. Plans never write a slot that the step under way visits: see `ahead` in
 * kernel/plan/plan.h. */
#include "corgipile.h"

#include <pthread.h>
#include <time.h>

#include "io/pool.h"
#include "miscadmin.h"
#include "sgd/state.h"
#include "steps.h"
#include "storage/ipc.h"
#include "utils/wait_event.h"

enum { NAP_NANOSECONDS = 10 * 1000 * 1000 }; /* how late a cancel request may be seen */

typedef struct {
    CorgiLearner *learner;
    const CorgiRun *run;
    CustomScanState *tuples;
    corgi_steps *steps;
    uint32 wait_event;
    pthread_t thread;
    bool running;           /* there is a thread */
    volatile sig_atomic_t stop;
    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t changed;
    int64 planned, loaded, learnt; /* steps, from the first on */
    bool planning;          /* one of the two is */
    bool ended;             /* no step is left to plan */
    cp_figures so_far;      /* of the steps learnt */
    int64 skipped;          /* rows left out */
    int trouble;            /* of a plan, below 0; of the kernel, above */
    int32 refused;          /* the slot of the row that the kernel refused */
} Compute;

/* Let each group learn from its rows of a step. Returns a status of the kernel. */
static int learn_groups(Compute *c, const corgi_step *step)
{
    int status = CP_SGD_OK;
    int64 done = 0;
    while (status == CP_SGD_OK && done < step->visits && !c->stop) {
        if (!c->running)
            CHECK_FOR_INTERRUPTS();
        status = corgi_company_learn(c->run->company, c->run, step->visit, step->visits, &done, &c->refused);
    }
    return status;
}

static cp_figures figures(const Compute *c)
{
    return c->run->company ? corgi_company_so_far(c->run->company) : corgi_learner_figures(c->learner);
}

/* Learn from a step. Returns a status of the kernel. */
static int learn(Compute *c, const corgi_step *step)
{
    int status = CP_SGD_OK;
    int64 done = 0;
    if (c->run->company != NULL)
        return learn_groups(c, step);
    corgi_learner_count(c->learner, c->run, step->visit, step->visits);
    while (status == CP_SGD_OK && done < step->visits && !c->stop) {
        if (!c->running)
            CHECK_FOR_INTERRUPTS();
        status = corgi_learner_learn(c->learner, c->run, step->visit, step->visits, &done);
        if (corgi_learner_skips(c->run, status)) {
            status = CP_SGD_OK;
            c->skipped++;
            done++;
        }
    }
    if (status != CP_SGD_OK)
        c->refused = step->visit[done];
    return status;
}

typedef enum { WAIT, PLAN, LEARN } Task;

static bool can_plan(const Compute *c) { return !c->ended && !c->planning && c->planned - c->learnt < CORGI_STEPS; }

/* What the thread does next. */
static Task next_task(const Compute *c)
{
    if (c->loaded > c->learnt)
        return LEARN;
    return can_plan(c) ? PLAN : WAIT;
}

static void do_task(Compute *c, Task task)
{
    const corgi_step *step = &c->steps->ring[c->learnt % CORGI_STEPS];
    int64 number = c->planned;
    int result;
    c->planning |= task == PLAN;
    pthread_mutex_unlock(&c->lock);
    result = task == PLAN ? corgi_plan_step(c->steps, number) : learn(c, step);
    pthread_mutex_lock(&c->lock);
    if (task == PLAN) {
        c->trouble = c->trouble == 0 ? Min(result, 0) : c->trouble;
        c->ended = result == 0;
        c->planned += result > 0;
        c->planning = false;
    } else {
        c->trouble = c->trouble == 0 ? result : c->trouble;
        c->so_far = figures(c);
        c->learnt++;
    }
    pthread_cond_signal(&c->changed);
}

static void *work(void *argument)
{
    Compute *c = argument;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && c->trouble == 0) {
        Task task = next_task(c);
        if (task == WAIT)
            pthread_cond_wait(&c->changed, &c->lock);
        else
            do_task(c, task);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Start the thread; where the system grants none, the backend works alone, with the same result. */
static void start(Compute *c)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->running = true;
    if (cp_thread_start(&c->thread, work, c) != 0)
        c->running = false;
}

static void stop(int code, Datum argument)
{
    Compute *c = (Compute *) DatumGetPointer(argument);
    corgi_tuple_stop(c->tuples);
    if (!c->running)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    c->running = false;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}

/* Whether the epoch is to be begun again. */
static bool is_over(const Compute *c)
{
    return c->trouble == CP_SGD_DIVERGED && c->learner != NULL && corgi_learner_is_tried(c->learner);
}

static void raise_trouble(const Compute *c)
{
    if (is_over(c))
        return;
    if (c->trouble == CORGI_NO_MEMORY)
        ereport(ERROR, errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"));
    if (c->trouble == CORGI_BROKEN_BOUND)
        elog(ERROR, "the buffer bound of order %s was broken", c->run->options.order_name);
    if (c->trouble != 0)
        corgi_learner_refuse(c->run, c->trouble, c->refused);
}

/* At most the step after the one being learnt from. Once `ended` is set there is none to load, or this one: the end is
 * found by planning, which goes no further than two steps past those learnt. */
static bool can_load(const Compute *c) { return c->ended || (c->planned > c->loaded && c->loaded - c->learnt < 2); }

static bool has_learnt(const Compute *c) { return c->learnt == c->loaded; }

/* Plan, or wait, until this has been brought about; called with the lock held. */
static void wait_until(Compute *c, bool (*brought)(const Compute *))
{
    while (c->trouble == 0 && !brought(c)) {
        struct timespec until;
        if (can_plan(c)) {
            do_task(c, PLAN);
            continue;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += NAP_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pgstat_report_wait_start(c->wait_event);
        pthread_cond_timedwait(&c->changed, &c->lock, &until);
        pgstat_report_wait_end();
        pthread_mutex_unlock(&c->lock);
        CHECK_FOR_INTERRUPTS();
        pthread_mutex_lock(&c->lock);
    }
}

/* Read while the thread learns. */
static void run_together(Compute *c)
{
    cp_figures so_far;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        wait_until(c, can_load);
        if (c->trouble != 0 || c->loaded == c->planned)
            break;
        so_far = c->so_far;
        pthread_mutex_unlock(&c->lock);
        corgi_progress_rows(c->run, &so_far);
        corgi_tuple_load(c->tuples, &c->steps->ring[c->loaded % CORGI_STEPS]);
        pthread_mutex_lock(&c->lock);
        c->loaded++;
        pthread_cond_signal(&c->changed);
    }
    wait_until(c, has_learnt);
    so_far = c->so_far;
    pthread_mutex_unlock(&c->lock);
    raise_trouble(c);
    corgi_progress_rows(c->run, &so_far);
}

static void run_alone(Compute *c)
{
    corgi_step *step = c->steps->ring;
    while ((c->trouble = corgi_plan_step(c->steps, 0)) > 0) {
        corgi_tuple_load(c->tuples, step);
        c->trouble = learn(c, step);
        raise_trouble(c);
        if (c->trouble != 0)
            break;
        c->so_far = figures(c);
        corgi_progress_rows(c->run, &c->so_far);
    }
    raise_trouble(c);
}

/* Learn from all rows of the epoch that TupleShuffle has begun, by a learner, or where that is NULL by those of the groups; returns
 * how many were left out, or CORGI_DIVERGED where weights overflowed of a learner whose rate is tried. */
int64 corgi_compute_epoch(CorgiLearner *learner, const CorgiRun *run, CustomScanState *tuples)
{
    Compute *c = palloc0(sizeof *c);
    int64 skipped;
    c->learner = learner;
    c->run = run;
    c->tuples = tuples;
    c->wait_event = corgi_wait_event(); /* may fail, which nothing may while the lock is held */
    c->steps = corgi_tuple_steps(tuples);
    PG_ENSURE_ERROR_CLEANUP(stop, PointerGetDatum(c));
    {
        if (run->options.threads > 1)
            start(c);
        if (c->running)
            run_together(c);
        else
            run_alone(c);
    }
    PG_END_ENSURE_ERROR_CLEANUP(stop, PointerGetDatum(c));
    stop(0, PointerGetDatum(c));
    skipped = is_over(c) ? CORGI_DIVERGED : c->skipped;
    pfree(c);
    return skipped;
}
