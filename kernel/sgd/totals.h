/* Running totals of an epoch: loss, correct rows, and the sums that R^2 needs. */
#pragma once

#include "sgd/state.h"

static inline double cp_bits_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Return the natural logarithm of a finite x >= 1, within 2 ulp. It uses basic operations only and no branch, so every
 * host gets the same bits and calls run in parallel. */
static inline double cp_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    double m = cp_bits_double((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
    double power = cp_bits_double(bits >> 52 | 0x4330000000000000ull) - (4503599627370496.0 + 1023);
    const int high = m > 1.4142135623730951;
    m = high ? m * 0.5 : m;
    power = high ? power + 1 : power;
    double t = (m - 1) / (m + 1), u = t * t, sum = 0;
    for (int k = 21; k >= 3; k -= 2)
        sum = sum * u + 2.0 / k;
    return (power * 1.90821492927058770002e-10 + t * u * sum) + (2 * t + power * 0.693147180369123816490);
}

/* Return exp(x) within 2 ulp, by basic operations only; infinite from 709 on, 0 below -708. */
static inline double cp_exp(double x)
{
    const double magic = 6755399441055744.0;
    if (!(x > -708) || x >= 709)
        return x > 0 ? INFINITY : x < 0 ? 0 : x;
    double n = (x * 1.44269504088896340736 + magic) - magic, sum = 1;
    double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    for (int k = 13; k >= 1; k--)
        sum = 1 + sum * r * (1.0 / k);
    return sum * cp_bits_double((uint64_t)((int64_t)n + 1023) << 52);
}

/* Return a class's log-odds from its score, so that probabilities are their softmax. One-vs-rest: the logarithm of the
 * class's own probability. */
static inline double cp_sgd_log_odds(enum cp_loss loss, double score)
{
    const double a = score < 0 ? -score : score;
    return cp_losses[loss].rest ? (score < 0 ? score : 0) - cp_log(1 + cp_exp(-a)) : score;
}

/* Multiply the running product by `value`, whose logarithm is the row's loss: one logarithm covers hundreds of rows.
 * With sample weights the value is stored until the end of the chunk. */
static inline void cp_add_log(cp_sgd_totals *t, double value, double w)
{
    if (t->odds) {
        *t->odds++ = value;
        *t->by++ = w;
        return;
    }
    t->ln *= value;
    if (t->ln > 1e270) {
        t->loss += cp_log(t->ln);
        t->ln = 1;
    }
}

/* Add the stored logarithms row by row, so that the sum does not depend on how rows are split into calls. */
static inline void cp_add_stored_logs(cp_sgd_totals *t, double *odds, const double *by)
{
    const int64_t n = t->odds - odds;
    for (int64_t i = 0; i < n; i++)
        odds[i] = cp_log(odds[i]);
    for (int64_t i = 0; i < n; i++)
        t->logs += by[i] * odds[i];
    t->odds = t->by = NULL;
}

static inline double cp_sgd_loss(const cp_sgd *s) { return (s->totals.loss + s->totals.logs) + cp_log(s->totals.ln); }
