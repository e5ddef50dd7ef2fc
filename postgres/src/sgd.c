/* SGD: learns a linear model from the steps of TupleShuffle, in place, and returns one row an epoch. */
#include "corgipile.h"

#include <math.h>

#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
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
    bool late;              /* late: an argument can be evaluated no sooner than the first row is asked for */
    bool configured;
    MemoryContext context;  /* of one run */
    CorgiRun run;
    CustomScanState *tuples;
    CorgiLearner *learner, *judge; /* learner: NULL where groups learn; judge: measures on the rows held out */
    CorgiHistory history;
    int64 returned;         /* epochs */
    TupleDesc row;          /* of the columns, where the query takes rows as a whole; else NULL */
    bool finished;
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

/* The type of the row that comes after the columns, if it does. */
static TupleDesc whole_row(TupleDesc scanned)
{
    TupleDesc row;
    if (scanned->natts <= COLUMNS)
        return NULL;
    row = CreateTemplateTupleDesc(COLUMNS);
    for (AttrNumber i = 1; i <= COLUMNS; i++)
        TupleDescCopyEntry(row, i, scanned, i);
    return BlessTupleDesc(row);
}

/* EXPLAIN alone evaluates nothing that has effects; a row that another session changed is checked without training. */
static bool may_configure(const SgdState *s, const EState *estate, int eflags)
{
    Node *arguments = (Node *) ((CustomScan *) s->css.ss.ps.plan)->custom_exprs;
    if (s->late || CORGI_GENERIC(eflags) || estate->es_epq_active != NULL)
        return false;
    return (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 || !contain_volatile_functions(arguments);
}

/* What the server asks before it calls a function: of the role that runs the plan, each time it does. */
static void check_execute(Oid function)
{
    AclResult may = CORGI_MAY_EXECUTE(function, GetUserId());
    if (may != ACLCHECK_OK)
        aclcheck_error(may, OBJECT_FUNCTION, get_func_name(function));
    InvokeFunctionExecuteHook(function);
}

/* Return whether a query is to be run first, which EXPLAIN alone does not. */
static bool asks(const CustomScan *plan)
{
    const Node *query = list_nth(plan->custom_exprs, ARG_QUERY);
    return !IsA(query, Const) || !((const Const *) query)->constisnull;
}

static void begin(CustomScanState *node, EState *estate, int eflags)
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
    s->late = waits((Node *) plan->custom_exprs, NULL) || asks(plan);
    s->context = AllocSetContextCreate(estate->es_query_cxt, "corgipile run", ALLOCSET_DEFAULT_SIZES);
    s->row = whole_row(node->ss.ss_ScanTupleSlot->tts_tupleDescriptor);
    if (may_configure(s, estate, eflags))
        configure(s);
}

/* Survey the table, make machines. */
static void prepare(SgdState *s)
{
    CorgiRun *run = &s->run;
    if (run->options.name != NULL)
        corgi_check_name(run->options.name, run->options.user, "corgipile.train with a name");
    corgi_check_past(&run->options);
    corgi_progress_begin(run);
    corgi_tuple_prepare(s->tuples);
    run->company = corgi_make_company(run);
    s->learner = run->company ? NULL : corgi_learner_for(run, run->survey.rows);
    if (run->options.name != NULL || run->options.weights)
        corgi_check_size(run, s->learner);
    corgi_begin_rate(run, s->learner, &s->history);
    corgi_begin_best(run);
    s->judge = run->survey.held > 0 ? corgi_learner_judge(run) : NULL;
}

/* Run an epoch; its figures are empty where it is to be begun again. */
static cp_figures learn(SgdState *s, int64 epoch, int64 *skipped)
{
    const CorgiOptions *o = &s->run.options;
    cp_figures figures;
    corgi_tuple_begin(s->tuples, (int) epoch);
    if (s->run.company != NULL)
        corgi_company_begin(s->run.company, &s->run, epoch);
    else
        corgi_learner_begin(s->learner, cp_sgd_rate(o->step, o->learning_rate, o->decay, epoch));
    *skipped = corgi_compute_epoch(s->learner, &s->run, s->tuples);
    corgi_end_loop(s->tuples);
    corgi_end_loop(linitial(s->tuples->custom_ps));
    if (*skipped == CORGI_DIVERGED)
        return (cp_figures){0};
    figures = s->run.company ? corgi_company_end(s->run.company, skipped) : corgi_learner_end(s->learner);
    if (s->run.company != NULL && corgi_company_change(s->run.company, &s->run)) {
        *skipped = CORGI_DIVERGED;
        return (cp_figures){0};
    }
    if (figures.rows == 0 && *skipped > 0)
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
                errmsg("none of " INT64_FORMAT " rows can be learnt from: each has a feature or a label that is missing",
                       *skipped));
    corgi_check_weight(&figures, "the rows to learn from");
    if (figures.rows + *skipped != s->run.survey.rows)
        elog(ERROR, "epoch " INT64_FORMAT " visited " INT64_FORMAT " of " INT64_FORMAT " rows", epoch, figures.rows,
             s->run.survey.rows);
    return figures;
}

/* Run the next epoch: from nothing, at another rate, where nobody chose it and it diverges or labels are far off. */
static CorgiEpoch next(SgdState *s)
{
    const int64 number = s->history.past + s->history.count;
    CorgiEpoch epoch = {0};
    for (;;) {
        double rate;
        instr_time start, took;
        corgi_progress_epoch(&s->run, number, s->history.past + s->run.options.epochs);
        INSTR_TIME_SET_CURRENT(start);
        epoch.learnt = learn(s, number, &epoch.skipped);
        INSTR_TIME_SET_CURRENT(took);
        INSTR_TIME_SUBTRACT(took, start);
        epoch.seconds = INSTR_TIME_GET_DOUBLE(took);
        rate = s->learner == NULL ? 0 : corgi_learner_again(s->learner, &s->run, s->run.options.learning_rate,
                                                            epoch.skipped == CORGI_DIVERGED ? NAN : epoch.learnt.loss);
        if (epoch.skipped != CORGI_DIVERGED && rate == 0)
            break;
        corgi_change_rate(&s->run, s->learner, &s->history, rate);
    }
    return epoch;
}

/* Measure on the rows held out, if there are any. */
static cp_figures judge(SgdState *s)
{
    cp_figures figures;
    if (s->judge == NULL)
        return (cp_figures){0};
    corgi_learner_show(&s->run, s->judge, s->learner);
    figures = corgi_measure(&s->run, s->judge, true, corgi_snapshot(&s->run, s->css.ss.ps.state));
    if (figures.rows > 0)
        corgi_check_weight(&figures, "the rows held out");
    return figures;
}

static void fill_fold(SgdState *s)
{
    CorgiFold *fold = s->run.fold;
    fold->held = judge(s);
    fold->numbers = corgi_predicts_numbers(&s->run.options.of);
    fold->epochs = s->history.count;
    for (int64 i = 0; i < s->history.count; i++)
        fold->seconds += s->history.epochs[i].seconds;
}

/* Learn one more epoch; after the last, store the model. */
static void advance(SgdState *s)
{
    MemoryContext outside = MemoryContextSwitchTo(s->context);
    const CorgiOptions *o = &s->run.options;
    CorgiHistory *h = &s->history;
    CorgiEpoch epoch;
    if (!s->run.prepared)
        prepare(s);
    epoch = next(s);
    if (s->run.fold == NULL)
        epoch.held = judge(s);
    s->finished = corgi_add_epoch(h, &s->run, &epoch);
    corgi_tell_nothing_learnt(&s->run, h, &epoch);
    corgi_settle_rate(&s->run, s->learner, h);
    s->finished |= corgi_note_best(&s->run, s->learner, h->past + h->count - 1, &epoch.held);
    if (s->finished) {
        if (s->run.fold != NULL)
            fill_fold(s);
        corgi_progress_end(&s->run);
        if (s->run.labels == NULL)
            corgi_tell_chance(&s->run, &epoch);
        if (s->run.company != NULL)
            corgi_company_tell(s->run.company, &s->run);
        if (o->name != NULL) {
            corgi_free_buffer(&s->run.buffer);
            corgi_store_model(&s->run, s->learner, h, s->run.past);
        }
    }
    MemoryContextSwitchTo(outside);
}

/* Add the row of the columns to them. */
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

/* Put the next epoch's figures into the result. */
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
        advance(s);
    }
    fill_row(s, slot);
    s->returned++;
    return ExecStoreVirtualTuple(slot);
}

/* Return once the row that a query had joined with a row that another session has changed since. */
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

static TupleTableSlot *exec(CustomScanState *node) { return ExecScan(&node->ss, next_epoch, recheck); }

static void leave(SgdState *s)
{
    corgi_progress_end(&s->run);
    if (s->configured && s->run.source.rel != NULL)
        corgi_close_source(&s->run.source);
    if (s->configured)
        corgi_close_query(&s->run);
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
    const Const *query = list_nth(((const CustomScan *) node->ss.ps.plan)->custom_exprs, ARG_QUERY);
    if (s->configured)
        corgi_explain_learning(&s->run, es);
    else if (IsA(query, Const) && !query->constisnull)
        ExplainPropertyText("Query", TextDatumGetCString(query->constvalue), es);
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
    corgi_show_name(scan);
    return (Node *) s;
}

const CustomScanMethods corgi_sgd_methods = {CORGI_PREFIX "SGD", create};
