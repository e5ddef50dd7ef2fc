/* Template: Adam (Kingma and Ba 2015), with the penalties decoupled (Loshchilov and Hutter 2019).
 *
 *     m = b1 m + (1 - b1) g;   V = b2 V + (1 - b2) (g^2 + e^2);   w -= rate m / (1 - b1^t) / sqrt(V / (1 - b2^t))
 *     w /= 1 + rate l2;   w = sign(w) max(0, |w| - rate l1)
 *
 * with b1 = 0.9, b2 = 0.999, e = 1e-8; t counts updates. With e among what V is the mean of, its root is never 0, and needs no
 * division. Sparse rows age and move what they hold only, as "lazy" Adam does elsewhere: m and V of a feature are those of the
 * updates that it was in, t counts all. V is kept where the other rules of sgd/rules.h keep G. What is below CP_ADAM_LEAST of m
 * may be lost: numbers that nearly vanish would be slow. Dense rows that stay in registers are in sgd/moving.h. */

#if CP_BYTES == 4
#define CP_ADAM_LEAST (real)1e-30
#else
#define CP_ADAM_LEAST (real)1e-290
#endif
#define CP_ADAM_FLOOR ((real)(CP_ADAM_E * CP_ADAM_E * (1 - CP_ADAM_B2)))

/* What all weights of an update share: by what gradients are to be multiplied first, and the step. */
typedef struct { real factor, h; } CP(adam_by);

#define CP_ADAM(vec, name) \
    /* Let what was before a gradient fade: of the mean of gradients, and of that of their squares. */ \
    CP_INLINE vec CP(faded_##name)(vec m) { return (m * (real)CP_ADAM_B1 + CP_ADAM_LEAST) - CP_ADAM_LEAST; } \
    CP_INLINE vec CP(faded_squares_##name)(vec sum) { return sum * (real)CP_ADAM_B2 + CP_ADAM_FLOOR; } \
    /* Move weights by a gradient. */ \
    CP_INLINE vec CP(adam_##name)(vec v, vec *m, vec *sum, vec g, const CP(adam_by) by) \
    { \
        g = g * by.factor; \
        *m = CP(faded_##name)(*m) + g * (real)(1 - CP_ADAM_B1); \
        g = g * (real)CP_ADAM_ROOT; \
        *sum = CP(faded_squares_##name)(*sum) + g * g; \
        return v - by.h * (*m * CP(rsqrt_##name)(*sum)); \
    }
CP_ADAM(lane, lane)
CP_ADAM(quad, quad)
#undef CP_ADAM

/* Count an update. Returns the rate with the corrections of both means. */
CP_INLINE double CP(adam_begin)(double *fade, double rate)
{
    const double least = 1e-20; /* less is nothing beside 1, and would become slow */
    fade[0] = fade[0] > least ? fade[0] * CP_ADAM_B1 : 0;
    fade[1] = fade[1] > least ? fade[1] * CP_ADAM_B2 : 0;
    return rate * sqrt(1 - fade[1]) / (1 - fade[0]);
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
    real none[CP_RECORD] = {0}, *at[CP_QUAD];
    quad w, sum, m;
    for (int64_t i = 0; i < n; i += CP_QUAD) {
        const quad g = CP(their_records)(s, index, x, n, gradient, i, none, at);
        CP(take_records)((const real *const *)at, &w, &sum, &m);
        w = CP(adam_quad)(w, &m, &sum, g, by);
        CP(put_all_records)(at, w, sum, m);
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
    CP(adam_by) by = {apart ? *factor : 1, rate};
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
    CP(adam_by) by = {gradient ? *factor : 1, rate};
    CP(adam_biases)(s, slope, by);
    by.h = h;
    by.factor = *factor;
    if (s->outputs == 1)
        CP(adam_features)(s, index, x, n, gradient, by);
    else
        CP(adam_outputs)(s, index, x, n, gradient, factor, by);
}
#undef CP_ADAM_LEAST
#undef CP_ADAM_FLOOR
