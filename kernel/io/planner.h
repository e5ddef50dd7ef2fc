/* A thread that does one task at a time while its owner works, such as building the next step while one is read. */
#pragma once

#include "io/pool.h"

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int begun, asked, stopped, status; /* status: what the task returned last; 1 before */
    int (*task)(void *context);
    void *context;
    pthread_t thread;
} cp_planner;

static inline void *cp_planner_thread(void *argument)
{
    cp_planner *p = argument;
    pthread_mutex_lock(&p->lock);
    while (!p->stopped) {
        if (!p->asked) {
            pthread_cond_wait(&p->turn, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        int status = p->task(p->context);
        pthread_mutex_lock(&p->lock);
        p->status = status;
        p->asked = 0;
        pthread_cond_broadcast(&p->turn);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Start the thread; if the system refuses, `cp_planner_ask` declines. */
static inline void cp_planner_start(cp_planner *p, int (*task)(void *), void *context)
{
    *p = (cp_planner){.task = task, .context = context, .status = 1};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->turn, NULL);
    p->begun = cp_thread_start(&p->thread, cp_planner_thread, p) == 0;
}

static inline void cp_planner_stop(cp_planner *p)
{
    if (!p->begun)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopped = 1;
    pthread_cond_broadcast(&p->turn);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->turn);
    pthread_mutex_destroy(&p->lock);
    p->begun = 0;
}

/* Begin the task, unless it has returned anything but 1; what it works on is the thread's until `cp_planner_join`.
 * Returns whether it began. */
static inline int cp_planner_ask(cp_planner *p)
{
    if (!p->begun || p->status != 1)
        return 0;
    pthread_mutex_lock(&p->lock);
    p->asked = 1;
    pthread_cond_broadcast(&p->turn);
    pthread_mutex_unlock(&p->lock);
    return 1;
}

/* Wait for the task to end; returns its status. */
static inline int cp_planner_join(cp_planner *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->asked)
        pthread_cond_wait(&p->turn, &p->lock);
    int status = p->status;
    pthread_mutex_unlock(&p->lock);
    return status;
}
