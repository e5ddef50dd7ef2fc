/* Template: the formulas of the losses of one margin m. `y` is -1 or 1, or the target; a margin of 0 counts as -1.
 *
 * Each has two functions: CP(ID) makes step * derivative by m, for a few rows at a time, and what the value needs;
 * CP(ID_value) adds the value of one of them to the totals. Those of one score a class are in sgd/softmax.h.
 *
 * | loss          | value                                   | derivative by the margin m               |
 * |---------------|-----------------------------------------|------------------------------------------|
 * | LOGISTIC      | log(1 + exp(-ym))                       | -y / (1 + exp(ym))                       |
 * | HINGE         | max(0, 1 - ym)                          | -y where ym < 1, else 0 (also at ym = 1) |
 * | SQUARED       | (m - y)^2 / 2                           | m - y                                    |
 * | HUBER         | the same where |m - y| < delta,         | m - y, in size at most delta             |
 * |               | else delta (|m - y| - delta / 2)        |                                          |
 * | SQUARED_HINGE | max(0, 1 - ym)^2                        | -2y max(0, 1 - ym)                       |
 * | POISSON       | exp(m) - ym + y log(y) - y, which is    | exp(m) - y                               |
 * |               | half the deviance                       |                                          |
 * | QUANTILE      | tau (y - m) where m < y,                | -tau where m < y, 1 - tau where m > y,   |
 * |               | else (1 - tau)(m - y)                   | 0 at m = y                               |
 */

#include "sgd/vector.h"

/* `off`: the prediction less the target, of numbers; `wrong`: the sign of m is, of classes. */
typedef struct { quad slope, loss, e, off; mask wrong; } CP(point_type);
#define point CP(point_type)

CP_INLINE mask CP(is_wrong)(quad m, quad y) { return (mask)(m > 0) ^ (mask)(y > 0); }

CP_INLINE point CP(LOGISTIC)(quad m, quad y, quad step, quad unused)
{
    quad a = CP(absolute)(m), e = CP(exp_minus)(a);
    mask wrong = CP(is_wrong)(m, y);
    (void)unused;
    return (point){.slope = (CP(select)(wrong, CP(all)(1), e) * (-y * step)) / (1 + e), .e = e, .wrong = wrong,
                   .loss = (quad)(wrong & (mask)a)};
}

CP_INLINE void CP(LOGISTIC_value)(cp_sgd_totals *t, const point *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * (double)p->loss[i];
    cp_add_log(t, 1 + (double)p->e[i], w);
}

CP_INLINE point CP(HINGE)(quad m, quad y, quad step, quad unused)
{
    quad short_of = 1 - y * m;
    mask inside = (mask)(short_of > 0);
    (void)unused;
    return (point){.slope = (quad)(inside & (mask)(-y * step)), .loss = (quad)(inside & (mask)short_of),
                   .wrong = CP(is_wrong)(m, y)};
}

CP_INLINE void CP(HINGE_value)(cp_sgd_totals *t, const point *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * (double)p->loss[i];
}

CP_INLINE point CP(SQUARED)(quad m, quad y, quad step, quad unused)
{
    quad off = m - y;
    (void)unused;
    return (point){.slope = off * step, .off = off};
}

CP_INLINE void CP(SQUARED_value)(cp_sgd_totals *t, const point *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * ((double)p->off[i] * (double)p->off[i] / 2);
}

CP_INLINE point CP(HUBER)(quad m, quad y, quad step, quad delta)
{
    quad off = m - y, most = CP(select)((mask)(off > 0), delta, -delta);
    return (point){.slope = CP(select)((mask)(CP(absolute)(off) < delta), off, most) * step, .off = off};
}

CP_INLINE void CP(HUBER_value)(cp_sgd_totals *t, const point *p, int i, double y, double w, double delta)
{
    double off = (double)p->off[i], a = off < 0 ? -off : off;
    (void)y;
    t->loss += w * (a < delta ? off * off / 2 : delta * (a - delta / 2));
}

CP_INLINE point CP(SQUARED_HINGE)(quad m, quad y, quad step, quad unused)
{
    point hinge = CP(HINGE)(m, y, step, unused);
    hinge.slope *= 2 * hinge.loss;
    return hinge;
}

CP_INLINE void CP(SQUARED_HINGE_value)(cp_sgd_totals *t, const point *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * ((double)p->loss[i] * (double)p->loss[i]);
}

/* A margin beyond what exponentials and their products can hold counts as the most that they can. */
CP_INLINE point CP(POISSON)(quad m, quad y, quad step, quad unused)
{
    const quad most = CP(all)(CP_BYTES == 4 ? 60 : 300);
    quad held = CP(select)((mask)(m < most), m, most), e = CP(exp_minus)(CP(absolute)(held));
    quad off = CP(select)((mask)(m > 0), 1 / e, e) - y;
    (void)unused;
    return (point){.slope = off * step, .off = off, .loss = held};
}

CP_INLINE void CP(POISSON_value)(cp_sgd_totals *t, const point *p, int i, double y, double w, double unused)
{
    double m = (double)p->loss[i];
    (void)unused;
    t->loss += w * ((cp_exp(m) - y * m) + (y > 0 ? y * cp_log(y) - y : 0));
}

CP_INLINE point CP(QUANTILE)(quad m, quad y, quad step, quad tau)
{
    quad off = m - y, above = (quad)((mask)(off > 0) & (mask)(1 - tau));
    return (point){.slope = CP(select)((mask)(off < 0), -tau, above) * step, .off = off};
}

CP_INLINE void CP(QUANTILE_value)(cp_sgd_totals *t, const point *p, int i, double y, double w, double tau)
{
    double off = (double)p->off[i];
    (void)y;
    t->loss += w * (off < 0 ? -tau * off : (1 - tau) * off);
}

#define CP_NO_MARGIN(id, ...) case CP_##id: break;

CP_INLINE point CP(formula_here)(enum cp_loss loss, quad m, quad y, quad step, quad parameter)
{
#define CP_POINT(id, ...) case CP_##id: return CP(id)(m, y, step, parameter);
    switch (loss) { CP_LOSSES(CP_POINT, CP_NO_MARGIN) }
#undef CP_POINT
    return (point){.slope = m};
}

CP_INLINE void CP(count_here)(cp_sgd_totals *t, enum cp_loss loss, const point *p, int i, double y, double w,
                              double parameter)
{
#define CP_VALUE(id, ...) case CP_##id: CP(id##_value)(t, p, i, y, w, parameter); break;
    t->rows++;
    t->weight += w;
    switch (loss) { CP_LOSSES(CP_VALUE, CP_NO_MARGIN) }
#undef CP_VALUE
    if (cp_losses[loss].labels == CP_NUMBERS) {
        double off = (double)p->off[i];
        t->squares += w * (off * off);
        t->sum += w * y;
        t->square += w * (y * y);
    } else
        t->correct += p->wrong[i] == 0 ? w : 0;
}

#undef CP_NO_MARGIN

/* Where the copy of the learner is not of one loss, the formulas are called: inlined, all of them would be in each. */
static CP_NOINLINE void CP(formula_there)(point *p, enum cp_loss loss, quad m, quad y, quad step, quad parameter)
{
    *p = CP(formula_here)(loss, m, y, step, parameter);
}

static CP_NOINLINE void CP(count_there)(cp_sgd_totals *t, enum cp_loss loss, const point *p, int i, double y,
                                        double w, double parameter)
{
    CP(count_here)(t, loss, p, i, y, w, parameter);
}

CP_INLINE point CP(formula)(enum cp_loss loss, quad m, quad y, quad step, quad parameter)
{
    point p;
    if (__builtin_constant_p(loss))
        return CP(formula_here)(loss, m, y, step, parameter);
    CP(formula_there)(&p, loss, m, y, step, parameter);
    return p;
}

/* Count a row for its weight w: its loss, and whether it was right or how far off. */
CP_INLINE void CP(count)(cp_sgd_totals *t, enum cp_loss loss, const point *p, int i, double y, double w, double parameter)
{
    if (__builtin_constant_p(loss))
        CP(count_here)(t, loss, p, i, y, w, parameter);
    else
        CP(count_there)(t, loss, p, i, y, w, parameter);
}
