/* Rows that satisfy the where condition, evaluated once per row and stored as bits by row number, so that volatile
 * functions give all passes the same rows. */
#include "compat.h"
#include "run.h"

#include "access/sysattr.h"
#include "catalog/partition.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_clause.h"
#include "parser/parse_collate.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "utils/acl.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

struct CorgiWhere {
    List *condition;        /* of expressions, joined by AND */
    ExprState **states;     /* by part of the source; NULL until its first row */
    ExprContext *context;
    MemoryContext memory;
    uint8 *bits;
    int64 known, room;      /* rows, bytes */
};

/* Parse the condition as the only item of a SELECT. */
static Node *parse_condition(const char *text)
{
    List *statements = raw_parser(psprintf("SELECT (%s\n)", text), RAW_PARSE_DEFAULT);
    SelectStmt *s = list_length(statements) == 1 ? (SelectStmt *) linitial_node(RawStmt, statements)->stmt : NULL;
    if (s == NULL || !IsA(s, SelectStmt) || list_length(s->targetList) != 1 || s->distinctClause || s->intoClause ||
        s->fromClause || s->whereClause || s->groupClause || s->havingClause || s->windowClause || s->valuesLists ||
        s->sortClause || s->limitOffset || s->limitCount || s->lockingClause || s->withClause || s->op != SETOP_NONE ||
        linitial_node(ResTarget, s->targetList)->name != NULL)
        REFUSE(ERRCODE_SYNTAX_ERROR, "where must be one condition, got \"%s\"", text);
    return linitial_node(ResTarget, s->targetList)->val;
}

/* Resolve the condition's columns, functions and operators. */
static Node *analyze_condition(Relation rel, const char *text)
{
    ParseState *state = make_parsestate(NULL);
    addNSItemToQuery(state, addRangeTableEntryForRelation(state, rel, AccessShareLock, NULL, false, true), false, true,
                     true);
    Node *condition = transformWhereClause(state, parse_condition(text), EXPR_KIND_OTHER, "where");
    if (state->p_hasAggs || state->p_hasWindowFuncs || state->p_hasTargetSRFs || state->p_hasSubLinks)
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "where must not have aggregates, window functions, set-returning "
                                              "functions or subqueries; use query");
    assign_expr_collations(state, condition);
    return condition;
}

/* Check that the caller may read the condition's columns. */
static void check_columns(Relation rel, Node *condition)
{
    Oid table = RelationGetRelid(rel), user = GetUserId();
    Bitmapset *columns = NULL;
    int at = -1;
    bool all = pg_class_aclcheck(table, user, ACL_SELECT) == ACLCHECK_OK;
    pull_varattnos(condition, 1, &columns);
    while ((at = bms_next_member(columns, at)) >= 0) {
        AttrNumber column = (AttrNumber) (at + FirstLowInvalidHeapAttributeNumber);
        bool may = all || (column > 0 ? pg_attribute_aclcheck(table, column, user, ACL_SELECT) == ACLCHECK_OK
                                      : pg_attribute_aclcheck_all(table, user, ACL_SELECT, ACLMASK_ALL) == ACLCHECK_OK);
        if (!may)
            aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, RelationGetRelationName(rel));
        if (column == InvalidAttrNumber ||
            (column > 0 && CORGI_IS_VIRTUAL(TupleDescAttr(RelationGetDescr(rel), column - 1))))
            REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "where must not have whole rows or virtual generated columns; "
                                                  "use query");
    }
}

/* Prepare the condition of a training, if any. */
void corgi_open_where(CorgiRun *run)
{
    const CorgiSource *s = &run->source;
    if (run->options.where == NULL)
        return;
    Node *condition = analyze_condition(s->rel, run->options.where);
    check_columns(s->rel, condition);
    struct CorgiWhere *w = run->where = palloc0(sizeof *w);
    w->condition = make_ands_implicit(expression_planner((Expr *) condition));
    w->states = palloc0(sizeof *w->states * (Size) Max(s->part_count, 1));
    w->context = CreateStandaloneExprContext();
    w->memory = CurrentMemoryContext;
}

static ExprState *part_state(struct CorgiWhere *w, const CorgiRun *run, const CorgiSource *part)
{
    List *condition = w->condition;
    if (w->states[part->number] != NULL)
        return w->states[part->number];
    MemoryContext outside = MemoryContextSwitchTo(w->memory);
    if (part != &run->source)
        condition = map_partition_varattnos(condition, 1, part->rel, run->source.rel);
    w->states[part->number] = ExecInitQual(condition, NULL);
    MemoryContextSwitchTo(outside);
    return w->states[part->number];
}

static void grow_bits(struct CorgiWhere *w)
{
    int64 bytes = Max(2 * w->room, 1024);
    w->bits = w->bits ? repalloc_huge(w->bits, (Size) bytes) : MemoryContextAlloc(w->memory, (Size) bytes);
    memset(w->bits + w->room, 0, (Size) (bytes - w->room));
    w->room = bytes;
}

/* Evaluate the condition for a row of a full pass, unless its result is known. Returns the result. */
bool corgi_row_matches(const CorgiRun *run, const CorgiSource *part, int64 number, TupleTableSlot *row)
{
    struct CorgiWhere *w = run->where;
    if (w == NULL)
        return true;
    if (number < w->known)
        return corgi_matches(run, number);
    if (number / 8 >= w->room)
        grow_bits(w);
    w->context->ecxt_scantuple = row;
    if (ExecQual(part_state(w, run, part), w->context))
        w->bits[number / 8] |= (uint8) (1 << number % 8);
    ResetExprContext(w->context);
    w->known = number + 1;
    return corgi_matches(run, number);
}

/* Return the known result for a row. */
bool corgi_matches(const CorgiRun *run, int64 number)
{
    return run->where->bits[number / 8] >> number % 8 & 1;
}
