/* corgipile.predict, predict_proba and decision: a stored model applied to one row. */
#include "corgipile.h"

#include <math.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "sgd_state.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(corgipile_predict);
PG_FUNCTION_INFO_V1(corgipile_predict_proba);
PG_FUNCTION_INFO_V1(corgipile_decision);

#define REFUSE(code, ...) ereport(ERROR, errcode(code), errmsg(__VA_ARGS__))

/* What a snapshot sees, in a few numbers: transactions only leave the set of running ones, so bounds and counts tell
 * two of them apart. Within one transaction, commands and subtransactions are numbered. */
typedef struct {
    TransactionId xmin, xmax;
    uint32 running, running_sub;
    CommandId command;
    SubTransactionId sub;
} Sight;

/* A model in memory, kept by the place of the call for as long as the snapshot stays. */
typedef struct {
    MemoryContext context;
    Sight sight;
    bool loaded;
    text *name;
    const char *kind;
    int loss, bytes;
    int64 width, outputs, classes;
    double *class_values, *scores;
    char *row;
    CorgiMachine *machine;
    Oid type;               /* of a number in the array of features */
} Model;

static const char *const query =
    "SELECT kind, dims, classes, coefficients, intercepts, params operator(pg_catalog.->>) 'numbers' "
    "FROM corgipile.models WHERE name operator(pg_catalog.=) $1";

static Sight look(void)
{
    Snapshot s = GetActiveSnapshot();
    return (Sight){.xmin = s->xmin, .xmax = s->xmax, .running = s->xcnt, .running_sub = (uint32) s->subxcnt,
                    .command = s->curcid, .sub = GetCurrentSubTransactionId()};
}

/* Copy the doubles of an array out of a result row, if it has the right shape. */
static double *doubles(HeapTuple row, int column, int dimensions, int64 *rows, int64 *columns)
{
    bool null;
    Datum value = SPI_getbinval(row, SPI_tuptable->tupdesc, column, &null);
    ArrayType *a = null ? NULL : DatumGetArrayTypeP(value);
    int64 count;
    double *copy;
    *rows = *columns = 0;
    if (a == NULL || ARR_ELEMTYPE(a) != FLOAT8OID || array_contains_nulls(a) ||
        (ARR_NDIM(a) && ARR_NDIM(a) != dimensions))
        return NULL;
    count = ArrayGetNItems(ARR_NDIM(a), ARR_DIMS(a));
    *columns = ARR_NDIM(a) ? ARR_DIMS(a)[ARR_NDIM(a) - 1] : 0;
    *rows = *columns ? count / *columns : 0;
    copy = palloc(sizeof *copy * (Size) Max(count, 1));
    memcpy(copy, ARR_DATA_PTR(a), sizeof *copy * (Size) count);
    return copy;
}

/* Take a model from its row. Anybody may have written that, so nothing in it is trusted. */
static void unpack(Model *m, const char *name)
{
    HeapTuple row = SPI_tuptable->vals[0];
    TupleDesc desc = SPI_tuptable->tupdesc;
    bool null;
    int64 one, outputs, intercepts;
    int32 dims = DatumGetInt32(SPI_getbinval(row, desc, 2, &null));
    char *numbers = SPI_getvalue(row, desc, 6);
    double *classes = doubles(row, 3, 1, &one, &m->classes), *weights = doubles(row, 4, 2, &m->outputs, &m->width);
    double *biases = doubles(row, 5, 1, &one, &intercepts);
    m->kind = MemoryContextStrdup(m->context, SPI_getvalue(row, desc, 1));
    m->loss = corgi_loss_of(m->kind);
    m->bytes = numbers != NULL && strcmp(numbers, "real") == 0 ? 4 : 8;
    outputs = m->loss == CP_SOFTMAX ? m->classes : 1;
    if (classes == NULL || weights == NULL || biases == NULL || m->width < 1 || m->width != dims ||
        m->outputs != outputs || intercepts != outputs || (m->loss <= CP_HINGE && m->classes != 2))
        REFUSE(ERRCODE_DATA_CORRUPTED,
               "the row of model \"%s\" in corgipile.models is damaged: its arrays do not fit together", name);
    MemoryContextSwitchTo(m->context);
    m->class_values = palloc(sizeof(double) * (Size) Max(m->classes, 1));
    memcpy(m->class_values, classes, sizeof(double) * (Size) m->classes);
    m->machine = corgi_machine(m->loss, m->bytes, m->width, m->outputs, m->class_values);
    corgi_machine_set(m->machine, weights, biases);
    m->scores = palloc(sizeof(double) * (Size) m->outputs);
    m->row = palloc((Size) (m->width * m->bytes));
}

static void load(Model *m, text *name)
{
    Oid types[] = {TEXTOID};
    Datum values[] = {PointerGetDatum(name)};
    MemoryContext outside = CurrentMemoryContext;
    char *shown = text_to_cstring(name);
    m->loaded = false;
    MemoryContextReset(m->context);
    m->sight = look();
    m->name = (text *) MemoryContextAlloc(m->context, VARSIZE_ANY_EXHDR(name) + VARHDRSZ);
    SET_VARSIZE(m->name, VARSIZE_ANY_EXHDR(name) + VARHDRSZ);
    memcpy(VARDATA(m->name), VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
    SPI_connect();
    if (SPI_execute_with_args(query, 1, types, values, NULL, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "reading corgipile.models failed");
    if (SPI_processed == 0)
        ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("there is no model \"%s\"", shown),
                errhint("SELECT name FROM corgipile.models lists them."));
    unpack(m, shown);
    SPI_finish();
    MemoryContextSwitchTo(outside);
    m->loaded = true;
}

static bool same_name(const text *a, const text *b)
{
    return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
           memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

static Model *new_model(FunctionCallInfo fcinfo)
{
    Model *m = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof *m);
    Oid type = get_element_type(getBaseType(get_fn_expr_argtype(fcinfo->flinfo, 1)));
    m->type = getBaseType(type);
    if (!corgi_is_number(m->type))
        REFUSE(ERRCODE_DATATYPE_MISMATCH, "features are %s[]; an array of numbers is needed", format_type_be(type));
    m->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "corgipile model", ALLOCSET_DEFAULT_SIZES);
    return m;
}

/* Score the row of a call. */
static Model *score(FunctionCallInfo fcinfo)
{
    Model *m = fcinfo->flinfo->fn_extra;
    text *name = PG_GETARG_TEXT_PP(0);
    const char *why = NULL;
    Sight now = look();
    int64 found;
    if (m == NULL)
        fcinfo->flinfo->fn_extra = m = new_model(fcinfo);
    if (!m->loaded || memcmp(&now, &m->sight, sizeof now) != 0 || !same_name(name, m->name))
        load(m, name);
    found = corgi_read_array(PG_GETARG_DATUM(1), m->type, m->bytes, m->width, m->row, &why);
    if (why != NULL)
        REFUSE(ERRCODE_DATA_EXCEPTION, "the row to predict %s", why);
    if (found != m->width)
        REFUSE(ERRCODE_DATA_EXCEPTION,
               "the row has " INT64_FORMAT " features; model \"%s\" was trained with " INT64_FORMAT, found,
               text_to_cstring(name), m->width);
    corgi_machine_decide(m->machine, m->row, m->scores);
    for (int64 k = 0; k < m->outputs; k++)
        if (unlikely(!isfinite(m->scores[k])))
            REFUSE(ERRCODE_INVALID_PARAMETER_VALUE,
                   "the row to predict has a feature that is NaN, infinite or too large");
    return m;
}

static Datum to_array(const double *values, int64 count)
{
    Datum *items = palloc(sizeof *items * (Size) count);
    for (int64 i = 0; i < count; i++)
        items[i] = Float8GetDatum(values[i]);
    return PointerGetDatum(
        construct_array(items, (int) count, FLOAT8OID, sizeof(double), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Class of the row, or value of a linear model. A margin of 0 is the first class. */
Datum corgipile_predict(PG_FUNCTION_ARGS)
{
    Model *m = score(fcinfo);
    int64 best = 0;
    if (m->loss == CP_SQUARED)
        PG_RETURN_FLOAT8(m->scores[0]);
    if (m->loss != CP_SOFTMAX)
        PG_RETURN_FLOAT8(m->class_values[m->scores[0] > 0]);
    for (int64 k = 1; k < m->outputs; k++)
        best = m->scores[k] > m->scores[best] ? k : best;
    PG_RETURN_FLOAT8(m->class_values[best]);
}

Datum corgipile_decision(PG_FUNCTION_ARGS)
{
    Model *m = score(fcinfo);
    PG_RETURN_DATUM(to_array(m->scores, m->outputs));
}

/* Probabilities of the classes, without overflow: two classes are a softmax of 0 and the score. */
Datum corgipile_predict_proba(PG_FUNCTION_ARGS)
{
    Model *m = score(fcinfo);
    double *p = palloc0(sizeof *p * (Size) Max(m->classes, 2)), top, sum = 0;
    if (m->loss != CP_LOGISTIC && m->loss != CP_SOFTMAX)
        REFUSE(ERRCODE_FEATURE_NOT_SUPPORTED, "a model of kind %s has no probabilities; train logistic or softmax",
               m->kind);
    memcpy(p + (m->loss == CP_LOGISTIC), m->scores, sizeof *p * (Size) m->outputs);
    top = p[0];
    for (int64 k = 1; k < m->classes; k++)
        top = Max(top, p[k]);
    for (int64 k = 0; k < m->classes; k++)
        sum += p[k] = exp(p[k] - top);
    for (int64 k = 0; k < m->classes; k++)
        p[k] /= sum;
    PG_RETURN_DATUM(to_array(p, m->classes));
}
