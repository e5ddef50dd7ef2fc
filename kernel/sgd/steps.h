/* The table of step rules: one line each. The kernel, Python and SQL read names and default learning rates from it.
 *
 *     STEP(id, facts...)   `rule`: how a gradient moves a weight; sgd/rules.h has one formula for each */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define CP_STEPS(STEP) \
    STEP(CONSTANT, .name = "constant", .usual = 0.01) \
    STEP(DECAY, .name = "decay", .usual = 0.01, .fading = CP_BY_FACTOR) \
    STEP(INVERSE, .name = "inverse", .usual = 0.01, .fading = CP_BY_ROOT) \
    STEP(ADAGRAD, .name = "adagrad", .usual = 0.3, .rule = CP_ADAPTIVE) \
    STEP(ADAM, .name = "adam", .usual = 0.001, .rule = CP_MOMENTS) \
    STEP(NORMALIZED, .name = "normalized", .usual = 0.5, .rule = CP_NORMALIZED) \
    STEP(AUTO, .name = "auto", .usual = 1, .dense = 4, .rule = CP_NORMALIZED, .fixed = 1, .averages = 1)

#define CP_STEP_ID(id, ...) CP_STEP_##id,
enum cp_step { CP_STEPS(CP_STEP_ID) CP_STEP_COUNT };
#undef CP_STEP_ID

/* Learning-rate schedules across epochs. */
enum cp_fading { CP_NEVER, CP_BY_FACTOR, CP_BY_ROOT };

/* CP_SAME: one learning rate for all weights. CP_ADAPTIVE: one per weight, from its squared gradients. CP_NORMALIZED:
 * the same, and from the scale of the feature. CP_MOMENTS: from running means of gradients and squared gradients. */
enum cp_rule { CP_SAME, CP_ADAPTIVE, CP_NORMALIZED, CP_MOMENTS };

/* Adam: decay rates of both means, and the constant that keeps the root of the second above 0. */
#define CP_ADAM_B1 0.9
#define CP_ADAM_B2 0.999
#define CP_ADAM_ROOT 0.03162277660168379 /* sqrt(1 - b2) */
#define CP_ADAM_E 1e-8

#define CP_STEP_NARROW_FEATURES 25.0 /* features up to which rows count as narrow */
#define CP_STEP_LONG_ROWS 30.0       /* rows per weight above which steps grow */
#define CP_STEP_CLASS_ROWS 2.0       /* rows per weight above which steps grow with the number of classes */
#define CP_STEP_MIN_CLASSES 10
#define CP_STEP_PRIOR_WEIGHTS 64.0    /* weights added to the count: with few rows the first steps go most of the way */

typedef struct {
    const char *name;               /* name in the public API */
    double usual;                   /* default learning rate of the first epoch */
    double dense;                   /* factor of that rate for narrow dense rows, halved for wide ones; 0: none. With
                                     * many rows it doubles at most from the second epoch on, and grows further with the
                                     * number of classes */
    enum cp_fading fading;
    enum cp_rule rule;
    int fixed;                      /* the learning rate cannot be set */
    int averages;                   /* the averaged weights predict, even if averaging is not requested */
} cp_step_facts;

#define CP_STEP_FACTS(id, ...) [CP_STEP_##id] = {__VA_ARGS__},
static const cp_step_facts cp_steps[CP_STEP_COUNT] = {CP_STEPS(CP_STEP_FACTS)};
#undef CP_STEP_FACTS

/* Return the factor of a step's default learning rate for rows of this many features: the moves of a row add up over
 * features. */
static inline double cp_step_times(enum cp_step step, int64_t features)
{
    const double most = cp_steps[step].dense, times = most * sqrt(CP_STEP_NARROW_FEATURES / (double)features);
    return most == 0 ? 1 : times < most / 2 ? most / 2 : times < most ? times : most;
}

/* Return the growth of steps with the number of classes, given rows per weight. With many classes few
 * rows belong to each, and the combined move of a class's weights is a power of their number. With few rows per
 * weight, longer steps would overfit. */
static inline double cp_step_of_classes(int64_t outputs, double density)
{
    const double sure = density < CP_STEP_CLASS_ROWS ? 0
                        : density < 2 * CP_STEP_CLASS_ROWS ? density / CP_STEP_CLASS_ROWS - 1 : 1;
    /* times the root of its root: a power of 5/8, the same bits on every machine */
    const double root = sqrt((double)outputs / CP_STEP_MIN_CLASSES);
    return outputs > CP_STEP_MIN_CLASSES ? 1 + (root * sqrt(sqrt(root)) - 1) * sure : 1;
}

/* Return the factor of the learning rate after the first epoch. Long steps mislead the first epoch. Later they help if
 * features are correlated, and do no harm if there are many rows per weight (rows 0: unknown), growing with the square
 * of rows per weight. */
static inline double cp_step_later(enum cp_step step, int64_t features, int64_t outputs, int64_t rows)
{
    const double most = cp_steps[step].dense,
                 density = (double)rows / ((double)(features * outputs) + CP_STEP_PRIOR_WEIGHTS);
    const double times = cp_step_times(step, features) * (most > 0 ? cp_step_of_classes(outputs, density) : 1);
    const double longer = most * (density / CP_STEP_LONG_ROWS) * (density / CP_STEP_LONG_ROWS);
    return longer < times ? times : longer < 2 * most ? longer : times < 2 * most ? 2 * most : times;
}

/* Return the step with this name, or -1. */
static inline int cp_step_named(const char *name)
{
    for (int i = 0; i < CP_STEP_COUNT; i++)
        if (strcmp(cp_steps[i].name, name) == 0)
            return i;
    return -1;
}
