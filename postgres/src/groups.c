/* Which groups of rows there are, the values of a column, and of which each row to learn from is: as
 * corgipile.linear.group_values has it in Python. They are found in the survey, so that no epoch reads the column again. */
#include "corgipile.h"

#include "utils/memutils.h"

enum { MOST_GROUPS = 1 << 20 };

struct CorgiGroups {
    CorgiColumn by;
    CorgiNames *values;     /* but null, as text; ascending once settled */
    bool null;              /* a value of its own, the last */
    CorgiCodes *codes;      /* by row to learn from: until settled 0 of null, else 1 + place in values */
    bool settled;           /* all rows are seen */
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

/* Refuse groups whose models, and the group of each row, take more than half of buffer_size. */
static void check_room(const CorgiRun *run)
{
    const CorgiGroups *g = run->groups;
    int64 taken = corgi_groups_bytes(run), codes = corgi_codes_bytes(g->codes);
    if (taken <= run->options.buffer_bytes / 2)
        return;
    ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
            errmsg("buffer_size is " INT64_FORMAT " kB, of which models of " INT64_FORMAT "%s groups of \"%s\" take " INT64_FORMAT
                   " kB and the groups of rows " INT64_FORMAT " kB; half of it is for them",
                   run->options.buffer_bytes / 1024, corgi_group_count(g), g->settled ? "" : " or more", g->by.name,
                   (taken - codes) / 1024 + 1, codes / 1024 + 1),
            g->settled ? errhint("Give buffer_size => '" INT64_FORMAT "kB', or a column of fewer values.", 2 * taken / 1024 + 2)
                       : errhint("Give a larger buffer_size, or a column of fewer values."));
}

/* Take in the group of the next row to learn from. */
void corgi_note_group(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    CorgiGroups *g = run->groups;
    int64 before = corgi_group_count(g), code = 0;
    bool null;
    Datum value = slot_getattr(row, part->by.attnum, &null);
    if (!null) {
        Size length;
        const char *text = corgi_text_of(part->by.type, value, &length);
        code = 1 + corgi_add_name(g->values, text, length);
    }
    g->null |= null;
    if (g->values->count > MOST_GROUPS)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("column \"%s\" has more than %d values, too many for groups", g->by.name, MOST_GROUPS));
    if (corgi_codes_full(g->codes))
        check_room(run);
    corgi_add_code(g->codes, code);
    if (corgi_group_count(g) > before)
        check_room(run);
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
    g->settled = true;
    check_room(run);
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
