/* One or several models that learn from one read. Every row goes to the one model, to its group's, or to those of all
 * labels. */
#pragma once

#include "postgres.h"

#include "learning.h"

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
    int64 epochs;           /* those of a warm start included */
    bool watched, recount;  /* watched: default rates may change; recount: labels are counted in the next pass too */
    cp_figures *figures;    /* of each model's last pass */
    int64 *skipped;         /* rows */
    bool *running, *failed; /* running: in this pass; failed: overflowed in it, with a rate under watch */
    int64 left;             /* models that run and have not failed */
    cp_figures so_far;
    cp_sgd **states; int *status; int64 *learnt; /* of labels: kernel arguments; else NULL */
    CorgiLabelSets sets;    /* of labels */
    int32 *starts, *touched, *visit, *group; /* starts: [count], 0 between pieces; else of a piece */
};

/* Bytes of bookkeeping per model with its name, and per label besides. */
enum {
    CORGI_MODEL_BYTES = sizeof(CorgiLearner *) + 3 * sizeof(double) + sizeof(cp_figures) + sizeof(int64) +
                        2 * sizeof(bool) + sizeof(int32) + sizeof(CorgiName),
    CORGI_LABEL_BYTES = sizeof(void *) + sizeof(int64) + sizeof(int)
};
