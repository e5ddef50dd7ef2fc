/* Row buffer: slots that hold rows until they are visited.
 * Dense rows lie at their slot. Sparse rows vary in length, so they lie one after the other in the region of their
 * block, sized for the block with the most items. The buffer's size is thus known before the first row is read, and
 * buffer_size bounds it. */
#include "learning.h"
#include "reading.h"

#include <sys/mman.h>

#include "utils/memutils.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Allocate randomly accessed memory, in huge pages if available: these cause fewer TLB misses. */
static void *allocate_pages(int64 count, size_t bytes)
{
    Size size = (Size) Max(count, 1) * bytes;
    if (size < 2 * HUGE_PAGE_BYTES)
        return MemoryContextAllocHuge(CurrentMemoryContext, size);
    char *memory =
        (char *) TYPEALIGN(HUGE_PAGE_BYTES, MemoryContextAllocHuge(CurrentMemoryContext, size + HUGE_PAGE_BYTES));
#ifdef MADV_HUGEPAGE
    (void) madvise(memory, size, MADV_HUGEPAGE);
#endif
    return memory;
}

/* Return the bytes of a slot; for a sparse row, without its items. */
int64 corgi_slot_bytes(const CorgiSource *s, int64 width)
{
    int64 own = sizeof(double) + sizeof(ItemPointerData) + (s->part_count > 1 ? sizeof(int32) : 0);
    own += (s->weight.name ? sizeof(double) : 0) + (s->by.name ? sizeof(int32) : 0);
    return own + (s->sparse ? 2 * sizeof(uint64) + sizeof(int64) : width * s->bytes);
}

/* Allocate a buffer of `slots` slots. Sparse rows share regions of `widest` slots and `heaviest` bytes. */
CorgiBuffer corgi_make_buffer(const CorgiSource *s, int64 width, int64 slots, int64 widest, int64 heaviest)
{
    MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext, "corgipile buffer", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(memory);
    CorgiBuffer b = {.memory = memory,
                     .slots = slots,
                     .y = allocate_pages(slots, sizeof *b.y),
                     .tid = allocate_pages(slots, sizeof *b.tid)};
    if (s->weight.name != NULL)
        b.weight = allocate_pages(slots, sizeof *b.weight);
    if (s->by.name != NULL)
        b.group = allocate_pages(slots, sizeof *b.group);
    if (s->part_count > 1)
        b.part = allocate_pages(slots, sizeof *b.part);
    if (s->sparse) {
        b.widest = widest;
        b.heaviest = heaviest;
        b.x = allocate_pages((slots + widest - 1) / widest, (size_t) heaviest);
        b.indices = allocate_pages(slots, sizeof *b.indices);
        b.values = allocate_pages(slots, sizeof *b.values);
        b.lengths = allocate_pages(slots, sizeof *b.lengths);
        corgi_begin_place(&b, 0);
    } else {
        b.stride = width * s->bytes;
        b.x = allocate_pages(slots, (size_t) b.stride);
    }
    MemoryContextSwitchTo(outside);
    return b;
}

/* Free a buffer. */
void corgi_free_buffer(CorgiBuffer *b)
{
    MemoryContextDelete(b->memory);
    memset(b, 0, sizeof *b);
}

/* Direct the following sparse rows to a region. */
void corgi_begin_place(CorgiBuffer *b, int64 place)
{
    b->next = b->x + place * b->heaviest;
    b->stop = b->next + b->heaviest;
}

/* Put a row into a slot. Returns false if it is sparse and its region is full. */
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
