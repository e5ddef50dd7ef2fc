/* SGD operator: trains a linear model on TupleShuffle's steps in place, and returns one row per epoch. */
#include "members.h"
#include "operators.h"

#include <math.h>

#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "sgd/state.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

enum { COLUMNS = 13 }; /* of the result */

typedef struct {
    CustomScanState css;
    List *arguments;        /* of ExprState */
    Oid types[ARG_COUNT];   /* of the arguments */
    bool deferred;              /* an argument is unknown before the first row is requested */
    bool configured;
    MemoryContext context;  /* of one run */
    CorgiRun run;
    CustomScanState *tuples;
    CorgiLearner *learner, *evaluator; /* learner: NULL for several models; evaluator: of validation rows */
    CorgiHistory history;
    int64 returned;         /* epochs */
    TupleDesc row;          /* whole-row type if the query uses it; else NULL */
    bool finished;
} SgdState;

static bool needs_execution(Node *node, void *context)
{
    if (node == NULL)
        return false;
    if (IsA(node, SubPlan) || (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC))
        return true;
    return expression_tree_walker(node, needs_execution, context);
}

/* Evaluate the arguments and open the table. */
static void configure(SgdState *s)
{
    CorgiOptions *o = &s->run.options;
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
    corgi_read_options(o, values, nulls, s->types);
    o->user = GetUserId();
    corgi_hold_out(&s->run);
    s->run.past = o->warm_start ? corgi_load_past(o) : NULL;
    s->configured = true;
    if (o->query != NULL)
        corgi_open_query(&s->run);
    corgi_open_source(&s->run.source, o);
    corgi_open_where(&s->run);
    if (s->run.past == NULL)
        corgi_settle_classes(o, &s->run.source);
    corgi_tuple_open(s->tuples, &s->run);
    corgi_begin_history(&s->history, o, s->run.past);
    s->returned = 0;
    s->finished = false;
    MemoryContextSwitchTo(outside);
}

/* Return the type of the whole row behind the columns, if any. */
static TupleDesc whole_row(TupleDesc scanned)
{
    if (scanned->natts <= COLUMNS)
        return NULL;
    TupleDesc row = CreateTemplateTupleDesc(COLUMNS);
    for (AttrNumber i = 1; i <= COLUMNS; i++)
        TupleDescCopyEntry(row, i, scanned, i);
    return BlessTupleDesc(row);
}

/* Return whether arguments may be evaluated now. EXPLAIN evaluates nothing with side effects, and rechecking a
 * concurrently changed row must not train. */
static bool may_configure(const SgdState *s, const EState *estate, int eflags)
{
    Node *arguments = (Node *) ((CustomScan *) s->css.ss.ps.plan)->custom_exprs;
    if (s->deferred || CORGI_GENERIC(eflags) || estate->es_epq_active != NULL)
        return false;
    return (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 || !contain_volatile_functions(arguments);
}

/* Check the current role's right to call the function, as the server does at each execution. */
static void check_execute(Oid function)
{
    AclResult may = CORGI_MAY_EXECUTE(function, GetUserId());
    if (may != ACLCHECK_OK)
        aclcheck_error(may, OBJECT_FUNCTION, get_func_name(function));
    InvokeFunctionExecuteHook(function);
}

/* Return whether a query must run first, which plain EXPLAIN avoids. */
static bool has_query(const CustomScan *plan)
{
    const Node *query = list_nth(plan->custom_exprs, ARG_QUERY);
    return !IsA(query, Const) || !((const Const *) query)->constisnull;
}

static void begin_sgd(CustomScanState *node, EState *estate, int eflags)
{
    SgdState *s = (SgdState *) node;
    CustomScan *plan = (CustomScan *) node->ss.ps.plan;
    check_execute(linitial_oid(plan->custom_private));
    if (list_length(plan->custom_exprs) != ARG_COUNT)
        corgi_refuse_version();
    node->custom_ps = list_make1(ExecInitNode(linitial(plan->custom_plans), estate, eflags));
    s->tuples = linitial(node->custom_ps);
    s->arguments = ExecInitExprList(plan->custom_exprs, &node->ss.ps);
    for (int i = 0; i < ARG_COUNT; i++)
        s->types[i] = exprType(list_nth(plan->custom_exprs, i));
    s->deferred = needs_execution((Node *) plan->custom_exprs, NULL) || has_query(plan);
    s->context = AllocSetContextCreate(estate->es_query_cxt, "corgipile run", ALLOCSET_DEFAULT_SIZES);
    s->row = whole_row(node->ss.ss_ScanTupleSlot->tts_tupleDescriptor);
    if (may_configure(s, estate, eflags))
        configure(s);
}

/* Survey the table and create the learners. */
static void prepare_run(SgdState *s)
{
    CorgiRun *run = &s->run;
    if (run->options.name != NULL)
        corgi_check_name(run->options.name, run->options.user, "corgipile.train with a name");
    corgi_check_past(&run->options);
    corgi_progress_begin(run);
    corgi_tuple_prepare(s->tuples);
    run->stack = corgi_make_stack(run, &s->history);
    s->learner = corgi_single_learner(run->stack, run);
    if (run->options.name != NULL || run->options.weights)
        corgi_check_size(run, s->learner);
    corgi_begin_best(run);
    s->evaluator = run->survey.held > 0 ? corgi_evaluation_learner(run) : NULL;
}

static void check_epoch(const CorgiRun *run, int64 epoch, const cp_figures *figures, int64 skipped)
{
    if (figures->rows == 0 && skipped > 0)
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
                errmsg("none of " INT64_FORMAT " rows can be trained on: each lacks a feature or a label", skipped));
    corgi_check_weight(figures, "the rows to learn from");
    if (figures->rows + skipped != run->survey.rows)
        elog(ERROR, "epoch " INT64_FORMAT " visited " INT64_FORMAT " of " INT64_FORMAT " rows", epoch, figures->rows,
             run->survey.rows);
}

/* Run the next epoch; restart the models whose default rate diverges or is small for the labels. */
static CorgiEpoch next_result(SgdState *s)
{
    const int64 number = s->history.past + s->history.count;
    CorgiRun *run = &s->run;
    CorgiEpoch epoch = {0};
    do {
        instr_time start, took;
        corgi_progress_epoch(run, number, s->history.past + run->options.epochs);
        INSTR_TIME_SET_CURRENT(start);
        corgi_tuple_begin(s->tuples, (int) number);
        corgi_stack_begin(run->stack, run, number);
        corgi_compute_epoch(run, s->tuples);
        corgi_end_loop(s->tuples);
        corgi_end_loop(linitial(s->tuples->custom_ps));
        epoch.learnt = corgi_stack_end(run->stack, &epoch.skipped);
        INSTR_TIME_SET_CURRENT(took);
        INSTR_TIME_SUBTRACT(took, start);
        epoch.seconds = INSTR_TIME_GET_DOUBLE(took);
    } while (corgi_stack_restart_rates(run->stack, run));
    check_epoch(run, number, &epoch.learnt, epoch.skipped);
    return epoch;
}

/* Measure the validation rows, if any. */
static cp_figures measure_validation(SgdState *s)
{
    CorgiRun run = s->run;
    if (s->evaluator == NULL)
        return (cp_figures){0};
    corgi_learner_copy_model(&s->run, s->evaluator, s->learner);
    run.stack = NULL; /* the evaluator measures */
    cp_figures figures = corgi_measure(&run, s->evaluator, true, corgi_snapshot(&run, s->css.ss.ps.state));
    if (figures.rows > 0)
        corgi_check_weight(&figures, "the validation rows");
    return figures;
}

static void fill_fold(SgdState *s)
{
    CorgiFold *fold = s->run.fold;
    fold->held = measure_validation(s);
    fold->numbers = corgi_predicts_numbers(&s->run.options.of);
    fold->epochs = s->history.count;
    for (int64 i = 0; i < s->history.count; i++)
        fold->seconds += s->history.epochs[i].seconds;
}

/* Train one more epoch; store the model after the last. */
static void advance_epoch(SgdState *s)
{
    MemoryContext outside = MemoryContextSwitchTo(s->context);
    const CorgiOptions *o = &s->run.options;
    CorgiHistory *h = &s->history;
    if (!s->run.prepared)
        prepare_run(s);
    CorgiEpoch epoch = next_result(s);
    if (s->run.fold == NULL)
        epoch.held = measure_validation(s);
    s->finished = corgi_add_epoch(h, &s->run, &epoch);
    corgi_hint_nothing_learnt(&s->run, h, &epoch);
    corgi_stack_reduce_rates(s->run.stack, &s->run);
    s->finished |= corgi_note_best(&s->run, s->learner, h->past + h->count - 1, &epoch.held);
    if (s->finished) {
        if (s->run.fold != NULL)
            fill_fold(s);
        corgi_progress_end(&s->run);
        if (!corgi_are_labels(s->run.members))
            corgi_warn_no_better(&s->run, &epoch);
        corgi_stack_report(s->run.stack, &s->run);
        if (o->name != NULL) {
            corgi_free_buffer(&s->run.buffer);
            corgi_store_model(&s->run, s->learner, h, s->run.past);
        }
    }
    MemoryContextSwitchTo(outside);
}

/* Add the whole row behind the columns. */
static void fill_whole_row(const SgdState *s, TupleTableSlot *slot)
{
    MemoryContext outside = MemoryContextSwitchTo(s->css.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
    if (s->row != NULL) {
        slot->tts_values[COLUMNS] = HeapTupleGetDatum(heap_form_tuple(s->row, slot->tts_values, slot->tts_isnull));
        slot->tts_isnull[COLUMNS] = false;
    }
    MemoryContextSwitchTo(outside);
}

static void fill_weights(const SgdState *s, Datum *values, bool *nulls)
{
    MemoryContext outside = MemoryContextSwitchTo(s->css.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
    CorgiWeights w = corgi_get_weights(&s->run, s->learner);
    values[9] = PointerGetDatum(w.classes);
    values[10] = PointerGetDatum(w.coefficients);
    values[11] = PointerGetDatum(w.intercepts);
    values[12] = PointerGetDatum(w.names);
    nulls[9] = nulls[10] = nulls[11] = false;
    nulls[12] = w.names == NULL;
    MemoryContextSwitchTo(outside);
}

/* Fill in the next epoch's metrics. */
static void fill_row(const SgdState *s, TupleTableSlot *slot)
{
    const CorgiEpoch *e = &s->history.epochs[s->returned];
    bool numbers = corgi_predicts_numbers(&s->run.options.of), held = e->held.rows > 0;
    Datum *values = slot->tts_values;
    bool *nulls = slot->tts_isnull;
    values[0] = Int32GetDatum((int32) (s->history.past + s->returned));
    values[1] = Float8GetDatum(e->learnt.loss);
    values[2] = values[3] = Float8GetDatum(e->learnt.score);
    values[4] = Float8GetDatum(e->held.loss);
    values[5] = values[6] = Float8GetDatum(e->held.score);
    values[7] = Int64GetDatum(e->learnt.rows);
    values[8] = Float8GetDatum(e->seconds);
    memset(nulls, 0, sizeof *nulls * COLUMNS);
    nulls[2] = numbers;
    nulls[3] = !numbers;
    nulls[4] = !held;
    nulls[5] = !held || numbers;
    nulls[6] = !held || !numbers;
    nulls[9] = nulls[10] = nulls[11] = nulls[12] = true;
    if (s->run.options.weights && s->finished && s->returned == s->history.count - 1)
        fill_weights(s, values, nulls);
    fill_whole_row(s, slot);
}

static TupleTableSlot *next_epoch(ScanState *node)
{
    SgdState *s = (SgdState *) node;
    TupleTableSlot *slot = node->ss_ScanTupleSlot;
    if (!s->configured)
        configure(s);
    ExecClearTuple(slot);
    if (s->returned == s->history.count) {
        if (s->finished)
            return slot;
        advance_epoch(s);
    }
    fill_row(s, slot);
    s->returned++;
    return ExecStoreVirtualTuple(slot);
}

/* Return the row that the query joined with a concurrently changed row; false if it was returned already. */
static bool recheck(ScanState *node, TupleTableSlot *slot)
{
    EPQState *epq = node->ps.state->es_epq_active;
    int relation = bms_singleton_member(((CustomScan *) node->ps.plan)->custom_relids);
    if (epq->relsubs_done[relation - 1] || epq->relsubs_rowmark[relation - 1] == NULL ||
        !EvalPlanQualFetchRowMark(epq, (Index) relation, slot))
        return false;
    epq->relsubs_done[relation - 1] = true;
    fill_whole_row((SgdState *) node, slot);
    return true;
}

static TupleTableSlot *exec_sgd(CustomScanState *node) { return ExecScan(&node->ss, next_epoch, recheck); }

static void close_run(SgdState *s)
{
    corgi_progress_end(&s->run);
    if (s->configured && s->run.source.rel != NULL)
        corgi_close_source(&s->run.source);
    if (s->configured)
        corgi_close_query(&s->run);
    memset(&s->run, 0, sizeof s->run);
    s->configured = false;
}

static void end_sgd(CustomScanState *node)
{
    ExecEndNode(linitial(node->custom_ps));
    close_run((SgdState *) node);
}

/* Return the same epochs again without training, unless the arguments may have changed. */
static void rescan_sgd(CustomScanState *node)
{
    SgdState *s = (SgdState *) node;
    s->returned = 0;
    ExecScanReScan(&node->ss);
    if (node->ss.ps.chgParam == NULL)
        return;
    ExecReScan(linitial(node->custom_ps));
    close_run(s);
    MemoryContextReset(s->context);
}

static void explain_sgd(CustomScanState *node, List *ancestors, ExplainState *es)
{
    const SgdState *s = (const SgdState *) node;
    const Const *query = list_nth(((const CustomScan *) node->ss.ps.plan)->custom_exprs, ARG_QUERY);
    if (s->configured)
        corgi_explain_learning(&s->run, es);
    else if (IsA(query, Const) && !query->constisnull)
        ExplainPropertyText("Query", TextDatumGetCString(query->constvalue), es);
}

static const CustomExecMethods exec_methods = {.CustomName = "SGD",
                                               .BeginCustomScan = begin_sgd,
                                               .ExecCustomScan = exec_sgd,
                                               .EndCustomScan = end_sgd,
                                               .ReScanCustomScan = rescan_sgd,
                                               .ExplainCustomScan = explain_sgd};

static Node *create_sgd_state(CustomScan *scan)
{
    return corgi_create_state(scan, sizeof(SgdState), &exec_methods);
}

const CustomScanMethods corgi_sgd_methods = {CORGI_PREFIX "SGD", create_sgd_state};
