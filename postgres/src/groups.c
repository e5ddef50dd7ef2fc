/* Which groups of rows there are, the values of a column, and of which each row to learn from is: as
 * corgipile.linear.group_values has it in Python. They are found in the survey, so that no epoch reads the column again. */
#include "corgipile.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "lib/hyperloglog.h"
#include "utils/json.h"
#include "utils/memutils.h"

enum { MOST_GROUPS = 1 << 20, FIRST_ROWS = 1024, TOLD = 5, COUNTERS = 14 /* bits: a count is about 1 % off */ };

static const double SLIGHT = 0.05; /* of R2: so much below 0 is no accident of one epoch */

struct CorgiGroups {
    CorgiColumn by;
    CorgiNames *values;     /* but null, as text; ascending once settled */
    bool null;              /* a value of its own, the last */
    char *codes;            /* by row to learn from, of `bytes` bytes: until settled 0 of null, else 1 + place in values */
    int bytes;
    int64 rows, room;
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
    g->bytes = 1;
    g->room = FIRST_ROWS;
    g->codes = palloc((Size) g->room);
}

static int64 code_at(const CorgiGroups *g, int64 row)
{
    switch (g->bytes) {
    case 1: return ((const uint8 *) g->codes)[row];
    case 2: return ((const uint16 *) g->codes)[row];
    default: return ((const int32 *) g->codes)[row];
    }
}

static void put_code(CorgiGroups *g, int64 row, int64 code)
{
    switch (g->bytes) {
    case 1: ((uint8 *) g->codes)[row] = (uint8) code; break;
    case 2: ((uint16 *) g->codes)[row] = (uint16) code; break;
    default: ((int32 *) g->codes)[row] = (int32) code;
    }
}

/* Make codes wide enough for one. */
static void widen(CorgiGroups *g, int64 code)
{
    CorgiGroups wide = *g;
    if (code <= (g->bytes == 1 ? PG_UINT8_MAX : g->bytes == 2 ? PG_UINT16_MAX : PG_INT32_MAX))
        return;
    wide.bytes = code <= PG_UINT16_MAX ? 2 : 4;
    wide.codes = MemoryContextAllocHuge(GetMemoryChunkContext(g->codes), (Size) (wide.room * wide.bytes));
    for (int64 i = 0; i < g->rows; i++)
        put_code(&wide, i, code_at(g, i));
    pfree(g->codes);
    *g = wide;
}

/* Return how many groups there are; 1 where there is one model. */
int64 corgi_group_count(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    return g ? g->values->count + g->null : 1;
}

/* Return how many rows to learn from each group has. */
int64 *corgi_group_rows(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    int64 *count = palloc_extended((Size) corgi_group_count(run) * sizeof *count, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 i = 0; i < g->rows; i++)
        count[code_at(g, i)]++;
    return count;
}

/* Return what of buffer_size groups and their models take. */
int64 corgi_groups_bytes(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    if (g == NULL)
        return 0;
    return corgi_group_count(run) * corgi_member_bytes(run) + (int64) g->values->bytes + g->rows * g->bytes;
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
    const int64 codes = g->rows * (groups <= PG_UINT8_MAX ? 1 : groups <= PG_UINT16_MAX ? 2 : 4);
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
    g->seen = MemoryContextAlloc(GetMemoryChunkContext(g->codes), sizeof *g->seen);
    initHyperLogLog(g->seen, COUNTERS);
    for (int64 i = 0; i < g->values->count; i++)
        note_seen(g, g->values->names[i].text, g->values->names[i].length);
    pfree(g->codes);
    g->codes = NULL;
}

/* Refuse groups that were counted: some more than that, so that what is advised will do. */
static void refuse_counted(const CorgiRun *run)
{
    const double found = estimateHyperLogLog(run->groups->seen) * 1.05 + 1;
    if (found > MOST_GROUPS)
        refuse_values(run->groups);
    refuse(run, Max((int64) found, corgi_group_count(run)));
}

/* Take in a code; say whether they took more memory for it. */
static bool note_code(CorgiGroups *g, int64 code)
{
    const bool grows = g->rows == g->room;
    widen(g, code);
    if (grows) {
        g->room += g->room / 4 + 1024;
        g->codes = repalloc_huge(g->codes, (Size) (g->room * g->bytes));
    }
    put_code(g, g->rows++, code);
    return grows;
}

/* Take in the group of the next row to learn from. */
void corgi_note_group(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    CorgiGroups *g = run->groups;
    const int64 before = corgi_group_count(run);
    int64 code = 0;
    Size length;
    bool null, grows;
    Datum value = slot_getattr(row, part->by.attnum, &null);
    const char *text = null ? NULL : corgi_text_of(part->by.type, value, &length);
    g->null |= null;
    if (g->seen != NULL) {
        g->rows++;
        if (!null)
            note_seen(g, text, length);
        return;
    }
    if (!null)
        code = 1 + corgi_add_name(g->values, text, length);
    if (g->values->count > MOST_GROUPS)
        refuse_values(g);
    grows = note_code(g, code);
    if ((grows || corgi_group_count(run) > before) && !has_room(run))
        count_only(g);
}

typedef struct {
    int64 number, at;
} Whole;

static int by_number(const void *a, const void *b)
{
    const Whole *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Sort values that are whole numbers, of which doubles do not tell large ones apart. */
static CorgiNames *sorted_numbers(const CorgiNames *n)
{
    Whole *numbers = palloc_extended(sizeof *numbers * (Size) Max(n->count, 1), MCXT_ALLOC_HUGE);
    CorgiNames *sorted = corgi_make_names();
    for (int64 i = 0; i < n->count; i++)
        numbers[i] = (Whole){strtoll(n->names[i].text, NULL, 10), i};
    qsort(numbers, (size_t) n->count, sizeof *numbers, by_number);
    for (int64 i = 0; i < n->count; i++)
        corgi_add_name(sorted, n->names[numbers[i].at].text, n->names[numbers[i].at].length);
    pfree(numbers);
    return sorted;
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
    if (corgi_is_text(g->by.type))
        corgi_sort_names(g->values, false);
    else
        g->values = sorted_numbers(g->values);
    rank[0] = (int32) count;
    for (int64 i = 0; i < count; i++)
        rank[i + 1] = (int32) corgi_find_name(g->values, before[i].text, before[i].length);
    for (int64 i = 0; i < g->rows; i++)
        put_code(g, i, rank[code_at(g, i)]);
    pfree(before);
    pfree(rank);
    if (g->rows < g->room)
        g->codes = repalloc_huge(g->codes, (Size) (Max(g->rows, 1) * g->bytes));
    g->room = Max(g->rows, 1);
    if (!has_room(run))
        refuse(run, corgi_group_count(run));
}

/* Return the group of a row to learn from, by its number among them. */
int32 corgi_group_of(const CorgiGroups *g, int64 row) { return (int32) code_at(g, row); }

static void write_value(StringInfo json, const CorgiGroups *g, int64 at)
{
    const char *text = at < g->values->count ? g->values->names[at].text : NULL;
    if (text == NULL)
        appendStringInfoString(json, "null");
    else if (corgi_is_text(g->by.type))
        escape_json(json, text);
    else if (g->by.type == BOOLOID)
        appendStringInfoString(json, *text == '0' ? "false" : "true");
    else
        appendStringInfoString(json, text);
}

/* Write the values as a JSON array. */
void corgi_write_groups(StringInfo json, const CorgiGroups *g)
{
    appendStringInfoChar(json, '[');
    for (int64 i = 0; i < g->values->count + g->null; i++) {
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

/* Name some of the groups: the first ones, and how many more. */
char *corgi_name_groups(const CorgiGroups *g, const bool *which)
{
    StringInfoData names;
    int64 found = 0;
    initStringInfo(&names);
    for (int64 i = 0; i < g->values->count + g->null; i++) {
        if (!which[i] || found++ >= TOLD)
            continue;
        appendStringInfoString(&names, found > 1 ? ", " : "");
        write_value(&names, g, i);
    }
    if (found > TOLD)
        appendStringInfo(&names, " and " INT64_FORMAT " more", found - TOLD);
    return names.data;
}

/* Say of which groups there was too little to learn from. */
static void tell_few(const CorgiRun *run, const cp_figures *each, bool *which)
{
    static const char *const what[] = {"no row that can be learnt from; their models say the same of every row", "one row"};
    const int64 count = corgi_group_count(run);
    for (int64 rows = 0; rows < lengthof(what); rows++) {
        int64 found = 0;
        for (int64 k = 0; k < count; k++)
            found += which[k] = each[k].rows == rows;
        if (found > 0)
            ereport(NOTICE, errmsg(INT64_FORMAT " of " INT64_FORMAT " groups of \"%s\" have %s: %s", found, count,
                                   run->options.by, what[rows], corgi_name_groups(run->groups, which)));
    }
}

/* Name groups whose models are worse than the mean of their labels, as corgi_tell_chance does of one model. */
static void tell_chance(const CorgiRun *run, const cp_figures *each, bool *which)
{
    const cp_loss_choice *of = &run->options.of;
    const int64 count = corgi_group_count(run);
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
                               found, count, run->options.by, corgi_name_groups(run->groups, which), each[first].score),
                errhint("Try another learning_rate, or more epochs."));
}

/* Say of groups what is to be known of their models, by the figures of the last epoch. */
void corgi_tell_groups(const CorgiRun *run, const cp_figures *each)
{
    bool *which = palloc_extended((Size) corgi_group_count(run), MCXT_ALLOC_HUGE);
    tell_few(run, each, which);
    tell_chance(run, each, which);
    pfree(which);
}
