/* Which groups of rows there are, the values of a column, and of which each row to learn from is: as
 * corgipile.linear.group_values has it in Python. They are found in the survey, so that no epoch reads the column again. */
#include "corgipile.h"

#include "common/hashfn.h"
#include "lib/hyperloglog.h"
#include "utils/memutils.h"

enum { MOST_GROUPS = 1 << 20, COUNTERS = 14 /* bits: a count is about 1 % off */ };

static const double SLIGHT = 0.05; /* of R2: so much below 0 is no accident of one epoch */

struct CorgiGroups {
    CorgiColumn by;
    CorgiNames *values;     /* but null, as text; ascending once settled */
    bool null;              /* a value of its own, the last */
    CorgiCodes *codes;      /* by row to learn from: until settled 0 of null, else 1 + place in values */
    hyperLogLogState *seen; /* NULL unless there are too many: they are counted then, to say what would do */
};

/* Begin to find groups, where models by group are asked for. */
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

/* Return how many groups there are. */
int64 corgi_group_count(const CorgiGroups *g) { return g->values->count + g->null; }

/* Return how many rows to learn from each group has. */
int64 *corgi_group_rows(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    int64 *count = palloc_extended((Size) corgi_group_count(g) * sizeof *count, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 i = 0; i < g->codes->rows; i++)
        count[corgi_code_at(g->codes, i)]++;
    return count;
}

/* Return what of buffer_size groups and their models take. */
int64 corgi_groups_bytes(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    return corgi_group_count(g) * corgi_member_bytes(run) + (int64) g->values->bytes + corgi_codes_bytes(g->codes);
}

static void refuse_values(const CorgiGroups *g)
{
    ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
            errmsg("column \"%s\" has more than %d values, too many for groups", g->by.name, MOST_GROUPS));
}

/* Refuse so many groups, whose models, and the group of each row, take more than half of buffer_size. */
static void refuse(const CorgiRun *run, int64 groups)
{
    const CorgiGroups *g = run->groups;
    const int64 names = (int64) ((double) g->values->bytes / (double) Max(g->values->count, 1) * (double) groups);
    const int64 models = groups * corgi_member_bytes(run) + names;
    const int64 codes = g->codes->rows * (groups <= PG_UINT8_MAX ? 1 : groups <= PG_UINT16_MAX ? 2 : 4);
    ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
            errmsg("buffer_size is " INT64_FORMAT " kB, of which models of %s" INT64_FORMAT " groups of \"%s\" take " INT64_FORMAT
                   " kB and the groups of rows " INT64_FORMAT " kB; half of it is for them",
                   run->options.buffer_bytes / 1024, g->seen ? "about " : "", groups, g->by.name, models / 1024 + 1,
                   codes / 1024 + 1),
            errhint("Give buffer_size => '" INT64_FORMAT "kB', or a column of fewer values.", 2 * (models + codes) / 1024 + 2));
}

static bool has_room(const CorgiRun *run) { return corgi_groups_bytes(run) <= run->options.buffer_bytes / 2; }

static void note_seen(CorgiGroups *g, const char *text, Size length)
{
    addHyperLogLog(g->seen, hash_bytes((const unsigned char *) text, (int) length));
}

/* Give up finding groups, of which there are too many, and count them instead. */
static void count_only(CorgiGroups *g)
{
    MemoryContext outside = MemoryContextSwitchTo(GetMemoryChunkContext(g)); /* what is at hand goes with the block */
    g->seen = palloc(sizeof *g->seen);
    initHyperLogLog(g->seen, COUNTERS);
    MemoryContextSwitchTo(outside);
    for (int64 i = 0; i < g->values->count; i++)
        note_seen(g, g->values->names[i].text, g->values->names[i].length);
    corgi_drop_codes(g->codes);
}

/* Refuse groups that were counted: some more than that, so that what is advised will do. */
static void refuse_counted(const CorgiRun *run)
{
    const double found = estimateHyperLogLog(run->groups->seen) * 1.05 + 1;
    if (found > MOST_GROUPS)
        refuse_values(run->groups);
    refuse(run, Max((int64) found, corgi_group_count(run->groups)));
}

/* Take in the group of the next row to learn from. */
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
    if (g->seen != NULL) {
        g->codes->rows++;
        if (!null)
            note_seen(g, text, length);
        return;
    }
    if (!null)
        code = 1 + corgi_add_name(g->values, text, length);
    if (g->values->count > MOST_GROUPS)
        refuse_values(g);
    grows = corgi_add_code(g->codes, code);
    if ((grows || corgi_group_count(g) > before) && !has_room(run))
        count_only(g);
}

/* Put groups into the order of Python, once all rows are seen: ascending, null last. */
void corgi_settle_groups(CorgiRun *run)
{
    CorgiGroups *g = run->groups;
    int64 count;
    int32 *rank;
    CorgiName *before;
    if (g == NULL)
        return;
    if (g->seen != NULL)
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
    if (!has_room(run))
        refuse(run, corgi_group_count(g));
}

/* Return the group of a row to learn from, by its number among them. */
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

/* Return how a group is called. */
char *corgi_group_name(const CorgiGroups *g, int64 at)
{
    StringInfoData name;
    initStringInfo(&name);
    write_value(&name, g, at);
    return name.data;
}

/* Say of which groups there was too little to learn from. */
static void tell_few(const CorgiRun *run, const cp_figures *each, bool *which)
{
    static const char *const what[] = {"no row that can be learnt from; their models say the same of every row", "one row"};
    const int64 count = corgi_group_count(run->groups);
    for (int64 rows = 0; rows < lengthof(what); rows++) {
        int64 found = 0;
        for (int64 k = 0; k < count; k++)
            found += which[k] = each[k].rows == rows;
        if (found > 0)
            ereport(NOTICE, errmsg(INT64_FORMAT " of " INT64_FORMAT " groups of \"%s\" have %s: %s", found, count,
                                   run->options.by, what[rows], corgi_name_models(run, which)));
    }
}

/* Name groups whose models are worse than the mean of their labels, as corgi_tell_chance does of one model. */
static void tell_chance(const CorgiRun *run, const cp_figures *each, bool *which)
{
    const cp_loss_choice *of = &run->options.of;
    const int64 count = corgi_group_count(run->groups);
    int64 found = 0, first = 0;
    if (!corgi_predicts_numbers(of) || !cp_losses[of->loss].of_mean)
        return;
    for (int64 k = count - 1; k >= 0; k--)
        if ((which[k] = each[k].rows > 1 && each[k].score < -SLIGHT)) {
            found++;
            first = k;
        }
    if (found > 0)
        ereport(NOTICE, errmsg("the models of " INT64_FORMAT " of " INT64_FORMAT " groups of \"%s\" are no better than the mean of "
                               "their labels, %s: R2 of the first is %.4g",
                               found, count, run->options.by, corgi_name_models(run, which), each[first].score),
                errhint("Try another learning_rate, or more epochs."));
}

/* Say of groups what is to be known of their models, by the figures of the last epoch. */
void corgi_tell_groups(const CorgiRun *run, const cp_figures *each)
{
    bool *which = palloc_extended((Size) corgi_group_count(run->groups), MCXT_ALLOC_HUGE);
    tell_few(run, each, which);
    tell_chance(run, each, which);
    pfree(which);
}
