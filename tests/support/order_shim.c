/* The kernel's orders as functions of a few numbers, for tests that change the kernel's text. */
#include "plan/follow.h"
#include "plan/plan.h"
#include "plan/seriate.h"
#include "plan/stream.h"

/* Write the rows that a plan loads and visits, in order, to loaded[rows] and out[rows]. Returns their number, or -1. */
int64_t shim_plan(int32_t kind, int64_t rows, int64_t even, uint64_t key, const int64_t *order, int64_t buffer,
                  int64_t group, int32_t whole, int64_t *loaded, int64_t *out)
{
    cp_spec spec = {.kind = kind, .rows = rows, .blocks = (rows + even - 1) / even, .even = even, .order = order,
                    .key = key, .stop_row = rows, .buffer = buffer, .group = group, .whole = whole, .ahead = 1};
    cp_plan plan;
    if (cp_plan_init(&plan, &spec, 0) < 0)
        return -1;
    int64_t slots = cp_slots(&spec, plan.widest, spec.blocks), done = 0, status = 0;
    int64_t *row_of = calloc((size_t)slots, sizeof *row_of), *extents = malloc(sizeof *extents * 2 * (size_t)spec.blocks);
    int32_t *into = malloc(sizeof *into * 3 * (size_t)rows);
    while (status == 0 && cp_plan_begin(&plan) == 1) {
        int64_t runs = plan.extents, reads = plan.reads, visits = plan.visits;
        if (cp_plan_next(&plan, extents, into, into + rows, into + 2 * rows) < 0 ||
            cp_follow(extents, runs, into, reads, into + 2 * rows, visits, row_of, slots, out + done) < 0)
            status = -1;
        done += visits;
        for (int64_t run = 0; run < runs; run++)
            for (int64_t row = extents[2 * run]; row < extents[2 * run + 1]; row++)
                *loaded++ = row;
    }
    cp_plan_free(&plan);
    free(row_of), free(extents), free(into);
    return status < 0 ? -1 : done;
}

/* Write the rows that a window over the stored order visits to out[2 * rows]. Returns their number, or -1. */
int64_t shim_stream(int32_t reservoir, int64_t rows, int64_t window, int64_t chunk, uint64_t key, int64_t *out)
{
    cp_stream s = {.reservoir = reservoir, .asked = 1, .stop = rows, .window = window, .chunk = chunk, .ahead = 1,
                   .key = key, .loops = reservoir && rows > window ? rows - window : 0};
    if (cp_stream_init(&s) < 0)
        return -1;
    int64_t *row_of = calloc((size_t)s.slots, sizeof *row_of), done = 0, visits;
    int32_t *into = malloc(sizeof *into * (size_t)chunk), *visit = malloc(sizeof *visit * (size_t)(2 * chunk + window));
    for (int64_t step = cp_stream_steps(&s); step > 0; step--) {
        int64_t begin = s.step * chunk, read = cp_stream_next(&s, into, visit, &visits), run[2] = {begin, begin + read};
        cp_follow(run, read > 0, into, read, visit, visits, row_of, s.slots, out + done);
        done += visits;
    }
    cp_stream_free(&s);
    free(row_of), free(into), free(visit);
    return done;
}

int shim_balance(const double *values, int64_t count, uint64_t key, int64_t *order)
{
    return cp_balance(values, count, key, order);
}

int shim_balance_vectors(const int16_t *vectors, int64_t count, int32_t width, uint64_t key, int64_t *order)
{
    return cp_balance_vectors(vectors, count, width, key, order);
}
