/* The rate of an epoch, what its totals amount to, whether it diverged, and whether another one follows. */
#ifndef CP_EPOCHS_H
#define CP_EPOCHS_H

#include "sgd/totals.h"
#include <math.h>

/* The learning rate of an epoch, counted from 0. */
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
    double loss, score;  /* mean loss; accuracy, or R^2 of numbers: by what rows count for */
    double weight;       /* what all of them count for */
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

/* Judge by the losses of all epochs so far. They grow without bound where the last one is NaN, infinite, or above the
 * one before and a thousand times the first. They are enough where the loss improved twice in a row by less than this
 * share of it; a negative tolerance is never enough. */
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

/* Whether the mean loss of an epoch is so far above that of weights of zero that it diverged: noise of a large step stays
 * below. Where nobody chose the rate the epoch is begun again, from nothing, at a smaller one then, as where weights overflow. */
static inline int cp_adrift(double loss, double untrained) { return loss > 1.1 * untrained; }

enum { CP_LOWER = 5 };
#define CP_LABELS_FAR 30.0 /* how far off labels may be, in slopes: the usual rate gets there in 3,000 rows */

/* The rate to go on at; 0 where this one is the last to be tried. */
static inline double cp_sgd_lowered(double rate) { return rate < 1e-12 ? 0 : rate / CP_LOWER; }

/* How many times the usual rate labels want that are far from 0: a step of bounded slope is no longer for them, and prices of
 * 200,000 are out of reach of steps of 0.01. Twice a power of what lowers it: one that is lowered is never the usual rate again, which
 * would be raised. `far`: the mean of log(1 + far) of labels. */
static inline double cp_sgd_stretch(double far)
{
    double times = 2;
    if (!(far > cp_log(1 + CP_LABELS_FAR)) || far - far != 0)
        return 1;
    while (times < 1e300 && cp_log(1 + 2 * times * CP_LOWER) < far) /* half as far at most: some hundred steps get there */
        times *= CP_LOWER;
    return times;
}

/* The rate at which an epoch is begun again, from nothing, where nobody chose it: a smaller one where it diverged, a larger one
 * where the usual one is small for the labels. 0 where it is not. `loss`: its mean loss; NaN where weights overflowed. */
static inline double cp_sgd_again(enum cp_step step, double rate, double loss, double untrained, double far)
{
    if (loss != loss || cp_adrift(loss, untrained))
        return cp_sgd_lowered(rate);
    const double times = rate == cp_steps[step].usual && !cp_steps[step].fixed ? cp_sgd_stretch(far) : 1;
    return times > 1 ? rate * times : 0;
}

/* Whether a regression on dense rows, of one rate for all weights that nobody chose, goes on at a smaller one: it stands still,
 * and its steps are to blame. Steps of a constant rate end as far from the best weights as the labels are noisy: the loss stays
 * above the best by a share of half the rate times the mean squared length of a row, which is near the number of features. The
 * mean of weights rests, and long steps serve it. */
static inline int cp_sgd_rests(const cp_sgd *s, const double *losses, int64_t count)
{
    const double still = 1e-3, noise = 1e-3;
    if (count < 2 || s->averaged || s->sparse || s->rule != CP_SAME || cp_losses[s->loss].labels != CP_NUMBERS)
        return 0;
    return s->rate * (double)(s->features + 1) / 2 > noise && !(losses[count - 1] < (1 - still) * losses[count - 2]);
}

#endif
