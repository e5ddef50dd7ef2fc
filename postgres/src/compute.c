/* Runs an epoch: the backend reads rows into the slots of one step while a thread learns from those of the step before.
 *
 * The thread runs the SGD kernel and nothing else: it calls no function of the server, owns no memory of it, and every
 * signal goes to the backend. It lives within one epoch, and errors, cancel requests and the end of the backend pass
 * through the place where it is joined. Plans never write a slot that the step under way visits: see `ahead` in
 * kernel/plan.h. */
#include "corgipile.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "miscadmin.h"
#include "sgd_state.h"
#include "storage/ipc.h"

enum { STEPS = 2, NAP_NANOSECONDS = 10 * 1000 * 1000 }; /* a nap: how late a cancel request may be seen */

typedef struct {
    const int32 *visit;
    int64 count;
} Step;

typedef struct {
    CorgiMachine *machine;
    const CorgiRun *run;
    pthread_t thread;
    bool running;           /* there is a thread */
    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t changed;
    Step steps[STEPS];
    int64 given, done;      /* steps */
    cp_figures so_far;
    int status;             /* of the kernel */
    int32 refused;          /* the slot of the row that it refused */
    volatile sig_atomic_t stop;
} Compute;

/* Learn from a step, in the thread. Returns a status of the kernel. */
static int learn_step(Compute *c, const Step *step)
{
    int64 done = 0;
    while (done < step->count && !c->stop) {
        int status = corgi_machine_learn(c->machine, c->run, step->visit, step->count, &done);
        if (status != CP_SGD_OK) {
            c->refused = step->visit[done];
            return status;
        }
    }
    return CP_SGD_OK;
}

static void *work(void *argument)
{
    Compute *c = argument;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && c->status == CP_SGD_OK) {
        Step step = c->steps[c->done % STEPS];
        if (c->done == c->given) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        int status = learn_step(c, &step);
        cp_figures so_far = corgi_machine_figures(c->machine);
        pthread_mutex_lock(&c->lock);
        c->so_far = so_far;
        c->status = status;
        c->done++;
        pthread_cond_signal(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Start the thread; where the system grants none, the backend learns by itself, with the same result. */
static void start(Compute *c)
{
    sigset_t all, before;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->running = pthread_create(&c->thread, NULL, work, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop(int code, Datum argument)
{
    Compute *c = (Compute *) DatumGetPointer(argument);
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

static void nap(Compute *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NAP_NANOSECONDS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

/* Wait until no more than `most` steps are under way. */
static void wait_for(Compute *c, int64 most)
{
    cp_figures so_far;
    bool over;
    if (!c->running) {
        corgi_progress_rows(c->run, &c->so_far);
        return;
    }
    do {
        CHECK_FOR_INTERRUPTS();
        pthread_mutex_lock(&c->lock);
        if (c->given - c->done > most && c->status == CP_SGD_OK)
            nap(c);
        so_far = c->so_far;
        over = c->given - c->done <= most || c->status != CP_SGD_OK;
        pthread_mutex_unlock(&c->lock);
    } while (!over);
    corgi_progress_rows(c->run, &so_far);
    if (c->status != CP_SGD_OK)
        corgi_machine_refuse(c->run, c->status, c->refused);
}

/* Learn from rows by slot, in the backend. */
void corgi_learn_here(CorgiMachine *machine, const CorgiRun *run, const int32 *visit, int64 count)
{
    for (int64 done = 0; done < count;) {
        int status;
        CHECK_FOR_INTERRUPTS();
        status = corgi_machine_learn(machine, run, visit, count, &done);
        if (status != CP_SGD_OK)
            corgi_machine_refuse(run, status, visit[done]);
    }
}

static void give(Compute *c, const Step *step)
{
    if (!c->running) {
        corgi_learn_here(c->machine, c->run, step->visit, step->count);
        c->so_far = corgi_machine_figures(c->machine);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->steps[c->given++ % STEPS] = *step;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Learn from all rows of the epoch that TupleShuffle has begun. */
void corgi_compute_epoch(CorgiMachine *machine, const CorgiRun *run, CustomScanState *tuples)
{
    Compute *c = palloc0(sizeof *c);
    Step step;
    c->machine = machine;
    c->run = run;
    PG_ENSURE_ERROR_CLEANUP(stop, PointerGetDatum(c));
    {
        if (run->options.threads > 1)
            start(c);
        while (corgi_tuple_next(tuples, &step.visit, &step.count)) {
            give(c, &step);
            wait_for(c, 1);
        }
        wait_for(c, 0);
    }
    PG_END_ENSURE_ERROR_CLEANUP(stop, PointerGetDatum(c));
    stop(0, PointerGetDatum(c));
    pfree(c);
}
