/* BlockShuffle: hands over the visible rows of any block of pages.
 *
 * A block is read as a range of row addresses, which any table access method with such scans can do. The scan uses a
 * ring of buffers, so that a large table does not push others out of shared buffers. */
#include "corgipile.h"

#include "executor/instrument.h"
#include "plan.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/spccache.h"

typedef struct {
    CustomScanState css;
    CorgiRun *run;
    TableScanDesc scan;
    TupleTableSlot *row;
    double rows;            /* of the block under way */
    instr_time started;
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
    Snapshot snapshot = node->ss.ps.state->es_snapshot;
    s->run = run;
    s->row = MakeSingleTupleTableSlot(RelationGetDescr(rel), table_slot_callbacks(rel));
    s->asking = 0;
    s->prefetch = run->options.order != CP_NO_SHUFFLE && get_tablespace_io_concurrency(rel->rd_rel->reltablespace) > 0;
    PredicateLockRelation(rel, snapshot);
    s->scan = rel->rd_tableam->scan_begin(rel, snapshot, 0, NULL, NULL,
                                          SO_TYPE_TIDRANGESCAN | SO_ALLOW_PAGEMODE | SO_ALLOW_STRAT);
}

/* Begin the block whose first page is given. */
void corgi_block_seek(CustomScanState *node, BlockNumber page)
{
    BlockState *s = (BlockState *) node;
    const CorgiSource *source = &s->run->source;
    BlockNumber last = source->pages - page > source->block_pages ? page + source->block_pages - 1 : source->pages - 1;
    ItemPointerData from, to;
    if (node->ss.ps.instrument)
        InstrStartNode(node->ss.ps.instrument);
    ItemPointerSet(&from, page, FirstOffsetNumber);
    ItemPointerSet(&to, last, MaxOffsetNumber);
    table_rescan_tidrange(s->scan, &from, &to);
    s->rows = 0;
    INSTR_TIME_SET_CURRENT(s->started);
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
    if (table_scan_getnextslot_tidrange(s->scan, ForwardScanDirection, s->row)) {
        s->rows++;
        return s->row;
    }
    judge_speed(s);
    if (node->ss.ps.instrument)
        InstrStopNode(node->ss.ps.instrument, s->rows);
    return NULL;
}

/* Ask the system to read a block before it is needed. */
void corgi_block_prefetch(CustomScanState *node, BlockNumber page)
{
    BlockState *s = (BlockState *) node;
    const CorgiSource *source = &s->run->source;
    if (s->prefetch && s->asking > 0)
        for (BlockNumber i = 0; i < source->block_pages && page + i < source->pages; i++)
            PrefetchBuffer(source->rel, MAIN_FORKNUM, page + i);
}

/* End a loop of the figures that EXPLAIN ANALYZE shows: one a pass over the table. */
void corgi_end_loop(CustomScanState *node)
{
    if (node->ss.ps.instrument)
        InstrEndLoop(node->ss.ps.instrument);
}

static void close_scan(BlockState *s)
{
    if (s->row != NULL)
        ExecDropSingleTupleTableSlot(s->row);
    if (s->scan != NULL)
        table_endscan(s->scan);
    s->row = NULL;
    s->scan = NULL;
}

static void end(CustomScanState *node) { close_scan((BlockState *) node); }

static void rescan(CustomScanState *node) { close_scan((BlockState *) node); }

static void explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
    const CorgiRun *run = ((BlockState *) node)->run;
    const CorgiSource *source;
    if (run == NULL || run->source.rel == NULL)
        return;
    source = &run->source;
    ExplainPropertyText("Table", RelationGetRelationName(source->rel), es);
    ExplainPropertyInteger("Pages", NULL, source->pages, es);
    ExplainPropertyInteger("Block Pages", NULL, source->block_pages, es);
    if (run->prepared)
        ExplainPropertyInteger("Blocks", NULL, run->survey.blocks, es);
    else
        ExplainPropertyInteger("Blocks", NULL, (source->pages + source->block_pages - 1) / source->block_pages, es);
}

static const CustomExecMethods exec_methods = {.CustomName = "BlockShuffle",
                                               .BeginCustomScan = begin,
                                               .ExecCustomScan = corgi_never_executed,
                                               .EndCustomScan = end,
                                               .ReScanCustomScan = rescan,
                                               .ExplainCustomScan = explain};

static Node *create(CustomScan *scan)
{
    BlockState *s = (BlockState *) newNode(sizeof(BlockState), T_CustomScanState);
    s->css.methods = &exec_methods;
    return (Node *) s;
}

const CustomScanMethods corgi_block_methods = {"BlockShuffle", create};
