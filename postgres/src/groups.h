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
extern void corgi_tell_groups(const CorgiRun *run, const cp_figures *each);

/* model_stack.c */
typedef struct CorgiCompany CorgiCompany;
extern int64 corgi_model_count(const CorgiRun *run);
extern int64 corgi_several_bytes(const CorgiRun *run);
extern CorgiCompany *corgi_make_company(const CorgiRun *run);
extern CorgiCompany *corgi_make_judges(const CorgiModel *m, const char *name, bool sparse);
extern int64 corgi_company_outputs(const CorgiCompany *c);
extern int32 corgi_group_of_row(const CorgiCompany *c, const CorgiSource *part, TupleTableSlot *row);
extern void corgi_company_decide(CorgiCompany *c, const CorgiRun *run, const int32 *visit, int64 count, double *scores);
extern int64 corgi_member_bytes(const CorgiRun *run);
extern void corgi_company_begin(CorgiCompany *c, const CorgiRun *run, int64 epoch);
extern int corgi_company_learn(CorgiCompany *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done, int32 *refused);
extern cp_figures corgi_company_so_far(const CorgiCompany *c);
extern cp_figures corgi_company_end(CorgiCompany *c, int64 *skipped);
extern void corgi_company_get(const CorgiCompany *c, const CorgiRun *run, double *coefficients, double *intercepts);
extern void corgi_company_learnt(const CorgiCompany *c, const CorgiRun *run, double *to);

/* model_stack_rates.c */
extern char *corgi_name_models(const CorgiRun *run, const bool *which);
extern bool corgi_company_change(CorgiCompany *c, CorgiRun *run);
extern void corgi_company_settle(CorgiCompany *c, const CorgiRun *run);
extern void corgi_company_tell(const CorgiCompany *c, const CorgiRun *run);
extern void corgi_write_company(StringInfo json, const CorgiCompany *c, const CorgiRun *run);

#endif
