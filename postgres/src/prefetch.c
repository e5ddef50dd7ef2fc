/* Prefetch of page ranges by posix_fadvise.
 * One call covers neighbouring pages; page by page, the system would fetch each separately. The system's count of
 * blocks read shows whether calls help. If not, occasional calls only probe; call times would not show it, because
 * useless calls are slow too on a busy machine. Once calls help, a thread makes them and sleeps while the device is
 * saturated. It runs only system calls and ends with the epoch. */
#include "compat.h"
#include "reading.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/relpath.h"
#include "io/pool.h"

enum { QUEUE_CALLS = 64, CALL_PAGES = 32, PATH_BYTES = 112 }; /* calls in the queue, pages per call, bytes of a path */
enum { USEFUL_CALLS = 64 };        /* calls for which one useful call counts */

typedef struct {
    char path[PATH_BYTES + 16];
    off_t from, bytes;
} Call;

struct CorgiPrefetcher {
    bool running;           /* the thread exists */
    pthread_t thread;
    pthread_mutex_t lock;   /* of the following members */
    pthread_cond_t changed;
    bool stop;
    int useful;             /* calls before the next probe */
    int64 made, taken;      /* calls put into the queue, and taken out of it */
    Call queue[QUEUE_CALLS];
};

CorgiPrefetcher *corgi_make_prefetcher(void) { return palloc0(sizeof(CorgiPrefetcher)); }

#ifdef USE_POSIX_FADVISE
#ifndef RUSAGE_THREAD
#define RUSAGE_THREAD RUSAGE_SELF
#endif

/* Return the blocks that devices have read for this thread. */
static long fetched_so_far(void)
{
    struct rusage used;
    return getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_inblock : 0;
}
#endif

/* Make a call. Returns whether the system read something. */
static bool make_call(const Call *call)
{
#ifdef USE_POSIX_FADVISE
    long before = fetched_so_far();
    int file = open(call->path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    (void) posix_fadvise(file, call->from, call->bytes, POSIX_FADV_WILLNEED);
    (void) close(file);
    return fetched_so_far() != before;
#else
    return false;
#endif
}

static int update_useful(int useful, bool fetched) { return fetched ? USEFUL_CALLS : Max(useful - 1, 0); }

static void *run_thread(void *argument)
{
    CorgiPrefetcher *a = argument;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (a->taken == a->made) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        bool fetched = make_call(&a->queue[a->taken % QUEUE_CALLS]);
        pthread_mutex_lock(&a->lock);
        a->taken++;
        a->useful = update_useful(a->useful, fetched);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void drop_locks(CorgiPrefetcher *a)
{
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
}

/* Start the thread. Without one, the backend makes the calls. */
static void start_thread(CorgiPrefetcher *a)
{
    a->stop = false;
    a->made = a->taken = 0;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->running = cp_thread_start(&a->thread, run_thread, a) == 0;
    if (!a->running)
        drop_locks(a);
}

/* Stop the thread, if any. */
void corgi_stop_prefetcher(CorgiPrefetcher *a)
{
    if (!a->running)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    a->running = false;
    drop_locks(a);
}

/* Return whether prefetching has helped recently. */
bool corgi_prefetch_is_useful(CorgiPrefetcher *a)
{
    if (!a->running)
        return a->useful > 0;
    pthread_mutex_lock(&a->lock);
    bool useful = a->useful > 0;
    pthread_mutex_unlock(&a->lock);
    return useful;
}

/* Write the path of a table's file, as the backend opens it. */
static void write_path(Relation rel, char *to, size_t size)
{
#if PG_VERSION_NUM >= 180000
    strlcpy(to, relpath(CORGI_STORAGE(rel), MAIN_FORKNUM).str, size);
#else
    char *path = relpath(CORGI_STORAGE(rel), MAIN_FORKNUM);
    strlcpy(to, path, size);
    pfree(path);
#endif
}

/* Write the call for pages of one segment file of a table. */
static void write_call(Call *call, const char *path, int64 page, int64 count)
{
    int64 segment = page / (int64) RELSEG_SIZE;
    strlcpy(call->path, path, sizeof call->path);
    if (segment > 0)
        snprintf(call->path, sizeof call->path, "%s." INT64_FORMAT, path, segment);
    call->from = (off_t) (page % (int64) RELSEG_SIZE) * BLCKSZ;
    call->bytes = (off_t) count * BLCKSZ;
}

/* Queue calls. Returns false if the queue is full. */
static bool queue_calls(CorgiPrefetcher *a, const Call *calls, int count)
{
    pthread_mutex_lock(&a->lock);
    bool fits = a->made == a->taken || a->made - a->taken + count <= QUEUE_CALLS;
    for (int i = 0; fits && i < count; i++)
        a->queue[a->made++ % QUEUE_CALLS] = calls[i];
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return fits;
}

/* Prefetch pages of a table, in a thread if allowed; of a huge block, only its beginning. Returns false if the queue is
 * full. */
bool corgi_prefetch(CorgiPrefetcher *a, Relation rel, int64 page, int64 count, bool threads)
{
    Call calls[QUEUE_CALLS];
    char path[PATH_BYTES];
    int made = 0;
    int64 here;
    write_path(rel, path, sizeof path);
    for (int64 stop = page + count; page < stop && made < QUEUE_CALLS; page += here) {
        here = Min(Min(stop - page, (int64) CALL_PAGES), (int64) RELSEG_SIZE - page % (int64) RELSEG_SIZE);
        write_call(&calls[made++], path, page, here);
    }
    if (threads && !a->running && a->useful > 0)
        start_thread(a);
    if (a->running)
        return queue_calls(a, calls, made);
    for (int i = 0; i < made; i++)
        a->useful = update_useful(a->useful, make_call(&calls[i]));
    return true;
}
