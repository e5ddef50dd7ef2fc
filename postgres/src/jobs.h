/* Jobs: trainings in background workers. */
#pragma once

#include "postgres.h"

#include "nodes/pg_list.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/backend_status.h"
#include "utils/timestamp.h"

#define CORGI_WORKER "corgipile job" /* name in the server's views */
#define CORGI_WAITING "waiting"      /* for the end of the requesting transaction */
#define CORGI_RUNNING "running"
#define CORGI_CANCELLED "cancelled"
#define CORGI_LOST "lost"            /* the worker ended without a report */

/* Data passed to a worker at its start; the rest is in the job's record. */
typedef struct {
    int64 id;
    Oid database, login;
    VirtualTransactionId launcher;
} CorgiTicket;

/* Progress of a training. */
typedef struct {
    int64 epoch, epochs, rows; /* rows: learnt from, in all epochs */
    double loss, rate;      /* rate: rows per second */
} CorgiProgress;

/* A job's record, with live data of a running job. */
typedef struct {
    int64 id, role;         /* role: as in the row */
    char *model, *state, *error, *warnings;
    int pid;
    TimestampTz began, started, finished; /* 0: not yet */
    CorgiProgress at;       /* unknown: numbers below 0 and NaN */
    bool ours;              /* this transaction requested it */
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
extern const PgBackendStatus *corgi_worker_at(int pid, TimestampTz began);
extern bool corgi_read_job(int64 id, CorgiJob *job);
extern bool corgi_is_over(const CorgiJob *job);
extern void corgi_mark_lost(void);
extern List *corgi_list_workers(bool here, Oid login);
extern void corgi_end_workers(void);
