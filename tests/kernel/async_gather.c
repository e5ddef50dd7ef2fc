/* Tests asynchronous gathering: bursts of requests, waits in any order, early release, no thread, and a fork. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

static int refused; /* whether the system refuses threads */

static inline int refusing_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *argument)
{
    return refused ? 11 : pthread_create(thread, attr, body, argument);
}

#define pthread_create refusing_create
#include "io/async_gather.h"

enum { SLOTS = 500, BYTES = 28, BURSTS = 60, MOST = 9, ROWS = 40 };

typedef struct {
    cp_copy copy;
    char to[ROWS * BYTES];
    int32_t index[ROWS];
} request;

static char rows[SLOTS * BYTES];
static uint32_t drawn = 1;

static uint32_t draw(uint32_t below) { return (drawn = drawn * 1664525u + 1013904223u) / 65536 % below; }

static void submit(cp_async_gather *gather, request *one)
{
    int64_t count = draw(ROWS + 1);
    for (int64_t i = 0; i < count; i++)
        one->index[i] = (int32_t)draw(SLOTS);
    one->copy = (cp_copy){one->to, rows, one->index, BYTES, count, NULL};
    cp_async_gather_request(gather, &one->copy);
}

static int right(const request *one)
{
    for (int64_t i = 0; i < one->copy.count; i++)
        if (memcmp(one->to + i * BYTES, rows + one->index[i] * BYTES, BYTES))
            return 0;
    return 1;
}

/* Ask in bursts; check each copy once it is waited for. */
static int bursts(int at_once)
{
    cp_async_gather gather;
    cp_async_gather_init(&gather);
    for (int burst = 0; burst < BURSTS; burst++) {
        request *all = malloc(sizeof(request) * MOST);
        int64_t count = 1 + draw(MOST), before = gather.requested;
        for (int64_t i = 0; i < count; i++) {
            submit(&gather, all + i);
            if (draw(3) == 0 && (cp_async_gather_wait(&gather, before + i + 1) < before + i + 1 || !right(all + i)))
                return 1;
        }
        int64_t some = 1 + draw((uint32_t)count);
        cp_async_gather_wait(&gather, before + some);
        for (int64_t i = 0; i < some; i++)
            if (!right(all + i))
                return 2;
        if (cp_async_gather_wait(&gather, gather.requested) != gather.requested ||
            cp_async_gather_wait(&gather, 0) != gather.requested)
            return 3;
        free(all);
    }
    request last;
    if (at_once)
        submit(&gather, &last);
    cp_async_gather_free(&gather);
    return 0;
}

/* A forked child has no thread: it completes its parent's requests and its own. */
static int forked(void)
{
    static request all[MOST + 1];
    cp_async_gather gather;
    int status = 0;
    cp_async_gather_init(&gather);
    for (int i = 0; i < MOST; i++)
        submit(&gather, all + i);
    pid_t child = fork();
    if (child == 0) {
        int64_t made = cp_async_gather_wait(&gather, MOST);
        submit(&gather, all + MOST);
        int good = made + 1 >= MOST && right(all + MOST); /* one may have been made as the process was forked */
        for (int i = 0; i < MOST; i++)
            good = good && right(all + i);
        cp_async_gather_free(&gather);
        _exit(!good);
    }
    waitpid(child, &status, 0);
    cp_async_gather_wait(&gather, MOST);
    cp_async_gather_free(&gather);
    return status;
}

int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < SLOTS * BYTES; i++)
        rows[i] = (char)draw(256);
    for (refused = 0; refused < 2; refused++)
        for (int at_once = 0; at_once < 2; at_once++)
            if (bursts(at_once)) {
                fprintf(stderr, "a row was not gathered\n");
                return 1;
            }
    refused = 0;
    if (argc == 1 && forked()) {
        fprintf(stderr, "a child lacks what its parent requested\n");
        return 1;
    }
    return 0;
}
