/* Template: sparse rows of one output with per-weight learning rates. The state of a feature is one record of
 * CP_RECORD_REALS reals, its weight v, G and 1 / s (see sgd/rules.h), so that a visit waits for one cache line. */

/* Load the records of a quad of features into one vector per field. */
CP_INLINE void CP(take_records)(const REAL *const *at, QUAD *w, QUAD *sum, QUAD *inv)
{
    QUAD a, b, c, d;
#if CP_BYTES == 4
    memcpy(&a, at[0], sizeof a);
    memcpy(&b, at[1], sizeof b);
    memcpy(&c, at[2], sizeof c);
    memcpy(&d, at[3], sizeof d);
    const QUAD ab = CP_SHUFFLE2(MASK, a, b, 0, 4, 1, 5), cd = CP_SHUFFLE2(MASK, c, d, 0, 4, 1, 5);
    *w = CP_SHUFFLE2(MASK, ab, cd, 0, 1, 4, 5);
    *sum = CP_SHUFFLE2(MASK, ab, cd, 2, 3, 6, 7);
    *inv = CP_SHUFFLE2(MASK, CP_SHUFFLE2(MASK, a, b, 2, 6, 3, 7), CP_SHUFFLE2(MASK, c, d, 2, 6, 3, 7), 0, 1, 4, 5);
#else
    memcpy(&a, at[0], sizeof a);
    memcpy(&b, at[1], sizeof b);
    memcpy(&c, at[0] + 2, sizeof c);
    memcpy(&d, at[1] + 2, sizeof d);
    *w = CP_SHUFFLE2(MASK, a, b, 0, 2);
    *sum = CP_SHUFFLE2(MASK, a, b, 1, 3);
    *inv = CP_SHUFFLE2(MASK, c, d, 0, 2);
#endif
}

/* Store weights and sums. */
CP_INLINE void CP(put_records)(REAL *const *at, QUAD w, QUAD sum)
{
    const size_t both = 2 * sizeof(REAL);
#if CP_BYTES == 4
    const QUAD ab = CP_SHUFFLE2(MASK, w, sum, 0, 4, 1, 5), cd = CP_SHUFFLE2(MASK, w, sum, 2, 6, 3, 7);
    memcpy(at[0], &ab, both);
    memcpy(at[1], (const char *)&ab + both, both);
    memcpy(at[2], &cd, both);
    memcpy(at[3], (const char *)&cd + both, both);
#else
    const QUAD a = CP_SHUFFLE2(MASK, w, sum, 0, 2), b = CP_SHUFFLE2(MASK, w, sum, 1, 3);
    memcpy(at[0], &a, both);
    memcpy(at[1], &b, both);
#endif
}

/* Store weights, sums and the third field. */
CP_INLINE void CP(put_all_records)(REAL *const *at, QUAD w, QUAD sum, QUAD third)
{
#if CP_BYTES == 4
    const QUAD ab = CP_SHUFFLE2(MASK, w, sum, 0, 4, 1, 5), cd = CP_SHUFFLE2(MASK, w, sum, 2, 6, 3, 7), none = {0};
    const QUAD low = CP_SHUFFLE2(MASK, third, none, 0, 4, 1, 5), high = CP_SHUFFLE2(MASK, third, none, 2, 6, 3, 7);
    const QUAD all[CP_QUAD] = {CP_SHUFFLE2(MASK, ab, low, 0, 1, 4, 5), CP_SHUFFLE2(MASK, ab, low, 2, 3, 6, 7),
                               CP_SHUFFLE2(MASK, cd, high, 0, 1, 4, 5), CP_SHUFFLE2(MASK, cd, high, 2, 3, 6, 7)};
    for (int l = 0; l < CP_QUAD; l++)
        memcpy(at[l], &all[l], sizeof all[l]);
#else
    CP(put_records)(at, w, sum);
    at[0][2] = third[0];
    at[1][2] = third[1];
#endif
}

/* Return the values of the next features of a row and the addresses of their records; past the row's end, zeros and
 * `none`. */
CP_INLINE QUAD CP(next_records)(REAL *v, const int32_t *index, const REAL *x, int64_t left, REAL *none, REAL **at)
{
    QUAD g = CP(all)(0);
    if (left >= CP_QUAD)
        memcpy(&g, x, sizeof g);
    for (int64_t l = 0; l < CP_QUAD; l++) {
        at[l] = l < left ? v + (int64_t)index[l] * CP_RECORD_REALS : none;
        if (left < CP_QUAD && l < left)
            g[l] = x[l];
    }
    return g;
}

typedef struct { REAL dot, norm; int larger; } CP(seen_type);

/* Return v . x and sum (x / s)^2, and whether a feature exceeds its largest value so far. */
CP_INLINE CP(seen_type) CP(see_records)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n)
{
    REAL *v = CP_AT(s, REAL, w), none[CP_RECORD_REALS] = {0}, *at[CP_QUAD];
    QUAD dot = CP(all)(0), norm = dot, w, sum, inv;
    MASK hit = {0};
    uint64_t word[2];
    for (int64_t i = 0; i < n; i += CP_QUAD) {
        const QUAD g = CP(next_records)(v, index + i, x + i, n - i, none, at);
        CP(take_records)((const REAL *const *)at, &w, &sum, &inv);
        const QUAD t = CP(absolute)(g) * inv;
        hit |= (MASK)(t > 1) | ((MASK)(inv == 0) & (MASK)(g != 0));
        dot += g * w;
        norm += t * t;
    }
    memcpy(word, &hit, sizeof word);
    return (CP(seen_type)){CP(sum_quad)(dot)[0], CP(sum_quad)(norm)[0], (word[0] | word[1]) != 0};
}

/* Update the feature scales from a row that exceeds them, unless it will be rejected, which must not change the state.
 * Returns what CP(see_records) then returns. */
static CP_COLD CP(seen_type) CP(enlarge_records)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n)
{
    int finite = 1;
    for (int64_t i = 0; finite && i < n; i++)
        finite = CP(is_finite)(x[i]);
    if (finite)
        CP(enlarge)(s, index, x, n);
    return CP(see_records)(s, index, x, n);
}

/* Update the feature scales from a row, and sum v . x in the same walk. Returns sum (x / s)^2. */
CP_INLINE double CP(take_in_records)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, REAL *dot)
{
    CP(seen_type) seen = CP(see_records)(s, index, x, n);
    if (seen.larger)
        seen = CP(enlarge_records)(s, index, x, n);
    *dot = seen.dot;
    return (double)seen.norm;
}

/* Return the values and record addresses of the quad from entry i on. A gradient stores its values by feature. */
CP_INLINE QUAD CP(records_of)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient, int64_t i,
                              REAL *none, REAL **at)
{
    REAL *v = CP_AT(s, REAL, w);
    QUAD g = CP(next_records)(v, index + i, gradient ? none : x + i, gradient ? 0 : n - i, none, at);
    for (int64_t l = 0; gradient && l < CP_QUAD && i + l < n; l++) {
        g[l] = x[index[i + l]];
        at[l] = v + (int64_t)index[i + l] * CP_RECORD_REALS;
    }
    return g;
}

/* Move the weights of a row's features by factor * x, or by factor * x[index] of a gradient. */
CP_INLINE void CP(move_records)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, int gradient, REAL factor,
                                REAL h, const enum cp_rule rule)
{
    REAL none[CP_RECORD_REALS] = {0}, *at[CP_QUAD];
    QUAD w, sum, inv;
    for (int64_t i = 0; i < n; i += CP_QUAD) {
        const QUAD g = CP(records_of)(s, index, x, n, gradient, i, none, at);
        CP(take_records)((const REAL *const *)at, &w, &sum, &inv);
        w = CP(move_quad)(w, &sum, inv, g * factor, h, rule);
        CP(put_records)(at, w, sum);
    }
}
