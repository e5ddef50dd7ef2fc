/* What several models that learn from one read share: inside the files whose names begin with company. */
#ifndef CORGI_COMPANY_H
#define CORGI_COMPANY_H

#include "corgipile.h"

struct CorgiCompany {
    const CorgiModel *model; /* stored, by which rows are measured; else NULL */
    const char *name;       /* of it */
    int64 count;
    int64 seats;            /* learners: of stored models of many groups fewer than groups, which take turns */
    CorgiLearner **each;    /* [seats] */
    int64 *seated;          /* [seats]: whose turn it is; NULL where all have a seat */
    cp_sgd_totals *totals;  /* of those who have none */
    double *rate;           /* of each */
    double (*losses)[2];    /* of the last two epochs of each */
    int64 epochs;
    cp_figures *figures;    /* of the last pass of each */
    int64 *skipped;         /* rows left out */
    bool *running, *failed; /* running: in this pass; failed: weights overflowed in it, and its rate is tried */
    cp_figures so_far;
    cp_sgd **states; int *status; int64 *learnt; /* of labels: room for what the kernel takes; else NULL */
    int32 *starts, *touched, *visit, *group; /* starts: [count], all 0 between pieces; of a piece: groups, and visits by group */
};

/* model_stack_labels.c */
extern void corgi_seat_labels(CorgiCompany *c);
extern int corgi_labels_learn(CorgiCompany *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done, int32 *refused);
extern cp_figures corgi_labels_so_far(const CorgiCompany *c);
extern cp_figures corgi_labels_together(const cp_figures *each, int64 count);

#endif
