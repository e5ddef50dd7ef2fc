/* Background worker of a job.
 * It connects as the login role, applies the session's settings, and becomes the requesting role as a SECURITY DEFINER
 * function becomes its owner: nothing it runs, triggers at commit included, can become another role. One transaction
 * stores the model and the job's success. */
#include "jobs.h"
#include "rights.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"

enum { MAX_FINISHED_JOBS = 100, MAX_WARNING_BYTES = 8192 };

typedef struct {
    CorgiTicket ticket;
    MemoryContext context;
    bool begun;             /* the record exists and is marked as running */
    char *call;
    ArrayType *settings;
    Oid role, session;
    int security;
    Interval *limit;        /* or NULL */
    CorgiProgress at;
    StringInfoData warnings;
    const char *state;      /* final */
    char *error;
} JobState;

extern PGDLLEXPORT void corgipile_job(Datum argument);

static JobState *current_job = NULL;
static emit_log_hook_type previous_log = NULL;
static TimeoutId limit_timer;
static volatile sig_atomic_t out_of_time = false;

static const char *const begin_query =
    "UPDATE corgipile.job_records SET state = '" CORGI_RUNNING "', started = pg_catalog.clock_timestamp() WHERE id "
    "operator(pg_catalog.=) $1 AND state operator(pg_catalog.=) '" CORGI_WAITING "' RETURNING call, settings, role, "
    "session_role, context, time_limit, epochs";
static const char *const prune_query =
    "DELETE FROM corgipile.job_records WHERE id operator(pg_catalog.=) ANY (ARRAY(SELECT id FROM corgipile.job_records "
    "WHERE finished IS NOT NULL AND role::pg_catalog.int8 operator(pg_catalog.=) $1 AND id operator(pg_catalog.<=) "
    "(SELECT id FROM corgipile.job_records WHERE role::pg_catalog.int8 operator(pg_catalog.=) $1 ORDER BY id DESC "
    "OFFSET $2 LIMIT 1) FOR UPDATE SKIP LOCKED))";
static const char *const end_query =
    "UPDATE corgipile.job_records SET state = $2, error = $3, warnings = $4, epoch = $5, rows = $6, loss = $7, "
    "rows_per_second = $8, finished = pg_catalog.clock_timestamp(), call = NULL, settings = NULL WHERE id "
    "operator(pg_catalog.=) $1";

/* Run a step in its own transaction. Returns the error that ended it, if any. */
static ErrorData *attempt(void (*step)(JobState *), JobState *w)
{
    ErrorData *volatile error = NULL;
    SetCurrentStatementStartTimestamp();
    StartTransactionCommand();
    PG_TRY();
    {
        step(w);
        CommitTransactionCommand();
    }
    PG_CATCH();
    {
        EmitErrorReport();
        MemoryContextSwitchTo(w->context);
        error = CopyErrorData();
        FlushErrorState();
        AbortCurrentTransaction();
    }
    PG_END_TRY();
    MemoryContextSwitchTo(w->context);
    return error;
}

/* Make the transaction writable and read committed, whatever the settings. */
static void begin_writing(void)
{
    XactReadOnly = false;
    XactIsoLevel = XACT_READ_COMMITTED;
}

static void wait_for_launcher(JobState *w) { (void) VirtualXactLock(w->ticket.launcher, true); }

static Datum record_column(int number, bool *null)
{
    return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, null);
}

/* Read the record, if it exists: the transaction may have rolled back, or the job been cancelled. */
static void read_record(JobState *w)
{
    MemoryContext outside = CurrentMemoryContext;
    bool null;
    w->begun = SPI_processed > 0;
    if (!w->begun)
        return;
    MemoryContextSwitchTo(w->context);
    w->call = text_to_cstring(DatumGetTextPP(record_column(1, &null)));
    w->settings = DatumGetArrayTypePCopy(record_column(2, &null));
    w->role = corgi_resolve(DatumGetInt64(record_column(3, &null)));
    w->session = DatumGetObjectId(record_column(4, &null));
    w->security = DatumGetInt32(record_column(5, &null));
    Datum value = record_column(6, &null);
    if (!null) {
        w->limit = palloc(sizeof *w->limit);
        *w->limit = *DatumGetIntervalP(value);
    }
    w->at.epochs = DatumGetInt64(record_column(7, &null));
    MemoryContextSwitchTo(outside);
}

static void begin_job(JobState *w)
{
    Oid types[] = {INT8OID}, prune_types[] = {INT8OID, INT8OID};
    Datum values[] = {Int64GetDatum(w->ticket.id)}, prune_values[2];
    begin_writing();
    PushActiveSnapshot(GetTransactionSnapshot());
    CorgiCaller caller = corgi_open_tables();
    corgi_execute(begin_query, lengthof(types), types, values, NULL, false);
    read_record(w);
    if (w->begun) {
        corgi_mark_lost();
        prune_values[0] = Int64GetDatum(w->role);
        prune_values[1] = Int64GetDatum(MAX_FINISHED_JOBS);
        corgi_execute(prune_query, lengthof(prune_types), prune_types, prune_values, NULL, false);
    }
    corgi_close_tables(caller);
    PopActiveSnapshot();
}

/* Apply the session's settings and identity. */
static void apply_session(JobState *w)
{
    if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(w->role)))
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("the job's role no longer exists"));
    if (w->session != GetSessionUserId())
        SetConfigOption("session_authorization", GetUserNameFromId(w->session, false), PGC_SUSET, PGC_S_SESSION);
    corgi_apply_settings(w->settings);
}

/* Collect warnings for the record, because there is no client. */
static void collect_warning(ErrorData *entry)
{
    StringInfo warnings = &current_job->warnings;
    if (entry->elevel == WARNING && entry->message != NULL &&
        warnings->len + strlen(entry->message) < MAX_WARNING_BYTES)
        appendStringInfo(warnings, "%s%s", warnings->len ? "\n" : "", entry->message);
    if (previous_log)
        previous_log(entry);
}

static void reach_time_limit(void)
{
    out_of_time = true;
    QueryCancelPending = true;
    InterruptPending = true;
    SetLatch(MyLatch);
}

static void start_time_limit(const JobState *w)
{
    if (w->limit == NULL)
        return;
    TimestampTz end = DatumGetTimestampTz(DirectFunctionCall2(
        timestamptz_pl_interval, TimestampTzGetDatum(GetCurrentTimestamp()), IntervalPGetDatum(w->limit)));
    if (!TIMESTAMP_NOT_FINITE(end))
        enable_timeout_at(limit_timer, end);
}

/* Sum the epochs that train returned. */
static void sum_epochs(JobState *w)
{
    TupleDesc columns = SPI_tuptable->tupdesc;
    double seconds = 0;
    bool null;
    w->at = (CorgiProgress){.epoch = (int64) SPI_processed, .epochs = w->at.epochs, .loss = get_float8_nan()};
    for (uint64 i = 0; i < SPI_processed; i++) {
        HeapTuple epoch = SPI_tuptable->vals[i];
        w->at.loss = DatumGetFloat8(SPI_getbinval(epoch, columns, 1, &null));
        w->at.rows += DatumGetInt64(SPI_getbinval(epoch, columns, 2, &null));
        seconds += DatumGetFloat8(SPI_getbinval(epoch, columns, 3, &null));
    }
    w->at.rate = seconds > 0 ? (double) w->at.rows / seconds : get_float8_nan();
}

/* Write the job's end. */
static void write_end(JobState *w)
{
    Oid types[] = {INT8OID, TEXTOID, TEXTOID, TEXTOID, INT8OID, INT8OID, FLOAT8OID, FLOAT8OID};
    CorgiCaller caller = corgi_become_owner();
    Datum values[] = {Int64GetDatum(w->ticket.id), CStringGetTextDatum(w->state),
                      w->error ? CStringGetTextDatum(w->error) : (Datum) 0, CStringGetTextDatum(w->warnings.data),
                      Int64GetDatum(w->at.epoch), Int64GetDatum(w->at.rows), Float8GetDatum(w->at.loss),
                      Float8GetDatum(w->at.rate)};
    char nulls[] = "        ";
    nulls[2] = w->error ? ' ' : 'n';
    nulls[3] = w->warnings.len ? ' ' : 'n';
    nulls[4] = nulls[5] = w->at.rows < 0 ? 'n' : ' ';
    nulls[6] = isnan(w->at.loss) ? 'n' : ' ';
    nulls[7] = isnan(w->at.rate) ? 'n' : ' ';
    SPI_connect();
    corgi_execute(end_query, lengthof(types), types, values, nulls, false);
    SPI_finish();
    corgi_become_caller(caller);
}

/* Train as the requesting role until the transaction's end. */
static void train_job(JobState *w)
{
    StringInfoData query;
    initStringInfo(&query);
    appendStringInfo(&query, "SELECT loss, rows, seconds FROM %s", w->call);
    start_time_limit(w);
    SetUserIdAndSecContext(w->role, w->security | SECURITY_LOCAL_USERID_CHANGE);
    PushActiveSnapshot(GetTransactionSnapshot());
    SPI_connect();
    if (SPI_execute(query.data, false, 0) != SPI_OK_SELECT)
        elog(ERROR, "the job's training failed");
    sum_epochs(w);
    SPI_finish();
    PopActiveSnapshot();
    disable_timeout(limit_timer, false);
    w->state = "done";
    PushActiveSnapshot(GetTransactionSnapshot());
    write_end(w);
    PopActiveSnapshot();
}

static void write_report(JobState *w)
{
    begin_writing();
    PushActiveSnapshot(GetTransactionSnapshot());
    write_end(w);
    PopActiveSnapshot();
}

/* Record the error and the training's progress. */
static void record_error(JobState *w, const ErrorData *error)
{
    int64 epochs = w->at.epochs;
    bool cancelled = error->sqlerrcode == ERRCODE_QUERY_CANCELED, late = cancelled && out_of_time;
    StringInfoData entry;
    initStringInfo(&entry);
    if (late)
        appendStringInfo(&entry, "the job exceeded its time limit of %s",
                         DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(w->limit))));
    else
        appendStringInfoString(&entry, error->message);
    if (error->detail != NULL && !late)
        appendStringInfo(&entry, "\nDETAIL:  %s", error->detail);
    if (error->hint != NULL && !late)
        appendStringInfo(&entry, "\nHINT:  %s", error->hint);
    w->state = cancelled && !late ? CORGI_CANCELLED : "failed";
    w->error = entry.data;
    w->at = (CorgiProgress){.rows = -1, .loss = get_float8_nan(), .rate = get_float8_nan()};
    if (corgi_progress_last(&w->at))
        w->at.epoch -= w->at.epochs - epochs;
}

/* Do the job. Returns the error that ended it, if any. */
static ErrorData *do_job(JobState *w)
{
    Oid user;
    int security;
    ErrorData *error = attempt(apply_session, w);
    if (error != NULL)
        return error;
    GetUserIdAndSecContext(&user, &security);
    error = attempt(train_job, w);
    SetUserIdAndSecContext(user, security);
    return error;
}

static void enter_worker(JobState *w)
{
    memcpy(&w->ticket, MyBgworkerEntry->bgw_extra, sizeof w->ticket);
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnectionByOid(w->ticket.database, w->ticket.login, 0);
    process_session_preload_libraries(); /* as in any session */
#if PG_VERSION_NUM >= 170000
    SetConfigOption("transaction_timeout", "0", PGC_USERSET, PGC_S_SESSION);
#endif
    pgstat_report_activity(STATE_RUNNING, MyBgworkerEntry->bgw_name);
    limit_timer = RegisterTimeout(USER_TIMEOUT, reach_time_limit);
    w->context = AllocSetContextCreate(TopMemoryContext, "corgipile job", ALLOCSET_DEFAULT_SIZES);
    MemoryContextSwitchTo(w->context);
    initStringInfo(&w->warnings);
    current_job = w;
    previous_log = emit_log_hook;
    emit_log_hook = collect_warning;
}

/* Entry point of a worker. Cancel requests have no effect before the launcher's commit, and are held outside
 * training. */
void corgipile_job(Datum argument)
{
    static JobState w;
    ErrorData *error;
    enter_worker(&w);
    while ((error = attempt(wait_for_launcher, &w)) != NULL)
        if (error->sqlerrcode != ERRCODE_QUERY_CANCELED)
            return;
    HOLD_CANCEL_INTERRUPTS();
    error = attempt(begin_job, &w);
    QueryCancelHoldoffCount = 0; /* as after an error */
    if (error != NULL || !w.begun)
        return;
    error = do_job(&w);
    if (error == NULL)
        return;
    record_error(&w, error);
    disable_timeout(limit_timer, false);
    QueryCancelPending = false;
    HOLD_CANCEL_INTERRUPTS();
    (void) attempt(write_report, &w);
}
