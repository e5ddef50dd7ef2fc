/* Training: the SGD kernel, standardised features, epochs, metrics. */
#pragma once

#include "postgres.h"

#include "models.h"
#include "run.h"

/* learner.c */
extern CorgiLearner *corgi_learner(cp_loss_choice of, int bytes, bool sparse, int64 width, int64 outputs,
                                   const double *classes);
extern CorgiLearner *corgi_learner_for(const CorgiRun *run, int64 rows);
extern int64 corgi_learner_bytes(const CorgiRun *run);
extern int64 corgi_learner_size(const CorgiRun *run);
extern CorgiLearner *corgi_evaluation_learner(const CorgiRun *run);
extern void corgi_learner_begin(CorgiLearner *m, double rate);
extern void corgi_learner_forget(CorgiLearner *m, const CorgiRun *run);
extern void corgi_learner_watch(CorgiLearner *m, bool tried, bool count);
extern bool corgi_learner_is_watched(const CorgiLearner *m);
extern void corgi_learner_count(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count);
extern double corgi_learner_restart_rate(const CorgiLearner *m, const CorgiRun *run, double rate, double loss);
extern bool corgi_learner_has_plateaued(const CorgiLearner *m, const double *losses, int64 count);
extern int64 corgi_learner_piece(const CorgiLearner *m, const CorgiRun *run);
extern int corgi_learner_learn(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count, int64 *done);
extern cp_sgd *corgi_learner_state(const CorgiLearner *m);
/* Labels of each set: [count][labels], one byte each. */
typedef struct {
    const uint8 *has;
    int64 count, labels;
} CorgiLabelSets;
extern void corgi_learn_each(cp_sgd *const *states, int64 count, const CorgiRun *run, CorgiLabelSets sets, int64 first,
                             const int32 *visit, int64 rows, int *status, int64 *done);
extern bool corgi_learner_skips(const CorgiRun *run, int status);
extern cp_figures corgi_learner_end(CorgiLearner *m);
extern int64 corgi_learner_memory(const CorgiLearner *m);
extern void corgi_learner_totals(CorgiLearner *m, cp_sgd_totals *totals, bool into);
extern int64 corgi_learner_outputs(const CorgiLearner *m);
extern cp_figures corgi_learner_figures(const CorgiLearner *m);
extern void corgi_learner_get(CorgiLearner *m, bool last, double *coefficients, double *intercepts);
extern int64 corgi_learner_state_rows(const CorgiLearner *m);
extern void corgi_learner_copy_state(CorgiLearner *m, double *lines, bool into);
extern void corgi_learner_set(CorgiLearner *m, const double *coefficients, const double *intercepts);
extern void corgi_learner_decide(CorgiLearner *m, const char *row, double *scores);
extern void corgi_learner_decide_rows(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count,
                                      double *scores);
extern int corgi_learner_score_rows(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count,
                                    double *scores);
extern void corgi_add_score(const CorgiModel *m, double score, bool there, const double *weight, cp_sgd_totals *totals);
extern cp_figures corgi_score_figures(const CorgiModel *m, const cp_sgd_totals *totals);
extern int corgi_learner_decide_pair(CorgiLearner *m, const int32 *indices, const char *values, int64 count,
                                     double *scores);
extern void corgi_probabilities(const cp_loss_choice *of, double *scores, int64 classes);
extern double corgi_chance(const cp_loss_choice *of, const int64 *counts, const double *weight, int64 classes);

/* refusals.c */
extern void corgi_learner_refuse(const CorgiRun *run, int status, int32 slot);

/* standardize.c */
struct cp_moments;
extern void corgi_choose_scaling(CorgiRun *run, Snapshot snapshot);
extern struct cp_moments *corgi_begin_moments(const CorgiRun *run);
extern void corgi_add_moments(struct cp_moments *m, const CorgiRun *run, int64 rows);
extern bool corgi_kept_flags(const CorgiRun *run);
extern CorgiScaling *corgi_end_moments(struct cp_moments *m, const CorgiRun *run);
extern CorgiScaling *corgi_past_scaling(const CorgiRun *run);
extern void corgi_scale_rows(const CorgiRun *run, const int32 *slots, int count);
extern void corgi_get_folded(const CorgiRun *run, CorgiLearner *learner, double *coefficients, double *intercepts);
extern void corgi_learner_copy_model(const CorgiRun *run, CorgiLearner *evaluator, CorgiLearner *learner);
extern void corgi_write_scaling(const CorgiRun *run, double *to);
extern void corgi_write_weights(CorgiLearner *learner, int64 width, bool last, double *to);
extern void corgi_get_learnt(const CorgiRun *run, CorgiLearner *learner, double *to);
extern void corgi_resume(const CorgiRun *run, CorgiLearner *learner);

/* model_stack.c */
typedef struct CorgiModelStack CorgiModelStack;
extern CorgiModelStack *corgi_make_stack(const CorgiRun *run, const CorgiHistory *past);
extern CorgiModelStack *corgi_make_evaluation_stack(const CorgiModel *m, const char *name, bool sparse);
extern CorgiLearner *corgi_single_learner(const CorgiModelStack *c, const CorgiRun *run);
extern int64 corgi_stack_outputs(const CorgiModelStack *c);
extern int32 corgi_group_of_row(const CorgiModelStack *c, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_stack_decide(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count,
                               double *scores);
extern void corgi_stack_begin(CorgiModelStack *c, const CorgiRun *run, int64 epoch);
extern bool corgi_stack_has_failed(const CorgiModelStack *c);
extern int corgi_stack_learn(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done,
                             int32 *refused);
extern cp_figures corgi_stack_so_far(const CorgiModelStack *c);
extern cp_figures corgi_stack_end(CorgiModelStack *c, int64 *skipped);
extern void corgi_stack_get(const CorgiModelStack *c, const CorgiRun *run, double *coefficients, double *intercepts);
extern void corgi_stack_write_state(const CorgiModelStack *c, const CorgiRun *run, double *to);

/* model_stack_rates.c */
extern bool corgi_stack_restart_rates(CorgiModelStack *c, CorgiRun *run);
extern void corgi_stack_reduce_rates(CorgiModelStack *c, CorgiRun *run);
extern void corgi_stack_report(const CorgiModelStack *c, const CorgiRun *run);
extern void corgi_stack_write_params(StringInfo json, const CorgiModelStack *c, const CorgiRun *run);

/* weights.c */
extern bool corgi_is_balanced(const CorgiOptions *o);
extern void corgi_read_class_weight(CorgiOptions *o, Datum value, Oid type);
extern void corgi_compute_class_weights(CorgiRun *run, const double *values, const int64 *counts, int64 n);
extern void corgi_weights_of(const struct CorgiModel *m, const char *class_weight, const int64 *counts, double *weight);
extern double corgi_read_weight(const CorgiColumn *weight, TupleTableSlot *row);
extern void corgi_check_weight(const cp_figures *figures, const char *subject);

/* early_stopping.c */
extern void corgi_begin_best(CorgiRun *run);
extern bool corgi_note_best(CorgiRun *run, CorgiLearner *learner, int64 epoch, const cp_figures *held);
extern int64 corgi_best_epoch(const CorgiRun *run);
extern void corgi_get_predictor(const CorgiRun *run, CorgiLearner *learner, double *coefficients, double *intercepts);

/* pipeline.c */
extern void corgi_compute_epoch(const CorgiRun *run, struct CustomScanState *tuples);

/* measure.c */
extern cp_figures corgi_measure(const CorgiRun *run, CorgiLearner *evaluator, bool held, Snapshot snapshot);

/* warm.c */
extern CorgiModel *corgi_load_past(CorgiOptions *o);
extern void corgi_check_past(const CorgiOptions *o);
extern void corgi_fit_past(CorgiRun *run, const CorgiModel *past);

/* store.c */
extern void corgi_check_size(const CorgiRun *run, const CorgiLearner *learner);
extern CorgiWeights corgi_get_weights(const CorgiRun *run, CorgiLearner *learner);
extern void corgi_store_model(const CorgiRun *run, CorgiLearner *learner, const CorgiHistory *history,
                              const CorgiModel *past);
