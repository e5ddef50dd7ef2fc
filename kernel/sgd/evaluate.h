/* Measures rows by scores that are there already, as a visit at a rate of 0 does but for how scores are rounded: of several models
 * that score a row at once. */
#ifndef CP_SGD_JUDGE_H
#define CP_SGD_JUDGE_H

#include "sgd/epochs.h"
#include "sgd/sgd.h"

#define CP_JUDGED(kind, real) \
    do { \
        cp_point_type_##kind##_base told; \
        cp_formula_there_##kind##_base(&told, of.loss, cp_all_##kind##_base((real)score), cp_all_##kind##_base((real)y), \
                                       cp_all_##kind##_base(0), cp_all_##kind##_base((real)of.parameter)); \
        cp_count_there_##kind##_base(t, of.loss, &told, 0, y, w, of.parameter); \
    } while (0)

/* Count a row of a label y (of two classes -1 or 1), whose score is that of a model of reals of so many bytes, for its weight where
 * rows have some. Totals begin at 0, `ln` at 1. */
static inline void cp_judge_score(cp_loss_choice of, int bytes, double score, double y, const double *weight, cp_sgd_totals *t)
{
    double odds = 1, by = 0, w = weight ? *weight : 1;
    if (weight)
        t->odds = &odds, t->by = &by;
    if (bytes == 4)
        CP_JUDGED(f32, float);
    else
        CP_JUDGED(f64, double);
    if (weight)
        cp_add_noted(t, &odds, &by);
}

#undef CP_JUDGED

/* Return what totals amount to. */
static inline cp_figures cp_judge_figures(cp_loss_choice of, const cp_sgd_totals *t)
{
    const cp_sgd s = {.loss = of.loss, .totals = *t};
    return cp_sgd_figures(&s);
}

#endif
