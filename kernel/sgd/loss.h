/* Template: losses of one margin, and their derivatives. `y` is -1 or 1, or the target.
 *
 * | loss     | value             | derivative by the margin m              |
 * |----------|-------------------|-----------------------------------------|
 * | logistic | log(1 + exp(-ym)) | -y / (1 + exp(ym))                      |
 * | hinge    | max(0, 1 - ym)    | -y where ym < 1, else 0 (also at ym = 1) |
 * | squared  | (m - y)^2 / 2     | m - y                                   |
 */

typedef struct { quad slope, loss, e; mask wrong; } CP(point_type);
#define point CP(point_type)

/* Return step * derivative, and what the totals need. A margin of 0 counts as the negative class. */
CP_INLINE point CP(point)(int loss, quad m, quad y, quad step)
{
    point p = {.loss = m};
    if (loss == CP_LOGISTIC) {
        quad a = CP(absolute)(m);
        p.e = CP(exp_minus)(a);
        p.wrong = (mask)(m > 0) ^ (mask)(y > 0);
        p.slope = (CP(select)(p.wrong, CP(all)(1), p.e) * (-y * step)) / (1 + p.e);
        p.loss = (quad)(p.wrong & (mask)a);
    } else if (loss == CP_HINGE) {
        quad short_of = 1 - y * m;
        mask inside = (mask)(short_of > 0);
        p.wrong = (mask)(m > 0) ^ (mask)(y > 0);
        p.slope = (quad)(inside & (mask)(-y * step));
        p.loss = (quad)(inside & (mask)short_of);
    } else {
        p.loss = m - y;
        p.slope = p.loss * step;
    }
    return p;
}

CP_INLINE void CP(count)(cp_sgd_totals *t, int loss, const point *p, int i, double y)
{
    t->rows++;
    if (loss == CP_SQUARED) {
        double off = (double)p->loss[i];
        t->squares += off * off;
        t->sum += y;
        t->square += y * y;
        return;
    }
    t->loss += (double)p->loss[i];
    t->correct += p->wrong[i] == 0;
    if (loss == CP_LOGISTIC)
        cp_add_log(t, 1 + (double)p->e[i]);
}

CP_INLINE int CP(is_finite)(real a) { return a - a == 0; }
