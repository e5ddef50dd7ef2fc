/* Template: how gradients move weights where that takes more than one rate for all: the rules of sgd/steps.h, and L1; Adam is in
 * sgd/adam.h, the bound of weights in sgd/max_norm.h.
 *
 *     ADAPTIVE     G += g^2;  w -= rate g / sqrt(G)                           (Duchi, Hazan and Singer 2011)
 *     NORMALIZED   where |x| > s: w *= s / |x|, s = |x|;  N += sum (x / s)^2;
 *                  G += g^2;  w -= rate sqrt(t / N) g / (s sqrt(G))           (Ross, Mineiro and Langford 2013: NAG)
 *     L2, L1       w /= 1 + r l2;  w = sign(w) max(0, |w| - r l1)           (truncated: Langford, Li and Zhang 2009)
 *
 * with r the rate; of rates for each weight that of a weight whose feature is 1 in all rows, rate / sqrt(sum slope^2), so that
 * the penalty fades as the steps do. One rate for all has w *= 1 - rate l2, as in sgd/sgd.h.
 * G is kept for each weight and intercept (its root may be a little old, see sgd/cached_rsqrt.h), 1 / s for each feature, t counts
 * rows. Sparse rows touch what they hold: features that are not there have no gradient, and owe the penalty until they come or
 * it is settled for all. The weights are those of sgd/state.h, w = scale * v, so what is taken from v is divided by the scale. */

#define CP_RULE(vec, bits, by_type, name) \
    /* Return 1 / sqrt(a) of a >= 0 by basic operations only, within 5e-6, of doubles 4e-11; a large number for 0. */ \
    CP_INLINE vec CP(rsqrt_##name)(vec a) \
    { \
        vec half = a * (real)0.5, y; \
        bits i; \
        memcpy(&i, &a, sizeof i); \
        i = (CP_BYTES == 4 ? (CP(bits_type))0x5f375a86u : (CP(bits_type))0x5fe6eb50c7b537a9ull) - (i >> 1); \
        memcpy(&y, &i, sizeof y); \
        for (int step_ = 0; step_ < (CP_BYTES == 4 ? 2 : 3); step_++) \
            y = y * ((real)1.5 - (half * y) * y); \
        return y; \
    } \
    /* Move weights by a gradient. */ \
    CP_INLINE vec CP(move_##name)(vec v, vec *sum, vec inv, vec g, by_type h, const enum cp_rule rule) \
    { \
        if (rule == CP_SAME) \
            return v - h * g; \
        *sum += g * g; \
        return v - h * ((rule == CP_NORMALIZED ? g * inv : g) * CP(rsqrt_##name)(*sum)); \
    } \
    /* Move weights towards 0, and no further. */ \
    CP_INLINE vec CP(soft_##name)(vec v, by_type by) \
    { \
        vec down = v - by, up = v + by; \
        bits keep = ((bits)(down > 0) & (bits)down) | ((bits)(up < 0) & (bits)up); \
        return (vec)keep; \
    }
CP_RULE(lane, CP(lane_bits), real, lane)
CP_RULE(quad, mask, real, quad)
CP_RULE(lane, CP(lane_bits), lane, each) /* each lane a model, with a step of its own */
#undef CP_RULE

/* Make the weights of features smaller that are larger than all before. */
static CP_NOINLINE void CP(enlarge)(cp_sgd *s, const int32_t *index, const real *x, int64_t n)
{
    const int64_t feature = s->sparse ? s->apart : 1, output = s->sparse ? 1 : s->padded;
    real *inv = CP_AT(s, real, inv), *v = CP_AT(s, real, w);
    const real least = CP_BYTES == 4 ? (real)1e-37 : (real)1e-307;
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = (index ? index[i] : i) * feature;
        const real a = x[i] < 0 ? -x[i] : x[i], t = a * inv[j];
        if (!(t > 1 || (inv[j] == 0 && a > 0)))
            continue;
        for (int64_t k = 0; k < s->outputs && inv[j] > 0; k++)
            v[j + k * output] /= t;
        inv[j] = 1 / (a > least ? a : least);
    }
}

#include "sgd/packed_state.h"

/* Return sum (x / s)^2 of a dense row; `larger` says whether one of its features is larger than all before. */
CP_INLINE real CP(norm_dense)(const cp_sgd *s, const real *x, int *larger)
{
    const real *inv = CP_AT(s, const real, inv);
    const int64_t packs = s->padded / CP_LANES;
    CP(bits_type) keep[CP_LANES];
    CP(lane_bits) hit[CP_PARTS] = {0};
    pack sum = CP(zero)();
    CP(tail_mask)(keep, s->features);
    for (int64_t j = 0; j < packs; j++) {
        pack a = CP(row_pack)(x, j, packs, keep), by = CP(load)(inv + j * CP_LANES);
        CP_EACH {
            lane size = (lane)((CP(lane_bits))CP_PART(a) & ((CP(bits_type))-1 >> 1)), t = size * CP_PART(by);
            hit[part_] |= (CP(lane_bits))(t > 1) | ((CP(lane_bits))(CP_PART(by) == 0) & (CP(lane_bits))(size > 0));
            CP_PART(sum) += t * t;
        }
    }
    *larger = CP(any)(hit);
    return CP(sum)(sum)[0];
}

/* The same of a sparse row. */
CP_INLINE real CP(norm_sparse)(const cp_sgd *s, const int32_t *index, const real *x, int64_t n, int *larger)
{
    const real *inv = CP_AT(s, const real, inv);
    real sum[4] = {0, 0, 0, 0};
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        const real a = x[i] < 0 ? -x[i] : x[i], by = inv[index[i] * s->apart], t = a * by;
        found |= (t > 1) | ((by == 0) & (a > 0));
        sum[i % 4] += t * t;
    }
    *larger = found;
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* Take a row's features in. Returns sum (x / s)^2. */
static CP_NOINLINE double CP(take_in)(cp_sgd *s, const int32_t *index, const real *x, int64_t n)
{
    int larger;
    real norm = index ? CP(norm_sparse)(s, index, x, n, &larger) : CP(norm_dense)(s, x, &larger);
    for (int64_t i = 0; larger && i < n; i++) /* a row that will be refused leaves no trace */
        larger = CP(is_finite)(x[i]);
    if (larger) {
        CP(enlarge)(s, index, x, n);
        norm = index ? CP(norm_sparse)(s, index, x, n, &larger) : CP(norm_dense)(s, x, &larger);
    }
    return (double)norm;
}

/* Pay what features owe of the penalty: those of a row, or all of them. */
static CP_NOINLINE void CP(pay)(cp_sgd *s, const int32_t *index, int64_t n)
{
    real *v = CP_AT(s, real, w);
    double *paid = CP_AT(s, double, paid);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = index ? index[i] : i;
        const real owed = (real)(s->owed - paid[j]);
        paid[j] = s->owed;
        for (int64_t k = 0; k < s->outputs && owed > 0; k++) {
            real *at = v + j * s->apart + k;
            *at = *at > owed ? *at - owed : *at < -owed ? *at + owed : 0;
        }
    }
}

/* Pay all that is owed, so that weights are what they are. */
static CP_NOINLINE void CP(settle)(cp_sgd *s)
{
    if (!(s->owed > 0))
        return;
    CP(pay)(s, NULL, s->features);
    s->owed = 0;
    memset(CP_AT(s, double, paid), 0, (size_t)s->features * sizeof(double));
    CP(recount)(s);
}

/* Say how far penalties reach in an update: as far as a weight whose feature is 1 in all rows, by the slopes so far. */
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

/* Begin an update: take the decay in, and say by what gradients are to be multiplied, of w and of v. */
static CP_NOINLINE void CP(begin_update)(cp_sgd *s, real *rate, real *h)
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
    *rate = (real)by;
    *h = (real)(by * s->inverse);
}

/* Move the weights of one output by factor * x; `x` is a row, or a gradient. */
CP_INLINE void CP(move_dense)(cp_sgd *s, int64_t k, const real *x, real factor, real h, int64_t packs,
                              const CP(bits_type) *keep, const enum cp_rule rule)
{
    real *v = CP_AT(s, real, w) + k * s->padded, *sums = CP_AT(s, real, sums) + k * s->padded;
    const real *inv = CP_AT(s, const real, inv), by = (real)s->penalty;
    for (int64_t j = 0; j < packs; j++) {
        const int64_t at = j * CP_LANES;
        pack w = CP(load)(v + at), g = CP(scale)(CP(row_pack)(x, j, packs, keep), factor), sum = w, one = w;
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
CP_INLINE void CP(move_outputs)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient, const real *factor,
                                real h, const enum cp_rule rule)
{
    real *v = CP_AT(s, real, w), *sums = CP_AT(s, real, sums);
    const real *inv = CP_AT(s, const real, inv);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0, at = index[i] * s->apart; k < s->padded; k += CP_QUAD) {
            const real *grad = x + (gradient ? index[i] * s->padded + k : i);
            quad w, g, sum;
            memcpy(&w, v + at + k, sizeof w);
            memcpy(&g, gradient ? grad : factor + k, sizeof g);
            if (rule != CP_SAME)
                memcpy(&sum, sums + at + k, sizeof sum);
            w = CP(move_quad)(w, &sum, CP(all)(rule == CP_NORMALIZED ? inv[at] : 1), g * (gradient ? *factor : *grad), h, rule);
            memcpy(v + at + k, &w, sizeof w);
            if (rule != CP_SAME)
                memcpy(sums + at + k, &sum, sizeof sum);
        }
}

/* Move the intercepts by factor * slope[k]. */
CP_INLINE void CP(move_biases)(cp_sgd *s, const real *slope, real factor, real rate, const enum cp_rule rule)
{
    real *bias = CP_AT(s, real, bias), *sums = CP_AT(s, real, sum_bias);
    for (int64_t k = 0; k < s->outputs && s->intercept; k++) {
        quad sum = CP(all)(rule == CP_SAME ? 0 : sums[k]), g = CP(all)(slope[k] * factor);
        bias[k] = CP(move_quad)(CP(all)(bias[k]), &sum, CP(all)(1), g, rate, rule)[0];
        if (rule != CP_SAME)
            sums[k] = sum[0];
    }
}

/* Call a function with the rule as a constant. */
#define CP_BY_RULE(call, ...) \
    switch (s->rule) { \
    case CP_SAME: call(__VA_ARGS__, CP_SAME); break; \
    case CP_ADAPTIVE: call(__VA_ARGS__, CP_ADAPTIVE); break; \
    case CP_NORMALIZED: call(__VA_ARGS__, CP_NORMALIZED); break; \
    case CP_MOMENTS: break; \
    }

CP_INLINE void CP(apply_dense)(cp_sgd *s, const real *x, int64_t apart, const real *factor, int64_t packs,
                               const CP(bits_type) *keep, const real *slope, real rate, real h, const enum cp_rule rule)
{
    for (int64_t k = 0; k < s->outputs; k++)
        CP(move_dense)(s, k, x + k * apart, factor[apart ? 0 : k], h, packs, keep, rule);
    CP(move_biases)(s, slope, apart ? *factor : 1, rate, rule);
}

/* Update by a dense row and its slopes; or, where outputs lie `apart`, by factor[0] times a gradient. */
static CP_NOINLINE void CP(update_dense)(cp_sgd *s, const real *x, int64_t apart, const real *factor, const real *slope,
                                         const CP(bits_type) *keep)
{
    real rate, h;
    if (!apart)
        CP(note_slopes)(s, slope);
    CP(begin_update)(s, &rate, &h);
    if (s->rule == CP_MOMENTS)
        CP(adam_dense)(s, x, apart, factor, slope, keep, rate, h);
    CP_BY_RULE(CP(apply_dense), s, x, apart, factor, s->padded / CP_LANES, keep, slope, rate, h)
    if (s->max_norm > 0)
        CP(keep_within)(s, CP(squares_dense)(s, keep));
}

CP_INLINE void CP(apply_sparse)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient, const real *factor,
                                const real *slope, real rate, real h, const enum cp_rule rule)
{
    if (s->apart == 1)
        for (int64_t i = 0; i < n; i++)
            CP_AT(s, real, w)[index[i]] -= h * (x[gradient ? index[i] : i] * *factor);
    else if (s->outputs == 1)
        CP(move_records)(s, index, x, n, gradient, *factor, h, rule);
    else
        CP(move_outputs)(s, index, x, n, gradient, factor, h, rule);
    CP(move_biases)(s, slope, gradient ? *factor : 1, rate, rule);
}

/* Update by a sparse row and its slopes; or by factor[0] times a gradient. */
static CP_NOINLINE void CP(update_sparse)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient,
                                          const real *factor, const real *slope)
{
    real rate, h;
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
    const real mean = (real)(1 / (double)s->held);
    real *grad = CP_AT(s, real, grad), *grad_bias = CP_AT(s, real, grad_bias);
    const int32_t *list = CP_AT(s, const int32_t, list);
    CP(bits_type) keep[CP_LANES];
    if (s->sparse) {
        CP(update_sparse)(s, list, grad, s->touched, 1, &mean, grad_bias);
        for (int64_t i = 0; i < s->touched; i++)
            memset(grad + list[i] * s->padded, 0, (size_t)s->padded * sizeof(real));
    } else {
        CP(tail_mask)(keep, s->features);
        CP(update_dense)(s, grad, s->padded, &mean, grad_bias, keep);
        memset(grad, 0, (size_t)(s->outputs * s->padded) * sizeof(real));
    }
    memset(grad_bias, 0, (size_t)s->outputs * sizeof(real));
}

/* What is to be done before a row is scored; a sparse row of one output is, where its features are taken in. */
CP_INLINE double CP(ready)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, real *score)
{
    double norm;
    CP(follow)(s, index, n, -1);
    if (s->sparse && s->l1 > 0)
        CP(pay)(s, index, n);
    if (s->sparse && s->rule == CP_NORMALIZED && s->outputs == 1) {
        norm = CP(take_in_records)(s, index, x, n, score);
        *score = (real)s->scale * *score + *CP_AT(s, const real, bias);
    } else
        norm = s->rule == CP_NORMALIZED ? CP(take_in)(s, index, x, n) : 0;
    CP(follow)(s, index, n, 1);
    return norm;
}

/* Turn scores into slopes and count the row. Returns 0 where one is not finite. */
CP_INLINE int CP(judge)(cp_sgd *s, real *score, double label, double w, real *slope, const enum cp_loss loss)
{
    if (cp_loss_per_class(loss))
        return CP(per_class)(s, score, (int64_t)label, w, 1, slope);
    if (!CP(is_finite)(*score))
        return 0;
    point at = CP(formula)(loss, CP(all)(*score), CP(all)((real)label), CP(all)((real)w),
                           CP(all)((real)s->parameter));
    *slope = at.slope[0];
    CP(count)(&s->totals, loss, &at, 0, label, w, s->parameter);
    return 1;
}

/* One update a row, dense. */
CP_INLINE int64_t CP(ruled_rows)(cp_sgd *s, const cp_chunk *c, const enum cp_loss loss)
{
    const int64_t packs = s->padded / CP_LANES;
    real *v = CP_AT(s, real, w), *bias = CP_AT(s, real, bias), *score = CP_AT(s, real, work), *slope = CP_AT(s, real, g);
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s->features);
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        cp_ask_ahead(c, i, c->lines);
        const double norm = CP(ready)(s, NULL, row, s->features, score);
        for (int64_t k = 0; k < s->outputs; k++)
            score[k] = (real)s->scale * CP(dot)(v + k * s->padded, row, packs, keep) + bias[k];
        if (!CP(judge)(s, score, c->label[i], c->weight[i], slope, loss))
            break;
        CP(took)(s, norm);
        CP(update_dense)(s, row, 0, slope, slope, keep);
    }
    memset(slope, 0, (size_t)s->outputs * sizeof(real));
    return i;
}

#define CP_COPY(id) \
    static CP_NOINLINE int64_t CP(id##_ruled)(cp_sgd *s, const cp_chunk *c) { return CP(ruled_rows)(s, c, CP_##id); }
CP_COPIES(CP_COPY)
#undef CP_COPY
static CP_NOINLINE int64_t CP(ANY_ruled)(cp_sgd *s, const cp_chunk *c) { return CP(ruled_rows)(s, c, s->loss); }
static CP_NOINLINE int64_t CP(SCORES_ruled)(cp_sgd *s, const cp_chunk *c) { return CP(ruled_rows)(s, c, CP_SOFTMAX); }
