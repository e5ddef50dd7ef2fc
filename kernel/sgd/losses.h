/* The table of losses: one line each here, one formula each in sgd/loss.h. The kernel, Python and SQL all read names,
 * label rules, parameters, scores and predictions from it.
 *
 *     MARGIN(id, facts...)   a loss of one margin
 *     SCORES(id, facts...)   a loss with one score per class
 *
 * If two lines share a name, the first is for two classes and the other for any number. No switch over losses has a
 * default, so a loss without a formula does not compile. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CP_LOSSES(MARGIN, SCORES) \
    MARGIN(LOGISTIC, .name = "logistic", .labels = CP_TWO_CLASSES, .probability = 1) \
    MARGIN(HINGE, .name = "svm", .labels = CP_TWO_CLASSES) \
    MARGIN(SQUARED, .name = "linear", .labels = CP_NUMBERS, .of_mean = 1) \
    SCORES(SOFTMAX, .name = "softmax", .labels = CP_CLASSES, .probability = 1) \
    SCORES(HINGES, .name = "svm", .labels = CP_CLASSES, .rest = 1, .one = CP_HINGE) \
    MARGIN(HUBER, .name = "huber", .labels = CP_NUMBERS, .bounded = 1, .parameter = "delta", .usual = 1, \
           .below = INFINITY) \
    MARGIN(SQUARED_HINGE, .name = "squared_hinge", .labels = CP_TWO_CLASSES) \
    MARGIN(POISSON, .name = "poisson", .labels = CP_NUMBERS, .exponential = 1, .not_negative = 1, .of_mean = 1) \
    MARGIN(QUANTILE, .name = "quantile", .labels = CP_NUMBERS, .bounded = 1, .parameter = "tau", .usual = 0.5, \
           .below = 1) \
    SCORES(LOGISTICS, .name = "ovr_logistic", .labels = CP_CLASSES, .probability = 1, .rest = 1, .one = CP_LOGISTIC)

/* Losses whose formulas are inlined into the learner; the others are called row by row, and add no machine code. */
#define CP_INLINED(LOSS) LOSS(LOGISTIC) LOSS(HINGE) LOSS(SQUARED)

#define CP_LOSS_ID(id, ...) CP_##id,
enum cp_loss { CP_LOSSES(CP_LOSS_ID, CP_LOSS_ID) };
#undef CP_LOSS_ID

#define CP_LOSS_ONE(...) +1
enum { CP_LOSS_COUNT = CP_LOSSES(CP_LOSS_ONE, CP_LOSS_ONE), CP_MAX_CLASSES = 1 << 16 };
#undef CP_LOSS_ONE

enum cp_labels {
    CP_TWO_CLASSES, /* separated by the sign of one score */
    CP_CLASSES,     /* any number of classes, one score each; only for SCORES */
    CP_NUMBERS      /* regression targets */
};

typedef struct {
    const char *name;             /* name in the public API */
    enum cp_labels labels;
    int probability;              /* scores yield probabilities; unless `rest`, the loss is -log(probability) */
    int rest;                     /* one class against the rest: the loss is the sum over classes, */
    enum cp_loss one;             /* of this two-class loss */
    int exponential;              /* predicts exp(score) instead of the score */
    int not_negative;             /* labels must be >= 0 */
    int of_mean;                  /* the best constant predictor is the mean of the labels, so R^2 compares with it */
    int bounded;                  /* slopes are at most the parameter, or 1 - parameter, at any residual */
    const char *parameter;        /* parameter name, or NULL */
    double usual, below;          /* parameter: its default; its open range is (0, below) */
} cp_loss_facts;

#define CP_LOSS_FACTS(id, ...) [CP_##id] = {__VA_ARGS__},
static const cp_loss_facts cp_losses[CP_LOSS_COUNT] = {CP_LOSSES(CP_LOSS_FACTS, CP_LOSS_FACTS)};
#undef CP_LOSS_FACTS

/* Return whether the formula of a loss is inlined into the learner. */
static inline int cp_loss_is_inlined(enum cp_loss loss)
{
#define CP_EQUALS(id) || loss == CP_##id
    return 0 CP_INLINED(CP_EQUALS);
#undef CP_EQUALS
}

/* Return whether a loss has one output per class. */
static inline int cp_loss_per_class(enum cp_loss loss) { return cp_losses[loss].labels == CP_CLASSES; }

static inline const char *cp_loss_score(enum cp_loss loss)
{
    return cp_losses[loss].labels == CP_NUMBERS ? "r2" : "accuracy";
}

/* Return the largest number of classes that the losses of this name support; 0 if they take numbers. */
static inline int64_t cp_loss_max_classes(const char *name)
{
    int64_t most = 0;
    for (int i = 0; i < CP_LOSS_COUNT; i++)
        if (strcmp(cp_losses[i].name, name) == 0 && cp_losses[i].labels != CP_NUMBERS)
            most = cp_losses[i].labels == CP_CLASSES ? CP_MAX_CLASSES : most > 2 ? most : 2;
    return most;
}

typedef struct {
    enum cp_loss loss;
    double parameter;
} cp_loss_choice;

/* Return the distance of a label from 0, in steps, for a bounded loss whose value at weights of zero is `lost`. The
 * distance is in units of the slope by which scores get there (quantile: one upwards, another downwards), and half in
 * units of the steepest slope, by which scores overshoot. */
static inline double cp_loss_distance(cp_loss_choice of, double label, double lost)
{
    const double other = cp_losses[of.loss].below <= 1 ? 1 - of.parameter : of.parameter;
    const double slope = label < 0 ? other : of.parameter, most = other > of.parameter ? other : of.parameter;
    return lost / (slope * sqrt(slope * most));
}

enum cp_loss_reading {
    CP_LOSS_READ,
    CP_LOSS_UNKNOWN,
    CP_LOSS_TAKES_NONE,           /* the loss has no parameter */
    CP_LOSS_BAD_PARAMETER         /* not a number, or out of range */
};

/* Parse a loss for this number of classes: a name, optionally followed by a colon and the parameter, as in
 * "quantile:0.9". Sets choice->loss if the name is known. */
static inline enum cp_loss_reading cp_loss_read(const char *text, int64_t classes, cp_loss_choice *choice)
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    const cp_loss_facts *facts = NULL;
    char *end;
    for (int i = CP_LOSS_COUNT - 1; i >= 0; i--)
        if (strlen(cp_losses[i].name) == length && memcmp(cp_losses[i].name, text, length) == 0
            && (!facts || cp_losses[i].labels != CP_TWO_CLASSES || classes <= 2)) {
            facts = &cp_losses[i];
            *choice = (cp_loss_choice){(enum cp_loss)i, facts->usual};
        }
    if (!facts || !colon)
        return facts ? CP_LOSS_READ : CP_LOSS_UNKNOWN;
    if (!facts->parameter)
        return CP_LOSS_TAKES_NONE;
    choice->parameter = strtod(colon + 1, &end);
    if (!strchr("0123456789.", colon[1]) || !colon[1] || *end || !(choice->parameter > 0)
        || !(choice->parameter < facts->below))
        return CP_LOSS_BAD_PARAMETER;
    return CP_LOSS_READ;
}
