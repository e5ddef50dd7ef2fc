/* Groups of models by group: the distinct values of a column, and each training row's group.
 * Equivalent to corgipile.linear.group_values in Python. The survey collects them, so that no epoch reads the column
 * again. */
#include "corgipile.h"

#include "common/hashfn.h"
#include "lib/hyperloglog.h"
#include "utils/memutils.h"

enum { MAX_GROUPS = 1 << 20, HLL_BITS = 14 /* bits: counts are within about 1 % */ };

static const double max_negative_r2 = 0.05; /* of R2: one epoch alone rarely falls so far below 0 */

struct CorgiGroups {
    CorgiColumn by;
    CorgiNames *values;     /* distinct values except null, as text; ascending once settled */
    bool null;              /* null is a value too, the last */
    CorgiCodes *codes;      /* by training row; until settled, 0 for null or 1 + index in values */
    hyperLogLogState *sketch; /* NULL until there are too many; then counts them for the error's advice */
};

/* Start collecting groups if models by group are requested. */
void corgi_begin_groups(CorgiRun *run)
{
    CorgiGroups *g;
    if (run->options.by == NULL)
        return;
    g = run->groups = palloc0(sizeof *g);
    g->by = run->source.by;
    g->values = corgi_make_names();
    g->codes = corgi_make_codes();
}

/* Return the number of groups. */
int64 corgi_group_count(const CorgiGroups *g) { return g->values->count + g->null; }

/* Return the number of training rows of each group. */
int64 *corgi_group_rows(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    int64 *count = palloc_extended((Size) corgi_group_count(g) * sizeof *count, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 i = 0; i < g->codes->rows; i++)
        count[corgi_code_at(g->codes, i)]++;
    return count;
}

/* Return the share of buffer_size that groups and their models take. */
int64 corgi_groups_bytes(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    return corgi_group_count(g) * corgi_member_bytes(run) + (int64) g->values->bytes + corgi_codes_bytes(g->codes);
}

static void refuse_values(const CorgiGroups *g)
{
    ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
            errmsg("column \"%s\" has more than %d values, too many for groups", g->by.name, MAX_GROUPS));
}

/* Refuse groups whose models and row codes take more than half of buffer_size. */
static void refuse_groups(const CorgiRun *run, int64 groups)
{
    const CorgiGroups *g = run->groups;
    const int64 names = (int64) ((double) g->values->bytes / (double) Max(g->values->count, 1) * (double) groups);
    const int64 models = groups * corgi_member_bytes(run) + names;
    const int64 codes = g->codes->rows * (groups <= PG_UINT8_MAX ? 1 : groups <= PG_UINT16_MAX ? 2 : 4);
    ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
            errmsg("buffer_size is " INT64_FORMAT " kB, of which models of %s" INT64_FORMAT
                   " groups of \"%s\" take " INT64_FORMAT " kB and the groups of rows " INT64_FORMAT
                   " kB; half of it is for them",
                   run->options.buffer_bytes / 1024, g->sketch ? "about " : "", groups, g->by.name, models / 1024 + 1,
                   codes / 1024 + 1),
            errhint("Give buffer_size => '" INT64_FORMAT "kB', or a column of fewer values.",
                    2 * (models + codes) / 1024 + 2));
}

static bool groups_fit(const CorgiRun *run) { return corgi_groups_bytes(run) <= run->options.buffer_bytes / 2; }

static void count_value(CorgiGroups *g, const char *text, Size length)
{
    addHyperLogLog(g->sketch, hash_bytes((const unsigned char *) text, (int) length));
}

/* Give up collecting groups and only count them. */
static void count_only(CorgiGroups *g)
{
    /* the current context ends with the block */
    MemoryContext outside = MemoryContextSwitchTo(GetMemoryChunkContext(g));
    g->sketch = palloc(sizeof *g->sketch);
    initHyperLogLog(g->sketch, HLL_BITS);
    MemoryContextSwitchTo(outside);
    for (int64 i = 0; i < g->values->count; i++)
        count_value(g, g->values->names[i].text, g->values->names[i].length);
    corgi_drop_codes(g->codes);
}

/* Refuse counted groups. Adds a margin, so that the advised size suffices. */
static void refuse_counted(const CorgiRun *run)
{
    const double estimate = estimateHyperLogLog(run->groups->sketch) * 1.05 + 1;
    if (estimate > MAX_GROUPS)
        refuse_values(run->groups);
    refuse_groups(run, Max((int64) estimate, corgi_group_count(run->groups)));
}

/* Add the group of the next training row. */
void corgi_note_group(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    CorgiGroups *g = run->groups;
    const int64 before = corgi_group_count(g);
    int64 code = 0;
    Size length;
    bool null, grows;
    Datum value = slot_getattr(row, part->by.attnum, &null);
    const char *text = null ? NULL : corgi_text_of(part->by.type, value, &length);
    g->null |= null;
    if (g->sketch != NULL) {
        g->codes->rows++;
        if (!null)
            count_value(g, text, length);
        return;
    }
    if (!null)
        code = 1 + corgi_add_name(g->values, text, length);
    if (g->values->count > MAX_GROUPS)
        refuse_values(g);
    grows = corgi_add_code(g->codes, code);
    if ((grows || corgi_group_count(g) > before) && !groups_fit(run))
        count_only(g);
}

/* Sort the groups as Python does after the last row: ascending, null last. */
void corgi_settle_groups(CorgiRun *run)
{
    CorgiGroups *g = run->groups;
    int64 count;
    int32 *rank;
    CorgiName *before;
    if (g == NULL)
        return;
    if (g->sketch != NULL)
        refuse_counted(run);
    count = g->values->count;
    rank = palloc_extended(sizeof *rank * (Size) (count + 1), MCXT_ALLOC_HUGE);
    before = palloc_extended(sizeof *before * (Size) Max(count, 1), MCXT_ALLOC_HUGE);
    memcpy(before, g->values->names, sizeof *before * (Size) count);
    corgi_sort_values(g->values, g->by.type);
    rank[0] = (int32) count;
    for (int64 i = 0; i < count; i++)
        rank[i + 1] = (int32) corgi_find_name(g->values, before[i].text, before[i].length);
    corgi_number_codes(g->codes, rank);
    pfree(before);
    pfree(rank);
    if (!groups_fit(run))
        refuse_groups(run, corgi_group_count(g));
}

/* Return the group of a training row by its number. */
int32 corgi_group_of(const CorgiGroups *g, int64 row) { return (int32) corgi_code_at(g->codes, row); }

static void write_value(StringInfo json, const CorgiGroups *g, int64 at)
{
    corgi_write_value(json, at < g->values->count ? g->values->names[at].text : NULL, g->by.type);
}

/* Write the values as a JSON array. */
void corgi_write_groups(StringInfo json, const CorgiGroups *g)
{
    appendStringInfoChar(json, '[');
    for (int64 i = 0; i < corgi_group_count(g); i++) {
        appendStringInfoString(json, i ? ", " : "");
        write_value(json, g, i);
    }
    appendStringInfoChar(json, ']');
}

/* Return a group's name. */
char *corgi_group_name(const CorgiGroups *g, int64 at)
{
    StringInfoData name;
    initStringInfo(&name);
    write_value(&name, g, at);
    return name.data;
}

/* Report groups with too few training rows. */
static void report_small_groups(const CorgiRun *run, const cp_figures *each, bool *which)
{
    static const char *const what[] = {"no row that can be learnt from; their models say the same of every row",
                                       "one row"};
    const int64 count = corgi_group_count(run->groups);
    for (int64 rows = 0; rows < lengthof(what); rows++) {
        int64 affected = 0;
        for (int64 k = 0; k < count; k++)
            affected += which[k] = each[k].rows == rows;
        if (affected > 0)
            ereport(NOTICE, errmsg(INT64_FORMAT " of " INT64_FORMAT " groups of \"%s\" have %s: %s", affected, count,
                                   run->options.by, what[rows], corgi_list_models(run, which)));
    }
}

/* Report groups whose models are worse than the mean of their labels, as corgi_warn_no_better does for one model. */
static void report_weak_groups(const CorgiRun *run, const cp_figures *each, bool *which)
{
    const cp_loss_choice *of = &run->options.of;
    const int64 count = corgi_group_count(run->groups);
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
                       affected, count, run->options.by, corgi_list_models(run, which), each[first].score),
                errhint("Try another learning_rate, or more epochs."));
}

/* Report conspicuous groups, by the metrics of the last epoch. */
void corgi_report_groups(const CorgiRun *run, const cp_figures *each)
{
    bool *which = palloc_extended((Size) corgi_group_count(run->groups), MCXT_ALLOC_HUGE);
    report_small_groups(run, each, which);
    report_weak_groups(run, each, which);
    pfree(which);
}
