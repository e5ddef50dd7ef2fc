/* Template: update rules beyond one learning rate for all weights: those of sgd/steps.h, and L1. Adam is in sgd/adam.h,
 * max norm in sgd/max_norm.h.
 *
 *     ADAPTIVE     G += g^2;  w -= rate g / sqrt(G)                           (Duchi, Hazan and Singer 2011)
 *     NORMALIZED   where |x| > s: w *= s / |x|, s = |x|;  N += sum (x / s)^2;
 *                  G += g^2;  w -= rate sqrt(t / N) g / (s sqrt(G))           (Ross, Mineiro and Langford 2013: NAG)
 *     L2, L1       w /= 1 + r l2;  w = sign(w) max(0, |w| - r l1)           (truncated: Langford, Li and Zhang 2009)
 *
 * Here r is the learning rate. With per-weight rates, r is that of a weight whose feature is always 1, rate / sqrt(sum
 * slope^2), so that the penalty decays as the steps do. One rate for all uses w *= 1 - rate l2, as in sgd/sgd.h.
 *
 * G is stored per weight and intercept (its root may lag, see sgd/cached_rsqrt.h), 1 / s per feature; t counts rows.
 * Sparse rows touch only their own features: absent features have no gradient and owe the penalty until they appear or
 * all debts are settled. Weights are those of sgd/state.h, w = scale * v, so updates of v are divided by the scale. */

#define CP_RULE(vec, bits, by_type, name) \
    /* Return 1 / sqrt(a) for a >= 0, within 5e-6 (doubles 4e-11), by basic operations only; a large number for 0. */ \
    CP_INLINE vec CP(rsqrt_##name)(vec a) \
    { \
        vec half = a * (REAL)0.5, y; \
        bits i; \
        memcpy(&i, &a, sizeof i); \
        i = (CP_BYTES == 4 ? (CP(bits_type))0x5f375a86u : (CP(bits_type))0x5fe6eb50c7b537a9ull) - (i >> 1); \
        memcpy(&y, &i, sizeof y); \
        for (int step_ = 0; step_ < (CP_BYTES == 4 ? 2 : 3); step_++) \
            y = y * ((REAL)1.5 - (half * y) * y); \
        return y; \
    } \
    /* Return weights moved by a gradient. */ \
    CP_INLINE vec CP(move_##name)(vec v, vec *sum, vec inv, vec g, by_type h, const enum cp_rule rule) \
    { \
        if (rule == CP_SAME) \
            return v - h * g; \
        *sum += g * g; \
        return v - h * ((rule == CP_NORMALIZED ? g * inv : g) * CP(rsqrt_##name)(*sum)); \
    } \
    /* Return weights moved towards 0, at most to it. */ \
    CP_INLINE vec CP(soft_##name)(vec v, by_type by) \
    { \
        vec down = v - by, up = v + by; \
        bits keep = ((bits)(down > 0) & (bits)down) | ((bits)(up < 0) & (bits)up); \
        return (vec)keep; \
    }
CP_RULE(LANE, CP(lane_bits), REAL, lane)
CP_RULE(QUAD, MASK, REAL, quad)
CP_RULE(LANE, CP(lane_bits), LANE, each) /* each lane a model with its own step */
#undef CP_RULE

/* Rescale the weights of features that exceed their largest value so far. */
static CP_COLD void CP(enlarge)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n)
{
    const int64_t feature = s->sparse ? s->stride : 1, output = s->sparse ? 1 : s->padded;
    REAL *inv = CP_AT(s, REAL, inv), *v = CP_AT(s, REAL, w);
    const REAL least = CP_BYTES == 4 ? (REAL)1e-37 : (REAL)1e-307;
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = (index ? index[i] : i) * feature;
        const REAL a = x[i] < 0 ? -x[i] : x[i], t = a * inv[j];
        if (!(t > 1 || (inv[j] == 0 && a > 0)))
            continue;
        for (int64_t k = 0; k < s->outputs && inv[j] > 0; k++)
            v[j + k * output] /= t;
        inv[j] = 1 / (a > least ? a : least);
    }
}

#include "sgd/packed_state.h"

/* Return sum (x / s)^2 of a dense row; `larger` is set if a feature exceeds its largest value so far. */
CP_INLINE REAL CP(norm_dense)(const cp_sgd *s, const REAL *x, int *larger)
{
    const REAL *inv = CP_AT(s, const REAL, inv);
    const int64_t packs = s->padded / CP_LANES;
    CP(bits_type) keep[CP_LANES];
    CP(lane_bits) hit[CP_PARTS] = {0};
    PACK sum = CP(zero)();
    CP(tail_mask)(keep, s->features);
    for (int64_t j = 0; j < packs; j++) {
        PACK a = CP(row_pack)(x, j, packs, keep), by = CP(load)(inv + j * CP_LANES);
        CP_EACH {
            LANE size = (LANE)((CP(lane_bits))CP_PART(a) & ((CP(bits_type))-1 >> 1)), t = size * CP_PART(by);
            hit[part_] |= (CP(lane_bits))(t > 1) | ((CP(lane_bits))(CP_PART(by) == 0) & (CP(lane_bits))(size > 0));
            CP_PART(sum) += t * t;
        }
    }
    *larger = CP(any)(hit);
    return CP(sum)(sum)[0];
}

/* Return sum (x / s)^2 of a sparse row; `larger` is set if a feature exceeds its largest value so far. */
CP_INLINE REAL CP(norm_sparse)(const cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int *larger)
{
    const REAL *inv = CP_AT(s, const REAL, inv);
    REAL sum[4] = {0, 0, 0, 0};
    int exceeded = 0;
    for (int64_t i = 0; i < n; i++) {
        const REAL a = x[i] < 0 ? -x[i] : x[i], by = inv[index[i] * s->stride], t = a * by;
        exceeded |= (t > 1) | ((by == 0) & (a > 0));
        sum[i % 4] += t * t;
    }
    *larger = exceeded;
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* Update the feature scales from a row. Returns sum (x / s)^2. */
static CP_NOINLINE double CP(take_in)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n)
{
    int larger;
    REAL norm = index ? CP(norm_sparse)(s, index, x, n, &larger) : CP(norm_dense)(s, x, &larger);
    for (int64_t i = 0; larger && i < n; i++) /* a row that will be rejected must not change the state */
        larger = CP(is_finite)(x[i]);
    if (larger) {
        CP(enlarge)(s, index, x, n);
        norm = index ? CP(norm_sparse)(s, index, x, n, &larger) : CP(norm_dense)(s, x, &larger);
    }
    return (double)norm;
}

/* Apply the L1 penalty owed by a row's features, or by all of them. */
static CP_NOINLINE void CP(pay)(cp_sgd *s, const int32_t *index, int64_t n)
{
    REAL *v = CP_AT(s, REAL, w);
    double *paid = CP_AT(s, double, paid);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = index ? index[i] : i;
        const REAL owed = (REAL)(s->owed - paid[j]);
        paid[j] = s->owed;
        for (int64_t k = 0; k < s->outputs && owed > 0; k++) {
            REAL *at = v + j * s->stride + k;
            *at = *at > owed ? *at - owed : *at < -owed ? *at + owed : 0;
        }
    }
}

/* Apply all penalties owed, so that the weights are final. */
static CP_COLD void CP(settle)(cp_sgd *s)
{
    if (!(s->owed > 0))
        return;
    CP(pay)(s, NULL, s->features);
    s->owed = 0;
    memset(CP_AT(s, double, paid), 0, (size_t)s->features * sizeof(double));
    CP(recount)(s);
}

/* Return the rate of penalties in an update: that of a weight whose feature is always 1, by the slopes so far. */
CP_INLINE double CP(reach)(cp_sgd *s, double rate)
{
    if (s->rule == CP_SAME || s->rule == CP_MOMENTS || !(s->l1 > 0 || s->l2 > 0))
        return rate;
    s->slopes += s->open / (double)((s->held ? s->held : 1) * s->outputs);
    s->open = 0;
    rate = s->slopes > 0 ? rate / sqrt(s->slopes) : 0;
    s->undecay = 1 + rate * s->l2;
    s->decay = 1 / s->undecay;
    return rate;
}

#include "sgd/adam.h"

/* Begin an update: apply the decay, and return the factors of gradients, for w and for v. */
static CP_NOINLINE void CP(begin_update)(cp_sgd *s, REAL *rate, REAL *h)
{
    double by = s->rate, reach;
    if (s->rule == CP_NORMALIZED && s->norm > 0)
        by *= sqrt(s->seen / s->norm);
    reach = CP(reach)(s, by);
    if (s->rule == CP_MOMENTS)
        by = CP(adam_begin)(s->fade, s->rate);
    if (s->decay != 1 && CP(decay)(s)) {
        CP(settle)(s);
        CP(renormalise)(s);
        CP(recount)(s);
    }
    s->penalty = reach * s->l1 * s->inverse;
    if (s->sparse)
        s->owed += s->penalty;
    *rate = (REAL)by;
    *h = (REAL)(by * s->inverse);
}

/* Move the weights of one output by factor * x; `x` is a row or a gradient. */
CP_INLINE void CP(move_dense)(cp_sgd *s, int64_t k, const REAL *x, REAL factor, REAL h, int64_t packs,
                              const CP(bits_type) *keep, const enum cp_rule rule)
{
    REAL *v = CP_AT(s, REAL, w) + k * s->padded, *sums = CP_AT(s, REAL, sums) + k * s->padded;
    const REAL *inv = CP_AT(s, const REAL, inv), by = (REAL)s->penalty;
    for (int64_t j = 0; j < packs; j++) {
        const int64_t at = j * CP_LANES;
        PACK w = CP(load)(v + at), g = CP(scale)(CP(row_pack)(x, j, packs, keep), factor), sum = w, one = w;
        if (rule != CP_SAME)
            sum = CP(load)(sums + at);
        if (rule == CP_NORMALIZED)
            one = CP(load)(inv + at);
        CP_EACH CP_PART(w) = CP(move_lane)(CP_PART(w), &CP_PART(sum), CP_PART(one), CP_PART(g), h, rule);
        if (by > 0)
            CP_EACH CP_PART(w) = CP(soft_lane)(CP_PART(w), by);
        if (rule != CP_SAME)
            CP(store)(sums + at, sum);
        CP(store)(v + at, w);
    }
}

/* Move the weights of a sparse row's features: by factor[k] * x, or by factor[0] * x[index][k] of a gradient. */
CP_INLINE void CP(move_outputs)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient,
                                const REAL *factor, REAL h, const enum cp_rule rule)
{
    REAL *v = CP_AT(s, REAL, w), *sums = CP_AT(s, REAL, sums);
    const REAL *inv = CP_AT(s, const REAL, inv);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0, at = index[i] * s->stride; k < s->padded; k += CP_QUAD) {
            const REAL *grad = x + (gradient ? index[i] * s->padded + k : i);
            QUAD w, g, sum;
            memcpy(&w, v + at + k, sizeof w);
            memcpy(&g, gradient ? grad : factor + k, sizeof g);
            if (rule != CP_SAME)
                memcpy(&sum, sums + at + k, sizeof sum);
            w = CP(move_quad)(w, &sum, CP(all)(rule == CP_NORMALIZED ? inv[at] : 1), g * (gradient ? *factor : *grad),
                              h, rule);
            memcpy(v + at + k, &w, sizeof w);
            if (rule != CP_SAME)
                memcpy(sums + at + k, &sum, sizeof sum);
        }
}

/* Move the intercepts by factor * slope[k]. */
CP_INLINE void CP(move_biases)(cp_sgd *s, const REAL *slope, REAL factor, REAL rate, const enum cp_rule rule)
{
    REAL *bias = CP_AT(s, REAL, bias), *sums = CP_AT(s, REAL, sum_bias);
    for (int64_t k = 0; k < s->outputs && s->intercept; k++) {
        QUAD sum = CP(all)(rule == CP_SAME ? 0 : sums[k]), g = CP(all)(slope[k] * factor);
        bias[k] = CP(move_quad)(CP(all)(bias[k]), &sum, CP(all)(1), g, rate, rule)[0];
        if (rule != CP_SAME)
            sums[k] = sum[0];
    }
}

/* Call a function with the rule as a compile-time constant. */
#define CP_BY_RULE(call, ...) \
    switch (s->rule) { \
    case CP_SAME: call(__VA_ARGS__, CP_SAME); break; \
    case CP_ADAPTIVE: call(__VA_ARGS__, CP_ADAPTIVE); break; \
    case CP_NORMALIZED: call(__VA_ARGS__, CP_NORMALIZED); break; \
    case CP_MOMENTS: break; \
    }

CP_INLINE void CP(apply_dense)(cp_sgd *s, const REAL *x, int64_t stride, const REAL *factor, int64_t packs,
                               const CP(bits_type) *keep, const REAL *slope, REAL rate, REAL h, const enum cp_rule rule)
{
    for (int64_t k = 0; k < s->outputs; k++)
        CP(move_dense)(s, k, x + k * stride, factor[stride ? 0 : k], h, packs, keep, rule);
    CP(move_biases)(s, slope, stride ? *factor : 1, rate, rule);
}

/* Update by a dense row and its slopes, or by factor[0] times a gradient.
 * `stride`: the distance between the outputs of a gradient, 0 for a row. */
static CP_NOINLINE void CP(update_dense)(cp_sgd *s, const REAL *x, int64_t stride, const REAL *factor,
                                         const REAL *slope, const CP(bits_type) *keep)
{
    REAL rate, h;
    if (!stride)
        CP(note_slopes)(s, slope);
    CP(begin_update)(s, &rate, &h);
    if (s->rule == CP_MOMENTS)
        CP(adam_dense)(s, x, stride, factor, slope, keep, rate, h);
    CP_BY_RULE(CP(apply_dense), s, x, stride, factor, s->padded / CP_LANES, keep, slope, rate, h)
    if (s->max_norm > 0)
        CP(keep_within)(s, CP(squares_dense)(s, keep));
}

CP_INLINE void CP(apply_sparse)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient,
                                const REAL *factor, const REAL *slope, REAL rate, REAL h, const enum cp_rule rule)
{
    if (s->stride == 1)
        for (int64_t i = 0; i < n; i++)
            CP_AT(s, REAL, w)[index[i]] -= h * (x[gradient ? index[i] : i] * *factor);
    else if (s->outputs == 1)
        CP(move_records)(s, index, x, n, gradient, *factor, h, rule);
    else
        CP(move_outputs)(s, index, x, n, gradient, factor, h, rule);
    CP(move_biases)(s, slope, gradient ? *factor : 1, rate, rule);
}

/* Update by a sparse row and its slopes; or by factor[0] times a gradient. */
static CP_NOINLINE void CP(update_sparse)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient,
                                          const REAL *factor, const REAL *slope)
{
    REAL rate, h;
    if (!gradient)
        CP(note_slopes)(s, slope);
    CP(begin_update)(s, &rate, &h);
    CP(follow)(s, index, n, -1);
    if (s->rule == CP_MOMENTS)
        CP(adam_sparse)(s, index, x, n, gradient, factor, slope, rate, h);
    CP_BY_RULE(CP(apply_sparse), s, index, x, n, gradient, factor, slope, rate, h)
    CP(follow)(s, index, n, 1);
    if (s->max_norm > 0)
        CP(keep_within)(s, s->squares);
}
#undef CP_BY_RULE

/* Update by the open batch: the mean of its gradients. */
static CP_NOINLINE void CP(update_batch)(cp_sgd *s)
{
    const REAL mean = (REAL)(1 / (double)s->held);
    REAL *grad = CP_AT(s, REAL, grad), *grad_bias = CP_AT(s, REAL, grad_bias);
    const int32_t *list = CP_AT(s, const int32_t, list);
    CP(bits_type) keep[CP_LANES];
    if (s->sparse) {
        CP(update_sparse)(s, list, grad, s->touched, 1, &mean, grad_bias);
        for (int64_t i = 0; i < s->touched; i++)
            memset(grad + list[i] * s->padded, 0, (size_t)s->padded * sizeof(REAL));
    } else {
        CP(tail_mask)(keep, s->features);
        CP(update_dense)(s, grad, s->padded, &mean, grad_bias, keep);
        memset(grad, 0, (size_t)(s->outputs * s->padded) * sizeof(REAL));
    }
    memset(grad_bias, 0, (size_t)s->outputs * sizeof(REAL));
}

/* Prepare the state for a row before it is scored. A sparse row of one output is also scored, since CP(take_in_records)
 * reads its weights. */
CP_INLINE double CP(ready)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, REAL *score)
{
    double norm;
    CP(follow)(s, index, n, -1);
    if (s->sparse && s->l1 > 0)
        CP(pay)(s, index, n);
    if (s->sparse && s->rule == CP_NORMALIZED && s->outputs == 1) {
        norm = CP(take_in_records)(s, index, x, n, score);
        *score = (REAL)s->scale * *score + *CP_AT(s, const REAL, bias);
    } else
        norm = s->rule == CP_NORMALIZED ? CP(take_in)(s, index, x, n) : 0;
    CP(follow)(s, index, n, 1);
    return norm;
}

/* Turn scores into slopes and add the row to the totals. Returns 0 if a score is not finite. */
CP_INLINE int CP(slopes_of_row)(cp_sgd *s, REAL *score, double label, double w, REAL *slope, int per_class)
{
    if (per_class)
        return CP(per_class)(s, score, (int64_t)label, w, 1, slope);
    if (!CP(is_finite)(*score))
        return 0;
    *slope = CP(slope)(&s->totals, s->loss, CP(all)(*score), CP(all)((REAL)w), label, w, s->parameter)[0];
    return 1;
}

/* Learn from dense rows, one update per row. */
CP_INLINE int64_t CP(ruled_rows)(cp_sgd *s, const cp_chunk *c, const int per_class)
{
    const int64_t packs = s->padded / CP_LANES;
    REAL *v = CP_AT(s, REAL, w), *bias = CP_AT(s, REAL, bias), *score = CP_AT(s, REAL, work),
         *slope = CP_AT(s, REAL, g);
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s->features);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        cp_prefetch_rows(c, i, c->lines);
        const double norm = CP(ready)(s, NULL, row, s->features, score);
        for (int64_t k = 0; k < s->outputs; k++)
            score[k] = (REAL)s->scale * CP(dot)(v + k * s->padded, row, packs, keep) + bias[k];
        if (!CP(slopes_of_row)(s, score, c->label[i], c->weight[i], slope, per_class))
            break;
        CP(took)(s, norm);
        CP(update_dense)(s, row, 0, slope, slope, keep);
    }
    memset(slope, 0, (size_t)s->outputs * sizeof(REAL));
    return i;
}

static CP_NOINLINE int64_t CP(ruled_margins)(cp_sgd *s, const cp_chunk *c) { return CP(ruled_rows)(s, c, 0); }
static CP_NOINLINE int64_t CP(ruled_scores)(cp_sgd *s, const cp_chunk *c) { return CP(ruled_rows)(s, c, 1); }
