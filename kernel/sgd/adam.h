/* Template: Adam (Kingma and Ba 2015), with the penalties decoupled (Loshchilov and Hutter 2019).
 *
 *     m = b1 m + (1 - b1) g;   V = b2 V + (1 - b2) g^2;   w -= rate m / (1 - b1^t) / (sqrt(V / (1 - b2^t)) + e)
 *     w /= 1 + rate l2;   w = sign(w) max(0, |w| - rate l1)
 *
 * with b1 = 0.9, b2 = 0.999, e = 1e-8; t counts updates. Sparse rows age and move what they hold only, as "lazy" Adam does
 * elsewhere: m and V of a feature are those of the updates that it was in, t counts all. V is kept where the other rules of
 * sgd/rules.h keep G, so what is below CP_ADAM_LEAST of m and V may be lost: numbers that nearly vanish would be slow. */

#if CP_BYTES == 4
#define CP_ADAM_LEAST (real)1e-30
#else
#define CP_ADAM_LEAST (real)1e-290
#endif

/* What all weights of an update share: by what gradients are to be multiplied first, the step, e in proportion. */
typedef struct { real factor, h, e; } CP(adam_by);

#define CP_ADAM(vec, name) \
    /* Move weights by a gradient. */ \
    CP_INLINE vec CP(adam_##name)(vec v, vec *m, vec *sum, vec g, const CP(adam_by) by) \
    { \
        g = g * by.factor; \
        *m = (*m * (real)CP_ADAM_B1 + g * (real)(1 - CP_ADAM_B1) + CP_ADAM_LEAST) - CP_ADAM_LEAST; \
        *sum = (*sum * (real)CP_ADAM_B2 + g * g * (real)(1 - CP_ADAM_B2) + CP_ADAM_LEAST) - CP_ADAM_LEAST; \
        /* where V is beyond what numbers can hold this is NaN, so that it is found */ \
        return v - by.h * *m / (*sum * CP(rsqrt_##name)(*sum) + (by.e + (*sum - *sum))); \
    }
CP_ADAM(lane, lane)
CP_ADAM(quad, quad)
#undef CP_ADAM

/* Count an update. Returns the rate with the corrections of both means. */
CP_INLINE double CP(adam_begin)(cp_sgd *s)
{
    s->fade[0] *= CP_ADAM_B1;
    s->fade[1] *= CP_ADAM_B2;
    return s->rate * sqrt(1 - s->fade[1]) / (1 - s->fade[0]);
}

/* Move the weights of one output by factor * x. */
CP_INLINE void CP(adam_output)(cp_sgd *s, int64_t k, const real *x, const CP(adam_by) by, const CP(bits_type) *keep)
{
    const int64_t packs = s->padded / CP_LANES, from = k * s->padded;
    real *v = CP_AT(s, real, w) + from, *means = CP_AT(s, real, means) + from, *sums = CP_AT(s, real, sums) + from;
    const real penalty = (real)s->penalty;
    for (int64_t j = 0; j < packs; j++) {
        const int64_t at = j * CP_LANES;
        pack w = CP(load)(v + at), m = CP(load)(means + at), sum = CP(load)(sums + at), g = CP(row_pack)(x, j, packs, keep);
        CP_EACH CP_PART(w) = CP(adam_lane)(CP_PART(w), &CP_PART(m), &CP_PART(sum), CP_PART(g), by);
        if (penalty > 0)
            CP_EACH CP_PART(w) = CP(soft_lane)(CP_PART(w), penalty);
        CP(store)(v + at, w);
        CP(store)(means + at, m);
        CP(store)(sums + at, sum);
    }
}

/* Move the weights of a sparse row's features, one output. */
CP_INLINE void CP(adam_features)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient, const CP(adam_by) by)
{
    real *v = CP_AT(s, real, w), *means = CP_AT(s, real, means), *sums = CP_AT(s, real, sums);
    for (int64_t i = 0; i < n; i += CP_QUAD) {
        const int64_t some = n - i < CP_QUAD ? n - i : CP_QUAD;
        quad w = CP(all)(0), g = w, m = w, sum = w;
        for (int64_t l = 0; l < some; l++) {
            const int64_t at = (int64_t)index[i + l] * CP_RECORD;
            w[l] = v[at];
            g[l] = x[gradient ? index[i + l] : i + l];
            m[l] = means[at];
            sum[l] = sums[at];
        }
        w = CP(adam_quad)(w, &m, &sum, g, by);
        for (int64_t l = 0; l < some; l++) {
            const int64_t at = (int64_t)index[i + l] * CP_RECORD;
            v[at] = w[l];
            means[at] = m[l];
            sums[at] = sum[l];
        }
    }
}

/* The same of several outputs: by factor[k] * x, or by a gradient. */
CP_INLINE void CP(adam_outputs)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient, const real *factor,
                                CP(adam_by) by)
{
    real *v = CP_AT(s, real, w), *means = CP_AT(s, real, means), *sums = CP_AT(s, real, sums);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0, at = index[i] * s->apart; k < s->padded; k += CP_QUAD) {
            quad w, g, m, sum;
            memcpy(&w, v + at + k, sizeof w);
            memcpy(&g, gradient ? x + index[i] * s->padded + k : factor + k, sizeof g);
            memcpy(&m, means + at + k, sizeof m);
            memcpy(&sum, sums + at + k, sizeof sum);
            by.factor = gradient ? *factor : x[i];
            w = CP(adam_quad)(w, &m, &sum, g, by);
            memcpy(v + at + k, &w, sizeof w);
            memcpy(means + at + k, &m, sizeof m);
            memcpy(sums + at + k, &sum, sizeof sum);
        }
}

CP_INLINE void CP(adam_biases)(cp_sgd *s, const real *slope, const CP(adam_by) by)
{
    real *bias = CP_AT(s, real, bias), *means = CP_AT(s, real, mean_biases), *sums = CP_AT(s, real, sum_bias);
    for (int64_t k = 0; k < s->outputs && s->intercept; k++) {
        quad m = CP(all)(means[k]), sum = CP(all)(sums[k]);
        bias[k] = CP(adam_quad)(CP(all)(bias[k]), &m, &sum, CP(all)(slope[k]), by)[0];
        means[k] = m[0];
        sums[k] = sum[0];
    }
}

/* Update by a dense row (`apart` is 0) or by factor[0] times a gradient; arguments are those of CP(update_dense). */
CP_INLINE void CP(adam_dense)(cp_sgd *s, const real *x, int64_t apart, const real *factor, const real *slope,
                              const CP(bits_type) *keep, real rate, real h)
{
    CP(adam_by) by = {apart ? *factor : 1, rate, (real)(CP_ADAM_E * sqrt(1 - s->fade[1]))};
    CP(adam_biases)(s, slope, by);
    by.h = h;
    for (int64_t k = 0; k < s->outputs; k++) {
        by.factor = factor[apart ? 0 : k];
        CP(adam_output)(s, k, x + k * apart, by, keep);
    }
}

/* The same of a sparse row, or gradient; arguments are those of CP(update_sparse). */
CP_INLINE void CP(adam_sparse)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient, const real *factor,
                               const real *slope, real rate, real h)
{
    CP(adam_by) by = {gradient ? *factor : 1, rate, (real)(CP_ADAM_E * sqrt(1 - s->fade[1]))};
    CP(adam_biases)(s, slope, by);
    by.h = h;
    by.factor = *factor;
    if (s->outputs == 1)
        CP(adam_features)(s, index, x, n, gradient, by);
    else
        CP(adam_outputs)(s, index, x, n, gradient, factor, by);
}
#undef CP_ADAM_LEAST
