/* Training history: metrics of epochs, their log lines, and convergence. */
#include "models.h"
#include "run.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"

static void log_epoch(const CorgiHistory *h, const CorgiEpoch *e)
{
    char *held = e->held.rows == 0 ? pstrdup("") : psprintf(", held out: loss %.6g, %s %.4f", e->held.loss, h->score,
                                                            e->held.score);
    char *skipped = e->skipped ? psprintf(" (" INT64_FORMAT " skipped)", e->skipped) : "";
    ereport(NOTICE, errmsg("epoch " INT64_FORMAT ": loss %.6g, %s %.4f%s, " INT64_FORMAT " rows%s in %.3f s",
                           h->past + h->count - 1, e->learnt.loss, h->score, e->learnt.score, held, e->learnt.rows,
                           skipped, e->seconds));
    pfree(held);
}

/* Begin a history, after the epochs of a warm start if there is one. */
void corgi_begin_history(CorgiHistory *h, const CorgiOptions *o, const CorgiModel *past)
{
    *h = (CorgiHistory){
        .past = past ? past->epochs : 0, .room = 16, .score = corgi_predicts_numbers(&o->of) ? "R2" : "accuracy"};
    h->epochs = palloc(sizeof *h->epochs * (Size) h->room);
    h->losses = palloc(sizeof *h->losses * (Size) (h->past + h->room));
    if (past)
        memcpy(h->losses, past->losses, sizeof *h->losses * (Size) h->past);
}

/* Add an epoch. Returns whether it was the last. */
bool corgi_add_epoch(CorgiHistory *h, const CorgiRun *run, const CorgiEpoch *e)
{
    const CorgiOptions *o = &run->options;
    int64 last = h->past + h->count;
    if (h->count == h->room) {
        h->room *= 2;
        h->epochs = repalloc_huge(h->epochs, sizeof *h->epochs * (Size) h->room);
        h->losses = repalloc_huge(h->losses, sizeof *h->losses * (Size) (h->past + h->room));
    }
    h->epochs[h->count++] = *e;
    h->losses[last] = e->learnt.loss;
    int verdict = cp_verdict(h->losses, last + 1, o->tolerance);
    if (verdict == CP_LOSS_GROWS)
        ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                errmsg("training diverged in epoch " INT64_FORMAT ": the loss is %g, after %g in the first epoch", last,
                       e->learnt.loss, h->losses[0]),
                corgi_hint_rate(run));
    log_epoch(h, e);
    return verdict == CP_ENOUGH || h->count == o->epochs;
}

static const char *const delete_query =
    "DELETE FROM corgipile.history WHERE model operator(pg_catalog.=) $1 AND epoch operator(pg_catalog.>=) $2";
static const char *const insert_query =
    "INSERT INTO corgipile.history (loss, accuracy, r2, holdout_loss, holdout_accuracy, holdout_r2, rows, seconds, "
    "model, epoch) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
#define LIST(parameter) "pg_catalog.unnest($" #parameter ")"
static const char *const insert_past_query =
    "INSERT INTO corgipile.history (loss, accuracy, r2, holdout_loss, holdout_accuracy, holdout_r2, rows, seconds, "
    "model, "
    "epoch) SELECT u.loss, u.accuracy, u.r2, u.holdout_loss, u.holdout_accuracy, u.holdout_r2, u.rows, u.seconds, $9, "
    "u.number operator(pg_catalog.-) 1 FROM ROWS FROM (" LIST(1) ", " LIST(2) ", " LIST(3) ", " LIST(4) ", "
    LIST(5) ", " LIST(6) ", " LIST(7) ", " LIST(8) ") WITH ORDINALITY u (loss, accuracy, r2, holdout_loss, "
    "holdout_accuracy, holdout_r2, rows, seconds, number)";

/* Write an epoch's row with a prepared plan. */
static void store_epoch(SPIPlanPtr plan, const CorgiEpoch *e, bool numbers, Datum name, int64 number)
{
    bool held = e->held.rows > 0;
    Datum values[] = {Float8GetDatum(e->learnt.loss), Float8GetDatum(e->learnt.score), Float8GetDatum(e->learnt.score),
                      Float8GetDatum(e->held.loss),   Float8GetDatum(e->held.score),   Float8GetDatum(e->held.score),
                      Int64GetDatum(e->learnt.rows),  Float8GetDatum(e->seconds),      name,
                      Int64GetDatum(number)};
    char nulls[] = "          ";
    nulls[1] = numbers ? 'n' : ' ';
    nulls[2] = numbers ? ' ' : 'n';
    nulls[3] = held ? ' ' : 'n';
    nulls[4] = held && !numbers ? ' ' : 'n';
    nulls[5] = held && numbers ? ' ' : 'n';
    if (SPI_execute_plan(plan, values, nulls, false, 0) != SPI_OK_INSERT)
        elog(ERROR, "writing corgipile.history failed");
}

/* Write the epochs of the stored model, those of a warm start first. Called within SPI. */
void corgi_store_history(const CorgiHistory *h, const CorgiOptions *o, const CorgiModel *past)
{
    Oid types[] = {FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID, FLOAT8OID,
                   FLOAT8OID, INT8OID,   FLOAT8OID, TEXTOID,   INT8OID};
    bool same = past != NULL && strcmp(o->name, o->warm_start) == 0;
    Datum name = CStringGetTextDatum(o->name), deleted[] = {name, Int64GetDatum(same ? h->past : 0)};
    Oid deleted_types[] = {TEXTOID, INT8OID};
    SPIPlanPtr plan = SPI_prepare(insert_query, lengthof(types), types);
    corgi_execute(delete_query, lengthof(deleted), deleted_types, deleted, NULL, false);
    if (h->past > 0 && !same) {
        Oid lists[CORGI_FIGURES + 1];
        Datum values[CORGI_FIGURES + 1];
        for (int i = 0; i < CORGI_FIGURES; i++)
            lists[i] = i == 6 ? INT8ARRAYOID : FLOAT8ARRAYOID;
        memcpy(values, past->figures, sizeof past->figures);
        lists[CORGI_FIGURES] = TEXTOID;
        values[CORGI_FIGURES] = name;
        corgi_execute(insert_past_query, CORGI_FIGURES + 1, lists, values, NULL, false);
    }
    for (int64 i = 0; i < h->count; i++)
        store_epoch(plan, &h->epochs[i], corgi_predicts_numbers(&o->of), name, h->past + i);
}
