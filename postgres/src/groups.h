/* Models by group: one model for each value of a column. Included by corgipile.h. */
#ifndef CORGI_GROUPS_H
#define CORGI_GROUPS_H

#include "codes.h"

/* groups.c */
typedef struct CorgiGroups CorgiGroups;
extern void corgi_begin_groups(CorgiRun *run);
extern void corgi_note_group(CorgiRun *run, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_settle_groups(CorgiRun *run);
extern int64 corgi_group_count(const CorgiGroups *g);
extern int64 *corgi_group_rows(const CorgiRun *run);
extern int32 corgi_group_of(const CorgiGroups *g, int64 row);
extern int64 corgi_groups_bytes(const CorgiRun *run);
extern void corgi_write_groups(StringInfo json, const CorgiGroups *g);
extern char *corgi_group_name(const CorgiGroups *g, int64 at);
extern void corgi_report_groups(const CorgiRun *run, const cp_figures *each);

/* model_stack.c */
typedef struct CorgiModelStack CorgiModelStack;
extern int64 corgi_model_count(const CorgiRun *run);
extern int64 corgi_stack_bytes(const CorgiRun *run);
extern CorgiModelStack *corgi_make_stack(const CorgiRun *run);
extern CorgiModelStack *corgi_make_evaluation_stack(const CorgiModel *m, const char *name, bool sparse);
extern int64 corgi_stack_outputs(const CorgiModelStack *c);
extern int32 corgi_group_of_row(const CorgiModelStack *c, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_stack_decide(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count,
                               double *scores);
extern int64 corgi_member_bytes(const CorgiRun *run);
extern void corgi_stack_begin(CorgiModelStack *c, const CorgiRun *run, int64 epoch);
extern int corgi_stack_learn(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done,
                             int32 *refused);
extern cp_figures corgi_stack_so_far(const CorgiModelStack *c);
extern cp_figures corgi_stack_end(CorgiModelStack *c, int64 *skipped);
extern void corgi_stack_get(const CorgiModelStack *c, const CorgiRun *run, double *coefficients, double *intercepts);
extern void corgi_stack_write_state(const CorgiModelStack *c, const CorgiRun *run, double *to);

/* model_stack_rates.c */
extern char *corgi_list_models(const CorgiRun *run, const bool *which);
extern bool corgi_stack_restart_rates(CorgiModelStack *c, CorgiRun *run);
extern void corgi_stack_reduce_rates(CorgiModelStack *c, const CorgiRun *run);
extern void corgi_stack_report(const CorgiModelStack *c, const CorgiRun *run);
extern void corgi_stack_write_params(StringInfo json, const CorgiModelStack *c, const CorgiRun *run);

#endif
