/* Template: one update a row by rates of their own, dense, rows of at most CP_NARROW packs, no penalties: the rules of
 * sgd/rules.h, with the update held back as in sgd/dense.h. Between two rows only one multiplication and one subtraction wait
 * for the slope:
 *
 *     w . x = (v - h q) . x = v . x - h (q . x),      q = p / (s r),  h = rate sqrt(t / N) slope
 *
 * where r^2 is what G was when it was last looked at: 1 / r is made anew as soon as G is CP_GROWTH times that, and where
 * training is interrupted, so steps are at most 3 % longer than those by the root of G itself, and shorter never. In a table of
 * n rows a weight has its root made about log(n) / log(CP_GROWTH) times: hardly ever. */

#define CP_GROWTH ((real)1.0625)

#define CP_RENEWED(vec, bits, name) \
    /* Return roots, those made anew that have been outgrown. */ \
    CP_INLINE vec CP(renewed_##name)(vec sum, vec root) \
    { \
        const bits hit = (bits)((sum * root) * root > CP_GROWTH); \
        return (vec)((hit & (bits)CP(rsqrt_##name)(sum)) | (~hit & (bits)root)); \
    }
CP_RENEWED(lane, CP(lane_bits), lane)
CP_RENEWED(quad, mask, quad)
#undef CP_RENEWED

/* Make the roots of all sums. */
static CP_NOINLINE void CP(take_roots)(cp_sgd *s)
{
    const real *sums = CP_AT(s, const real, sums);
    real *roots = CP_AT(s, real, roots);
    for (int64_t j = 0; j < s->padded; j += CP_QUAD) {
        quad sum;
        memcpy(&sum, sums + j, sizeof sum);
        sum = CP(rsqrt_quad)(sum);
        memcpy(roots + j, &sum, sizeof sum);
    }
    roots[s->padded] = CP(rsqrt_quad)(CP(all)(*CP_AT(s, const real, sum_bias)))[0];
}

typedef struct {
    pack v[CP_NARROW], q[CP_NARROW], sum[CP_NARROW], root[CP_NARROW], inv[CP_NARROW];
    quad bias, g, sum_bias, root_bias;
    real h;
} CP(rooted_type);

/* Load what features are divided by; of one that was never seen so little that any value is larger. */
CP_INLINE void CP(load_sizes)(const cp_sgd *s, pack *inv, const int packs)
{
    const real most = CP_BYTES == 4 ? (real)1e38 : (real)1e308;
    for (int j = 0; j < packs; j++) {
        inv[j] = CP(load)(CP_AT(s, const real, inv) + j * CP_LANES);
        CP_EACH {
            const CP(lane_bits) none = (CP(lane_bits))(CP_PART(inv[j]) == 0), all = (CP(lane_bits))(most - (lane){0});
            CP_PART(inv[j]) = (lane)((CP(lane_bits))CP_PART(inv[j]) | (none & all));
        }
    }
}

/* Apply the update that is held back, and make weights smaller whose features are larger than all before. */
static CP_NOINLINE void CP(enlarge_rooted)(cp_sgd *s, CP(rooted_type) *r, const real *row, const int packs)
{
    real *weights = CP_AT(s, real, w);
    for (int64_t j = 0; j < s->features; j++)
        if (!CP(is_finite)(row[j]))
            return; /* a row that will be refused leaves no trace */
    for (int j = 0; j < packs; j++)
        CP(store)(weights + j * CP_LANES, CP(subtract_scaled)(r->v[j], r->h, r->q[j]));
    r->bias -= r->g;
    r->g = CP(all)(r->h = 0);
    CP(enlarge)(s, NULL, row, s->features);
    for (int j = 0; j < packs; j++)
        r->v[j] = CP(load)(weights + j * CP_LANES);
    CP(load_sizes)(s, r->inv, packs);
}

/* Divide a row's features by their sizes. Returns whether one is larger than all before; sets the sum of their squares. */
CP_INLINE int CP(sized)(const pack *inv, const pack *x, pack *t, pack *squares, const int packs)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    *squares = CP(zero)();
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const lane a = CP_PART(x[j]) * CP_PART(inv[j]);
            hit[part_] |= (CP(lane_bits))((lane)((CP(lane_bits))a & ((CP(bits_type))-1 >> 1)) > 1);
            CP_PART(*squares) += a * a;
            CP_PART(t[j]) = a;
        }
    return CP(any)(hit);
}

/* Take the gradient slope * x in. Returns whether a sum has outgrown its root. */
CP_INLINE int CP(add_squares)(CP(rooted_type) *r, const pack *x, quad slope, const int packs)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const lane g = slope[0] * CP_PART(x[j]), root = CP_PART(r->root[j]);
            CP_PART(r->sum[j]) += g * g;
            hit[part_] |= (CP(lane_bits))((CP_PART(r->sum[j]) * root) * root > CP_GROWTH);
        }
    r->sum_bias += slope * slope;
    return CP(any)(hit) | ((r->sum_bias[0] * r->root_bias[0]) * r->root_bias[0] > CP_GROWTH);
}

/* Make the roots anew that have been outgrown. */
CP_INLINE void CP(renew_roots)(CP(rooted_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++)
        CP_EACH CP_PART(r->root[j]) = CP(renewed_lane)(CP_PART(r->sum[j]), CP_PART(r->root[j]));
    r->root_bias = CP(renewed_quad)(r->sum_bias, r->root_bias);
}

CP_INLINE void CP(load_rooted)(const cp_sgd *s, CP(rooted_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++) {
        r->v[j] = CP(load)(CP_AT(s, const real, w) + j * CP_LANES);
        r->q[j] = CP(load)(CP_AT(s, const real, prev) + j * CP_LANES);
        r->sum[j] = CP(load)(CP_AT(s, const real, sums) + j * CP_LANES);
        r->root[j] = CP(load)(CP_AT(s, const real, roots) + j * CP_LANES);
    }
    r->bias = CP(all)(*CP_AT(s, const real, bias));
    r->g = CP(all)(*CP_AT(s, const real, g));
    r->h = *CP_AT(s, const real, h);
    r->sum_bias = CP(all)(*CP_AT(s, const real, sum_bias));
    r->root_bias = CP(all)(CP_AT(s, const real, roots)[s->padded]);
}

CP_INLINE void CP(store_rooted)(cp_sgd *s, const CP(rooted_type) *r, const int packs)
{
    for (int j = 0; j < packs; j++) {
        CP(store)(CP_AT(s, real, w) + j * CP_LANES, r->v[j]);
        CP(store)(CP_AT(s, real, prev) + j * CP_LANES, r->q[j]);
        CP(store)(CP_AT(s, real, sums) + j * CP_LANES, r->sum[j]);
        CP(store)(CP_AT(s, real, roots) + j * CP_LANES, r->root[j]);
    }
    *CP_AT(s, real, bias) = r->bias[0];
    *CP_AT(s, real, g) = r->g[0];
    *CP_AT(s, real, h) = r->h;
    *CP_AT(s, real, sum_bias) = r->sum_bias[0];
    CP_AT(s, real, roots)[s->padded] = r->root_bias[0];
}

CP_INLINE int64_t CP(rooted)(cp_sgd *s, const cp_chunk *c, const enum cp_loss loss, const int packs)
{
    CP(rooted_type) r;
    CP(bits_type) keep[CP_LANES];
    pack x[CP_NARROW], t[CP_NARROW], squares = CP(zero)();
    cp_sgd_totals totals = s->totals;
    const int normalized = s->rule == CP_NORMALIZED;
    const quad unit = CP(all)((real)s->intercept), parameter = CP(all)((real)s->parameter);
    double by = s->rate, seen = s->seen, norm = s->norm;
    int64_t i;
    CP(tail_mask)(keep, s->features);
    CP(load_rooted)(s, &r, packs);
    if (normalized)
        CP(load_sizes)(s, r.inv, packs);
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        cp_ask_ahead(c, i, packs);
        CP(load_row)(x, row, keep, packs);
        if (normalized && CP(sized)(r.inv, x, t, &squares, packs)) {
            CP(enlarge_rooted)(s, &r, row, packs);
            CP(sized)(r.inv, x, t, &squares, packs);
        }
        quad m = CP(margin_held)(r.v, r.q, x, r.bias, r.h, r.g, packs);
        if (!CP(is_finite)(m[0]))
            break;
        for (int j = 0; j < packs; j++)
            r.v[j] = CP(subtract_scaled)(r.v[j], r.h, r.q[j]);
        r.bias -= r.g;
        const quad weight = CP(all)((real)(c->weighted ? c->weight[i] : 1));
        point at = CP(formula)(loss, m, CP(all)((real)c->label[i]), weight, parameter);
        if (CP(add_squares)(&r, x, at.slope, packs))
            CP(renew_roots)(&r, packs);
        if (normalized) {
            seen++;
            norm += (double)CP(sum)(squares)[0] + s->intercept;
            by = norm > 0 ? s->rate * sqrt(seen / norm) : s->rate;
        }
        for (int j = 0; j < packs; j++)
            r.q[j] = CP(multiply)(normalized ? t[j] : x[j], r.root[j]);
        r.h = (real)by * at.slope[0];
        r.g = (r.h * r.root_bias) * unit;
        CP(count)(&totals, loss, &at, 0, c->label[i], c->weight[i], s->parameter);
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

#define CP_WIDTH(loss, packs) s->rule == CP_MOMENTS ? CP(moving)(s, c, loss, packs) : CP(rooted)(s, c, loss, packs)
#define CP_WIDTHS(loss) \
    switch (s->padded / CP_LANES) { \
    case 1: return CP_WIDTH(loss, 1); \
    case 2: return CP_WIDTH(loss, 2); \
    case 3: return CP_WIDTH(loss, 3); \
    default: return CP_WIDTH(loss, 4); \
    }

#define CP_COPY(id) static CP_NOINLINE int64_t CP(id##_rooted)(cp_sgd *s, const cp_chunk *c) { CP_WIDTHS(CP_##id) }
CP_COPIES(CP_COPY)
#undef CP_COPY
#undef CP_WIDTHS
static CP_NOINLINE int64_t CP(ANY_rooted)(cp_sgd *s, const cp_chunk *c)
{
    return CP_WIDTH(s->loss, (int)(s->padded / CP_LANES));
}
#undef CP_WIDTH
static CP_NOINLINE int64_t CP(SCORES_rooted)(cp_sgd *s, const cp_chunk *c) { return CP(ruled_rows)(s, c, CP_SOFTMAX); }
