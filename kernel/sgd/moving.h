/* Template: Adam for narrow dense rows (at most CP_NARROW_PACKS packs), one update per row, no penalties, with the
 * update held back as in sgd/dense.h. The part of a step that does not need the slope is applied at once; the rest
 * waits for one multiplication and one subtraction:
 *
 *     w . x = (v - h q) . x = v . x - h (q . x),      v = w - k b1 m r,  q = p r,  h = k (1 - b1) slope,
 *
 * where k is the rate with the bias corrections of both means. r = 1 / sqrt(V) uses the V before this row, so that
 * it is computed alongside the loss of the previous row. If this row makes V grow by more than CP_GROWTH, r is
 * recomputed at once. So a step is at most 3 % longer than Adam's, and not longer at all after a rare large gradient
 * (the top 0.1 %). */

typedef struct {
    PACK v[CP_NARROW_PACKS], q[CP_NARROW_PACKS], m[CP_NARROW_PACKS], sum[CP_NARROW_PACKS], root[CP_NARROW_PACKS];
    QUAD bias, g, m_bias, sum_bias, root_bias;
    REAL h;
    double fade[2];
} CP(moving_type);

CP_INLINE void CP(load_moving)(const cp_sgd *s, CP(moving_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++) {
        r->v[j] = CP(load)(CP_AT(s, const REAL, w) + j * CP_LANES);
        r->q[j] = CP(load)(CP_AT(s, const REAL, prev) + j * CP_LANES);
        r->m[j] = CP(load)(CP_AT(s, const REAL, means) + j * CP_LANES);
        r->sum[j] = CP(load)(CP_AT(s, const REAL, sums) + j * CP_LANES);
        CP_EACH CP_PART(r->root[j]) = CP(rsqrt_lane)(CP_PART(r->sum[j]));
    }
    r->bias = CP(all)(*CP_AT(s, const REAL, bias));
    r->g = CP(all)(*CP_AT(s, const REAL, g));
    r->h = *CP_AT(s, const REAL, h);
    r->m_bias = CP(all)(*CP_AT(s, const REAL, mean_biases));
    r->sum_bias = CP(all)(*CP_AT(s, const REAL, sum_bias));
    r->root_bias = CP(rsqrt_quad)(r->sum_bias);
    r->fade[0] = s->fade[0];
    r->fade[1] = s->fade[1];
}

CP_INLINE void CP(store_moving)(cp_sgd *s, const CP(moving_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++) {
        CP(store)(CP_AT(s, REAL, w) + j * CP_LANES, r->v[j]);
        CP(store)(CP_AT(s, REAL, prev) + j * CP_LANES, r->q[j]);
        CP(store)(CP_AT(s, REAL, means) + j * CP_LANES, r->m[j]);
        CP(store)(CP_AT(s, REAL, sums) + j * CP_LANES, r->sum[j]);
    }
    *CP_AT(s, REAL, bias) = r->bias[0];
    *CP_AT(s, REAL, g) = r->g[0];
    *CP_AT(s, REAL, h) = r->h;
    *CP_AT(s, REAL, mean_biases) = r->m_bias[0];
    *CP_AT(s, REAL, sum_bias) = r->sum_bias[0];
    s->fade[0] = r->fade[0];
    s->fade[1] = r->fade[1];
}

/* Add a gradient to the squares. Returns whether a sum has outgrown its root. */
CP_INLINE int CP(move_squares)(CP(moving_type) *r, const PACK *x, QUAD slope, const int packs)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    slope *= CP(all)((REAL)CP_ADAM_ROOT);
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const LANE g = slope[0] * CP_PART(x[j]), root = CP_PART(r->root[j]);
            CP_PART(r->sum[j]) = CP(faded_squares_lane)(CP_PART(r->sum[j])) + g * g;
            hit[part_] |= (CP(lane_bits))((CP_PART(r->sum[j]) * root) * root > CP_GROWTH);
        }
    r->sum_bias = CP(faded_squares_quad)(r->sum_bias) + slope * slope;
    return CP(any)(hit) | ((r->sum_bias[0] * r->root_bias[0]) * r->root_bias[0] > CP_GROWTH);
}

/* Move by the decayed means at once, hold the gradient back, and compute roots for the next row. */
CP_INLINE void CP(move_means)(CP(moving_type) *r, const PACK *x, QUAD slope, QUAD unit, REAL by, const int packs)
{
    const QUAD share = slope * (REAL)(1 - CP_ADAM_B1), m_bias = CP(faded_quad)(r->m_bias);
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const LANE m = CP(faded_lane)(CP_PART(r->m[j])), root = CP_PART(r->root[j]);
            CP_PART(r->v[j]) = CP_PART(r->v[j]) - by * (m * root);
            CP_PART(r->q[j]) = CP_PART(x[j]) * root;
            CP_PART(r->m[j]) = m + share[0] * CP_PART(x[j]);
            CP_PART(r->root[j]) = CP(rsqrt_lane)(CP_PART(r->sum[j]));
        }
    r->h = by * share[0];
    r->bias -= (by * (m_bias * r->root_bias)) * unit;
    r->g = (r->h * r->root_bias) * unit;
    r->m_bias = m_bias + share;
    r->root_bias = CP(rsqrt_quad)(r->sum_bias);
}

CP_INLINE int64_t CP(moving)(cp_sgd *s, const cp_chunk *c, const enum cp_loss loss, const int packs)
{
    CP(moving_type) r;
    CP(bits_type) keep[CP_LANES];
    PACK x[CP_NARROW_PACKS];
    cp_sgd_totals totals = s->totals;
    const QUAD unit = CP(all)((REAL)s->intercept);
    int64_t i;
    CP(tail_mask)(keep, s->features);
    CP(load_moving)(s, &r, packs);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        cp_prefetch_rows(c, i, packs);
        CP(load_row)(x, row, keep, packs);
        QUAD m = CP(margin_held)(r.v, r.q, x, r.bias, r.h, r.g, packs);
        if (!CP(is_finite)(m[0]))
            break;
        for (int j = 0; j < packs; j++)
            r.v[j] = CP(subtract_scaled)(r.v[j], r.h, r.q[j]);
        r.bias -= r.g;
        const REAL by = (REAL)CP(adam_begin)(r.fade, s->rate);
        const QUAD weight = CP(all)((REAL)(c->weighted ? c->weight[i] : 1));
        const QUAD slope = CP(slope)(&totals, loss, m, weight, c->label[i], c->weight[i], s->parameter);
        if (CP(move_squares)(&r, x, slope, packs)) {
            for (int j = 0; j < packs; j++)
                CP_EACH CP_PART(r.root[j]) = CP(renewed_lane)(CP_PART(r.sum[j]), CP_PART(r.root[j]));
            r.root_bias = CP(renewed_quad)(r.sum_bias, r.root_bias);
        }
        CP(move_means)(&r, x, slope, unit, by, packs);
    }
    CP(store_moving)(s, &r, packs);
    s->totals = totals;
    return i;
}
