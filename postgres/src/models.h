/* Stored models: loading, caching, writing. */
#pragma once

#include "postgres.h"

#include "source.h"

typedef struct CorgiLearner CorgiLearner;

enum { CORGI_FIGURES = 8 };
/* A stored model. */
typedef struct CorgiModel {
    char *kind, *label;
    char *weight;           /* default row-weight column of calls; NULL: each row weighs 1 */
    Datum figures[CORGI_FIGURES]; /* per-epoch metrics, as arrays, see model.c */
    List *features;         /* of char ** */
    cp_loss_choice of;
    int bytes;
    int64 width, outputs, classes, epochs, best; /* best: predicting epoch; -1: the last */
    double *class_values, *coefficients, *intercepts;
    double *learnt;         /* [outputs + 2 + beside][width + 1], see corgi_get_learnt; NULL: weights suffice */
    int64 beside;           /* rows of optimizer state */
    int64 groups;           /* models by group, each of `outputs`; 0: one model */
    struct CorgiGroupIndex *known; /* their groups, see multi_model.c; or NULL */
    CorgiNames *labels; bool whole; /* labels: one output each; whole: labels are numbers */
    bool standardized;      /* features were standardised */
    char *how;              /* optimizer description, as of corgi_describe_optimizer */
    double rate;            /* of the first epoch; 0: unknown */
    double *losses;         /* [epochs] */
    CorgiEncoding *encoding; /* NULL: columns are plain numbers */
} CorgiModel;

/* model.c */
extern CorgiModel *corgi_load_model(const char *name, bool past);
extern List *corgi_model_columns(const char *name, bool needed);
extern CorgiLearner *corgi_model_learner(const CorgiModel *m, bool sparse);

/* multi_model.c */
extern void corgi_load_members(CorgiModel *m, const char *name, MemoryContext context);
extern const char *corgi_group_column(const CorgiModel *m);
extern CorgiModel *corgi_model_of_group(const CorgiModel *m, int64 k);
extern int64 corgi_find_group(const CorgiModel *m, const char *name, Oid type, NullableDatum value,
                              const CorgiColumn *c, const ItemPointerData *tid);
extern void corgi_require_single(const CorgiModel *m, const char *name, const char *what);

/* cache.c */
typedef struct CorgiCached {
    MemoryContext context;
    const char *name;
    CorgiVersion version;
    uint64 asked, loads;
    CorgiModel *model;
    CorgiLearner *learner, *sparse; /* learner: NULL for hashed columns; sparse: NULL until a sparse row is scored */
    char *row;              /* scratch for a row and its scores */
    double *scores;
    struct CorgiCached **each; /* models by group, NULL until needed; NULL for a single model */
    Size ready;             /* bytes of the cached group models */
} CorgiCached;
extern CorgiVersion corgi_find_model(const char *name, CorgiRight right);
extern bool corgi_same_version(const CorgiVersion *a, const CorgiVersion *b);
extern CorgiCached *corgi_cached_model(const char *name);
extern CorgiCached *corgi_cached_group(CorgiCached *c, int64 k);

/* predict.c */
extern int64 corgi_best_class(const CorgiModel *m, const double *scores);
extern double corgi_predicted_number(const CorgiModel *m, const double *scores);
extern const CorgiNames *corgi_class_names(const CorgiModel *m);
extern const char *corgi_class_name(const CorgiModel *m, int64 k);

/* predict_sparse.c */
extern bool corgi_is_pair(Oid indices, Oid values);
extern bool corgi_score_hashed(CorgiCached *c, const Oid *types, const NullableDatum *row);
extern void corgi_score_pair(CorgiCached *c, Datum indices, Datum values, Oid type);

/* store.c */
typedef struct {
    ArrayType *classes, *coefficients, *intercepts, *names; /* names: of classes, or NULL */
} CorgiWeights;
extern ArrayType *corgi_text_array(const CorgiNames *names);

/* A row of the table of models, without the server's columns. */
typedef struct {
    const char *name, *kind, *params, *source;
    Oid user;
    int64 width;
    CorgiWeights weights;
    ArrayType *learnt;      /* NULL: the weights suffice */
} CorgiRow;
extern ArrayType *corgi_make_doubles(int dimensions, int64 rows, int64 columns);
extern void corgi_check_name(const char *name, Oid user, const char *what);
extern void corgi_check_weights(int64 outputs, int64 width, int64 classes, int64 learnt);
extern void corgi_store_row(const CorgiRow *row);

/* state.c */
extern void corgi_write_encoding(StringInfo json, const CorgiEncoding *e, const char *label, bool strict);
extern CorgiEncoding *corgi_read_encoding(const char *name, MemoryContext context);
