/* The learners of models by group, each of which learns from the rows of its group: corgipile.linear.group_sgd in Python. */
#include "corgipile.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "miscadmin.h"
#include "sgd/state.h"
#include "utils/json.h"

enum { PIECE = 8192 }; /* visits that are dealt to the groups at a time */

struct CorgiCompany {
    const CorgiModel *model; /* stored, by which rows are measured; else NULL */
    const char *name;       /* of it */
    int64 count;
    int64 seats;            /* learners: of stored models of many groups fewer than groups, which take turns */
    CorgiLearner **each;    /* [seats] */
    int64 *seated;          /* [seats]: whose turn it is; NULL where all have a seat */
    cp_sgd_totals *totals;  /* of those who have none */
    double *rate;           /* of each */
    double (*losses)[2];    /* of the last two epochs of each */
    int64 epochs;
    cp_figures *figures;    /* of the last pass of each */
    int64 *skipped;         /* rows left out */
    bool *running, *failed; /* running: in this pass; failed: weights overflowed in it, and its rate is tried */
    cp_figures so_far;
    int32 *starts, *touched, *visit, *group; /* starts: [count], all 0 between pieces; of a piece: groups, and visits by group */
};

static CorgiCompany *make(int64 groups, int64 seats)
{
    CorgiCompany *c = palloc0(sizeof *c);
    Size count = (Size) groups;
    c->count = groups;
    c->seats = seats;
    c->each = palloc_extended((Size) seats * sizeof *c->each, MCXT_ALLOC_HUGE);
    c->rate = palloc_extended(count * sizeof *c->rate, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->losses = palloc_extended(count * sizeof *c->losses, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->figures = palloc_extended(count * sizeof *c->figures, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->skipped = palloc_extended(count * sizeof *c->skipped, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->running = palloc_extended(count, MCXT_ALLOC_HUGE);
    c->failed = palloc_extended(count, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->starts = palloc_extended(count * sizeof *c->starts, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    c->touched = palloc(PIECE * sizeof *c->touched);
    c->visit = palloc(PIECE * sizeof *c->visit);
    c->group = palloc(PIECE * sizeof *c->group);
    memset(c->running, true, count);
    return c;
}

/* Make a learner a group, which begin at the rate that was chosen. */
CorgiCompany *corgi_make_company(const CorgiRun *run)
{
    CorgiCompany *c = make(corgi_group_count(run), corgi_group_count(run));
    int64 *rows = corgi_group_rows(run);
    for (int64 k = 0; k < c->count; k++) {
        c->each[k] = corgi_learner_for(run, rows[k]);
        c->rate[k] = run->options.learning_rate;
    }
    pfree(rows);
    return c;
}

/* Make what scores and measures rows by stored models, each row by that of its group: within work_mem, but for one model, and
 * figures of each group. */
CorgiCompany *corgi_make_judges(const CorgiModel *m, const char *name, bool sparse)
{
    CorgiLearner *first = corgi_model_learner(m, sparse);
    const int64 most = work_mem * INT64CONST(1024) / corgi_learner_held(first);
    CorgiCompany *c = make(m->groups, Max(Min(m->groups, most), 1));
    c->model = m;
    c->name = name;
    c->each[0] = first;
    for (int64 k = 1; k < c->seats; k++)
        c->each[k] = corgi_model_learner(corgi_model_of_group(m, k), sparse);
    if (c->seats == c->count)
        return c;
    c->seated = palloc_extended((Size) c->seats * sizeof *c->seated, MCXT_ALLOC_HUGE);
    c->totals = palloc_extended((Size) c->count * sizeof *c->totals, MCXT_ALLOC_HUGE);
    for (int64 k = 0; k < c->seats; k++)
        c->seated[k] = k;
    for (int64 k = 0; k < c->count; k++)
        corgi_learner_totals(first, &c->totals[k], false);
    return c;
}

/* Return the learner of a group, who takes the seat of another one if there are not enough. */
static CorgiLearner *learner_of(CorgiCompany *c, int64 k)
{
    const int64 seat = k % c->seats, before = c->seated ? c->seated[seat] : k;
    CorgiLearner *one = c->each[seat];
    if (before == k)
        return one;
    corgi_learner_totals(one, &c->totals[before], false);
    corgi_learner_set(one, c->model->coefficients + k * c->model->outputs * c->model->width, c->model->intercepts + k * c->model->outputs);
    corgi_learner_totals(one, &c->totals[k], true);
    c->seated[seat] = k;
    return one;
}

/* Return the number of scores of a row. */
int64 corgi_company_outputs(const CorgiCompany *c) { return corgi_learner_outputs(c->each[0]); }

/* Return the group of a row to be measured. */
int32 corgi_group_of_row(const CorgiCompany *c, const CorgiSource *part, TupleTableSlot *row)
{
    NullableDatum value;
    value.value = slot_getattr(row, part->by.attnum, &value.isnull);
    return (int32) corgi_find_group(c->model, c->name, part->by.type, value, &part->by, &row->tts_tid);
}

/* Score rows by slot, as corgi_learner_decide_rows, each by the model of its group. */
void corgi_company_decide(CorgiCompany *c, const CorgiRun *run, const int32 *visit, int64 count, double *scores)
{
    const int64 outputs = corgi_company_outputs(c);
    for (int64 i = 0; i < count; i++)
        corgi_learner_decide_rows(learner_of(c, run->buffer.group[visit[i]]), run, visit + i, 1, scores + i * outputs);
}

/* Return the bytes of a group's learner and of what is known of it. */
int64 corgi_member_bytes(const CorgiRun *run)
{
    const CorgiCompany *c = NULL;
    return corgi_learner_size(run) + (int64) (sizeof *c->each + sizeof *c->rate + sizeof *c->losses + sizeof *c->figures +
                                              sizeof *c->skipped + 2 * sizeof(bool) + sizeof *c->starts + sizeof(CorgiName));
}

/* Return what several figures amount to: means by what their rows count for. */
static cp_figures together(const cp_figures *each, int64 count)
{
    cp_figures all = {0};
    for (int64 k = 0; k < count; k++) {
        all.rows += each[k].rows;
        all.loss += each[k].loss * each[k].weight;
        all.score += each[k].score * each[k].weight;
        all.weight += each[k].weight;
    }
    all.loss /= all.weight != 0 ? all.weight : 1;
    all.score /= all.weight != 0 ? all.weight : 1;
    return all;
}

/* Begin a pass of the groups that are running: all of them, or those whose rates were lowered. */
void corgi_company_begin(CorgiCompany *c, const CorgiRun *run, int64 epoch)
{
    const CorgiOptions *o = &run->options;
    c->so_far = (cp_figures){0};
    for (int64 k = 0; k < c->count; k++) {
        if (!c->running[k]) {
            c->so_far.rows += c->figures[k].rows;
            c->so_far.loss += c->figures[k].loss * c->figures[k].weight;
            c->so_far.weight += c->figures[k].weight;
            continue;
        }
        c->failed[k] = false;
        c->skipped[k] = 0;
        corgi_learner_try(learner_of(c, k), o->adaptive && cp_sgd_lowered(c->rate[k]) > 0, epoch == 0);
        corgi_learner_begin(learner_of(c, k), cp_sgd_rate(o->step, c->rate[k], o->decay, epoch));
    }
}

/* Put the next visits group by group, each group's in their order. Returns how many groups there are among them. */
static int64 deal(CorgiCompany *c, const int32 *group, const int32 *visit, int64 count)
{
    int64 touched = 0;
    int32 from = 0;
    for (int64 i = 0; i < count; i++) {
        c->group[i] = group[visit[i]];
        if (c->starts[c->group[i]]++ == 0)
            c->touched[touched++] = c->group[i];
    }
    for (int64 t = 0; t < touched; t++) {
        const int32 own = c->starts[c->touched[t]];
        c->starts[c->touched[t]] = from;
        from += own;
    }
    for (int64 i = 0; i < count; i++)
        c->visit[c->starts[c->group[i]]++] = visit[i]; /* starts become ends */
    return touched;
}

/* Let a group learn from visits. Returns a status of the kernel, and where it refused a row its slot. */
static int learn(CorgiCompany *c, const CorgiRun *run, int64 k, const int32 *visit, int64 count, int32 *refused)
{
    CorgiLearner *one = learner_of(c, k);
    const cp_figures before = corgi_learner_figures(one);
    cp_figures after;
    int status = CP_SGD_OK;
    int64 done = 0;
    corgi_learner_count(one, run, visit, count);
    while (status == CP_SGD_OK && done < count) {
        status = corgi_learner_learn(one, run, visit, count, &done);
        if (corgi_learner_skips(run, status)) {
            status = CP_SGD_OK;
            c->skipped[k]++;
            done++;
        }
    }
    if (status == CP_SGD_DIVERGED && corgi_learner_is_tried(one)) {
        c->failed[k] = true;
        return CP_SGD_OK;
    }
    *refused = status != CP_SGD_OK ? visit[done] : 0;
    after = corgi_learner_figures(one);
    c->so_far.rows += after.rows - before.rows;
    c->so_far.loss += after.loss * after.weight - before.loss * before.weight;
    c->so_far.weight += after.weight - before.weight;
    return status;
}

/* Learn from some of the rows by slot, from visit[*done] on, which is moved on. Returns a status of the kernel. A thread may call
 * this. */
int corgi_company_learn(CorgiCompany *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done, int32 *refused)
{
    const int64 piece = Min(count - *done, PIECE), touched = deal(c, run->buffer.group, visit + *done, piece);
    int status = CP_SGD_OK;
    int32 from = 0;
    for (int64 t = 0; t < touched; t++) {
        const int32 k = c->touched[t], to = c->starts[k];
        c->starts[k] = 0;
        if (status == CP_SGD_OK && c->running[k] && !c->failed[k])
            status = learn(c, run, k, c->visit + from, to - from, refused);
        from = to;
    }
    *done += piece;
    return status;
}

/* Return the figures of the pass so far, as progress shows them: of rows and loss. */
cp_figures corgi_company_so_far(const CorgiCompany *c)
{
    cp_figures so_far = c->so_far;
    so_far.loss /= so_far.weight > 0 ? so_far.weight : 1;
    return so_far;
}

/* End a pass. Returns the figures of all groups together, and how many rows were left out. */
cp_figures corgi_company_end(CorgiCompany *c, int64 *skipped)
{
    *skipped = 0;
    for (int64 k = 0; k < c->count; k++) {
        if (c->running[k])
            c->figures[k] = corgi_learner_end(learner_of(c, k));
        *skipped += c->skipped[k];
    }
    return together(c->figures, c->count);
}

/* Say which groups begin again, those together that do so at the same rate. */
static void tell_rates(const CorgiCompany *c, const CorgiRun *run, const double *before)
{
    bool *which = palloc_extended((Size) c->count, MCXT_ALLOC_HUGE), *told = palloc_extended((Size) c->count, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 first = 0; first < c->count; first++) {
        int64 found = 0;
        if (!c->running[first] || told[first])
            continue;
        for (int64 k = 0; k < c->count; k++) {
            which[k] = c->running[k] && before[k] == before[first] && c->rate[k] == c->rate[first];
            told[k] |= which[k];
            found += which[k];
        }
        ereport(WARNING, errmsg("%s", corgi_why_rate(before[first], c->rate[first],
                                                     psprintf(" in " INT64_FORMAT " of " INT64_FORMAT " groups of \"%s\", %s", found, c->count,
                                                              run->options.by, corgi_name_groups(run->groups, which)))));
    }
    pfree(told);
    pfree(which);
}

/* Change the rates of groups where nobody chose them and they diverged or are small for the labels: these forget all and are the
 * only ones to run in the next pass. Returns whether there are any; else all run. */
bool corgi_company_change(CorgiCompany *c, const CorgiRun *run)
{
    double *before = palloc_extended((Size) c->count * sizeof *before, MCXT_ALLOC_HUGE);
    int64 again = 0;
    memcpy(before, c->rate, sizeof *before * (Size) c->count);
    for (int64 k = 0; k < c->count; k++) {
        double rate = !c->running[k] ? 0 : corgi_learner_again(c->each[k], run, before[k], c->failed[k] ? NAN : c->figures[k].loss);
        c->running[k] = rate > 0;
        if (!c->running[k])
            continue;
        c->rate[k] = rate;
        corgi_learner_forget(c->each[k], run);
        again++;
    }
    if (again > 0) {
        tell_rates(c, run, before);
        corgi_progress_again(run);
    }
    pfree(before);
    if (again > 0)
        return true;
    for (int64 k = 0; k < c->count; k++)
        c->running[k] = true;
    return false;
}

/* Go on at lower rates, in groups whose loss stands still for theirs, where nobody chose one: as corgi_settle_rate. */
void corgi_company_settle(CorgiCompany *c, const CorgiRun *run)
{
    int64 lowered = 0;
    c->epochs++;
    for (int64 k = 0; k < c->count; k++) {
        const double lower = cp_sgd_lowered(c->rate[k]);
        c->losses[k][0] = c->losses[k][1];
        c->losses[k][1] = c->figures[k].loss;
        if (!run->options.adaptive || lower == 0 || c->epochs < 2 || !corgi_learner_rests(c->each[k], c->losses[k], 2))
            continue;
        c->rate[k] = lower;
        lowered++;
    }
    if (lowered > 0)
        ereport(NOTICE, errmsg("the loss of " INT64_FORMAT " of " INT64_FORMAT " groups stands still; they go on with a fifth of "
                               "the learning rate", lowered, c->count));
}

/* Copy what was learnt, one group behind the other, for rows as they are. */
void corgi_company_get(const CorgiCompany *c, const CorgiRun *run, double *coefficients, double *intercepts)
{
    const int64 outputs = corgi_learner_outputs(c->each[0]);
    for (int64 k = 0; k < c->count; k++)
        corgi_get_folded(run, c->each[k], coefficients + k * outputs * run->survey.width, intercepts + k * outputs);
}

/* Write the models as they were learnt, of standardised features: lines as of corgi_get_learnt, of those that predict. */
void corgi_company_learnt(const CorgiCompany *c, const CorgiRun *run, double *to)
{
    const int64 outputs = corgi_learner_outputs(c->each[0]), width = run->survey.width, line = width + 1;
    double *coefficients = MemoryContextAllocHuge(CurrentMemoryContext, sizeof *coefficients * (Size) (outputs * line));
    corgi_write_scaling(run, to);
    for (int64 k = 0; k < c->count; k++) {
        corgi_learner_get(c->each[k], false, coefficients, coefficients + outputs * width);
        for (int64 i = 0; i < outputs; i++) {
            double *at = to + (k * outputs + i + 2) * line;
            memcpy(at, coefficients + i * width, sizeof *at * (Size) width);
            at[width] = coefficients[outputs * width + i];
        }
    }
    pfree(coefficients);
}

/* Say of groups what is to be known of their models. */
void corgi_company_tell(const CorgiCompany *c, const CorgiRun *run) { corgi_tell_groups(run, c->figures); }

/* Write numbers with all their digits, whole ones as none that are counted; what JSON has no number for is null. */
static void write_number(StringInfo json, int64 at, double number)
{
    const char *text = isfinite(number) ? double_to_shortest_decimal(number) : "null";
    appendStringInfo(json, "%s%s%s", at ? ", " : "", text, isfinite(number) && strpbrk(text, ".e") == NULL ? ".0" : "");
}

/* Write the rate: of all groups, or the list of them. */
static void write_rates(StringInfo json, const CorgiCompany *c)
{
    bool same = true;
    for (int64 k = 0; k < c->count; k++)
        same &= c->rate[k] == c->rate[0];
    appendStringInfo(json, ", \"learning_rate\": %s", same ? double_to_shortest_decimal(c->rate[0]) : "null, \"learning_rates\": [");
    for (int64 k = 0; k < c->count && !same; k++)
        write_number(json, k, c->rate[k]);
    appendStringInfoString(json, same ? "" : "]");
}

/* Write what a model file says of groups: their rates, values and figures. */
void corgi_write_company(StringInfo json, const CorgiCompany *c, const CorgiRun *run)
{
    write_rates(json, c);
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
