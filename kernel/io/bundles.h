/* Memory of rows of varying length: those that were read together make a bundle, which is freed when no slot needs one of
 * its rows any more. A slot's owner says which bundle has its row. */
#ifndef CP_BUNDLES_H
#define CP_BUNDLES_H

#include <stdint.h>
#include <stdlib.h>

#define CP_NOBODY (-1) /* owns a slot that waits for no row; numbers from 0 on are the host's own */
#define CP_BUNDLE_COST 64 /* bytes of a bundle beside its rows: what is known of it, and what the allocator adds */

typedef struct {
    char *data;   /* NULL: there is no such bundle, and `alive` is the next one of which that is so */
    int64_t bytes, rows, alive; /* alive: slots that need it */
} cp_bundle;

typedef struct {
    cp_bundle *all;
    int64_t count, room, spare; /* spare: the first that may be made anew, -1 for none */
    int64_t bytes, rows;        /* of all there are */
} cp_bundles;

static inline int32_t cp_bundle_owner(int64_t number) { return (int32_t)(-2 - number); }

static inline void cp_bundles_init(cp_bundles *b) { *b = (cp_bundles){.spare = -1}; }

static inline void cp_bundles_free(cp_bundles *b)
{
    for (int64_t i = 0; i < b->count; i++)
        free(b->all[i].data);
    free(b->all);
}

/* Return a number that no bundle has, or -1 without memory. */
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

/* Make a bundle for so many rows, all of which are needed. Returns its number, or -1 without memory. */
static inline int64_t cp_bundle_make(cp_bundles *b, int64_t bytes, int64_t rows)
{
    char *data = malloc((size_t)bytes + 1);
    int64_t number = data ? cp_bundle_number(b) : -1;
    if (number < 0) {
        free(data);
        return -1;
    }
    b->all[number] = (cp_bundle){data, bytes + CP_BUNDLE_COST, rows, rows};
    b->bytes += bytes + CP_BUNDLE_COST;
    b->rows += rows;
    return number;
}

static inline void cp_bundle_drop(cp_bundles *b, int64_t number)
{
    cp_bundle *bundle = &b->all[number];
    b->bytes -= bundle->bytes;
    b->rows -= bundle->rows;
    free(bundle->data);
    *bundle = (cp_bundle){.alive = b->spare};
    b->spare = number;
}

/* Let go of the rows in slots that nobody will visit any more; returns how many slots were left to the host. */
static inline int64_t cp_bundles_release(cp_bundles *b, int32_t *owner, const int32_t *slots, int64_t count)
{
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t own = slots[i] < 0 ? CP_NOBODY : owner[slots[i]];
        left += own >= 0;
        if (own >= CP_NOBODY)
            continue;
        owner[slots[i]] = CP_NOBODY;
        if (--b->all[-2 - (int64_t)own].alive == 0)
            cp_bundle_drop(b, -2 - (int64_t)own);
    }
    return left;
}

#endif
