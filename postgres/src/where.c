/* Rows of a table that a condition holds of: asked of each row once, when it is first read, and kept as a bit by its number
 * among the visible rows, so that no pass asks another question, whatever functions are in the condition. */
#include "corgipile.h"

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
#include "rewrite/rewriteManip.h"
#include "utils/acl.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

struct CorgiWhere {
    List *condition;        /* of expressions, all of which must hold */
    ExprState **states;     /* by part of the source; NULL until one of its rows is asked about */
    ExprContext *context;
    MemoryContext memory;
    uint8 *bits;
    int64 known, room;      /* rows, bytes */
};

/* Parse the condition as the one thing that a SELECT in brackets selects. */
static Node *parse(const char *text)
{
    List *found = raw_parser(psprintf("SELECT (%s\n)", text), RAW_PARSE_DEFAULT);
    SelectStmt *s = list_length(found) == 1 ? (SelectStmt *) linitial_node(RawStmt, found)->stmt : NULL;
    if (s == NULL || !IsA(s, SelectStmt) || list_length(s->targetList) != 1 || s->distinctClause || s->intoClause ||
        s->fromClause || s->whereClause || s->groupClause || s->havingClause || s->windowClause || s->valuesLists ||
        s->sortClause || s->limitOffset || s->limitCount || s->lockingClause || s->withClause || s->op != SETOP_NONE ||
        linitial_node(ResTarget, s->targetList)->name != NULL)
        REFUSE(ERRCODE_SYNTAX_ERROR, "where must be one condition, got \"%s\"", text);
    return linitial_node(ResTarget, s->targetList)->val;
}

/* Find out what the names in the condition are: columns of the table, functions, operators. */
static Node *analyze(Relation rel, const char *text)
{
    ParseState *state = make_parsestate(NULL);
    Node *condition;
    addNSItemToQuery(state, addRangeTableEntryForRelation(state, rel, AccessShareLock, NULL, false, true), false, true, true);
    condition = transformWhereClause(state, parse(text), EXPR_KIND_OTHER, "where");
    if (state->p_hasAggs || state->p_hasWindowFuncs || state->p_hasTargetSRFs || state->p_hasSubLinks)
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "where takes no aggregates, window functions, sets or subqueries; query does");
    assign_expr_collations(state, condition);
    return condition;
}

/* The condition may speak of columns that the caller may read. */
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
        if (column == InvalidAttrNumber || (column > 0 && CORGI_IS_VIRTUAL(TupleDescAttr(RelationGetDescr(rel), column - 1))))
            REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "where takes no whole rows and no virtual generated columns; query does");
    }
}

/* Read the condition of a training, if it has one. */
void corgi_open_where(CorgiRun *run)
{
    const CorgiSource *s = &run->source;
    struct CorgiWhere *w;
    Node *condition;
    if (run->options.where == NULL)
        return;
    condition = analyze(s->rel, run->options.where);
    check_columns(s->rel, condition);
    w = run->where = palloc0(sizeof *w);
    w->condition = make_ands_implicit(expression_planner((Expr *) condition));
    w->states = palloc0(sizeof *w->states * (Size) Max(s->part_count, 1));
    w->context = CreateStandaloneExprContext();
    w->memory = CurrentMemoryContext;
}

static ExprState *state_of(struct CorgiWhere *w, const CorgiRun *run, const CorgiSource *part)
{
    MemoryContext outside;
    List *condition = w->condition;
    if (w->states[part->number] != NULL)
        return w->states[part->number];
    outside = MemoryContextSwitchTo(w->memory);
    if (part != &run->source)
        condition = map_partition_varattnos(condition, 1, part->rel, run->source.rel);
    w->states[part->number] = ExecInitQual(condition, NULL);
    MemoryContextSwitchTo(outside);
    return w->states[part->number];
}

static void make_room(struct CorgiWhere *w)
{
    int64 bytes = Max(2 * w->room, 1024);
    w->bits = w->bits ? repalloc_huge(w->bits, (Size) bytes) : MemoryContextAlloc(w->memory, (Size) bytes);
    memset(w->bits + w->room, 0, (Size) (bytes - w->room));
    w->room = bytes;
}

/* Take in a row, by its number, of a pass that reads all of them; returns whether the condition holds. Rows that are known
 * are not asked again. */
bool corgi_ask_row(const CorgiRun *run, const CorgiSource *part, int64 number, TupleTableSlot *row)
{
    struct CorgiWhere *w = run->where;
    if (w == NULL)
        return true;
    if (number < w->known)
        return corgi_is_wanted(run, number);
    if (number / 8 >= w->room)
        make_room(w);
    w->context->ecxt_scantuple = row;
    if (ExecQual(state_of(w, run, part), w->context))
        w->bits[number / 8] |= (uint8) (1 << number % 8);
    ResetExprContext(w->context);
    w->known = number + 1;
    return corgi_is_wanted(run, number);
}

/* Return whether the condition holds of a row that is known. */
bool corgi_is_wanted(const CorgiRun *run, int64 number)
{
    return run->where->bits[number / 8] >> number % 8 & 1;
}
