/* Loss of the best constant predictor and of zero weights, the baselines that show whether a model learnt anything. */
#pragma once

#include "sgd/formulas.h"

/* Labels as a loss of one margin takes them, and their weights, which may be NULL. */
typedef struct {
    cp_loss_choice of;
    const double *y, *weight;
    int64_t count;
} cp_labelled;

CP_INLINE double cp_mean_loss_of(const cp_labelled *rows, double margin, const enum cp_loss loss)
{
    const double parameter = rows->of.parameter;
    const cp_quad_type_f64_quad m = {margin, margin}, p = {parameter, parameter};
    double sum = 0, total = 0;
    for (int64_t i = 0; i < rows->count; i++) {
        const double weight = rows->weight ? rows->weight[i] : 1;
        const cp_quad_type_f64_quad y = {rows->y[i], rows->y[i]};
        cp_sgd_totals t = {.ln = 1};
        cp_point_type_f64_quad at = cp_formula_f64_quad(loss, m, y, m, p);
        cp_count_f64_quad(&t, loss, &at, 0, rows->y[i], 1, parameter);
        sum += weight * (t.loss + cp_log(t.ln));
        total += weight;
    }
    return total > 0 ? sum / total : 0;
}

/* Dispatches to a function with the loss as a compile-time constant, so that most of it is folded away. */
#define CP_MEAN_LOSS(id, ...) case CP_##id: return cp_mean_loss_of(rows, margin, CP_##id);
#define CP_ADD_ROWS(id, ...) case CP_##id: cp_untrained_rows(to, rows, visit, CP_##id); break;
#define CP_OF_SCORES(id, ...) case CP_##id: break;

/* Return the mean loss if all rows have this margin. */
static inline double cp_mean_loss(const cp_labelled *rows, double margin)
{
    switch (rows->of.loss) { CP_LOSSES(CP_MEAN_LOSS, CP_OF_SCORES) }
    return 0;
}

/* Return the mean loss of the best constant margin. All losses are convex: the minimum is bracketed, then found by
 * golden-section search. */
static inline double cp_least_loss(const cp_labelled *rows)
{
    const double golden = 0.6180339887498949, most = 1e300;
    double low = -1, high = 1;
    while (high < most && cp_mean_loss(rows, 2 * high) < cp_mean_loss(rows, high))
        high *= 2;
    while (low > -most && cp_mean_loss(rows, 2 * low) < cp_mean_loss(rows, low))
        low *= 2;
    low *= 2;
    high *= 2;
    double a = high - golden * (high - low);
    double b = low + golden * (high - low);
    double at_a = cp_mean_loss(rows, a);
    double at_b = cp_mean_loss(rows, b);
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

/* Return the loss of the best constant predictor from the shares of the classes: their entropy, or the loss of the best
 * margin; one-vs-rest losses sum over classes. */
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

/* Return the loss of zero weights on this many classes. */
static inline double cp_zero_loss_of_classes(cp_loss_choice of, int64_t classes)
{
    const cp_loss_facts *facts = &cp_losses[of.loss];
    const double side = 1;
    if (facts->probability && !facts->rest)
        return log((double)(classes > 1 ? classes : 1));
    of.loss = facts->rest ? facts->one : of.loss;
    return cp_mean_loss(&(cp_labelled){of, &side, NULL, 1}, 0) * (double)(facts->rest ? classes : 1);
}

/* Loss of zero weights on numeric labels: a weighted sum over rows, and the total weight. For bounded losses also the
 * weighted sum of log(1 + distance) of labels, which a few outliers change little. */
typedef struct {
    double loss, weight, far;
} cp_untrained;

CP_INLINE void cp_untrained_rows(cp_untrained *to, const cp_labelled *rows, const int32_t *visit,
                                 const enum cp_loss loss)
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
            to->far += weight * cp_log(1 + cp_loss_distance(rows->of, y, lost));
    }
}

/* Add rows in visiting order; visit and weight may be NULL. Rows that no model can learn from are skipped. */
static inline void cp_untrained_add(cp_untrained *to, const cp_labelled *rows, const int32_t *visit)
{
    switch (rows->of.loss) { CP_LOSSES(CP_ADD_ROWS, CP_OF_SCORES) }
}

/* Return the mean loss of zero weights: on this many classes, or on the numbers added. */
static inline double cp_untrained_loss(const cp_untrained *of, cp_loss_choice choice, int64_t classes)
{
    if (cp_losses[choice.loss].labels != CP_NUMBERS)
        return cp_zero_loss_of_classes(choice, classes);
    return of->weight > 0 ? of->loss / of->weight : 0;
}

/* Return the mean of log(1 + distance) of labels. */
static inline double cp_untrained_distance(const cp_untrained *of) { return of->weight > 0 ? of->far / of->weight : 0; }
