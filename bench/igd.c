/* Gradient descent as a user-defined aggregate, one step a row in the order of the scan: what Bismarck and MADlib do.
 * And an aggregate that only adds up the numbers of all rows.
 *
 * The state is a float8[] of the weights and the intercept, changed in place; float32 or float64 features. */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(igd_step);
PG_FUNCTION_INFO_V1(total_step);

static ArrayType *make_state(FunctionCallInfo fcinfo, int n)
{
    MemoryContext context, before;
    Datum *zeros;
    ArrayType *state;
    if (!AggCheckCallContext(fcinfo, &context))
        elog(ERROR, "igd_step is for an aggregate");
    before = MemoryContextSwitchTo(context);
    zeros = palloc0(sizeof *zeros * (n + 1));
    state = construct_array(zeros, n + 1, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, 'd');
    MemoryContextSwitchTo(before);
    return state;
}

#define STEP(type) do { \
        const type *x = (const type *) ARR_DATA_PTR(row); \
        double score = w[n], step; \
        for (int i = 0; i < n; i++) \
            score += w[i] * x[i]; \
        step = rate * (y - 1 / (1 + exp(-score))); \
        for (int i = 0; i < n; i++) \
            w[i] += step * x[i]; \
        w[n] += step; \
    } while (0)

/* igd_step(state, features, label of 0 or 1, learning rate) */
Datum igd_step(PG_FUNCTION_ARGS)
{
    ArrayType *row = PG_GETARG_ARRAYTYPE_P(1);
    int n = ArrayGetNItems(ARR_NDIM(row), ARR_DIMS(row));
    ArrayType *state = PG_ARGISNULL(0) ? make_state(fcinfo, n) : (ArrayType *) PG_GETARG_POINTER(0);
    double *w = (double *) ARR_DATA_PTR(state), y = PG_GETARG_INT32(2), rate = PG_GETARG_FLOAT8(3);
    if (ARR_DIMS(state)[0] != n + 1 || ARR_HASNULL(row))
        elog(ERROR, "rows must be of one length and hold no NULL");
    if (ARR_ELEMTYPE(row) == FLOAT4OID)
        STEP(float);
    else
        STEP(double);
    PG_RETURN_POINTER(state);
}

#define TOTAL(type) do { \
        const type *x = (const type *) ARR_DATA_PTR(row); \
        for (int i = 0; i < n; i++) \
            total += x[i]; \
    } while (0)

/* total_step(state, features): the sum of all numbers, the least that can be done with a row. */
Datum total_step(PG_FUNCTION_ARGS)
{
    ArrayType *row = PG_GETARG_ARRAYTYPE_P(1);
    int n = ArrayGetNItems(ARR_NDIM(row), ARR_DIMS(row));
    double total = PG_GETARG_FLOAT8(0);
    if (ARR_ELEMTYPE(row) == FLOAT4OID)
        TOTAL(float);
    else
        TOTAL(double);
    PG_FREE_IF_COPY(row, 1);
    PG_RETURN_FLOAT8(total);
}
