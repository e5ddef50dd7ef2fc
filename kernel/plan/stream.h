/* The two streaming baselines: TensorFlow's sliding window and Bismarck's multiplexed reservoir sampling.
 *
 * Rows come in storage order, `chunk` per step, into free slots. Sliding window: once `window` rows are buffered, each
 * new row replaces a random buffered one, which is visited; the rest is visited in random order at the end. Reservoir:
 * a reservoir sample of `window` rows is kept. Each row that leaves it (or never enters) is visited, followed by one
 * visit of the kept rows in a loop, at most `loops` times; at the end the kept rows are visited once. */
#pragma once

#include "plan/permute.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    int reservoir, asked;                      /* asked: the caller will query which rows are buffered */
    int64_t first, stop, window, chunk, ahead; /* rows [first, stop) of the table */
    uint64_t key;
    int64_t loops;               /* remaining visits of kept rows */
    int64_t step, filled, cursor, slots;
    int32_t *waiting;            /* [window] slot of each buffered row */
    int32_t *free_queue;         /* [slots] ring buffer */
    int64_t *row_of;             /* [slots], or NULL unless `asked` */
    int64_t free_head, free_tail;
} cp_stream;

static inline void cp_stream_free(cp_stream *s)
{
    free(s->waiting);
    free(s->free_queue);
    free(s->row_of);
    memset(s, 0, sizeof *s);
}

static inline int cp_stream_init(cp_stream *s)
{
    s->slots = s->window + (1 + s->ahead) * s->chunk;
    s->waiting = malloc(sizeof(int32_t) * (size_t)s->window);
    s->free_queue = malloc(sizeof(int32_t) * (size_t)s->slots);
    s->row_of = s->asked ? malloc(sizeof(int64_t) * (size_t)s->slots) : NULL;
    if (!s->waiting || !s->free_queue || (s->asked && !s->row_of)) {
        cp_stream_free(s);
        return -1;
    }
    for (int64_t i = 0; i < s->slots; i++)
        s->free_queue[i] = (int32_t)i;
    s->free_tail = s->slots;
    return 0;
}

static inline int64_t cp_stream_steps(const cp_stream *s)
{
    int64_t rows = s->stop - s->first;
    return rows > 0 ? (rows + s->chunk - 1) / s->chunk + 1 : 0;
}

/* Add one row to a full window; writes one or two visits and returns their number. */
static inline int cp_stream_replace(cp_stream *s, int64_t seen, int32_t slot, int32_t *visit)
{
    uint64_t range = s->reservoir ? (uint64_t)seen + 1 : (uint64_t)s->window;
    int64_t at = (int64_t)cp_below(s->key, (uint64_t)seen, range);
    int32_t leaves = slot;
    if (at < s->window) {
        leaves = s->waiting[at];
        s->waiting[at] = slot;
    }
    visit[0] = leaves;
    s->free_queue[s->free_tail++ % s->slots] = leaves;
    if (!s->reservoir || s->loops == 0)
        return 1;
    s->loops--;
    visit[1] = s->waiting[s->cursor++ % s->window];
    return 2;
}

/* Write the next step: into int32[chunk], visit int32[max(2 * chunk, window)]. Returns rows loaded, sets *visits. Slots
 * are reused first in, first out; there are enough that a freed one is idle for `ahead` steps. */
static inline int64_t cp_stream_next(cp_stream *s, int32_t *into, int32_t *visit, int64_t *visits)
{
    int64_t begin = s->first + s->step * s->chunk, loaded = 0, v = 0;
    if (begin >= s->stop) {
        memcpy(visit, s->waiting, sizeof(int32_t) * (size_t)s->filled);
        cp_shuffle32(visit, (uint64_t)s->filled, cp_derive2(s->key, 1));
        v = s->filled;
    }
    for (int64_t row = begin; row < s->stop && loaded < s->chunk; row++, loaded++) {
        int32_t slot = s->free_queue[s->free_head++ % s->slots];
        into[loaded] = slot;
        if (s->row_of)
            s->row_of[slot] = row;
        if (s->filled < s->window)
            s->waiting[s->filled++] = slot;
        else
            v += cp_stream_replace(s, row - s->first, slot, visit + v);
    }
    s->step++;
    *visits = v;
    return loaded;
}
