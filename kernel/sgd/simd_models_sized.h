/* Template: features of rows scaled for several models by the largest values that they have seen: CP_NORMALIZED of
 * sgd/rules.h. */

/* Apply the pending update, and rescale the weights of features that exceed their largest value so far, as
 * CP(enlarge_rooted) does. */
static CP_COLD void CP(enlarge_models)(cp_sgd *const *s, SCRATCH *t, const REAL *row)
{
    const REAL least = CP_BYTES == 4 ? (REAL)1e-37 : (REAL)1e-307;
    const REAL *inv = CP_AT(s[0], const REAL, inv);
    for (int64_t j = 0; j < t->features; j++)
        if (!CP(is_finite)(row[j]))
            return; /* a row that will be rejected must not change the state */
    t->bias -= t->g;
    for (int64_t j = 0; j < t->features; j++) {
        const REAL a = row[j] < 0 ? -row[j] : row[j], times = a * inv[j];
        t->of[j].v -= t->h * t->of[j].q;
        if (!(times > 1 || (inv[j] == 0 && a > 0)))
            continue;
        if (inv[j] > 0)
            t->of[j].v /= times;
        for (int k = 0; k < t->count; k++)
            CP_AT(s[k], REAL, inv)[j] = 1 / (a > least ? a : least);
    }
    t->g = t->h = CP(lanes)(0);
    CP(take_sizes)(s, t);
}

/* Return the sum of squares of a row's scaled features; `hit` gets sign bits where a feature exceeds its largest value
 * so far. A feature not seen yet has the scale of CP(load_sizes), or 0. */
CP_INLINE REAL CP(sized_squares)(const PACK *inv, const PACK *x, CP(lane_bits) *hit, const int packs, const int rooted)
{
    PACK squares = CP(zero)();
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const LANE a = CP_PART(x[j]) * CP_PART(inv[j]), square = a * a;
            hit[part_] |= (CP(lane_bits))(1 - square);
            if (!rooted)
                hit[part_] |= (CP(lane_bits))(CP_PART(inv[j]) == 0) & (CP(lane_bits))(CP_PART(x[j]) != 0);
            CP_PART(squares) += square;
        }
    return CP(sum)(squares)[0];
}

/* Return whether a sign bit is set. */
CP_INLINE int CP(any_sign)(CP(lane_bits) *hit)
{
    CP_EACH hit[part_] &= ~((CP(bits_type))-1 >> 1);
    return CP(any)(hit);
}

/* Compute the scaled squares of a row, and rescale weights where needed. */
CP_INLINE void CP(size_row)(cp_sgd *const *s, SCRATCH *t, const REAL *row, const PACK *x, const int packs,
                            const int rooted)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    t->sized = (double)CP(sized_squares)(t->inv, x, hit, packs, rooted);
    if (CP(any_sign)(hit)) {
        CP(enlarge_models)(s, t, row);
        t->sized = (double)CP(sized_squares)(t->inv, x, hit, packs, rooted);
    }
}

/* Count a row. Returns the learning rates of all models; if features are scaled, they depend on the scaled size of the
 * rows so far. */
CP_INLINE DOUBLES CP(rates)(SCRATCH *t, const double intercept, const int normalized)
{
    DOUBLES rates = t->rate;
    t->seen += 1;
    t->norm += t->sized + intercept;
    const double by = normalized && t->norm > 0 ? sqrt(t->seen / t->norm) : 1;
    CP_WIDE rates.part[wide_] *= by;
    return rates;
}
