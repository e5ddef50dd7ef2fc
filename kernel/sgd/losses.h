/* The losses: a line each, and a formula each in sgd/loss.h. All else asks this table: the kernel for its code, Python
 * and SQL for names, rules of labels, parameters, scores and what is predicted.
 *
 *     MARGIN(id, code, facts...)   a loss of one margin; `code` is the copy of the learner it runs in: one of its own,
 *                                  or ANY, which asks for the formula row by row and costs no more machine code
 *     SCORES(id, facts...)         a loss of one score a class
 *
 * Where two lines have one name, the first takes two classes and the other any number. No switch over losses has a
 * default: one without a formula does not compile. */
#ifndef CP_LOSSES_H
#define CP_LOSSES_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CP_LOSSES(MARGIN, SCORES) \
    MARGIN(LOGISTIC, LOGISTIC, .name = "logistic", .labels = CP_TWO_CLASSES, .probability = 1) \
    MARGIN(HINGE, HINGE, .name = "svm", .labels = CP_TWO_CLASSES) \
    MARGIN(SQUARED, SQUARED, .name = "linear", .labels = CP_NUMBERS, .of_mean = 1) \
    SCORES(SOFTMAX, .name = "softmax", .labels = CP_CLASSES, .probability = 1) \
    SCORES(HINGES, .name = "svm", .labels = CP_CLASSES, .rest = 1, .one = CP_HINGE) \
    MARGIN(HUBER, ANY, .name = "huber", .labels = CP_NUMBERS, .bounded = 1, .parameter = "delta", .usual = 1, .below = INFINITY) \
    MARGIN(SQUARED_HINGE, ANY, .name = "squared_hinge", .labels = CP_TWO_CLASSES) \
    MARGIN(POISSON, ANY, .name = "poisson", .labels = CP_NUMBERS, .exponential = 1, .not_negative = 1, .of_mean = 1) \
    MARGIN(QUANTILE, ANY, .name = "quantile", .labels = CP_NUMBERS, .bounded = 1, .parameter = "tau", .usual = 0.5, .below = 1) \
    SCORES(LOGISTICS, .name = "ovr_logistic", .labels = CP_CLASSES, .probability = 1, .rest = 1, .one = CP_LOGISTIC)

/* The copies of the learner that are made for one loss; the code of all others is ANY. */
#define CP_COPIES(COPY) COPY(LOGISTIC) COPY(HINGE) COPY(SQUARED)

#define CP_LOSS_ID(id, ...) CP_##id,
enum cp_loss { CP_LOSSES(CP_LOSS_ID, CP_LOSS_ID) };
#undef CP_LOSS_ID

#define CP_LOSS_ONE(...) +1
enum { CP_LOSS_COUNT = CP_LOSSES(CP_LOSS_ONE, CP_LOSS_ONE), CP_MOST_CLASSES = 1 << 16 };
#undef CP_LOSS_ONE

enum cp_labels {
    CP_TWO_CLASSES, /* told apart by the sign of one score */
    CP_CLASSES,     /* of any number, a score each: of SCORES, and of no other */
    CP_NUMBERS      /* to be predicted */
};

typedef struct {
    const char *name;             /* as users give it */
    enum cp_labels labels;
    int probability;              /* scores make probabilities, and the loss is minus the logarithm of one, but for `rest` */
    int rest;                     /* each class against the rest: the loss is the sum of those of one score a class, */
    enum cp_loss one;             /* by this loss of two classes */
    int exponential;              /* predicts exp(score), not the score */
    int not_negative;             /* takes labels of 0 and more only */
    int of_mean;                  /* the best constant is the mean of the labels: R^2 says whether it was beaten */
    int bounded;                  /* slopes are the parameter at most, or what is left of 1, however far off a score is */
    const char *parameter;        /* its name, or NULL */
    double usual, below;          /* parameter: its default; it lies above 0 and below this */
} cp_loss_facts;

#define CP_LOSS_FACTS(id, code, ...) [CP_##id] = {__VA_ARGS__},
#define CP_LOSS_FACTS_OF_SCORES(id, ...) [CP_##id] = {__VA_ARGS__},
static const cp_loss_facts cp_losses[CP_LOSS_COUNT] = {CP_LOSSES(CP_LOSS_FACTS, CP_LOSS_FACTS_OF_SCORES)};
#undef CP_LOSS_FACTS
#undef CP_LOSS_FACTS_OF_SCORES

/* Return whether a loss has an output a class. */
static inline int cp_loss_per_class(enum cp_loss loss) { return cp_losses[loss].labels == CP_CLASSES; }

static inline const char *cp_loss_score(enum cp_loss loss)
{
    return cp_losses[loss].labels == CP_NUMBERS ? "r2" : "accuracy";
}

/* Return the most classes that the losses of a name take; 0 where they take numbers. */
static inline int64_t cp_loss_most_classes(const char *name)
{
    int64_t most = 0;
    for (int i = 0; i < CP_LOSS_COUNT; i++)
        if (strcmp(cp_losses[i].name, name) == 0 && cp_losses[i].labels != CP_NUMBERS)
            most = cp_losses[i].labels == CP_CLASSES ? CP_MOST_CLASSES : most > 2 ? most : 2;
    return most;
}

typedef struct {
    enum cp_loss loss;
    double parameter;
} cp_loss_choice;

/* Return how far a label is from 0, of which weights of zero lose so much by a bounded loss, in slopes: in that by which scores get
 * there, of quantile one upwards and another one downwards, and half in the steepest, by which they overshoot. */
static inline double cp_loss_far(cp_loss_choice of, double label, double lost)
{
    const double other = cp_losses[of.loss].below <= 1 ? 1 - of.parameter : of.parameter;
    const double slope = label < 0 ? other : of.parameter, most = other > of.parameter ? other : of.parameter;
    return lost / (slope * sqrt(slope * most));
}

enum cp_loss_reading {
    CP_LOSS_READ,
    CP_LOSS_UNKNOWN,
    CP_LOSS_TAKES_NONE,           /* a parameter was given; it has none */
    CP_LOSS_BAD_PARAMETER         /* no number, or out of bounds */
};

/* Read what users say for a loss of so many classes: a name, and where it has a parameter perhaps a colon and its value,
 * as in "quantile:0.9". Where the name is known, so is choice->loss. */
static inline enum cp_loss_reading cp_loss_read(const char *said, int64_t classes, cp_loss_choice *choice)
{
    const char *colon = strchr(said, ':');
    size_t length = colon ? (size_t)(colon - said) : strlen(said);
    const cp_loss_facts *facts = NULL;
    char *end;
    for (int i = CP_LOSS_COUNT - 1; i >= 0; i--)
        if (strlen(cp_losses[i].name) == length && memcmp(cp_losses[i].name, said, length) == 0
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

#endif
