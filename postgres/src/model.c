/* Loader of models from corgipile.models. Anybody may have written a row, so nothing in it is trusted. */
#include "learning.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "sgd/totals.h"
#include "utils/array.h"
#include "utils/float.h"

#define WHERE " FROM corgipile.models WHERE name operator(pg_catalog.=) $1"

static const char *const weights_query =
    "SELECT kind, dims, classes, coefficients, intercepts, params operator(pg_catalog.->>) 'numbers'" WHERE;
#define FEATURES \
    "SELECT ARRAY(SELECT f operator(pg_catalog.#>>) '{}' FROM pg_catalog.jsonb_path_query(params, '$.features[*]') f), "
#define GROUP "params operator(pg_catalog.->>) 'by'"
static const char *const columns_query = FEATURES GROUP WHERE;
static const char *const past_query =
    FEATURES
    "params operator(pg_catalog.->>) 'label', learnt, "
    "pg_catalog.concat_ws(' ', params operator(pg_catalog.->>) 'average', params operator(pg_catalog.->>) 'step', "
    "(params operator(pg_catalog.->>) 'l1')::pg_catalog.float8), params operator(pg_catalog.->>) 'best_epoch', "
    "CASE WHEN pg_catalog.jsonb_typeof(params operator(pg_catalog.->) 'learning_rate') operator(pg_catalog.=) "
    "'number' THEN (params operator(pg_catalog.->>) 'learning_rate')::pg_catalog.float8 END" WHERE;
#define LISTED(column) "pg_catalog.array_agg(" column " ORDER BY epoch)"
/* Query for what corgi_store_history writes, in the order of its columns. */
static const char *const figures_query =
    "SELECT " LISTED("loss") ", " LISTED("accuracy") ", " LISTED("r2") ", " LISTED("holdout_loss") ", "
    LISTED("holdout_accuracy") ", " LISTED("holdout_r2") ", " LISTED("rows") ", " LISTED("seconds")
    ", pg_catalog.count(*), pg_catalog.max(epoch) FROM corgipile.history WHERE model operator(pg_catalog.=) $1";

static void refuse_damaged(const char *name, const char *why) __attribute__((noreturn));
static void refuse_damaged(const char *name, const char *why)
{
    ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED),
            errmsg("the row of model \"%s\" in corgipile.models is damaged: %s", name, why));
}

static void fetch_model(const char *query, const char *name)
{
    if (corgi_execute_for(query, name, true) == 0)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no model \"%s\"", name),
                errhint("SELECT name FROM corgipile.models lists them."));
}

/* Return whether an array of doubles is as large as its header states, with these dimensions or none. */
static bool is_whole(const ArrayType *a, int dimensions)
{
    Size size = VARSIZE(a);
    if (size < sizeof *a || (ARR_NDIM(a) != 0 && ARR_NDIM(a) != dimensions) || size < ARR_OVERHEAD_NONULLS(ARR_NDIM(a)))
        return false;
    int count = ArrayGetNItems(ARR_NDIM(a), ARR_DIMS(a));
    Size head = ARR_HASNULL(a) ? ARR_OVERHEAD_WITHNULLS(ARR_NDIM(a), count) : ARR_OVERHEAD_NONULLS(ARR_NDIM(a));
    return ARR_DATA_OFFSET(a) >= head && ARR_DATA_OFFSET(a) + sizeof(double) * (Size) count <= size;
}

/* Copy an array of doubles out of the result; NULL if it has another shape. */
static double *doubles_at(int column, int dimensions, int64 *rows, int64 *columns, MemoryContext context)
{
    bool null;
    Datum value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &null);
    ArrayType *a = null ? NULL : DatumGetArrayTypeP(value);
    double *copy;
    *rows = *columns = 0;
    if (a == NULL || !is_whole(a, dimensions) || ARR_ELEMTYPE(a) != FLOAT8OID || array_contains_nulls(a))
        return NULL;
    *columns = ARR_NDIM(a) ? ARR_DIMS(a)[ARR_NDIM(a) - 1] : 0;
    *rows = dimensions == 2 && *columns ? ARR_DIMS(a)[0] : 1;
    Size bytes = sizeof *copy * (Size) (*rows * *columns);
    copy = MemoryContextAlloc(context, Max(bytes, 1));
    memcpy(copy, ARR_DATA_PTR(a), bytes);
    return copy;
}

/* Return whether classes are finite and ascending. */
static bool is_ascending(const double *classes, int64 count)
{
    for (int64 i = 0; i < count; i++)
        if (!isfinite(classes[i]) || (i > 0 && classes[i] <= classes[i - 1]))
            return false;
    return true;
}

/* Return whether an encoding has the model's width and classes. */
static bool encoding_fits(const CorgiModel *m)
{
    const CorgiEncoding *e = m->encoding;
    int64 width = 0;
    bool lists = false;
    for (int i = 0; i < e->count && e->hashing == NULL; i++) {
        lists |= e->features[i].way == CORGI_AS_VECTOR;
        width += e->features[i].width;
    }
    width += e->hashing ? corgi_hashed_width(e->hashing) : 0;
    for (int64 i = 0; e->classes != NULL && i < m->classes; i++)
        if (m->class_values[i] != (double) i)
            return false;
    return e->count > 0 && (lists ? width == 0 : width == m->width) &&
           (e->classes == NULL || (e->classes->count == m->classes && m->classes > 0));
}

static void load_weights(CorgiModel *m, const char *name, MemoryContext context)
{
    bool null;
    int64 one, intercepts;
    fetch_model(weights_query, name);
    int32 dims = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &null));
    m->kind = corgi_text_at(1, context);
    m->class_values = doubles_at(3, 1, &one, &m->classes, context);
    m->coefficients = doubles_at(4, 2, &m->outputs, &m->width, context);
    m->intercepts = doubles_at(5, 1, &one, &intercepts, context);
    char *numbers = corgi_text_at(6, context);
    m->of = corgi_loss_of(m->kind, m->classes);
    m->bytes = numbers != NULL && strcmp(numbers, "real") == 0 ? 4 : 8;
    corgi_load_members(m, name, context);
    int64 outputs = corgi_outputs(&m->of, m->classes) * (m->labels ? m->labels->count : Max(m->groups, 1));
    if (m->class_values == NULL || m->coefficients == NULL || m->intercepts == NULL || m->width < 1 ||
        m->width != dims || m->outputs != outputs || intercepts != outputs ||
        (cp_losses[m->of.loss].labels == CP_TWO_CLASSES && m->classes != 2))
        refuse_damaged(name, "its arrays do not fit together");
    if (!is_ascending(m->class_values, m->classes))
        refuse_damaged(name, "its classes are not finite numbers in ascending order");
    m->outputs /= Max(m->groups, 1);
    m->encoding = corgi_read_encoding(name, context);
    if (m->encoding != NULL && !encoding_fits(m))
        refuse_damaged(name, "its encoding does not match its arrays");
}

/* Load the metrics of epochs. Losses of later epochs are compared with them. */
static void load_history(CorgiModel *m, const char *name, MemoryContext context)
{
    bool null;
    int64 one, found;
    fetch_model(figures_query, name);
    TupleDesc columns = SPI_tuptable->tupdesc;
    m->epochs = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], columns, CORGI_FIGURES + 1, &null));
    if (m->epochs == 0)
        return;
    int64 last = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], columns, CORGI_FIGURES + 2, &null));
    m->losses = doubles_at(1, 1, &one, &found, context);
    if (m->losses == NULL || last != m->epochs - 1)
        refuse_damaged(name, "corgipile.history lacks epochs");
    for (int64 i = 0; i < m->epochs; i++)
        if (!isfinite(m->losses[i]))
            refuse_damaged(name, "an epoch of its history has no loss");
    for (int i = 0; i < CORGI_FIGURES; i++) {
        ArrayType *a = DatumGetArrayTypeP(SPI_getbinval(SPI_tuptable->vals[0], columns, i + 1, &null));
        m->figures[i] = PointerGetDatum(memcpy(MemoryContextAlloc(context, VARSIZE(a)), a, VARSIZE(a)));
    }
}

static List *texts_at(int column)
{
    bool null;
    return corgi_text_list(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &null));
}

/* Load the training state, if it is more than the weights. */
static void load_learnt(CorgiModel *m, const char *name, MemoryContext context)
{
    bool null;
    int64 rows, line;
    (void) SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 3, &null);
    if (null)
        return;
    m->learnt = doubles_at(3, 2, &rows, &line, context);
    m->beside = rows - m->outputs * Max(m->groups, 1) - 2;
    bool fits = m->learnt != NULL && m->beside >= 0 && m->beside != 1 && line == m->width + 1;
    fits = fits && ((m->groups == 0 && m->labels == NULL) || m->beside == 0);
    for (int64 i = 0; fits && i < rows * line; i++)
        fits = isfinite(m->learnt[i]) && (i / line != 1 || m->learnt[i] > 0);
    if (!fits)
        refuse_damaged(name, "what it was standardised by does not fit its arrays");
    for (int64 j = 0; j < m->width; j++)
        m->standardized |= m->learnt[j] != 0 || m->learnt[line + j] != 1;
}

static List *features_at(const char *name, MemoryContext context)
{
    MemoryContext outside = MemoryContextSwitchTo(context);
    List *features = texts_at(1);
    MemoryContextSwitchTo(outside);
    if (list_member_ptr(features, NULL))
        refuse_damaged(name, "its features hold a NULL");
    return features;
}

/* Check that hashed columns are those of the model. */
static void check_features(const CorgiModel *m, const char *name)
{
    const CorgiEncoding *e = m->encoding;
    ListCell *cell;
    bool same = e == NULL || e->hashing == NULL || list_length(m->features) == e->count;
    foreach (cell, same && e != NULL && e->hashing != NULL ? m->features : NIL)
        same = same && strcmp(lfirst(cell), e->features[foreach_current_index(cell)].column) == 0;
    if (!same)
        refuse_damaged(name, "its features are not those that are hashed");
}

static void load_past(CorgiModel *m, const char *name, MemoryContext context)
{
    bool unknown;
    fetch_model(past_query, name);
    m->label = corgi_text_at(2, context);
    m->how = corgi_text_at(4, context);
    char *best = corgi_text_at(5, context);
    m->best = best == NULL ? -1 : atol(best);
    Datum rate = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 6, &unknown);
    m->rate = unknown ? 0 : DatumGetFloat8(rate);
    load_learnt(m, name, context);
    m->features = features_at(name, context);
    check_features(m, name);
    load_history(m, name, context);
}

/* Load a model into the current memory context; with `past`, also its training columns and options. corgi_find_model
 * has checked the caller's rights. */
CorgiModel *corgi_load_model(const char *name, bool past)
{
    MemoryContext context = CurrentMemoryContext;
    CorgiModel *m = palloc0(sizeof *m);
    CorgiCaller caller = corgi_open_tables();
    load_weights(m, name, context);
    if (past)
        load_past(m, name, context);
    corgi_close_tables(caller);
    MemoryContextSwitchTo(context);
    return m;
}

/* Return a model's training columns, then its group column, if any; NIL if its row names none. */
List *corgi_model_columns(const char *name, bool needed)
{
    MemoryContext context = CurrentMemoryContext;
    char *by;
    CorgiCaller caller = corgi_open_tables();
    fetch_model(columns_query, name);
    List *columns = features_at(name, context);
    if (columns != NIL && (by = corgi_text_at(2, context)) != NULL) {
        MemoryContext before = MemoryContextSwitchTo(context);
        columns = lappend(columns, by);
        MemoryContextSwitchTo(before);
    }
    corgi_close_tables(caller);
    if (columns == NIL && needed)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("the params of model \"%s\" do not name its training columns", name),
                errhint("Give its features in training order, as ROW(a, b)."));
    return columns;
}

/* Return a learner that scores and measures dense or sparse rows with a model. */
CorgiLearner *corgi_model_learner(const CorgiModel *m, bool sparse)
{
    CorgiLearner *learner = corgi_learner(m->of, m->bytes, sparse, m->width, m->outputs, m->class_values);
    corgi_learner_set(learner, m->coefficients, m->intercepts);
    return learner;
}

/* Return a model's class names; NULL if classes are numbers. */
const CorgiNames *corgi_class_names(const CorgiModel *m) { return m->encoding ? m->encoding->classes : NULL; }

/* Return a class as text. */
const char *corgi_class_name(const CorgiModel *m, int64 k)
{
    const CorgiNames *names = corgi_class_names(m);
    return names ? names->names[k].text : float8out_internal(m->class_values[k]);
}

/* Return the class with the best score. A margin of 0 selects the first class. */
int64 corgi_best_class(const CorgiModel *m, const double *scores)
{
    int64 best = 0;
    if (!cp_loss_per_class(m->of.loss))
        return scores[0] > 0;
    for (int64 k = 1; k < m->outputs; k++)
        best = scores[k] > scores[best] ? k : best;
    return best;
}

/* Return a regressor's predicted number. */
double corgi_predicted_number(const CorgiModel *m, const double *scores)
{
    return cp_losses[m->of.loss].exponential ? cp_exp(scores[0]) : scores[0];
}
