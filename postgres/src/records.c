/* Records of jobs: reading them with what the server knows of their workers, waiting for their end, ending them.
 *
 * A record says how far its job was when it last wrote: a worker that is killed writes nothing. So a job counts as
 * unfinished only while the process is there that was started for it, known by its number and when it began. Records are
 * read as they are now, not as the transaction's snapshot has them. */
#include "jobs.h"

#include <math.h>
#include <signal.h>

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

enum { COLUMNS = 14, NAP_MILLISECONDS = 5 };

PG_FUNCTION_INFO_V1(corgipile_read_jobs);
PG_FUNCTION_INFO_V1(corgipile_cancel);
PG_FUNCTION_INFO_V1(corgipile_wait);

static const char *const read_query =
    "SELECT id, role, model, state, pid, began, started, finished, epoch, epochs, rows, loss, rows_per_second, error, "
    "warnings, xmin FROM corgipile.job_records WHERE id operator(pg_catalog.=) $1";
static const char *const list_query = "SELECT id FROM corgipile.job_records ORDER BY id";
static const char *const never_query =
    "UPDATE corgipile.job_records SET state = '" CORGI_CANCELLED "', finished = pg_catalog.clock_timestamp(), call = NULL, "
    "settings = NULL WHERE id operator(pg_catalog.=) $1 AND state operator(pg_catalog.=) '" CORGI_WAITING "'";

/* Run a query of ours on the records, which may change them, as their owner and within SPI. */
void corgi_change_records(const char *query, int count, Oid *types, Datum *values, const char *nulls)
{
    if (SPI_execute_with_args(query, count, types, values, nulls, false, 0) < 0)
        elog(ERROR, "writing corgipile.job_records failed");
}

/* Find a worker of this database by its process and, unless that is 0, when it began. */
const PgBackendStatus *corgi_worker_at(int pid, TimestampTz began)
{
    int count;
    pgstat_clear_backend_activity_snapshot(); /* or the transaction would see its first one again */
    count = pgstat_fetch_stat_numbackends();
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus *b = &CORGI_BACKEND(i)->backendStatus;
        if (b->st_procpid == pid && b->st_backendType == B_BG_WORKER && b->st_databaseid == MyDatabaseId &&
            (began == 0 || b->st_proc_start_timestamp == began))
            return b;
    }
    return NULL;
}

static Datum column(int number, Datum otherwise)
{
    bool null;
    Datum value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, &null);
    return null ? otherwise : value;
}

static char *text_column(int number, MemoryContext context)
{
    char *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number);
    return value == NULL ? NULL : MemoryContextStrdup(context, value);
}

static void take_record(CorgiJob *job, MemoryContext context)
{
    Datum none = Int64GetDatum(-1), nan = Float8GetDatum(get_float8_nan()), never = TimestampTzGetDatum(0);
    *job = (CorgiJob){.id = DatumGetInt64(column(1, none)), .role = DatumGetInt64(column(2, none))};
    job->model = text_column(3, context);
    job->state = text_column(4, context);
    job->pid = DatumGetInt32(column(5, none));
    job->began = DatumGetTimestampTz(column(6, never));
    job->started = DatumGetTimestampTz(column(7, never));
    job->finished = DatumGetTimestampTz(column(8, never));
    job->at = (CorgiProgress){.epoch = DatumGetInt64(column(9, none)), .epochs = DatumGetInt64(column(10, none)),
                              .rows = DatumGetInt64(column(11, none)), .loss = DatumGetFloat8(column(12, nan)),
                              .rate = DatumGetFloat8(column(13, nan))};
    job->error = text_column(14, context);
    job->warnings = text_column(15, context);
    job->ours = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(column(16, none)));
}

/* Run a query of ours that reads records as they are now; `id` is its parameter, if it is above 0. Within SPI. */
static void look(const char *query, int64 id)
{
    Oid types[] = {INT8OID};
    Datum values[] = {Int64GetDatum(id)};
    PushActiveSnapshot(GetLatestSnapshot());
    if (SPI_execute_with_args(query, id > 0, types, values, NULL, true, 0) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.job_records failed");
    PopActiveSnapshot();
}

static bool find_record(int64 id, CorgiJob *job)
{
    MemoryContext context = CurrentMemoryContext;
    CorgiCaller caller = corgi_become_owner();
    bool found;
    SPI_connect();
    look(read_query, id);
    found = id > 0 && SPI_processed > 0;
    if (found)
        take_record(job, context);
    SPI_finish();
    corgi_become_caller(caller);
    return found;
}

bool corgi_is_over(const CorgiJob *job)
{
    return strcmp(job->state, CORGI_WAITING) != 0 && strcmp(job->state, CORGI_RUNNING) != 0;
}

/* Read a job. A worker that is not there may just have ended: what it wrote last is then there too. */
bool corgi_read_job(int64 id, CorgiJob *job)
{
    const PgBackendStatus *worker;
    int64 epochs;
    if (!find_record(id, job))
        return false;
    if (corgi_is_over(job))
        return true;
    worker = corgi_worker_at(job->pid, job->began);
    epochs = job->at.epochs;
    if (worker != NULL && corgi_progress_at(worker, &job->at)) {
        job->at.epoch -= job->at.epochs - epochs; /* those of a model that it goes on from */
        job->at.epochs = epochs;
    }
    if (worker != NULL)
        return true;
    if (!find_record(id, job))
        return false;
    if (!corgi_is_over(job)) {
        job->state = CORGI_LOST;
        job->error = "its worker is gone: it was terminated, or the server went down";
    }
    return true;
}

static bool may_see(const CorgiJob *job)
{
    return has_privs_of_role(GetUserId(), corgi_resolve(job->role)) ||
           has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/* As the server has it for sessions: those of superusers are for superusers. */
static bool may_cancel(const CorgiJob *job)
{
    Oid role = corgi_resolve(job->role);
    return has_privs_of_role(GetUserId(), role) ||
           (has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND) && !superuser_arg(role));
}

static void no_job(int64 id) __attribute__((noreturn));
static void no_job(int64 id)
{
    ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no job " INT64_FORMAT " of yours", id),
            errhint("SELECT * FROM corgipile.jobs lists them."));
}

static void put(ReturnSetInfo *result, const CorgiJob *job)
{
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS] = {false};
    values[0] = Int64GetDatum(job->id);
    values[1] = CStringGetTextDatum(job->model);
    values[2] = CStringGetTextDatum(corgi_role_name(job->role));
    values[3] = CStringGetTextDatum(job->state);
    values[4] = Int64GetDatum(job->at.epoch);
    values[5] = Int64GetDatum(job->at.epochs);
    values[6] = Int64GetDatum(job->at.rows);
    values[7] = Float8GetDatum(job->at.loss);
    values[8] = Float8GetDatum(job->at.rate);
    values[9] = TimestampTzGetDatum(job->started);
    values[10] = TimestampTzGetDatum(job->finished);
    values[11] = job->error ? CStringGetTextDatum(job->error) : (Datum) 0;
    values[12] = job->warnings ? CStringGetTextDatum(job->warnings) : (Datum) 0;
    values[13] = Int32GetDatum(job->pid);
    nulls[4] = job->at.epoch < 0;
    nulls[6] = job->at.rows < 0;
    nulls[7] = isnan(job->at.loss);
    nulls[8] = isnan(job->at.rate);
    nulls[9] = job->started == 0;
    nulls[10] = job->finished == 0;
    nulls[11] = job->error == NULL;
    nulls[12] = job->warnings == NULL;
    nulls[13] = corgi_is_over(job);
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* List the numbers of all jobs. */
static int64 *job_numbers(int64 *count)
{
    MemoryContext context = CurrentMemoryContext;
    CorgiCaller caller = corgi_become_owner();
    int64 *numbers;
    bool null;
    SPI_connect();
    look(list_query, 0);
    *count = (int64) SPI_processed;
    numbers = MemoryContextAlloc(context, sizeof *numbers * (Size) Max(*count, 1));
    for (int64 i = 0; i < *count; i++)
        numbers[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &null));
    SPI_finish();
    corgi_become_caller(caller);
    return numbers;
}

Datum corgipile_read_jobs(PG_FUNCTION_ARGS)
{
    int64 count, *numbers;
    CorgiJob job;
    InitMaterializedSRF(fcinfo, 0);
    numbers = job_numbers(&count);
    for (int64 i = 0; i < count; i++)
        if (corgi_read_job(numbers[i], &job) && may_see(&job))
            put((ReturnSetInfo *) fcinfo->resultinfo, &job);
    return (Datum) 0;
}

/* Have a job that waits never begin. Returns false if it has begun. */
static bool stop_waiting(int64 id)
{
    Oid types[] = {INT8OID};
    Datum values[] = {Int64GetDatum(id)};
    CorgiCaller caller = corgi_become_owner();
    bool stopped;
    SPI_connect();
    corgi_change_records(never_query, 1, types, values, NULL);
    stopped = SPI_processed > 0;
    SPI_finish();
    corgi_become_caller(caller);
    return stopped;
}

Datum corgipile_cancel(PG_FUNCTION_ARGS)
{
    CorgiJob job;
    if (!corgi_read_job(PG_GETARG_INT64(0), &job) || !(may_see(&job) || may_cancel(&job)))
        no_job(PG_GETARG_INT64(0));
    if (!may_cancel(&job))
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("permission denied to cancel job " INT64_FORMAT " of %s", job.id, corgi_role_name(job.role)),
                errhint("Its role may, and members of pg_signal_backend, or of a superuser's jobs superusers."));
    if (corgi_is_over(&job))
        PG_RETURN_BOOL(false);
    if (strcmp(job.state, CORGI_WAITING) == 0 && stop_waiting(job.id))
        PG_RETURN_BOOL(true);
    PG_RETURN_BOOL(corgi_worker_at(job.pid, job.began) != NULL && kill(job.pid, SIGINT) == 0);
}

/* Wait for the end of the transaction that the worker is in, but no longer than so many milliseconds, if that is 0 or
 * more. As a lock of the server's: two that wait for each other are found out. */
static void wait_for_worker(const CorgiJob *job, long most)
{
    PGPROC *worker = BackendPidGetProc(job->pid);
    VirtualTransactionId transaction = {0};
    long nap = most < 0 ? NAP_MILLISECONDS : Min(most, NAP_MILLISECONDS);
    if (worker != NULL)
        GET_VXID_FROM_PGPROC(transaction, *worker);
    if (most < 0 && worker != NULL && VirtualTransactionIdIsValid(transaction))
        (void) VirtualXactLock(transaction, true);
    (void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, nap, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

Datum corgipile_wait(PG_FUNCTION_ARGS)
{
    int64 id;
    TimestampTz until = 0;
    CorgiJob job;
    if (PG_ARGISNULL(0))
        PG_RETURN_NULL();
    id = PG_GETARG_INT64(0);
    if (!PG_ARGISNULL(1))
        until = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(GetCurrentTimestamp()),
                                                        PG_GETARG_DATUM(1)));
    for (;;) {
        long left = -1;
        if (!corgi_read_job(id, &job) || !may_see(&job))
            no_job(id);
        if (corgi_is_over(&job))
            break;
        if (job.ours)
            ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("job " INT64_FORMAT " begins when this transaction has committed", id),
                    errhint("Wait for it in another transaction: COMMIT first."));
        if (!PG_ARGISNULL(1) && (left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until)) == 0)
            break;
        wait_for_worker(&job, left);
    }
    PG_RETURN_TEXT_P(cstring_to_text(job.state));
}

/* End all workers of this database, before what they write goes. */
void corgi_end_workers(void)
{
    int count;
    pgstat_clear_backend_activity_snapshot();
    count = pgstat_fetch_stat_numbackends();
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus *b = &CORGI_BACKEND(i)->backendStatus;
        const char *type = b->st_databaseid == MyDatabaseId && b->st_backendType == B_BG_WORKER
                               ? GetBackgroundWorkerTypeByPid(b->st_procpid) : NULL;
        if (type != NULL && strcmp(type, CORGI_WORKER) == 0)
            (void) kill(b->st_procpid, SIGTERM);
    }
}
