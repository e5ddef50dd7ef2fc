/* Parser of the arguments of corgipile.train. */
#include "members.h"
#include "settings.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "plan/plan.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

enum { DEFAULT_BUFFER_BYTES = 64 << 20 };
static const double default_decay = 0.95; /* default declared in SQL */
static const int64 max_exact = INT64CONST(1) << 53;

static const char *const arguments[ARG_COUNT] = {
    "source", "model", "features", "label", "name", "epochs", "learning_rate", "decay", "l2", "batch_size",
    "block_size", "buffer_size", "order", "balance", "seed", "intercept", "classes", "holdout", "warm_start",
    "tolerance", "threads", "weights", "encode", "missing", "query", "where", "standardize", "average", "step", "l1",
    "weight", "class_weight", "patience", "max_norm", "text", "interactions", "hash_bits", "ngrams", "by", "labels"};

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))

/* Parse balance: true, false or 'content', possibly an untyped literal. */
static void read_balance(CorgiOptions *o, Datum value, Oid type)
{
    if (type == BOOLOID) {
        o->balance = DatumGetBool(value);
        return;
    }
    if (type != UNKNOWNOID && type != TEXTOID && type != VARCHAROID)
        REFUSE("balance must be true, false or 'content', got %s", format_type_be(type));
    const char *word = type == UNKNOWNOID ? DatumGetCString(value) : TextDatumGetCString(value);
    o->content = strcmp(word, "content") == 0;
    if (!o->content && !parse_bool(word, &o->balance))
        REFUSE("balance must be true, false or 'content', got \"%s\"", word);
    o->balance |= o->content;
}

/* Parse order and balance. Without `balance`, orders balanced and auto balance blocks. */
static void read_order(CorgiOptions *o, Datum name, Datum balance, bool unset, Oid type)
{
    o->order_name = TextDatumGetCString(name);
    o->automatic = strcmp(o->order_name, "auto") == 0;
    bool balanced = o->automatic || strcmp(o->order_name, "balanced") == 0;
    o->automatic &= unset;
    o->balance = balanced;
    if (!unset)
        read_balance(o, balance, type);
    if (balanced)
        o->order_name = "riffle";
    o->order = cp_order_named(o->order_name);
    if (o->order < 0)
        REFUSE("order must be auto, balanced, riffle, corgipile, block_only or no_shuffle, got \"%s\"", o->order_name);
}

/* Convert a text[] to a list of strings; a NULL stays NULL. */
List *corgi_text_list(Datum array)
{
    Datum *texts;
    bool *nulls;
    List *list = NIL;
    int count = corgi_elements(array, &texts, &nulls);
    for (int i = 0; i < count; i++)
        list = lappend(list, nulls[i] ? NULL : TextDatumGetCString(texts[i]));
    return list;
}

static int64 parse_bytes(Datum value, const char *what)
{
    int64 bytes = DatumGetInt64(DirectFunctionCall1(pg_size_bytes, value));
    if (bytes < 1)
        REFUSE("%s must be positive, got \"%s\"; give bytes such as 64MB", what, TextDatumGetCString(value));
    return bytes;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return x < y ? -1 : x > y;
}

/* Sort class values, drop duplicates, and check their number for the kind of model. `subject` starts the errors. */
double *corgi_check_classes(double *classes, int64 count, const char *subject, const char *kind, int64 *found)
{
    int64 unique = 0;
    qsort(classes, (size_t) count, sizeof *classes, compare_doubles);
    for (int64 i = 0; i < count; i++)
        if (unique == 0 || classes[unique - 1] != classes[i])
            classes[unique++] = classes[i];
    if (unique < 2)
        REFUSE("%s %d value%s; a %s model needs at least two", subject, (int) unique, unique == 1 ? "" : "s", kind);
    if (unique > 2 && corgi_max_classes(kind) == 2)
        REFUSE("%s the values %g, %g, %g...; a %s model takes two, use %s for more", subject, classes[0], classes[1],
               classes[2], kind, corgi_loss_names(corgi_is_per_class));
    *found = unique;
    return classes;
}

/* Sort the class names of a text label, and check them as corgi_check_classes does. */
void corgi_check_class_names(CorgiNames *names, const char *subject, const char *kind)
{
    corgi_sort_names(names, false);
    if (names->count < 2)
        REFUSE("%s %d value%s; a %s model needs at least two", subject, (int) names->count,
               names->count == 1 ? "" : "s", kind);
    if (names->count > 2 && corgi_max_classes(kind) == 2)
        REFUSE("%s the values %s; a %s model takes two, use %s for more", subject, corgi_list_names(names), kind,
               corgi_loss_names(corgi_is_per_class));
}

static void set_classes(CorgiOptions *o, double *values, int count)
{
    int64 found;
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i]) || fabs(values[i]) > (double) max_exact)
            REFUSE("classes must be finite numbers up to 2^53 in size, got %s",
                   isnan(values[i]) ? "NULL or NaN" : psprintf("%g", values[i]));
    o->classes = corgi_check_classes(values, count, "classes has", o->kind, &found);
    o->class_count = (int) found;
}

/* Parse untyped classes as numbers. */
void corgi_number_texts(CorgiOptions *o)
{
    double *values = palloc(sizeof *values * (Size) Max(list_length(o->class_texts), 1));
    ListCell *cell;
    int count = 0;
    foreach (cell, o->class_texts)
        values[count++] = DatumGetFloat8(DirectFunctionCall1(float8in, CStringGetDatum(lfirst(cell))));
    set_classes(o, values, count);
}

/* Return the classes given as text, sorted. */
CorgiNames *corgi_named_classes(const CorgiOptions *o)
{
    CorgiNames *names = corgi_make_names();
    ListCell *cell;
    foreach (cell, o->class_texts)
        corgi_add_name(names, lfirst(cell), strlen(lfirst(cell)));
    corgi_check_class_names(names, "classes has", o->kind);
    return names;
}

/* Convert the given classes to the label's: to indices if it is text. */
void corgi_settle_classes(CorgiOptions *o, const CorgiSource *s)
{
    CorgiNames *names = s->label.classes;
    if (names == NULL && o->class_texts != NIL && !o->untyped)
        REFUSE("classes must be of the type of label column \"%s\", %s, got text", o->label,
               format_type_be(s->label.type));
    if (names == NULL && o->untyped)
        corgi_number_texts(o);
    if (names == NULL || (o->class_texts == NIL && !o->untyped && o->classes == NULL))
        return;
    if (o->classes != NULL)
        REFUSE("classes must be text for label column \"%s\", which is %s, got numbers", o->label,
               format_type_be(s->label.type));
    *names = *corgi_named_classes(o);
    o->class_count = (int) names->count;
    o->classes = palloc(sizeof *o->classes * (Size) names->count);
    for (int i = 0; i < o->class_count; i++)
        o->classes[i] = i;
}

static void read_class_texts(CorgiOptions *o, Datum array)
{
    o->class_texts = corgi_text_list(array);
    if (list_member_ptr(o->class_texts, NULL))
        REFUSE("classes must be finite numbers up to 2^53 in size, or texts, got NULL");
}

/* Parse classes: an array of numbers or of text, or an untyped literal. */
static void read_classes(CorgiOptions *o, Datum value, Oid type)
{
    Oid item = get_element_type(getBaseType(type)), input, parameter;
    Datum *values;
    bool *nulls;
    if (type == UNKNOWNOID) {
        getTypeInputInfo(TEXTARRAYOID, &input, &parameter);
        o->untyped = true;
        value = OidInputFunctionCall(input, DatumGetCString(value), parameter, -1);
    }
    if (type == UNKNOWNOID || item == TEXTOID || item == VARCHAROID) {
        read_class_texts(o, value);
        return;
    }
    item = OidIsValid(item) ? getBaseType(item) : item;
    if (!corgi_is_number(item))
        REFUSE("classes must be an array of numbers or text, got %s", format_type_be(type));
    int count = corgi_elements(value, &values, &nulls);
    double *numbers = palloc(sizeof *numbers * (Size) Max(count, 1));
    for (int i = 0; i < count; i++)
        numbers[i] = nulls[i] ? NAN : corgi_number_of(item, values[i]);
    set_classes(o, numbers, count);
}

/* Parse step. The default is that of a warm start, or else `usual` for classes, and decay for numbers or with a given
 * rate. */
static void read_step(CorgiOptions *o, Datum name, bool null, bool rated, enum cp_step usual)
{
    char *word = null ? "" : TextDatumGetCString(name);
    int step = null ? rated || corgi_predicts_numbers(&o->of) ? CP_STEP_DECAY : usual : cp_step_named(word);
    StringInfoData names;
    o->any_step = null;
    o->rated = rated;
    initStringInfo(&names);
    for (int i = 0; i < CP_STEP_COUNT; i++)
        appendStringInfo(&names, "%s%s", i == 0 ? "" : i == CP_STEP_COUNT - 1 ? " or " : ", ", cp_steps[i].name);
    if (step < 0)
        REFUSE("step must be %s, got \"%s\"", names.data, word);
    o->step = (enum cp_step) step;
}

/* Describe the optimizer. Its state is useful only to an equal one. */
char *corgi_describe_optimizer(const CorgiOptions *o)
{
    return psprintf("%s %s %s", o->average ? "true" : "false", cp_steps[o->step].name, float8out_internal(o->l1));
}

static void check_schedule(const CorgiOptions *o)
{
    if (o->epochs < 1 || o->epochs > 1000000)
        REFUSE("epochs must be 1 to 1000000, got %d", o->epochs);
    if (o->batch < 1)
        REFUSE("batch_size must be at least 1, got %d", o->batch);
    if (!(o->learning_rate > 0 && isfinite(o->learning_rate)))
        REFUSE("learning_rate must be above 0, got %g", o->learning_rate);
    if (!(o->decay > 0 && o->decay <= 1))
        REFUSE("decay must be above 0 and at most 1, got %g", o->decay);
    if (cp_steps[o->step].fading != CP_BY_FACTOR && o->decay != default_decay)
        REFUSE("decay needs step => 'decay', got step => '%s' with decay %g", cp_steps[o->step].name,
               o->decay);
    if (!(o->l1 >= 0 && isfinite(o->l1)))
        REFUSE("l1 must be a finite number of at least 0, got %g", o->l1);
    if (!(o->max_norm >= 0 && isfinite(o->max_norm)))
        REFUSE("max_norm must be a finite number above 0, got %g", o->max_norm);
    if (!(o->l2 >= 0 && isfinite(o->l2)) || (cp_steps[o->step].rule == CP_SAME && !(o->l2 * o->learning_rate < 1)))
        REFUSE("l2 must be 0 or more, and below 1 / learning_rate, got %g", o->l2);
    if (!(o->holdout >= 0 && o->holdout < 1))
        REFUSE("holdout must be a share of the rows, at least 0 and below 1, got %g", o->holdout);
    if (o->patience != 0 && !(o->holdout > 0))
        REFUSE("patience needs validation rows: set holdout, such as holdout => 0.1");
    if (o->threads < 1 || o->threads > 2)
        REFUSE("threads must be 1 or 2, got %d", o->threads);
    if (o->balance && !cp_order(o->order)->deals)
        REFUSE("balance needs order riffle, got \"%s\"", o->order_name);
}

/* Adopt a warm start's step, averaging and rate unless they were set. A given rate keeps the step, unless that step
 * chooses its own rate. `how` is as corgi_describe_optimizer writes it. */
void corgi_take_step(CorgiOptions *o, const char *how, double rate)
{
    enum cp_step known = CP_STEP_DECAY;
    for (int i = 0; i < CP_STEP_COUNT; i++)
        if (strstr(how, psprintf(" %s ", cp_steps[i].name)) != NULL)
            known = (enum cp_step) i;
    if (o->any_step) {
        if (o->any_average && !o->rated)
            o->average = strncmp(how, "true ", 5) == 0;
        o->step = o->rated && cp_steps[known].fixed ? CP_STEP_DECAY : known;
        if (o->adaptive)
            o->learning_rate = cp_steps[o->step].usual;
    }
    if (o->adaptive && o->step == known && rate > 0)
        o->learning_rate = rate;
    check_schedule(o);
}

/* Apply the server's limits. Fewer threads give the same model; less memory gives another one, so a given size is an
 * error. */
static void apply_limits(CorgiOptions *o)
{
    o->threads = Min(o->threads, corgi_max_threads);
    if (corgi_max_memory < 0 || o->buffer_bytes <= (int64) corgi_max_memory * 1024)
        return;
    if (!o->spare)
        ereport(ERROR, errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                errmsg("buffer_size must be at most corgipile.max_memory, got " INT64_FORMAT " kB against %d kB",
                       o->buffer_bytes / 1024, corgi_max_memory),
                errhint("Set buffer_size => '%dkB'.", corgi_max_memory));
    o->buffer_bytes = (int64) corgi_max_memory * 1024;
    ereport(NOTICE, errmsg("buffer_size defaults to %d kB, the limit of corgipile.max_memory", corgi_max_memory));
}

static double tolerance_of(double tolerance)
{
    if (!(tolerance >= 0))
        REFUSE("tolerance must be 0 or more, got %g", tolerance);
    return tolerance;
}

/* Refuse options of a single model when training by group. */
static void check_grouped(const CorgiOptions *o)
{
    const char *word = o->holdout > 0 ? "holdout" : o->warm_start ? "warm_start" : o->weights ? "weights" : NULL;
    if (o->by == NULL)
        return;
    if (word != NULL)
        REFUSE("%s must be left out with by => '%s': each value has its own model", word, o->by);
    if (strcmp(o->by, o->label) == 0 || (o->weight != NULL && strcmp(o->by, o->weight) == 0))
        REFUSE("by => '%s' is the %s column; give another one", o->by,
               strcmp(o->by, o->label) == 0 ? "label" : "weight");
}

static bool may_be_null(int argument)
{
    return argument == ARG_NAME || argument == ARG_BLOCK_SIZE || argument == ARG_BUFFER_SIZE ||
           argument == ARG_CLASSES || argument == ARG_HOLDOUT || argument == ARG_WARM_START ||
           argument == ARG_TOLERANCE || argument == ARG_BALANCE || argument == ARG_ENCODE || argument == ARG_QUERY ||
           argument == ARG_WHERE || argument == ARG_FEATURES || argument == ARG_STANDARDIZE ||
           argument == ARG_LEARNING_RATE || argument == ARG_WEIGHT || argument == ARG_CLASS_WEIGHT ||
           argument == ARG_STEP || argument == ARG_PATIENCE || argument == ARG_MAX_NORM || argument == ARG_AVERAGE ||
           argument == ARG_TEXT || argument == ARG_INTERACTIONS || argument == ARG_BY || argument == ARG_LABELS;
}

void corgi_read_options(CorgiOptions *o, const Datum *values, const bool *nulls, const Oid *types)
{
    bool text_only;
    for (int i = 0; i < ARG_COUNT; i++)
        if (nulls[i] && !may_be_null(i) && i != ARG_SOURCE && (i != ARG_LABEL || nulls[ARG_LABELS]))
            REFUSE("%s must not be NULL", arguments[i]);
    o->source = nulls[ARG_SOURCE] ? InvalidOid : DatumGetObjectId(values[ARG_SOURCE]);
    o->where = nulls[ARG_WHERE] ? NULL : TextDatumGetCString(values[ARG_WHERE]);
    o->query = nulls[ARG_QUERY] ? NULL : TextDatumGetCString(values[ARG_QUERY]);
    corgi_check_rows(nulls[ARG_SOURCE], o->query, o->where);
    o->kind = TextDatumGetCString(values[ARG_MODEL]);
    o->of = corgi_loss_of(o->kind, 2);
    o->features = nulls[ARG_FEATURES] ? NIL : corgi_read_names(values[ARG_FEATURES], types[ARG_FEATURES], "features");
    o->labels = nulls[ARG_LABELS] ? NIL : corgi_read_names(values[ARG_LABELS], types[ARG_LABELS], "labels");
    o->label = nulls[ARG_LABEL] ? corgi_name_of_sets(o->labels) : TextDatumGetCString(values[ARG_LABEL]);
    o->name = nulls[ARG_NAME] ? NULL : TextDatumGetCString(values[ARG_NAME]);
    o->epochs = DatumGetInt32(values[ARG_EPOCHS]);
    o->decay = DatumGetFloat8(values[ARG_DECAY]);
    text_only =
        !nulls[ARG_TEXT] && nulls[ARG_FEATURES] && nulls[ARG_INTERACTIONS] && DatumGetInt32(values[ARG_NGRAMS]) > 1;
    read_step(o, values[ARG_STEP], nulls[ARG_STEP], !nulls[ARG_LEARNING_RATE] || o->decay != default_decay,
              text_only ? CP_STEP_ADAGRAD : CP_STEP_AUTO);
    if (cp_steps[o->step].fixed && !nulls[ARG_LEARNING_RATE] &&
        DatumGetFloat8(values[ARG_LEARNING_RATE]) != cp_steps[o->step].usual)
        REFUSE("step '%s' sets the rate, got learning_rate %g; leave it out", cp_steps[o->step].name,
               DatumGetFloat8(values[ARG_LEARNING_RATE]));
    o->adaptive = nulls[ARG_LEARNING_RATE];
    o->learning_rate = o->adaptive ? cp_steps[o->step].usual : DatumGetFloat8(values[ARG_LEARNING_RATE]);
    o->l1 = DatumGetFloat8(values[ARG_L1]);
    o->l2 = DatumGetFloat8(values[ARG_L2]);
    o->max_norm = nulls[ARG_MAX_NORM] ? 0 : DatumGetFloat8(values[ARG_MAX_NORM]);
    o->batch = DatumGetInt32(values[ARG_BATCH_SIZE]);
    o->block_bytes = nulls[ARG_BLOCK_SIZE] ? 0 : parse_bytes(values[ARG_BLOCK_SIZE], "block_size");
    o->spare = nulls[ARG_BUFFER_SIZE];
    o->buffer_bytes = o->spare ? DEFAULT_BUFFER_BYTES : parse_bytes(values[ARG_BUFFER_SIZE], "buffer_size");
    read_order(o, values[ARG_ORDER], values[ARG_BALANCE], nulls[ARG_BALANCE], types[ARG_BALANCE]);
    o->seed = DatumGetInt64(values[ARG_SEED]);
    o->intercept = DatumGetBool(values[ARG_INTERCEPT]);
    o->standardize = nulls[ARG_STANDARDIZE]                  ? CORGI_AS_NEEDED
                     : DatumGetBool(values[ARG_STANDARDIZE]) ? CORGI_YES
                                                             : CORGI_NO;
    o->any_average = nulls[ARG_AVERAGE];
    o->average =
        o->any_average ? o->any_step && !o->rated && corgi_predicts_numbers(&o->of) : DatumGetBool(values[ARG_AVERAGE]);
    o->holdout = nulls[ARG_HOLDOUT] ? 0 : DatumGetFloat8(values[ARG_HOLDOUT]);
    o->patience = nulls[ARG_PATIENCE] ? 0 : DatumGetInt32(values[ARG_PATIENCE]);
    o->warm_start = nulls[ARG_WARM_START] ? NULL : TextDatumGetCString(values[ARG_WARM_START]);
    o->tolerance = nulls[ARG_TOLERANCE] ? -1 : tolerance_of(DatumGetFloat8(values[ARG_TOLERANCE]));
    o->threads = DatumGetInt32(values[ARG_THREADS]);
    o->weights = DatumGetBool(values[ARG_WEIGHTS]);
    o->encode = nulls[ARG_ENCODE] ? NIL : corgi_read_encode(values[ARG_ENCODE], types[ARG_ENCODE]);
    o->weight = nulls[ARG_WEIGHT] ? NULL : TextDatumGetCString(values[ARG_WEIGHT]);
    if (!nulls[ARG_CLASS_WEIGHT])
        corgi_read_class_weight(o, values[ARG_CLASS_WEIGHT], types[ARG_CLASS_WEIGHT]);
    o->by = nulls[ARG_BY] ? NULL : TextDatumGetCString(values[ARG_BY]);
    o->missing = corgi_read_missing(values[ARG_MISSING], types[ARG_MISSING], &o->fill);
    corgi_read_hashing(o, values, nulls, types);
    if (o->name != NULL && *o->name == '\0')
        REFUSE("name must have at least one character, or be NULL to store no model");
    if (!nulls[ARG_MAX_NORM] && o->max_norm == 0)
        REFUSE("max_norm must be above 0, got 0; leave it out for no bound");
    if (!nulls[ARG_PATIENCE] && o->patience < 1)
        REFUSE("patience must be at least 1, got %d", o->patience);
    check_schedule(o);
    check_grouped(o);
    corgi_check_labels(o, !nulls[ARG_LABEL], !nulls[ARG_CLASSES]);
    apply_limits(o);
    if (!nulls[ARG_CLASSES] && !corgi_predicts_numbers(&o->of))
        read_classes(o, values[ARG_CLASSES], types[ARG_CLASSES]);
}
