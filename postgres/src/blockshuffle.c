/* BlockShuffle: hands over the visible rows of any block of pages.
 *
 * A block is read as a range of row addresses, which any table access method with such scans can do. The scan uses a
 * ring of buffers, so that a large table does not push others out of shared buffers. */
#include "corgipile.h"

#include "executor/instrument.h"
#include "miscadmin.h"
#include "plan.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/spccache.h"

typedef struct {
    CustomScanState css;
    CorgiRun *run;
    TableScanDesc *scans;   /* by part of the source; a part's scan begins when it is first read */
    TupleTableSlot **rows;
    const CorgiPlace *place; /* the block under way */
    double count;           /* of its rows */
    instr_time started;
    BufferAccessStrategy ring; /* see fetch */
    bool prefetch;          /* may be of use */
    int asking;             /* blocks for which it still is */
} BlockState;

/* Asking for pages that the system holds already costs a twentieth of an epoch. So it is done for a while after a block
 * that took longer than a page this long, which no page in memory does. */
enum { SLOW_MICROSECONDS = 20, ASK_BLOCKS = 256 };

static void begin(CustomScanState *node, EState *estate, int eflags) {}

/* Prepare to read blocks of the run's table, as the snapshot of the query sees it. */
void corgi_block_open(CustomScanState *node, CorgiRun *run)
{
    BlockState *s = (BlockState *) node;
    Relation rel = run->source.rel;
    s->run = run;
    s->scans = palloc0(sizeof *s->scans * (Size) Max(run->source.part_count, 1));
    s->rows = palloc0(sizeof *s->rows * (Size) Max(run->source.part_count, 1));
    s->asking = 0;
#if PG_VERSION_NUM >= 180000
    s->ring = GetAccessStrategyWithSize(BAS_BULKREAD, (int) Max(256, run->source.block_pages * (BLCKSZ / 1024)));
#endif
    s->prefetch = run->options.order != CP_NO_SHUFFLE && get_tablespace_io_concurrency(rel->rd_rel->reltablespace) > 0;
}

static TableScanDesc scan_of(BlockState *s, int part)
{
    Relation rel = s->run->source.parts[part].rel;
    Snapshot snapshot = s->css.ss.ps.state->es_snapshot;
    MemoryContext outside;
    if (s->scans[part] != NULL)
        return s->scans[part];
    outside = MemoryContextSwitchTo(GetMemoryChunkContext(s->scans));
    s->rows[part] = MakeSingleTupleTableSlot(RelationGetDescr(rel), table_slot_callbacks(rel));
    PredicateLockRelation(rel, snapshot);
    s->scans[part] = rel->rd_tableam->scan_begin(rel, snapshot, 0, NULL, NULL,
                                                 SO_TYPE_TIDRANGESCAN | SO_ALLOW_PAGEMODE | SO_ALLOW_STRAT);
    MemoryContextSwitchTo(outside);
    return s->scans[part];
}

/* The page after the last one of a block. */
static int64 stop_of(const CorgiSource *source, const CorgiPlace *place)
{
    return Min(place->page + source->block_pages, source->parts[place->part].pages);
}

/* Read the pages of a block into the ring. From 18 on a scan lets other processes read, a few pages at a time, and each
 * block is a scan of its own: where the system holds the pages, waking those processes takes longer than reading. */
static void fetch(BlockState *s, const CorgiPlace *place)
{
#if PG_VERSION_NUM >= 180000
    Relation rel = s->run->source.parts[place->part].rel;
    if (s->run->source.block_pages > NBuffers / 8) /* more than a ring may hold */
        return;
    for (int64 page = place->page; page < stop_of(&s->run->source, place); page++)
        ReleaseBuffer(ReadBufferExtended(rel, MAIN_FORKNUM, (BlockNumber) page, RBM_NORMAL, s->ring));
#endif
}

/* Begin a block. */
void corgi_block_seek(CustomScanState *node, const CorgiPlace *place)
{
    BlockState *s = (BlockState *) node;
    TableScanDesc scan = scan_of(s, place->part);
    ItemPointerData from, to;
    if (node->ss.ps.instrument)
        InstrStartNode(node->ss.ps.instrument);
    ItemPointerSet(&from, (BlockNumber) place->page, FirstOffsetNumber);
    ItemPointerSet(&to, (BlockNumber) stop_of(&s->run->source, place) - 1, MaxOffsetNumber);
    INSTR_TIME_SET_CURRENT(s->started);
    fetch(s, place);
    table_rescan_tidrange(scan, &from, &to);
    s->place = place;
    s->count = 0;
}

/* Find out whether the block that was read came from a device. */
static void judge_speed(BlockState *s)
{
    instr_time took;
    INSTR_TIME_SET_CURRENT(took);
    INSTR_TIME_SUBTRACT(took, s->started);
    if (INSTR_TIME_GET_MICROSEC(took) > (uint64) SLOW_MICROSECONDS * s->run->source.block_pages)
        s->asking = ASK_BLOCKS;
    else if (s->asking > 0)
        s->asking--;
}

/* Return the next visible row of the block, in the order of its pages; NULL at its end. */
TupleTableSlot *corgi_block_next(CustomScanState *node)
{
    BlockState *s = (BlockState *) node;
    int part = s->place->part;
    if (table_scan_getnextslot_tidrange(s->scans[part], ForwardScanDirection, s->rows[part])) {
        s->count++;
        return s->rows[part];
    }
    judge_speed(s);
    if (node->ss.ps.instrument)
        InstrStopNode(node->ss.ps.instrument, s->count);
    return NULL;
}

/* Ask the system to read a block before it is needed. */
void corgi_block_prefetch(CustomScanState *node, const CorgiPlace *place)
{
    BlockState *s = (BlockState *) node;
    const CorgiSource *source = &s->run->source;
    if (s->prefetch && s->asking > 0)
        for (int64 page = place->page; page < stop_of(source, place); page++)
            PrefetchBuffer(source->parts[place->part].rel, MAIN_FORKNUM, (BlockNumber) page);
}

/* End a loop of the figures that EXPLAIN ANALYZE shows: one a pass over the table. */
void corgi_end_loop(CustomScanState *node)
{
    if (node->ss.ps.instrument)
        InstrEndLoop(node->ss.ps.instrument);
}

static void end(CustomScanState *node)
{
    BlockState *s = (BlockState *) node;
    for (int i = 0; s->scans != NULL && i < s->run->source.part_count; i++)
        if (s->scans[i] != NULL) {
            ExecDropSingleTupleTableSlot(s->rows[i]);
            table_endscan(s->scans[i]);
        }
    s->scans = NULL;
    if (s->ring != NULL)
        FreeAccessStrategy(s->ring);
    s->ring = NULL;
}

static void explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
    const CorgiRun *run = ((BlockState *) node)->run;
    const CorgiSource *source;
    if (run == NULL || run->source.rel == NULL)
        return;
    source = &run->source;
    ExplainPropertyText("Table", RelationGetRelationName(source->rel), es);
    if (source->parts != source)
        ExplainPropertyInteger("Parts", NULL, source->part_count, es);
    ExplainPropertyInteger("Pages", NULL, source->pages, es);
    ExplainPropertyInteger("Block Pages", NULL, source->block_pages, es);
    if (run->prepared)
        ExplainPropertyInteger("Blocks", NULL, run->survey.blocks, es);
    else
        ExplainPropertyInteger("Blocks", NULL, corgi_most_blocks(source), es);
}

static const CustomExecMethods exec_methods = {.CustomName = "BlockShuffle",
                                               .BeginCustomScan = begin,
                                               .ExecCustomScan = corgi_never_executed,
                                               .EndCustomScan = end,
                                               .ReScanCustomScan = end,
                                               .ExplainCustomScan = explain};

static Node *create(CustomScan *scan)
{
    BlockState *s = (BlockState *) newNode(sizeof(BlockState), T_CustomScanState);
    s->css.methods = &exec_methods;
    return (Node *) s;
}

const CustomScanMethods corgi_block_methods = {"BlockShuffle", create};
