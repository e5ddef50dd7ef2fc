/* Allocates the slots of a buffer in runs, so that adjacent rows can be read in place: a run gets consecutive slots
 * while a chunk of the buffer is free, else any. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t slots, left, chunk;
    uint8_t *taken;             /* [slots] */
    uint8_t *listed;            /* [chunks] whether it is in `empty` */
    int32_t *users;             /* [chunks] its taken slots */
    int32_t *empty;             /* [chunks] chunks that were empty when added here */
    int64_t empties, open, end; /* from `open` to `end`: the rest of the chunk opened last */
    int64_t hand;               /* where the search for a single slot begins */
} cp_slot_pool;

static inline void cp_slot_pool_free(cp_slot_pool *p)
{
    free(p->taken);
    free(p->listed);
    free(p->users);
    free(p->empty);
    memset(p, 0, sizeof *p);
}

static inline void cp_slot_pool_list(cp_slot_pool *p, int64_t chunk)
{
    if (!p->listed[chunk])
        p->empty[p->empties++] = (int32_t)chunk;
    p->listed[chunk] = 1;
}

/* Initialise a pool of free slots, in chunks of this size. Returns -1 if out of memory. */
static inline int cp_slot_pool_init(cp_slot_pool *p, int64_t slots, int64_t chunk)
{
    chunk = chunk < slots ? chunk : slots + !slots;
    int64_t chunks = (slots + chunk - 1) / chunk;
    *p = (cp_slot_pool){.slots = slots, .left = slots, .chunk = chunk};
    p->taken = calloc((size_t)slots + 1, sizeof *p->taken);
    p->listed = calloc((size_t)chunks + 1, sizeof *p->listed);
    p->users = calloc((size_t)chunks + 1, sizeof *p->users);
    p->empty = malloc(sizeof *p->empty * (size_t)(chunks + 1));
    if (!p->taken || !p->listed || !p->users || !p->empty) {
        cp_slot_pool_free(p);
        return -1;
    }
    while (chunks--)
        cp_slot_pool_list(p, chunks);
    return 0;
}

/* Open chunks until one has this many slots left; the rest of the previous chunk becomes single free slots. */
static inline int cp_slot_pool_open(cp_slot_pool *p, int64_t count)
{
    while (p->end - p->open < count) {
        if (!p->empties) {
            p->open = p->end = 0;
            return 0;
        }
        int64_t chunk = p->empty[--p->empties];
        p->listed[chunk] = 0;
        if (p->users[chunk])
            continue;
        p->open = chunk * p->chunk;
        p->end = p->open + p->chunk < p->slots ? p->open + p->chunk : p->slots;
    }
    return 1;
}

/* Return a free slot; there must be one. */
static inline int64_t cp_slot_pool_find(cp_slot_pool *p)
{
    const uint8_t *free_slot = memchr(p->taken + p->hand, 0, (size_t)(p->slots - p->hand));
    if (!free_slot)
        free_slot = memchr(p->taken, 0, (size_t)p->hand);
    return p->hand = free_slot - p->taken;
}

/* Take slots, consecutive ones if possible. Returns -1 if fewer are free. */
static inline int cp_slot_pool_take(cp_slot_pool *p, int64_t count, int32_t *into)
{
    if (count > p->left)
        return -1;
    p->left -= count;
    if (cp_slot_pool_open(p, count)) {
        memset(p->taken + p->open, 1, (size_t)count);
        p->users[p->open / p->chunk] += (int32_t)count;
        for (int64_t i = 0; i < count; i++)
            into[i] = (int32_t)p->open++;
        return 0;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t slot = cp_slot_pool_find(p);
        p->taken[slot] = 1;
        p->users[slot / p->chunk]++;
        into[i] = (int32_t)slot;
    }
    return 0;
}

/* Free a slot. */
static inline void cp_slot_pool_give(cp_slot_pool *p, int32_t slot)
{
    uint32_t chunk = (uint32_t)slot / (uint32_t)p->chunk; /* in 32 bits, since this runs for each row */
    p->taken[slot] = 0;
    p->left++;
    if (!--p->users[chunk])
        cp_slot_pool_list(p, chunk);
}
