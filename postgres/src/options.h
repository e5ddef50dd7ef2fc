/* What the caller of corgipile.train asked for. */
#ifndef CORGIPILE_OPTIONS_H
#define CORGIPILE_OPTIONS_H

#include "postgres.h"

#include "encoders.h"
#include "nodes/pg_list.h"
#include "rights.h"
#include "sgd/scale_sample.h"

typedef enum { CORGI_NO, CORGI_YES, CORGI_AS_NEEDED } CorgiChoice;

typedef struct {
    Oid source, user;       /* user: whose rights count, to the end */
    const char *query;      /* whose rows are learnt from, or NULL */
    const char *where;      /* condition of the rows to learn from, or NULL */
    const char *kind, *label, *name, *order_name;
    List *features;         /* of char * */
    const char *warm_start; /* name of a model to go on from */
    cp_loss_choice of;      /* kind, read; of two classes until it is known how many there are */
    int order;              /* of kernel/plan/plan.h */
    int epochs, batch, patience; /* patience: epochs without a better loss on rows held out; 0: not asked for */
    enum cp_step step;
    bool any_step;          /* nobody named a step */
    bool rated;             /* somebody named a rate, or how it decays */
    bool adaptive;          /* nobody chose learning_rate: it is lowered where an epoch diverges */
    double learning_rate, decay, l1, l2, max_norm, holdout; /* max_norm: 0 if there is none */
    double tolerance;       /* negative: train all epochs */
    int64 block_bytes, buffer_bytes, seed; /* block_bytes: 0 if not said */
    CorgiVersion past;      /* of the warm-start model */
    bool spare;             /* buffer_size was not said: riffle takes no more of it than does */
    bool intercept, balance, average;
    bool any_average;       /* nobody said whether the mean of the weights predicts */
    bool content;           /* balance: by all that is in blocks, not by the label alone */
    bool automatic;         /* the survey decides what blocks are balanced by */
    CorgiChoice standardize;
    double *classes;        /* NULL: to be found */
    int class_count;
    List *class_texts;      /* of char *: classes given as text */
    bool untyped;           /* they were given as a literal without a type, so they may be numbers */
    List *encode;           /* of CorgiWish * */
    List *words, *terms;    /* of char *: columns of text; of List *: products of columns, and each of those alone */
    List *beside;           /* of char *: features with places of their own, where columns are hashed */
    bool chosen;            /* features are all columns that are read, those that are hashed first */
    int hash_bits, ngrams;
    CorgiMissing missing;
    double fill;            /* missing: what stands for it, if that is a number */
    CorgiEncoding *encoding; /* of a model to go on from, or to measure; else NULL */
    int threads;            /* 1, or 2: one reads while the other learns */
    bool weights;           /* are to be returned with the last epoch */
    const char *weight;     /* column of what rows count for, or NULL */
    const char *by;         /* column of groups with a model each, or NULL */
    List *labels;           /* of char *: column of arrays of labels with a model each, or columns of 0 and 1; or NIL */
    char *class_weight;     /* as it was said: balanced, or an object; or NULL */
    List *class_weights;    /* those of the object, see weights.c */
} CorgiOptions;

#endif
