/* Value, slope and curvature of a row's loss at its margin, in double, for Newton's method.
 *
 * The curvature of HUBER and QUANTILE blends two: `blend` 0 is the second derivative, 1 the curvature of the
 * parabola that touches the loss and lies above it, with which a step never increases the loss. */
#pragma once

#include "sgd/totals.h"

typedef struct { double value, slope, curve; } cp_newton_point;

/* Numbers that the formulas of a pass share: the loss's parameter, the blend, and the width of the parabola at the kink
 * of QUANTILE. */
typedef struct { double parameter, blend, width; } cp_newton_terms;

static inline int cp_newton_has(enum cp_loss loss)
{
    return loss == CP_LOGISTIC || loss == CP_SQUARED || loss == CP_SOFTMAX || loss == CP_HUBER || loss == CP_POISSON
           || loss == CP_QUANTILE || loss == CP_SQUARED_HINGE || loss == CP_LOGISTICS;
}

/* Return the natural logarithm of any positive number. */
static inline double cp_newton_log(double x) { return x >= 1 ? cp_log(x) : -cp_log(1 / x); }

/* Return exp(-a) for a >= 0, as cp_exp does, without a branch: rows are computed in vectors. */
static inline double cp_newton_exp_minus(double a)
{
    const double magic = 6755399441055744.0, x = a < 700 ? -a : -700;
    const double whole = x * 1.44269504088896340736 + magic, n = whole - magic;
    const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double sum = 1;
    uint64_t bits;
    for (int k = 13; k >= 1; k--)
        sum = 1 + sum * r * (1.0 / k);
    memcpy(&bits, &whole, sizeof bits);
    return sum * cp_bits_double((bits + 1023) << 52);
}

static inline cp_newton_point cp_newton_logistic(double ym, double y)
{
    const double e = cp_newton_exp_minus(ym > 0 ? ym : -ym), share = 1 / (1 + e), wrong = ym > 0 ? e * share : share;
    return (cp_newton_point){cp_log(1 + e) + (ym > 0 ? 0 : -ym), -y * wrong, e * share * share};
}

static inline cp_newton_point cp_newton_huber(double off, const cp_newton_terms *t)
{
    const double a = off < 0 ? -off : off, delta = t->parameter;
    if (a < delta)
        return (cp_newton_point){off * off / 2, off, 1};
    return (cp_newton_point){delta * (a - delta / 2), off < 0 ? -delta : delta, t->blend * (delta / a)};
}

/* QUANTILE with its kink replaced by a parabola of the same slopes at its ends (the Moreau envelope). */
static inline cp_newton_point cp_newton_quantile(double off, const cp_newton_terms *t)
{
    const double slope = off < 0 ? -t->parameter : 1 - t->parameter, a = off < 0 ? -off : off;
    if (off / slope < t->width)
        return (cp_newton_point){off * off / (2 * t->width), off / t->width, 1 / t->width};
    return (cp_newton_point){slope * (off - slope * t->width / 2), slope, t->blend / (2 * a)};
}

static inline cp_newton_point cp_newton_poisson(double m, double y)
{
    const double mean = cp_exp(m < 700 ? m : 700), own = y > 0 ? y * cp_newton_log(y) - y : 0;
    return (cp_newton_point){(mean - y * m) + own, mean - y, mean};
}

/* Return the point of a loss of one margin; `y` is -1 or 1, or the target. */
static inline cp_newton_point cp_newton_at(enum cp_loss loss, double m, double y, const cp_newton_terms *t)
{
    const double off = m - y, lack = 1 - y * m;
    if (loss == CP_LOGISTIC || loss == CP_LOGISTICS)
        return cp_newton_logistic(y * m, y);
    if (loss == CP_SQUARED_HINGE)
        return lack > 0 ? (cp_newton_point){lack * lack, -2 * y * lack, 2} : (cp_newton_point){0, 0, 0};
    if (loss == CP_HUBER)
        return cp_newton_huber(off, t);
    if (loss == CP_QUANTILE)
        return cp_newton_quantile(off, t);
    if (loss == CP_POISSON)
        return cp_newton_poisson(m, y);
    return (cp_newton_point){off * off / 2, off, 1};
}

/* Return slope and curvature for the step from weights of zero, whose own curvature may be no guide: HUBER and
 * QUANTILE start as least squares, POISSON from means near the labels, as in R's glm. */
static inline cp_newton_point cp_newton_start(enum cp_loss loss, cp_newton_point at, double m, double y)
{
    const double mean = y + 0.1;
    if (cp_losses[loss].bounded)
        return (cp_newton_point){at.value, m - y, 1};
    if (loss == CP_POISSON)
        return (cp_newton_point){at.value, mean * (m - cp_newton_log(mean)) + 0.1, mean};
    return at;
}
