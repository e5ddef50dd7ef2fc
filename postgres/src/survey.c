/* Survey, the first pass: visible rows per block, classes, row width and block sketches.
 * Plans consist of row numbers, so every block's rows must be known before the first step. The pass reads the table
 * once in storage order, and of each row at most its label. */
#include "members.h"
#include "operators.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "plan/sketch.h"
#include "utils/memutils.h"

enum { CLASSES_LIKE_IDS = 100 /* more may be ids */ };

/* Labels in the survey: classes of all rows, and the sketch of training rows. */
typedef struct {
    double *values;         /* ascending */
    int64 n, room, at;      /* at: index of the last label */
    int64 limit;            /* of values */
    int64 *counts;          /* training rows with each value */
    bool wanted, sketching; /* wanted: classes, or their row counts */
    cp_sketch *sketch;
    double last;            /* last training label, which replaces missing ones */
    const char *kind;
} Tally;

static void *allocate(int64 count, size_t bytes)
{
    return MemoryContextAllocHuge(CurrentMemoryContext, (Size) Max(count, 1) * bytes);
}

static cp_sketch *make_sketch(Oid type, const int64 *cuts, int64 blocks)
{
    cp_sketch *s = palloc0(sizeof *s);
    bool floats = type == FLOAT4OID || type == FLOAT8OID || type == NUMERICOID;
    s->most = floats ? CP_SKETCH_FLOATS : CP_SKETCH_INTEGERS;
    s->cuts = cuts;
    s->told = allocate(blocks, sizeof *s->told);
    return s;
}

static const double binary_classes[] = {0, 1};

static Tally make_tally(const CorgiRun *run, int64 blocks)
{
    const CorgiOptions *o = &run->options;
    const bool one = !corgi_are_labels(run->members);
    Tally t = {.kind = o->kind,
               .wanted = one && !corgi_predicts_numbers(&o->of) && (o->classes == NULL || corgi_is_balanced(o)),
               .sketching = one && o->balance && !o->content, .limit = corgi_max_classes(o->kind), .room = 16};
    t.values = allocate(t.room, sizeof *t.values);
    t.counts = allocate(t.room, sizeof *t.counts);
    t.sketch = t.sketching ? make_sketch(run->source.label.type, run->survey.cuts, blocks) : NULL;
    return t;
}

/* Add a label to the list if it is new. */
static void count_value(Tally *t, double y, bool held)
{
    int64 low = 0, high = t->n;
    if (t->at < t->n && t->values[t->at] == y) {
        t->counts[t->at] += !held;
        return;
    }
    while (low < high) {
        int64 middle = low + (high - low) / 2;
        if (t->values[middle] < y)
            low = middle + 1;
        else
            high = middle;
    }
    t->at = low;
    if (low < t->n && t->values[low] == y) {
        t->counts[low] += !held;
        return;
    }
    if (t->n == t->limit)
        ereport(
            ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
            t->limit == 2
                ? errmsg("the labels have the values %g, %g, %g...; a %s model takes two, use %s for more",
                         t->values[0], t->values[1], y, t->kind, corgi_loss_names(corgi_is_per_class))
                : errmsg("the labels have more than %d values; for numbers to predict use model %s", CP_MAX_CLASSES,
                         corgi_loss_names(corgi_is_of_numbers)));
    if (t->n == t->room) {
        t->room *= 2;
        t->values = repalloc(t->values, sizeof *t->values * (Size) t->room);
        t->counts = repalloc(t->counts, sizeof *t->counts * (Size) t->room);
    }
    memmove(t->values + low + 1, t->values + low, sizeof *t->values * (Size) (t->n - low));
    memmove(t->counts + low + 1, t->counts + low, sizeof *t->counts * (Size) (t->n - low));
    t->values[low] = y;
    t->counts[low] = !held;
    t->n++;
}

static void add_label(Tally *t, double y, bool held, bool named)
{
    bool missing = isnan(y);
    if (t->wanted && !missing && !(named && y == CORGI_UNNAMED))
        count_value(t, y, held);
    t->last = missing || held ? t->last : y;
    if (t->sketching && !held)
        cp_sketch_add(t->sketch, &t->last, 1);
}

/* Add a row. Returns the buffer bytes of a sparse training row. */
static int64 survey_row(CorgiSurvey *v, const CorgiSource *source, TupleTableSlot *row, bool held, Tally *t)
{
    int64 bytes = 0;
    if (source->sparse)
        bytes = corgi_survey_pair(source, row, &v->width) * !held;
    else if (v->width == 0)
        v->width = corgi_row_width(source, row);
    if (t->wanted || t->sketching)
        add_label(t, corgi_read_label(&source->label, row), held, source->label.classes != NULL);
    return bytes;
}

/* Count a block's training rows. Returns its number of visible rows. */
static int64 survey_block(CorgiRun *run, CustomScanState *blocks, const CorgiPlace *place, Tally *t,
                          MemoryContext leftovers)
{
    CorgiSurvey *v = &run->survey;
    const CorgiSource *source = &run->source.parts[place->part];
    int64 number = place->row, learnt = 0, held_rows = 0, bytes = 0;
    MemoryContext outside = MemoryContextSwitchTo(leftovers);
    CorgiScan *scan;
    int count;
    corgi_block_seek(blocks, place);
    while ((scan = corgi_block_next(blocks, &count)) != NULL)
        for (int i = 0; i < count; i++) {
            bool held = corgi_held_out(run, number++);
            TupleTableSlot *row = corgi_scan_row(scan, i);
            if (run->where != NULL && !corgi_row_matches(run, source, number - 1, row))
                continue;
            learnt += !held;
            if (run->members != NULL)
                corgi_note_member(run, source, row);
            held_rows += held;
            bytes += survey_row(v, source, row, held, t);
        }
    MemoryContextSwitchTo(outside);
    MemoryContextReset(leftovers);
    v->held += held_rows;
    if (learnt > 0) {
        if (t->sketching)
            cp_sketch_end_block(t->sketch);
        v->place[v->blocks++] = *place;
        v->cuts[v->blocks] = v->rows += learnt;
        v->widest = Max(v->widest, learnt);
        v->heaviest = Max(v->heaviest, bytes);
    }
    return number - place->row;
}

/* Report labels with so many values that they may be ids, as Python does. */
static void report_ids(const CorgiSurvey *v, const char *label)
{
    if (v->class_count > CLASSES_LIKE_IDS && 2 * v->class_count > v->rows + v->held)
        ereport(NOTICE,
                errmsg("label \"%s\" has " INT64_FORMAT " values in " INT64_FORMAT " rows: is it an id, not a class?",
                       label, v->class_count, v->rows + v->held));
}

static void finish_classes(CorgiRun *run, Tally *t)
{
    CorgiSurvey *v = &run->survey;
    CorgiOptions *o = &run->options;
    if (corgi_predicts_numbers(&o->of))
        return;
    if (corgi_are_labels(run->members)) {
        v->classes = memcpy(palloc(sizeof binary_classes), binary_classes, sizeof binary_classes);
        v->class_count = lengthof(binary_classes);
        return;
    }
    v->classes = o->classes;
    v->class_count = o->class_count;
    if (o->classes == NULL)
        v->classes = corgi_check_classes(t->values, t->n, "the labels have", t->kind, &v->class_count);
    if (o->classes == NULL)
        report_ids(v, run->source.label.name);
    o->of = corgi_loss_of(o->kind, v->class_count);
    corgi_compute_class_weights(run, t->values, t->counts, t->n);
    v->chance = corgi_chance(&o->of, o->classes == NULL ? t->counts : NULL, v->class_weight, v->class_count);
}

static void check_rows(const CorgiRun *run)
{
    if (run->survey.rows > 0)
        return;
    if (run->survey.held > 0)
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
                errmsg("holdout %g leaves no training rows out of " INT64_FORMAT " rows", run->options.holdout,
                       run->survey.held));
    ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
            run->options.query ? errmsg("the query has no training rows")
            : run->where ? errmsg("where matches no row of table \"%s\"", RelationGetRelationName(run->source.rel))
                         : errmsg("table \"%s\" has no training rows", RelationGetRelationName(run->source.rel)));
}

/* Refuse weights that exceed an array, before they are allocated. */
static void check_weights(const CorgiRun *run)
{
    const CorgiSurvey *v = &run->survey;
    int64 outputs = corgi_outputs(&run->options.of, v->class_count) * corgi_model_count(run);
    if (v->width > CORGI_MAX_NUMBERS / outputs)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("a model of " INT64_FORMAT " features and " INT64_FORMAT " outputs is too large: a column holds "
                       INT64_FORMAT " numbers",
                       v->width, outputs, CORGI_MAX_NUMBERS));
}

/* Sketch the blocks by their rows' label sets, if blocks are balanced by label. Sets are numbered by now. */
static void sketch_labels(CorgiRun *run)
{
    CorgiSurvey *v = &run->survey;
    if (!corgi_are_labels(run->members) || !run->options.balance || run->options.content)
        return;
    cp_sketch *s = make_sketch(INT4OID, v->cuts, v->blocks);
    for (int64 block = 0; block < v->blocks; block++) {
        for (int64 row = v->cuts[block]; row < v->cuts[block + 1]; row++) {
            const double set = (double) corgi_member_of(run->members, row);
            cp_sketch_add(s, &set, 1);
        }
        cp_sketch_end_block(s);
    }
    v->sketch = allocate(v->blocks, sizeof *v->sketch);
    cp_sketch_values(s, v->sketch);
}

void corgi_take_survey(CorgiRun *run, CustomScanState *blocks)
{
    CorgiSurvey *v = &run->survey;
    const CorgiSource *source = &run->source;
    int64 most = corgi_max_blocks(source);
    MemoryContext leftovers = AllocSetContextCreate(CurrentMemoryContext, "corgipile survey", ALLOCSET_DEFAULT_SIZES);
    memset(v, 0, sizeof *v);
    v->cuts = allocate(most + 1, sizeof *v->cuts);
    v->place = allocate(most, sizeof *v->place);
    v->cuts[0] = 0;
    corgi_begin_members(run);
    Tally t = make_tally(run, most);
    for (CorgiPlace at = {0}; corgi_settle(source, &at); at.page += source->block_pages)
        at.row += survey_block(run, blocks, &at, &t, leftovers);
    corgi_end_loop(blocks);
    run->passes++;
    MemoryContextDelete(leftovers);
    check_rows(run);
    v->width = Max(v->width, 1);
    finish_classes(run, &t);
    corgi_settle_members(run);
    sketch_labels(run);
    check_weights(run);
    if (t.sketching) {
        v->sketch = allocate(v->blocks, sizeof *v->sketch);
        cp_sketch_values(t.sketch, v->sketch);
    }
}
