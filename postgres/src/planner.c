/* Planner hook that replaces a corgipile.train call by SGD over TupleShuffle over BlockShuffle. */
#include "operators.h"

#include "access/htup_details.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

static set_rel_pathlist_hook_type previous_hook = NULL;

/* Return whether a function is corgipile.train, even renamed. */
static bool is_train(Oid function)
{
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    bool matches = false;
    if (!HeapTupleIsValid(tuple))
        return false;
    if (((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId) {
        bool null;
        Datum symbol = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &null);
        matches = !null && strcmp(TextDatumGetCString(symbol), "corgipile_train") == 0;
    }
    ReleaseSysCache(tuple);
    return matches;
}

static FuncExpr *train_call(const RangeTblEntry *rte)
{
    if (rte->rtekind != RTE_FUNCTION || rte->funcordinality || list_length(rte->functions) != 1)
        return NULL;
    RangeTblFunction *function = linitial_node(RangeTblFunction, rte->functions);
    if (!IsA(function->funcexpr, FuncExpr) || !is_train(((FuncExpr *) function->funcexpr)->funcid))
        return NULL;
    return (FuncExpr *) function->funcexpr;
}

static CustomScan *make_scan(const CustomScanMethods *methods, const Path *path, Plan *child)
{
    CustomScan *scan = makeNode(CustomScan);
    Plan *plan = &scan->scan.plan;
    scan->methods = methods;
    scan->custom_plans = child ? list_make1(child) : NIL;
    plan->startup_cost = path->startup_cost;
    plan->total_cost = path->total_cost;
    plan->plan_rows = path->rows;
    return scan;
}

/* Return the whole-row variable if the query uses one, as in SELECT r or FOR UPDATE OF another table. */
static Var *whole_row(RelOptInfo *rel, List *clauses)
{
    List *wanted = list_concat_copy(rel->reltarget->exprs, clauses);
    ListCell *cell;
    foreach (cell, pull_var_clause((Node *) wanted, PVC_RECURSE_PLACEHOLDERS)) {
        Var *var = lfirst_node(Var, cell);
        if (var->varno == rel->relid && var->varattno == InvalidAttrNumber)
            return var;
    }
    return NULL;
}

/* Return SGD's target list: every column of the function, then the whole row if wanted. */
static List *result_columns(const RangeTblEntry *rte, Index relid, Var *row)
{
    RangeTblFunction *function = linitial_node(RangeTblFunction, rte->functions);
    TupleDesc columns;
    List *list = NIL;
    if (get_expr_result_type(function->funcexpr, NULL, &columns) != TYPEFUNC_COMPOSITE)
        corgi_refuse_version();
    for (int i = 0; i < columns->natts; i++) {
        Form_pg_attribute a = TupleDescAttr(columns, i);
        Var *var = makeVar(relid, i + 1, a->atttypid, a->atttypmod, a->attcollation, 0);
        char *name = pstrdup(strVal(list_nth(rte->eref->colnames, i)));
        list = lappend(list, makeTargetEntry((Expr *) var, i + 1, name, false));
    }
    if (row != NULL)
        list = lappend(list, makeTargetEntry(copyObject((Expr *) row), columns->natts + 1, NULL, false));
    return list;
}

/* Plan all three operators at once. With a path for each, the planner would put a Result between them for constant
 * conditions. */
static Plan *plan_sgd(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses, List *children)
{
    CustomScan *blocks = make_scan(&corgi_block_methods, &path->path, NULL);
    CustomScan *tuples = make_scan(&corgi_tuple_methods, &path->path, &blocks->scan.plan);
    CustomScan *scan = make_scan(&corgi_sgd_methods, &path->path, &tuples->scan.plan);
    FuncExpr *call = linitial_node(FuncExpr, path->custom_private);
    scan->flags = path->flags;
    scan->scan.plan.targetlist = tlist;
    scan->scan.plan.qual = extract_actual_clauses(clauses, false);
    scan->custom_scan_tlist = result_columns(root->simple_rte_array[rel->relid], rel->relid,
                                             whole_row(rel, scan->scan.plan.qual));
    scan->custom_exprs = copyObject(call->args);
    scan->custom_private = list_make1_oid(call->funcid);
    record_plan_function_dependency(root, call->funcid); /* invalidates cached plans when the function is dropped */
    return &scan->scan.plan;
}

static const CustomPathMethods sgd_path = {"SGD", plan_sgd, NULL};

static void replace_train(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
    if (previous_hook)
        previous_hook(root, rel, rti, rte);
    FuncExpr *call = train_call(rte);
    if (call == NULL || !bms_is_empty(rel->lateral_relids) || IS_DUMMY_REL(rel))
        return;
    CustomPath *path = makeNode(CustomPath);
    path->path.pathtype = T_CustomScan;
    path->path.parent = rel;
    path->path.pathtarget = rel->reltarget;
    path->path.rows = rel->rows;
    path->path.total_cost = 100 * rel->rows; /* an arbitrary cost per epoch, because the table may be unknown before
                                              * execution */
    path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
    path->custom_private = list_make1(call);
    path->methods = &sgd_path;
    rel->pathlist = list_make1(path);
    rel->partial_pathlist = NIL;
}

TupleTableSlot *corgi_never_executed(CustomScanState *node)
{
    elog(ERROR, "%s returns blocks and steps, not rows", node->methods->CustomName);
    return NULL;
}

/* Return an operator's state of `bytes` bytes. EXPLAIN shows its name without the prefix. */
Node *corgi_create_state(CustomScan *scan, Size bytes, const CustomExecMethods *methods)
{
    static const CustomScanMethods *const known[] = {&corgi_sgd_methods, &corgi_tuple_methods, &corgi_block_methods};
    static CustomScanMethods shown[lengthof(known)];
    for (int i = 0; i < lengthof(known); i++)
        if (scan->methods == known[i]) {
            shown[i] =
                (CustomScanMethods){known[i]->CustomName + strlen(CORGI_PREFIX), known[i]->CreateCustomScanState};
            scan->methods = &shown[i];
        }
    CustomScanState *s = (CustomScanState *) newNode(bytes, T_CustomScanState);
    s->methods = methods;
    return (Node *) s;
}

static void register_scan(const CustomScanMethods *methods)
{
    if (GetCustomScanMethods(methods->CustomName, true) == NULL)
        RegisterCustomScanMethods(methods);
}

void corgi_install_planner(void)
{
    register_scan(&corgi_block_methods);
    register_scan(&corgi_tuple_methods);
    register_scan(&corgi_sgd_methods);
    previous_hook = set_rel_pathlist_hook;
    set_rel_pathlist_hook = replace_train;
}
