/* Reads scalar columns that are adjacent in the slots, as in tables of many columns: the columns of a run are
 * transposed into rows before these are stored. */
#pragma once

#include "io/parts.h"
#include "io/transpose.h"

#define CP_MAX_INTERLEAVED 64     /* most columns transposed together */
#define CP_MIN_TRANSPOSED_ROWS 16 /* fewest rows per run, on average, for which transposing is worth it */

/* Return how many columns from the first on can be transposed together; 1: none. */
static inline int64_t cp_interleaved_columns(const cp_column *first, int64_t count)
{
    const cp_target *t = &first->target;
    int64_t n = 1, wide = cp_type_bytes[t->to];
    if (t->items != 1 || wide < 4 || first->lists)
        return 1;
    for (const cp_target *next; n < count && n < CP_MAX_INTERLEAVED && (n + 1) * wide <= t->stride; n++) {
        next = &first[n].target;
        if (first[n].lists || next->items != 1 || next->to != t->to || next->stride != t->stride ||
            (uintptr_t)next->base != (uintptr_t)t->base + (uintptr_t)(n * wide))
            break;
    }
    return n;
}

/* Return the bytes between two columns in the stage: an odd number of cache lines, so that columns use different cache
 * sets. */
static inline int64_t cp_interleaved_pitch(int64_t rows, int64_t wide) { return ((rows * wide / 64 + 1) | 1) * 64; }

/* Return the rows of one part: the stage holds its columns, its rows, and one column in the type of the file. */
static inline int64_t cp_interleaved_rows(int64_t columns, int64_t wide)
{
    return (CP_STAGE_BYTES - 64 - columns * 128) / (8 + 2 * columns * wide);
}

/* Return the address of one column's numbers in the type of the slots: `at`, or their place in memory. Returns NULL and
 * sets errno after a failed read of the part's `fd`. */
static inline const char *cp_fetch_interleaved(const cp_read *r, cp_part *p, const cp_column *c, char *raw, char *at)
{
    const cp_target *t = &c->target;
    const char *numbers = t->from == t->to ? at : raw;
    char *to = t->from == t->to ? at : raw;
    int64_t width = cp_row_bytes(c), row = p->first_row, stop = row + p->rows;
    while (row < stop) {
        int64_t piece = cp_last_start(c->starts, c->pieces, row), end = c->starts[piece + 1];
        end = end < stop ? end : stop;
        int64_t offset = c->offsets[piece] + (row - c->starts[piece]) * width;
        cp_part one = {.fd = c->fds[piece], .column = c, .columns = 1, .offset = offset, .rows = end - row};
        p->fd = one.fd;
        if (one.fd == CP_MEMORY && one.rows == p->rows)
            numbers = (const char *)(uintptr_t)offset;
        else if (cp_fetch(r, &one, to + (row - p->first_row) * width, cp_part_bytes(&one)) < 0)
            return NULL;
        row = end;
    }
    if (t->from == t->to)
        return numbers;
    cp_cast(at, t->to == CP_F64, numbers, t->from, p->rows);
    return at;
}

/* Read the columns of a part and store its rows in slots. Returns the part if that failed; if it must wait for a
 * device, the rest of the part is prefetched. */
static inline const cp_part *cp_read_interleaved(cp_read *r, const cp_request *request, char *stage)
{
    cp_part *p = &r->parts[request->from];
    cp_target t = p->column->target;
    int64_t wide = cp_type_bytes[t.to], pitch = cp_interleaved_pitch(p->rows, wide), bytes = 0;
    char *columns = stage + (8 * p->rows + 63) / 64 * 64, *rows = columns + p->columns * pitch;
    const char *from[CP_MAX_INTERLEAVED];
    for (int64_t k = 0; k < p->columns; k++) {
        from[k] = cp_fetch_interleaved(r, p, p->column + k, stage, columns + k * pitch);
        if (!from[k] && errno == EAGAIN) {
            int64_t run[2] = {p->first_row, p->first_row + p->rows};
            cp_read_prefetch(p->column + k, p->columns - k, run, 1);
            errno = EAGAIN;
        }
        if (!from[k])
            return p;
        bytes += p->rows * cp_row_bytes(p->column + k);
    }
    atomic_fetch_add(&r->bytes, bytes);
    t.items = p->columns, t.from = t.to;
    int in_place = cp_consecutive(p->into, p->rows);
    cp_transposition turn = {from, p->columns, wide, in_place ? t.base + p->into[0] * t.stride : rows,
                    in_place ? t.stride : t.items * wide};
    cp_transpose(&turn, p->rows);
    if (!in_place && request->sweep)
        cp_scatter_sweep(&t, rows, p->into, request->sweep, request->swept);
    else if (!in_place)
        cp_scatter(&t, rows, p->into, p->rows);
    return NULL;
}
