/* Which rows are held out, and corgipile.cross_validate: a training for each fold, measured on the rows of the fold.
 *
 * A row's fold is what a hash of the seed and of its number among the visible rows says, as in Python: fold 0 of n is the
 * test part of train_test_split(table, 1 / n, seed). */
#include "jobs.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

enum { SPLIT = 0x5B117, MOST_FOLDS = 1000, COLUMNS = 7 }; /* split: TAG of corgipile/tables/splitting.py */

PG_FUNCTION_INFO_V1(corgipile_cross_validate);

/* Arguments of train that cross_validate does not have, and what it gives for them. */
static const struct {
    int argument;
    Oid type;
} absent[] = {{ARG_NAME, TEXTOID}, {ARG_HOLDOUT, FLOAT8OID}, {ARG_WARM_START, TEXTOID}, {ARG_WEIGHTS, BOOLOID},
            {ARG_BY, TEXTOID}, {ARG_LABELS, TEXTARRAYOID}};
enum { ARG_FOLDS = ARG_COUNT - lengthof(absent), FOLD_ARGUMENTS };

/* The fold that the next training is of. */
static CorgiFold *next_fold = NULL;

/* A bound between folds, as Python has it; past the last it is 0 again. */
static uint64 bound(const CorgiFold *f, int number)
{
    return number == f->count ? 0 : (uint64) ((double) number / f->count * 18446744073709551616.0);
}

/* Settle which rows a training does not learn from. A fold is taken once: what a query of the training runs is of none. */
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
    run->holdout_from = bound(fold, fold->number);
    run->holdout_width = bound(fold, fold->number + 1) - run->holdout_from;
}

/* Put the arguments where train has them. */
static int take_arguments(FunctionCallInfo fcinfo, Datum *values, bool *nulls, Oid *types)
{
    Datum given[FOLD_ARGUMENTS];
    bool given_nulls[FOLD_ARGUMENTS];
    Oid given_types[FOLD_ARGUMENTS];
    int next = 0, folds;
    corgi_take_arguments(fcinfo, given, given_nulls, given_types, FOLD_ARGUMENTS);
    for (int i = 0; i < ARG_COUNT; i++) {
        int missing = 0;
        while (missing < lengthof(absent) && absent[missing].argument != i)
            missing++;
        nulls[i] = missing < lengthof(absent) ? i != ARG_WEIGHTS : given_nulls[next];
        types[i] = missing < lengthof(absent) ? absent[missing].type : given_types[next];
        values[i] = missing < lengthof(absent) ? BoolGetDatum(false) : given[next++];
    }
    folds = given_nulls[ARG_FOLDS] ? 0 : DatumGetInt32(given[ARG_FOLDS]);
    if (folds < 2 || folds > MOST_FOLDS)
        ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                errmsg("folds must be 2 to %d, got %s", MOST_FOLDS, given_nulls[ARG_FOLDS] ? "NULL" : psprintf("%d", folds)));
    return folds;
}

static void train(CorgiFold *fold, const char *query)
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

static void put(ReturnSetInfo *result, const CorgiFold *fold)
{
    bool empty = fold->held.rows == 0;
    Datum values[COLUMNS] = {Int32GetDatum(fold->number), Float8GetDatum(fold->held.loss), Float8GetDatum(fold->held.score),
                             Float8GetDatum(fold->held.score), Int64GetDatum(fold->held.rows),
                             Int32GetDatum((int32) fold->epochs), Float8GetDatum(fold->seconds)};
    bool nulls[COLUMNS] = {false, empty, empty || fold->numbers, empty || !fold->numbers};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* A query is run once, for all folds. */
Datum corgipile_cross_validate(PG_FUNCTION_ARGS)
{
    Datum values[ARG_COUNT];
    bool nulls[ARG_COUNT];
    Oid types[ARG_COUNT], kept = InvalidOid;
    CorgiOptions options = {0};
    char *query;
    int folds = take_arguments(fcinfo, values, nulls, types);
    corgi_read_options(&options, values, nulls, types);
    InitMaterializedSRF(fcinfo, 0);
    if (options.query != NULL) {
        kept = corgi_keep_query(options.query);
        values[ARG_SOURCE] = ObjectIdGetDatum(kept);
        nulls[ARG_SOURCE] = false;
        nulls[ARG_QUERY] = true;
    }
    query = psprintf("SELECT pg_catalog.count(*) FROM %s", corgi_write_call(values, nulls, types));
    SPI_connect();
    for (int i = 0; i < folds; i++) {
        CorgiFold fold = {.number = i, .count = folds};
        train(&fold, query);
        put((ReturnSetInfo *) fcinfo->resultinfo, &fold);
    }
    SPI_finish();
    if (OidIsValid(kept))
        corgi_drop_query(kept);
    return (Datum) 0;
}
