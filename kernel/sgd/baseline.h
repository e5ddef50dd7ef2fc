/* What a model loses that says the same of every row: it tells whether another one has learnt anything. */
#ifndef CP_SGD_CONSTANT_H
#define CP_SGD_CONSTANT_H

#include "sgd/sgd.h"

/* Labels as a loss of one margin takes them, and how much each counts for; weight may be NULL. */
typedef struct {
    cp_loss_choice of;
    const double *y, *weight;
    int64_t count;
} cp_labelled;

CP_INLINE double cp_mean_loss_of(const cp_labelled *rows, double margin, const enum cp_loss loss)
{
    const double parameter = rows->of.parameter;
    const cp_quad_type_f64_base m = {margin, margin}, p = {parameter, parameter};
    double sum = 0, total = 0;
    for (int64_t i = 0; i < rows->count; i++) {
        const double weight = rows->weight ? rows->weight[i] : 1;
        const cp_quad_type_f64_base y = {rows->y[i], rows->y[i]};
        cp_sgd_totals t = {.ln = 1};
        cp_point_type_f64_base at = cp_formula_f64_base(loss, m, y, m, p);
        cp_count_f64_base(&t, loss, &at, 0, rows->y[i], 1, parameter);
        sum += weight * (t.loss + cp_log(t.ln));
        total += weight;
    }
    return total > 0 ? sum / total : 0;
}

/* A function of one loss, which is a constant there: most of it is folded away. */
#define CP_MEAN_LOSS(id, ...) case CP_##id: return cp_mean_loss_of(rows, margin, CP_##id);
#define CP_ADD_ROWS(id, ...) case CP_##id: cp_untrained_rows(to, rows, visit, CP_##id); break;
#define CP_OF_SCORES(id, ...) case CP_##id: break;

/* Return the mean loss of one margin for all rows. */
static inline double cp_mean_loss(const cp_labelled *rows, double margin)
{
    switch (rows->of.loss) { CP_LOSSES(CP_MEAN_LOSS, CP_OF_SCORES) }
    return 0;
}

/* Return the mean loss of the best margin. All losses are convex: golden section finds it, once it lies between two. */
static inline double cp_least_loss(const cp_labelled *rows)
{
    const double golden = 0.6180339887498949, most = 1e300;
    double low = -1, high = 1, a, b, at_a, at_b;
    while (high < most && cp_mean_loss(rows, 2 * high) < cp_mean_loss(rows, high))
        high *= 2;
    while (low > -most && cp_mean_loss(rows, 2 * low) < cp_mean_loss(rows, low))
        low *= 2;
    low *= 2;
    high *= 2;
    a = high - golden * (high - low);
    b = low + golden * (high - low);
    at_a = cp_mean_loss(rows, a);
    at_b = cp_mean_loss(rows, b);
    for (int step = 0; step < 80; step++)
        if (at_a <= at_b) {
            high = b;
            b = a;
            at_b = at_a;
            a = high - golden * (high - low);
            at_a = cp_mean_loss(rows, a);
        } else {
            low = a;
            a = b;
            at_a = at_b;
            b = low + golden * (high - low);
            at_b = cp_mean_loss(rows, b);
        }
    return at_a < at_b ? at_a : at_b;
}

/* Return the loss of the best constant by the shares of the classes: their entropy, or that of the best margin. Where
 * it is each class against the rest it is the sum over them. */
static inline double cp_least_loss_of_classes(cp_loss_choice of, const double *share, int64_t classes)
{
    const cp_loss_facts *facts = &cp_losses[of.loss];
    const double sides[] = {1, -1};
    double sum = 0;
    if (facts->probability && !facts->rest) {
        for (int64_t k = 0; k < classes; k++)
            sum -= share[k] > 0 ? share[k] * log(share[k]) : 0;
        return sum;
    }
    of.loss = facts->rest ? facts->one : of.loss;
    for (int64_t k = facts->rest ? 0 : 1; k < classes; k++) {
        const double weight[] = {share[k], 1 - share[k]};
        sum += cp_least_loss(&(cp_labelled){of, sides, weight, 2});
    }
    return sum;
}

/* Return the loss of weights of zero on so many classes. */
static inline double cp_zero_loss_of_classes(cp_loss_choice of, int64_t classes)
{
    const cp_loss_facts *facts = &cp_losses[of.loss];
    const double side = 1;
    if (facts->probability && !facts->rest)
        return log((double)(classes > 1 ? classes : 1));
    of.loss = facts->rest ? facts->one : of.loss;
    return cp_mean_loss(&(cp_labelled){of, &side, NULL, 1}, 0) * (double)(facts->rest ? classes : 1);
}

/* What weights of zero lose on labels that are numbers: a sum over rows, and what these count for; of bounded losses also how far
 * off labels are: sums of log(1 + far), to which a few that lie far out add little. */
typedef struct {
    double loss, weight, far;
} cp_untrained;

CP_INLINE void cp_untrained_rows(cp_untrained *to, const cp_labelled *rows, const int32_t *visit, const enum cp_loss loss)
{
    const int not_negative = cp_losses[loss].not_negative;
    for (int64_t i = 0; i < rows->count; i++) {
        const int64_t at = visit ? visit[i] : i;
        const double y = rows->y[at], weight = rows->weight ? rows->weight[at] : 1;
        if (y - y != 0 || (not_negative && y < 0) || !(weight >= 0 && weight - weight == 0))
            continue;
        const double lost = cp_mean_loss_of(&(cp_labelled){rows->of, &y, NULL, 1}, 0, loss);
        to->loss += weight * lost;
        to->weight += weight;
        if (cp_losses[loss].bounded)
            to->far += weight * cp_log(1 + cp_loss_far(rows->of, y, lost));
    }
}

/* Add rows in the order of their visits; visit and weight may be NULL. Those that no model can learn from are passed over. */
static inline void cp_untrained_add(cp_untrained *to, const cp_labelled *rows, const int32_t *visit)
{
    switch (rows->of.loss) { CP_LOSSES(CP_ADD_ROWS, CP_OF_SCORES) }
}

/* Return the mean loss of weights of zero: on so many classes, or on the numbers that were added. */
static inline double cp_untrained_loss(const cp_untrained *of, cp_loss_choice choice, int64_t classes)
{
    if (cp_losses[choice.loss].labels != CP_NUMBERS)
        return cp_zero_loss_of_classes(choice, classes);
    return of->weight > 0 ? of->loss / of->weight : 0;
}

/* Return the mean of log(1 + far). */
static inline double cp_untrained_far(const cp_untrained *of) { return of->weight > 0 ? of->far / of->weight : 0; }

#endif
