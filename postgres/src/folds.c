/* Validation rows, and corgipile.cross_validate: one training per fold, measured on the fold's rows.
 * A hash of the seed and of a row's number among the visible rows selects its fold, as in Python: fold 0 of n is the
 * test part of train_test_split(table, 1 / n, seed). */
#include "jobs.h"
#include "run.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"

enum { SPLIT = 0x5B117, MAX_FOLDS = 1000, COLUMNS = 7 }; /* SPLIT: TAG of corgipile/tables/splitting.py */

PG_FUNCTION_INFO_V1(corgipile_cross_validate);

/* Arguments of train that cross_validate lacks, with their types. */
static const struct {
    int argument;
    Oid type;
} absent[] = {{ARG_NAME, TEXTOID}, {ARG_HOLDOUT, FLOAT8OID}, {ARG_WARM_START, TEXTOID}, {ARG_WEIGHTS, BOOLOID},
            {ARG_BY, TEXTOID}, {ARG_LABELS, TEXTARRAYOID}};
enum { ARG_FOLDS = ARG_COUNT - lengthof(absent), FOLD_ARGUMENTS };

/* The fold of the next training. */
static CorgiFold *next_fold = NULL;

/* Return a bound between folds, equal to Python's; 0 after the last. */
static uint64 fold_bound(const CorgiFold *f, int number)
{
    return number == f->count ? 0 : (uint64) ((double) number / f->count * 18446744073709551616.0);
}

/* Choose the validation rows of a training. Takes the pending fold once, so that queries run by the training belong to
 * none. */
void corgi_hold_out(CorgiRun *run)
{
    CorgiOptions *o = &run->options;
    CorgiFold *fold = run->fold = next_fold;
    uint64_t parts[] = {SPLIT, (uint64_t) o->seed};
    next_fold = NULL;
    run->holdout_key = fold ? cp_derive(parts, lengthof(parts)) : corgi_key(o, 0, CORGI_HOLDOUT);
    if (fold == NULL) {
        run->holdout_width = (uint64) (o->holdout * 18446744073709551616.0);
        return;
    }
    o->holdout = 1.0 / fold->count;
    run->holdout_from = fold_bound(fold, fold->number);
    run->holdout_width = fold_bound(fold, fold->number + 1) - run->holdout_from;
}

/* Put the arguments into train's positions. */
static int read_fold_arguments(FunctionCallInfo fcinfo, Datum *values, bool *nulls, Oid *types)
{
    Datum given[FOLD_ARGUMENTS];
    bool given_nulls[FOLD_ARGUMENTS];
    Oid given_types[FOLD_ARGUMENTS];
    int next = 0;
    corgi_take_arguments(fcinfo, given, given_nulls, given_types, FOLD_ARGUMENTS);
    for (int i = 0; i < ARG_COUNT; i++) {
        int missing = 0;
        while (missing < lengthof(absent) && absent[missing].argument != i)
            missing++;
        nulls[i] = missing < lengthof(absent) ? i != ARG_WEIGHTS : given_nulls[next];
        types[i] = missing < lengthof(absent) ? absent[missing].type : given_types[next];
        values[i] = missing < lengthof(absent) ? BoolGetDatum(false) : given[next++];
    }
    int folds = given_nulls[ARG_FOLDS] ? 0 : DatumGetInt32(given[ARG_FOLDS]);
    if (folds < 2 || folds > MAX_FOLDS)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("folds must be 2 to %d, got %s", MAX_FOLDS,
                       given_nulls[ARG_FOLDS] ? "NULL" : psprintf("%d", folds)));
    return folds;
}

static void train_fold(CorgiFold *fold, const char *query)
{
    PG_TRY();
    {
        next_fold = fold;
        if (SPI_execute(query, false, 0) != SPI_OK_SELECT)
            elog(ERROR, "training a fold failed");
    }
    PG_FINALLY();
    {
        next_fold = NULL;
    }
    PG_END_TRY();
}

static void put_fold(ReturnSetInfo *result, const CorgiFold *fold)
{
    bool empty = fold->held.rows == 0;
    Datum values[COLUMNS] = {Int32GetDatum(fold->number),      Float8GetDatum(fold->held.loss),
                             Float8GetDatum(fold->held.score), Float8GetDatum(fold->held.score),
                             Int64GetDatum(fold->held.rows),   Int32GetDatum((int32) fold->epochs),
                             Float8GetDatum(fold->seconds)};
    bool nulls[COLUMNS] = {false, empty, empty || fold->numbers, empty || !fold->numbers};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Runs a query once for all folds. */
Datum corgipile_cross_validate(PG_FUNCTION_ARGS)
{
    Datum values[ARG_COUNT];
    bool nulls[ARG_COUNT];
    Oid types[ARG_COUNT], kept = InvalidOid;
    CorgiOptions options = {0};
    int folds = read_fold_arguments(fcinfo, values, nulls, types);
    corgi_read_options(&options, values, nulls, types);
    InitMaterializedSRF(fcinfo, 0);
    if (options.query != NULL) {
        kept = corgi_store_query(options.query);
        values[ARG_SOURCE] = ObjectIdGetDatum(kept);
        nulls[ARG_SOURCE] = false;
        nulls[ARG_QUERY] = true;
    }
    char *query = psprintf("SELECT pg_catalog.count(*) FROM %s", corgi_write_call(values, nulls, types));
    SPI_connect();
    for (int i = 0; i < folds; i++) {
        CorgiFold fold = {.number = i, .count = folds};
        train_fold(&fold, query);
        put_fold((ReturnSetInfo *) fcinfo->resultinfo, &fold);
    }
    SPI_finish();
    if (OidIsValid(kept))
        corgi_drop_query(kept);
    return (Datum) 0;
}
