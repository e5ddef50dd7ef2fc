/* The first pass: counts the visible rows of each block and collects classes, the width of a row, and block sketches.
 *
 * Plans are made of row numbers, so every block's rows must be known before the first step. The pass reads the table
 * once as it lies; it takes no more of each row than its label, and not even that where neither classes nor sketches
 * are wanted. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "sgd_state.h"
#include "utils/memutils.h"

enum { MOST_CLASSES = 1 << 16, MOST_INTEGERS = 1024, MOST_FLOATS = 64 };

/* Counts labels. Blocks are told apart by their classes as long as those are few whole numbers, else by their mean. */
typedef struct {
    double *values;         /* ascending */
    int64 *counts;          /* in this block */
    int64 n, room, at;      /* at: where the last label was found */
    int64 limit, most;      /* of classes of the model, of classes of a sketch */
    bool wanted, sketching, by_class;
    double sum;
    double *sums, *dominant;
    int64 *dominants;       /* by block: the label found most often, and how often */
    const char *kind;
} Tally;

static void *take(int64 count, size_t bytes)
{
    return MemoryContextAllocHuge(CurrentMemoryContext, (Size) Max(count, 1) * bytes);
}

static Tally make_tally(const CorgiRun *run, int64 blocks)
{
    const CorgiOptions *o = &run->options;
    Oid type = run->source.label.type;
    bool floats = type == FLOAT4OID || type == FLOAT8OID || type == NUMERICOID;
    Tally t = {.kind = o->kind, .wanted = o->loss != CP_SQUARED && o->classes == NULL, .sketching = o->balance,
               .by_class = o->balance, .limit = o->loss == CP_SOFTMAX ? MOST_CLASSES : 2,
               .most = floats ? MOST_FLOATS : MOST_INTEGERS, .room = 16};
    t.values = take(t.room, sizeof *t.values);
    t.counts = take(t.room, sizeof *t.counts);
    t.sums = take(o->balance ? blocks : 0, sizeof *t.sums);
    t.dominant = take(o->balance ? blocks : 0, sizeof *t.dominant);
    t.dominants = take(o->balance ? blocks : 0, sizeof *t.dominants);
    return t;
}

static void insert_value(Tally *t, int64 at, double y)
{
    if (t->n == t->room) {
        t->room *= 2;
        t->values = repalloc(t->values, sizeof *t->values * (Size) t->room);
        t->counts = repalloc(t->counts, sizeof *t->counts * (Size) t->room);
    }
    memmove(t->values + at + 1, t->values + at, sizeof *t->values * (Size) (t->n - at));
    memmove(t->counts + at + 1, t->counts + at, sizeof *t->counts * (Size) (t->n - at));
    t->values[at] = y;
    t->counts[at] = 0;
    t->n++;
}

/* Find where a label is in the list, putting it there if it is new; -1 where no list is kept any more. */
static int64 place_of(Tally *t, double y)
{
    int64 low = 0, high = t->n;
    while (low < high) {
        int64 middle = low + (high - low) / 2;
        if (t->values[middle] < y)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < t->n && t->values[low] == y)
        return low;
    if (t->by_class && (t->n == t->most || y != floor(y)))
        t->by_class = false;
    if (!t->wanted && !t->by_class)
        return -1;
    if (t->wanted && t->n == t->limit)
        ereport(
            ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
            t->limit == 2
                ? errmsg("the labels have the values %g, %g, %g...; a %s model takes two, softmax takes more",
                         t->values[0], t->values[1], y, t->kind)
                : errmsg("the labels have more than %d values; for numbers to predict use model linear", MOST_CLASSES));
    insert_value(t, low, y);
    return low;
}

/* Classes are those of all rows; blocks are told apart by the rows to learn from. */
static void add_label(Tally *t, double y, bool held)
{
    t->sum += held ? 0 : y;
    if (t->at >= t->n || t->values[t->at] != y) {
        int64 at = place_of(t, y);
        if (at < 0)
            return;
        t->at = at;
    }
    t->counts[t->at] += !held;
}

static void end_block(Tally *t, int64 block)
{
    int64 best = 0;
    if (!t->sketching)
        return;
    for (int64 i = 1; t->by_class && i < t->n; i++)
        best = t->counts[i] > t->counts[best] ? i : best;
    t->sums[block] = t->sum;
    t->sum = 0;
    if (t->by_class) {
        t->dominant[block] = t->values[best];
        t->dominants[block] = t->counts[best];
        memset(t->counts, 0, sizeof *t->counts * (Size) t->n);
    }
}

/* One number a block by which alike blocks become neighbours, as corgipile.loader.feeder.seriate has it: the share of
 * the second of two classes; of more, the place of the dominant one and half its share; else the mean label. */
static double *seriate(Tally *t, const CorgiSurvey *v)
{
    double *sketch = take(v->blocks, sizeof *sketch);
    for (int64 i = 0; i < v->blocks; i++) {
        int64 rows = v->cuts[i + 1] - v->cuts[i], place = t->by_class ? place_of(t, t->dominant[i]) : 0;
        if (!t->by_class)
            sketch[i] = t->sums[i] / (double) rows;
        else if (t->n <= 2)
            sketch[i] = (double) (place == t->n - 1 ? t->dominants[i] : rows - t->dominants[i]) / (double) rows;
        else
            sketch[i] = (double) place + (double) t->dominants[i] / (double) rows / 2;
    }
    return sketch;
}

/* Take in a row. Returns its bytes in the buffer, if it is sparse and to be learnt from. */
static int64 survey_row(CorgiSurvey *v, const CorgiSource *source, TupleTableSlot *row, bool held, Tally *t)
{
    int64 bytes = 0;
    if (source->sparse)
        bytes = corgi_survey_pair(source, row, &v->width) * !held;
    else if (v->width == 0)
        v->width = corgi_row_width(source, row);
    if (t->wanted || t->sketching)
        add_label(t, corgi_read_label(&source->label, row), held);
    return bytes;
}

/* Count one block's rows to learn from; returns the number of all visible ones. */
static int64 survey_block(CorgiRun *run, CustomScanState *blocks, const CorgiPlace *place, Tally *t,
                          MemoryContext leftovers)
{
    CorgiSurvey *v = &run->survey;
    const CorgiSource *source = &run->source.parts[place->part];
    int64 number = place->row, learnt = 0, bytes = 0;
    MemoryContext outside = MemoryContextSwitchTo(leftovers);
    CorgiScan *scan;
    int count;
    corgi_block_seek(blocks, place);
    while ((scan = corgi_block_next(blocks, &count)) != NULL)
        for (int i = 0; i < count; i++) {
            bool held = corgi_held_out(run, number++);
            learnt += !held;
            bytes += survey_row(v, source, corgi_scan_row(scan, i), held, t);
        }
    MemoryContextSwitchTo(outside);
    MemoryContextReset(leftovers);
    v->held += number - place->row - learnt;
    if (learnt > 0) {
        end_block(t, v->blocks);
        v->place[v->blocks++] = *place;
        v->cuts[v->blocks] = v->rows += learnt;
        v->widest = Max(v->widest, learnt);
        v->heaviest = Max(v->heaviest, bytes);
    }
    return number - place->row;
}

static void settle_classes(CorgiRun *run, Tally *t)
{
    CorgiSurvey *v = &run->survey;
    if (run->options.loss == CP_SQUARED)
        return;
    v->classes = run->options.classes;
    v->class_count = run->options.class_count;
    if (t->wanted)
        v->classes = corgi_check_classes(t->values, t->n, "the labels have", t->kind, &v->class_count);
}

static void check_rows(const CorgiRun *run)
{
    if (run->survey.rows > 0)
        return;
    if (run->survey.held > 0)
        ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
                errmsg("holdout %g leaves none of " INT64_FORMAT " rows to learn from", run->options.holdout,
                       run->survey.held));
    ereport(ERROR, errcode(ERRCODE_NO_DATA_FOUND),
            errmsg("table \"%s\" has no rows to learn from", RelationGetRelationName(run->source.rel)));
}

/* Weights take memory from now on, and a column if the model is stored. */
static void check_weights(const CorgiRun *run)
{
    const CorgiSurvey *v = &run->survey;
    int64 outputs = run->options.loss == CP_SOFTMAX ? v->class_count : 1;
    if (v->width > CORGI_MOST_NUMBERS / outputs)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("a model of " INT64_FORMAT " features and " INT64_FORMAT " outputs is too large: a column holds "
                       INT64_FORMAT " numbers",
                       v->width, outputs, CORGI_MOST_NUMBERS));
}

void corgi_take_survey(CorgiRun *run, CustomScanState *blocks)
{
    CorgiSurvey *v = &run->survey;
    const CorgiSource *source = &run->source;
    int64 most = corgi_most_blocks(source);
    Tally t = make_tally(run, most);
    MemoryContext leftovers = AllocSetContextCreate(CurrentMemoryContext, "corgipile survey", ALLOCSET_DEFAULT_SIZES);
    memset(v, 0, sizeof *v);
    v->cuts = take(most + 1, sizeof *v->cuts);
    v->place = take(most, sizeof *v->place);
    v->cuts[0] = 0;
    for (CorgiPlace at = {0}; corgi_settle(source, &at); at.page += source->block_pages)
        at.row += survey_block(run, blocks, &at, &t, leftovers);
    corgi_end_loop(blocks);
    MemoryContextDelete(leftovers);
    check_rows(run);
    v->width = Max(v->width, 1);
    settle_classes(run, &t);
    check_weights(run);
    v->sketch = run->options.balance ? seriate(&t, v) : NULL;
}
