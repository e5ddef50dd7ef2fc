/* Content vectors of a table's blocks; riffle balances blocks by them on request.
 * After the survey, sample runs of rows are read (kernel/plan/spots.h). Rows, numbers and vectors equal those of
 * corgipile.loader.sampled_runs in Python. */

#include "members.h"
#include "numbers.h"
#include "reading.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "io/gather.h"
#include "plan/similarity.h"
#include "plan/content.h"
#include "plan/seriate.h"
#include "plan/spots.h"
#include "utils/memutils.h"

/* one-hot columns of a label; distinct values of a column of classes */
enum { MAX_ONE_HOT = 16, MAX_FLOAT_CLASSES = 64, MAX_INTEGER_CLASSES = 1024 };

typedef struct {
    int64 features, extras; /* numbers per row */
    double *classes;        /* label classes, ascending; NULL: the label is a number */
    int64 class_count;
    double *rows;           /* [room][features + 1]: the label comes last */
    int64 count, room;      /* count: rows read */
    double *center, *scale, *turn, *packed; /* packed: [room][features + extras] */
    int64 *sums;            /* scratch for cp_content */
    CorgiMembers *labels;   /* multilabel targets, or NULL */
    int16 *vector;          /* of the next run, of `room` rows; NULL: rows are stored as they are */
} ContentSample;

static void *allocate(int64 count, size_t bytes)
{
    return MemoryContextAllocHuge(CurrentMemoryContext, (Size) Max(count, 1) * bytes);
}

static int64 stored_bytes(Oid type)
{
    enum cp_type stored = corgi_stored_type(type);
    return stored == CP_TYPES ? (int64) sizeof(double) : (int64) cp_type_bytes[stored];
}

/* Return the bytes of a row in a file of plain columns. */
static double row_bytes(const CorgiRun *run)
{
    const CorgiSource *s = &run->source;
    int64 bytes = stored_bytes(s->label.type);
    if (s->sparse)
        return (double) (bytes + run->survey.heaviest / Max(run->survey.widest, 1));
    for (int i = 0; i < s->feature_columns; i++)
        bytes += s->features[i].encoder
                     ? 0
                     : stored_bytes(s->features[i].type) * (s->features[i].list ? run->survey.width : 1);
    return (double) (s->encoded ? run->survey.width * (int64) sizeof(double) + stored_bytes(s->label.type) : bytes);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

/* Find the label's classes in the sampled rows, if it has few enough values. */
static void find_classes(ContentSample *k, const CorgiColumn *label)
{
    bool floats = label->type == FLOAT4OID || label->type == FLOAT8OID || label->type == NUMERICOID;
    int64 finite = 0, most = label->classes ? PG_INT64_MAX : floats ? MAX_FLOAT_CLASSES : MAX_INTEGER_CLASSES;
    double *values = allocate(k->count, sizeof *values);
    bool whole = true;
    for (int64 i = 0; i < k->count; i++) {
        double y = k->rows[i * (k->features + 1) + k->features];
        if (isfinite(y))
            values[finite++] = y;
        whole = whole && (!isfinite(y) || floor(y) == y);
    }
    qsort(values, (size_t) finite, sizeof *values, compare_doubles);
    for (int64 i = 0; i < finite; i++)
        if (k->class_count == 0 || values[k->class_count - 1] != values[i])
            values[k->class_count++] = values[i];
    k->classes = k->class_count <= most && whole ? values : NULL;
    k->extras = k->classes == NULL ? 1 : Min(k->class_count, (int64) MAX_ONE_HOT);
    if (k->classes != NULL && k->extras <= 2)
        k->extras = Max(k->extras - 1, 0); /* one column distinguishes two classes */
}

/* Write the label as numbers: itself, or one-hot. Many classes share columns. */
static void write_label(const ContentSample *k, double y, double *out)
{
    int64 low = 0, high = k->class_count, few = Min(k->class_count, (int64) MAX_ONE_HOT), first = few <= 2 ? 1 : 0;
    if (k->classes == NULL) {
        out[0] = y;
        return;
    }
    memset(out, 0, sizeof *out * (Size) k->extras);
    while (low < high) {
        int64 middle = low + (high - low) / 2;
        if (k->classes[middle] < y)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < k->class_count && k->classes[low] == y && low % few >= first)
        out[low % few - first] = k->class_count > MAX_ONE_HOT && low / few % 2 == 1 ? -1 : 1;
}

/* Return the sampled rows in the kernel's layout: [count][features + extras]. */
static const double *kernel_rows(const ContentSample *k)
{
    int64 width = k->features + k->extras;
    for (int64 i = 0; i < k->count; i++) {
        const double *row = k->rows + i * (k->features + 1);
        memcpy(k->packed + i * width, row, sizeof *row * (Size) k->features);
        write_label(k, row[k->features], k->packed + i * width + k->features);
    }
    return k->packed;
}

static cp_lens lens_of(const ContentSample *k)
{
    return (cp_lens) {k->features, k->extras, k->center, k->scale, k->turn};
}

/* Add a row. After a run's last row, compute its vector. */
static void sample_row(void *to, const CorgiSource *part, TupleTableSlot *row)
{
    ContentSample *k = to;
    double *numbers = k->rows + k->count * (k->features + 1);
    slot_getsomeattrs(row, part->last);
    if (part->sparse)
        corgi_project_pair(part, row, numbers);
    else
        corgi_read_features(part, row, k->features, (char *) numbers);
    numbers[k->features] =
        k->labels ? (double) corgi_set_of_row(k->labels, part, row) : corgi_read_label(&part->label, row);
    k->count++;
    if (k->vector == NULL || k->count < k->room)
        return;
    cp_lens lens = lens_of(k);
    cp_content(&lens, kernel_rows(k), &k->room, 1, k->sums, k->vector);
    k->vector += cp_content_width(k->features, k->extras);
    k->count = 0;
}

/* Give all classes together unit variance, as one number has. */
static void scale_classes(const ContentSample *k, double *scale)
{
    double total = 0;
    for (int64 i = 0; i < k->extras; i++)
        total += scale[i] > 0 ? 1 / (scale[i] * scale[i]) : 0;
    for (int64 i = 0; i < k->extras && k->classes != NULL && k->extras > 1; i++)
        scale[i] = scale[i] > 0 ? 1 / sqrt(total) : 0;
}

/* Read `few` evenly spaced runs. */
static void read_sampled_runs(const CorgiRun *run, Snapshot snapshot, const cp_spots *spots, int64 few,
                              ContentSample *k)
{
    int64 (*runs)[2] = allocate(few, sizeof *runs), width = k->features + 1;
    for (int64 i = 0; i < few; i++) {
        runs[i][0] = cp_spot_row(spots, i * spots->count / few);
        runs[i][1] = runs[i][0] + spots->each;
    }
    k->room = spots->each * (k->vector ? 1 : few);
    k->rows = allocate(k->room * width, sizeof *k->rows);
    k->count = 0;
    corgi_read_runs(run, snapshot, runs, few, sample_row, k);
    pfree(runs);
}

/* Compute classes, centre and scale of the sampled rows. */
static void find_scale(ContentSample *k, const CorgiColumn *label, int64 each)
{
    int64 plain = cp_content_plain(k->features);
    find_classes(k, label);
    int64 width = k->features + k->extras;
    k->center = allocate(width, sizeof *k->center);
    k->scale = allocate(width, sizeof *k->scale);
    k->turn = allocate(plain * plain, sizeof *k->turn);
    k->sums = allocate(cp_content_room(k->features, k->extras), sizeof *k->sums);
    k->packed = allocate(k->count * width, sizeof *k->packed);
    cp_content_scale(kernel_rows(k), k->count, width, k->center, k->scale);
    scale_classes(k, k->scale + k->features);
    cp_lens lens = lens_of(k);
    cp_content_turn(&lens, k->packed, k->count, k->sums, k->turn);
    pfree(k->packed), pfree(k->rows);
    k->packed = allocate(each * width, sizeof *k->packed);
}

/* Return how much neighbouring rows have in common beyond the label, in the rows that set the scale. */
static double shared_variance(const CorgiRun *run, Snapshot snapshot)
{
    MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "corgipile variance", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(context);
    double bytes = row_bytes(run);
    cp_spots spots = cp_spots_make(run->survey.rows, bytes);
    int64 few = cp_spots_few(&spots, cp_spots_first(bytes));
    ContentSample k = {.features = run->source.sparse ? CP_CONTENT_FEATURES : run->survey.width,
                       .labels = corgi_are_labels(run->members) ? run->members : NULL};
    read_sampled_runs(run, snapshot, &spots, few, &k);
    find_classes(&k, &run->source.label);
    k.packed = allocate(k.count * (k.features + k.extras), sizeof *k.packed);
    kernel_rows(&k);
    double variance = cp_similarity(k.packed, few, spots.each, k.features, k.extras);
    MemoryContextSwitchTo(outside);
    MemoryContextDelete(context);
    return variance;
}

/* Choose automatically whether to balance by content. The label suffices unless neighbouring rows share more than it
 * and the buffered blocks are too few to even that out. */
void corgi_choose_balance(CorgiRun *run, Snapshot snapshot)
{
    CorgiOptions *o = &run->options;
    int64 dealt = run->sizes.buffer_blocks * (run->sizes.whole ? 1 : 2);
    if (!o->automatic || !cp_wants_content(1, run->survey.blocks, dealt, o->batch))
        return;
    double variance = shared_variance(run, snapshot);
    o->content = cp_wants_content(variance, run->survey.blocks, dealt, o->batch);
    if (o->content)
        ereport(NOTICE, errmsg("blocks are balanced by content: neighbouring rows share %.0f%% of the variance of "
                               "a feature, beyond their label", 100 * variance),
                errhint("Set order => 'balanced' to balance them by the label alone."));
}

/* Compute the content vectors of the survey's blocks. */
void corgi_describe_blocks(CorgiRun *run, Snapshot snapshot)
{
    CorgiSurvey *v = &run->survey;
    MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "corgipile content", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(context);
    double bytes = row_bytes(run);
    cp_spots spots = cp_spots_make(v->rows, bytes);
    ContentSample k = {.features = run->source.sparse ? CP_CONTENT_FEATURES : v->width,
                       .labels = corgi_are_labels(run->members) ? run->members : NULL};
    read_sampled_runs(run, snapshot, &spots, cp_spots_few(&spots, cp_spots_first(bytes)), &k);
    find_scale(&k, &run->source.label, spots.each);
    v->traits = (int32) cp_content_width(k.features, k.extras);
    int16 *vectors = k.vector = allocate(spots.count * v->traits, sizeof *vectors);
    read_sampled_runs(run, snapshot, &spots, spots.count, &k);
    Assert(k.vector == vectors + spots.count * v->traits);
    MemoryContextSwitchTo(outside);
    v->vectors = allocate(v->blocks * v->traits, sizeof *v->vectors);
    cp_spots_spread(&spots, vectors, v->traits, v->cuts, v->blocks, k.sums, v->vectors);
    MemoryContextDelete(context);
}
