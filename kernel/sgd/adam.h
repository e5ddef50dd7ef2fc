/* Template: Adam (Kingma and Ba 2015) with decoupled penalties (Loshchilov and Hutter 2019).
 *
 *     m = b1 m + (1 - b1) g;   V = b2 V + (1 - b2) (g^2 + e^2);   w -= rate m / (1 - b1^t) / sqrt(V / (1 - b2^t))
 *     w /= 1 + rate l2;   w = sign(w) max(0, |w| - rate l1)
 *
 * with b1 = 0.9, b2 = 0.999, e = 1e-8; t counts updates. V averages e too, so its root is never 0 and needs no
 * division. Sparse rows age and move only their own features ("lazy" Adam): m and V of a feature cover the updates
 * that contained it, t counts all. V is stored where the other rules of sgd/rules.h store G. Values of m below
 * CP_ADAM_MIN_MEAN may be lost, since denormal numbers are slow. Dense rows that fit in registers are in
 * sgd/moving.h. */

#if CP_BYTES == 4
#define CP_ADAM_MIN_MEAN (REAL)1e-30
#else
#define CP_ADAM_MIN_MEAN (REAL)1e-290
#endif
#define CP_ADAM_FLOOR ((REAL)(CP_ADAM_E * CP_ADAM_E * (1 - CP_ADAM_B2)))

/* Values shared by all weights of an update: the factor of the gradients, and the step. */
typedef struct { REAL factor, h; } CP(adam_by);

#define CP_ADAM(vec, name) \
    /* Return the decayed mean of gradients, and of squared gradients. */ \
    CP_INLINE vec CP(faded_##name)(vec m) { return (m * (REAL)CP_ADAM_B1 + CP_ADAM_MIN_MEAN) - CP_ADAM_MIN_MEAN; } \
    CP_INLINE vec CP(faded_squares_##name)(vec sum) { return sum * (REAL)CP_ADAM_B2 + CP_ADAM_FLOOR; } \
    /* Return weights moved by a gradient. */ \
    CP_INLINE vec CP(adam_##name)(vec v, vec *m, vec *sum, vec g, const CP(adam_by) by) \
    { \
        g = g * by.factor; \
        *m = CP(faded_##name)(*m) + g * (REAL)(1 - CP_ADAM_B1); \
        g = g * (REAL)CP_ADAM_ROOT; \
        *sum = CP(faded_squares_##name)(*sum) + g * g; \
        return v - by.h * (*m * CP(rsqrt_##name)(*sum)); \
    }
CP_ADAM(LANE, lane)
CP_ADAM(QUAD, quad)
#undef CP_ADAM

/* Count an update. Returns the rate with the bias corrections of both means. */
CP_INLINE double CP(adam_begin)(double *fade, double rate)
{
    const double least = 1e-20; /* smaller values vanish next to 1, and denormal ones are slow */
    fade[0] = fade[0] > least ? fade[0] * CP_ADAM_B1 : 0;
    fade[1] = fade[1] > least ? fade[1] * CP_ADAM_B2 : 0;
    return rate * sqrt(1 - fade[1]) / (1 - fade[0]);
}

/* Move the weights of one output by factor * x. */
CP_INLINE void CP(adam_output)(cp_sgd *s, int64_t k, const REAL *x, const CP(adam_by) by, const CP(bits_type) *keep)
{
    const int64_t packs = s->padded / CP_LANES, from = k * s->padded;
    REAL *v = CP_AT(s, REAL, w) + from, *means = CP_AT(s, REAL, means) + from, *sums = CP_AT(s, REAL, sums) + from;
    const REAL penalty = (REAL)s->penalty;
    for (int64_t j = 0; j < packs; j++) {
        const int64_t at = j * CP_LANES;
        PACK w = CP(load)(v + at), m = CP(load)(means + at), sum = CP(load)(sums + at),
             g = CP(row_pack)(x, j, packs, keep);
        CP_EACH CP_PART(w) = CP(adam_lane)(CP_PART(w), &CP_PART(m), &CP_PART(sum), CP_PART(g), by);
        if (penalty > 0)
            CP_EACH CP_PART(w) = CP(soft_lane)(CP_PART(w), penalty);
        CP(store)(v + at, w);
        CP(store)(means + at, m);
        CP(store)(sums + at, sum);
    }
}

/* Move the weights of a sparse row's features, one output. */
CP_INLINE void CP(adam_features)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient,
                                 const CP(adam_by) by)
{
    REAL none[CP_RECORD_REALS] = {0}, *at[CP_QUAD];
    QUAD w, sum, m;
    for (int64_t i = 0; i < n; i += CP_QUAD) {
        const QUAD g = CP(records_of)(s, index, x, n, gradient, i, none, at);
        CP(take_records)((const REAL *const *)at, &w, &sum, &m);
        w = CP(adam_quad)(w, &m, &sum, g, by);
        CP(put_all_records)(at, w, sum, m);
    }
}

/* Move the weights of a sparse row's features, several outputs: by factor[k] * x, or by a gradient. */
CP_INLINE void CP(adam_outputs)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient,
                                const REAL *factor, CP(adam_by) by)
{
    REAL *v = CP_AT(s, REAL, w), *means = CP_AT(s, REAL, means), *sums = CP_AT(s, REAL, sums);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0, at = index[i] * s->stride; k < s->padded; k += CP_QUAD) {
            QUAD w, g, m, sum;
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

CP_INLINE void CP(adam_biases)(cp_sgd *s, const REAL *slope, const CP(adam_by) by)
{
    REAL *bias = CP_AT(s, REAL, bias), *means = CP_AT(s, REAL, mean_biases), *sums = CP_AT(s, REAL, sum_bias);
    for (int64_t k = 0; k < s->outputs && s->intercept; k++) {
        QUAD m = CP(all)(means[k]), sum = CP(all)(sums[k]);
        bias[k] = CP(adam_quad)(CP(all)(bias[k]), &m, &sum, CP(all)(slope[k]), by)[0];
        means[k] = m[0];
        sums[k] = sum[0];
    }
}

/* Update by a dense row or by factor[0] times a gradient; arguments are those of CP(update_dense). */
CP_INLINE void CP(adam_dense)(cp_sgd *s, const REAL *x, int64_t stride, const REAL *factor, const REAL *slope,
                              const CP(bits_type) *keep, REAL rate, REAL h)
{
    CP(adam_by) by = {stride ? *factor : 1, rate};
    CP(adam_biases)(s, slope, by);
    by.h = h;
    for (int64_t k = 0; k < s->outputs; k++) {
        by.factor = factor[stride ? 0 : k];
        CP(adam_output)(s, k, x + k * stride, by, keep);
    }
}

/* Update by a sparse row or a gradient; arguments are those of CP(update_sparse). */
CP_INLINE void CP(adam_sparse)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient,
                               const REAL *factor, const REAL *slope, REAL rate, REAL h)
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
#undef CP_ADAM_MIN_MEAN
#undef CP_ADAM_FLOOR
