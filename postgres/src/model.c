/* Takes models out of corgipile.models. Anybody may have written a row there, so nothing in it is trusted. */
#include "corgipile.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "sgd_state.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define WHERE " FROM corgipile.models WHERE name operator(pg_catalog.=) $1"

static const char *const weights_query =
    "SELECT kind, dims, classes, coefficients, intercepts, params operator(pg_catalog.->>) 'numbers'" WHERE;
static const char *const past_query =
    "SELECT ARRAY(SELECT pg_catalog.jsonb_array_elements_text(params operator(pg_catalog.->) 'features')), "
    "params operator(pg_catalog.->>) 'label', history::pg_catalog.text, ARRAY(SELECT (e operator(pg_catalog.->>) 'loss')"
    "::pg_catalog.float8 FROM pg_catalog.jsonb_array_elements(history) e)" WHERE;

static void fetch(const char *query, const char *name)
{
    Oid types[] = {TEXTOID};
    Datum values[] = {CStringGetTextDatum(name)};
    if (SPI_execute_with_args(query, 1, types, values, NULL, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
    if (SPI_processed == 0)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no model \"%s\"", name),
                errhint("SELECT name FROM corgipile.models lists them."));
}

static char *text_at(int column, MemoryContext context)
{
    char *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);
    return value == NULL ? NULL : MemoryContextStrdup(context, value);
}

/* Copy the doubles of an array out of the result, if it has the right shape; else return NULL. */
static double *doubles_at(int column, int dimensions, int64 *rows, int64 *columns, MemoryContext context)
{
    bool null;
    Datum value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &null);
    ArrayType *a = null ? NULL : DatumGetArrayTypeP(value);
    Size bytes;
    double *copy;
    *rows = *columns = 0;
    if (a == NULL || ARR_ELEMTYPE(a) != FLOAT8OID || array_contains_nulls(a) ||
        (ARR_NDIM(a) && ARR_NDIM(a) != dimensions))
        return NULL;
    *columns = ARR_NDIM(a) ? ARR_DIMS(a)[ARR_NDIM(a) - 1] : 0;
    *rows = dimensions == 2 && *columns ? ARR_DIMS(a)[0] : 1;
    bytes = sizeof *copy * (Size) (*rows * *columns);
    copy = MemoryContextAlloc(context, Max(bytes, 1));
    memcpy(copy, ARR_DATA_PTR(a), bytes);
    return copy;
}

static void load_weights(CorgiModel *m, const char *name, MemoryContext context)
{
    bool null;
    int64 one, outputs, intercepts;
    int32 dims;
    char *numbers;
    fetch(weights_query, name);
    dims = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &null));
    m->kind = text_at(1, context);
    m->class_values = doubles_at(3, 1, &one, &m->classes, context);
    m->coefficients = doubles_at(4, 2, &m->outputs, &m->width, context);
    m->intercepts = doubles_at(5, 1, &one, &intercepts, context);
    numbers = text_at(6, context);
    m->loss = corgi_loss_of(m->kind);
    m->bytes = numbers != NULL && strcmp(numbers, "real") == 0 ? 4 : 8;
    outputs = m->loss == CP_SOFTMAX ? m->classes : 1;
    if (m->class_values == NULL || m->coefficients == NULL || m->intercepts == NULL || m->width < 1 ||
        m->width != dims || m->outputs != outputs || intercepts != outputs ||
        (m->loss <= CP_HINGE && m->classes != 2))
        ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED),
                errmsg("the row of model \"%s\" in corgipile.models is damaged: its arrays do not fit together", name));
}

static void load_past(CorgiModel *m, const char *name, MemoryContext context)
{
    bool null;
    int64 one;
    Datum names;
    fetch(past_query, name);
    names = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &null);
    m->label = text_at(2, context);
    m->history = text_at(3, context);
    m->losses = doubles_at(4, 1, &one, &m->epochs, context);
    if (m->losses == NULL)
        ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED),
                errmsg("the history of model \"%s\" in corgipile.models is damaged: an epoch has no loss", name));
    MemoryContextSwitchTo(context);
    m->features = corgi_text_list(names);
}

/* Load a model into the current memory context; `past` tells whether what it was trained on and how is wanted too. */
CorgiModel *corgi_load_model(const char *name, bool past)
{
    MemoryContext context = CurrentMemoryContext;
    CorgiModel *m = palloc0(sizeof *m);
    SPI_connect();
    load_weights(m, name, context);
    if (past)
        load_past(m, name, context);
    SPI_finish();
    MemoryContextSwitchTo(context);
    return m;
}

/* Make a machine that scores and measures dense or sparse rows by a model. */
CorgiMachine *corgi_model_machine(const CorgiModel *m, bool sparse)
{
    CorgiMachine *machine = corgi_machine(m->loss, m->bytes, sparse, m->width, m->outputs, m->class_values);
    corgi_machine_set(machine, m->coefficients, m->intercepts);
    return machine;
}
