/* Reads columns of one number a row that lie side by side in the slots, as a table of many columns has them: those of one
 * run together, turned into rows before these go to their slots. */
#ifndef CP_BESIDE_H
#define CP_BESIDE_H

#include "io/parts.h"
#include "io/transpose.h"

#define CP_BESIDE 64       /* columns turned together, at most */
#define CP_LEAST_TURNED 16 /* rows of a run, on average, for which that is worth it */

/* How many columns from the first on can be turned into rows together; 1: none. */
static inline int64_t cp_beside(const cp_column *first, int64_t count)
{
    const cp_target *t = &first->target;
    int64_t n = 1, wide = cp_type_bytes[t->to];
    if (t->items != 1 || wide < 4 || first->lists)
        return 1;
    for (const cp_target *next; n < count && n < CP_BESIDE && (n + 1) * wide <= t->stride; n++) {
        next = &first[n].target;
        if (first[n].lists || next->items != 1 || next->to != t->to || next->stride != t->stride ||
            (uintptr_t)next->base != (uintptr_t)t->base + (uintptr_t)(n * wide))
            break;
    }
    return n;
}

/* Bytes between two columns in the stage: an odd number of cache lines, or many columns would share the same few sets. */
static inline int64_t cp_beside_apart(int64_t rows, int64_t wide) { return ((rows * wide / 64 + 1) | 1) * 64; }

/* Rows of one part, of which a stage holds the columns, the rows, and one column in the type of the file. */
static inline int64_t cp_beside_rows(int64_t columns, int64_t wide)
{
    return (CP_STAGE - 64 - columns * 128) / (8 + 2 * columns * wide);
}

/* Return where the numbers of one column are, in the type of the slots: `at`, or where they lie in memory. NULL and errno
 * after a failed read, of the part's `fd`. */
static inline const char *cp_fetch_beside(const cp_read *r, cp_part *p, const cp_column *c, char *raw, char *at)
{
    const cp_target *t = &c->target;
    const char *found = t->from == t->to ? at : raw;
    char *to = t->from == t->to ? at : raw;
    int64_t width = cp_row_bytes(c), row = p->first_row, stop = row + p->rows;
    while (row < stop) {
        int64_t piece = cp_last_start(c->starts, c->pieces, row), end = c->starts[piece + 1];
        end = end < stop ? end : stop;
        int64_t offset = c->offsets[piece] + (row - c->starts[piece]) * width;
        cp_part one = {.fd = c->fds[piece], .column = c, .columns = 1, .offset = offset, .rows = end - row};
        p->fd = one.fd;
        if (one.fd == CP_MEMORY && one.rows == p->rows)
            found = (const char *)(uintptr_t)offset;
        else if (cp_fetch(r, &one, to + (row - p->first_row) * width, cp_part_bytes(&one)) < 0)
            return NULL;
        row = end;
    }
    if (t->from == t->to)
        return found;
    cp_cast(at, t->to == CP_F64, found, t->from, p->rows);
    return at;
}

/* Read the columns of a part and put its rows into slots. Returns the part if that failed; where a device must be waited
 * for it hears of all that is still to come. */
static inline const cp_part *cp_read_beside(cp_read *r, const cp_request *request, char *stage)
{
    cp_part *p = &r->parts[request->from];
    cp_target t = p->column->target;
    int64_t wide = cp_type_bytes[t.to], apart = cp_beside_apart(p->rows, wide), bytes = 0;
    char *columns = stage + (8 * p->rows + 63) / 64 * 64, *rows = columns + p->columns * apart;
    const char *from[CP_BESIDE];
    for (int64_t k = 0; k < p->columns; k++) {
        from[k] = cp_fetch_beside(r, p, p->column + k, stage, columns + k * apart);
        if (!from[k] && errno == EAGAIN) {
            int64_t run[2] = {p->first_row, p->first_row + p->rows};
            cp_read_soon(p->column + k, p->columns - k, run, 1);
            errno = EAGAIN;
        }
        if (!from[k])
            return p;
        bytes += p->rows * cp_row_bytes(p->column + k);
    }
    atomic_fetch_add(&r->bytes, bytes);
    t.items = p->columns, t.from = t.to;
    int in_place = cp_consecutive(p->into, p->rows);
    cp_turn turn = {from, p->columns, wide, in_place ? t.base + p->into[0] * t.stride : rows,
                    in_place ? t.stride : t.items * wide};
    cp_transpose(&turn, p->rows);
    if (!in_place && request->sweep)
        cp_scatter_sweep(&t, rows, p->into, request->sweep, request->swept);
    else if (!in_place)
        cp_scatter(&t, rows, p->into, p->rows);
    return NULL;
}

#endif
