/* Members of several models: the values of a group column, or the labels. Rows with equal labels share a set.
 * Equivalent to corgipile.linear.group_values and label_sets in Python. The survey collects them, so that no epoch
 * reads the column again. */
#include "codes.h"
#include "members.h"
#include "model_stack.h"

#include "common/hashfn.h"
#include "lib/hyperloglog.h"
#include "utils/memutils.h"

enum { MAX_MEMBERS = 1 << 20, HLL_BITS = 14 /* bits: counts are within about 1 % */ };
enum { SET_BYTES = 3 * sizeof(int32) + 16 }; /* bytes of a set besides its name */

struct CorgiMembers {
    const char *column;     /* group column or array column; NULL if each label has its own column */
    Oid type;
    CorgiNames *names;      /* distinct values except null, as text; ascending once settled */
    bool null;              /* null is a group too, the last */
    CorgiCodes *codes;      /* by training row: its group, or set of labels; unsettled groups: 1 + name, 0 for null */
    CorgiNames *sets;       /* label numbers of each set, ascending; in Python's order once settled; NULL for groups */
    uint8 *has;             /* [sets][labels] once settled */
    CorgiTags tags;         /* of the last row */
    hyperLogLogState *sketch; /* NULL until there are too many groups; then counts them for the error's advice */
    bool settled;           /* all rows are read */
};

/* Start collecting members if several models are requested. */
void corgi_begin_members(CorgiRun *run)
{
    const CorgiSource *s = &run->source;
    if (run->options.by == NULL && s->labels == NULL)
        return;
    CorgiMembers *m = run->members = palloc0(sizeof *m);
    m->names = corgi_make_names();
    m->codes = corgi_make_codes();
    m->column = s->labels == NULL ? s->by.name : s->labels->list ? s->labels->name : NULL;
    m->type = s->labels ? corgi_label_type(s) : s->by.type;
    if (s->labels == NULL)
        return;
    m->sets = corgi_make_names();
    m->tags = corgi_make_tags();
    for (int i = 0; m->column == NULL && i < s->label_columns; i++)
        corgi_add_name(m->names, s->labels[i].name, strlen(s->labels[i].name));
}

bool corgi_are_labels(const CorgiMembers *m) { return m != NULL && m->sets != NULL; }

static int64 count_of(const CorgiMembers *m) { return m->names->count + m->null; }

/* Return the number of models. */
int64 corgi_model_count(const CorgiRun *run) { return run->members ? count_of(run->members) : 1; }

static int64 *rows_per_code(const CorgiMembers *m, int64 codes)
{
    int64 *rows = palloc_extended((Size) Max(codes, 1) * sizeof *rows, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 i = 0; i < m->codes->rows; i++)
        rows[corgi_code_at(m->codes, i)]++;
    return rows;
}

/* Return the number of training rows of each model; NULL if all models learn from all rows. */
int64 *corgi_rows_per_model(const CorgiRun *run)
{
    const CorgiMembers *m = run->members;
    return m == NULL || m->sets != NULL ? NULL : rows_per_code(m, count_of(m));
}

/* Return the bytes of `count` models with their names. */
static int64 bytes_of_models(const CorgiRun *run, int64 count)
{
    const CorgiMembers *m = run->members;
    const int64 each = corgi_learner_size(run) + CORGI_MODEL_BYTES + (m->sets ? CORGI_LABEL_BYTES : 0);
    const double name = (double) m->names->bytes / (double) Max(m->names->count, 1);
    return count * each + (count == count_of(m) ? (int64) m->names->bytes : (int64) (name * (double) count));
}

/* Return the bytes of the rows' members, with codes wide enough for `count` groups. */
static int64 bytes_of_rows(const CorgiMembers *m, int64 count)
{
    const int width = m->sketch == NULL ? m->codes->width : count <= PG_UINT8_MAX ? 1 : count <= PG_UINT16_MAX ? 2 : 4;
    return m->codes->rows * width +
           (m->sets == NULL ? 0
                            : (int64) m->sets->bytes + m->sets->count * ((int64) (sizeof *m->sets->names + SET_BYTES) +
                                                                         m->names->count));
}

/* Return the share of buffer_size that several models and their row assignments take. */
int64 corgi_members_bytes(const CorgiRun *run)
{
    const CorgiMembers *m = run->members;
    return m == NULL ? 0 : bytes_of_models(run, count_of(m)) + bytes_of_rows(m, count_of(m));
}

static bool members_fit(const CorgiRun *run) { return corgi_members_bytes(run) <= run->options.buffer_bytes / 2; }

/* Refuse members whose models and row codes take more than half of buffer_size. */
static void refuse_memory(const CorgiRun *run, int64 count)
{
    const CorgiMembers *m = run->members;
    const int64 models = bytes_of_models(run, count), rows = bytes_of_rows(m, count);
    const bool known = m->settled || m->sketch != NULL;
    const char *more = known ? "" : " or more", *remedy = m->sets ? "fewer labels" : "a column of fewer values";
    ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
            errmsg("half of buffer_size, " INT64_FORMAT " kB, must hold the models of %s" INT64_FORMAT "%s %s, "
                   INT64_FORMAT " kB, and the %s of " INT64_FORMAT "%s rows, " INT64_FORMAT " kB",
                   run->options.buffer_bytes / 2048, m->sketch ? "about " : "", count, more,
                   m->sets ? "labels" : psprintf("groups of \"%s\"", m->column), models / 1024 + 1,
                   m->sets ? "labels" : "groups", m->codes->rows, more, rows / 1024 + 1),
            known ? errhint("Give buffer_size => '" INT64_FORMAT "kB', or %s.", 2 * (models + rows) / 1024 + 2, remedy)
                  : errhint("Give a larger buffer_size, or %s.", remedy));
}

static void check_count(const CorgiMembers *m, int64 count)
{
    if (count > MAX_MEMBERS)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("column \"%s\" has more than %d %s", m->column, MAX_MEMBERS,
                       m->sets ? "labels" : "values, too many for groups"));
}

static void count_value(CorgiMembers *m, const char *text, Size length)
{
    addHyperLogLog(m->sketch, hash_bytes((const unsigned char *) text, (int) length));
}

/* Give up collecting groups and only count them. */
static void count_only(CorgiMembers *m)
{
    /* the current context ends with the block */
    MemoryContext outside = MemoryContextSwitchTo(GetMemoryChunkContext(m));
    m->sketch = palloc(sizeof *m->sketch);
    initHyperLogLog(m->sketch, HLL_BITS);
    MemoryContextSwitchTo(outside);
    for (int64 i = 0; i < m->names->count; i++)
        count_value(m, m->names->names[i].text, m->names->names[i].length);
    corgi_drop_codes(m->codes);
}

/* Refuse counted groups. Adds a margin, so that the advised size suffices. */
static void refuse_counted(const CorgiRun *run)
{
    const double estimate = estimateHyperLogLog(run->members->sketch) * 1.05 + 1;
    check_count(run->members, (int64) Min(estimate, 2.0 * MAX_MEMBERS));
    refuse_memory(run, Max((int64) estimate, count_of(run->members)));
}

/* Add the group of the next training row. */
static void note_group(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    CorgiMembers *m = run->members;
    const int64 before = count_of(m);
    int64 code = 0;
    Size length;
    bool null;
    Datum value = slot_getattr(row, part->by.attnum, &null);
    const char *text = null ? NULL : corgi_text_of(part->by.type, value, &length);
    m->null |= null;
    if (m->sketch != NULL) {
        m->codes->rows++;
        if (!null)
            count_value(m, text, length);
        return;
    }
    if (!null)
        code = 1 + corgi_add_name(m->names, text, length);
    check_count(m, m->names->count);
    bool grows = corgi_add_code(m->codes, code);
    if ((grows || count_of(m) > before) && !members_fit(run))
        count_only(m);
}

/* Add the labels of the next training row. */
static void note_labels(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    CorgiMembers *m = run->members;
    const int64 labels = m->names->count, sets = m->sets->count;
    corgi_read_tags(part, row, m->names, m->column == NULL, &m->tags);
    check_count(m, m->names->count);
    bool grows = corgi_add_code(
        m->codes, corgi_add_name(m->sets, (const char *) m->tags.at, sizeof *m->tags.at * (Size) m->tags.count));
    if ((grows || m->names->count > labels || m->sets->count > sets) && !members_fit(run))
        refuse_memory(run, count_of(m));
}

/* Add the member or members of the next training row. */
void corgi_note_member(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    if (corgi_are_labels(run->members))
        note_labels(run, part, row);
    else
        note_group(run, part, row);
}

static CorgiName *copy_names(const CorgiNames *n)
{
    CorgiName *copy = palloc_extended(sizeof *copy * (Size) Max(n->count, 1), MCXT_ALLOC_HUGE);
    return memcpy(copy, n->names, sizeof *copy * (Size) n->count);
}

/* Map each name's old number, from number[1], to its new one; number[0] is that of null. Frees `before`. */
static int32 *new_numbers(CorgiNames *n, CorgiName *before)
{
    int32 *number = palloc_extended(sizeof *number * (Size) (n->count + 1), MCXT_ALLOC_HUGE);
    number[0] = (int32) n->count;
    for (int64 i = 0; i < n->count; i++)
        number[i + 1] = (int32) corgi_find_name(n, before[i].text, before[i].length);
    pfree(before);
    return number;
}

/* Compare sets as their rows of 0 and 1: the one with the first differing label is larger. */
static int compare_sets(const void *a, const void *b)
{
    const CorgiName *x = a, *y = b;
    const int32 *left = (const int32 *) x->text, *right = (const int32 *) y->text;
    const Size each = Min(x->length, y->length) / sizeof *left;
    for (Size i = 0; i < each; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? 1 : -1;
    return x->length < y->length ? -1 : x->length > y->length;
}

/* Renumber the sets' labels, sort the sets, and fill the matrix of labels by set. */
static void settle_sets(CorgiMembers *m, const int32 *number)
{
    const int64 labels = m->names->count;
    for (int64 i = 0; i < m->sets->count; i++) {
        int32 *own = (int32 *) m->sets->names[i].text;
        const int64 count = (int64) (m->sets->names[i].length / sizeof *own);
        for (int64 k = 0; k < count; k++)
            own[k] = number[1 + own[k]];
        corgi_sort_tags(own, count);
    }
    CorgiName *before = copy_names(m->sets);
    corgi_order_names(m->sets, compare_sets);
    int32 *set_number = new_numbers(m->sets, before);
    corgi_number_codes(m->codes, set_number + 1);
    pfree(set_number);
    m->has = palloc_extended((Size) (m->sets->count * labels), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 i = 0; i < m->sets->count; i++) {
        const int32 *own = (const int32 *) m->sets->names[i].text;
        for (Size k = 0; k < m->sets->names[i].length / sizeof *own; k++)
            m->has[i * labels + own[k]] = 1;
    }
}

/* Refuse a label that no row or every row has. */
static void check_labels(const CorgiMembers *m)
{
    const int64 labels = m->names->count;
    int64 *has = palloc_extended(sizeof *has * (Size) labels, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    int64 *rows = rows_per_code(m, m->sets->count);
    for (int64 i = 0; i < m->sets->count; i++)
        for (int64 k = 0; k < labels; k++)
            has[k] += m->has[i * labels + k] ? rows[i] : 0;
    for (int64 k = 0; k < labels; k++)
        if (has[k] == 0 || has[k] == m->codes->rows)
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("%s of " INT64_FORMAT " rows have label %s; it must be in some rows, not in all",
                           has[k] ? "all" : "none", m->codes->rows, corgi_member_name(m, k)));
    pfree(has);
    pfree(rows);
}

/* Sort members and sets as Python does after the last row: ascending, null last, or in the order of their columns. */
void corgi_settle_members(CorgiRun *run)
{
    CorgiMembers *m = run->members;
    if (m == NULL)
        return;
    if (m->sketch != NULL)
        refuse_counted(run);
    if (m->sets != NULL && m->names->count == 0)
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
                errmsg("all arrays of label column \"%s\" are empty; there is nothing to learn", m->column));
    m->settled = true;
    CorgiName *before = copy_names(m->names);
    if (m->column != NULL)
        corgi_sort_values(m->names, m->type);
    int32 *number = new_numbers(m->names, before);
    if (m->sets == NULL)
        corgi_number_codes(m->codes, number);
    if (!members_fit(run))
        refuse_memory(run, count_of(m));
    if (m->sets != NULL) {
        settle_sets(m, number);
        check_labels(m);
    }
    pfree(number);
}

/* Return the group or the set of a training row by its number. */
int64 corgi_member_of(const CorgiMembers *m, int64 row) { return corgi_code_at(m->codes, row); }

/* Return the set of a row that is being read. */
int64 corgi_set_of_row(CorgiMembers *m, const CorgiSource *part, TupleTableSlot *row)
{
    corgi_read_tags(part, row, m->names, true, &m->tags);
    return corgi_find_name(m->sets, (const char *) m->tags.at, sizeof *m->tags.at * (Size) m->tags.count);
}

CorgiLabelSets corgi_label_sets(const CorgiMembers *m)
{
    return (CorgiLabelSets){m->has, m->sets->count, m->names->count};
}

static void write_member(StringInfo json, const CorgiMembers *m, int64 k)
{
    corgi_write_value(json, k < m->names->count ? m->names->names[k].text : NULL, m->type);
}

/* Return a member's name. */
char *corgi_member_name(const CorgiMembers *m, int64 k)
{
    StringInfoData name;
    initStringInfo(&name);
    write_member(&name, m, k);
    return name.data;
}

/* Write the members as a JSON array. */
void corgi_write_members(StringInfo json, const CorgiMembers *m)
{
    appendStringInfoChar(json, '[');
    for (int64 k = 0; k < count_of(m); k++) {
        appendStringInfoString(json, k ? ", " : "");
        write_member(json, m, k);
    }
    appendStringInfoChar(json, ']');
}
