/* Template: narrow dense rows (at most CP_NARROW_PACKS packs), one update per row with per-weight rates, no
 * penalties: the rules of sgd/rules.h, with the update held back as in sgd/dense.h. Only one multiplication and one
 * subtraction between two rows wait for the slope:
 *
 *     w . x = (v - h q) . x = v . x - h (q . x),      q = p / (s r),  h = rate sqrt(t / N) slope
 *
 * Here r^2 is a cached value of G. 1 / r is recomputed when G exceeds CP_GROWTH times r^2, and where training is
 * interrupted. So steps are at most 3 % longer than with the root of G itself, and never shorter. In a table of n
 * rows a weight's root is computed about log(n) / log(CP_GROWTH) times: hardly ever. */

#define CP_GROWTH ((REAL)1.0625)

#define CP_RENEWED(vec, bits, name) \
    /* Return roots, recomputed where the sum has outgrown them. */ \
    CP_INLINE vec CP(renewed_##name)(vec sum, vec root) \
    { \
        const bits hit = (bits)((sum * root) * root > CP_GROWTH); \
        return (vec)((hit & (bits)CP(rsqrt_##name)(sum)) | (~hit & (bits)root)); \
    }
CP_RENEWED(LANE, CP(lane_bits), lane)
CP_RENEWED(QUAD, MASK, quad)
#undef CP_RENEWED

/* Compute the roots of all sums. */
static CP_COLD void CP(take_roots)(cp_sgd *s)
{
    const REAL *sums = CP_AT(s, const REAL, sums);
    REAL *roots = CP_AT(s, REAL, roots);
    for (int64_t j = 0; j < s->padded; j += CP_QUAD) {
        QUAD sum;
        memcpy(&sum, sums + j, sizeof sum);
        sum = CP(rsqrt_quad)(sum);
        memcpy(roots + j, &sum, sizeof sum);
    }
    roots[s->padded] = CP(rsqrt_quad)(CP(all)(*CP_AT(s, const REAL, sum_bias)))[0];
}

typedef struct {
    PACK v[CP_NARROW_PACKS], q[CP_NARROW_PACKS], sum[CP_NARROW_PACKS], root[CP_NARROW_PACKS], inv[CP_NARROW_PACKS];
    QUAD bias, g, sum_bias, root_bias;
    REAL h;
} CP(rooted_type);

/* Load the inverse feature scales; for a feature not seen yet, a number so large that any value exceeds its scale. */
CP_INLINE void CP(load_sizes)(const cp_sgd *s, PACK *inv, const int packs)
{
    const REAL most = CP_BYTES == 4 ? (REAL)1e38 : (REAL)1e308;
    for (int j = 0; j < packs; j++) {
        inv[j] = CP(load)(CP_AT(s, const REAL, inv) + j * CP_LANES);
        CP_EACH {
            const CP(lane_bits) none = (CP(lane_bits))(CP_PART(inv[j]) == 0), all = (CP(lane_bits))(most - (LANE){0});
            CP_PART(inv[j]) = (LANE)((CP(lane_bits))CP_PART(inv[j]) | (none & all));
        }
    }
}

/* Apply the pending update, and rescale the weights of features that exceed their largest value so far. */
static CP_COLD void CP(enlarge_rooted)(cp_sgd *s, CP(rooted_type) *r, const REAL *row, const int packs)
{
    REAL *weights = CP_AT(s, REAL, w);
    for (int64_t j = 0; j < s->features; j++)
        if (!CP(is_finite)(row[j]))
            return; /* a row that will be rejected must not change the state */
    for (int j = 0; j < packs; j++)
        CP(store)(weights + j * CP_LANES, CP(subtract_scaled)(r->v[j], r->h, r->q[j]));
    r->bias -= r->g;
    r->g = CP(all)(r->h = 0);
    CP(enlarge)(s, NULL, row, s->features);
    for (int j = 0; j < packs; j++)
        r->v[j] = CP(load)(weights + j * CP_LANES);
    CP(load_sizes)(s, r->inv, packs);
}

/* Divide a row's features by their scales. Returns whether a feature exceeds its largest value so far; sets the sum of
 * squares. */
CP_INLINE int CP(sized)(const PACK *inv, const PACK *x, PACK *t, PACK *squares, const int packs)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    *squares = CP(zero)();
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const LANE a = CP_PART(x[j]) * CP_PART(inv[j]);
            hit[part_] |= (CP(lane_bits))((LANE)((CP(lane_bits))a & ((CP(bits_type))-1 >> 1)) > 1);
            CP_PART(*squares) += a * a;
            CP_PART(t[j]) = a;
        }
    return CP(any)(hit);
}

/* Add the squares of the gradient slope * x. Returns whether a sum has outgrown its root. */
CP_INLINE int CP(add_squares)(CP(rooted_type) *r, const PACK *x, QUAD slope, const int packs)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const LANE g = slope[0] * CP_PART(x[j]), root = CP_PART(r->root[j]);
            CP_PART(r->sum[j]) += g * g;
            hit[part_] |= (CP(lane_bits))((CP_PART(r->sum[j]) * root) * root > CP_GROWTH);
        }
    r->sum_bias += slope * slope;
    return CP(any)(hit) | ((r->sum_bias[0] * r->root_bias[0]) * r->root_bias[0] > CP_GROWTH);
}

/* Recompute outgrown roots. */
CP_INLINE void CP(renew_roots)(CP(rooted_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++)
        CP_EACH CP_PART(r->root[j]) = CP(renewed_lane)(CP_PART(r->sum[j]), CP_PART(r->root[j]));
    r->root_bias = CP(renewed_quad)(r->sum_bias, r->root_bias);
}

CP_INLINE void CP(load_rooted)(const cp_sgd *s, CP(rooted_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++) {
        r->v[j] = CP(load)(CP_AT(s, const REAL, w) + j * CP_LANES);
        r->q[j] = CP(load)(CP_AT(s, const REAL, prev) + j * CP_LANES);
        r->sum[j] = CP(load)(CP_AT(s, const REAL, sums) + j * CP_LANES);
        r->root[j] = CP(load)(CP_AT(s, const REAL, roots) + j * CP_LANES);
    }
    r->bias = CP(all)(*CP_AT(s, const REAL, bias));
    r->g = CP(all)(*CP_AT(s, const REAL, g));
    r->h = *CP_AT(s, const REAL, h);
    r->sum_bias = CP(all)(*CP_AT(s, const REAL, sum_bias));
    r->root_bias = CP(all)(CP_AT(s, const REAL, roots)[s->padded]);
}

CP_INLINE void CP(store_rooted)(cp_sgd *s, const CP(rooted_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++) {
        CP(store)(CP_AT(s, REAL, w) + j * CP_LANES, r->v[j]);
        CP(store)(CP_AT(s, REAL, prev) + j * CP_LANES, r->q[j]);
        CP(store)(CP_AT(s, REAL, sums) + j * CP_LANES, r->sum[j]);
        CP(store)(CP_AT(s, REAL, roots) + j * CP_LANES, r->root[j]);
    }
    *CP_AT(s, REAL, bias) = r->bias[0];
    *CP_AT(s, REAL, g) = r->g[0];
    *CP_AT(s, REAL, h) = r->h;
    *CP_AT(s, REAL, sum_bias) = r->sum_bias[0];
    CP_AT(s, REAL, roots)[s->padded] = r->root_bias[0];
}

CP_INLINE int64_t CP(rooted)(cp_sgd *s, const cp_chunk *c, const enum cp_loss loss, const int packs)
{
    CP(rooted_type) r;
    CP(bits_type) keep[CP_LANES];
    PACK x[CP_NARROW_PACKS], t[CP_NARROW_PACKS], squares = CP(zero)();
    cp_sgd_totals totals = s->totals;
    const int normalized = s->rule == CP_NORMALIZED;
    const QUAD unit = CP(all)((REAL)s->intercept);
    double by = s->rate, seen = s->seen, norm = s->norm;
    int64_t i;
    CP(tail_mask)(keep, s->features);
    CP(load_rooted)(s, &r, packs);
    if (normalized)
        CP(load_sizes)(s, r.inv, packs);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        cp_prefetch_rows(c, i, packs);
        CP(load_row)(x, row, keep, packs);
        if (normalized && CP(sized)(r.inv, x, t, &squares, packs)) {
            CP(enlarge_rooted)(s, &r, row, packs);
            CP(sized)(r.inv, x, t, &squares, packs);
        }
        QUAD m = CP(margin_held)(r.v, r.q, x, r.bias, r.h, r.g, packs);
        if (!CP(is_finite)(m[0]))
            break;
        for (int j = 0; j < packs; j++)
            r.v[j] = CP(subtract_scaled)(r.v[j], r.h, r.q[j]);
        r.bias -= r.g;
        const QUAD weight = CP(all)((REAL)(c->weighted ? c->weight[i] : 1));
        const QUAD slope = CP(slope)(&totals, loss, m, weight, c->label[i], c->weight[i], s->parameter);
        if (CP(add_squares)(&r, x, slope, packs))
            CP(renew_roots)(&r, packs);
        if (normalized) {
            seen++;
            norm += (double)CP(sum)(squares)[0] + s->intercept;
            by = norm > 0 ? s->rate * sqrt(seen / norm) : s->rate;
        }
        for (int j = 0; j < packs; j++)
            r.q[j] = CP(multiply)(normalized ? t[j] : x[j], r.root[j]);
        r.h = (REAL)by * slope[0];
        r.g = (r.h * r.root_bias) * unit;
    }
    CP(store_rooted)(s, &r, packs);
    if (normalized) {
        s->seen = seen;
        s->norm = norm;
    }
    s->totals = totals;
    return i;
}
#include "sgd/moving.h"

static CP_NOINLINE int64_t CP(moving_rows)(cp_sgd *s, const cp_chunk *c)
{
    CP_BY_PACKS(moving, s->loss, s->padded / CP_LANES)
}

/* The default step has a copy for each inlined loss: one for all takes up to 7 % longer. */
static CP_NOINLINE int64_t CP(rooted_rows)(cp_sgd *s, const cp_chunk *c)
{
    const int64_t packs = s->padded / CP_LANES;
#ifndef CP_FEW_COPIES
#define CP_COPY(id) if (s->loss == CP_##id) { CP_BY_PACKS(rooted, CP_##id, packs) }
    CP_INLINED(CP_COPY)
#undef CP_COPY
#endif
    return CP(rooted)(s, c, s->loss, (int)packs);
}
