/* Error hints for near-miss input. */
#include "run.h"


#include "catalog/pg_type.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

/* Return the array type that a type casts to, as pgvector's vector and halfvec cast to real[]; or NULL. */
const char *corgi_cast_to_list(Oid type)
{
    const Oid lists[] = {FLOAT4ARRAYOID, FLOAT8ARRAYOID};
    for (int i = 0; i < lengthof(lists); i++)
        if (SearchSysCacheExists2(CASTSOURCETARGET, ObjectIdGetDatum(type), ObjectIdGetDatum(lists[i])))
            return format_type_be(lists[i]);
    return NULL;
}

/* Return whether values of a type are text with another comparison, as citext. */
bool corgi_casts_to_text(Oid type) { return !corgi_is_text(type) && IsBinaryCoercible(type, TEXTOID); }

/* Return a name for a column derived from another, quoted for SQL. */
static const char *derived_name(const char *column, const char *what)
{
    return quote_identifier(psprintf("%s_%s", column, what));
}

/* Hint at a generated column that converts a type with a cast, or with values inside. */
int corgi_hint_cast(Oid type, const char *column)
{
    const char *cast = corgi_cast_to_list(type), *name = quote_identifier(column);
    if (type == JSONOID || type == JSONBOID)
        return errhint("Extract values in a query, or add a column: %s float8 GENERATED ALWAYS AS "
                       "((%s ->> 'key')::float8) STORED, without the cast for text.",
                       derived_name(column, "key"), name);
    if (corgi_casts_to_text(type))
        return errhint("Cast it to text in a query, or add a column: %s text GENERATED ALWAYS AS (%s::text) STORED.",
                       derived_name(column, "text"), name);
    return cast ? errhint("Add a column of numbers: %s %s GENERATED ALWAYS AS (%s::%s) STORED.",
                          derived_name(column, "list"), cast, name, cast)
                : 0;
}

/* Return a feature's name: its column, with its index in an array. */
char *corgi_feature_name(const CorgiSource *source, int64 i)
{
    if (corgi_hashing(source) != NULL)
        return psprintf(INT64_FORMAT " of the hashed features", i);
    for (int k = 0; source->encoded && !source->features->list && k < source->feature_columns; k++) {
        int64 width = source->features[k].encoder ? source->features[k].encoder->width : 1;
        if (i < width)
            return psprintf("\"%s\"", source->features[k].name);
        i -= width;
    }
    return source->features->list ? psprintf("\"%s\"[" INT64_FORMAT "]", source->features->name, i + 1)
                                  : psprintf("\"%s\"", source->features[i].name);
}

/* Report features whose scale slows SGD, and whether they will be standardised. */
void corgi_report_scales(const cp_scale_result *seen, const CorgiRun *run)
{
    const char *advice = run->standardize ? "they are standardised; standardize => false learns from them as they are"
                                        : "standardize => true would help";
    if (seen->scales == CP_SCALES_DIFFER)
        ereport(NOTICE, errmsg("features differ in scale by %.1g times (%s and %s): %s", seen->scale_ratio,
                               corgi_feature_name(&run->source, seen->largest),
                               corgi_feature_name(&run->source, seen->smallest), advice));
    else if (seen->scales == CP_ROWS_OFF_CENTRE)
        ereport(NOTICE, errmsg("features lie to one side of 0 (their means are %.0f%% of their mean squares): %s",
                               100 * seen->mean_share, advice));
    else if (seen->scales == CP_FEATURES_SMALL)
        ereport(NOTICE, errmsg("feature %s is small for SGD (mean square %.3g): %s",
                               corgi_feature_name(&run->source, seen->smallest), seen->least, advice));
    else
        ereport(NOTICE, errmsg("rows are long for SGD (mean squared length %.3g): %s", seen->length, advice));
}

/* Hint at a lower rate after a training diverged. */
int corgi_hint_rate(const CorgiRun *run)
{
    const CorgiOptions *o = &run->options;
    return errhint("Try learning_rate => %g%s.",
                   (cp_steps[o->step].fixed ? cp_steps[CP_STEP_DECAY].usual : o->learning_rate) / 10,
                   run->scaling ? "" : ", or standardize => true");
}

/* Suggest standardised features once, as the hint of a message about unscaled features. */
int corgi_hint_scaling(CorgiRun *run)
{
    if (run->scaling || run->hinted)
        return 0;
    run->hinted = true;
    return errhint("standardize => true would help if features differ in scale.");
}

static const cp_figures *decisive_metrics(const CorgiRun *run, const CorgiEpoch *epoch)
{
    return epoch->held.rows > 0 && !run->survey.class_weight ? &epoch->held : &epoch->learnt;
}

/* Return whether an epoch was no better than a constant prediction, on validation rows if there are any. R2 compares
 * with the mean, so it does not suit losses with another best constant. With row weights the constant is unknown. */
static bool nothing_learnt(const CorgiRun *run, const CorgiEpoch *epoch)
{
    const cp_loss_choice *of = &run->options.of;
    const cp_figures *f = decisive_metrics(run, epoch);
    if (corgi_predicts_numbers(of))
        return f->score <= 0 && cp_losses[of->loss].of_mean;
    return run->options.weight == NULL && f->loss >= run->survey.chance;
}

/* Suggest standardised features if the first two epochs learnt nothing. */
void corgi_hint_nothing_learnt(CorgiRun *run, const CorgiHistory *h, const CorgiEpoch *last)
{
    if (h->past + h->count == 2 && !run->members && !run->scaling && !run->hinted && nothing_learnt(run, last))
        ereport(NOTICE, errmsg("two epochs were no better than a constant prediction"), corgi_hint_scaling(run));
}

/* Report a last epoch that was no better than a constant. */
void corgi_warn_no_better(const CorgiRun *run, const CorgiEpoch *last)
{
    const cp_figures *f = decisive_metrics(run, last);
    bool held = f == &last->held, numbers = corgi_predicts_numbers(&run->options.of);
    double chance = run->survey.chance;
    const char *baseline = run->options.classes == NULL ? "a constant prediction" : "zero weights";
    if (!nothing_learnt(run, last))
        return;
    ereport(WARNING,
            numbers ? errmsg("the model is no better than the mean of the labels: R2 is %.4f%s", f->score,
                            held ? " on the validation rows" : "")
                   : errmsg("the model is no better than chance: its loss is %.4g%s, that of %s %.4g",
                            f->loss, held ? " on the validation rows" : "", baseline, chance),
            errhint(run->scaling ? "Try another learning_rate, and more epochs."
                                 : "Try another learning_rate, more epochs, and standardize => true."));
}
