/* TupleShuffle operator: executes the plan of an order. Each step loads blocks into buffer slots and lists the slots to
 * visit. */
#include "members.h"
#include "operators.h"
#include "steps.h"

#include "executor/instrument.h"
#include "plan/seriate.h"
#include "utils/memutils.h"

typedef struct {
    CustomScanState css;
    CorgiRun *run;
    CustomScanState *blocks;
    MemoryContext rows;     /* temporary memory of one block's rows */
    int64 *order;           /* of blocks, if balanced */
    corgi_steps steps;
    int64 prefetched;            /* position after the last prefetched block */
} TupleState;

enum { MAX_PREFETCH_PAGES = 512 }; /* most pages prefetched */

static void begin_tuple_shuffle(CustomScanState *node, EState *estate, int eflags)
{
    Plan *child = linitial(((CustomScan *) node->ss.ps.plan)->custom_plans);
    node->custom_ps = list_make1(ExecInitNode(child, estate, eflags));
}

static void free_steps(void *steps) { corgi_steps_free(steps); }

corgi_steps *corgi_tuple_steps(CustomScanState *node) { return &((TupleState *) node)->steps; }

void corgi_tuple_open(CustomScanState *node, CorgiRun *run)
{
    TupleState *s = (TupleState *) node;
    s->run = run;
    s->blocks = linitial(node->custom_ps);
    corgi_block_open(s->blocks, run);
}

static void no_memory(void) { ereport(ERROR, errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")); }

/* Balance the blocks. Returns -1 without memory. */
static int balance_blocks(const CorgiSurvey *v, uint64 key, int64 *order)
{
    return v->vectors ? cp_balance_vectors(v->vectors, v->blocks, v->traits, key, order)
                      : cp_balance(v->sketch, v->blocks, key, order);
}

/* Begin an epoch. */
void corgi_tuple_begin(CustomScanState *node, int epoch)
{
    TupleState *s = (TupleState *) node;
    const CorgiRun *run = s->run;
    const CorgiSurvey *v = &run->survey;
    cp_spec spec = {.kind = run->options.order,
                    .rows = v->rows,
                    .blocks = v->blocks,
                    .cuts = v->cuts,
                    .order = s->order,
                    .key = corgi_key(&run->options, epoch, CORGI_ORDER),
                    .stop_row = v->rows,
                    .buffer = run->sizes.buffer_blocks,
                    .group = run->sizes.group,
                    .whole = run->sizes.whole,
                    .ahead = run->options.threads - 1};
    if (s->order && balance_blocks(v, corgi_key(&run->options, epoch, CORGI_BALANCE), s->order) < 0)
        no_memory();
    s->prefetched = 0;
    cp_plan_free(&s->steps.plan);
    if (cp_plan_init(&s->steps.plan, &spec, 0) < 0)
        no_memory();
}

/* Select the training rows among the next rows. Returns their number. */
static int select_rows(const CorgiRun *run, int64 number, int count, int16 *which)
{
    int chosen = 0;
    for (int i = 0; i < count; i++)
        if (!corgi_held_out(run, number + i) && (run->where == NULL || corgi_matches(run, number + i)))
            which[chosen++] = (int16) i;
    return chosen;
}

/* Note the groups, or the label sets, of rows from number `row` on in their slots. */
static void note_members(CorgiRun *run, int64 row, const int32 *slot, int count)
{
    const bool labels = corgi_are_labels(run->members);
    for (int i = 0; i < count; i++) {
        const int64 member = corgi_member_of(run->members, row + i);
        if (labels)
            run->buffer.y[slot[i]] = (double) member;
        else
            run->buffer.group[slot[i]] = (int32) member;
    }
}

/* Read a block's rows into their slots. `into` must have exactly one slot per row. Returns their number. */
static int64 load_block(TupleState *s, int64 block, const int32 *into)
{
    CorgiRun *run = s->run;
    const CorgiPlace *place = &run->survey.place[block];
    int64 rows = run->survey.cuts[block + 1] - run->survey.cuts[block], number = place->row, i = 0;
    MemoryContext outside = MemoryContextSwitchTo(s->rows);
    int16 which[CORGI_MAX_ROWS];
    CorgiScan *scan;
    int count;
    corgi_block_seek(s->blocks, place);
    while ((scan = corgi_block_next(s->blocks, &count)) != NULL) {
        int chosen = select_rows(run, number, count, which);
        if (i + chosen > rows || !corgi_scan_put(scan, which, chosen, run->survey.width, &run->buffer, into + i))
            break;
        if (run->scaling != NULL)
            corgi_scale_rows(run, into + i, chosen);
        if (run->members != NULL)
            note_members(run, run->survey.cuts[block] + i, into + i, chosen);
        number += count;
        i += chosen;
    }
    if (i != rows || scan != NULL)
        elog(ERROR, "block at page " INT64_FORMAT " has a different number of visible rows than the survey counted",
             place->page);
    MemoryContextSwitchTo(outside);
    MemoryContextReset(s->rows);
    return rows;
}

/* Compute feature scaling in one more pass, block by block through the buffer's first slots. */
static CorgiScaling *find_scaling(TupleState *s)
{
    CorgiRun *run = s->run;
    struct cp_moments *moments = corgi_begin_moments(run);
    int32 *into = palloc_extended(sizeof *into * (Size) run->survey.widest, MCXT_ALLOC_HUGE);
    Assert(run->survey.widest <= run->buffer.slots);
    for (int64 i = 0; i < run->survey.widest; i++)
        into[i] = (int32) i;
    for (int64 block = 0; block < run->survey.blocks; block++) {
        if (run->source.sparse)
            corgi_begin_place(&run->buffer, 0);
        corgi_add_moments(moments, run, load_block(s, block, into));
    }
    corgi_end_loop(s->blocks);
    run->passes++;
    pfree(into);
    return corgi_end_moments(moments, run);
}

/* Survey the table, choose sizes and allocate the buffer. Plans hold malloc memory, which only a callback frees. */
void corgi_tuple_prepare(CustomScanState *node)
{
    TupleState *s = (TupleState *) node;
    CorgiRun *run = s->run;
    const CorgiSurvey *v = &run->survey;
    MemoryContextCallback *callback = palloc(sizeof *callback);
    corgi_fit_encoding(run, s->blocks);
    corgi_take_survey(run, s->blocks);
    if (run->past != NULL)
        corgi_fit_past(run, run->past);
    corgi_choose_scaling(run, corgi_snapshot(run, node->ss.ps.state));
    corgi_fit_sizes(run);
    corgi_choose_balance(run, corgi_snapshot(run, node->ss.ps.state));
    if (run->options.content)
        corgi_describe_blocks(run, corgi_snapshot(run, node->ss.ps.state));
    run->buffer = corgi_make_buffer(&run->source, v->width, run->sizes.slots, v->widest, v->heaviest);
    s->order = run->options.balance
                   ? MemoryContextAllocHuge(CurrentMemoryContext, sizeof *s->order * (Size) v->blocks)
                   : NULL;
    s->rows = AllocSetContextCreate(CurrentMemoryContext, "corgipile rows", ALLOCSET_DEFAULT_SIZES);
    memset(&s->steps, 0, sizeof s->steps);
    *callback = (MemoryContextCallback){.func = free_steps, .arg = &s->steps};
    MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
    if (run->standardize)
        run->scaling = run->past && run->past->standardized ? corgi_past_scaling(run) : find_scaling(s);
    run->prepared = true;
}

/* Prefetch the blocks after position k. */
static void prefetch_after(TupleState *s, int64 k)
{
    const cp_plan *plan = &s->steps.plan;
    int64 stop = Min(k + 1 + Max(MAX_PREFETCH_PAGES / s->run->source.block_pages, 1), plan->count);
    s->prefetched = Max(s->prefetched, k + 1);
    while (s->prefetched < stop &&
           corgi_block_prefetch(s->blocks, &s->run->survey.place[cp_block_at(plan, plan->first + s->prefetched)]))
        s->prefetched++;
}

/* Return the buffer region of a step's e-th block. riffle gives every sparse block its own region; other orders fill
 * the buffer from its start. */
static int64 block_region(const TupleState *s, const corgi_step *step, const int32 *into, int64 e)
{
    int64 widest = s->run->survey.widest;
    return cp_order(s->run->options.order)->deals ? *into / widest : *step->into / widest + e;
}

/* Load the rows of a step into their slots. */
void corgi_tuple_load(CustomScanState *node, const corgi_step *step)
{
    TupleState *s = (TupleState *) node;
    const cp_plan *plan = &s->steps.plan; /* a thread may be planning, so only epoch constants are read */
    const int32 *into = step->into;
    if (node->ss.ps.instrument)
        InstrStartNode(node->ss.ps.instrument);
    for (int64 k = step->from; k < step->to; k++) {
        prefetch_after(s, k);
        if (s->run->source.sparse)
            corgi_begin_place(&s->run->buffer, block_region(s, step, into, k - step->from));
        into += load_block(s, cp_block_at(plan, plan->first + k), into);
    }
    if (node->ss.ps.instrument)
        InstrStopNode(node->ss.ps.instrument, (double) step->visits);
}

void corgi_tuple_stop(CustomScanState *node) { corgi_block_stop(((TupleState *) node)->blocks); }

static void end_tuple_shuffle(CustomScanState *node)
{
    corgi_steps_free(&((TupleState *) node)->steps);
    ExecEndNode(linitial(node->custom_ps));
}

static void rescan_tuple_shuffle(CustomScanState *node) { ExecReScan(linitial(node->custom_ps)); }

static void explain_tuple_shuffle(CustomScanState *node, List *ancestors, ExplainState *es)
{
    if (((TupleState *) node)->run != NULL)
        corgi_explain_tuples(((TupleState *) node)->run, es);
}

static const CustomExecMethods exec_methods = {.CustomName = "TupleShuffle",
                                               .BeginCustomScan = begin_tuple_shuffle,
                                               .ExecCustomScan = corgi_never_executed,
                                               .EndCustomScan = end_tuple_shuffle,
                                               .ReScanCustomScan = rescan_tuple_shuffle,
                                               .ExplainCustomScan = explain_tuple_shuffle};

static Node *create_tuple_shuffle(CustomScan *scan)
{
    return corgi_create_state(scan, sizeof(TupleState), &exec_methods);
}

const CustomScanMethods corgi_tuple_methods = {CORGI_PREFIX "TupleShuffle", create_tuple_shuffle};
