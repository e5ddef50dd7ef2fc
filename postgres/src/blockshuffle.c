/* BlockShuffle operator: returns the visible rows of any block of pages. */
#include "operators.h"

#include "executor/instrument.h"
#include "plan/plan.h"
#include "utils/spccache.h"

typedef struct {
    CustomScanState css;
    CorgiRun *run;
    CorgiScan **scans;      /* [part_count]; a scan opens when its part is first read */
    CorgiScan *scan;        /* of the current block */
    double count;           /* rows of the current block */
    CorgiPrefetcher *prefetcher;      /* NULL if prefetching cannot help */
    int64 missed;           /* buffer misses counted when the current block began */
    int unprobed;              /* blocks since the last prefetch */
} BlockState;

enum { PROBE_INTERVAL = 16 }; /* blocks between two probes whether prefetching helps */

static void begin_block_scan(CustomScanState *node, EState *estate, int eflags) {}

/* Prepare to read blocks of the run's table under the query's snapshot. */
void corgi_block_open(CustomScanState *node, CorgiRun *run)
{
    BlockState *s = (BlockState *) node;
    Relation rel = run->source.rel;
    s->run = run;
    s->scans = palloc0(sizeof *s->scans * (Size) Max(run->source.part_count, 1));
    s->unprobed = PROBE_INTERVAL;
    s->prefetcher = NULL;
    if (cp_order(run->options.order)->random && !CORGI_DIRECT_IO &&
        get_tablespace_io_concurrency(rel->rd_rel->reltablespace) > 0)
        s->prefetcher = corgi_make_prefetcher();
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

/* Return the page after a block's last page. */
static int64 stop_of(const CorgiSource *source, const CorgiPlace *place)
{
    return Min(place->page + source->block_pages, source->parts[place->part].pages);
}

static int64 missed_pages(void) { return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read; }

/* Start reading a block. */
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

/* Advance to the next visible rows of the block, in page order. Returns the scan that holds them and sets `count`, or
 * returns NULL at the block's end. */
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

/* Ask the operating system to read a block ahead. Returns false if no request was needed: the pages are in shared
 * buffers or in the page cache. */
bool corgi_block_prefetch(CustomScanState *node, const CorgiPlace *place)
{
    BlockState *s = (BlockState *) node;
    const CorgiSource *source = &s->run->source;
    if (s->prefetcher == NULL)
        return false;
    if (!corgi_prefetch_is_useful(s->prefetcher) && (++s->unprobed < PROBE_INTERVAL || missed_pages() == s->missed))
        return false;
    s->unprobed = 0;
    return corgi_prefetch(s->prefetcher, source->parts[place->part].rel, place->page,
                          stop_of(source, place) - place->page, s->run->options.threads > 1);
}

/* Stop the prefetcher. */
void corgi_block_stop(CustomScanState *node)
{
    BlockState *s = (BlockState *) node;
    if (s->prefetcher != NULL)
        corgi_stop_prefetcher(s->prefetcher);
}

/* End one EXPLAIN ANALYZE loop, which is one pass over the table. */
void corgi_end_loop(CustomScanState *node)
{
    if (node->ss.ps.instrument)
        InstrEndLoop(node->ss.ps.instrument);
}

/* Close all scans. They reopen when they are read again. */
void corgi_block_close(CustomScanState *node)
{
    BlockState *s = (BlockState *) node;
    for (int i = 0; s->scans != NULL && i < s->run->source.part_count; i++) {
        if (s->scans[i] != NULL)
            corgi_scan_end(s->scans[i]);
        s->scans[i] = NULL;
    }
}

static void end_block_scan(CustomScanState *node)
{
    corgi_block_close(node);
    ((BlockState *) node)->scans = NULL;
}

static void explain_block_scan(CustomScanState *node, List *ancestors, ExplainState *es)
{
    if (((BlockState *) node)->run != NULL)
        corgi_explain_blocks(((BlockState *) node)->run, es);
}

static const CustomExecMethods exec_methods = {.CustomName = "BlockShuffle",
                                               .BeginCustomScan = begin_block_scan,
                                               .ExecCustomScan = corgi_never_executed,
                                               .EndCustomScan = end_block_scan,
                                               .ReScanCustomScan = end_block_scan,
                                               .ExplainCustomScan = explain_block_scan};

static Node *create_block_scan(CustomScan *scan)
{
    return corgi_create_state(scan, sizeof(BlockState), &exec_methods);
}

const CustomScanMethods corgi_block_methods = {CORGI_PREFIX "BlockShuffle", create_block_scan};
