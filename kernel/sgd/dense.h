/* Template: dense rows, one update per row; the latency-bound inner loop.
 *
 * The textbook chain dot -> slope -> update -> next dot is cut short. With v the weights before the pending update h *
 * p (p the last row, g = scale * h),
 *
 *     w . x = scale * (v - h p) . x = scale * (v . x) - g * (p . x),
 *
 * and neither product waits for g. Only one multiplication and one subtraction wait between two rows; the sums over
 * lanes and the update overlap with the loss of the previous row. */

/* Apply the decay of one update to the scale. Returns whether the scale is so small that the weights must be
 * renormalised; with max norm the limit is lower. */
CP_INLINE int CP(decay)(cp_sgd *s)
{
    s->scale *= s->decay;
    s->inverse *= s->undecay;
    return s->scale < (s->bounded ? 0x1p-40 : 0x1p-20);
}

/* Reset the scale after v was multiplied by it. */
CP_INLINE void CP(rescaled)(cp_sgd *s)
{
    s->squares *= s->scale * s->scale;
    s->scale = s->inverse = 1;
}

static CP_COLD void CP(renormalise)(cp_sgd *s)
{
    const int64_t lines = s->sparse ? s->features : s->outputs, stride = s->sparse ? s->stride : s->padded;
    REAL scale = (REAL)s->scale, *v = CP_AT(s, REAL, w);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < s->padded; j++)
            v[i * stride + j] *= scale;
    CP(rescaled)(s);
}

/* Apply the decay of one update to the scale; renormalise the weights if it became small. */
static CP_NOINLINE void CP(shrink)(cp_sgd *s)
{
    if (s->decay != 1 && CP(decay)(s))
        CP(renormalise)(s);
}

CP_INLINE PACK CP(row_pack)(const REAL *row, int64_t j, int64_t packs, const CP(bits_type) *keep)
{
    PACK x = CP(load)(row + j * CP_LANES);
    return j + 1 < packs ? x : CP(first)(x, keep);
}

/* Return v . x; each may be a row: 0 times NaN past its end would be NaN. */
CP_INLINE REAL CP(dot)(const REAL *v, const REAL *x, int64_t packs, const CP(bits_type) *keep)
{
    PACK a0 = CP(zero)(), a1 = CP(zero)();
    int64_t j = 0;
    for (; j + 2 < packs; j += 2) {
        int64_t at = j * CP_LANES, next = at + CP_LANES;
        a0 = CP(add_product)(a0, CP(load)(v + at), CP(load)(x + at));
        a1 = CP(add_product)(a1, CP(load)(v + next), CP(load)(x + next));
    }
    for (; j < packs; j++)
        a0 = CP(add_product)(a0, CP(row_pack)(v, j, packs, keep), CP(row_pack)(x, j, packs, keep));
    return CP(sum)(CP(add)(a0, a1))[0];
}

#include "sgd/max_norm.h"

typedef struct { QUAD g, bias; REAL h, scale, inverse; } CP(pending_type);
#define PENDING CP(pending_type)

CP_INLINE PENDING CP(get_pending)(const cp_sgd *s)
{
    return (PENDING){CP(all)(*CP_AT(s, const REAL, g)), CP(all)(*CP_AT(s, const REAL, bias)),
                     *CP_AT(s, const REAL, h), (REAL)s->scale, (REAL)s->inverse};
}

CP_INLINE void CP(put_pending)(cp_sgd *s, const PENDING *q)
{
    *CP_AT(s, REAL, g) = q->g[0];
    *CP_AT(s, REAL, bias) = q->bias[0];
    *CP_AT(s, REAL, h) = q->h;
}

/* Learn from rows of at most 4 packs, whose weights and last row stay in registers. Returns the number of rows learnt,
 * fewer than the chunk's if a margin is not finite. */
CP_INLINE int64_t CP(narrow_rows)(cp_sgd *s, const cp_chunk *c, const enum cp_loss loss, const int packs)
{
    PACK v[4], p[4], x[4];
    REAL *weights = CP_AT(s, REAL, w), *prev = CP_AT(s, REAL, prev);
    CP(bits_type) keep[CP_LANES];
    PENDING q = CP(get_pending)(s);
    cp_sgd_totals totals = s->totals;
    const QUAD unit = CP(all)((REAL)s->intercept), step = CP(all)((REAL)s->rate);
    const int bounded = s->bounded, scaled = bounded || s->decay != 1;
    const QUAD held = CP(all)((REAL)(s->intercept && !bounded));
    int64_t i;
    CP(tail_mask)(keep, s->features);
    for (int j = 0; j < packs; j++) {
        v[j] = CP(load)(weights + j * CP_LANES);
        p[j] = CP(load)(prev + j * CP_LANES);
    }
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        cp_prefetch_rows(c, i, packs);
        CP(load_row)(x, row, keep, packs);
        PACK a = CP(multiply)(v[0], x[0]), b = CP(multiply)(p[0], x[0]);
        for (int j = 1; j < packs; j++) {
            a = CP(add_product)(a, v[j], x[j]);
            b = CP(add_product)(b, p[j], x[j]);
        }
        const QUAD vx = CP(sum)(a), px = CP(sum)(b);
        QUAD m = (q.scale * vx + q.bias) - q.g * (px + held);
        if (!CP(is_finite)(m[0]))
            break;
        REAL inner = bounded ? vx[0] - q.h * px[0] : 0;
        for (int j = 0; j < packs; j++) {
            v[j] = CP(subtract_scaled)(v[j], q.h, p[j]);
            p[j] = x[j];
        }
        q.bias -= q.g * held;
        if (scaled) {
            if (CP(decay)(s)) {
                for (int j = 0; j < packs; j++)
                    v[j] = CP(scale)(v[j], (REAL)s->scale);
                inner *= (REAL)s->scale;
                CP(rescaled)(s);
            }
            if (bounded && CP(counts)(s))
                s->squares = CP(squares_of_packs)(v, packs);
            q.scale = (REAL)s->scale;
            q.inverse = (REAL)s->inverse;
        }
        const QUAD by = c->weighted ? CP(all)((REAL)(s->rate * c->weight[i])) : step;
        const QUAD slope = CP(slope)(&totals, loss, m, by, c->label[i], c->weight[i], s->parameter);
        q.g = slope;
        q.h = slope[0] * q.inverse;
        if (bounded) {
            q.bias -= q.g * unit;
            if (CP(bind)(s, q.h, inner, CP(squares_of_packs)(x, packs))) {
                q.scale = (REAL)s->scale;
                q.g = CP(all)(q.h * q.scale);
            }
        }
    }
    for (int j = 0; j < packs; j++) {
        CP(store)(weights + j * CP_LANES, v[j]);
        CP(store)(prev + j * CP_LANES, p[j]);
    }
    CP(put_pending)(s, &q);
    s->totals = totals;
    return i;
}

/* One pack of CP(walk). */
CP_INLINE void CP(step)(REAL *v, PACK p, PACK x, REAL h, PACK *vx, PACK *px)
{
    PACK w = CP(load)(v);
    *vx = CP(add_product)(*vx, w, x);
    *px = CP(add_product)(*px, p, x);
    CP(store)(v, CP(subtract_scaled)(w, h, p));
}

/* Sum v . x and p . x and apply the pending update, in one walk through the weights. */
CP_INLINE void CP(walk)(REAL *v, const REAL *p, const REAL *x, int64_t packs, const CP(bits_type) *keep, REAL h,
                        PACK *vx, PACK *px)
{
    PACK a0 = CP(zero)(), a1 = CP(zero)(), b0 = CP(zero)(), b1 = CP(zero)();
    int64_t j = 0;
    for (; j + 2 < packs; j += 2) {
        int64_t at = j * CP_LANES, next = at + CP_LANES;
        CP(step)(v + at, CP(load)(p + at), CP(load)(x + at), h, &a0, &b0);
        CP(step)(v + next, CP(load)(p + next), CP(load)(x + next), h, &a1, &b1);
    }
    for (; j < packs; j++)
        CP(step)(v + j * CP_LANES, CP(row_pack)(p, j, packs, keep), CP(row_pack)(x, j, packs, keep), h, &a0, &b0);
    *vx = CP(add)(a0, a1);
    *px = CP(add)(b0, b1);
}

/* Copy a row into the state: its slot may be overwritten before the next call. */
CP_INLINE void CP(keep_row)(cp_sgd *s, const REAL *row)
{
    REAL *prev = CP_AT(s, REAL, prev);
    if (row != prev)
        memcpy(prev, row, (size_t)s->features * sizeof(REAL));
}

CP_INLINE int64_t CP(wide_rows)(cp_sgd *s, const cp_chunk *c, const enum cp_loss loss)
{
    REAL *v = CP_AT(s, REAL, w);
    const REAL *prev = CP_AT(s, REAL, prev);
    const int64_t packs = s->padded / CP_LANES;
    CP(bits_type) keep[CP_LANES];
    PENDING q = CP(get_pending)(s);
    cp_sgd_totals totals = s->totals;
    const QUAD unit = CP(all)((REAL)s->intercept), step = CP(all)((REAL)s->rate);
    const QUAD held = CP(all)((REAL)(s->intercept && !s->bounded));
    int64_t i;
    CP(tail_mask)(keep, s->features);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        PACK a, b;
        cp_prefetch_rows(c, i, c->lines);
        CP(walk)(v, prev, row, packs, keep, q.h, &a, &b);
        const QUAD vx = CP(sum)(a), px = CP(sum)(b);
        QUAD m = (q.scale * vx + q.bias) - q.g * (px + held);
        REAL inner = vx[0] - q.h * px[0];
        q.bias -= q.g * held;
        if (!CP(is_finite)(m[0])) {
            q.g = CP(all)(q.h = 0);
            break;
        }
        prev = row;
        if (s->bounded || s->decay != 1) {
            if (CP(decay)(s)) {
                inner *= (REAL)s->scale;
                CP(renormalise)(s);
            }
            if (s->bounded && CP(counts)(s))
                s->squares = CP(squares_dense)(s, keep);
            q.scale = (REAL)s->scale;
            q.inverse = (REAL)s->inverse;
        }
        const QUAD by = c->weighted ? CP(all)((REAL)(s->rate * c->weight[i])) : step;
        const QUAD slope = CP(slope)(&totals, loss, m, by, c->label[i], c->weight[i], s->parameter);
        q.g = slope;
        q.h = slope[0] * q.inverse;
        if (s->bounded) {
            q.bias -= q.g * unit;
            if (CP(bind)(s, q.h, inner, CP(dot)(row, row, packs, keep))) {
                q.scale = (REAL)s->scale;
                q.g = CP(all)(q.h * q.scale);
            }
        }
    }
    CP(keep_row)(s, prev);
    CP(put_pending)(s, &q);
    s->totals = totals;
    return i;
}

static CP_NOINLINE int64_t CP(margin_rows)(cp_sgd *s, const cp_chunk *c)
{
    const int64_t packs = s->padded / CP_LANES;
    if (packs > CP_NARROW_PACKS || !cp_loss_is_inlined(s->loss))
        return CP(wide_rows)(s, c, s->loss);
    CP_BY_PACKS(narrow_rows, s->loss, packs)
}
