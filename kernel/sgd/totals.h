/* What an epoch adds up: loss, correct rows, and the sums that R^2 needs. */
#ifndef CP_SGD_TOTALS_H
#define CP_SGD_TOTALS_H

#include "sgd/state.h"

static inline double cp_bits_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Natural logarithm of a finite x >= 1, within 2 ulp, of basic operations only: every host gets the same bits. */
static inline double cp_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t power = (int64_t)(bits >> 52) - 1023;
    double m = cp_bits_double((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        power++;
    }
    double t = (m - 1) / (m + 1), u = t * t, sum = 0;
    for (int k = 21; k >= 3; k -= 2)
        sum = sum * u + 2.0 / k;
    return ((double)power * 1.90821492927058770002e-10 + t * u * sum)
           + (2 * t + (double)power * 0.693147180369123816490);
}

/* exp(x) within 2 ulp, likewise; infinite from 709 on, 0 below -708. */
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

/* Multiply what a row's loss is the logarithm of into the running product: one logarithm serves hundreds of rows, but for
 * those whose weight w is not 1. */
static inline void cp_add_log(cp_sgd_totals *t, double value, double w)
{
    if (w != 1) {
        t->loss += w * cp_log(value);
        return;
    }
    t->ln *= value;
    if (t->ln > 1e270) {
        t->loss += cp_log(t->ln);
        t->ln = 1;
    }
}

static inline double cp_sgd_loss(const cp_sgd *s) { return s->totals.loss + cp_log(s->totals.ln); }

#endif
