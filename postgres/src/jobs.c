/* corgipile.train_async: starts a background worker that trains once the caller's transaction has committed.
 * The caller's transaction adds the job's row, so ROLLBACK cancels the job. The worker starts at once, because starting
 * may fail, and waits for the transaction's end. */
#include "jobs.h"
#include "options.h"
#include "settings.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/wait_event.h"

enum { ARG_TIME_LIMIT = ARG_COUNT, JOB_ARGUMENTS, POLL_MILLISECONDS = 5 };

PG_FUNCTION_INFO_V1(corgipile_train_async);

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

static const char *const number_query = "SELECT pg_catalog.nextval('corgipile.job_records_id_seq')";
static const char *const insert_query =
    "INSERT INTO corgipile.job_records (id, model, role, state, pid, began, epochs, call, settings, session_role, "
    "context, time_limit) VALUES ($1, $2, $3::corgipile.role, '" CORGI_WAITING "', $4, $5, $6, $7, $8, $9, $10, $11)";

/* Refuse at once what would fail in the worker. */
static void check_job(const CorgiOptions *o, const Datum *values, const bool *nulls)
{
    PreventCommandIfReadOnly("corgipile.train_async");
    if (InSecurityRestrictedOperation())
        REFUSE(ERRCODE_INSUFFICIENT_PRIVILEGE, "cannot start a job within security-restricted operation");
    if (o->name == NULL)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "name must not be NULL: a job's only result is its model");
    if (o->weights)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "weights must be false for a job: only train returns weights; a "
                                                "job's are in corgipile.models");
    if (OidIsValid(o->source) && get_rel_persistence(o->source) == RELPERSISTENCE_TEMP)
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "table \"%s\" is temporary: a job runs in its own session, which "
                                              "cannot read it",
               get_rel_name(o->source));
    if (!nulls[ARG_TIME_LIMIT]) {
        TimestampTz now = GetCurrentTimestamp();
        Datum end = DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now), values[ARG_TIME_LIMIT]);
        if (DatumGetTimestampTz(end) <= now)
            REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "time_limit must be positive, got \"%s\"",
                   DatumGetCString(DirectFunctionCall1(interval_out, values[ARG_TIME_LIMIT])));
    }
}

static int64 next_number(void)
{
    bool null;
    CorgiCaller caller = corgi_open_tables();
    if (SPI_execute(number_query, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
        elog(ERROR, "numbering a job failed");
    int64 number = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null));
    corgi_close_tables(caller);
    return number;
}

/* Return the library of an extension function, as the server names it. */
static char *library_of(Oid function)
{
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    bool null;
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "the called function no longer exists");
    char *library = TextDatumGetCString(SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_probin, &null));
    ReleaseSysCache(tuple);
    return library;
}

static BackgroundWorkerHandle *start_worker(int64 id, const char *library)
{
    BackgroundWorker worker = {.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
                               .bgw_start_time = BgWorkerStart_RecoveryFinished,
                               .bgw_restart_time = BGW_NEVER_RESTART,
                               .bgw_type = CORGI_WORKER,
                               .bgw_function_name = "corgipile_job",
                               .bgw_notify_pid = MyProcPid};
    CorgiTicket ticket = {.id = id, .database = MyDatabaseId, .login = GetAuthenticatedUserId()};
    BackgroundWorkerHandle *handle;
    StaticAssertStmt(sizeof ticket <= BGW_EXTRALEN, "the job's ticket is too large");
    GET_VXID_FROM_PGPROC(ticket.launcher, *MyProc);
    snprintf(worker.bgw_name, BGW_MAXLEN, CORGI_WORKER " " INT64_FORMAT, id);
    if (strlcpy(worker.bgw_library_name, library, sizeof worker.bgw_library_name) >= sizeof worker.bgw_library_name)
        REFUSE(ERRCODE_NAME_TOO_LONG, "the path of the extension's library is too long for a worker: %s", library);
    memcpy(worker.bgw_extra, &ticket, sizeof ticket);
    if (!RegisterDynamicBackgroundWorker(&worker, &handle))
        ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                errmsg("no background worker is free for the job: all %d of max_worker_processes are in use",
                       max_worker_processes),
                errhint("Wait for another job to end, or ask for a larger max_worker_processes."));
    return handle;
}

/* Wait until the worker is connected. Returns its process id, and sets its start time. */
static int await_worker(BackgroundWorkerHandle *handle, TimestampTz *began)
{
    for (;;) {
        pid_t pid;
        BgwHandleStatus status = GetBackgroundWorkerPid(handle, &pid);
        const PgBackendStatus *worker = status == BGWH_STARTED ? corgi_worker_at((int) pid, 0) : NULL;
        if (worker != NULL) {
            *began = worker->st_proc_start_timestamp;
            return (int) pid;
        }
        if (status != BGWH_STARTED && status != BGWH_NOT_YET_STARTED)
            ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("the job's worker ended before it "
                                                                           "connected"),
                    errhint("See the server's log for the reason."));
        (void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, POLL_MILLISECONDS,
                         PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

/* Start a worker for the logged-in role if the limit allows. A lock serialises concurrent starts. */
static int start_limited(int64 id, const char *library, TimestampTz *began)
{
    enum { JOBS_OF_ROLE = 7 };
    Oid login = GetAuthenticatedUserId();
    if (corgi_max_jobs < 0)
        return await_worker(start_worker(id, library), began);
    LockSharedObject(AuthIdRelationId, login, JOBS_OF_ROLE, ExclusiveLock);
    int running = list_length(corgi_list_workers(false, login));
    if (running >= corgi_max_jobs)
        ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                errmsg("role \"%s\" has %d jobs; corgipile.max_jobs allows %d at a time",
                       GetUserNameFromId(login, false), running, corgi_max_jobs),
                errhint("Wait for another job to end."));
    int pid = await_worker(start_worker(id, library), began);
    UnlockSharedObject(AuthIdRelationId, login, JOBS_OF_ROLE, ExclusiveLock);
    return pid;
}

static void add_record(int64 id, int pid, TimestampTz began, const CorgiOptions *o, const char *call, Datum limit,
                       bool none)
{
    ArrayType *settings = corgi_take_settings(); /* includes the caller's search path */
    CorgiCaller caller = corgi_become_owner();
    Oid types[] = {INT8OID, TEXTOID, INT8OID, INT4OID, TIMESTAMPTZOID, INT8OID, TEXTOID, TEXTARRAYOID, OIDOID, INT4OID,
                   INTERVALOID};
    Datum values[] = {Int64GetDatum(id), CStringGetTextDatum(o->name), Int64GetDatum(caller.user), Int32GetDatum(pid),
                      TimestampTzGetDatum(began), Int64GetDatum(o->epochs), CStringGetTextDatum(call),
                      PointerGetDatum(settings), ObjectIdGetDatum(GetSessionUserId()),
                      Int32GetDatum(caller.context), limit};
    char nulls[] = "           ";
    nulls[10] = none ? 'n' : ' ';
    SPI_connect();
    corgi_execute(insert_query, lengthof(types), types, values, nulls, false);
    SPI_finish();
    corgi_become_caller(caller);
}

Datum corgipile_train_async(PG_FUNCTION_ARGS)
{
    Datum values[JOB_ARGUMENTS];
    bool nulls[JOB_ARGUMENTS];
    Oid types[JOB_ARGUMENTS];
    CorgiOptions options = {0};
    TimestampTz began;
    corgi_take_arguments(fcinfo, values, nulls, types, JOB_ARGUMENTS);
    corgi_read_options(&options, values, nulls, types);
    check_job(&options, values, nulls);
    char *call = corgi_write_call(values, nulls, types);
    int64 id = next_number();
    int pid = start_limited(id, library_of(fcinfo->flinfo->fn_oid), &began);
    add_record(id, pid, began, &options, call, values[ARG_TIME_LIMIT], nulls[ARG_TIME_LIMIT]);
    PG_RETURN_INT64(id);
}
