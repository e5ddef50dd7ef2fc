/* Drives plans, streams and the threaded reader over many sizes; built with sanitizers, or another CPU's flags.
 * Prints a hash of everything the plans said, so that two builds can be compared. */
#define _GNU_SOURCE
#include "plan/balance.h"
#include "plan/follow.h"
#include "plan/lanes.h"
#include "io/reader.h"
#include "plan/stream.h"
#include <stdio.h>

static uint64_t sum = 1;

static void note(const int32_t *items, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum = cp_mix(sum + (uint64_t)(uint32_t)items[i]);
}

static void check(int truth, const char *what)
{
    if (!truth) {
        fprintf(stderr, "broken: %s\n", what);
        exit(1);
    }
}

/* Follow a plan with exactly as much memory as it says, moving row numbers through a buffer of cp_slots slots. */
static int64_t follow(const cp_spec *spec, int64_t start, int64_t *seen)
{
    cp_plan plan;
    int64_t visited = 0, slots = cp_slots(spec, cp_max64(cp_widest(spec), 1), spec->blocks);
    int64_t *row_of = malloc(sizeof(int64_t) * (size_t)cp_max64(slots, 1));
    check(cp_plan_init(&plan, spec, start) == 0, "init");
    while (cp_plan_begin(&plan) > 0) {
        int64_t *extents = malloc(16 * (size_t)plan.extents + 1), reads = plan.reads, visits = plan.visits;
        int32_t *into = malloc(4 * (size_t)reads + 1), *sweep = malloc(4 * (size_t)reads + 1);
        int32_t *visit = malloc(4 * (size_t)visits + 1);
        int64_t runs = plan.extents, *rows = malloc(8 * (size_t)visits + 1);
        check(cp_plan_next(&plan, extents, into, sweep, visit) > 0, "buffer bound");
        check(cp_follow(extents, runs, into, reads, visit, visits, row_of, slots, rows) == 0, "slots");
        for (int64_t i = 0; i < visits; i++)
            seen[rows[i]]++;
        note(visit, visits);
        visited += visits;
        free(extents), free(into), free(sweep), free(visit), free(rows);
    }
    cp_plan_free(&plan);
    free(row_of);
    return visited;
}

static void plans(void)
{
    for (uint64_t seed = 0; seed < 600; seed++) {
        int64_t wide = seed % 5 ? 1 : 30; /* blocks of several chunks */
        int64_t rows = (int64_t)cp_below(seed, 1, 700) * wide, even = 1 + (int64_t)cp_below(seed, 2, 60) * wide;
        cp_spec s = {.kind = (int32_t)cp_below(seed, 3, 4), .rows = rows, .even = even, .key = seed, .stop_row = rows};
        s.blocks = (rows + even - 1) / even;
        s.buffer = 1 + (int64_t)cp_below(seed, 4, 20);
        s.group = 1 + (int64_t)cp_below(seed, 5, 4);
        s.ahead = (int32_t)cp_below(seed, 7, 4);
        s.whole = (int32_t)cp_below(seed, 9, 2);
        int64_t *seen = calloc((size_t)rows + 1, sizeof(int64_t)), *order = malloc(8 * (size_t)s.blocks + 1);
        double *values = malloc(8 * (size_t)s.blocks + 1);
        for (int64_t i = 0; i < s.blocks; i++)
            values[i] = (double)(i % 3);
        check(cp_balance(values, s.blocks, seed, order) == 0, "balance");
        if (seed & 1)
            s.order = order;
        check(follow(&s, 0, seen) == rows, "rows visited");
        for (int64_t i = 0; i < rows; i++)
            check(seen[i] == 1, "each row once");
        follow(&s, 1 + (int64_t)cp_below(seed, 8, 5), seen);
        free(seen), free(order), free(values);
    }
}

/* Run lanes of a table side by side through a buffer of as many slots as they may take; each row is wanted by one worker. */
static void lanes(void)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        int64_t count = 1 + (int64_t)cp_below(seed, 1, 5), each = 1 + (int64_t)cp_below(seed, 2, 6), workers = 1 + seed % 3;
        int64_t batches = 1 + (int64_t)cp_below(seed, 3, 40), span = batches * each, rows = count * span, even = 1 + seed % 9;
        int64_t some = workers * (1 + (int64_t)cp_below(seed, 4, 3)), ahead = seed % 3;
        int32_t *seen = calloc((size_t)rows, sizeof *seen);
        for (int64_t worker = 0; worker < workers; worker++) {
            cp_plan plans[5];
            cp_lanes all;
            cp_spec s = {.kind = (int32_t)(seed % 4), .rows = rows, .even = even, .key = seed, .group = 1};
            s.blocks = (rows + even - 1) / even, s.buffer = 1 + (int64_t)cp_below(seed, 5, 4), s.whole = seed & 8;
            int64_t slots = (count + 1) * cp_slots(&s, cp_max64(cp_widest(&s), 1), s.blocks) + (1 + ahead) * count * some * each;
            int64_t *row_of = malloc(8 * (size_t)slots);
            check(cp_lanes_init(&all, slots, ahead) == 0, "lanes");
            for (int64_t i = 0; i < count; i++) {
                s.first_row = i * span, s.stop_row = s.first_row + span;
                check(cp_plan_init(&plans[i], &s, 0) == 0, "init");
                cp_lane lane = {.plan = &plans[i], .each = each, .stop = each, .groups = 1, .worker = worker, .workers = workers};
                check(cp_lanes_add(&all, &lane) == i, "lane");
            }
            for (int64_t turn = worker; turn < batches; turn += some) {
                int64_t now = (cp_min64(batches, turn + some) - turn + workers - 1) / workers, visits = now * count * each;
                cp_take takes[5];
                int32_t *visit = malloc(4 * (size_t)visits);
                for (int64_t i = 0; i < count; i++)
                    takes[i] = (cp_take){i, i * each, count * each, now};
                check(cp_lanes_next(&all, takes, count, visit, visits) == CP_LANES_MADE, "step of lanes");
                int64_t at = 0;
                for (int64_t e = 0; e < all.extent_count; e++)
                    for (int64_t row = all.extents[2 * e]; row < all.extents[2 * e + 1]; row++, at++)
                        if (all.into[at] >= 0)
                            row_of[all.into[at]] = row;
                check(at == all.reads, "rows of extents");
                for (int64_t i = 0; i < visits; i++)
                    seen[row_of[visit[i]]]++;
                free(visit);
            }
            for (int64_t i = 0; i < count; i++)
                cp_plan_free(&plans[i]);
            cp_lanes_free(&all);
            free(row_of);
        }
        for (int64_t i = 0; i < rows; i++)
            check(seen[i] == 1, "each row of lanes once");
        free(seen);
    }
}

static void streams(void)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        cp_stream s = {.reservoir = seed & 1, .first = 5, .stop = 5 + (int64_t)cp_below(seed, 1, 500), .key = seed};
        s.window = 1 + (int64_t)cp_below(seed, 2, 50), s.chunk = 1 + (int64_t)cp_below(seed, 3, 30);
        s.ahead = (int64_t)cp_below(seed, 4, 3), s.loops = INT64_MAX, s.asked = seed >> 1 & 1;
        check(cp_stream_init(&s) == 0, "stream");
        int32_t *into = malloc(4 * (size_t)s.chunk), *visit = malloc(4 * (size_t)cp_max64(2 * s.chunk, s.window));
        for (int64_t steps = cp_stream_steps(&s), visits; steps-- > 0;) {
            cp_stream_next(&s, into, visit, &visits);
            note(visit, visits);
        }
        free(into), free(visit);
        cp_stream_free(&s);
    }
}

/* Write `rows` rows of three int32 (row, row + 1, row + 2), read them in random runs, compare. */
static void reads(int fd, int64_t count, int64_t items)
{
    int64_t first = 2 * count / 5, width = 4 * items, between = 100; /* bytes between the two pieces */
    size_t bytes = (size_t)(count * width + between);
    char *data = calloc(bytes, 1);
    for (int64_t i = 0; i < count * items; i++) {
        int32_t value = (int32_t)(i / items + i % items);
        memcpy(data + 4 * i + (i / items < first ? 0 : between), &value, 4);
    }
    check(pwrite(fd, data, bytes, 0) == (ssize_t)bytes && fdatasync(fd) == 0, "write");
    int64_t starts[3] = {0, first, count}, offsets[2] = {0, first * width + between};
    int32_t fds[2] = {fd, fd};
    cp_pool pool;
    check(cp_pool_start(&pool, 3) == 0, "pool");
    for (uint64_t seed = 0; seed < 100; seed++) {
        cp_read r = {.stage_bytes = CP_STAGE_BYTES};
        char *stages[4] = {NULL, NULL, NULL, NULL};
        int64_t extents[20], total = 0;
        int wide = seed % 2;
        r.stages = stages;
        for (int e = 0; e < 10; e++) {
            extents[2 * e] = (int64_t)cp_below(seed, (uint64_t)e, (uint64_t)count);
            extents[2 * e + 1] = extents[2 * e] + (int64_t)cp_below(seed, 100u + (uint64_t)e, (uint64_t)(count - extents[2 * e]) + 1);
            total += extents[2 * e + 1] - extents[2 * e];
        }
        int32_t *into = malloc(4 * (size_t)total + 4), *sweep = malloc(4 * (size_t)total + 4), *at = sweep;
        char *buffer = malloc((size_t)(total * items) * 8 + 64);
        for (int64_t i = 0; i < total; i++)
            into[i] = (int32_t)i;
        if (seed % 4 > 1)
            cp_shuffle32(into, (uint64_t)total, seed);
        for (int64_t i = 0; seed % 7 == 3 && i < total; i += 3)
            into[i] = -1;
        for (int e = 0; e < 10; e++) {
            int64_t rows = extents[2 * e + 1] - extents[2 * e];
            for (int64_t i = 0; i < rows; i++)
                at[i] = (int32_t)i;
            cp_shuffle32(at, (uint64_t)rows, seed + 9);
            at += rows;
        }
        cp_column column = {2, starts, offsets, fds,
                            {buffer, items * (wide ? 8 : 4), items, CP_I32, wide ? CP_F64 : CP_I32, seed % 5 == 0}, NULL};
        cp_runs runs = {extents, 10, into, seed % 3 ? sweep : NULL, NULL};
        r.soon = seed % 2;
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* so that there is something to wait for */
        check(cp_read_rows(&r, &pool, &column, 1, runs, 3) == 0, "read");
        int64_t i = 0;
        for (int e = 0; e < 10; e++)
            for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++, i++)
                for (int64_t k = 0; k < items && into[i] >= 0; k++)
                    check(wide ? ((double *)(void *)buffer)[into[i] * items + k] == (double)(row + k)
                               : ((int32_t *)(void *)buffer)[into[i] * items + k] == row + k, "value");
        for (int w = 0; w < 4; w++)
            free(stages[w]);
        free(r.parts), free(r.requests), free(into), free(sweep), free(buffer);
    }
    check(ftruncate(fd, 1000) == 0, "truncate");
    cp_read r = {.stage_bytes = CP_STAGE_BYTES};
    char *stages[4] = {NULL, NULL, NULL, NULL}, *buffer = malloc((size_t)(count * width));
    int64_t extents[2] = {0, first};
    int32_t *into = calloc((size_t)count, 4);
    r.stages = stages;
    cp_column column = {2, starts, offsets, fds, {buffer, width, items, CP_I32, CP_I32, 0}, NULL};
    check(cp_read_rows(&r, &pool, &column, 1, (cp_runs){extents, 1, into, NULL, NULL}, 0) == 1 && r.error == 0,
          "end of file is seen");
    for (int w = 0; w < 4; w++)
        free(stages[w]);
    free(r.parts), free(r.requests), free(into), free(buffer), free(data);
    cp_pool_stop(&pool);
}

/* Runs of picked rows, swept or not, from memory: each row arrives in its slot, and what is not picked in none. */
static void picks(void)
{
    enum { ROWS = 3000, BLOCKS = (ROWS + CP_BITS_BLOCK - 1) / CP_BITS_BLOCK };
    int32_t *data = malloc(4 * ROWS);
    for (int32_t i = 0; i < ROWS; i++)
        data[i] = i;
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t words[BLOCKS * 8] = {0}, one_in = 1 + cp_below(seed, 1, seed % 7 ? 6 : 900);
        int64_t ranks[BLOCKS + 1] = {0}, *rows = malloc(8 * ROWS), count = 0;
        for (int64_t row = 0; row < ROWS; row++)
            if (!cp_below(seed, 1000 + (uint64_t)row, one_in)) {
                words[row / 64] |= 1ull << row % 64;
                rows[count++] = row;
            }
        for (int64_t block = 0, n = 0; block < BLOCKS; block++) {
            while (n < count && rows[n] < (block + 1) * CP_BITS_BLOCK)
                n++;
            ranks[block + 1] = n;
        }
        cp_bits bits = {words, ranks, BLOCKS};
        for (int64_t n = 0; n < count; n++)
            check(cp_bits_select(&bits, n) == rows[n] && cp_bits_rank(&bits, rows[n]) == n, "select and rank");
        check(cp_bits_rank(&bits, ROWS) == count, "rank of the end");
        int64_t extents[8] = {0, count / 3, count / 2, count / 2, count / 2, count, 0, 1}, total = 0;
        int64_t runs = count ? 4 : 3;
        for (int64_t e = 0; e < runs; e++)
            total += extents[2 * e + 1] - extents[2 * e];
        int32_t *into = malloc(4 * (size_t)total + 4), *sweep = malloc(4 * (size_t)total + 4), *at = sweep;
        int32_t *buffer = malloc(4 * (size_t)total + 4);
        for (int64_t i = 0; i < total; i++)
            into[i] = (int32_t)i;
        cp_shuffle32(into, (uint64_t)total, seed);
        for (int64_t e = 0; e < runs; e++)
            for (int64_t i = extents[2 * e + 1] - extents[2 * e]; i > 0; i--)
                *at++ = (int32_t)(i - 1);
        int64_t starts[2] = {0, ROWS}, offsets[1] = {(int64_t)(uintptr_t)data};
        int32_t fds[1] = {CP_MEMORY};
        cp_column column = {1, starts, offsets, fds, {(char *)buffer, 4, 1, CP_I32, CP_I32, seed % 2 == 0}, NULL};
        cp_reader reader;
        check(cp_reader_start(&reader, 2) == 0, "reader");
        reader.columns = &column, reader.column_count = 1;
        cp_reader_pick(&reader, bits);
        reader.picks.gap = (int64_t)cp_below(seed, 2, 12);
        check(cp_reader_read(&reader, extents, runs, into, seed % 3 ? sweep : NULL, 1) == 0, "read");
        int64_t i = 0;
        for (int64_t e = 0; e < runs; e++)
            for (int64_t n = extents[2 * e]; n < extents[2 * e + 1]; n++, i++)
                check(buffer[into[i]] == rows[n], "the picked row in its slot");
        cp_reader_stop(&reader);
        free(rows), free(into), free(sweep), free(buffer);
    }
    free(data);
}

/* The number that a column has in a row, in its type. */
static void number(char *to, enum cp_type type, int64_t row, int column)
{
    int64_t value = (row * 7 + column) % 101;
    float single = (float)value;
    double twice = (double)value;
    memcpy(to, type == CP_F32 ? (void *)&single : type == CP_F64 ? (void *)&twice : (void *)&value, cp_type_bytes[type]);
}

/* Columns of all types that lie side by side in the slots, or not, in a file and in memory, in pieces that end anywhere:
 * they are turned into rows; each number arrives where it belongs, whatever order the rows have. */
static void beside(int fd)
{
    enum { ROWS = 6000, MOST = 70 };
    cp_reader reader;
    check(cp_reader_start(&reader, 4) == 0, "reader");
    char *memory = malloc(MOST * ROWS * 8);
    for (uint64_t seed = 0; seed < 120; seed++) {
        int count = 1 + (int)cp_below(seed, 1, seed % 5 ? 9 : MOST), gap = seed % 7 == 0, plain = seed % 3 == 0;
        enum cp_type to = seed & 1 ? CP_F32 : CP_F64;
        int64_t wide = cp_type_bytes[to], items = count + gap, at = 0;
        cp_column columns[MOST];
        int64_t starts[MOST][3], offsets[MOST][2];
        int32_t fds[MOST][2], *into = malloc(4 * ROWS), *sweep = malloc(4 * ROWS);
        char *buffer = calloc(ROWS * (size_t)items, (size_t)wide);
        for (int c = 0; c < count; c++) {
            enum cp_type from = plain ? to : (enum cp_type)cp_below(seed, 10 + (uint64_t)c, CP_TYPES);
            int64_t cut = seed % 4 ? (int64_t)cp_below(seed, 100 + (uint64_t)c, ROWS) : 0, width = cp_type_bytes[from];
            for (int64_t row = 0; row < ROWS; row++)
                number(memory + at + row * width, from, row, c);
            for (int i = 0; i < 2; i++) {
                int there = (seed + (uint64_t)(c + i)) % 4 == 1;
                fds[c][i] = there ? CP_MEMORY : fd;
                offsets[c][i] = (there ? (int64_t)(uintptr_t)memory : 0) + at + i * cut * width;
            }
            starts[c][0] = 0, starts[c][1] = cut, starts[c][2] = ROWS;
            int64_t place = c + (c >= count / 2 ? gap : 0);
            columns[c] = (cp_column){2, starts[c], offsets[c], fds[c],
                                     {buffer + place * wide, items * wide, 1, from, to, seed % 2 == 0}, NULL};
            at += ROWS * width;
        }
        check(pwrite(fd, memory, (size_t)at, 0) == at, "write");
        int64_t extents[6] = {0, 700, 700, 701, 1000, (int64_t)cp_below(seed, 2, ROWS - 1000) + 1000}, total = 0;
        for (int e = 0; e < 3; e++) {
            int64_t rows = extents[2 * e + 1] - extents[2 * e];
            for (int64_t i = 0; i < rows; i++)
                sweep[total + i] = (int32_t)i;
            cp_shuffle32(sweep + total, (uint64_t)rows, seed + 9);
            total += rows;
        }
        for (int64_t i = 0; i < total; i++)
            into[i] = (int32_t)i;
        if (seed % 4 > 1)
            cp_shuffle32(into, (uint64_t)total, seed);
        into[total - 1] = seed % 8 == 3 ? -1 : into[total - 1];
        reader.columns = columns, reader.column_count = count;
        check(cp_reader_read(&reader, extents, 3, into, seed % 3 == 1 ? sweep : NULL, 1) == 0, "read");
        for (int64_t e = 0, i = 0; e < 3; e++)
            for (int64_t row = extents[2 * e]; row < extents[2 * e + 1]; row++, i++)
                for (int c = 0; into[i] >= 0 && c < count; c++) {
                    char expected[8];
                    number(expected, to, row, c);
                    int64_t place = into[i] * items + c + (c >= count / 2 ? gap : 0);
                    check(memcmp(buffer + place * wide, expected, (size_t)wide) == 0, "the number in its row");
                }
        if (count > 2 && fds[1][1] == fd && extents[5] > starts[1][1] + 1) {
            check(ftruncate(fd, offsets[1][1]) == 0, "truncate");
            check(cp_reader_read(&reader, extents, 3, into, NULL, 1) == 1 && reader.read.error == 0 &&
                      reader.read.error_fd == fd, "end of file is seen");
        }
        free(into), free(sweep), free(buffer);
    }
    free(memory);
    cp_reader_stop(&reader);
}

int main(int argc, char **argv)
{
    (void)argv;
    FILE *file = argc > 1 ? NULL : tmpfile();
    plans();
    lanes();
    streams();
    picks();
    if (file) {
        reads(fileno(file), 5000, 3);
        reads(fileno(file), 100, 1030); /* so wide that rows go straight to their slots */
        beside(fileno(file));
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
