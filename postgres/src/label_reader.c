/* Reader of a row's labels, from an array column or from columns of 0 and 1. */
#include "members.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/memutils.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

enum { INITIAL_LABELS = 16, MAX_LABEL_BYTES = 100 }; /* bytes of a label in an error */

/* Return the type of the labels: of the array's elements, or text for column names. */
Oid corgi_label_type(const CorgiSource *s) { return s->labels->list ? s->labels->type : TEXTOID; }

/* Return the label name of multilabel models, as in Python. */
const char *corgi_name_of_sets(const List *labels) { return list_length(labels) == 1 ? linitial(labels) : "labels"; }

/* Refuse options that multilabel training lacks. */
void corgi_check_labels(const CorgiOptions *o, bool label, bool classes)
{
    const char *conflict = label ? "label" : o->by ? "by" : o->holdout > 0 ? "holdout" : o->warm_start ? "warm_start"
                       : o->weights ? "weights" : classes ? "classes" : o->class_weight ? "class_weight" : NULL;
    if (o->labels == NIL)
        return;
    if (conflict != NULL)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "%s must be left out with labels: each label has its own model",
               conflict);
    if (cp_losses[o->of.loss].labels != CP_TWO_CLASSES)
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE,
               "model must be logistic, svm or squared_hinge with labels, got \"%s\"", o->kind);
    if (o->weight != NULL && corgi_has_name(o->labels, o->weight))
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "column \"%s\" is a label; it cannot be the weight too", o->weight);
    for (int i = 1; i < list_length(o->labels); i++)
        if (corgi_has_name(list_copy_tail(o->labels, i), list_nth(o->labels, i - 1)))
            REFUSE(ERRCODE_INVALID_PARAMETER_VALUE, "labels must not repeat columns, got \"%s\" twice",
                   (char *) list_nth(o->labels, i - 1));
}

CorgiTags corgi_make_tags(void)
{
    return (CorgiTags){.at = palloc(sizeof(int32) * INITIAL_LABELS), .room = INITIAL_LABELS,
                       .row = AllocSetContextCreate(CurrentMemoryContext, "corgipile tags", ALLOCSET_DEFAULT_SIZES)};
}

static void add_label(CorgiTags *t, int64 number)
{
    if (t->count == t->room) {
        t->room *= 2;
        t->at = repalloc_huge(t->at, sizeof *t->at * (Size) t->room);
    }
    t->at[t->count++] = (int32) number;
}

/* Return the number of a label; adds it unless `known`. */
static int64 label_number(const CorgiColumn *c, Datum value, TupleTableSlot *row, CorgiNames *names, bool known)
{
    Size length;
    const char *text = corgi_text_of(c->type, value, &length);
    const int64 number = known ? corgi_find_name(names, text, length) : corgi_add_name(names, text, length);
    if (unlikely(number == CORGI_UNNAMED))
        REFUSE(ERRCODE_INVALID_PARAMETER_VALUE,
               "%s has \"%.*s\" in label column \"%s\", which is none of the labels %s",
               corgi_row_name(c, &row->tts_tid), (int) pg_mbcliplen(text, (int) length, MAX_LABEL_BYTES), text, c->name,
               corgi_list_names(names));
    return number;
}

/* Read the labels in an array. The next row frees the memory, because blocks have many rows. */
static void read_array(const CorgiColumn *c, TupleTableSlot *row, CorgiNames *names, bool known, CorgiTags *t)
{
    bool null, *nulls;
    const Datum value = slot_getattr(row, c->attnum, &null);
    const ArrayType *array = null ? NULL : DatumGetArrayTypeP(value);
    Datum *items;
    if (unlikely(null))
        REFUSE(ERRCODE_NULL_VALUE_NOT_ALLOWED, "%s has a NULL in label column \"%s\"; use an empty array for no "
                                               "labels",
               corgi_row_name(c, &row->tts_tid), c->name);
    if (unlikely(ARR_NDIM(array) > 1))
        REFUSE(ERRCODE_DATA_EXCEPTION, "%s: column \"%s\" is an array of %d dimensions; 1 is needed",
               corgi_row_name(c, &row->tts_tid), c->name, ARR_NDIM(array));
    int count = corgi_elements(PointerGetDatum(array), &items, &nulls);
    for (int i = 0; i < count; i++) {
        if (unlikely(nulls[i]))
            REFUSE(ERRCODE_NULL_VALUE_NOT_ALLOWED, "%s has a NULL in an array of label column \"%s\"; leave it out",
                   corgi_row_name(c, &row->tts_tid), c->name);
        add_label(t, label_number(c, items[i], row, names, known));
    }
}

/* Return whether a column of 0 and 1 is 1. */
static bool is_set(const CorgiColumn *c, TupleTableSlot *row)
{
    bool null;
    const Datum value = slot_getattr(row, c->attnum, &null);
    const double number = null ? 0 : corgi_number_of(c->type, value);
    if (unlikely(null || (number != 0 && number != 1)))
        REFUSE(null ? ERRCODE_NULL_VALUE_NOT_ALLOWED : ERRCODE_INVALID_PARAMETER_VALUE,
               "%s has %s in label column \"%s\"; 0 or 1 is needed", corgi_row_name(c, &row->tts_tid),
               null ? "a NULL" : psprintf("%g", number), c->name);
    return number != 0;
}

static int compare_numbers(const void *a, const void *b)
{
    const int32 x = *(const int32 *) a, y = *(const int32 *) b;
    return x < y ? -1 : x > y;
}

void corgi_sort_tags(int32 *at, int64 count)
{
    if (count > 1)
        qsort(at, (size_t) count, sizeof *at, compare_numbers);
}

/* Sort numbers and drop duplicates. */
static void sort_tags(CorgiTags *t)
{
    int64 unique = 0;
    corgi_sort_tags(t->at, t->count);
    for (int64 i = 0; i < t->count; i++)
        if (unique == 0 || t->at[unique - 1] != t->at[i])
            t->at[unique++] = t->at[i];
    t->count = unique;
}

/* Read a row's labels as their numbers among `names`; adds new ones unless `known`. */
void corgi_read_tags(const CorgiSource *part, TupleTableSlot *row, CorgiNames *names, bool known, CorgiTags *t)
{
    t->count = 0;
    if (part->labels->list) {
        MemoryContextReset(t->row);
        MemoryContext outside = MemoryContextSwitchTo(t->row);
        read_array(part->labels, row, names, known, t);
        MemoryContextSwitchTo(outside);
        sort_tags(t);
        return;
    }
    for (int i = 0; i < part->label_columns; i++)
        if (is_set(&part->labels[i], row))
            add_label(t, i);
}
