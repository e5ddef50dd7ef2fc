/* Template: formulas of the losses of one margin m. `y` is -1 or 1, or the target; a margin of 0 counts as -1.
 *
 * Each loss has two functions. CP(ID) returns step * derivative by m for a few rows at a time, and the terms of the
 * value; CP(ID_value) adds the value of one row to the totals. Losses with one score per class are in sgd/softmax.h.
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
 * |               | else (1 - tau)(m - y)                   | 0 at m = y                               | */

#include "sgd/vector.h"

/* `off`: prediction minus target; `wrong`: whether the sign of m is wrong, for classes. */
typedef struct { QUAD slope, loss, e, off; MASK wrong; } CP(point_type);
#define POINT CP(point_type)

CP_INLINE MASK CP(is_wrong)(QUAD m, QUAD y) { return (MASK)(m > 0) ^ (MASK)(y > 0); }

CP_INLINE POINT CP(LOGISTIC)(QUAD m, QUAD y, QUAD step, QUAD unused)
{
    QUAD a = CP(absolute)(m), e = CP(exp_minus)(a);
    MASK wrong = CP(is_wrong)(m, y);
    (void)unused;
    return (POINT){.slope = (CP(select)(wrong, CP(all)(1), e) * (-y * step)) / (1 + e), .e = e, .wrong = wrong,
                   .loss = (QUAD)(wrong & (MASK)a)};
}

CP_INLINE void CP(LOGISTIC_value)(cp_sgd_totals *t, const POINT *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * (double)p->loss[i];
    cp_add_log(t, 1 + (double)p->e[i], w);
}

CP_INLINE POINT CP(HINGE)(QUAD m, QUAD y, QUAD step, QUAD unused)
{
    QUAD short_of = 1 - y * m;
    MASK inside = (MASK)(short_of > 0);
    (void)unused;
    return (POINT){.slope = (QUAD)(inside & (MASK)(-y * step)), .loss = (QUAD)(inside & (MASK)short_of),
                   .wrong = CP(is_wrong)(m, y)};
}

CP_INLINE void CP(HINGE_value)(cp_sgd_totals *t, const POINT *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * (double)p->loss[i];
}

CP_INLINE POINT CP(SQUARED)(QUAD m, QUAD y, QUAD step, QUAD unused)
{
    QUAD off = m - y;
    (void)unused;
    return (POINT){.slope = off * step, .off = off};
}

CP_INLINE void CP(SQUARED_value)(cp_sgd_totals *t, const POINT *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * ((double)p->off[i] * (double)p->off[i] / 2);
}

CP_INLINE POINT CP(HUBER)(QUAD m, QUAD y, QUAD step, QUAD delta)
{
    QUAD off = m - y, most = CP(select)((MASK)(off > 0), delta, -delta);
    return (POINT){.slope = CP(select)((MASK)(CP(absolute)(off) < delta), off, most) * step, .off = off};
}

CP_INLINE void CP(HUBER_value)(cp_sgd_totals *t, const POINT *p, int i, double y, double w, double delta)
{
    double off = (double)p->off[i], a = off < 0 ? -off : off;
    (void)y;
    t->loss += w * (a < delta ? off * off / 2 : delta * (a - delta / 2));
}

CP_INLINE POINT CP(SQUARED_HINGE)(QUAD m, QUAD y, QUAD step, QUAD unused)
{
    POINT hinge = CP(HINGE)(m, y, step, unused);
    hinge.slope *= 2 * hinge.loss;
    return hinge;
}

CP_INLINE void CP(SQUARED_HINGE_value)(cp_sgd_totals *t, const POINT *p, int i, double y, double w, double unused)
{
    (void)y, (void)unused;
    t->loss += w * ((double)p->loss[i] * (double)p->loss[i]);
}

/* Margins are clamped to the range that exponentials and their products can hold. */
CP_INLINE POINT CP(POISSON)(QUAD m, QUAD y, QUAD step, QUAD unused)
{
    const QUAD most = CP(all)(CP_BYTES == 4 ? 60 : 300);
    QUAD held = CP(select)((MASK)(m < most), m, most), e = CP(exp_minus)(CP(absolute)(held));
    QUAD off = CP(select)((MASK)(m > 0), 1 / e, e) - y;
    (void)unused;
    return (POINT){.slope = off * step, .off = off, .loss = held};
}

CP_INLINE void CP(POISSON_value)(cp_sgd_totals *t, const POINT *p, int i, double y, double w, double unused)
{
    double m = (double)p->loss[i];
    (void)unused;
    t->loss += w * ((cp_exp(m) - y * m) + (y > 0 ? y * cp_log(y) - y : 0));
}

CP_INLINE POINT CP(QUANTILE)(QUAD m, QUAD y, QUAD step, QUAD tau)
{
    QUAD off = m - y, above = (QUAD)((MASK)(off > 0) & (MASK)(1 - tau));
    return (POINT){.slope = CP(select)((MASK)(off < 0), -tau, above) * step, .off = off};
}

CP_INLINE void CP(QUANTILE_value)(cp_sgd_totals *t, const POINT *p, int i, double y, double w, double tau)
{
    double off = (double)p->off[i];
    (void)y;
    t->loss += w * (off < 0 ? -tau * off : (1 - tau) * off);
}

#define CP_NO_MARGIN(id, ...) case CP_##id: break;

CP_INLINE POINT CP(formula_inlined)(enum cp_loss loss, QUAD m, QUAD y, QUAD step, QUAD parameter)
{
#define CP_POINT(id, ...) case CP_##id: return CP(id)(m, y, step, parameter);
    switch (loss) { CP_LOSSES(CP_POINT, CP_NO_MARGIN) }
#undef CP_POINT
    return (POINT){.slope = m};
}

CP_INLINE void CP(count_inlined)(cp_sgd_totals *t, enum cp_loss loss, const POINT *p, int i, double y, double w,
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

/* Calls of the rarer formulas: inlined, every loop over rows would contain all of them. */
static CP_NOINLINE void CP(formula_called)(POINT *p, enum cp_loss loss, QUAD m, QUAD y, QUAD step, QUAD parameter)
{
    *p = CP(formula_inlined)(loss, m, y, step, parameter);
}

static CP_NOINLINE void CP(count_called)(cp_sgd_totals *t, enum cp_loss loss, const POINT *p, int i, double y, double w,
                                         double parameter)
{
    CP(count_inlined)(t, loss, p, i, y, w, parameter);
}

CP_INLINE POINT CP(formula)(enum cp_loss loss, QUAD m, QUAD y, QUAD step, QUAD parameter)
{
    POINT p;
    if (__builtin_constant_p(loss))
        return CP(formula_inlined)(loss, m, y, step, parameter);
#define CP_POINT(id) if (loss == CP_##id) return CP(id)(m, y, step, parameter);
    CP_INLINED(CP_POINT)
#undef CP_POINT
    CP(formula_called)(&p, loss, m, y, step, parameter);
    return p;
}

/* Add a row of weight w to the totals: its loss, and whether it was correct or its squared error. */
CP_INLINE void CP(count)(cp_sgd_totals *t, enum cp_loss loss, const POINT *p, int i, double y, double w,
                         double parameter)
{
    if (__builtin_constant_p(loss))
        CP(count_inlined)(t, loss, p, i, y, w, parameter);
    else
        CP(count_called)(t, loss, p, i, y, w, parameter);
}

/* Return the slope of a row with label y and weight w, and add the row to the totals. */
CP_INLINE QUAD CP(slope)(cp_sgd_totals *t, enum cp_loss loss, QUAD m, QUAD step, double y, double w, double parameter)
{
    const QUAD label = CP(all)((REAL)y), of = CP(all)((REAL)parameter);
    POINT p;
#define CP_SLOPE(id) \
    if (loss == CP_##id) { \
        p = CP(id)(m, label, step, of); \
        CP(count_inlined)(t, CP_##id, &p, 0, y, w, parameter); \
        return p.slope; \
    }
    CP_INLINED(CP_SLOPE)
#undef CP_SLOPE
    p = CP(formula)(loss, m, label, step, of);
    CP(count)(t, loss, &p, 0, y, w, parameter);
    return p.slope;
}
