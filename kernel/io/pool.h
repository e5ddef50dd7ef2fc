/* A small thread pool for reading and copying: the threads and the caller run a numbered set of tasks. The threads
 * block all signals, so that a host's handlers run in the host's own threads. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define CP_SPIN_POLLS 500 /* polls before a thread sleeps, some microseconds: sleeping and waking takes longer */

typedef void (*cp_task)(void *context, int64_t task, int worker);

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t *threads;
    int count, seats, stop, open; /* seats: places in this round that no thread has taken; open: a guest may join it */
    atomic_int busy;
    pid_t owner; /* threads do not survive a fork: a child must not wait for them */
    cp_task task;
    void *context;
    atomic_llong tasks, next;
} cp_pool;

static inline void cp_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static inline void cp_pool_drain(cp_pool *pool, int worker)
{
    for (;;) {
        int64_t task = atomic_fetch_add(&pool->next, 1);
        if (task >= atomic_load(&pool->tasks))
            return;
        pool->task(pool->context, task, worker);
    }
}

static inline void *cp_pool_thread(void *argument)
{
    cp_pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->seats && !pool->stop)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stop)
            break;
        int worker = pool->seats--;
        pthread_mutex_unlock(&pool->lock);
        cp_pool_drain(pool, worker);
        pthread_mutex_lock(&pool->lock);
        if (atomic_fetch_sub(&pool->busy, 1) == 1)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static inline void cp_pool_stop(cp_pool *pool)
{
    if (pool->owner != getpid())
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->count; i++)
        pthread_join(pool->threads[i], NULL);
    free(pool->threads);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
}

/* Start a thread that blocks all signals except its own faults, which would otherwise end the process silently. Returns
 * an error number or 0. */
static inline int cp_thread_start(pthread_t *thread, void *(*body)(void *), void *argument)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

/* Start `threads` threads in addition to the caller's; fewer if the system refuses. Returns -1 if out of memory. */
static inline int cp_pool_start(cp_pool *pool, int threads)
{
    *pool = (cp_pool){.owner = getpid()};
    pool->threads = malloc(sizeof(pthread_t) * (size_t)(threads ? threads : 1));
    if (!pool->threads)
        return -1;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    while (pool->count < threads && !cp_thread_start(&pool->threads[pool->count], cp_pool_thread, pool))
        pool->count++;
    return 0;
}

/* Run tasks 0 .. tasks-1, each once, on the caller (worker 0) and up to `helpers` threads; a guest may join if `open`.
 * No other threads are woken, and threads not yet awake when all is done are not waited for. One caller at a time. */
static inline void cp_pool_run(cp_pool *pool, cp_task task, void *context, int64_t tasks, int helpers, int open)
{
    if (helpers > tasks - 1)
        helpers = (int)tasks - 1;
    if (helpers > pool->count)
        helpers = pool->count;
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->context = context;
    pool->open = open;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->tasks, tasks);
    pool->seats = helpers > 0 ? helpers : 0;
    atomic_store(&pool->busy, pool->seats);
    for (int i = 0; i < helpers; i++)
        pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    cp_pool_drain(pool, 0);
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_sub(&pool->busy, pool->seats);
    pool->seats = 0;
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < CP_SPIN_POLLS && atomic_load(&pool->busy); i++)
        cp_pause();
    pthread_mutex_lock(&pool->lock);
    pool->open = 0;
    while (atomic_load(&pool->busy))
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* Join the current round as its only guest, worker count + 1, until all tasks are taken. Returns 0 if there was no
 * round. */
static inline int cp_pool_help(cp_pool *pool)
{
    if (atomic_load(&pool->next) >= atomic_load(&pool->tasks))
        return 0;
    pthread_mutex_lock(&pool->lock);
    int joined = pool->open;
    pool->open = 0;
    atomic_fetch_add(&pool->busy, joined);
    pthread_mutex_unlock(&pool->lock);
    if (!joined)
        return 0;
    cp_pool_drain(pool, pool->count + 1);
    pthread_mutex_lock(&pool->lock);
    if (atomic_fetch_sub(&pool->busy, 1) == 1)
        pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->lock);
    return 1;
}
