/* Epochs: what is kept and said of each, and when they end. */
#include "corgipile.h"

#include "lib/stringinfo.h"
#include "utils/float.h"

static void say(const CorgiHistory *h, const CorgiEpoch *e)
{
    char *held = e->held.rows == 0 ? pstrdup("") : psprintf(", held out: loss %.6g, %s %.4f", e->held.loss, h->score,
                                                            e->held.score);
    ereport(NOTICE, errmsg("epoch " INT64_FORMAT ": loss %.6g, %s %.4f%s, " INT64_FORMAT " rows in %.3f s",
                           h->past + h->count - 1, e->learnt.loss, h->score, e->learnt.score, held, e->learnt.rows,
                           e->seconds));
    pfree(held);
}

/* Begin a history, after the epochs of an earlier model if there is one. */
void corgi_begin_history(CorgiHistory *h, const CorgiOptions *o, const CorgiModel *past)
{
    *h = (CorgiHistory){.past = past ? past->epochs : 0, .room = 16, .score = o->loss == CP_SQUARED ? "R2" : "accuracy"};
    h->epochs = palloc(sizeof *h->epochs * (Size) h->room);
    h->losses = palloc(sizeof *h->losses * (Size) (h->past + h->room));
    if (past)
        memcpy(h->losses, past->losses, sizeof *h->losses * (Size) h->past);
}

/* Add an epoch. Returns whether it was the last. */
bool corgi_add_epoch(CorgiHistory *h, const CorgiOptions *o, const CorgiEpoch *e)
{
    int64 last = h->past + h->count;
    int verdict;
    if (h->count == h->room) {
        h->room *= 2;
        h->epochs = repalloc_huge(h->epochs, sizeof *h->epochs * (Size) h->room);
        h->losses = repalloc_huge(h->losses, sizeof *h->losses * (Size) (h->past + h->room));
    }
    h->epochs[h->count++] = *e;
    h->losses[last] = e->learnt.loss;
    verdict = cp_verdict(h->losses, last + 1, o->tolerance);
    if (verdict == CP_LOSS_GROWS)
        ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                errmsg("training diverged in epoch " INT64_FORMAT ": the loss is %g, after %g in the first epoch", last,
                       e->learnt.loss, h->losses[0]),
                errhint("Try learning_rate => %g.", o->learning_rate / 10));
    say(h, e);
    return verdict == CP_ENOUGH || h->count == o->epochs;
}

static void add_figures(StringInfo json, const char *prefix, const char *score, const cp_figures *f)
{
    appendStringInfo(json, ", \"%sloss\": %s, \"%s%s\": %s", prefix, float8out_internal(f->loss), prefix, score,
                     float8out_internal(f->score));
}

/* Write the history as JSON, that of the earlier model first. */
char *corgi_history_json(const CorgiHistory *h, const CorgiOptions *o, const CorgiModel *past)
{
    const char *score = o->loss == CP_SQUARED ? "r2" : "accuracy";
    StringInfoData json;
    initStringInfo(&json);
    appendStringInfoString(&json, past ? past->history : "[]");
    json.data[--json.len] = '\0';
    for (int64 i = 0; i < h->count; i++) {
        const CorgiEpoch *e = &h->epochs[i];
        appendStringInfo(&json, "%s{\"epoch\": " INT64_FORMAT ", \"rows\": " INT64_FORMAT, json.len > 1 ? ", " : "",
                         h->past + i, e->learnt.rows);
        add_figures(&json, "", score, &e->learnt);
        if (e->held.rows > 0)
            add_figures(&json, "holdout_", score, &e->held);
        appendStringInfo(&json, ", \"seconds\": %s}", float8out_internal(e->seconds));
    }
    appendStringInfoChar(&json, ']');
    return json.data;
}
