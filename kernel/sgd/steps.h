/* The steps: a line each. All else asks this table: the kernel for its code, Python and SQL for names and usual rates.
 *
 *     STEP(id, facts...)   `rule`: how a gradient moves a weight, a formula each in sgd/rules.h */
#ifndef CP_STEPS_H
#define CP_STEPS_H

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

/* How the rate changes from epoch to epoch. */
enum cp_fading { CP_NEVER, CP_BY_FACTOR, CP_BY_ROOT };

/* The same rate for all weights; one for each, by the squares of its gradients; that and by the size of its feature; by means
 * of its latest gradients and of their squares. */
enum cp_rule { CP_SAME, CP_ADAPTIVE, CP_NORMALIZED, CP_MOMENTS };

/* How fast both means forget, and what keeps the root of the second one from 0. */
#define CP_ADAM_B1 0.9
#define CP_ADAM_B2 0.999
#define CP_ADAM_ROOT 0.03162277660168379 /* of 1 - b2 */
#define CP_ADAM_E 1e-8

#define CP_STEP_NARROW 25.0 /* features */
#define CP_STEP_MANY 30.0   /* rows a weight, of which more let steps be longer */
#define CP_STEP_LEAST 2.0   /* the same, of which more let them be longer where classes are more than 10 */
#define CP_STEP_CLASSES 10
#define CP_STEP_FEW 64.0    /* weights that are counted beside: of few rows the first steps are most of the way */

typedef struct {
    const char *name;               /* as users give it */
    double usual;                   /* rate of the first epoch, if nobody says another */
    double dense;                   /* times that rate where rows are dense and narrow, half as many where they are wide; 0: once;
                                     * where rows are many up to twice as many from the second epoch on, and more where classes are many, too */
    enum cp_fading fading;
    enum cp_rule rule;
    int fixed;                      /* the rate is not to be chosen */
    int averages;                   /* the mean of the weights on their way predicts, whether that is asked for or not */
} cp_step_facts;

#define CP_STEP_FACTS(id, ...) [CP_STEP_##id] = {__VA_ARGS__},
static const cp_step_facts cp_steps[CP_STEP_COUNT] = {CP_STEPS(CP_STEP_FACTS)};
#undef CP_STEP_FACTS

/* Return how many times its usual rate a step has where rows have so many features: a row's moves add up over them. */
static inline double cp_step_times(enum cp_step step, int64_t features)
{
    const double most = cp_steps[step].dense, times = most * sqrt(CP_STEP_NARROW / (double)features);
    return most == 0 ? 1 : times < most / 2 ? most / 2 : times < most ? times : most;
}

/* Return how many times longer steps are where classes are many, each of which few rows are of: what its weights have come
 * together to is a power of how many. Of few rows a weight they would learn them by heart. */
static inline double cp_step_of_classes(int64_t outputs, double each)
{
    const double sure = each < CP_STEP_LEAST ? 0 : each < 2 * CP_STEP_LEAST ? each / CP_STEP_LEAST - 1 : 1;
    const double root = sqrt((double)outputs / CP_STEP_CLASSES); /* and its square root's root: a power of 5/8, alike on all machines */
    return outputs > CP_STEP_CLASSES ? 1 + (root * sqrt(sqrt(root)) - 1) * sure : 1;
}

/* Return the same after the first epoch, in which long steps only lead astray. Where features are correlated they get
 * further, and where rows are many for the weights that are learnt from them (0: it is not known how many there are) they
 * do no harm: they grow with the square of rows a weight. */
static inline double cp_step_later(enum cp_step step, int64_t features, int64_t outputs, int64_t rows)
{
    const double most = cp_steps[step].dense, each = (double)rows / ((double)(features * outputs) + CP_STEP_FEW);
    const double times = cp_step_times(step, features) * (most > 0 ? cp_step_of_classes(outputs, each) : 1);
    const double longer = most * (each / CP_STEP_MANY) * (each / CP_STEP_MANY);
    return longer < times ? times : longer < 2 * most ? longer : times < 2 * most ? 2 * most : times;
}

/* Return the step of a name, -1 if there is none. */
static inline int cp_step_named(const char *name)
{
    for (int i = 0; i < CP_STEP_COUNT; i++)
        if (strcmp(cp_steps[i].name, name) == 0)
            return i;
    return -1;
}

#endif
