/* BlockShuffle: hands over the visible rows of any block of pages. */
#include "corgipile.h"

#include "executor/instrument.h"
#include "plan.h"
#include "storage/bufmgr.h"
#include "utils/spccache.h"

typedef struct {
    CustomScanState css;
    CorgiRun *run;
    CorgiScan **scans;      /* by part of the source; a part's scan begins when it is first read */
    CorgiScan *scan;        /* of the block under way */
    double count;           /* of its rows */
    instr_time started;
    bool prefetch;          /* may be of use */
    bool slow;              /* so was the block before */
    int asking;             /* blocks for which asking still is of use */
} BlockState;

/* Asking for pages that the system holds already costs a twentieth of an epoch. So it is done for a while after two
 * blocks in a row that took longer than a page this long, which no page in memory does; one may just have lost its turn
 * on the processor. */
enum { SLOW_MICROSECONDS = 20, ASK_BLOCKS = 256 };

static void begin(CustomScanState *node, EState *estate, int eflags) {}

/* Prepare to read blocks of the run's table, as the snapshot of the query sees it. */
void corgi_block_open(CustomScanState *node, CorgiRun *run)
{
    BlockState *s = (BlockState *) node;
    Relation rel = run->source.rel;
    s->run = run;
    s->scans = palloc0(sizeof *s->scans * (Size) Max(run->source.part_count, 1));
    s->asking = 0;
    s->slow = false;
    s->prefetch = run->options.order != CP_NO_SHUFFLE && get_tablespace_io_concurrency(rel->rd_rel->reltablespace) > 0;
}

static CorgiScan *scan_of(BlockState *s, int part)
{
    MemoryContext outside;
    if (s->scans[part] == NULL) {
        outside = MemoryContextSwitchTo(GetMemoryChunkContext(s->scans));
        s->scans[part] = corgi_scan_begin(&s->run->source.parts[part], s->css.ss.ps.state->es_snapshot);
        MemoryContextSwitchTo(outside);
    }
    return s->scans[part];
}

/* The page after the last one of a block. */
static int64 stop_of(const CorgiSource *source, const CorgiPlace *place)
{
    return Min(place->page + source->block_pages, source->parts[place->part].pages);
}

/* Begin a block. */
void corgi_block_seek(CustomScanState *node, const CorgiPlace *place)
{
    BlockState *s = (BlockState *) node;
    if (node->ss.ps.instrument)
        InstrStartNode(node->ss.ps.instrument);
    INSTR_TIME_SET_CURRENT(s->started);
    s->scan = scan_of(s, place->part);
    corgi_scan_seek(s->scan, place->page, stop_of(&s->run->source, place));
    s->count = 0;
}

/* Find out whether the block that was read came from a device. */
static void judge_speed(BlockState *s)
{
    instr_time took;
    bool slow;
    INSTR_TIME_SET_CURRENT(took);
    INSTR_TIME_SUBTRACT(took, s->started);
    slow = INSTR_TIME_GET_MICROSEC(took) > (uint64) SLOW_MICROSECONDS * s->run->source.block_pages;
    s->asking = slow && s->slow ? ASK_BLOCKS : Max(s->asking - 1, 0);
    s->slow = slow;
}

/* Go to the next visible rows of the block, in the order of its pages. Returns what has them at hand, and their number;
 * NULL at the block's end. */
CorgiScan *corgi_block_next(CustomScanState *node, int *count)
{
    BlockState *s = (BlockState *) node;
    *count = corgi_scan_next(s->scan);
    s->count += *count;
    if (*count > 0)
        return s->scan;
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
        if (s->scans[i] != NULL)
            corgi_scan_end(s->scans[i]);
    s->scans = NULL;
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
    corgi_show_name(scan);
    return (Node *) s;
}

const CustomScanMethods corgi_block_methods = {CORGI_PREFIX "BlockShuffle", create};
