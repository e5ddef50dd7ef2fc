/* Gathers rows in a background thread, one request after another. */
#pragma once

#include "io/gather.h"
#include "io/pool.h"

typedef struct cp_copy {
    char *to;
    const char *from;
    const int32_t *index;
    int64_t bytes, count; /* bytes per row; rows */
    struct cp_copy *next;
} cp_copy;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    cp_copy *next; /* the first request not begun */
    cp_copy *last;
    int64_t requested, completed;
    int running, stop;
    pid_t owner; /* threads do not survive a fork: a child gathers in the calling thread */
} cp_async_gather;

static inline void cp_copy_run(const cp_copy *copy)
{
    cp_gather(copy->to, copy->from, copy->bytes, copy->index, copy->count);
}

static inline void *cp_async_gather_thread(void *argument)
{
    cp_async_gather *gather = argument;
    pthread_mutex_lock(&gather->lock);
    while (!gather->stop) {
        cp_copy *copy = gather->next;
        if (!copy) {
            pthread_cond_wait(&gather->work, &gather->lock);
            continue;
        }
        pthread_mutex_unlock(&gather->lock);
        cp_copy_run(copy);
        pthread_mutex_lock(&gather->lock);
        gather->next = copy->next; /* later requests are linked to it */
        gather->completed++;
        pthread_cond_broadcast(&gather->done);
    }
    pthread_mutex_unlock(&gather->lock);
    return NULL;
}

static inline void cp_async_gather_init(cp_async_gather *gather)
{
    *gather = (cp_async_gather){.owner = getpid()};
    pthread_mutex_init(&gather->lock, NULL);
    pthread_cond_init(&gather->work, NULL);
    pthread_cond_init(&gather->done, NULL);
}

/* Wait until the copies up to number `until` are complete; returns the number of complete ones. 0 does not wait. In a
 * forked child, the calling thread completes the parent's requests. */
static inline int64_t cp_async_gather_wait(cp_async_gather *gather, int64_t until)
{
    if (gather->owner != getpid()) {
        for (; gather->next && gather->completed < until; gather->next = gather->next->next, gather->completed++)
            cp_copy_run(gather->next);
        return gather->completed;
    }
    pthread_mutex_lock(&gather->lock);
    while (gather->completed < until)
        pthread_cond_wait(&gather->done, &gather->lock);
    int64_t completed = gather->completed;
    pthread_mutex_unlock(&gather->lock);
    return completed;
}

/* Request a copy, which must stay alive until it is complete; without a thread it is made at once. Returns its number,
 * from 1. */
static inline int64_t cp_async_gather_request(cp_async_gather *gather, cp_copy *copy)
{
    int mine = gather->owner == getpid();
    copy->next = NULL;
    if (mine && !gather->running)
        gather->running = !cp_thread_start(&gather->thread, cp_async_gather_thread, gather);
    if (!mine || !gather->running) {
        cp_async_gather_wait(gather, gather->requested);
        cp_copy_run(copy);
        gather->completed = ++gather->requested;
        return gather->requested;
    }
    pthread_mutex_lock(&gather->lock);
    int64_t number = ++gather->requested;
    if (gather->next)
        gather->last->next = copy;
    else
        gather->next = copy;
    gather->last = copy;
    pthread_cond_signal(&gather->work);
    pthread_mutex_unlock(&gather->lock);
    return number;
}

/* Stop the thread after the copy that it is making. */
static inline void cp_async_gather_free(cp_async_gather *gather)
{
    if (gather->owner != getpid())
        return;
    if (gather->running) {
        pthread_mutex_lock(&gather->lock);
        gather->stop = 1;
        pthread_cond_signal(&gather->work);
        pthread_mutex_unlock(&gather->lock);
        pthread_join(gather->thread, NULL);
    }
    pthread_cond_destroy(&gather->work);
    pthread_cond_destroy(&gather->done);
    pthread_mutex_destroy(&gather->lock);
}
