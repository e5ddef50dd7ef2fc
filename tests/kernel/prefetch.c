/* Drives runs over a file, with and without their thread, to the end, into an error and to a stop; for sanitizers.
 * Rows are visited where they lie, so that a slot written too early is a data race. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* A device that may be slow: nothing is cached then, and each read takes so many nanoseconds. */
static atomic_long slow;

static inline ssize_t slow_preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
    struct timespec time = {0, atomic_load(&slow)};
    if (time.tv_nsec)
        nanosleep(&time, NULL);
    return preadv(fd, parts, count, offset);
}

static inline ssize_t slow_preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return atomic_load(&slow) ? -1 : preadv2(fd, parts, count, offset, flags);
}

static atomic_int refused, created; /* whether the system refuses threads; calls for one */

static inline int refusing_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *argument)
{
    atomic_fetch_add(&created, 1);
    return atomic_load(&refused) ? 11 : pthread_create(thread, attr, body, argument);
}

#define pthread_create refusing_create
#define preadv slow_preadv
#define cp_preadv2 slow_preadv2
#include "io/prefetch.h"
#include <stdio.h>

enum { ROWS = 5000, CUT = 2000, ITEMS = 3, SLICE = 100000 };

static const int64_t starts[3] = {0, CUT, ROWS}, offsets[2] = {0, CUT * 4 * ITEMS};
static int32_t *rows_at; /* the buffer: [slots][ITEMS] */

static void check(int truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "broken: %s\n", what);
        exit(1);
    }
}

static cp_spec spec_of(uint64_t seed)
{
    cp_spec s = {.kind = (int32_t)(seed % 4), .rows = ROWS, .key = seed};
    s.even = 1 + (int64_t)cp_below(seed, 1, 200);
    s.blocks = (ROWS + s.even - 1) / s.even;
    s.first_row = (int64_t)cp_below(seed, 2, 300), s.stop_row = ROWS - (int64_t)cp_below(seed, 3, 300);
    s.buffer = 1 + (int64_t)cp_below(seed, 4, 9), s.group = 1 + (int64_t)cp_below(seed, 5, 3);
    s.whole = (int32_t)cp_below(seed, 7, 2);
    s.ahead = (int32_t)cp_below(seed, 8, 4);
    return s;
}

static int waits; /* slices in which no step came */

static int next(cp_run *run, const cp_step **step)
{
    int status;
    while ((status = cp_run_next(run, SLICE, step)) == CP_RUN_WAIT)
        waits++;
    return status;
}

/* The step that a plan makes on its own, for the run to be compared with. */
static void compare(cp_plan *plan, const cp_step *step, int64_t *row_of)
{
    check(cp_plan_begin(plan) == 1, "the run has more steps than the plan");
    int64_t reads = plan->reads, visits = plan->visits, runs = plan->extents, *extents = malloc(16 * (size_t)runs + 1);
    int32_t *into = malloc(4 * (size_t)reads + 1), *sweep = malloc(4 * (size_t)reads + 1), *at = into;
    int32_t *visit = malloc(4 * (size_t)visits + 1);
    check(cp_plan_next(plan, extents, into, sweep, visit) == 1, "next");
    for (int64_t e = 0; e < runs; e++)
        for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++, at++)
            if (*at >= 0)
                row_of[*at] = row;
    check(step->visits == visits && memcmp(step->visit, visit, 4 * (size_t)visits) == 0, "the same visits");
    for (int64_t i = 0; i < visits; i++)
        check(rows_at[visit[i] * ITEMS + 2] == row_of[visit[i]] + 2, "the row in its slot");
    free(extents), free(into), free(sweep), free(visit);
}

static void *stop(void *run)
{
    cp_run_stop(run);
    return NULL;
}

/* Run a plan; what: 0 to its end, 1 until stopped by this thread, 2 by another, 3 until a read fails. */
static void follow(uint64_t seed, int what, int fd)
{
    cp_spec spec = spec_of(seed);
    int64_t slots = cp_slots(&spec, cp_widest(&spec), spec.blocks), start = (int64_t)cp_below(seed, 9, 4), steps = 0;
    int64_t last = (int64_t)cp_below(seed, 10, 12), *row_of = malloc(8 * (size_t)slots);
    int32_t fds[2] = {fd, what == 3 ? -1 : fd};
    cp_plan plan, alone;
    cp_reader reader;
    cp_run run;
    const cp_step *step;
    pthread_t stopper;
    int status = CP_RUN_STEP;
    rows_at = malloc(4 * ITEMS * (size_t)slots);
    cp_column column = {2, starts, offsets, fds, {(char *)rows_at, 4 * ITEMS, ITEMS, CP_I32, CP_I32, 0}, NULL};
    check(cp_plan_init(&plan, &spec, start) == 0 && cp_plan_init(&alone, &spec, start) == 0, "plans");
    check(cp_reader_start(&reader, 1 + (int)(seed % 3)) == 0, "reader");
    reader.columns = &column, reader.column_count = 1;
    cp_run_init(&run, &plan, &reader, 100 * (int64_t)cp_below(seed, 11, 10));
    atomic_store(&created, 0);
    while ((what == 0 || what == 3 || steps < last) && (status = next(&run, &step)) == CP_RUN_STEP) {
        compare(&alone, step, row_of);
        cp_run_figures found = cp_run_figures_of(&run);
        check(found.ready >= 0 && found.ready <= spec.ahead && found.waited >= 0, "as many steps as may be ahead");
        steps++;
    }
    if (what == 0)
        check(status == CP_RUN_END && cp_plan_begin(&alone) == 0 && next(&run, &step) == CP_RUN_END, "the end");
    check(!steps || atomic_load(&created) == (spec.ahead > 0), "a thread reads ahead");
    if (what == 1)
        cp_run_stop(&run);
    if (what == 2) {
        check(pthread_create(&stopper, NULL, stop, &run) == 0, "thread");
        while ((status = next(&run, &step)) == CP_RUN_STEP)
            ;
        pthread_join(stopper, NULL);
        check(status == CP_RUN_STOPPED || status == CP_RUN_END, "whoever waits learns of a stop");
    }
    if (what == 1 || what == 2)
        check(next(&run, &step) == CP_RUN_STOPPED, "stopped");
    if (what == 3)
        check(status == CP_RUN_FAILED && reader.read.error == EBADF && reader.read.error_row >= CUT, "the error");
    cp_run_free(&run);
    cp_reader_stop(&reader);
    cp_plan_free(&plan), cp_plan_free(&alone);
    free(rows_at), free(row_of);
}

/* Run a plan staged, moving each piece's rows to their slots as a device would; what: as for `follow`, 0, 1 or 3. */
static void follow_staged(uint64_t seed, int what, int fd)
{
    cp_spec spec = spec_of(seed);
    int64_t slots = cp_slots(&spec, cp_widest(&spec), spec.blocks), count = 0, last = (int64_t)cp_below(seed, 10, 40);
    int64_t room = 1 + (int64_t)cp_below(seed, 12, 400), places = 3 + (int64_t)cp_below(seed, 13, 3);
    int32_t fds[2] = {fd, what == 3 ? -1 : fd}, *row_of = malloc(4 * (size_t)slots);
    cp_plan plan, alone;
    cp_reader reader;
    cp_run run;
    const cp_step *piece;
    cp_step whole = {0};
    int status = CP_RUN_STEP, over = 1;
    int64_t done = 0, seen = 0;
    rows_at = malloc(4 * ITEMS * (size_t)(room * places));
    cp_column column = {2, starts, offsets, fds, {(char *)rows_at, 4 * ITEMS, ITEMS, CP_I32, CP_I32, 0}, NULL};
    check(cp_plan_init(&plan, &spec, 0) == 0 && cp_plan_init(&alone, &spec, 0) == 0, "plans");
    check(cp_reader_start(&reader, 1 + (int)(seed % 3)) == 0, "reader");
    reader.columns = &column, reader.column_count = 1;
    cp_run_init(&run, &plan, &reader, 100 * (int64_t)cp_below(seed, 11, 10));
    check(cp_run_stage(&run, room, places) == 0, "stage");
    atomic_store(&created, 0);
    for (; (what != 1 || count < last) && (status = next(&run, &piece)) == CP_RUN_STEP; count++) {
        if (over) {
            check(cp_plan_begin(&alone) == 1, "the run has more steps than the plan");
            check(cp_step_fit(&whole, alone.extents, alone.reads, alone.visits, cp_plan_swept(&alone)) == 0, "fit");
            check(cp_plan_next(&alone, whole.extents, whole.into, whole.sweep, whole.visit) == 1, "next");
            done = seen = 0;
        }
        check(piece->reads <= room && piece->visits <= room && done + piece->reads <= whole.reads, "its room");
        check(!memcmp(piece->into, whole.into + done, 4 * (size_t)piece->reads), "the same slots");
        check(!memcmp(piece->visit, whole.visit + seen, 4 * (size_t)piece->visits), "the same visits");
        const int32_t *at = rows_at + count % places * room * ITEMS;
        for (int64_t i = 0; i < piece->reads; i++, at += ITEMS)
            if (piece->into[i] >= 0)
                row_of[piece->into[i]] = at[2] - 2;
        for (int64_t i = done, e, row; i < done + piece->reads; i++) { /* the step's rows, in the order of its runs */
            for (row = i, e = 0; row >= whole.extents[2 * e + 1] - whole.extents[2 * e]; e++)
                row -= whole.extents[2 * e + 1] - whole.extents[2 * e];
            check(whole.into[i] < 0 || row_of[whole.into[i]] == whole.extents[2 * e] + row, "the row in its place");
        }
        done += piece->reads, seen += piece->visits, over = piece->last;
        check(!piece->visits || done == whole.reads, "visits follow the rows");
        check(over == (done == whole.reads && seen == whole.visits), "the last piece");
    }
    check(!count || atomic_load(&created) == 2, "one thread reads, another builds the next step");
    if (what == 0)
        check(status == CP_RUN_END && over && cp_plan_begin(&alone) == 0, "the end");
    if (what == 3)
        check(status == CP_RUN_FAILED && reader.read.error == EBADF, "the error");
    cp_run_free(&run);
    cp_reader_stop(&reader);
    cp_plan_free(&plan), cp_plan_free(&alone);
    free(whole.extents), free(rows_at), free(row_of);
}

int main(void)
{
    FILE *file = tmpfile();
    int32_t *data = malloc(4 * ROWS * ITEMS);
    for (int32_t i = 0; i < ROWS * ITEMS; i++)
        data[i] = i / ITEMS + i % ITEMS;
    check(file && write(fileno(file), data, 4 * ROWS * ITEMS) == 4 * ROWS * ITEMS, "write");
    for (uint64_t seed = 0; seed < 120; seed++)
        for (int what = 0; what < 4; what++) {
            follow(seed, what, fileno(file));
            if (what != 2)
                follow_staged(seed, what, fileno(file));
        }
    waits = 0;
    atomic_store(&slow, 3 * SLICE);
    for (uint64_t seed = 200; seed < 208; seed++)
        for (int what = 0; what < 4; what++)
            follow(seed, what, fileno(file));
    check(waits > 0, "waiting ends with its slice");
    atomic_store(&slow, 0);
    atomic_store(&refused, 1);
    for (uint64_t seed = 300; seed < 320; seed++)
        follow(seed, seed % 2 ? 0 : 3, fileno(file));
    free(data);
    fclose(file);
    return 0;
}
