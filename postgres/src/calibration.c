/* corgipile.calibration: predicted probabilities and observed class shares, by probability bin. */
#include "corgipile.h"

#include "fmgr.h"
#include "funcapi.h"

PG_FUNCTION_INFO_V1(corgipile_calibration);

#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))

enum { BINS = CORGI_EVALUATED_CLASS + 1, MAX_BINS = 1000 };

/* Row count and weighted sums of the rows whose probability lies in a bin. */
typedef struct {
    int64 rows;
    double weight, share, observed;
} Bin;

typedef struct {
    CorgiWatch watch;
    const CorgiModel *model;
    int64 positive;         /* index of the evaluated class */
    double value;           /* label value of that class */
    int count;
    Bin *bins;
    double *shares;         /* [classes] probabilities of one row */
} Bins;

static void count_calibration_row(CorgiWatch *w, double label, double weight, const double *scores)
{
    Bins *b = (Bins *) w;
    const CorgiModel *m = b->model;
    memset(b->shares, 0, sizeof *b->shares * (Size) m->classes);
    memcpy(b->shares + (m->outputs == 1), scores, sizeof *scores * (Size) m->outputs);
    corgi_probabilities(&m->of, b->shares, m->classes);
    double share = b->shares[b->positive];
    Bin *bin = &b->bins[Min((int) (share * b->count), b->count - 1)];
    bin->rows++;
    bin->weight += weight;
    bin->share += weight * share;
    bin->observed += label == b->value ? weight : 0;
}

/* Return the bins with a positive weight. */
static void put_bins(const Bins *b, ReturnSetInfo *result)
{
    for (int i = 0; i < b->count; i++) {
        const Bin *bin = &b->bins[i];
        bool nulls[6] = {false};
        Datum values[6] = {Float8GetDatum((double) i / b->count), Float8GetDatum((double) (i + 1) / b->count),
                           Float8GetDatum(bin->share / bin->weight), Float8GetDatum(bin->observed / bin->weight),
                           Int64GetDatum(bin->rows), Float8GetDatum(bin->weight)};
        if (bin->weight > 0)
            tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
}

/* calibration(model, ...): one row per bin. */
Datum corgipile_calibration(PG_FUNCTION_ARGS)
{
    ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
    Bins b = {.watch = {.row = count_calibration_row}, .count = PG_ARGISNULL(BINS) ? 0 : PG_GETARG_INT32(BINS)};
    char *name;
    InitMaterializedSRF(fcinfo, 0);
    CorgiModel *m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        return (Datum) 0;
    corgi_need_classes(m, name, "calibration");
    if (!cp_losses[m->of.loss].probability)
        REFUSE("a model of kind %s has no probabilities; train %s", m->kind, corgi_loss_names(corgi_has_probability));
    if (b.count < 1 || b.count > MAX_BINS)
        REFUSE("bins must be 1 to %d, got %s", MAX_BINS, PG_ARGISNULL(BINS) ? "NULL" : psprintf("%d", b.count));
    b.model = m;
    b.positive = corgi_class_to_evaluate(fcinfo, m, name);
    b.value = m->class_values[b.positive];
    b.bins = palloc0(sizeof *b.bins * (Size) b.count);
    b.shares = palloc(sizeof *b.shares * (Size) Max(m->classes, 2));
    (void) corgi_evaluate_rows(fcinfo, m, name, &b.watch);
    put_bins(&b, result);
    return (Datum) 0;
}
