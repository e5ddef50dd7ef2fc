/* A slow disk: put before a process by LD_PRELOAD it lets reads at an offset take turns, each SLOW_DISK_SECONDS and one more second
 * for SLOW_DISK_RATE bytes. What is cached is read as slowly: there is no memory beside what a program keeps itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static double busy; /* until when, by the monotonic clock */

static ssize_t wait_for(ssize_t n)
{
    const char *seconds = getenv("SLOW_DISK_SECONDS"), *rate = getenv("SLOW_DISK_RATE");
    struct timespec now;
    if (n <= 0 || !seconds || !rate)
        return n;
    pthread_mutex_lock(&turn);
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double at = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    const double until = busy = (busy > at ? busy : at) + atof(seconds) + (double)n / atof(rate);
    pthread_mutex_unlock(&turn);
    const struct timespec end = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL))
        ;
    return n;
}

#define SLOW(name, of, given) \
    ssize_t name of \
    { \
        ssize_t (*real) of = (ssize_t (*) of)dlsym(RTLD_NEXT, #name); \
        return wait_for(real given); \
    }

SLOW(pread, (int file, void *to, size_t n, off_t at), (file, to, n, at))
SLOW(pread64, (int file, void *to, size_t n, off64_t at), (file, to, n, at))
SLOW(preadv, (int file, const struct iovec *to, int n, off_t at), (file, to, n, at))
SLOW(preadv64, (int file, const struct iovec *to, int n, off64_t at), (file, to, n, at))
SLOW(preadv2, (int file, const struct iovec *to, int n, off_t at, int how), (file, to, n, at, how))
SLOW(preadv64v2, (int file, const struct iovec *to, int n, off64_t at, int how), (file, to, n, at, how))
