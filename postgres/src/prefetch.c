/* Asks the system for ranges of pages before they are read.
 *
 * One call asks for as many neighbouring pages as it may: page by page, the system would fetch each by itself. The
 * system counts what it fetches; where that is nothing asking is of no use, and done now and then only to see whether it
 * is. The time of calls would not tell: on a busy machine those that fetch nothing take long too. Once it is of use a
 * thread does it, which sleeps while the device has no room for more; it runs system calls and nothing else, and lives
 * no longer than the epoch. */
#include "corgipile.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/relpath.h"
#include "io/pool.h"
#include "storage/smgr.h"

enum { QUEUE = 64, A_CALL = 32, PATH = 112 }; /* calls that may wait, pages that one asks for, bytes of a path */
enum { STAYS = 64 };        /* calls for which one that fetched something counts */

typedef struct {
    char path[PATH + 16];
    off_t from, bytes;
} Call;

struct CorgiAsker {
    bool running;           /* there is a thread */
    pthread_t thread;
    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t changed;
    bool stop;
    int useful;             /* calls to make before the next look */
    int64 made, taken;      /* calls that were put into the queue, and out of it */
    Call queue[QUEUE];
};

CorgiAsker *corgi_make_asker(void) { return palloc0(sizeof(CorgiAsker)); }

#ifdef USE_POSIX_FADVISE
#ifndef RUSAGE_THREAD
#define RUSAGE_THREAD RUSAGE_SELF
#endif

/* What this thread let devices read so far. */
static long fetched_so_far(void)
{
    struct rusage used;
    return getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_inblock : 0;
}
#endif

/* Make a call. Returns whether the system had to fetch something. */
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

static int judge(int useful, bool fetched) { return fetched ? STAYS : Max(useful - 1, 0); }

static void *work(void *argument)
{
    CorgiAsker *a = argument;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        bool fetched;
        if (a->taken == a->made) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        fetched = make_call(&a->queue[a->taken % QUEUE]);
        pthread_mutex_lock(&a->lock);
        a->taken++;
        a->useful = judge(a->useful, fetched);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void drop_locks(CorgiAsker *a)
{
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
}

/* Start the thread; where the system grants none, the backend makes the calls. */
static void start(CorgiAsker *a)
{
    a->stop = false;
    a->made = a->taken = 0;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->running = cp_thread_start(&a->thread, work, a) == 0;
    if (!a->running)
        drop_locks(a);
}

/* End the thread if there is one. */
void corgi_stop_asker(CorgiAsker *a)
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

/* Return whether asking is of use, as far as is known. */
bool corgi_is_useful(CorgiAsker *a)
{
    bool useful;
    if (!a->running)
        return a->useful > 0;
    pthread_mutex_lock(&a->lock);
    useful = a->useful > 0;
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

/* Write the call for pages of one of the files that a large table consists of. */
static void write_call(Call *call, const char *path, int64 page, int64 count)
{
    int64 segment = page / (int64) RELSEG_SIZE;
    strlcpy(call->path, path, sizeof call->path);
    if (segment > 0)
        snprintf(call->path, sizeof call->path, "%s." INT64_FORMAT, path, segment);
    call->from = (off_t) (page % (int64) RELSEG_SIZE) * BLCKSZ;
    call->bytes = (off_t) count * BLCKSZ;
}

/* Put calls into the queue. Returns false if it has no room for them. */
static bool put(CorgiAsker *a, const Call *calls, int count)
{
    bool fits;
    pthread_mutex_lock(&a->lock);
    fits = a->made == a->taken || a->made - a->taken + count <= QUEUE;
    for (int i = 0; fits && i < count; i++)
        a->queue[a->made++ % QUEUE] = calls[i];
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return fits;
}

/* Ask for pages of a table, by a thread if there may be one; of a huge block, for its beginning. Returns false if too
 * much is being asked for already. */
bool corgi_ask(CorgiAsker *a, Relation rel, int64 page, int64 count, bool threads)
{
    Call calls[QUEUE];
    char path[PATH];
    int made = 0;
    int64 here;
    write_path(rel, path, sizeof path);
    for (int64 stop = page + count; page < stop && made < QUEUE; page += here) {
        here = Min(Min(stop - page, (int64) A_CALL), (int64) RELSEG_SIZE - page % (int64) RELSEG_SIZE);
        write_call(&calls[made++], path, page, here);
    }
    if (threads && !a->running && a->useful > 0)
        start(a);
    if (a->running)
        return put(a, calls, made);
    for (int i = 0; i < made; i++)
        a->useful = judge(a->useful, make_call(&calls[i]));
    return true;
}
