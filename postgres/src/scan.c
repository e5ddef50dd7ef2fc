/* Table scan by page ranges.
 * Heap pages are read in order, and the server finds each one's visible rows. Other access methods scan a range of row
 * addresses, row by row. */
#include "compat.h"
#include "reading.h"

#include "access/heapam.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"

enum { RING_KB = 256, READ_PAGES = 16 }; /* pages per read call, from 18 on */

struct CorgiScan {
    const CorgiSource *source;
    TableScanDesc scan;
    TupleTableSlot *row;
    HeapScanDesc heap;      /* NULL: another access method */
    CorgiFields fields;
    CorgiPage read;         /* the current page */
    BlockNumber page, stop; /* the next page, and the one after the last */
    Buffer pages[READ_PAGES]; /* read ahead; from `ready` on, pinned for the next call */
    int next, ready;
};

/* Use a ring that fits the CPU cache. From 18 on, scans' own rings include room for read-ahead. */
static void shrink_ring(HeapScanDesc heap)
{
#if PG_VERSION_NUM >= 180000
    if (heap->rs_strategy == NULL)
        return;
    FreeAccessStrategy(heap->rs_strategy);
    heap->rs_strategy = GetAccessStrategyWithSize(BAS_BULKREAD, RING_KB);
#endif
}

/* Begin a scan under a snapshot. A large table uses a ring of buffers, to keep others in shared buffers. */
CorgiScan *corgi_scan_begin(const CorgiSource *source, Snapshot snapshot)
{
    CorgiScan *s = palloc0(sizeof *s);
    Relation rel = source->rel;
    s->scan = rel->rd_tableam->scan_begin(rel, snapshot, 0, NULL, NULL,
                                          SO_TYPE_TIDRANGESCAN | SO_ALLOW_PAGEMODE | SO_ALLOW_STRAT);
    s->row = MakeSingleTupleTableSlot(RelationGetDescr(rel), table_slot_callbacks(rel));
    s->source = source;
    if (rel->rd_tableam == GetHeapamTableAmRoutine() && (s->scan->rs_flags & SO_ALLOW_PAGEMODE) &&
        corgi_heap_is_compatible(s->scan)) {
        s->heap = (HeapScanDesc) s->scan;
        s->fields = corgi_make_fields(source);
        shrink_ring(s->heap);
    }
    return s;
}

/* Release pages that were read ahead but not visited. */
static void drop_ahead(CorgiScan *s)
{
    for (int i = s->next; i < READ_PAGES; i++)
        if (BufferIsValid(s->pages[i]))
            ReleaseBuffer(s->pages[i]);
    memset(s->pages, 0, sizeof s->pages); /* all InvalidBuffer */
    s->next = s->ready = 0;
}

/* Move to the pages from `page` on, before `stop`. */
void corgi_scan_seek(CorgiScan *s, int64 page, int64 stop)
{
    ItemPointerData first, last;
    drop_ahead(s);
    if (s->heap == NULL) {
        ItemPointerSet(&first, (BlockNumber) page, FirstOffsetNumber);
        ItemPointerSet(&last, (BlockNumber) stop - 1, MaxOffsetNumber);
        table_rescan_tidrange(s->scan, &first, &last);
    }
    s->page = (BlockNumber) page;
    s->stop = (BlockNumber) stop;
}

static void drop_page(CorgiScan *s)
{
    ExecClearTuple(s->row);
    if (BufferIsValid(s->heap->rs_cbuf))
        ReleaseBuffer(s->heap->rs_cbuf);
    s->heap->rs_cbuf = InvalidBuffer;
}

#if PG_VERSION_NUM >= 180000
/* Read the next pages synchronously. If the page cache holds them, waking I/O workers takes longer than reading. */
static void read_pages(CorgiScan *s)
{
    Relation rel = s->source->rel;
    ReadBuffersOperation read = {.rel = rel, .smgr = RelationGetSmgr(rel), .persistence = rel->rd_rel->relpersistence,
                                 .forknum = MAIN_FORKNUM, .strategy = s->heap->rs_strategy};
    uint32 count = Min(s->stop - s->page, (BlockNumber) Min(io_combine_limit, READ_PAGES));
    if (RelationUsesLocalBuffers(rel))
        LimitAdditionalLocalPins(&count);
    else
        LimitAdditionalPins(&count);
    count = Max(count, 1); /* without a free local buffer, requesting one is an error; requesting none is not */
    for (int i = 0; i < READ_PAGES; i++)
        s->pages[i] = s->ready + i < READ_PAGES ? s->pages[s->ready + i] : InvalidBuffer;
    s->ready = (int) count;
    if (StartReadBuffers(&read, s->pages, s->page, &s->ready, READ_BUFFERS_SYNCHRONOUSLY))
        WaitReadBuffers(&read);
}
#elif PG_VERSION_NUM >= 170000
static void read_pages(CorgiScan *s)
{
    s->pages[0] = ReadBufferExtended(s->source->rel, MAIN_FORKNUM, s->page, RBM_NORMAL, s->heap->rs_strategy);
    s->ready = 1;
}
#endif

/* Read the next page and find its visible rows. */
static void read_page(CorgiScan *s)
{
#if PG_VERSION_NUM >= 170000
    CHECK_FOR_INTERRUPTS();
    if (s->next == s->ready) {
        read_pages(s);
        s->next = 0;
    }
    s->heap->rs_cbuf = s->pages[s->next++];
    s->heap->rs_cblock = s->page++;
    heap_prepare_pagescan(s->scan);
#else
    heapgetpage(s->scan, s->page++);
#endif
}

/* Move to the next page with visible rows. Returns their number; 0 after the last. */
static int next_page(CorgiScan *s)
{
    Relation rel = s->source->rel;
    do {
        drop_page(s);
        if (s->page == s->stop)
            return 0;
        read_page(s);
    } while (s->heap->rs_ntuples == 0);
    s->read = (CorgiPage){BufferGetPage(s->heap->rs_cbuf), s->heap->rs_cblock, s->heap->rs_vistuples};
    if (pgstat_should_count_relation(rel))
        CORGI_RETURNED(rel) += s->heap->rs_ntuples;
    return (int) s->heap->rs_ntuples;
}

/* Move to the next visible rows, valid until the next call. Returns their number; 0 after the last. */
int corgi_scan_next(CorgiScan *s)
{
    return s->heap ? next_page(s) : table_scan_getnextslot_tidrange(s->scan, ForwardScanDirection, s->row);
}

/* Return the i-th row of the current step. */
TupleTableSlot *corgi_scan_row(CorgiScan *s, int i)
{
    if (s->heap == NULL)
        return s->row;
    HeapTuple tuple = &s->heap->rs_ctup;
    ItemId item = PageGetItemId(s->read.page, s->read.items[i]);
    tuple->t_data = (HeapTupleHeader) PageGetItem(s->read.page, item);
    tuple->t_len = ItemIdGetLength(item);
    tuple->t_tableOid = RelationGetRelid(s->source->rel);
    ItemPointerSet(&tuple->t_self, s->read.number, s->read.items[i]);
    return ExecStoreBufferHeapTuple(tuple, s->row, s->heap->rs_cbuf);
}

/* Put the rows `which` of the current step into the slots `into`. Returns false if a sparse row does not fit. */
bool corgi_scan_put(CorgiScan *s, const int16 *which, int count, int64 width, CorgiBuffer *b, const int32 *into)
{
    if (s->fields.serve && corgi_put_page_rows(s->source, &s->fields, &s->read, which, count, width, b, into))
        return true;
    for (int i = 0; i < count; i++)
        if (!corgi_put_row(s->source, corgi_scan_row(s, which[i]), width, b, into[i]))
            return false;
    return true;
}

void corgi_scan_end(CorgiScan *s)
{
    ExecDropSingleTupleTableSlot(s->row);
    drop_ahead(s);
    table_endscan(s->scan);
}
