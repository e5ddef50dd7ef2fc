/* Row weights, from a column and from classes. */
#include "learning.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "sgd/losses.h"
#include "sgd/rows.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))
#define INVALID ERRCODE_INVALID_PARAMETER_VALUE

/* The weight of a class's rows, by the class as text. */
typedef struct {
    char *name;
    double weight;
} ClassWeight;

/* Return whether classes are weighted inversely to their frequency. */
bool corgi_is_balanced(const CorgiOptions *o) { return o->class_weight != NULL && o->class_weights == NIL; }

static ClassWeight *read_class_weight_entry(char *name, const JsonbValue *value)
{
    ClassWeight *one = palloc(sizeof *one);
    *one = (ClassWeight){name, NAN};
    if (value->type == jbvNumeric)
        one->weight = DatumGetFloat8(DirectFunctionCall1(numeric_float8, NumericGetDatum(value->val.numeric)));
    if (!(one->weight >= 0 && isfinite(one->weight)))
        REFUSE(INVALID, "class_weight of class \"%s\" must be a finite number of 0 or more", name);
    return one;
}

/* Parse class_weight: balanced, or a JSON object of numbers by class. */
void corgi_read_class_weight(CorgiOptions *o, Datum value, Oid type)
{
    JsonbIteratorToken token;
    JsonbValue item;
    char *name = NULL;
    o->class_weight = corgi_argument_text(value, type);
    if (corgi_predicts_numbers(&o->of))
        REFUSE(INVALID, "class_weight needs a classifier; a %s model predicts numbers", o->kind);
    if (strcmp(o->class_weight, "balanced") == 0)
        return;
    if (o->class_weight[strspn(o->class_weight, " \t\n\r")] != '{')
        REFUSE(INVALID, "class_weight must be 'balanced' or a JSON object of numbers by class, such as "
               "'{\"no\": 1, \"yes\": 20}', got \"%s\"", o->class_weight);
    JsonbIterator *at =
        JsonbIteratorInit(&DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(o->class_weight)))->root);
    while ((token = JsonbIteratorNext(&at, &item, true)) != WJB_DONE) {
        if (token == WJB_KEY)
            name = pnstrdup(item.val.string.val, item.val.string.len);
        else if (token == WJB_VALUE)
            o->class_weights = lappend(o->class_weights, read_class_weight_entry(name, &item));
    }
    if (o->class_weights == NIL)
        REFUSE(INVALID, "class_weight must name at least one class, got an empty object");
}

/* Return whether a text denotes a class. */
static bool denotes_class(const CorgiRun *run, int64 k, const char *name)
{
    const CorgiNames *names = run->source.label.classes;
    char *end;
    if (names != NULL)
        return strcmp(names->names[k].text, name) == 0;
    double number = strtod(name, &end);
    return end != name && *end == '\0' && number == run->survey.classes[k];
}

static void weigh_by_name(const CorgiRun *run, double *weight)
{
    const CorgiSurvey *v = &run->survey;
    ListCell *cell;
    bool any = false;
    foreach (cell, run->options.class_weights) {
        const ClassWeight *one = lfirst(cell);
        int64 k = 0;
        while (k < v->class_count && !denotes_class(run, k, one->name))
            k++;
        if (k == v->class_count)
            REFUSE(INVALID, "class_weight must name classes of the label, got \"%s\"", one->name);
        weight[k] = one->weight;
    }
    for (int64 k = 0; k < v->class_count; k++)
        any |= weight[k] > 0;
    if (!any)
        REFUSE(INVALID, "class_weight must be above 0 for at least one class, got 0 for all");
}

/* Return the number of training rows of a class; `values` ascend. */
static int64 count_of(double class, const double *values, const int64 *counts, int64 n)
{
    int64 k = n ? cp_find_class(values, n, class) : -1;
    return k < 0 ? 0 : counts[k];
}

/* Compute the class weights from the row counts of the labels, as corgipile.linear.classes does. */
void corgi_compute_class_weights(CorgiRun *run, const double *values, const int64 *counts, int64 n)
{
    CorgiSurvey *v = &run->survey;
    double total = 0;
    if (run->options.class_weight == NULL || v->class_count == 0)
        return;
    v->class_weight = palloc(sizeof *v->class_weight * (Size) v->class_count);
    for (int64 k = 0; k < v->class_count; k++)
        v->class_weight[k] = 1;
    if (!corgi_is_balanced(&run->options)) {
        weigh_by_name(run, v->class_weight);
        return;
    }
    for (int64 k = 0; k < v->class_count; k++) {
        int64 count = count_of(v->classes[k], values, counts, n);
        if (count == 0)
            REFUSE(ERRCODE_NO_DATA_FOUND,
                   "class_weight 'balanced' needs training rows of each class: there are none of class %s",
                   run->source.label.classes ? run->source.label.classes->names[k].text
                                             : psprintf("%g", v->classes[k]));
        v->class_weight[k] = (double) count;
        total += (double) count;
    }
    for (int64 k = 0; k < v->class_count; k++)
        v->class_weight[k] = total / ((double) v->class_count * v->class_weight[k]);
}

/* Compute the class weights of a stored model as in training, from row counts. */
void corgi_weights_of(const CorgiModel *m, const char *class_weight, const int64 *counts, double *weight)
{
    CorgiRun run = {.options = {.kind = m->kind, .of = m->of},
                    .survey = {.classes = m->class_values, .class_count = m->classes},
                    .source = {.label = {.classes = m->encoding ? m->encoding->classes : NULL}}};
    corgi_read_class_weight(&run.options, CStringGetTextDatum(class_weight), TEXTOID);
    corgi_compute_class_weights(&run, m->class_values, counts, m->classes);
    memcpy(weight, run.survey.class_weight, sizeof *weight * (Size) m->classes);
}

/* Return a row's weight. The kernel refuses invalid ones. */
double corgi_read_weight(const CorgiColumn *weight, TupleTableSlot *row)
{
    bool null;
    Datum value = slot_getattr(row, weight->attnum, &null);
    double row_weight;
    if (null && !weight->lenient)
        corgi_null_value(weight, row, "weight");
    if (null)
        return NAN;
    corgi_read_number(weight->type, value, sizeof row_weight, (char *) &row_weight);
    return row_weight;
}

/* Refuse rows whose weights are all zero. */
void corgi_check_weight(const cp_figures *figures, const char *subject)
{
    if (figures->rows > 0 && !(figures->weight > 0))
        REFUSE(ERRCODE_NO_DATA_FOUND, "the weights of %s are all zero; one above 0 is needed", subject);
}
