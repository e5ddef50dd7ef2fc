/* What to say to who comes with something that does not serve, but nearly does. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_cast.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* Return the array type that values of a type can be cast to, as vector and halfvec of pgvector to real[]; or NULL. */
const char *corgi_cast_to_list(Oid type)
{
    const Oid lists[] = {FLOAT4ARRAYOID, FLOAT8ARRAYOID};
    for (int i = 0; i < lengthof(lists); i++)
        if (SearchSysCacheExists2(CASTSOURCETARGET, ObjectIdGetDatum(type), ObjectIdGetDatum(lists[i])))
            return format_type_be(lists[i]);
    return NULL;
}

/* Add to an error about a column of a type that can be cast how to make a column of numbers of it. */
int corgi_hint_cast(Oid type, const char *column)
{
    const char *cast = corgi_cast_to_list(type), *name = quote_identifier(column);
    return cast ? errhint("Add a column of numbers: %s_list %s GENERATED ALWAYS AS (%s::%s) STORED.", name, cast, name,
                          cast)
                : 0;
}

enum { SAMPLE_ROWS = 256, WIDEST = 1 << 16, FAR_APART = 300 };

/* Note how large features are, of a few rows of each block until the sample is full. */
void corgi_note_scales(CorgiScales *s, const CorgiSource *source, TupleTableSlot *row, int64 width)
{
    if (s->block-- <= 0 || s->seen == SAMPLE_ROWS || width > WIDEST)
        return;
    if (s->most == NULL) {
        MemoryContext longer = GetMemoryChunkContext(s);
        s->width = width;
        s->most = MemoryContextAllocZero(longer, sizeof *s->most * (Size) width);
        s->row = MemoryContextAlloc(longer, sizeof(double) * (Size) width);
    }
    slot_getsomeattrs(row, source->last);
    corgi_read_features(source, row, width, s->row);
    for (int64 i = 0; i < width; i++) {
        double x = fabs(source->bytes == 8 ? ((double *) s->row)[i] : ((float *) s->row)[i]);
        if (isfinite(x))
            s->most[i] = Max(s->most[i], x);
    }
    s->seen++;
}

static char *feature_name(const CorgiSource *source, int64 i)
{
    for (int k = 0; source->encoded && !source->features->list && k < source->feature_columns; k++) {
        int64 width = source->features[k].encoder ? source->features[k].encoder->width : 1;
        if (i < width)
            return psprintf("\"%s\"", source->features[k].name);
        i -= width;
    }
    return source->features->list ? psprintf("\"%s\"[" INT64_FORMAT "]", source->features->name, i + 1)
                                  : psprintf("\"%s\"", source->features[i].name);
}

/* Say so where the features of the sample differ in size so much that one rate does not suit them all. */
void corgi_tell_scales(const CorgiScales *s, const CorgiSource *source)
{
    int64 low = -1, high = -1;
    for (int64 i = 0; i < s->width; i++) {
        if (s->most[i] > 0 && (low < 0 || s->most[i] < s->most[low]))
            low = i;
        if (s->most[i] > 0 && (high < 0 || s->most[i] > s->most[high]))
            high = i;
    }
    if (low >= 0 && s->most[high] > FAR_APART * s->most[low])
        ereport(NOTICE,
                errmsg("features differ in scale: %s reaches %.3g, %s %.3g; one learning rate hardly suits both",
                       feature_name(source, high), s->most[high], feature_name(source, low), s->most[low]),
                errhint("Train on columns less their mean and divided by their spread, such as generated ones."));
}

/* Say so where the last epoch has been no better than a constant: on the rows held out, if there are any. R2 compares
 * with the mean, so of losses with another best constant it says nothing. */
void corgi_tell_chance(const CorgiRun *run, const CorgiEpoch *last)
{
    const cp_loss_choice *of = &run->options.of;
    bool held = last->held.rows > 0, numbers = corgi_predicts_numbers(of);
    const cp_figures *f = held ? &last->held : &last->learnt;
    double chance = run->survey.chance;
    const char *whose = run->options.classes == NULL ? "always the same answer" : "weights of zero";
    if (numbers ? f->score > 0 || !cp_losses[of->loss].of_mean : f->loss < chance)
        return;
    ereport(WARNING,
            numbers ? errmsg("the model is no better than the mean of the labels: R2 is %.4f%s", f->score,
                            held ? " on the rows held out" : "")
                   : errmsg("the model is no better than chance: its loss is %.4g%s, that of %s %.4g",
                            f->loss, held ? " on the rows held out" : "", whose, chance),
            errhint("Try another learning_rate, more epochs, and features of the same scale."));
}
