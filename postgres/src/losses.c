/* SQL names of losses, all from the table of kernel/sgd/losses.h. */
#include "options.h"

#include "lib/stringinfo.h"

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))

/* Join the names of all losses, or of those `wanted`: "a, b or c". */
char *corgi_loss_names(bool (*wanted)(const cp_loss_facts *))
{
    const char *names[CP_LOSS_COUNT];
    int count = 0;
    StringInfoData text;
    for (int i = 0; i < CP_LOSS_COUNT; i++) {
        bool duplicate = false;
        for (int k = 0; k < count; k++)
            duplicate |= strcmp(names[k], cp_losses[i].name) == 0;
        if (!duplicate && (wanted == NULL || wanted(&cp_losses[i])))
            names[count++] = cp_losses[i].name;
    }
    initStringInfo(&text);
    for (int i = 0; i < count; i++)
        appendStringInfo(&text, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", names[i]);
    return text.data;
}

bool corgi_has_probability(const cp_loss_facts *f) { return f->probability; }
bool corgi_is_per_class(const cp_loss_facts *f) { return f->labels == CP_CLASSES; }
bool corgi_is_of_numbers(const cp_loss_facts *f) { return f->labels == CP_NUMBERS; }

/* Parse the name of a loss and its parameter, for this number of classes. */
cp_loss_choice corgi_loss_of(const char *kind, int64 classes)
{
    cp_loss_choice of = {0};
    enum cp_loss_reading how = cp_loss_read(kind, classes, &of);
    if (how == CP_LOSS_UNKNOWN)
        REFUSE("model must be %s, got \"%s\"", corgi_loss_names(NULL), kind);
    const cp_loss_facts *f = &cp_losses[of.loss];
    if (how == CP_LOSS_TAKES_NONE)
        REFUSE("a %s model has no parameter, got \"%s\"", f->name, kind);
    if (how == CP_LOSS_BAD_PARAMETER && isinf(f->below))
        REFUSE("%s of a %s model must be a finite number above 0, got \"%s\"", f->parameter, f->name, kind);
    if (how == CP_LOSS_BAD_PARAMETER)
        REFUSE("%s of a %s model must be above 0 and below %g, got \"%s\"", f->parameter, f->name, f->below, kind);
    return of;
}

const char *corgi_loss_name(const cp_loss_choice *of) { return cp_losses[of->loss].name; }

/* Return the most classes of a kind of model; 0 if it predicts numbers. */
int64 corgi_max_classes(const char *kind)
{
    cp_loss_choice of = corgi_loss_of(kind, 2);
    return cp_loss_max_classes(corgi_loss_name(&of));
}
