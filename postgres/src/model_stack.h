/* Shared declarations of the model_stack*.c files: several models that learn from one read. */
#ifndef CORGI_MODEL_STACK_H
#define CORGI_MODEL_STACK_H

#include "corgipile.h"

struct CorgiModelStack {
    const CorgiModel *model; /* stored model that measures rows, or NULL */
    const char *name;       /* of the stored model */
    int64 count;
    int64 seats;            /* learners; fewer than groups if many stored models take turns */
    CorgiLearner **each;    /* [seats] */
    int64 *seated;          /* [seats]: group in each seat; NULL if all have one */
    cp_sgd_totals *totals;  /* of groups without a seat */
    double *rate;           /* learning rate of each */
    double (*losses)[2];    /* of each model's last two epochs */
    int64 epochs;
    cp_figures *figures;    /* of each model's last pass */
    int64 *skipped;         /* rows */
    bool *running, *failed; /* running: in this pass; failed: overflowed in it, with a rate under watch */
    cp_figures so_far;
    cp_sgd **states; int *status; int64 *learnt; /* of labels: kernel arguments; else NULL */
    int32 *starts, *touched, *visit, *group; /* starts: [count], 0 between pieces; else of a piece */
};

/* model_stack_labels.c */
extern void corgi_allocate_labels(CorgiModelStack *c);
extern int corgi_labels_learn(CorgiModelStack *c, const CorgiRun *run, const int32 *visit, int64 count, int64 *done,
                              int32 *refused);
extern cp_figures corgi_labels_so_far(const CorgiModelStack *c);
extern cp_figures corgi_labels_mean(const cp_figures *each, int64 count);

#endif
