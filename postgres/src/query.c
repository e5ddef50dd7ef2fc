/* Rows of a query, read once as the caller into a temporary table that is dropped when training ends.
 * The query is one SELECT without side effects. The server runs it normally: with the caller's privileges and row
 * security, and cancellable. Rows are stored one by one, in order. */
#include "run.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/toasting.h"
#include "commands/tablecmds.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

typedef struct {
    DestReceiver as_receiver;
    Relation table;
    BulkInsertState bulk;
    CommandId command;
    int64 rows;
} RowReceiver;

/* Refuse anything but one read-only statement. */
static TupleDesc check_query(SPIPlanPtr plan)
{
    List *sources = SPI_plan_get_plan_sources(plan);
    const CachedPlanSource *source = list_length(sources) == 1 ? linitial(sources) : NULL;
    const Query *query =
        source && list_length(source->query_list) == 1 ? linitial_node(Query, source->query_list) : NULL;
    if (query == NULL || query->commandType != CMD_SELECT || source->resultDesc == NULL)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "query must be one SELECT");
    if (query->hasModifyingCTE || query->rowMarks != NIL)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "query must only read, without INSERT, UPDATE, DELETE or FOR UPDATE");
    return source->resultDesc;
}

/* Create an empty temporary table with the query's columns, under a free name. */
static Oid make_table(TupleDesc columns)
{
    CreateStmt *statement = makeNode(CreateStmt);
    int number = 0;
    PreventCommandDuringRecovery("a query of corgipile");
    statement->relation = makeRangeVar("pg_temp", "corgipile_rows", -1);
    statement->relation->relpersistence = RELPERSISTENCE_TEMP;
    statement->oncommit = ONCOMMIT_DROP;
    Oid space = RangeVarGetCreationNamespace(statement->relation);
    while (OidIsValid(get_relname_relid(statement->relation->relname, space)))
        statement->relation->relname = psprintf("corgipile_rows_%d", ++number);
    for (int i = 0; i < columns->natts; i++) {
        Form_pg_attribute a = TupleDescAttr(columns, i);
        statement->tableElts = lappend(statement->tableElts,
                                       makeColumnDef(NameStr(a->attname), a->atttypid, a->atttypmod, a->attcollation));
    }
    Oid table = DefineRelation(statement, RELKIND_RELATION, InvalidOid, NULL, NULL).objectId;
    CommandCounterIncrement();
    NewRelationCreateToastTable(table, (Datum) 0);
    CommandCounterIncrement();
    return table;
}

static void start_receiver(DestReceiver *self, int operation, TupleDesc columns) {}

static bool store_row(TupleTableSlot *row, DestReceiver *self)
{
    RowReceiver *k = (RowReceiver *) self;
    table_tuple_insert(k->table, row, k->command, TABLE_INSERT_SKIP_FSM, k->bulk);
    k->rows++;
    return true;
}

static void ignore(DestReceiver *self) {}

static void store_rows(SPIPlanPtr plan, Oid table)
{
    RowReceiver k = {.as_receiver = {.receiveSlot = store_row,
                                     .rStartup = start_receiver,
                                     .rShutdown = ignore,
                                     .rDestroy = ignore,
                                     .mydest = DestNone},
                     .table = table_open(table, RowExclusiveLock),
                     .bulk = GetBulkInsertState(),
                     .command = GetCurrentCommandId(true)};
    SPIExecuteOptions how = {.read_only = true, .must_return_tuples = true, .dest = &k.as_receiver};
    SPI_execute_plan_extended(plan, &how);
    FreeBulkInsertState(k.bulk);
    table_finish_bulk_insert(k.table, TABLE_INSERT_SKIP_FSM);
    table_close(k.table, NoLock);
}

/* Run a query. Returns a table of its rows. */
Oid corgi_store_query(const char *query)
{
    SPI_connect();
    SPIPlanPtr plan = SPI_prepare(query, 0, NULL);
    if (plan == NULL)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "query must be one SELECT");
    Oid table = make_table(check_query(plan));
    store_rows(plan, table);
    SPI_finish();
    CommandCounterIncrement();
    return table;
}

/* Run the query, and make its result the source. */
void corgi_open_query(CorgiRun *run)
{
    run->options.source = corgi_store_query(run->options.query);
    PushCopiedSnapshot(GetActiveSnapshot());
    UpdateActiveSnapshotCommandId();
    run->owner = CurrentResourceOwner;
    run->snapshot = RegisterSnapshotOnOwner(GetActiveSnapshot(), run->owner);
    PopActiveSnapshot();
}

/* Drop the table. */
void corgi_drop_query(Oid result)
{
    ObjectAddress table = {.classId = RelationRelationId, .objectId = result};
    performDeletion(&table, DROP_RESTRICT, PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY);
    CommandCounterIncrement();
}

void corgi_close_query(CorgiRun *run)
{
    bool unseen = !ActiveSnapshotSet();
    if (run->options.query == NULL || run->snapshot == NULL)
        return;
    UnregisterSnapshotFromOwner(run->snapshot, run->owner);
    run->snapshot = NULL;
    if (unseen)
        PushActiveSnapshot(GetTransactionSnapshot());
    corgi_drop_query(run->options.source);
    if (unseen)
        PopActiveSnapshot();
}
