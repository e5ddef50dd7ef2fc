/* BlockShuffle: hands over the visible rows of any block of pages. */
#include "corgipile.h"

#include "executor/instrument.h"
#include "plan/plan.h"
#include "utils/spccache.h"

typedef struct {
    CustomScanState css;
    CorgiRun *run;
    CorgiScan **scans;      /* by part of the source; a part's scan begins when it is first read */
    CorgiScan *scan;        /* of the block under way */
    double count;           /* of its rows */
    CorgiAsker *asker;      /* NULL: asking is of no use */
    int64 missed;           /* pages that were not in shared buffers, when the block under way began */
    int quiet;              /* blocks since one was asked for */
} BlockState;

enum { QUIET_BLOCKS = 16 }; /* between two looks whether asking is of use */

static void begin(CustomScanState *node, EState *estate, int eflags) {}

/* Prepare to read blocks of the run's table, as the snapshot of the query sees it. */
void corgi_block_open(CustomScanState *node, CorgiRun *run)
{
    BlockState *s = (BlockState *) node;
    Relation rel = run->source.rel;
    s->run = run;
    s->scans = palloc0(sizeof *s->scans * (Size) Max(run->source.part_count, 1));
    s->quiet = QUIET_BLOCKS;
    s->asker = NULL;
    if (cp_order(run->options.order)->random && !CORGI_DIRECT_IO &&
        get_tablespace_io_concurrency(rel->rd_rel->reltablespace) > 0)
        s->asker = corgi_make_asker();
}

static CorgiScan *scan_of(BlockState *s, int part)
{
    MemoryContext outside;
    if (s->scans[part] == NULL) {
        outside = MemoryContextSwitchTo(GetMemoryChunkContext(s->scans));
        s->scans[part] = corgi_scan_begin(&s->run->source.parts[part], corgi_snapshot(s->run, s->css.ss.ps.state));
        MemoryContextSwitchTo(outside);
    }
    return s->scans[part];
}

/* The page after the last one of a block. */
static int64 stop_of(const CorgiSource *source, const CorgiPlace *place)
{
    return Min(place->page + source->block_pages, source->parts[place->part].pages);
}

static int64 missed_pages(void) { return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read; }

/* Begin a block. */
void corgi_block_seek(CustomScanState *node, const CorgiPlace *place)
{
    BlockState *s = (BlockState *) node;
    if (node->ss.ps.instrument)
        InstrStartNode(node->ss.ps.instrument);
    s->missed = missed_pages();
    s->scan = scan_of(s, place->part);
    corgi_scan_seek(s->scan, place->page, stop_of(&s->run->source, place));
    s->count = 0;
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
    if (node->ss.ps.instrument)
        InstrStopNode(node->ss.ps.instrument, s->count);
    return NULL;
}

/* Ask the system to read a block before it is needed. Returns whether it was asked: pages in shared buffers need no
 * asking, nor such as the system has. */
bool corgi_block_ask(CustomScanState *node, const CorgiPlace *place)
{
    BlockState *s = (BlockState *) node;
    const CorgiSource *source = &s->run->source;
    if (s->asker == NULL)
        return false;
    if (!corgi_is_useful(s->asker) && (++s->quiet < QUIET_BLOCKS || missed_pages() == s->missed))
        return false;
    s->quiet = 0;
    return corgi_ask(s->asker, source->parts[place->part].rel, place->page, stop_of(source, place) - place->page,
                     s->run->options.threads > 1);
}

/* End what asks for blocks. */
void corgi_block_stop(CustomScanState *node)
{
    BlockState *s = (BlockState *) node;
    if (s->asker != NULL)
        corgi_stop_asker(s->asker);
}

/* End a loop of the figures that EXPLAIN ANALYZE shows: one a pass over the table. */
void corgi_end_loop(CustomScanState *node)
{
    if (node->ss.ps.instrument)
        InstrEndLoop(node->ss.ps.instrument);
}

/* End scans; they begin anew where they are read again. */
void corgi_block_close(CustomScanState *node)
{
    BlockState *s = (BlockState *) node;
    for (int i = 0; s->scans != NULL && i < s->run->source.part_count; i++) {
        if (s->scans[i] != NULL)
            corgi_scan_end(s->scans[i]);
        s->scans[i] = NULL;
    }
}

static void end(CustomScanState *node)
{
    corgi_block_close(node);
    ((BlockState *) node)->scans = NULL;
}

static void explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
    if (((BlockState *) node)->run != NULL)
        corgi_explain_blocks(((BlockState *) node)->run, es);
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
