/* Learning rate and results of an epoch, detection of divergence and of convergence. */
#pragma once

#include "sgd/totals.h"
#include <math.h>

/* Return the learning rate of an epoch, counted from 0. */
static inline double cp_sgd_rate(enum cp_step step, double rate, double decay, int64_t epoch)
{
    switch (cp_steps[step].fading) {
    case CP_BY_FACTOR: return rate * pow(decay, (double)epoch);
    case CP_BY_ROOT: return rate / sqrt(1 + (double)epoch);
    case CP_NEVER: break;
    }
    return rate;
}

typedef struct {
    int64_t rows;
    double loss, score;  /* mean loss; accuracy, or R^2 for numbers: weighted */
    double weight;       /* total sample weight */
} cp_figures;

static inline cp_figures cp_sgd_figures(const cp_sgd *s)
{
    const cp_sgd_totals *t = &s->totals;
    double weight = t->weight > 0 ? t->weight : 1, spread = t->square - t->sum * t->sum / weight;
    double score = t->correct / weight;
    if (cp_losses[s->loss].labels == CP_NUMBERS)
        score = spread > 0 ? 1 - t->squares / spread : t->squares == 0;
    return (cp_figures){t->rows, cp_sgd_loss(s) / weight, score, t->weight};
}

enum cp_verdict { CP_GO_ON, CP_ENOUGH, CP_LOSS_GROWS };

/* Return the verdict on the losses of all epochs so far. The loss diverges if the last one is NaN, infinite, or above
 * both the previous one and a thousand times the first. It has converged if it improved twice in a row by less than
 * this share of itself; a negative tolerance disables this. */
static inline int cp_verdict(const double *losses, int64_t count, double tolerance)
{
    const int64_t patience = 2;
    const double growth = 1000, last = losses[count - 1];
    if (last - last != 0
        || (count > 1 && losses[0] > 0 && last > losses[count - 2] && last > growth * losses[0]))
        return CP_LOSS_GROWS;
    if (tolerance < 0 || count <= patience)
        return CP_GO_ON;
    for (int64_t i = count - patience; i < count; i++) {
        double before = losses[i - 1];
        if (!(losses[i] > before - tolerance * (before < 0 ? -before : before)))
            return CP_GO_ON;
    }
    return CP_ENOUGH;
}

/* Return whether an epoch's mean loss is so far above that of zero weights that training diverged; the noise of large
 * steps stays below. A default learning rate is then reduced and training restarts, as after an overflow. */
static inline int cp_sgd_diverged(double loss, double untrained) { return loss > 1.1 * untrained; }

enum { CP_RATE_REDUCTION = 5 };
#define CP_MAX_LABEL_DISTANCE 30.0 /* distance of labels, in slopes, that the default rate covers in 3,000 rows */

/* Return the reduced learning rate; 0 if this one was the last to try. */
static inline double cp_sgd_reduced_rate(double rate) { return rate < 1e-12 ? 0 : rate / CP_RATE_REDUCTION; }

/* Return the factor of the default learning rate for labels far from 0. A bounded slope makes no longer steps for them,
 * and steps of 0.01 never reach prices of 200,000. The factor is twice a power of CP_RATE_REDUCTION: a reduced rate
 * then never equals the default, which would be raised again. `far`: the mean of log(1 + distance) over labels. */
static inline double cp_sgd_rate_factor(double far)
{
    double times = 2;
    if (!(far > cp_log(1 + CP_MAX_LABEL_DISTANCE)) || far - far != 0)
        return 1;
    /* At most half the distance: some hundred steps cover it; 1e300 ends the search. */
    while (times < 1e300 && cp_log(1 + 2 * times * CP_RATE_REDUCTION) < far)
        times *= CP_RATE_REDUCTION;
    return times;
}

/* Return the learning rate of a restart with a default rate: smaller if the epoch diverged, larger if the default is
 * small for the labels; 0 without a restart. `loss`: the epoch's mean loss; NaN if weights overflowed. */
static inline double cp_sgd_restart_rate(enum cp_step step, double rate, double loss, double untrained, double far)
{
    if (loss != loss || cp_sgd_diverged(loss, untrained))
        return cp_sgd_reduced_rate(rate);
    const double times = rate == cp_steps[step].usual && !cp_steps[step].fixed ? cp_sgd_rate_factor(far) : 1;
    return times > 1 ? rate * times : 0;
}

/* Return whether a regression on dense rows, with one default rate for all weights, has reached a plateau because of
 * its steps. At a constant rate the loss stays above the best by half the rate times the mean squared length of a row,
 * near the number of features, as a share of the label noise. Averaged weights are exempt: they settle, and long steps
 * help them. */
static inline int cp_sgd_has_plateaued(const cp_sgd *s, const double *losses, int64_t count)
{
    const double still = 1e-3, noise = 1e-3;
    if (count < 2 || s->averaged || s->sparse || s->rule != CP_SAME || cp_losses[s->loss].labels != CP_NUMBERS)
        return 0;
    return s->rate * (double)(s->features + 1) / 2 > noise && !(losses[count - 1] < (1 - still) * losses[count - 2]);
}
