/* corgipile.progress: trainings of this database's backends.
 * Every backend has a shared-memory entry for its command's progress, which others read without locks and the server
 * clears at the transaction's end. The server's own views do not know training, so they hide it. If the entry is taken,
 * as by COPY (SELECT ...), nothing shows. */
#include "compat.h"
#include "jobs.h"
#include "run.h"

#include <math.h>

#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/pmsignal.h"
#include "utils/acl.h"
#include "utils/backend_progress.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#define TRAINING_COMMAND ((ProgressCommandType) 0x636F7267)
#define COLUMNS 10

enum { LOSS_OF, EPOCH, EPOCHS, ROWS, DONE, LOSS, STARTED, EARLIER, BEGAN, NAME,
       NAME_BYTES = 8 * (PGSTAT_NUM_PROGRESS_PARAM - NAME) };

PG_FUNCTION_INFO_V1(corgipile_progress);

static bool shown(const CorgiRun *run) { return run->published && MyBEEntry->st_progress_command == TRAINING_COMMAND; }

/* Claim this backend's progress entry, if it is free. */
void corgi_progress_begin(CorgiRun *run)
{
    const CorgiOptions *o = &run->options;
    int index[4 + NAME_BYTES / 8] = {LOSS_OF, EPOCHS, STARTED, LOSS};
    int64 value[lengthof(index)] = {o->of.loss, o->epochs, GetCurrentTimestamp()};
    const double no_loss = get_float8_nan();
    if (MyBEEntry == NULL || MyBEEntry->st_progress_command != PROGRESS_COMMAND_INVALID)
        return;
    pgstat_progress_start_command(TRAINING_COMMAND, o->source);
    run->published = MyBEEntry->st_progress_command == TRAINING_COMMAND;
    if (!shown(run))
        return;
    for (int i = 0; i < NAME_BYTES / 8; i++)
        index[4 + i] = NAME + i;
    memcpy(&value[3], &no_loss, sizeof no_loss);
    if (o->name != NULL)
        memcpy(&value[4], o->name, (size_t) pg_mbcliplen(o->name, (int) strlen(o->name), NAME_BYTES - 1));
    pgstat_progress_update_multi_param(lengthof(index), index, value); /* at once, so that a reader sees all or
                                                                        * nothing */
}

/* Begin an epoch, counted from 0. */
void corgi_progress_epoch(const CorgiRun *run, int64 epoch, int64 epochs)
{
    const int index[] = {EPOCH, EPOCHS, ROWS, DONE, EARLIER, BEGAN};
    const volatile int64 *now = MyBEEntry ? MyBEEntry->st_progress_param : NULL;
    if (shown(run)) {
        const int64 value[] = {epoch, epochs, run->survey.rows, 0, now[EARLIER] + now[DONE],
                               now[BEGAN] ? now[BEGAN] : GetCurrentTimestamp()};
        pgstat_progress_update_multi_param(lengthof(index), index, value);
    }
}

/* Discard the rows of a restarted epoch, and restart the row rate. */
void corgi_progress_restart(const CorgiRun *run)
{
    const int index[] = {DONE, EARLIER, BEGAN};
    const int64 no_loss[] = {0, 0, 0};
    if (shown(run))
        pgstat_progress_update_multi_param(lengthof(index), index, no_loss);
}

/* Report the epoch's progress. Before its first rows, the previous epoch's loss stays. */
void corgi_progress_rows(const CorgiRun *run, const cp_figures *so_far)
{
    const int index[] = {DONE, LOSS};
    int64 value[] = {so_far->rows, 0};
    if (MyBgworkerEntry != NULL && !PostmasterIsAlive())
        proc_exit(1); /* a worker has no client to notice this, and would keep the server from restarting */
    memcpy(&value[1], &so_far->loss, sizeof value[1]);
    if (shown(run) && so_far->rows > 0)
        pgstat_progress_update_multi_param(lengthof(index), index, value);
}

void corgi_progress_end(CorgiRun *run)
{
    if (shown(run))
        pgstat_progress_end_command();
    run->published = false;
}

static void read_params(const volatile int64 *param, CorgiProgress *p)
{
    int64 loss = param[LOSS];
    double seconds = (double) (GetCurrentTimestamp() - param[BEGAN]) / USECS_PER_SEC;
    p->epoch = param[EPOCH];
    p->epochs = param[EPOCHS];
    p->rows = param[EARLIER] + param[DONE];
    memcpy(&p->loss, &loss, sizeof p->loss);
    p->rate = param[BEGAN] == 0 || p->rows == 0 || seconds <= 0 ? get_float8_nan() : (double) p->rows / seconds;
}

/* Read a backend's published progress. Returns false if there is none. */
bool corgi_progress_at(const PgBackendStatus *b, CorgiProgress *p)
{
    if (b->st_progress_command != TRAINING_COMMAND || b->st_progress_param[STARTED] == 0)
        return false;
    read_params(b->st_progress_param, p);
    return true;
}

/* Read the progress of this backend's last training, which stays in its entry. */
bool corgi_progress_last(CorgiProgress *p)
{
    if (MyBEEntry == NULL || MyBEEntry->st_progress_param[STARTED] == 0)
        return false;
    read_params(MyBEEntry->st_progress_param, p);
    return true;
}

/* Return the wait event of a backend that waits for the learning thread; named from 17 on. */
uint32 corgi_wait_event(void)
{
#if PG_VERSION_NUM >= 170000
    static uint32 event = 0;
    if (event == 0)
        event = WaitEventExtensionNew("CorgipileLearning");
    return event;
#else
    return PG_WAIT_EXTENSION;
#endif
}

static void put_backend(Tuplestorestate *rows, TupleDesc columns, const PgBackendStatus *b)
{
    const int64 *param = b->st_progress_param;
    const char *name = (const char *) &param[NAME];
    bool visible =
        has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) || has_privs_of_role(GetUserId(), b->st_userid);
    bool surveying = param[ROWS] == 0;
    double loss;
    Datum values[COLUMNS];
    bool nulls[COLUMNS];
    memcpy(&loss, &param[LOSS], sizeof loss);
    memset(nulls, !visible, sizeof nulls);
    nulls[0] = false;
    values[0] = Int32GetDatum(b->st_procpid);
    values[1] = ObjectIdGetDatum(b->st_progress_command_target);
    values[2] = CStringGetTextDatum(cp_losses[param[LOSS_OF]].name);
    values[3] = CStringGetTextDatum(name);
    values[4] = Int64GetDatum(param[EPOCH]);
    values[5] = Int64GetDatum(param[EPOCHS]);
    values[6] = Int64GetDatum(param[DONE]);
    values[7] = Int64GetDatum(param[ROWS]);
    values[8] = Float8GetDatum(loss);
    values[9] = TimestampTzGetDatum(param[STARTED]);
    nulls[3] |= name[0] == '\0';
    nulls[4] |= surveying;
    nulls[6] |= surveying;
    nulls[7] |= surveying;
    nulls[8] |= isnan(loss);
    tuplestore_putvalues(rows, columns, values, nulls);
}

/* List the training backends of this database. Other roles' rows show only the process, as in the server's views. */
Datum corgipile_progress(PG_FUNCTION_ARGS)
{
    ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
    int count = pgstat_fetch_stat_numbackends();
    InitMaterializedSRF(fcinfo, 0);
    for (int i = 1; i <= count; i++) {
        const PgBackendStatus *b = &CORGI_BACKEND(i)->backendStatus;
        /* without a start, its other figures are not set yet */
        if (b->st_progress_command == TRAINING_COMMAND && b->st_databaseid == MyDatabaseId &&
            b->st_progress_param[STARTED] != 0)
            put_backend(result->setResult, result->setDesc, b);
    }
    return (Datum) 0;
}
