/* Template: sparse rows of one output with a rate for each weight: all that is known of a feature is one record of CP_RECORD
 * reals, its weight v, G and 1 / s (see sgd/rules.h), so that a visit waits for one line of memory. */

/* Load the records of four features, or of two, in vectors of a kind each. */
CP_INLINE void CP(take_records)(const real *const *at, quad *w, quad *sum, quad *inv)
{
    quad a, b, c, d;
#if CP_BYTES == 4
    memcpy(&a, at[0], sizeof a);
    memcpy(&b, at[1], sizeof b);
    memcpy(&c, at[2], sizeof c);
    memcpy(&d, at[3], sizeof d);
    const quad ab = CP_SHUFFLE2(mask, a, b, 0, 4, 1, 5), cd = CP_SHUFFLE2(mask, c, d, 0, 4, 1, 5);
    *w = CP_SHUFFLE2(mask, ab, cd, 0, 1, 4, 5);
    *sum = CP_SHUFFLE2(mask, ab, cd, 2, 3, 6, 7);
    *inv = CP_SHUFFLE2(mask, CP_SHUFFLE2(mask, a, b, 2, 6, 3, 7), CP_SHUFFLE2(mask, c, d, 2, 6, 3, 7), 0, 1, 4, 5);
#else
    memcpy(&a, at[0], sizeof a);
    memcpy(&b, at[1], sizeof b);
    memcpy(&c, at[0] + 2, sizeof c);
    memcpy(&d, at[1] + 2, sizeof d);
    *w = CP_SHUFFLE2(mask, a, b, 0, 2);
    *sum = CP_SHUFFLE2(mask, a, b, 1, 3);
    *inv = CP_SHUFFLE2(mask, c, d, 0, 2);
#endif
}

/* Put weights and sums back. */
CP_INLINE void CP(put_records)(real *const *at, quad w, quad sum)
{
    const size_t both = 2 * sizeof(real);
#if CP_BYTES == 4
    const quad ab = CP_SHUFFLE2(mask, w, sum, 0, 4, 1, 5), cd = CP_SHUFFLE2(mask, w, sum, 2, 6, 3, 7);
    memcpy(at[0], &ab, both);
    memcpy(at[1], (const char *)&ab + both, both);
    memcpy(at[2], &cd, both);
    memcpy(at[3], (const char *)&cd + both, both);
#else
    const quad a = CP_SHUFFLE2(mask, w, sum, 0, 2), b = CP_SHUFFLE2(mask, w, sum, 1, 3);
    memcpy(at[0], &a, both);
    memcpy(at[1], &b, both);
#endif
}

/* Put weights, sums and what is third back. */
CP_INLINE void CP(put_all_records)(real *const *at, quad w, quad sum, quad third)
{
#if CP_BYTES == 4
    const quad ab = CP_SHUFFLE2(mask, w, sum, 0, 4, 1, 5), cd = CP_SHUFFLE2(mask, w, sum, 2, 6, 3, 7), none = {0};
    const quad low = CP_SHUFFLE2(mask, third, none, 0, 4, 1, 5), high = CP_SHUFFLE2(mask, third, none, 2, 6, 3, 7);
    const quad all[CP_QUAD] = {CP_SHUFFLE2(mask, ab, low, 0, 1, 4, 5), CP_SHUFFLE2(mask, ab, low, 2, 3, 6, 7),
                               CP_SHUFFLE2(mask, cd, high, 0, 1, 4, 5), CP_SHUFFLE2(mask, cd, high, 2, 3, 6, 7)};
    for (int l = 0; l < CP_QUAD; l++)
        memcpy(at[l], &all[l], sizeof all[l]);
#else
    CP(put_records)(at, w, sum);
    at[0][2] = third[0];
    at[1][2] = third[1];
#endif
}

/* Return the values of the next features of a row, and where their records are; past its end zeros and no record. */
CP_INLINE quad CP(next_records)(real *v, const int32_t *index, const real *x, int64_t some, real *none, real **at)
{
    quad g = CP(all)(0);
    if (some >= CP_QUAD)
        memcpy(&g, x, sizeof g);
    for (int64_t l = 0; l < CP_QUAD; l++) {
        at[l] = l < some ? v + (int64_t)index[l] * CP_RECORD : none;
        if (some < CP_QUAD && l < some)
            g[l] = x[l];
    }
    return g;
}

typedef struct { real dot, norm; int larger; } CP(seen_type);

/* Return v . x and sum (x / s)^2, and whether a feature is larger than all before. */
CP_INLINE CP(seen_type) CP(see_records)(cp_sgd *s, const int32_t *index, const real *x, int64_t n)
{
    real *v = CP_AT(s, real, w), none[CP_RECORD] = {0}, *at[CP_QUAD];
    quad dot = CP(all)(0), norm = dot, w, sum, inv;
    mask hit = {0};
    uint64_t word[2];
    for (int64_t i = 0; i < n; i += CP_QUAD) {
        const quad g = CP(next_records)(v, index + i, x + i, n - i, none, at);
        CP(take_records)((const real *const *)at, &w, &sum, &inv);
        const quad t = CP(absolute)(g) * inv;
        hit |= (mask)(t > 1) | ((mask)(inv == 0) & (mask)(g != 0));
        dot += g * w;
        norm += t * t;
    }
    memcpy(word, &hit, sizeof word);
    return (CP(seen_type)){CP(sum_quad)(dot)[0], CP(sum_quad)(norm)[0], (word[0] | word[1]) != 0};
}

/* Take a row's features in, and sum v . x in the same walk. Returns sum (x / s)^2. */
CP_INLINE double CP(take_in_records)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, real *dot)
{
    CP(seen_type) seen = CP(see_records)(s, index, x, n);
    for (int64_t i = 0; seen.larger && i < n; i++) /* a row that will be refused leaves no trace */
        seen.larger = CP(is_finite)(x[i]);
    if (seen.larger) {
        CP(enlarge)(s, index, x, n);
        seen = CP(see_records)(s, index, x, n);
    }
    *dot = seen.dot;
    return (double)seen.norm;
}

/* The same of a row, or of a gradient, whose values lie by feature: from its feature i on. */
CP_INLINE quad CP(their_records)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient, int64_t i, real *none,
                                 real **at)
{
    real *v = CP_AT(s, real, w);
    quad g = CP(next_records)(v, index + i, gradient ? none : x + i, gradient ? 0 : n - i, none, at);
    for (int64_t l = 0; gradient && l < CP_QUAD && i + l < n; l++) {
        g[l] = x[index[i + l]];
        at[l] = v + (int64_t)index[i + l] * CP_RECORD;
    }
    return g;
}

/* Move the weights of a row's features by factor * x, or by factor * x[index] of a gradient. */
CP_INLINE void CP(move_records)(cp_sgd *s, const int32_t *index, const real *x, int64_t n, int gradient, real factor, real h,
                                const enum cp_rule rule)
{
    real none[CP_RECORD] = {0}, *at[CP_QUAD];
    quad w, sum, inv;
    for (int64_t i = 0; i < n; i += CP_QUAD) {
        const quad g = CP(their_records)(s, index, x, n, gradient, i, none, at);
        CP(take_records)((const real *const *)at, &w, &sum, &inv);
        w = CP(move_quad)(w, &sum, inv, g * factor, h, rule);
        CP(put_records)(at, w, sum);
    }
}
