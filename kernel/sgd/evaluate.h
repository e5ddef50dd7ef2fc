/* Evaluates rows from existing scores, for several models that score a row at once. Results equal those of a visit at
 * rate 0, except for the rounding of scores. */
#pragma once

#include "sgd/epochs.h"
#include "sgd/sgd.h"

/* Add a row with label y (for two classes -1 or 1) to the totals. The score is that of a model with reals of `bytes`
 * bytes; `weight` may be NULL. Totals start as zeros, `ln` as 1. */
static inline void cp_evaluate_score(cp_loss_choice of, int bytes, double score, double y, const double *weight,
                                  cp_sgd_totals *t)
{
    double odds = 1, by = 0, w = weight ? *weight : 1;
    if (weight)
        t->odds = &odds, t->by = &by;
    if (bytes == 4)
        cp_slope_f32_quad(t, of.loss, cp_all_f32_quad((float)score), cp_all_f32_quad(0), y, w, of.parameter);
    else
        cp_slope_f64_quad(t, of.loss, cp_all_f64_quad(score), cp_all_f64_quad(0), y, w, of.parameter);
    if (weight)
        cp_add_stored_logs(t, &odds, &by);
}

/* Return the means of totals. */
static inline cp_figures cp_evaluate_figures(cp_loss_choice of, const cp_sgd_totals *t)
{
    const cp_sgd s = {.loss = of.loss, .totals = *t};
    return cp_sgd_figures(&s);
}
