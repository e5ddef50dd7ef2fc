/* corgipile.confusion_matrix and corgipile.class_metrics: actual against predicted classes. */
#include "corgipile.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
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
    Cell wanted = {.key = {class_index(x->model, label), (int32) corgi_best_class(x->model, scores)}}, *cell;
    bool known;
    cell = hash_search(x->cells, &wanted.key, HASH_ENTER, &known);
    if (!known)
        cell->weight = (double) (cell->rows = 0);
    cell->rows++;
    cell->weight += weight;
}

/* Count the rows of a call. */
static void count_matrix(FunctionCallInfo fcinfo, CorgiModel *m, const char *name, const char *what, Matrix *x)
{
    HASHCTL shape = {.keysize = sizeof ((Cell *) NULL)->key, .entrysize = sizeof(Cell), .hcxt = CurrentMemoryContext};
    corgi_need_classes(m, name, what);
    *x = (Matrix){.watch = {.row = count_matrix_row}, .model = m};
    x->cells = hash_create("corgipile matrix", 256, &shape, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    (void) corgi_evaluate_rows(fcinfo, m, name, &x->watch);
}

/* confusion_matrix(model, ...): row counts by actual and predicted class. */
Datum corgipile_confusion_matrix(PG_FUNCTION_ARGS)
{
    ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
    Matrix x;
    char *name;
    CorgiModel *m;
    InitMaterializedSRF(fcinfo, 0);
    m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        return (Datum) 0;
    count_matrix(fcinfo, m, name, "confusion_matrix", &x);
    if (x.model->classes > MAX_MATRIX_CLASSES)
        ereport(ERROR, errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                errmsg("the model has " INT64_FORMAT " classes; a matrix can have %d", x.model->classes,
                       MAX_MATRIX_CLASSES),
                errhint("corgipile.class_metrics has one row a class."));
    for (int32 i = 0; i < x.model->classes; i++)
        for (int32 j = 0; j < x.model->classes; j++) {
            Cell wanted = {.key = {i, j}};
            const Cell *cell = hash_search(x.cells, &wanted.key, HASH_FIND, NULL);
            Datum values[4] = {CStringGetTextDatum(corgi_class_name(x.model, i)),
                               CStringGetTextDatum(corgi_class_name(x.model, j)), Int64GetDatum(cell ? cell->rows : 0),
                               Float8GetDatum(cell ? cell->weight : 0)};
            bool nulls[4] = {false};
            tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
        }
    return (Datum) 0;
}

/* Sums of one class. */
typedef struct {
    int64 rows;
    double actual, predicted, both; /* row weights */
} Tally;

static Datum ratio(double part, double whole, bool *null)
{
    *null = whole == 0;
    return Float8GetDatum(*null ? 0 : part / whole);
}

/* class_metrics(model, ...): precision, recall and F1 of each class or label, NULL if 0 / 0. */
Datum corgipile_class_metrics(PG_FUNCTION_ARGS)
{
    ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
    Matrix x;
    Tally *tallies;
    HASH_SEQ_STATUS all;
    const Cell *cell;
    char *name;
    CorgiModel *m;
    InitMaterializedSRF(fcinfo, 0);
    m = corgi_model_to_evaluate(fcinfo, &name);
    if (m != NULL && m->labels != NULL)
        corgi_put_labels(fcinfo, m, name);
    if (m == NULL || m->labels != NULL)
        return (Datum) 0;
    count_matrix(fcinfo, m, name, "class_metrics", &x);
    tallies = palloc0(sizeof *tallies * (Size) x.model->classes);
    hash_seq_init(&all, x.cells);
    while ((cell = hash_seq_search(&all)) != NULL) {
        tallies[cell->key.actual].rows += cell->rows;
        tallies[cell->key.actual].actual += cell->weight;
        tallies[cell->key.predicted].predicted += cell->weight;
        tallies[cell->key.actual].both += cell->key.actual == cell->key.predicted ? cell->weight : 0;
    }
    for (int64 k = 0; k < x.model->classes; k++) {
        const Tally *t = &tallies[k];
        bool nulls[6] = {false};
        Datum values[6] = {CStringGetTextDatum(corgi_class_name(x.model, k)),
                           ratio(t->both, t->predicted, &nulls[1]),
                           ratio(t->both, t->actual, &nulls[2]),
                           ratio(2 * t->both, t->actual + t->predicted, &nulls[3]),
                           Int64GetDatum(t->rows),
                           Float8GetDatum(t->actual)};
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return (Datum) 0;
}
