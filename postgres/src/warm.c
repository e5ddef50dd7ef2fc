/* Warm starts: loading of the earlier model, and compatibility checks. */
#include "learning.h"

#include "utils/snapmgr.h"

static bool same_names(const CorgiNames *a, const CorgiNames *b)
{
    bool same = a->count == b->count;
    for (int64 i = 0; same && i < a->count; i++)
        same = strcmp(a->names[i].text, b->names[i].text) == 0;
    return same;
}

/* Return whether the given classes are those of the warm-start model. */
static bool has_classes_given(CorgiOptions *o, const CorgiModel *past)
{
    const CorgiNames *known = past->encoding ? past->encoding->classes : NULL;
    if (known == NULL && !o->untyped && o->class_texts != NIL)
        return false;
    if (known == NULL && o->untyped)
        corgi_number_texts(o);
    if (known != NULL && o->class_texts != NIL)
        return same_names(corgi_named_classes(o), known);
    return o->classes == NULL || (known == NULL && o->class_count == past->classes &&
                                  memcmp(o->classes, past->class_values, sizeof(double) * (Size) past->classes) == 0);
}

/* Adopt the earlier model's encoding, whose columns are identified by name. */
static void adopt_encoding(CorgiOptions *o, const CorgiModel *past)
{
    if (o->encode != NIL || (o->missing != CORGI_MISSING_ERROR && o->missing != CORGI_MISSING_SKIP))
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("encode and missing must be left out: warm_start uses those of its model"));
    corgi_resume_hashing(o, past->encoding, past->features);
    o->encoding = past->encoding;
    if (past->encoding == NULL)
        return;
    if (!corgi_same_names(o->features, past->features))
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("warm_start \"%s\" was trained on other columns, or in another order", o->warm_start),
                errhint("SELECT params -> 'features' FROM corgipile.models lists its columns."));
}

/* Load the warm-start model. Its classes become those of the new model. */
CorgiModel *corgi_load_past(CorgiOptions *o)
{
    o->past = corgi_find_model(o->warm_start, CORGI_READ);
    CorgiModel *past = corgi_load_model(o->warm_start, true);
    corgi_require_single(past, o->warm_start, "warm_start needs");
    o->of = corgi_loss_of(o->kind, past->classes);
    if (past->of.loss != o->of.loss || past->of.parameter != o->of.parameter)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("warm_start \"%s\" is a %s model; a %s model is needed", o->warm_start, past->kind, o->kind));
    for (int64 i = 0; i < past->outputs && !o->intercept; i++)
        if (past->intercepts[i] != 0)
            ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                    errmsg("warm_start \"%s\" has an intercept; intercept => false needs a model without one",
                           o->warm_start));
    adopt_encoding(o, past);
    corgi_take_step(o, past->how, past->rate);
    if (!corgi_predicts_numbers(&o->of) && !has_classes_given(o, past))
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("warm_start \"%s\" has other classes than those given", o->warm_start));
    if (!corgi_predicts_numbers(&o->of)) {
        o->classes = past->class_values;
        o->class_count = (int) past->classes;
    }
    return past;
}

/* Refuse to replace the warm-start model if another session replaced it after it was read. */
void corgi_check_past(const CorgiOptions *o)
{
    if (o->warm_start == NULL || o->name == NULL || strcmp(o->name, o->warm_start) != 0)
        return;
    PushActiveSnapshot(GetTransactionSnapshot());
    CorgiVersion now = corgi_find_model(o->warm_start, CORGI_READ);
    PopActiveSnapshot();
    if (!corgi_same_version(&now, &o->past))
        ereport(ERROR, errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                errmsg("could not serialize access: model \"%s\" was replaced by a concurrent transaction", o->name));
}

/* Check that the rows have the model's features. Sparse rows may lack the last ones. */
void corgi_fit_past(CorgiRun *run, const CorgiModel *past)
{
    CorgiSurvey *v = &run->survey;
    if (run->source.sparse)
        v->width = Max(v->width, past->width);
    if (v->width != past->width)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("warm_start \"%s\" has " INT64_FORMAT " features, the rows have " INT64_FORMAT,
                       run->options.warm_start, past->width, v->width));
}
