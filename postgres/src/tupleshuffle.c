/* TupleShuffle: runs the plan of an order. Each step loads blocks into buffer slots and says which slots to visit. */
#include "corgipile.h"

#include "plan/seriate.h"
#include "executor/instrument.h"
#include "steps.h"
#include "utils/memutils.h"

typedef struct {
    CustomScanState css;
    CorgiRun *run;
    CustomScanState *blocks;
    MemoryContext rows;     /* what one block's rows leave behind */
    int64 *order;           /* of blocks, if balanced */
    corgi_steps steps;
    int64 asked;            /* position after the last block that the system was asked for */
} TupleState;

enum { AHEAD_PAGES = 512 }; /* to ask for at most before they are read */

static void begin(CustomScanState *node, EState *estate, int eflags)
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
static int lay_out(const CorgiSurvey *v, uint64 key, int64 *order)
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
    if (s->order && lay_out(v, corgi_key(&run->options, epoch, CORGI_BALANCE), s->order) < 0)
        no_memory();
    s->asked = 0;
    cp_plan_free(&s->steps.plan);
    if (cp_plan_init(&s->steps.plan, &spec, 0) < 0)
        no_memory();
}

/* List those of the next rows that are to be learnt from; returns how many. */
static int choose(const CorgiRun *run, int64 number, int count, int16 *which)
{
    int chosen = 0;
    for (int i = 0; i < count; i++)
        if (!corgi_held_out(run, number + i) && (run->where == NULL || corgi_is_wanted(run, number + i)))
            which[chosen++] = (int16) i;
    return chosen;
}

/* Read the rows of one block into their slots. `into` has one slot for each; no more, no fewer may come. Returns how
 * many. */
static int64 load_block(TupleState *s, int64 block, const int32 *into)
{
    CorgiRun *run = s->run;
    const CorgiPlace *place = &run->survey.place[block];
    int64 rows = run->survey.cuts[block + 1] - run->survey.cuts[block], number = place->row, i = 0;
    MemoryContext outside = MemoryContextSwitchTo(s->rows);
    int16 which[CORGI_MOST_ROWS];
    CorgiScan *scan;
    int count;
    corgi_block_seek(s->blocks, place);
    while ((scan = corgi_block_next(s->blocks, &count)) != NULL) {
        int chosen = choose(run, number, count, which);
        if (i + chosen > rows || !corgi_scan_put(scan, which, chosen, run->survey.width, &run->buffer, into + i))
            break;
        if (run->scaling != NULL)
            corgi_scale_rows(run, into + i, chosen);
        for (int k = 0; run->groups != NULL && k < chosen; k++)
            run->buffer.group[into[i + k]] = corgi_group_of(run->groups, run->survey.cuts[block] + i + k);
        for (int k = 0; run->labels != NULL && k < chosen; k++)
            run->buffer.y[into[i + k]] = (double) corgi_set_of(run->labels, run->survey.cuts[block] + i + k);
        number += count;
        i += chosen;
    }
    if (i != rows || scan != NULL)
        elog(ERROR, "block at page " INT64_FORMAT " has another number of visible rows than when they were counted",
             place->page);
    MemoryContextSwitchTo(outside);
    MemoryContextReset(s->rows);
    return rows;
}

/* Find out what features are standardised by: one more pass, block by block through the first slots of the buffer. */
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

/* Take a survey, choose sizes, allocate the buffer. Plans hold memory that only a callback can free. */
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

/* Ask for the blocks that come after position k. */
static void ask_after(TupleState *s, int64 k)
{
    const cp_plan *plan = &s->steps.plan;
    int64 stop = Min(k + 1 + Max(AHEAD_PAGES / s->run->source.block_pages, 1), plan->count);
    s->asked = Max(s->asked, k + 1);
    while (s->asked < stop &&
           corgi_block_ask(s->blocks, &s->run->survey.place[cp_block_at(plan, plan->first + s->asked)]))
        s->asked++;
}

/* The place of the block loaded as the e-th of a step: riffle gives every sparse block a place of its own, the other
 * orders fill a region of the buffer from its beginning. */
static int64 place_of(const TupleState *s, const corgi_step *step, const int32 *into, int64 e)
{
    int64 widest = s->run->survey.widest;
    return cp_order(s->run->options.order)->deals ? *into / widest : *step->into / widest + e;
}

/* Load the rows of a step into their slots. */
void corgi_tuple_load(CustomScanState *node, const corgi_step *step)
{
    TupleState *s = (TupleState *) node;
    const cp_plan *plan = &s->steps.plan; /* a thread may be planning on: only what holds for the epoch is read */
    const int32 *into = step->into;
    if (node->ss.ps.instrument)
        InstrStartNode(node->ss.ps.instrument);
    for (int64 k = step->from; k < step->to; k++) {
        ask_after(s, k);
        if (s->run->source.sparse)
            corgi_begin_place(&s->run->buffer, place_of(s, step, into, k - step->from));
        into += load_block(s, cp_block_at(plan, plan->first + k), into);
    }
    if (node->ss.ps.instrument)
        InstrStopNode(node->ss.ps.instrument, (double) step->visits);
}

void corgi_tuple_stop(CustomScanState *node) { corgi_block_stop(((TupleState *) node)->blocks); }

static void end(CustomScanState *node)
{
    corgi_steps_free(&((TupleState *) node)->steps);
    ExecEndNode(linitial(node->custom_ps));
}

static void rescan(CustomScanState *node) { ExecReScan(linitial(node->custom_ps)); }

static void explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
    if (((TupleState *) node)->run != NULL)
        corgi_explain_tuples(((TupleState *) node)->run, es);
}

static const CustomExecMethods exec_methods = {.CustomName = "TupleShuffle",
                                               .BeginCustomScan = begin,
                                               .ExecCustomScan = corgi_never_executed,
                                               .EndCustomScan = end,
                                               .ReScanCustomScan = rescan,
                                               .ExplainCustomScan = explain};

static Node *create(CustomScan *scan)
{
    TupleState *s = (TupleState *) newNode(sizeof(TupleState), T_CustomScanState);
    s->css.methods = &exec_methods;
    corgi_show_name(scan);
    return (Node *) s;
}

const CustomScanMethods corgi_tuple_methods = {CORGI_PREFIX "TupleShuffle", create};
