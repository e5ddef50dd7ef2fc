/* corgipile.confusion_matrix and corgipile.class_metrics: actual against predicted classes. */
#include "corgipile.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"

PG_FUNCTION_INFO_V1(corgipile_confusion_matrix);
PG_FUNCTION_INFO_V1(corgipile_class_metrics);

enum { MAX_MATRIX_CLASSES = 4096 }; /* of a returned matrix: 16 million cells */

/* A cell of the matrix. Cells without rows are not stored. */
typedef struct {
    struct {
        int32 actual, predicted;
    } key;
    int64 rows;
    double weight;          /* sum of row weights */
} Cell;

typedef struct {
    CorgiWatch watch;
    const CorgiModel *model;
    HTAB *cells;
} Matrix;

/* Return the index of a label's class. The kernel has refused unknown labels. */
static int32 class_index(const CorgiModel *m, double label)
{
    int64 low = 0, high = m->classes - 1;
    while (low < high) {
        int64 middle = (low + high) / 2;
        if (m->class_values[middle] < label)
            low = middle + 1;
        else
            high = middle;
    }
    return (int32) low;
}

static void count_matrix_row(CorgiWatch *w, double label, double weight, const double *scores)
{
    Matrix *x = (Matrix *) w;
    Cell wanted = {.key = {class_index(x->model, label), (int32) corgi_best_class(x->model, scores)}};
    bool known;
    Cell *cell = hash_search(x->cells, &wanted.key, HASH_ENTER, &known);
    if (!known)
        cell->weight = (double) (cell->rows = 0);
    cell->rows++;
    cell->weight += weight;
}

/* confusion_matrix(model, ...): row counts by actual and predicted class. */
Datum corgipile_confusion_matrix(PG_FUNCTION_ARGS)
{
    ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
    HASHCTL shape = {.keysize = sizeof ((Cell *) NULL)->key, .entrysize = sizeof(Cell), .hcxt = CurrentMemoryContext};
    Matrix x = {.watch = {.row = count_matrix_row}};
    char *name;
    CorgiModel *m;
    InitMaterializedSRF(fcinfo, 0);
    x.model = m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        return (Datum) 0;
    corgi_need_classes(m, name, "confusion_matrix");
    x.cells = hash_create("corgipile matrix", 256, &shape, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    (void) corgi_evaluate_rows(fcinfo, m, name, &x.watch);
    if (m->classes > MAX_MATRIX_CLASSES)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("a confusion matrix must have at most %d classes, got " INT64_FORMAT, MAX_MATRIX_CLASSES,
                       m->classes),
                errhint("corgipile.class_metrics has one row a class."));
    for (int32 i = 0; i < m->classes; i++)
        for (int32 j = 0; j < m->classes; j++) {
            Cell wanted = {.key = {i, j}};
            const Cell *cell = hash_search(x.cells, &wanted.key, HASH_FIND, NULL);
            Datum values[4] = {CStringGetTextDatum(corgi_class_name(m, i)),
                               CStringGetTextDatum(corgi_class_name(m, j)), Int64GetDatum(cell ? cell->rows : 0),
                               Float8GetDatum(cell ? cell->weight : 0)};
            bool nulls[4] = {false};
            tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
        }
    return (Datum) 0;
}

typedef struct {
    CorgiWatch watch;
    const CorgiModel *model;
    CorgiTally *tallies;    /* [classes] */
} Classes;

static void tally_row(CorgiWatch *w, double label, double weight, const double *scores)
{
    Classes *c = (Classes *) w;
    int64 predicted = corgi_best_class(c->model, scores);
    CorgiTally *actual = &c->tallies[class_index(c->model, label)];
    actual->rows++;
    actual->actual += weight;
    actual->hits += actual == &c->tallies[predicted] ? weight : 0;
    c->tallies[predicted].predicted += weight;
}

/* Return a class's or label's row: NULL if 0 / 0. */
static void put_tally(const char *name, const CorgiTally *t, ReturnSetInfo *result)
{
    double figures[3];
    Datum values[6] = {CStringGetTextDatum(name), [4] = Int64GetDatum(t->rows), [5] = Float8GetDatum(t->actual)};
    bool nulls[6] = {false};
    corgi_f1_metrics(t, figures);
    for (int i = 0; i < lengthof(figures); i++) {
        nulls[i + 1] = isnan(figures[i]);
        values[i + 1] = Float8GetDatum(figures[i]);
    }
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* class_metrics(model, ...): precision, recall and F1 of each class or label. */
Datum corgipile_class_metrics(PG_FUNCTION_ARGS)
{
    Classes c = {.watch = {.row = tally_row}};
    char *name;
    CorgiModel *m;
    InitMaterializedSRF(fcinfo, 0);
    c.model = m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        return (Datum) 0;
    if (m->labels == NULL) {
        corgi_need_classes(m, name, "class_metrics");
        c.tallies = palloc_extended(sizeof *c.tallies * (Size) m->classes, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
    }
    (void) corgi_evaluate_rows(fcinfo, m, name, &c.watch);
    for (int64 k = 0; k < (m->labels ? m->labels->count : m->classes); k++)
        put_tally(m->labels ? m->labels->names[k].text : corgi_class_name(m, k),
                  m->labels ? &corgi_truth_tallies(c.watch.truth)[k] : &c.tallies[k],
                  (ReturnSetInfo *) fcinfo->resultinfo);
    return (Datum) 0;
}
