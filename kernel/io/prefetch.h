/* Runs a plan over a reader: a thread builds steps and reads their rows into slots ahead of their visit.
 *
 * Slots are reused: step i may be read once the visits of step i - 1 - ahead are over. With ahead 0 there is no thread,
 * and a step is built and read on request. A waiting consumer helps to read. Upcoming steps are prefetched from a slow
 * device, `far` rows ahead. The memory of a step is reused after its visit.
 *
 * A staged run is for slots that lie elsewhere: each step is cut into pieces of at most `room` rows and visits, and
 * piece i is read into rows i % places * room and following of the reader's buffer. A piece keeps the slots of its
 * rows for the consumer, who moves them there. Another thread builds the next step meanwhile. */
#pragma once

#include "plan/plan.h"
#include "io/planner.h"
#include "io/reader.h"
#include "io/steps.h"
#include <time.h>

#define CP_MAX_PREFETCHED_STEPS 64 /* most steps prefetched */
#define CP_COLD_FACTOR 4           /* times `far` rows: read without waiting for the device, they end prefetching */

enum cp_run_status {
    CP_RUN_END, CP_RUN_STEP, CP_RUN_WAIT, CP_RUN_STOPPED, CP_RUN_FAILED, CP_RUN_NO_MEMORY, CP_RUN_OUTGROWN
};

typedef struct {
    cp_plan *plan;
    cp_reader *reader;
    cp_planner planner;
    int64_t ahead, far;
    int64_t room, places, place; /* of a staged run: rows of a piece, places for pieces, and the next piece's place */
    int32_t *into;               /* room places of rows */
    /* of the thread that builds steps */
    cp_steps coming;           /* built, not yet read; all but the first were prefetched */
    int64_t coming_count, coming_rows, cold;
    /* shared */
    pthread_mutex_t lock;
    pthread_cond_t loaded, left;
    cp_steps ready;            /* loaded, not yet visited */
    cp_step *spare, *visited;  /* visited: the step that the consumer holds */
    atomic_llong loads;        /* steps loaded */
    atomic_int asleep;         /* the consumer sleeps until a step is loaded */
    int64_t visits;            /* steps whose visit is over */
    int64_t waited;            /* nanoseconds that the thread waited for free slots */
    int status, stopped;       /* status: CP_RUN_STEP until the last step */
    int begun, threaded;
    pid_t owner;
    pthread_t thread;
} cp_run;

/* Lock on the side of the thread that builds steps; within the consumer's call the lock is held already. */
static inline void cp_run_lock(cp_run *run)
{
    if (run->threaded)
        pthread_mutex_lock(&run->lock);
}

static inline void cp_run_unlock(cp_run *run)
{
    if (run->threaded)
        pthread_mutex_unlock(&run->lock);
}

/* Append an empty step to those that are built; NULL if out of memory. */
static inline cp_step *cp_run_step(cp_run *run)
{
    cp_run_lock(run);
    cp_step *step = run->spare;
    run->spare = step ? step->next : NULL;
    cp_run_unlock(run);
    if (step || (step = calloc(1, sizeof *step)))
        cp_steps_push(&run->coming, step);
    return step;
}

/* Prefetch a step that was built, unless it is read at once. */
static inline void cp_run_announce(cp_run *run, cp_step *step)
{
    int later = step != run->coming.first;
    step->announced = later && run->cold > 0;
    run->coming_count += later;
    run->coming_rows += later ? step->reads : 0;
    if (step->announced)
        cp_reader_prefetch(run->reader, step->extents, step->extent_count);
}

/* Append the pieces of a step. */
static inline int cp_run_cut(cp_run *run, const cp_step *step)
{
    cp_step *piece;
    int64_t done = 0, seen = 0;
    do {
        if (!(piece = cp_run_step(run)) || cp_step_cut(step, run->room, &done, &seen, piece) < 0)
            return CP_RUN_NO_MEMORY;
        cp_run_announce(run, piece);
    } while (!piece->last);
    return CP_RUN_STEP;
}

/* Build the next step of the plan; prefetch it unless it is read at once. */
static inline int cp_run_make(cp_run *run)
{
    cp_plan *plan = run->plan;
    int status = cp_plan_begin(plan);
    if (status <= 0)
        return status < 0 ? CP_RUN_NO_MEMORY : CP_RUN_END;
    int large = run->room && (plan->reads > run->room || plan->visits > run->room);
    cp_step whole = {0}, *step = large ? &whole : cp_run_step(run);
    if (!step || cp_step_fit(step, plan->extents, plan->reads, plan->visits, cp_plan_swept(plan)) < 0)
        status = CP_RUN_NO_MEMORY;
    else if (cp_plan_next(plan, step->extents, step->into, step->sweep, step->visit) < 0)
        status = CP_RUN_OUTGROWN;
    else if (large)
        status = cp_run_cut(run, step);
    else
        cp_run_announce(run, step), status = CP_RUN_STEP;
    free(whole.extents);
    return status;
}

/* Return the rows of the buffer that a step is read into: its slots, or the next place of a staged run. */
static inline const int32_t *cp_run_into(cp_run *run, const cp_step *step)
{
    for (int64_t i = 0; run->room && i < step->reads; i++)
        run->into[i] = (int32_t)(run->place * run->room + i);
    return run->room ? run->into : step->into;
}

static inline int cp_run_make_next(void *run)
{
    return cp_run_make(run);
}

/* Build a step to read, and if the device is slow, enough more to keep it busy. */
static inline int cp_run_plan(cp_run *run)
{
    int status = CP_RUN_STEP, slow = run->threaded && run->cold > 0;
    while (status == CP_RUN_STEP &&
           (!run->coming.first || (slow && run->coming_rows < run->far && run->coming_count < CP_MAX_PREFETCHED_STEPS)))
        status = cp_run_make(run);
    return status == CP_RUN_END && run->coming.first ? CP_RUN_STEP : status;
}

/* Read the first upcoming step and hand it over; a step that fails to read stays. Other threads copy cached bytes only
 * if the step is large or the consumer sleeps; otherwise the consumer helps as soon as it waits. */
static inline int cp_run_load(cp_run *run, int urgent)
{
    cp_step *step = run->coming.first;
    urgent = urgent && (!run->threaded || step->reads > run->far || atomic_load(&run->asleep));
    run->reader->read.soon = run->far && !step->announced;
    const int32_t *into = cp_run_into(run, step), *sweep = run->room ? NULL : step->sweep;
    int asked = !step->next && cp_planner_ask(&run->planner);
    int status = cp_reader_read(run->reader, step->extents, step->extent_count, into, sweep, urgent);
    int planned = asked ? cp_planner_join(&run->planner) : CP_RUN_STEP;
    planned = planned == CP_RUN_END ? CP_RUN_STEP : planned; /* what is built is read first */
    run->cold = run->reader->read.waited ? CP_COLD_FACTOR * run->far : run->cold - step->reads;
    if (atomic_load(&run->reader->read.quit))
        return CP_RUN_STOPPED;
    if (status)
        return status < 0 ? CP_RUN_NO_MEMORY : CP_RUN_FAILED;
    if (planned != CP_RUN_STEP)
        return planned;
    run->place = run->room ? (run->place + 1) % run->places : 0;
    run->coming.first = step->next;
    if (run->coming.first) {
        run->coming_count--;
        run->coming_rows -= run->coming.first->reads;
    }
    cp_run_lock(run);
    cp_steps_push(&run->ready, step);
    atomic_fetch_add(&run->loads, 1);
    cp_run_unlock(run);
    return CP_RUN_STEP;
}

static inline int64_t cp_run_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Wait until the slots of the next step are free; returns 1 if it did not wait, 0 if it did, -1 to stop. */
static inline int cp_run_admit(cp_run *run)
{
    pthread_mutex_lock(&run->lock);
    int urgent = atomic_load(&run->loads) - run->visits <= run->ahead;
    if (!urgent) {
        int64_t since = cp_run_clock();
        while (!run->stopped && atomic_load(&run->loads) - run->visits > run->ahead)
            pthread_cond_wait(&run->left, &run->lock);
        run->waited += cp_run_clock() - since;
    }
    int stopped = run->stopped;
    pthread_mutex_unlock(&run->lock);
    return stopped ? -1 : urgent;
}

static inline void *cp_run_thread(void *argument)
{
    cp_run *run = argument;
    int status, urgent;
#ifdef __linux__
    pthread_setname_np(pthread_self(), "corgipile-read");
#endif
    if (run->room)
        cp_planner_start(&run->planner, cp_run_make_next, run);
    while ((status = cp_run_plan(run)) == CP_RUN_STEP) {
        urgent = cp_run_admit(run);
        status = urgent < 0 ? CP_RUN_STOPPED : cp_run_load(run, urgent);
        if (status != CP_RUN_STEP)
            break;
        pthread_cond_signal(&run->loaded);
    }
    cp_planner_stop(&run->planner);
    pthread_mutex_lock(&run->lock);
    run->status = status;
    pthread_mutex_unlock(&run->lock);
    pthread_cond_signal(&run->loaded);
    return NULL;
}

/* Prepare a run; the caller keeps plan and reader alive, for this run alone. */
static inline void cp_run_init(cp_run *run, cp_plan *plan, cp_reader *reader, int64_t far)
{
    *run = (cp_run){.plan = plan, .reader = reader, .far = far, .ahead = plan->spec.ahead, .status = CP_RUN_STEP};
    run->owner = getpid();
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->loaded, NULL);
    pthread_cond_init(&run->left, NULL);
}

/* Make a run staged, before it begins; the reader's buffer has room * places rows. Returns -1 if out of memory. */
static inline int cp_run_stage(cp_run *run, int64_t room, int64_t places)
{
    run->room = room, run->places = places, run->ahead = places - 2;
    run->into = malloc(sizeof(int32_t) * (size_t)room);
    return run->into ? 0 : -1;
}

/* Start the thread; if the system refuses, steps are read on request. */
static inline void cp_run_begin(cp_run *run)
{
    run->begun = 1;
    run->threaded = run->ahead > 0;
    if (run->threaded && cp_thread_start(&run->thread, cp_run_thread, run) != 0)
        run->threaded = 0;
}

/* While no step is loaded, help to read one, and poll for a while. */
static inline void cp_run_help(cp_run *run)
{
    int64_t loaded = run->visits + 1;
    for (int i = 0; i < CP_SPIN_POLLS && atomic_load(&run->loads) < loaded; i++)
        if (!cp_pool_help(&run->reader->pool))
            cp_pause();
}

static inline int cp_run_idle(const cp_run *run)
{
    return !run->ready.first && run->status == CP_RUN_STEP && !run->stopped;
}

/* Wait this long for a step to be loaded. */
static inline void cp_run_wait(cp_run *run, int64_t nanoseconds)
{
    struct timespec until;
    pthread_mutex_unlock(&run->lock);
    cp_run_help(run);
    pthread_mutex_lock(&run->lock);
    if (!cp_run_idle(run))
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    nanoseconds += until.tv_nsec;
    until.tv_sec += (time_t)(nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    atomic_store(&run->asleep, 1);
    while (cp_run_idle(run) && pthread_cond_timedwait(&run->loaded, &run->lock, &until) != ETIMEDOUT)
        ;
    atomic_store(&run->asleep, 0);
}

/* Release the last step and get the next: CP_RUN_STEP, CP_RUN_WAIT if none came in time, or how the run ended; after
 * CP_RUN_FAILED the reader's `read` has the failure. A step is valid until the next call. */
static inline int cp_run_next(cp_run *run, int64_t nanoseconds, const cp_step **step)
{
    int status;
    pthread_mutex_lock(&run->lock);
    if (run->visited) {
        run->visited->next = run->spare;
        run->spare = run->visited;
        run->visited = NULL;
        run->visits++;
        pthread_cond_signal(&run->left);
    }
    if (!run->begun && !run->stopped)
        cp_run_begin(run);
    if (!run->threaded && cp_run_idle(run)) {
        status = cp_run_plan(run);
        run->status = status == CP_RUN_STEP ? cp_run_load(run, 1) : status;
    } else if (cp_run_idle(run)) {
        cp_run_wait(run, nanoseconds);
    }
    run->visited = run->stopped ? NULL : cp_steps_pop(&run->ready);
    *step = run->visited;
    status = run->status == CP_RUN_STEP ? CP_RUN_WAIT : run->status;
    status = run->stopped ? CP_RUN_STOPPED : run->visited ? CP_RUN_STEP : status;
    pthread_mutex_unlock(&run->lock);
    return status;
}

typedef struct {
    int64_t ready, waited; /* loaded steps not yet visited; nanoseconds that the thread waited for slots */
} cp_run_figures;

/* Return the progress of a run, from any thread; zeros in a forked child. */
static inline cp_run_figures cp_run_figures_of(cp_run *run)
{
    cp_run_figures figures = {0, 0};
    if (run->owner != getpid()) /* the lock may be held for ever */
        return figures;
    pthread_mutex_lock(&run->lock);
    for (const cp_step *step = run->ready.first; step; step = step->next)
        figures.ready++;
    figures.waited = run->waited;
    pthread_mutex_unlock(&run->lock);
    return figures;
}

/* End the run at once, from any thread; a consumer that waits returns. */
static inline void cp_run_stop(cp_run *run)
{
    if (run->owner != getpid()) /* threads do not survive a fork, and the lock may be held for ever */
        return;
    atomic_store(&run->reader->read.quit, 1);
    pthread_mutex_lock(&run->lock);
    int join = run->threaded && !run->stopped;
    run->stopped = 1;
    pthread_cond_signal(&run->left);
    pthread_cond_broadcast(&run->loaded);
    pthread_mutex_unlock(&run->lock);
    if (join)
        pthread_join(run->thread, NULL);
}

/* Stop, and free the steps. */
static inline void cp_run_free(cp_run *run)
{
    cp_run_stop(run);
    cp_steps_free(run->coming.first);
    cp_steps_free(run->ready.first);
    cp_steps_free(run->spare);
    free(run->visited ? run->visited->extents : NULL);
    free(run->visited);
    free(run->into);
    if (run->owner != getpid())
        return;
    pthread_cond_destroy(&run->loaded);
    pthread_cond_destroy(&run->left);
    pthread_mutex_destroy(&run->lock);
}
