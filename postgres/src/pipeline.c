/* Epoch pipeline: the backend reads a step's rows into slots while a thread learns from the previous step; whichever is
 * idle plans the next one.
 * The thread runs only kernel code: it calls no server function, owns no server memory, and receives no signals. It
 * lives within one epoch; errors, cancel requests and the backend's exit join it. Plans never write a slot that the
 * current step visits: see `ahead` in kernel/plan/plan.h. */
#include "learning.h"
#include "operators.h"
#include "steps.h"

#include <pthread.h>
#include <time.h>

#include "io/pool.h"
#include "miscadmin.h"
#include "sgd/state.h"
#include "storage/ipc.h"
#include "utils/wait_event.h"

enum { WAIT_NANOSECONDS = 10 * 1000 * 1000 }; /* longest delay of a cancel request */

typedef struct {
    const CorgiRun *run;
    CustomScanState *tuples;
    corgi_steps *steps;
    uint32 wait_event;
    pthread_t thread;
    bool running;           /* the thread exists */
    volatile sig_atomic_t stop;
    pthread_mutex_t lock;   /* of the following members */
    pthread_cond_t changed;
    int64 planned, loaded, learnt; /* numbers of steps */
    bool planning;          /* a step is being planned */
    bool ended;             /* no step is left to plan */
    cp_figures so_far;      /* of the steps learnt */
    int failure;            /* planner error, below 0; kernel status, above */
    int32 refused;          /* slot of the row that the kernel refused */
} Compute;

/* Learn from a step. Returns a kernel status. */
static int learn_step(Compute *c, const corgi_step *step)
{
    int status = CP_SGD_OK;
    int64 done = 0;
    while (status == CP_SGD_OK && done < step->visits && !c->stop) {
        if (!c->running)
            CHECK_FOR_INTERRUPTS();
        status = corgi_stack_learn(c->run->stack, c->run, step->visit, step->visits, &done, &c->refused);
    }
    return status;
}

typedef enum { WAIT, PLAN, LEARN } PipelineTask;

static bool can_plan(const Compute *c) { return !c->ended && !c->planning && c->planned - c->learnt < CORGI_STEPS; }

/* Return the thread's next task. */
static PipelineTask next_task(const Compute *c)
{
    if (c->loaded > c->learnt)
        return LEARN;
    return can_plan(c) ? PLAN : WAIT;
}

static void do_task(Compute *c, PipelineTask task)
{
    const corgi_step *step = &c->steps->ring[c->learnt % CORGI_STEPS];
    int64 number = c->planned;
    c->planning |= task == PLAN;
    pthread_mutex_unlock(&c->lock);
    int result = task == PLAN ? corgi_plan_step(c->steps, number) : learn_step(c, step);
    pthread_mutex_lock(&c->lock);
    if (task == PLAN) {
        c->failure = c->failure == 0 ? Min(result, 0) : c->failure;
        c->ended = result == 0;
        c->planned += result > 0;
        c->planning = false;
    } else {
        c->failure = c->failure == 0 ? result : c->failure;
        c->so_far = corgi_stack_so_far(c->run->stack);
        c->learnt++;
    }
    pthread_cond_signal(&c->changed);
}

static void *run_thread(void *argument)
{
    Compute *c = argument;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && c->failure == 0) {
        PipelineTask task = next_task(c);
        if (task == WAIT)
            pthread_cond_wait(&c->changed, &c->lock);
        else
            do_task(c, task);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Start the thread. Without one, the backend works alone, with the same result. */
static void start_thread(Compute *c)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->running = true;
    if (cp_thread_start(&c->thread, run_thread, c) != 0)
        c->running = false;
}

static void stop_thread(int code, Datum argument)
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

static void raise_failure(const Compute *c)
{
    if (c->failure == CP_SGD_DIVERGED && corgi_stack_has_failed(c->run->stack))
        return;
    if (c->failure == CORGI_NO_MEMORY)
        ereport(ERROR, errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"));
    if (c->failure == CORGI_BROKEN_BOUND)
        elog(ERROR, "the buffer bound of order %s was broken", c->run->options.order_name);
    if (c->failure != 0)
        corgi_learner_refuse(c->run, c->failure, c->refused);
}

/* Return whether a step can be loaded: at most the one after the current step. Once `ended` is set there is no other:
 * planning finds the end and is at most two steps ahead of learning. */
static bool can_load(const Compute *c) { return c->ended || (c->planned > c->loaded && c->loaded - c->learnt < 2); }

static bool has_learnt(const Compute *c) { return c->learnt == c->loaded; }

/* Plan or wait until a condition holds. The caller holds the lock. */
static void wait_until(Compute *c, bool (*holds)(const Compute *))
{
    while (c->failure == 0 && !holds(c)) {
        struct timespec until;
        if (can_plan(c)) {
            do_task(c, PLAN);
            continue;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WAIT_NANOSECONDS;
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

/* Read steps while the thread learns. */
static void run_threaded(Compute *c)
{
    cp_figures so_far;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        wait_until(c, can_load);
        if (c->failure != 0 || c->loaded == c->planned)
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
    raise_failure(c);
    corgi_progress_rows(c->run, &so_far);
}

static void run_serial(Compute *c)
{
    corgi_step *step = c->steps->ring;
    while ((c->failure = corgi_plan_step(c->steps, 0)) > 0) {
        corgi_tuple_load(c->tuples, step);
        c->failure = learn_step(c, step);
        raise_failure(c);
        if (c->failure != 0)
            break;
        c->so_far = corgi_stack_so_far(c->run->stack);
        corgi_progress_rows(c->run, &c->so_far);
    }
    raise_failure(c);
}

/* Learn from all rows of the begun epoch, unless corgi_stack_has_failed earlier. */
void corgi_compute_epoch(const CorgiRun *run, CustomScanState *tuples)
{
    Compute *c = palloc0(sizeof *c);
    c->run = run;
    c->tuples = tuples;
    c->wait_event = corgi_wait_event(); /* may fail, so not while the lock is held */
    c->steps = corgi_tuple_steps(tuples);
    PG_ENSURE_ERROR_CLEANUP(stop_thread, PointerGetDatum(c));
    {
        if (run->options.threads > 1)
            start_thread(c);
        if (c->running)
            run_threaded(c);
        else
            run_serial(c);
    }
    PG_END_ENSURE_ERROR_CLEANUP(stop_thread, PointerGetDatum(c));
    stop_thread(0, PointerGetDatum(c));
    pfree(c);
}
