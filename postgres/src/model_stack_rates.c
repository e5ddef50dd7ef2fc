/* Default learning rates of several models: their changes, messages about them, and their model-file entries. */
#include "model_stack.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "utils/json.h"

enum { MAX_LISTED_NAMES = 5 }; /* model names in a message */

/* Return the noun for the models' members. */
static char *members(const CorgiRun *run)
{
    return run->labels ? pstrdup("labels") : psprintf("groups of \"%s\"", run->options.by);
}

/* List the first names of the selected models, and how many more there are. */
char *corgi_list_models(const CorgiRun *run, const bool *which)
{
    StringInfoData names;
    int64 affected = 0;
    initStringInfo(&names);
    for (int64 k = 0; k < corgi_model_count(run); k++)
        if (which[k] && affected++ < MAX_LISTED_NAMES)
            appendStringInfo(&names, "%s%s", affected > 1 ? ", " : "",
                             run->labels ? corgi_label_name(run->labels, k) : corgi_group_name(run->groups, k));
    if (affected > MAX_LISTED_NAMES)
        appendStringInfo(&names, " and " INT64_FORMAT " more", affected - MAX_LISTED_NAMES);
    return names.data;
}

/* Report restarted models, grouped by their old and new rates. */
static void report_restarts(const CorgiModelStack *c, CorgiRun *run, const double *before)
{
    bool *which = palloc_extended((Size) c->count, MCXT_ALLOC_HUGE),
         *reported = palloc_extended((Size) c->count, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 first = 0; first < c->count; first++) {
        int64 affected = 0;
        if (!c->running[first] || reported[first])
            continue;
        for (int64 k = 0; k < c->count; k++) {
            which[k] = c->running[k] && before[k] == before[first] && c->rate[k] == c->rate[first];
            reported[k] |= which[k];
            affected += which[k];
        }
        ereport(WARNING,
                errmsg("%s",
                       corgi_describe_rate_change(before[first], c->rate[first],
                                                  psprintf(" in " INT64_FORMAT " of " INT64_FORMAT " %s, %s", affected,
                                                           c->count, members(run), corgi_list_models(run, which)))),
                c->rate[first] < before[first] ? corgi_hint_scaling(run) : 0);
    }
    pfree(reported);
    pfree(which);
}

/* Change default rates that diverged or are too small for the labels. Only the reset models run in the next pass.
 * Returns whether there are any; otherwise all run. */
bool corgi_stack_restart_rates(CorgiModelStack *c, CorgiRun *run)
{
    double *before = palloc_extended((Size) c->count * sizeof *before, MCXT_ALLOC_HUGE);
    int64 restarted = 0;
    memcpy(before, c->rate, sizeof *before * (Size) c->count);
    for (int64 k = 0; k < c->count; k++) {
        double rate = !c->running[k] ? 0
                                     : corgi_learner_restart_rate(c->each[k], run, before[k],
                                                                  c->failed[k] ? NAN : c->figures[k].loss);
        c->running[k] = rate > 0;
        if (!c->running[k])
            continue;
        c->rate[k] = rate;
        corgi_learner_forget(c->each[k], run);
        restarted++;
    }
    if (restarted > 0) {
        report_restarts(c, run, before);
        corgi_progress_restart(run);
    }
    pfree(before);
    if (restarted > 0)
        return true;
    for (int64 k = 0; k < c->count; k++)
        c->running[k] = true;
    return false;
}

/* Reduce default rates of groups whose loss has plateaued, as corgi_settle_rate does. */
void corgi_stack_reduce_rates(CorgiModelStack *c, const CorgiRun *run)
{
    int64 lowered = 0;
    c->epochs++;
    for (int64 k = 0; k < c->count; k++) {
        const double lower = cp_sgd_reduced_rate(c->rate[k]);
        c->losses[k][0] = c->losses[k][1];
        c->losses[k][1] = c->figures[k].loss;
        if (!run->options.adaptive || lower == 0 || c->epochs < 2 ||
            !corgi_learner_has_plateaued(c->each[k], c->losses[k], 2))
            continue;
        c->rate[k] = lower;
        lowered++;
    }
    if (lowered > 0)
        ereport(NOTICE, errmsg("the loss of " INT64_FORMAT " of " INT64_FORMAT
                               " groups stands still; they go on with a fifth of "
                               "the learning rate",
                               lowered, c->count));
}

/* Report conspicuous groups. */
void corgi_stack_report(const CorgiModelStack *c, const CorgiRun *run)
{
    if (run->groups != NULL)
        corgi_report_groups(run, c->figures);
}

/* Write a number with all digits, integers with ".0", and non-finite numbers as null. */
static void write_number(StringInfo json, int64 at, double number)
{
    const char *text = isfinite(number) ? double_to_shortest_decimal(number) : "null";
    appendStringInfo(json, "%s%s%s", at ? ", " : "", text, isfinite(number) && strpbrk(text, ".e") == NULL ? ".0" : "");
}

/* Write the learning rate: one number, or a list. */
static void write_rates(StringInfo json, const CorgiModelStack *c)
{
    bool same = true;
    for (int64 k = 0; k < c->count; k++)
        same &= c->rate[k] == c->rate[0];
    appendStringInfo(json, ", \"learning_rate\": %s",
                     same ? double_to_shortest_decimal(c->rate[0]) : "null, \"learning_rates\": [");
    for (int64 k = 0; k < c->count && !same; k++)
        write_number(json, k, c->rate[k]);
    appendStringInfoString(json, same ? "" : "]");
}

/* Write several models' file entries: rates and labels, or rates, group values and metrics. */
void corgi_stack_write_params(StringInfo json, const CorgiModelStack *c, const CorgiRun *run)
{
    write_rates(json, c);
    if (run->labels != NULL) {
        appendStringInfoString(json, ", \"labels\": ");
        corgi_write_labels(json, run->labels);
        return;
    }
    appendStringInfoString(json, ", \"by\": ");
    escape_json(json, run->options.by);
    appendStringInfoString(json, ", \"groups\": ");
    corgi_write_groups(json, run->groups);
    appendStringInfoString(json, ", \"of_groups\": {\"rows\": [");
    for (int64 k = 0; k < c->count; k++)
        appendStringInfo(json, "%s" INT64_FORMAT, k ? ", " : "", c->figures[k].rows);
    appendStringInfoString(json, "], \"loss\": [");
    for (int64 k = 0; k < c->count; k++)
        write_number(json, k, c->figures[k].loss);
    appendStringInfo(json, "], \"%s\": [", corgi_predicts_numbers(&run->options.of) ? "r2" : "accuracy");
    for (int64 k = 0; k < c->count; k++)
        write_number(json, k, c->figures[k].score);
    appendStringInfoString(json, "]}");
}
