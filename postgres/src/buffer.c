/* The buffer: slots where rows wait to be visited.
 *
 * Dense rows lie at their slot. Sparse rows, of varying length, lie one behind the other in the place of their block,
 * which is wide enough for the block with most items; slots say where. So the buffer's size is known before the first
 * row is read, and buffer_size bounds it. */
#include "corgipile.h"

#include <sys/mman.h>

#include "utils/memutils.h"

enum { LARGE_PAGE = 2 << 20 };

/* Allocate what is visited at random, in large pages where the system has them: fewer address look-ups miss. */
static void *take(int64 count, size_t bytes)
{
    Size size = (Size) Max(count, 1) * bytes;
    char *memory;
    if (size < 2 * LARGE_PAGE)
        return MemoryContextAllocHuge(CurrentMemoryContext, size);
    memory = (char *) TYPEALIGN(LARGE_PAGE, MemoryContextAllocHuge(CurrentMemoryContext, size + LARGE_PAGE));
#ifdef MADV_HUGEPAGE
    (void) madvise(memory, size, MADV_HUGEPAGE);
#endif
    return memory;
}

/* Return the bytes of a slot, of a sparse one without its row. */
int64 corgi_slot_bytes(const CorgiSource *s, int64 width)
{
    int64 own = sizeof(double) + sizeof(ItemPointerData) + (s->part_count > 1 ? sizeof(int32) : 0);
    own += (s->weight.name ? sizeof(double) : 0) + (s->by.name ? sizeof(int32) : 0);
    return own + (s->sparse ? 2 * sizeof(uint64) + sizeof(int64) : width * s->bytes);
}

/* Make a buffer of this many slots, which sparse rows share in places of `widest` slots and `heaviest` bytes. */
CorgiBuffer corgi_make_buffer(const CorgiSource *s, int64 width, int64 slots, int64 widest, int64 heaviest)
{
    MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "corgipile buffer", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(memory);
    CorgiBuffer b = {.memory = memory, .slots = slots, .y = take(slots, sizeof *b.y), .tid = take(slots, sizeof *b.tid)};
    if (s->weight.name != NULL)
        b.weight = take(slots, sizeof *b.weight);
    if (s->by.name != NULL)
        b.group = take(slots, sizeof *b.group);
    if (s->part_count > 1)
        b.part = take(slots, sizeof *b.part);
    if (s->sparse) {
        b.widest = widest;
        b.heaviest = heaviest;
        b.x = take((slots + widest - 1) / widest, (size_t) heaviest);
        b.indices = take(slots, sizeof *b.indices);
        b.values = take(slots, sizeof *b.values);
        b.lengths = take(slots, sizeof *b.lengths);
        corgi_begin_place(&b, 0);
    } else {
        b.stride = width * s->bytes;
        b.x = take(slots, (size_t) b.stride);
    }
    MemoryContextSwitchTo(outside);
    return b;
}

/* Give back the memory of a buffer that serves no more. */
void corgi_free_buffer(CorgiBuffer *b)
{
    MemoryContextDelete(b->memory);
    memset(b, 0, sizeof *b);
}

/* Put sparse rows into this place from now on. */
void corgi_begin_place(CorgiBuffer *b, int64 place)
{
    b->next = b->x + place * b->heaviest;
    b->stop = b->next + b->heaviest;
}

/* Put a row into a slot. Returns false if it is sparse and its place has no room for it. */
bool corgi_put_row(const CorgiSource *s, TupleTableSlot *row, int64 width, CorgiBuffer *b, int64 slot)
{
    slot_getsomeattrs(row, s->last);
    if (s->labels == NULL)
        b->y[slot] = corgi_read_label(&s->label, row);
    if (b->weight != NULL)
        b->weight[slot] = corgi_read_weight(&s->weight, row);
    corgi_note_origin(b, slot, s, row->tts_tid);
    if (s->sparse)
        return corgi_read_pair(s, row, b, slot);
    corgi_read_features(s, row, width, b->x + slot * b->stride);
    return true;
}
