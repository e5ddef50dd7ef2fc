/* Gathers rows in a thread of its own, one request after the other, while whoever asked does something else. */
#ifndef CP_ASIDE_H
#define CP_ASIDE_H

#include "io/gather.h"
#include "io/pool.h"

typedef struct cp_copy {
    char *to;
    const char *from;
    const int32_t *index;
    int64_t bytes, count; /* of a row; rows */
    struct cp_copy *next;
} cp_copy;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    cp_copy *next; /* the first that is not begun */
    cp_copy *last;
    int64_t asked, made;
    int running, stop;
    pid_t owner; /* the thread does not survive a fork: a child gathers by itself */
} cp_aside;

static inline void cp_copy_make(const cp_copy *copy)
{
    cp_gather(copy->to, copy->from, copy->bytes, copy->index, copy->count);
}

static inline void *cp_aside_thread(void *argument)
{
    cp_aside *aside = argument;
    pthread_mutex_lock(&aside->lock);
    while (!aside->stop) {
        cp_copy *copy = aside->next;
        if (!copy) {
            pthread_cond_wait(&aside->work, &aside->lock);
            continue;
        }
        pthread_mutex_unlock(&aside->lock);
        cp_copy_make(copy);
        pthread_mutex_lock(&aside->lock);
        aside->next = copy->next; /* what was asked for meanwhile hangs on it */
        aside->made++;
        pthread_cond_broadcast(&aside->done);
    }
    pthread_mutex_unlock(&aside->lock);
    return NULL;
}

static inline void cp_aside_init(cp_aside *aside)
{
    *aside = (cp_aside){.owner = getpid()};
    pthread_mutex_init(&aside->lock, NULL);
    pthread_cond_init(&aside->work, NULL);
    pthread_cond_init(&aside->done, NULL);
}

/* Wait until the copies up to one are made; returns how many are. With `until` 0 it does not wait. A child makes those
 * itself that its parent asked for. */
static inline int64_t cp_aside_wait(cp_aside *aside, int64_t until)
{
    if (aside->owner != getpid()) {
        for (; aside->next && aside->made < until; aside->next = aside->next->next, aside->made++)
            cp_copy_make(aside->next);
        return aside->made;
    }
    pthread_mutex_lock(&aside->lock);
    while (aside->made < until)
        pthread_cond_wait(&aside->done, &aside->lock);
    int64_t made = aside->made;
    pthread_mutex_unlock(&aside->lock);
    return made;
}

/* Ask for a copy, which must stay until it is made; without a thread it is made now. Returns its number, from 1. */
static inline int64_t cp_aside_ask(cp_aside *aside, cp_copy *copy)
{
    int mine = aside->owner == getpid();
    copy->next = NULL;
    if (mine && !aside->running)
        aside->running = !cp_thread_start(&aside->thread, cp_aside_thread, aside);
    if (!mine || !aside->running) {
        cp_aside_wait(aside, aside->asked);
        cp_copy_make(copy);
        aside->made = ++aside->asked;
        return aside->asked;
    }
    pthread_mutex_lock(&aside->lock);
    int64_t number = ++aside->asked;
    if (aside->next)
        aside->last->next = copy;
    else
        aside->next = copy;
    aside->last = copy;
    pthread_cond_signal(&aside->work);
    pthread_mutex_unlock(&aside->lock);
    return number;
}

/* End the thread after the copy that it makes. */
static inline void cp_aside_free(cp_aside *aside)
{
    if (aside->owner != getpid())
        return;
    if (aside->running) {
        pthread_mutex_lock(&aside->lock);
        aside->stop = 1;
        pthread_cond_signal(&aside->work);
        pthread_mutex_unlock(&aside->lock);
        pthread_join(aside->thread, NULL);
    }
    pthread_cond_destroy(&aside->work);
    pthread_cond_destroy(&aside->done);
    pthread_mutex_destroy(&aside->lock);
}

#endif
