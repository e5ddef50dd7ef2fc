/* Jobs: trainings by background workers. */
#ifndef CORGIPILE_JOBS_H
#define CORGIPILE_JOBS_H

#include "corgipile.h"

#include "storage/lock.h"
#include "utils/array.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"

#define CORGI_WORKER "corgipile job" /* what the server's views call one */
#define CORGI_WAITING "waiting"      /* for the end of the transaction that asked for it */
#define CORGI_RUNNING "running"
#define CORGI_CANCELLED "cancelled"
#define CORGI_LOST "lost"            /* the worker is gone and has said nothing; never stored */

/* What a worker is told when it is started; the rest is in the job's record. */
typedef struct {
    int64 id;
    Oid database, login;
    VirtualTransactionId launcher;
} CorgiTicket;

/* How far a training is. */
typedef struct {
    int64 epoch, epochs, rows; /* rows: learnt from, in all epochs */
    double loss, rate;      /* rate: rows a second */
} CorgiProgress;

/* What a record says, and the server of a job that runs. */
typedef struct {
    int64 id, role;         /* role: as in the row */
    char *model, *state, *error, *warnings;
    int pid;
    TimestampTz began, started, finished; /* 0: not yet */
    CorgiProgress at;       /* nothing is known of numbers below 0 and NaN */
    bool ours;              /* this transaction asked for it */
} CorgiJob;

/* progress.c */
extern bool corgi_progress_at(const PgBackendStatus *b, CorgiProgress *p);
extern bool corgi_progress_last(CorgiProgress *p);

/* calls.c */
extern void corgi_take_arguments(FunctionCallInfo fcinfo, Datum *values, bool *nulls, Oid *types, int count);
extern char *corgi_write_call(const Datum *values, const bool *nulls, const Oid *types);

/* session.c */
extern ArrayType *corgi_take_settings(void);
extern void corgi_apply_settings(const ArrayType *settings);

/* records.c */
extern void corgi_change_records(const char *query, int count, Oid *types, Datum *values, const char *nulls);
extern const PgBackendStatus *corgi_worker_at(int pid, TimestampTz began);
extern bool corgi_read_job(int64 id, CorgiJob *job);
extern bool corgi_is_over(const CorgiJob *job);
extern void corgi_end_workers(void);

#endif
