/* Memory of rows of varying length. Rows that were read together share a bundle, which is freed with the last of them;
 * a slot's owner is the bundle of its row. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CP_NO_OWNER (-1)      /* owner of an empty slot; numbers from 0 on belong to the host */
#define CP_BUNDLE_OVERHEAD 64 /* bytes of a bundle besides its rows: its record and the allocator's overhead */
#define CP_MAX_SPARES 128

typedef struct {
    char *data;                 /* NULL: the entry is free, and `alive` is the next free one */
    int64_t bytes, rows, alive; /* alive: slots that hold a row of it */
} cp_bundle;

/* Memory of a freed bundle that a later one reuses: new pages cost more than filling them. */
typedef struct {
    char *data;
    int64_t room;
} cp_spare;

typedef struct {
    cp_bundle *all;
    int64_t count, room, spare; /* spare: first free entry, or -1 */
    int64_t bytes, rows;        /* of all bundles */
    cp_spare spares[CP_MAX_SPARES]; /* the oldest first */
    int64_t spare_count, spare_bytes, spare_most;
    int64_t freed; /* bytes returned to the allocator so far */
} cp_bundles;

static inline int32_t cp_bundle_owner(int64_t number) { return (int32_t)(-2 - number); }

/* Start without bundles; `spare_most`: largest number of bytes of freed bundles to keep. */
static inline void cp_bundles_init(cp_bundles *b, int64_t spare_most)
{
    *b = (cp_bundles){.spare = -1, .spare_most = spare_most};
}

/* Return the oldest spares to the allocator until `more` bytes fit. */
static inline void cp_spares_trim(cp_bundles *b, int64_t more)
{
    int64_t drop = 0;
    for (; drop < b->spare_count && (b->spare_bytes + more > b->spare_most || b->spare_count - drop == CP_MAX_SPARES);
         drop++) {
        free(b->spares[drop].data);
        b->spare_bytes -= b->spares[drop].room;
        b->freed += b->spares[drop].room;
    }
    b->spare_count -= drop;
    memmove(b->spares, b->spares + drop, sizeof *b->spares * (size_t)b->spare_count);
}

/* Keep memory as a spare, or free it if it is too much. */
static inline void cp_spare_keep(cp_bundles *b, cp_spare spare)
{
    if (spare.room > b->spare_most) {
        free(spare.data);
        b->freed += spare.room;
        return;
    }
    cp_spares_trim(b, spare.room);
    b->spares[b->spare_count++] = spare;
    b->spare_bytes += spare.room;
}

/* Return memory of at least this many bytes, from the spare that fits best or from the allocator; sets `room`. */
static inline char *cp_spare_take(cp_bundles *b, int64_t bytes, int64_t *room)
{
    int64_t best = -1;
    for (int64_t i = 0; i < b->spare_count; i++) {
        int64_t fit = b->spares[i].room;
        if (fit >= bytes && fit <= bytes + bytes / 4 && (best < 0 || fit < b->spares[best].room))
            best = i;
    }
    if (best < 0) {
        *room = bytes;
        return malloc((size_t)bytes + 1);
    }
    cp_spare spare = b->spares[best];
    memmove(b->spares + best, b->spares + best + 1, sizeof spare * (size_t)(--b->spare_count - best));
    b->spare_bytes -= spare.room;
    *room = spare.room;
    return spare.data;
}

static inline void cp_bundles_free(cp_bundles *b)
{
    for (int64_t i = 0; i < b->spare_count; i++)
        free(b->spares[i].data);
    for (int64_t i = 0; i < b->count; i++)
        free(b->all[i].data);
    free(b->all);
}

/* Return the number of a free entry, or -1 if out of memory. */
static inline int64_t cp_bundle_number(cp_bundles *b)
{
    int64_t number = b->spare;
    if (number >= 0) {
        b->spare = b->all[number].alive;
        return number;
    }
    if (b->count == b->room) {
        int64_t room = b->room ? 2 * b->room : 64;
        cp_bundle *all = room < INT32_MAX ? realloc(b->all, sizeof *all * (size_t)room) : NULL;
        if (!all)
            return -1;
        b->all = all;
        b->room = room;
    }
    return b->count++;
}

/* Create a bundle for this many rows, all alive. Returns its number, or -1 if out of memory. */
static inline int64_t cp_bundle_make(cp_bundles *b, int64_t bytes, int64_t rows)
{
    int64_t room;
    char *data = cp_spare_take(b, bytes, &room);
    int64_t number = data ? cp_bundle_number(b) : -1;
    if (number < 0) {
        free(data);
        return -1;
    }
    b->all[number] = (cp_bundle){data, room + CP_BUNDLE_OVERHEAD, rows, rows};
    b->bytes += room + CP_BUNDLE_OVERHEAD;
    b->rows += rows;
    return number;
}

static inline void cp_bundle_drop(cp_bundles *b, int64_t number)
{
    cp_bundle *bundle = &b->all[number];
    b->bytes -= bundle->bytes;
    b->rows -= bundle->rows;
    cp_spare_keep(b, (cp_spare){bundle->data, bundle->bytes - CP_BUNDLE_OVERHEAD});
    *bundle = (cp_bundle){.alive = b->spare};
    b->spare = number;
}

/* Release the rows in slots whose visits are over; returns the number of slots owned by the host. */
static inline int64_t cp_bundles_release(cp_bundles *b, int32_t *owner, const int32_t *slots, int64_t count)
{
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t own = slots[i] < 0 ? CP_NO_OWNER : owner[slots[i]];
        left += own >= 0;
        if (own >= CP_NO_OWNER)
            continue;
        owner[slots[i]] = CP_NO_OWNER;
        if (--b->all[-2 - (int64_t)own].alive == 0)
            cp_bundle_drop(b, -2 - (int64_t)own);
    }
    return left;
}
