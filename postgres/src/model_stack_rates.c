/* Default learning rates: reduced if an epoch diverges or a loss plateaus, raised if labels are far from 0.
 * kernel/sgd/epochs.h has the rules. Each model has its own rate. Also messages about several models, and their
 * model-file entries. */
#include "members.h"
#include "model_stack.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "utils/json.h"

enum { MAX_LISTED_NAMES = 5 }; /* model names in a message */
static const double max_negative_r2 = 0.05; /* of R2: one epoch alone rarely falls so far below 0 */

/* Return the noun for the models' members. */
static char *members(const CorgiRun *run)
{
    return corgi_are_labels(run->members) ? pstrdup("labels") : psprintf("groups of \"%s\"", run->options.by);
}

/* List the first names of the selected models, and how many more there are. */
static char *list_models(const CorgiRun *run, const bool *which)
{
    StringInfoData names;
    int64 affected = 0;
    initStringInfo(&names);
    for (int64 k = 0; k < corgi_model_count(run); k++)
        if (which[k] && affected++ < MAX_LISTED_NAMES)
            appendStringInfo(&names, "%s%s", affected > 1 ? ", " : "", corgi_member_name(run->members, k));
    if (affected > MAX_LISTED_NAMES)
        appendStringInfo(&names, " and " INT64_FORMAT " more", affected - MAX_LISTED_NAMES);
    return names.data;
}

/* Report models that restart at another rate; `of` names them, if there are several. */
static void report_restart(CorgiRun *run, double before, double rate, const char *of)
{
    ereport(WARNING,
            rate > before ? errmsg("learning rate %g is small for labels this far from 0%s; restarting at %g",
                                   before, of, rate)
                          : errmsg("learning rate %g diverges%s; restarting at %g", before, of, rate),
            rate < before ? corgi_hint_scaling(run) : 0);
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
        report_restart(run, before[first], c->rate[first],
                       run->members ? psprintf(" in " INT64_FORMAT " of " INT64_FORMAT " %s, %s", affected, c->count,
                                               members(run), list_models(run, which))
                                    : "");
    }
    pfree(reported);
    pfree(which);
}

/* Restart a model at another rate if its own diverged or is too small for the labels. Returns whether it did. */
static bool restart_model(CorgiModelStack *c, CorgiRun *run, int64 k)
{
    const double loss = c->failed[k] ? NAN : c->figures[k].loss,
                 rate = c->running[k] ? corgi_learner_restart_rate(c->each[k], run, c->rate[k], loss) : 0;
    if (rate == 0)
        return false;
    c->rate[k] = rate;
    corgi_learner_forget(c->each[k], run);
    if (run->past != NULL)
        corgi_resume(run, c->each[k]);
    return true;
}

/* Change default rates that diverged or are too small for the labels. Only the reset models run in the next pass.
 * Returns whether there are any; otherwise all run. */
bool corgi_stack_restart_rates(CorgiModelStack *c, CorgiRun *run)
{
    double *before = palloc_extended((Size) c->count * sizeof *before, MCXT_ALLOC_HUGE);
    memcpy(before, c->rate, sizeof *before * (Size) c->count);
    for (int64 k = 0; k < c->count; k++)
        c->recount |= c->running[k] = restart_model(c, run, k);
    if (c->recount) {
        report_restarts(c, run, before);
        corgi_progress_restart(run);
    } else
        memset(c->running, true, (Size) c->count);
    run->options.learning_rate = run->members ? run->options.learning_rate : c->rate[0];
    pfree(before);
    return c->recount;
}

/* Reduce default rates of models whose loss has plateaued. */
void corgi_stack_reduce_rates(CorgiModelStack *c, CorgiRun *run)
{
    int64 reduced = 0;
    c->epochs++;
    for (int64 k = 0; k < c->count; k++) {
        const double lower = cp_sgd_reduced_rate(c->rate[k]);
        c->losses[k][0] = c->losses[k][1];
        c->losses[k][1] = c->figures[k].loss;
        if (!run->options.adaptive || lower == 0 || c->epochs < 2 ||
            !corgi_learner_has_plateaued(c->each[k], c->losses[k], 2))
            continue;
        c->rate[k] = lower;
        reduced++;
    }
    if (reduced == 0)
        return;
    if (run->members != NULL) {
        ereport(NOTICE, errmsg("the losses of " INT64_FORMAT " of " INT64_FORMAT " groups have plateaued; their "
                               "learning rates are reduced to a fifth", reduced, c->count));
        return;
    }
    run->options.learning_rate = c->rate[0];
    ereport(NOTICE, errmsg("the loss has plateaued; the learning rate is reduced to a fifth"));
}

/* Report groups with too few training rows. */
static void report_small_groups(const CorgiRun *run, const cp_figures *each, bool *which)
{
    static const char *const what[] = {"no row to train on; their models are constant",
                                       "one row"};
    const int64 count = corgi_model_count(run);
    for (int64 rows = 0; rows < lengthof(what); rows++) {
        int64 affected = 0;
        for (int64 k = 0; k < count; k++)
            affected += which[k] = each[k].rows == rows;
        if (affected > 0)
            ereport(NOTICE, errmsg(INT64_FORMAT " of " INT64_FORMAT " groups of \"%s\" have %s: %s", affected, count,
                                   run->options.by, what[rows], list_models(run, which)));
    }
}

/* Report groups whose models are worse than the mean of their labels, as corgi_warn_no_better does for one model. */
static void report_weak_groups(const CorgiRun *run, const cp_figures *each, bool *which)
{
    const cp_loss_choice *of = &run->options.of;
    const int64 count = corgi_model_count(run);
    int64 affected = 0, first = 0;
    if (!corgi_predicts_numbers(of) || !cp_losses[of->loss].of_mean)
        return;
    for (int64 k = count - 1; k >= 0; k--)
        if ((which[k] = each[k].rows > 1 && each[k].score < -max_negative_r2)) {
            affected++;
            first = k;
        }
    if (affected > 0)
        ereport(NOTICE,
                errmsg("the models of " INT64_FORMAT " of " INT64_FORMAT
                       " groups of \"%s\" are no better than the mean of "
                       "their labels, %s: R2 of the first is %.4g",
                       affected, count, run->options.by, list_models(run, which), each[first].score),
                errhint("Try another learning_rate, or more epochs."));
}

/* Report conspicuous groups, by the metrics of the last epoch. */
void corgi_stack_report(const CorgiModelStack *c, const CorgiRun *run)
{
    bool *which = palloc_extended((Size) c->count, MCXT_ALLOC_HUGE);
    if (run->options.by != NULL) {
        report_small_groups(run, c->figures, which);
        report_weak_groups(run, c->figures, which);
    }
    pfree(which);
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
    if (corgi_are_labels(run->members)) {
        appendStringInfoString(json, ", \"labels\": ");
        corgi_write_members(json, run->members);
        return;
    }
    appendStringInfoString(json, ", \"by\": ");
    escape_json(json, run->options.by);
    appendStringInfoString(json, ", \"groups\": ");
    corgi_write_members(json, run->members);
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
