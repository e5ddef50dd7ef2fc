/* Training: the SGD kernel, standardised features, epochs, metrics. Included by corgipile.h. */
#ifndef CORGI_LEARNING_H
#define CORGI_LEARNING_H

/* learner.c */
typedef struct CorgiLearner CorgiLearner;
extern CorgiLearner *corgi_learner(cp_loss_choice of, int bytes, bool sparse, int64 width, int64 outputs,
                                   const double *classes);
extern CorgiLearner *corgi_learner_for(const CorgiRun *run, int64 rows);
extern int64 corgi_learner_bytes(const CorgiRun *run);
extern int64 corgi_learner_size(const CorgiRun *run);
extern CorgiLearner *corgi_evaluation_learner(const CorgiRun *run);
extern void corgi_learner_copy_model(const CorgiRun *run, CorgiLearner *evaluator, CorgiLearner *learner);
extern void corgi_learner_begin(CorgiLearner *m, double rate);
extern void corgi_learner_forget(CorgiLearner *m, const CorgiRun *run);
extern void corgi_learner_watch(CorgiLearner *m, bool tried, bool count);
extern bool corgi_learner_is_watched(const CorgiLearner *m);
extern void corgi_learner_count(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count);
extern double corgi_learner_restart_rate(const CorgiLearner *m, const CorgiRun *run, double rate, double loss);
extern bool corgi_learner_has_plateaued(const CorgiLearner *m, const double *losses, int64 count);
extern int corgi_learner_learn(CorgiLearner *m, const CorgiRun *run, const int32 *visit, int64 count, int64 *done);
extern cp_sgd *corgi_learner_state(const CorgiLearner *m);
extern void corgi_learn_each(cp_sgd *const *states, int64 count, const CorgiRun *run, int64 first, const int32 *visit,
                             int64 rows, int *status, int64 *done);
extern bool corgi_learner_skips(const CorgiRun *run, int status);
extern void corgi_learner_refuse(const CorgiRun *run, int status, int32 slot);
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
extern void corgi_write_scaling(const CorgiRun *run, double *to);
extern void corgi_get_learnt(const CorgiRun *run, CorgiLearner *learner, double *to);
extern void corgi_resume(const CorgiRun *run, CorgiLearner *learner);

/* rate.c */
extern void corgi_begin_rate(const CorgiRun *run, CorgiLearner *learner, const CorgiHistory *h);
extern const char *corgi_describe_rate_change(double before, double rate, const char *of);
extern void corgi_change_rate(CorgiRun *run, CorgiLearner *learner, const CorgiHistory *h, double rate);
extern void corgi_settle_rate(CorgiRun *run, const CorgiLearner *learner, const CorgiHistory *h);

/* hints.c */
extern int corgi_hint_scaling(CorgiRun *run);
extern void corgi_hint_nothing_learnt(CorgiRun *run, const CorgiHistory *h, const CorgiEpoch *last);

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
enum { CORGI_DIVERGED = -1 }; /* returned instead of the number of skipped rows */
extern int64 corgi_compute_epoch(CorgiLearner *learner, const CorgiRun *run, CustomScanState *tuples);

/* measure.c */
extern cp_figures corgi_measure(const CorgiRun *run, CorgiLearner *evaluator, bool held, Snapshot snapshot);

#endif
