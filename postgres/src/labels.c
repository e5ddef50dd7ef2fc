/* Labels and the label set of each training row. Rows with equal labels share a set.
 * Equivalent to corgipile.linear.label_sets in Python. The survey collects them, so that no epoch reads the column
 * again. */
#include "corgipile.h"

#include "utils/memutils.h"

enum { MAX_LABELS = 1 << 20, SET_BYTES = 3 * sizeof(int32) + 16 }; /* bytes of a set besides its name */
enum { KERNEL_BYTES = sizeof(void *) + sizeof(int64) + sizeof(int) }; /* kernel bytes per model, see model_stack.h */

struct CorgiLabels {
    const char *column;     /* array column; NULL if each label has its own column */
    Oid type;
    CorgiNames *names;      /* as text; ascending once settled */
    CorgiNames *sets;       /* label numbers of each set, ascending; in Python's order once settled */
    CorgiCodes *codes;      /* the set of each row */
    uint8 *members;           /* [sets][labels] once settled */
    CorgiTags tags;         /* of the last row */
    bool settled;           /* all rows are read */
};

/* Start collecting labels if multilabel models are requested. */
void corgi_begin_labels(CorgiRun *run)
{
    const CorgiSource *s = &run->source;
    CorgiLabels *l;
    if (s->labels == NULL)
        return;
    l = run->labels = palloc0(sizeof *l);
    l->column = s->labels->list ? s->labels->name : NULL;
    l->type = corgi_label_type(s);
    l->names = corgi_make_names();
    l->sets = corgi_make_names();
    l->codes = corgi_make_codes();
    l->tags = corgi_make_tags();
    for (int i = 0; l->column == NULL && i < s->label_columns; i++)
        corgi_add_name(l->names, s->labels[i].name, strlen(s->labels[i].name));
}

/* Return the number of labels. */
int64 corgi_label_count(const CorgiLabels *l) { return l->names->count; }

static int64 bytes_of_rows(const CorgiLabels *l)
{
    return corgi_codes_bytes(l->codes) + (int64) l->sets->bytes +
           l->sets->count * ((int64) (sizeof *l->sets->names + SET_BYTES) + l->names->count);
}

/* Return the share of buffer_size that models and labels take. */
int64 corgi_labels_bytes(const CorgiRun *run)
{
    const CorgiLabels *l = run->labels;
    return corgi_label_count(l) * (corgi_member_bytes(run) + KERNEL_BYTES) + (int64) l->names->bytes + bytes_of_rows(l);
}

/* Refuse models and label sets that take more than half of buffer_size. */
static void check_memory(const CorgiRun *run)
{
    const CorgiLabels *l = run->labels;
    int64 taken = corgi_labels_bytes(run), rows = bytes_of_rows(l);
    if (taken <= run->options.buffer_bytes / 2)
        return;
    ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
            errmsg("buffer_size is " INT64_FORMAT " kB, of which models of " INT64_FORMAT "%s labels take " INT64_FORMAT
                   " kB and the labels of " INT64_FORMAT "%s rows " INT64_FORMAT " kB; half of it is for them",
                   run->options.buffer_bytes / 1024, corgi_label_count(l), l->settled ? "" : " or more",
                   (taken - rows) / 1024 + 1, l->codes->rows, l->settled ? "" : " or more", rows / 1024 + 1),
            l->settled ? errhint("Give buffer_size => '" INT64_FORMAT "kB', or fewer labels.", 2 * taken / 1024 + 2)
                       : errhint("Give a larger buffer_size, or fewer labels."));
}

/* Add the labels of the next training row. */
void corgi_note_labels(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row)
{
    CorgiLabels *l = run->labels;
    const int64 labels = l->names->count, sets = l->sets->count;
    corgi_read_tags(part, row, l->names, l->column == NULL, &l->tags);
    if (l->names->count > MAX_LABELS)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("column \"%s\" has more than %d labels", l->column, MAX_LABELS));
    if (corgi_codes_full(l->codes))
        check_memory(run);
    corgi_add_code(l->codes,
                   corgi_add_name(l->sets, (const char *) l->tags.at, sizeof *l->tags.at * (Size) l->tags.count));
    if (l->names->count > labels || l->sets->count > sets)
        check_memory(run);
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

static int compare_numbers(const void *a, const void *b)
{
    const int32 x = *(const int32 *) a, y = *(const int32 *) b;
    return x < y ? -1 : x > y;
}

static CorgiName *copy_names(const CorgiNames *n)
{
    CorgiName *copy = palloc_extended(sizeof *copy * (Size) Max(n->count, 1), MCXT_ALLOC_HUGE);
    return memcpy(copy, n->names, sizeof *copy * (Size) n->count);
}

/* Map each name's old number to its new one. */
static int32 *new_numbers(CorgiNames *n, const CorgiName *before)
{
    int32 *number = palloc_extended(sizeof *number * (Size) Max(n->count, 1), MCXT_ALLOC_HUGE);
    for (int64 i = 0; i < n->count; i++)
        number[i] = (int32) corgi_find_name(n, before[i].text, before[i].length);
    return number;
}

/* Sort the labels as Python does: ascending, or in the order of their columns. */
static void settle_names(CorgiLabels *l)
{
    CorgiName *before = copy_names(l->names);
    int32 *number;
    if (l->column != NULL)
        corgi_sort_values(l->names, l->type);
    number = new_numbers(l->names, before);
    for (int64 i = 0; i < l->sets->count; i++) {
        int32 *own = (int32 *) l->sets->names[i].text;
        const Size count = l->sets->names[i].length / sizeof *own;
        for (Size k = 0; k < count; k++)
            own[k] = number[own[k]];
        qsort(own, count, sizeof *own, compare_numbers);
    }
    pfree(number);
    pfree(before);
}

/* Sort the sets as Python does. */
static void settle_sets(CorgiLabels *l)
{
    CorgiName *before = copy_names(l->sets);
    int32 *number;
    corgi_order_names(l->sets, compare_sets);
    number = new_numbers(l->sets, before);
    corgi_number_codes(l->codes, number);
    pfree(number);
    pfree(before);
}

/* Fill the matrix of labels by set. */
static void fill_sets(CorgiLabels *l)
{
    const int64 labels = l->names->count;
    l->members = palloc_extended((Size) (l->sets->count * labels), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 i = 0; i < l->sets->count; i++) {
        const int32 *own = (const int32 *) l->sets->names[i].text;
        for (Size k = 0; k < l->sets->names[i].length / sizeof *own; k++)
            l->members[i * labels + own[k]] = 1;
    }
}

/* Refuse a label that no row or every row has. */
static void check_counts(const CorgiLabels *l)
{
    const int64 labels = l->names->count;
    int64 *rows = palloc_extended(sizeof *rows * (Size) Max(l->sets->count, 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    int64 *has = palloc_extended(sizeof *has * (Size) labels, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    for (int64 i = 0; i < l->codes->rows; i++)
        rows[corgi_code_at(l->codes, i)]++;
    for (int64 i = 0; i < l->sets->count; i++)
        for (int64 k = 0; k < labels; k++)
            has[k] += l->members[i * labels + k] ? rows[i] : 0;
    for (int64 k = 0; k < labels; k++)
        if (has[k] == 0 || has[k] == l->codes->rows)
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("%s of " INT64_FORMAT " rows have label %s; one that some have can be learnt",
                           has[k] ? "all" : "none", l->codes->rows, corgi_label_name(l, k)));
    pfree(has);
    pfree(rows);
}

/* Sort labels and sets as Python does after the last row. */
void corgi_settle_labels(CorgiRun *run)
{
    CorgiLabels *l = run->labels;
    if (l == NULL)
        return;
    if (l->names->count == 0)
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
                errmsg("all arrays of label column \"%s\" are empty; there is nothing to learn", l->column));
    l->settled = true;
    check_memory(run);
    settle_names(l);
    settle_sets(l);
    fill_sets(l);
    check_counts(l);
}

/* Return the set of a training row by its number. */
int64 corgi_set_of(const CorgiLabels *l, int64 row) { return corgi_code_at(l->codes, row); }

/* Return the set of a row that is being read. */
int64 corgi_set_of_row(CorgiLabels *l, const CorgiSource *part, TupleTableSlot *row)
{
    corgi_read_tags(part, row, l->names, true, &l->tags);
    return corgi_find_name(l->sets, (const char *) l->tags.at, sizeof *l->tags.at * (Size) l->tags.count);
}

/* Return the matrix of labels by set, one byte each, [sets][labels]. */
const uint8 *corgi_label_sets(const CorgiLabels *l, int64 *sets)
{
    *sets = l->sets->count;
    return l->members;
}

/* Return a label's name. */
char *corgi_label_name(const CorgiLabels *l, int64 k)
{
    StringInfoData name;
    initStringInfo(&name);
    corgi_write_value(&name, l->names->names[k].text, l->type);
    return name.data;
}

/* Write the labels as a JSON array. */
void corgi_write_labels(StringInfo json, const CorgiLabels *l)
{
    appendStringInfoChar(json, '[');
    for (int64 k = 0; k < l->names->count; k++) {
        appendStringInfoString(json, k ? ", " : "");
        corgi_write_value(json, l->names->names[k].text, l->type);
    }
    appendStringInfoChar(json, ']');
}
