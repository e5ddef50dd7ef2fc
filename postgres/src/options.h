/* Arguments of corgipile.train, parsed, and the losses. */
#pragma once

#include "postgres.h"

#include "encoders.h"
#include "nodes/pg_list.h"
#include "rights.h"
#include "sgd/epochs.h"
#include "sgd/scale_sample.h"

struct CorgiSource;

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

/* options.c */
enum {
    ARG_SOURCE, ARG_MODEL, ARG_FEATURES, ARG_LABEL, ARG_NAME, ARG_EPOCHS, ARG_LEARNING_RATE, ARG_DECAY, ARG_L2,
    ARG_BATCH_SIZE, ARG_BLOCK_SIZE, ARG_BUFFER_SIZE, ARG_ORDER, ARG_BALANCE, ARG_SEED, ARG_INTERCEPT, ARG_CLASSES,
    ARG_HOLDOUT, ARG_WARM_START, ARG_TOLERANCE, ARG_THREADS, ARG_WEIGHTS, ARG_ENCODE,
    ARG_MISSING, ARG_QUERY, ARG_WHERE, ARG_STANDARDIZE, ARG_AVERAGE, ARG_STEP, ARG_L1, ARG_WEIGHT, ARG_CLASS_WEIGHT,
    ARG_PATIENCE, ARG_MAX_NORM, ARG_TEXT, ARG_INTERACTIONS, ARG_HASH_BITS, ARG_NGRAMS, ARG_BY, ARG_LABELS, ARG_COUNT
};
extern void corgi_read_options(CorgiOptions *o, const Datum *values, const bool *nulls, const Oid *types);
extern void corgi_settle_classes(CorgiOptions *o, const struct CorgiSource *s);
extern CorgiNames *corgi_named_classes(const CorgiOptions *o);
extern void corgi_number_texts(CorgiOptions *o);
extern void corgi_check_class_names(CorgiNames *names, const char *subject, const char *kind);
extern double *corgi_check_classes(double *classes, int64 count, const char *subject, const char *kind, int64 *found);
extern List *corgi_text_list(Datum array);
extern char *corgi_describe_optimizer(const CorgiOptions *o);
extern void corgi_take_step(CorgiOptions *o, const char *how, double rate);

/* encode_options.c */
extern char *corgi_argument_text(Datum value, Oid type);
extern int corgi_elements(Datum array, Datum **values, bool **nulls);
extern List *corgi_read_encode(Datum value, Oid type);
extern List *corgi_read_names(Datum value, Oid type, const char *what);
extern CorgiMissing corgi_read_missing(Datum value, Oid type, double *fill);

/* losses.c */
extern cp_loss_choice corgi_loss_of(const char *kind, int64 classes);
extern const char *corgi_loss_name(const cp_loss_choice *of);
extern int64 corgi_max_classes(const char *kind);
extern bool corgi_has_probability(const cp_loss_facts *f);
extern bool corgi_is_per_class(const cp_loss_facts *f);
extern bool corgi_is_of_numbers(const cp_loss_facts *f);
extern char *corgi_loss_names(bool (*wanted)(const cp_loss_facts *));

static inline bool corgi_predicts_numbers(const cp_loss_choice *of) { return cp_losses[of->loss].labels == CP_NUMBERS; }

static inline int64 corgi_outputs(const cp_loss_choice *of, int64 classes)
{
    return cp_loss_per_class(of->loss) ? classes : 1;
}
