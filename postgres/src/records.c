/* Job records: reading them with live worker data, waiting for a job's end, cancelling.
 * A record holds a job's last written state, and a killed worker writes nothing. A job is therefore unfinished only
 * while its worker exists, identified by process number and start time. Records are read as they are now, not in the
 * transaction's snapshot. */
#include "compat.h"
#include "jobs.h"
#include "rights.h"

#include <math.h>
#include <signal.h>

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

enum { COLUMNS = 14, FIRST_WAIT = 5, LONGEST_WAIT = 100 }; /* milliseconds */

PG_FUNCTION_INFO_V1(corgipile_read_jobs);
PG_FUNCTION_INFO_V1(corgipile_cancel);
PG_FUNCTION_INFO_V1(corgipile_wait);

static const char *const read_query =
    "SELECT id, role, model, state, pid, began, started, finished, epoch, epochs, rows, loss, rows_per_second, error, "
    "warnings, xmin FROM corgipile.job_records WHERE id operator(pg_catalog.=) $1";
static const char *const list_query = "SELECT id FROM corgipile.job_records ORDER BY id";
static const char *const lost_query =
    "UPDATE corgipile.job_records SET state = $2, error = $3, finished = pg_catalog.clock_timestamp(), call = NULL, "
    "settings = NULL WHERE id operator(pg_catalog.=) ANY (ARRAY(SELECT id FROM corgipile.job_records WHERE id "
    "operator(pg_catalog.=) $1 AND finished IS NULL FOR UPDATE SKIP LOCKED))";
static const char *const cancel_query =
    "UPDATE corgipile.job_records SET state = '" CORGI_CANCELLED "', finished = pg_catalog.clock_timestamp(), call = "
    "NULL, settings = NULL WHERE id operator(pg_catalog.=) $1 AND state operator(pg_catalog.=) '" CORGI_WAITING "'";

/* Return a worker of this database by its process and, unless 0, its start time. */
const PgBackendStatus *corgi_worker_at(int pid, TimestampTz began)
{
    pgstat_clear_backend_activity_snapshot(); /* otherwise the transaction would see its first snapshot again */
    int count = pgstat_fetch_stat_numbackends();
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus *b = &CORGI_BACKEND(i)->backendStatus;
        if (b->st_procpid == pid && b->st_backendType == B_BG_WORKER && b->st_databaseid == MyDatabaseId &&
            (began == 0 || b->st_proc_start_timestamp == began))
            return b;
    }
    return NULL;
}

static Datum column_or(int number, Datum fallback)
{
    bool null;
    Datum value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, &null);
    return null ? fallback : value;
}

static void read_record(CorgiJob *job, MemoryContext context)
{
    Datum none = Int64GetDatum(-1), nan = Float8GetDatum(get_float8_nan()), never = TimestampTzGetDatum(0);
    *job = (CorgiJob){.id = DatumGetInt64(column_or(1, none)), .role = DatumGetInt64(column_or(2, none))};
    job->model = corgi_text_at(3, context);
    job->state = corgi_text_at(4, context);
    job->pid = DatumGetInt32(column_or(5, none));
    job->began = DatumGetTimestampTz(column_or(6, never));
    job->started = DatumGetTimestampTz(column_or(7, never));
    job->finished = DatumGetTimestampTz(column_or(8, never));
    job->at = (CorgiProgress){.epoch = DatumGetInt64(column_or(9, none)), .epochs = DatumGetInt64(column_or(10, none)),
                              .rows = DatumGetInt64(column_or(11, none)), .loss = DatumGetFloat8(column_or(12, nan)),
                              .rate = DatumGetFloat8(column_or(13, nan))};
    job->error = corgi_text_at(14, context);
    job->warnings = corgi_text_at(15, context);
    job->ours = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(column_or(16, none)));
}

/* Run a query on the current records, with parameter `id` if above 0. Within SPI. */
static void read_records(const char *query, int64 id)
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
    if (id <= 0)
        return false;
    CorgiCaller caller = corgi_open_tables();
    read_records(read_query, id);
    bool exists = SPI_processed > 0;
    if (exists)
        read_record(job, context);
    corgi_close_tables(caller);
    return exists;
}

bool corgi_is_over(const CorgiJob *job)
{
    return strcmp(job->state, CORGI_WAITING) != 0 && strcmp(job->state, CORGI_RUNNING) != 0;
}

/* Read a job. If its worker is gone, read the record again for the worker's last write. */
bool corgi_read_job(int64 id, CorgiJob *job)
{
    if (!find_record(id, job))
        return false;
    if (corgi_is_over(job))
        return true;
    const PgBackendStatus *worker = corgi_worker_at(job->pid, job->began);
    int64 epochs = job->at.epochs;
    if (worker != NULL && corgi_progress_at(worker, &job->at)) {
        job->at.epoch -= job->at.epochs - epochs; /* without the epochs of a warm start */
        job->at.epochs = epochs;
    }
    if (worker != NULL)
        return true;
    if (!find_record(id, job))
        return false;
    if (!corgi_is_over(job)) {
        job->state = CORGI_LOST;
        job->error = "the job's worker is gone: it was terminated, or the server went down";
    }
    return true;
}

static bool is_own(const CorgiJob *job) { return has_privs_of_role(GetUserId(), corgi_resolve(job->role)); }

static bool may_see(const CorgiJob *job)
{
    return is_own(job) || has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/* Follow the server's rule for sessions: only superusers cancel those of superusers. */
static bool may_cancel(const CorgiJob *job)
{
    return is_own(job) ||
           (has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND) && !superuser_arg(corgi_resolve(job->role)));
}

static void refuse_unknown_job(int64 id) __attribute__((noreturn));
static void refuse_unknown_job(int64 id)
{
    ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("you have no job " INT64_FORMAT, id),
            errhint("SELECT * FROM corgipile.jobs lists them."));
}

static void put_job(ReturnSetInfo *result, const CorgiJob *job)
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
    nulls[11] = job->error == NULL || !is_own(job); /* messages may reveal rows */
    nulls[12] = job->warnings == NULL || !is_own(job);
    nulls[13] = corgi_is_over(job);
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* List the numbers of all jobs. */
static int64 *job_numbers(int64 *count)
{
    MemoryContext context = CurrentMemoryContext;
    CorgiCaller caller = corgi_open_tables();
    bool null;
    read_records(list_query, 0);
    *count = (int64) SPI_processed;
    int64 *numbers = MemoryContextAlloc(context, sizeof *numbers * (Size) Max(*count, 1));
    for (int64 i = 0; i < *count; i++)
        numbers[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &null));
    corgi_close_tables(caller);
    return numbers;
}

Datum corgipile_read_jobs(PG_FUNCTION_ARGS)
{
    int64 count;
    CorgiJob job;
    InitMaterializedSRF(fcinfo, 0);
    int64 *numbers = job_numbers(&count);
    for (int64 i = 0; i < count; i++)
        if (corgi_read_job(numbers[i], &job) && may_see(&job))
            put_job((ReturnSetInfo *) fcinfo->resultinfo, &job);
    return (Datum) 0;
}

/* Cancel a waiting job. Returns false if it has begun. */
static bool cancel_waiting(int64 id)
{
    Oid types[] = {INT8OID};
    Datum values[] = {Int64GetDatum(id)};
    CorgiCaller caller = corgi_open_tables();
    corgi_execute(cancel_query, 1, types, values, NULL, false);
    bool stopped = SPI_processed > 0;
    corgi_close_tables(caller);
    return stopped;
}

Datum corgipile_cancel(PG_FUNCTION_ARGS)
{
    CorgiJob job;
    if (!corgi_read_job(PG_GETARG_INT64(0), &job) || !(may_see(&job) || may_cancel(&job)))
        refuse_unknown_job(PG_GETARG_INT64(0));
    if (!may_cancel(&job))
        ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                errmsg("permission denied to cancel job " INT64_FORMAT " of %s", job.id, corgi_role_name(job.role)),
                errhint("Allowed are its role and members of pg_signal_backend; for a superuser's job, superusers."));
    if (corgi_is_over(&job))
        PG_RETURN_BOOL(false);
    if (strcmp(job.state, CORGI_WAITING) == 0 && cancel_waiting(job.id))
        PG_RETURN_BOOL(true);
    PG_RETURN_BOOL(corgi_worker_at(job.pid, job.began) != NULL && kill(job.pid, SIGINT) == 0);
}

/* Wait for the end of the worker's transaction with a server lock, so that deadlocks are detected. */
static void wait_for_worker(const CorgiJob *job)
{
    PGPROC *worker = BackendPidGetProc(job->pid);
    VirtualTransactionId transaction = {0};
    if (worker != NULL)
        GET_VXID_FROM_PGPROC(transaction, *worker);
    if (worker != NULL && VirtualTransactionIdIsValid(transaction))
        (void) VirtualXactLock(transaction, true);
}

static void wait_milliseconds(long milliseconds)
{
    (void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

Datum corgipile_wait(PG_FUNCTION_ARGS)
{
    TimestampTz until = 0;
    CorgiJob job;
    long longest = FIRST_WAIT, left = LONGEST_WAIT;
    if (PG_ARGISNULL(0))
        PG_RETURN_NULL();
    int64 id = PG_GETARG_INT64(0);
    if (!PG_ARGISNULL(1))
        until = DatumGetTimestampTz(DirectFunctionCall2(
            timestamptz_pl_interval, TimestampTzGetDatum(GetCurrentTimestamp()), PG_GETARG_DATUM(1)));
    for (;; longest = Min(2 * longest, LONGEST_WAIT)) {
        if (!corgi_read_job(id, &job) || !may_see(&job))
            refuse_unknown_job(id);
        if (corgi_is_over(&job))
            break;
        if (job.ours)
            ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("job " INT64_FORMAT " begins only after this transaction commits", id),
                    errhint("COMMIT first, then wait in another transaction."));
        if (!PG_ARGISNULL(1) && (left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until)) == 0)
            break;
        if (PG_ARGISNULL(1))
            wait_for_worker(&job);
        wait_milliseconds(Min(left, longest));
    }
    PG_RETURN_TEXT_P(cstring_to_text(job.state));
}

/* Mark the jobs of missing workers as lost. Within SPI, as the owner. */
void corgi_mark_lost(void)
{
    Oid types[] = {INT8OID, TEXTOID, TEXTOID};
    int64 count, *numbers = job_numbers(&count);
    CorgiJob job;
    for (int64 i = 0; i < count; i++)
        if (corgi_read_job(numbers[i], &job) && strcmp(job.state, CORGI_LOST) == 0 && job.finished == 0) {
            Datum values[] = {Int64GetDatum(job.id), CStringGetTextDatum(job.state), CStringGetTextDatum(job.error)};
            corgi_execute(lost_query, lengthof(types), types, values, NULL, false);
        }
}

/* List worker processes: of all databases or this one, of all logins or one role. */
List *corgi_list_workers(bool here, Oid login)
{
    List *pids = NIL;
    pgstat_clear_backend_activity_snapshot();
    int count = pgstat_fetch_stat_numbackends();
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus *b = &CORGI_BACKEND(i)->backendStatus;
        bool wanted = b->st_backendType == B_BG_WORKER && (!here || b->st_databaseid == MyDatabaseId) &&
                      (!OidIsValid(login) || b->st_userid == login);
        const char *type = wanted ? GetBackgroundWorkerTypeByPid(b->st_procpid) : NULL;
        if (type != NULL && strcmp(type, CORGI_WORKER) == 0)
            pids = lappend_int(pids, b->st_procpid);
    }
    return pids;
}

/* Terminate all workers of this database, before their tables are dropped. */
void corgi_end_workers(void)
{
    ListCell *cell;
    foreach (cell, corgi_list_workers(true, InvalidOid))
        (void) kill(lfirst_int(cell), SIGTERM);
}
