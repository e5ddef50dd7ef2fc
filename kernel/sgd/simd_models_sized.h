/* Template: features of rows scaled for several models, each fold by the largest values that it has seen: CP_NORMALIZED
 * of sgd/rules.h. */

/* Apply the pending update of one fold's models, and rescale the weights of features that exceed their largest value so
 * far, as CP(enlarge_rooted) does. */
static CP_COLD void CP(enlarge_fold)(cp_sgd *const *s, SCRATCH *t, int p, const REAL *row)
{
    const REAL least = CP_BYTES == 4 ? (REAL)1e-37 : (REAL)1e-307;
    const REAL *inv = CP_AT(s[t->first[p]], const REAL, inv);
    const CP(lane_bits) fold_models = t->parts > 1 ? ~t->visitors[p] : ~(CP(lane_bits)){0};
    for (int64_t j = 0; j < t->features; j++)
        if (!CP(is_finite)(row[j]))
            return; /* a row that will be rejected must not change the state */
    t->bias -= CP(select_models)(fold_models, t->g);
    for (int64_t j = 0; j < t->features; j++) {
        const REAL a = row[j] < 0 ? -row[j] : row[j], times = a * inv[j];
        t->of[j].v -= CP(select_models)(fold_models, t->h * t->of[j].q);
        if (!(times > 1 || (inv[j] == 0 && a > 0)))
            continue;
        if (inv[j] > 0)
            t->of[j].v = CP(choose)(fold_models, t->of[j].v / times, t->of[j].v);
        for (int k = t->first[p]; k < t->first[p + 1]; k++)
            CP_AT(s[k], REAL, inv)[j] = 1 / (a > least ? a : least);
    }
    t->g = CP(select_models)(~fold_models, t->g);
    t->h = CP(select_models)(~fold_models, t->h);
    CP(take_sizes)(s, t, p);
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

/* Rescale the weights of all folds but one for features that exceed their largest value so far, and scale the row
 * again. */
static CP_COLD void CP(enlarge_folds)(cp_sgd *const *s, SCRATCH *t, const REAL *row, const PACK *x, int left_out,
                                          const int packs)
{
    for (int p = 0; p < t->parts; p++) {
        CP(lane_bits) hit[CP_PARTS] = {0};
        CP(sized_squares)(t->inv[p], x, hit, packs, s[0]->rooted);
        if (p == left_out || !CP(any_sign)(hit))
            continue;
        CP(enlarge_fold)(s, t, p, row);
        CP_MODEL_ENTRY(t->sized, p) = (double)CP(sized_squares)(t->inv[p], x, hit, packs, s[0]->rooted);
    }
}

/* Compute the scaled squares of a row for each fold, and rescale weights where needed; fold `left_out` does not visit
 * the row. */
CP_INLINE void CP(size_row)(cp_sgd *const *s, SCRATCH *t, const REAL *row, const PACK *x, int left_out, const int packs,
                            const int rooted)
{
    CP(lane_bits) all[CP_PARTS] = {0};
    for (int p = 0; p < t->parts; p++) {
        CP(lane_bits) hit[CP_PARTS] = {0};
        CP_MODEL_ENTRY(t->sized, p) = (double)CP(sized_squares)(t->inv[p], x, hit, packs, rooted);
        /* branchless: the fold of a row is unpredictable */
        CP_EACH all[part_] |= hit[part_] & ((CP(bits_type))0 - (CP(bits_type))(p != left_out));
    }
    if (CP(any_sign)(all))
        CP(enlarge_folds)(s, t, row, x, left_out, packs);
}

/* Count a row of a single fold that all models visit. Returns their learning rates. */
CP_INLINE DOUBLES CP(rates_of_all)(SCRATCH *t, const double intercept, const int normalized)
{
    DOUBLES rates = t->rate;
    const double seen = CP_MODEL_ENTRY(t->seen, 0) += 1,
                 norm = CP_MODEL_ENTRY(t->norm, 0) += CP_MODEL_ENTRY(t->sized, 0) + intercept;
    const double by = normalized && norm > 0 ? sqrt(seen / norm) : 1;
    CP_WIDE rates.part[wide_] *= by;
    return rates;
}

/* Count a row. Returns the learning rates of all models; if features are scaled, they depend on the scaled size of the
 * rows so far. */
CP_INLINE DOUBLES CP(rates)(SCRATCH *t, const double intercept, int left_out, const int normalized)
{
    DOUBLES rates = t->rate, times = {0}, square;
    if (t->parts == 1 && left_out == 1)
        return CP(rates_of_all)(t, intercept, normalized);
    for (int wide_ = 0; wide_ * (CP_VECTOR / 8) < t->parts; wide_++) {
        const CP(wide_bits) visit = (CP(wide_bits))(t->number.part[wide_] != (uint64_t)left_out);
        t->seen.part[wide_] += (CP(wide_type))(visit & (CP(wide_bits))(1 - (CP(wide_type)){0}));
        t->norm.part[wide_] += (CP(wide_type))(visit & (CP(wide_bits))(t->sized.part[wide_] + intercept));
        square.part[wide_] = t->seen.part[wide_] / t->norm.part[wide_];
    }
    if (!normalized)
        return rates;
    for (int p = 0; p < t->parts; p++) {
        const double by = CP_MODEL_ENTRY(t->norm, p) > 0 ? sqrt(CP_MODEL_ENTRY(square, p)) : 1;
        const CP(wide_bits) all = (CP(wide_bits))(by - (CP(wide_type)){0});
        CP_WIDE times.part[wide_] =
            (CP(wide_type))((CP(wide_bits))times.part[wide_] | (t->left_out[p].part[wide_] & all));
    }
    CP_WIDE rates.part[wide_] *= times.part[wide_];
    return rates;
}
