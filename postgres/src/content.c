/* What is in the blocks of a table, as vectors: what riffle balances them by if it is asked to balance by content.
 *
 * After the survey some spots of the table are looked at (kernel/plan/spots.h): their rows, the numbers made of them and so
 * the vectors are those of corgipile.loader.sampled_runs in Python. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "io/gather.h"
#include "numbers.h"
#include "plan/alike.h"
#include "plan/content.h"
#include "plan/seriate.h"
#include "plan/spots.h"
#include "reading.h"
#include "utils/memutils.h"

enum { PLAIN = 16, MOST_FLOATS = 64, MOST_INTEGERS = 1024 }; /* classes that have a number each; of a column of classes */

typedef struct {
    int64 features, extras; /* numbers of a row */
    double *classes;        /* of the label, ascending; NULL: it is a number itself */
    int64 class_count;
    double *rows;           /* [room][features + 1]: the label comes last */
    int64 count, room;      /* of them, `count` are taken in */
    double *center, *scale, *turn, *made; /* made: [room][features + extras] */
    int64 *sums;            /* room for cp_content */
    CorgiLabels *labels;    /* of several a row; or NULL */
    int16 *vector;          /* of the next spot, of which there are `room` rows; NULL: rows are kept as they are */
} Look;

static void *take(int64 count, size_t bytes)
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
        bytes += s->features[i].encoder ? 0 : stored_bytes(s->features[i].type) * (s->features[i].list ? run->survey.width : 1);
    return (double) (s->encoded ? run->survey.width * (int64) sizeof(double) + stored_bytes(s->label.type) : bytes);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

/* Find the classes of the label among the rows at hand, if it has few enough values. */
static void find_classes(Look *k, const CorgiColumn *label)
{
    bool floats = label->type == FLOAT4OID || label->type == FLOAT8OID || label->type == NUMERICOID;
    int64 found = 0, most = label->classes ? PG_INT64_MAX : floats ? MOST_FLOATS : MOST_INTEGERS;
    double *values = take(k->count, sizeof *values);
    bool whole = true;
    for (int64 i = 0; i < k->count; i++) {
        double y = k->rows[i * (k->features + 1) + k->features];
        if (isfinite(y))
            values[found++] = y;
        whole = whole && (!isfinite(y) || floor(y) == y);
    }
    qsort(values, (size_t) found, sizeof *values, by_size);
    for (int64 i = 0; i < found; i++)
        if (k->class_count == 0 || values[k->class_count - 1] != values[i])
            values[k->class_count++] = values[i];
    k->classes = k->class_count <= most && whole ? values : NULL;
    k->extras = k->classes == NULL ? 1 : Min(k->class_count, (int64) PLAIN);
    if (k->classes != NULL && k->extras <= 2)
        k->extras = Max(k->extras - 1, 0); /* two are told by one of them */
}

/* Write the label as numbers: itself, or 1 in the place of its class; several share one where there are many. */
static void write_extras(const Look *k, double y, double *out)
{
    int64 low = 0, high = k->class_count, few = Min(k->class_count, (int64) PLAIN), first = few <= 2 ? 1 : 0;
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
        out[low % few - first] = k->class_count > PLAIN && low / few % 2 == 1 ? -1 : 1;
}

/* Return the rows at hand as the kernel takes them: [count][features + extras]. */
static const double *make_rows(const Look *k)
{
    int64 width = k->features + k->extras;
    for (int64 i = 0; i < k->count; i++) {
        const double *row = k->rows + i * (k->features + 1);
        memcpy(k->made + i * width, row, sizeof *row * (Size) k->features);
        write_extras(k, row[k->features], k->made + i * width + k->features);
    }
    return k->made;
}

static cp_lens lens_of(const Look *k)
{
    return (cp_lens) {k->features, k->extras, k->center, k->scale, k->turn};
}

/* Take in a row; once those of a spot are there, describe it. */
static void take_row(void *to, const CorgiSource *part, TupleTableSlot *row)
{
    Look *k = to;
    double *numbers = k->rows + k->count * (k->features + 1);
    cp_lens lens;
    slot_getsomeattrs(row, part->last);
    if (part->sparse)
        corgi_mix_pair(part, row, numbers);
    else
        corgi_read_features(part, row, k->features, (char *) numbers);
    numbers[k->features] = k->labels ? (double) corgi_set_of_row(k->labels, part, row) : corgi_read_label(&part->label, row);
    k->count++;
    if (k->vector == NULL || k->count < k->room)
        return;
    lens = lens_of(k);
    cp_content(&lens, make_rows(k), &k->room, 1, k->sums, k->vector);
    k->vector += cp_content_width(k->features, k->extras);
    k->count = 0;
}

/* Let all classes together vary by one, as a number does. */
static void share_spread(const Look *k, double *scale)
{
    double total = 0;
    for (int64 i = 0; i < k->extras; i++)
        total += scale[i] > 0 ? 1 / (scale[i] * scale[i]) : 0;
    for (int64 i = 0; i < k->extras && k->classes != NULL && k->extras > 1; i++)
        scale[i] = scale[i] > 0 ? 1 / sqrt(total) : 0;
}

/* Read `few` of the spots, evenly spaced. */
static void read_spots(const CorgiRun *run, Snapshot snapshot, const cp_spots *spots, int64 few, Look *k)
{
    int64 (*runs)[2] = take(few, sizeof *runs), width = k->features + 1;
    for (int64 i = 0; i < few; i++) {
        runs[i][0] = cp_spot_row(spots, i * spots->count / few);
        runs[i][1] = runs[i][0] + spots->each;
    }
    k->room = spots->each * (k->vector ? 1 : few);
    k->rows = take(k->room * width, sizeof *k->rows);
    k->count = 0;
    corgi_read_runs(run, snapshot, runs, few, take_row, k);
    pfree(runs);
}

/* Learn from the rows at hand which numbers there are and how much they vary. */
static void find_scale(Look *k, const CorgiColumn *label, int64 each)
{
    int64 width, plain = cp_content_plain(k->features);
    cp_lens lens;
    find_classes(k, label);
    width = k->features + k->extras;
    k->center = take(width, sizeof *k->center);
    k->scale = take(width, sizeof *k->scale);
    k->turn = take(plain * plain, sizeof *k->turn);
    k->sums = take(cp_content_room(k->features, k->extras), sizeof *k->sums);
    k->made = take(k->count * width, sizeof *k->made);
    cp_content_scale(make_rows(k), k->count, width, k->center, k->scale);
    share_spread(k, k->scale + k->features);
    lens = lens_of(k);
    cp_content_turn(&lens, k->made, k->count, k->sums, k->turn);
    pfree(k->made), pfree(k->rows);
    k->made = take(each * width, sizeof *k->made);
}

/* Return what rows beside each other have in common beyond the label: of those by which numbers are scaled. */
static double look_alike(const CorgiRun *run, Snapshot snapshot)
{
    MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "corgipile alike", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(context);
    double alike, bytes = row_bytes(run);
    cp_spots spots = cp_spots_make(run->survey.rows, bytes);
    int64 few = cp_spots_few(&spots, cp_spots_first(bytes));
    Look k = {.features = run->source.sparse ? CP_PLAIN : run->survey.width, .labels = run->labels};
    read_spots(run, snapshot, &spots, few, &k);
    find_classes(&k, &run->source.label);
    k.made = take(k.count * (k.features + k.extras), sizeof *k.made);
    make_rows(&k);
    alike = cp_alike(k.made, few, spots.each, k.features, k.extras);
    MemoryContextSwitchTo(outside);
    MemoryContextDelete(context);
    return alike;
}

/* Decide by what blocks are balanced where nobody said it: by the label, unless rows beside each other are alike in more
 * than that, and the blocks in memory are too few to even it out. */
void corgi_choose_balance(CorgiRun *run, Snapshot snapshot)
{
    CorgiOptions *o = &run->options;
    int64 dealt = run->sizes.buffer_blocks * (run->sizes.whole ? 1 : 2);
    double alike;
    if (!o->automatic || !cp_wants_content(1, run->survey.blocks, dealt, o->batch))
        return;
    alike = look_alike(run, snapshot);
    o->content = cp_wants_content(alike, run->survey.blocks, dealt, o->batch);
    if (o->content)
        ereport(NOTICE, errmsg("blocks are balanced by content: rows that lie beside each other have %.0f%% of the variance of "
                               "a feature in common, beyond their label", 100 * alike),
                errhint("order => 'balanced' balances them by the label alone."));
}

/* Describe the blocks of the survey. */
void corgi_describe_blocks(CorgiRun *run, Snapshot snapshot)
{
    CorgiSurvey *v = &run->survey;
    MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "corgipile content", ALLOCSET_DEFAULT_SIZES);
    MemoryContext outside = MemoryContextSwitchTo(context);
    double bytes = row_bytes(run);
    cp_spots spots = cp_spots_make(v->rows, bytes);
    Look k = {.features = run->source.sparse ? CP_PLAIN : v->width, .labels = run->labels};
    int16 *vectors;
    read_spots(run, snapshot, &spots, cp_spots_few(&spots, cp_spots_first(bytes)), &k);
    find_scale(&k, &run->source.label, spots.each);
    v->traits = (int32) cp_content_width(k.features, k.extras);
    vectors = k.vector = take(spots.count * v->traits, sizeof *vectors);
    read_spots(run, snapshot, &spots, spots.count, &k);
    Assert(k.vector == vectors + spots.count * v->traits);
    MemoryContextSwitchTo(outside);
    v->vectors = take(v->blocks * v->traits, sizeof *v->vectors);
    cp_spots_spread(&spots, vectors, v->traits, v->cuts, v->blocks, k.sums, v->vectors);
    MemoryContextDelete(context);
}
