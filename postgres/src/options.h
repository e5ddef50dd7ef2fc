/* Arguments of corgipile.train, parsed. */
#ifndef CORGIPILE_OPTIONS_H
#define CORGIPILE_OPTIONS_H

#include "postgres.h"

#include "encoders.h"
#include "nodes/pg_list.h"
#include "rights.h"
#include "sgd/scale_sample.h"

typedef enum { CORGI_NO, CORGI_YES, CORGI_AS_NEEDED } CorgiChoice;

typedef struct {
    Oid source, user;       /* user: whose rights count throughout */
    const char *query;      /* training rows, or NULL */
    const char *where;      /* condition of training rows, or NULL */
    const char *kind, *label, *name, *order_name;
    List *features;         /* of char ** */
    const char *warm_start; /* name of the model to continue, or NULL */
    cp_loss_choice of;      /* kind, parsed; for two classes until their number is known */
    int order;              /* of kernel/plan/plan.h */
    int epochs, batch, patience; /* patience: epochs without a better validation loss; 0: no early stopping */
    enum cp_step step;
    bool any_step;          /* step is the default */
    bool rated;             /* a rate or its decay was given */
    bool adaptive;          /* learning_rate is the default: reduced if an epoch diverges */
    double learning_rate, decay, l1, l2, max_norm, holdout; /* max_norm: 0 for none */
    double tolerance;       /* negative: train all epochs */
    int64 block_bytes, buffer_bytes, seed; /* block_bytes: 0 for the default */
    CorgiVersion past;      /* of the warm-start model */
    bool spare;             /* buffer_size is the default: riffle uses no more of it than it needs */
    bool intercept, balance, average;
    bool any_average;       /* average is the default */
    bool content;           /* balance by the blocks' content, not by the label alone */
    bool automatic;         /* the survey chooses the balance */
    CorgiChoice standardize;
    double *classes;        /* NULL: found in the rows */
    int class_count;
    List *class_texts;      /* of char *: classes given as text */
    bool untyped;           /* classes came as an untyped literal, so they may be numbers */
    List *encode;           /* of CorgiEncodeOption ** */
    List *words, *terms;    /* words: of char *, text columns; terms: of List *, hashed products of columns, single ones
                             * included */
    List *beside;           /* of char *: plain features besides hashed columns */
    bool chosen;            /* features lists all columns read, hashed ones first */
    int hash_bits, ngrams;
    CorgiMissing missing;
    double fill;            /* replaces missing numbers, if missing is a number */
    CorgiEncoding *encoding; /* of a warm start or of a model to evaluate; else NULL */
    int threads;            /* 1, or 2: one reads while the other learns */
    bool weights;           /* returned with the last epoch */
    const char *weight;     /* column of row weights, or NULL */
    const char *by;         /* column of groups with a model each, or NULL */
    List *labels;           /* of char *: an array column of labels, or columns of 0 and 1; NIL: one label */
    char *class_weight;     /* as given: balanced or an object; or NULL */
    List *class_weights;    /* of the object, see weights.c */
} CorgiOptions;

#endif
