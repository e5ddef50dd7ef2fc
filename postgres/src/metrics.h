/* Metrics that need the score of every row. Included by corgipile.h. */
#pragma once

/* Observer of measured rows: of their scores, or of their slots. */
typedef struct CorgiWatch {
    void (*row)(struct CorgiWatch *w, double label, double weight, const double *scores);
    /* instead of row */
    void (*slot)(struct CorgiWatch *w, const CorgiRun *run, int32 slot, double label, double weight);
    CorgiLearner *scorer;
    struct CorgiTruth *truth; /* multilabel metrics, which observe rows instead */
} CorgiWatch;

/* measure.c */
enum { CORGI_EVALUATED_CLASS = 6 }; /* the argument after those common to all metrics; the weight is the last */
extern CorgiModel *corgi_model_to_evaluate(FunctionCallInfo fcinfo, char **name);
extern void corgi_need_classes(const CorgiModel *m, const char *name, const char *what);
extern cp_figures corgi_evaluate_rows(FunctionCallInfo fcinfo, CorgiModel *m, const char *name, CorgiWatch *watch);

/* Sums of one class or label. */
typedef struct {
    int64 rows;             /* rows that have it */
    double hits, predicted, actual; /* row weights: true positives, predicted, actual */
} CorgiTally;

/* multilabel_metrics.c */
typedef struct CorgiTruth CorgiTruth;
extern CorgiTruth *corgi_make_truth(const CorgiModel *m, const char *name, const CorgiSource *source);
extern int64 corgi_truth_rows(const CorgiTruth *t);
extern void corgi_note_truth(CorgiTruth *t, const CorgiSource *part, TupleTableSlot *row, int64 at);
extern void corgi_evaluate_labels(CorgiTruth *t, const CorgiRun *run, const int32 *visit, int64 count);
extern cp_figures corgi_truth_figures(const CorgiTruth *t);
extern void corgi_truth_metrics(const CorgiTruth *t, double weight, double *right, double *micro, double *macro);
extern const CorgiTally *corgi_truth_tallies(const CorgiTruth *t);
extern void corgi_f1_metrics(const CorgiTally *t, double *figures);

/* ranking.c */
typedef struct CorgiRanks CorgiRanks;
extern CorgiRanks *corgi_make_ranks(const CorgiModel *m, int64 positive, bool weighted);
extern void corgi_rank_row(CorgiRanks *r, double label, double weight, const double *scores);
extern bool corgi_auc(CorgiRanks *r, double *area);
extern int64 corgi_class_to_evaluate(FunctionCallInfo fcinfo, const CorgiModel *m, const char *name);
