/* SGD: learns a linear model from the steps of TupleShuffle, in place, and returns one row an epoch. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "sgd_state.h"
#include "utils/memutils.h"

#define GROWTH 1000.0

typedef struct {
    CustomScanState css;
    List *arguments;        /* of ExprState */
    bool one_feature, late; /* late: an argument can be evaluated no sooner than the first row is asked for */
    bool configured;
    MemoryContext context;  /* of one run */
    CorgiRun run;
    CustomScanState *tuples;
    CorgiMachine *machine;
    CorgiEpoch *history;
    int done, returned;     /* epochs */
} SgdState;

static bool waits(Node *node, void *context)
{
    if (node == NULL)
        return false;
    if (IsA(node, SubPlan) || (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC))
        return true;
    return expression_tree_walker(node, waits, context);
}

/* Evaluate the arguments, open the table. */
static void configure(SgdState *s)
{
    ExprContext *econtext = s->css.ss.ps.ps_ExprContext;
    MemoryContext outside = MemoryContextSwitchTo(s->context);
    Datum values[ARG_COUNT];
    bool nulls[ARG_COUNT];
    ListCell *cell;
    int i = 0;
    memset(&s->run, 0, sizeof s->run);
    foreach (cell, s->arguments) {
        values[i] = ExecEvalExpr(lfirst(cell), econtext, &nulls[i]);
        i++;
    }
    corgi_read_options(&s->run.options, values, nulls, s->one_feature);
    corgi_open_source(&s->run.source, &s->run.options);
    corgi_tuple_open(s->tuples, &s->run);
    s->history = palloc(sizeof *s->history * (Size) s->run.options.epochs);
    s->done = s->returned = 0;
    s->configured = true;
    MemoryContextSwitchTo(outside);
}

static void begin(CustomScanState *node, EState *estate, int eflags)
{
    SgdState *s = (SgdState *) node;
    CustomScan *plan = (CustomScan *) node->ss.ps.plan;
    if (list_length(plan->custom_exprs) != ARG_COUNT)
        elog(ERROR, "corgipile.train has %d arguments, the library knows %d: run ALTER EXTENSION corgipile UPDATE",
             list_length(plan->custom_exprs), ARG_COUNT);
    node->custom_ps = list_make1(ExecInitNode(linitial(plan->custom_plans), estate, eflags));
    s->tuples = linitial(node->custom_ps);
    s->arguments = ExecInitExprList(plan->custom_exprs, &node->ss.ps);
    s->one_feature = exprType(list_nth(plan->custom_exprs, ARG_FEATURES)) == TEXTOID;
    s->late = waits((Node *) plan->custom_exprs, NULL);
    s->context = AllocSetContextCreate(estate->es_query_cxt, "corgipile run", ALLOCSET_DEFAULT_SIZES);
    if (!s->late && !CORGI_GENERIC(eflags))
        configure(s);
}

/* Turn an epoch's totals into mean loss and accuracy, or R². */
static CorgiEpoch summarise(const CorgiTotals *t, int loss, double seconds)
{
    double rows = (double) Max(t->rows, 1), spread = t->square - t->sum * t->sum / rows;
    CorgiEpoch e = {.rows = t->rows, .seconds = seconds, .accuracy = (double) t->correct / rows};
    e.loss = loss == CP_SQUARED ? t->squares / 2 / rows : t->loss / rows;
    e.r2 = spread > 0 ? 1 - t->squares / spread : t->squares == 0;
    return e;
}

static void check_progress(const SgdState *s)
{
    double first = s->history[0].loss, last = s->history[s->done].loss;
    bool grows = s->done > 0 && last > s->history[s->done - 1].loss && last > GROWTH * first && first > 0;
    if (!isfinite(last) || grows)
        ereport(
            ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
            errmsg("training diverged in epoch %d: the loss is %g, after %g in the first epoch", s->done, last, first),
            errhint("Try learning_rate => %g.", s->run.options.learning_rate / 10));
}

static void learn_epoch(SgdState *s)
{
    const CorgiOptions *o = &s->run.options;
    instr_time start, took;
    CorgiTotals totals;
    INSTR_TIME_SET_CURRENT(start);
    corgi_tuple_begin(s->tuples, s->done);
    corgi_machine_begin(s->machine, o->learning_rate * pow(o->decay, s->done));
    corgi_compute_epoch(s->machine, &s->run, s->tuples);
    totals = corgi_machine_end(s->machine);
    INSTR_TIME_SET_CURRENT(took);
    INSTR_TIME_SUBTRACT(took, start);
    if (totals.rows != s->run.survey.rows)
        elog(ERROR, "epoch %d visited " INT64_FORMAT " of " INT64_FORMAT " rows", s->done, totals.rows,
             s->run.survey.rows);
    s->history[s->done] = summarise(&totals, o->loss, INSTR_TIME_GET_DOUBLE(took));
    check_progress(s);
    s->done++;
    corgi_end_loop(s->tuples);
    corgi_end_loop(linitial(s->tuples->custom_ps));
}

/* Learn one more epoch; after the last, store the model. */
static void advance(SgdState *s)
{
    MemoryContext outside = MemoryContextSwitchTo(s->context);
    if (!s->run.prepared) {
        corgi_tuple_prepare(s->tuples);
        s->machine = corgi_machine_for(&s->run);
    }
    learn_epoch(s);
    if (s->done == s->run.options.epochs && s->run.options.name != NULL)
        corgi_store_model(&s->run, s->machine, s->history, s->done);
    MemoryContextSwitchTo(outside);
}

static TupleTableSlot *next_epoch(ScanState *node)
{
    SgdState *s = (SgdState *) node;
    TupleTableSlot *slot = node->ss_ScanTupleSlot;
    const CorgiEpoch *e;
    bool linear;
    if (!s->configured)
        configure(s);
    ExecClearTuple(slot);
    if (s->returned == s->run.options.epochs)
        return slot;
    if (s->returned == s->done)
        advance(s);
    e = &s->history[s->returned];
    linear = s->run.options.loss == CP_SQUARED;
    slot->tts_values[0] = Int32GetDatum(s->returned++);
    slot->tts_values[1] = Float8GetDatum(e->loss);
    slot->tts_values[2] = Float8GetDatum(e->accuracy);
    slot->tts_values[3] = Float8GetDatum(e->r2);
    slot->tts_values[4] = Int64GetDatum(e->rows);
    slot->tts_values[5] = Float8GetDatum(e->seconds);
    memset(slot->tts_isnull, 0, sizeof *slot->tts_isnull * 6);
    slot->tts_isnull[2] = linear;
    slot->tts_isnull[3] = !linear;
    return ExecStoreVirtualTuple(slot);
}

static bool recheck(ScanState *node, TupleTableSlot *slot) { return true; }

static TupleTableSlot *exec(CustomScanState *node) { return ExecScan(&node->ss, next_epoch, recheck); }

static void leave(SgdState *s)
{
    if (s->configured && s->run.source.rel != NULL)
        corgi_close_source(&s->run.source);
    memset(&s->run, 0, sizeof s->run);
    s->configured = false;
}

static void end(CustomScanState *node)
{
    ExecEndNode(linitial(node->custom_ps));
    leave((SgdState *) node);
}

/* Return the same epochs again without learning twice, unless the arguments may have changed. */
static void rescan(CustomScanState *node)
{
    SgdState *s = (SgdState *) node;
    s->returned = 0;
    ExecScanReScan(&node->ss);
    if (node->ss.ps.chgParam == NULL)
        return;
    ExecReScan(linitial(node->custom_ps));
    leave(s);
    MemoryContextReset(s->context);
}

static void explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
    const SgdState *s = (const SgdState *) node;
    const CorgiOptions *o = &s->run.options;
    if (!s->configured)
        return;
    ExplainPropertyText("Model", o->kind, es);
    ExplainPropertyInteger("Epochs", NULL, o->epochs, es);
    ExplainPropertyInteger("Batch Size", NULL, o->batch, es);
    ExplainPropertyInteger("Threads", NULL, o->threads, es);
    ExplainPropertyText("Numbers", s->run.source.bytes == 4 ? "real" : "double precision", es);
    if (s->run.prepared) {
        ExplainPropertyInteger("Features", NULL, s->run.survey.width, es);
        ExplainPropertyInteger("Rows per Epoch", NULL, s->run.survey.rows, es);
    }
}

static const CustomExecMethods exec_methods = {.CustomName = "SGD",
                                               .BeginCustomScan = begin,
                                               .ExecCustomScan = exec,
                                               .EndCustomScan = end,
                                               .ReScanCustomScan = rescan,
                                               .ExplainCustomScan = explain};

static Node *create(CustomScan *scan)
{
    SgdState *s = (SgdState *) newNode(sizeof(SgdState), T_CustomScanState);
    s->css.methods = &exec_methods;
    return (Node *) s;
}

const CustomScanMethods corgi_sgd_methods = {"SGD", create};
