/* Template: features of rows as several models divide them, each part by the largest that it has seen: CP_NORMALIZED of
 * sgd/rules.h. */

/* Apply what is held back, and make weights smaller whose features are larger than all before, as CP(enlarge_rooted) does: of
 * the models of one part. */
static CP_NOINLINE void CP(enlarge_together)(cp_sgd *const *s, company *t, int p, const real *row)
{
    const real least = CP_BYTES == 4 ? (real)1e-37 : (real)1e-307;
    const real *inv = CP_AT(s[t->first[p]], const real, inv);
    const CP(lane_bits) theirs = t->parts > 1 ? ~t->visitors[p] : ~(CP(lane_bits)){0};
    for (int64_t j = 0; j < t->features; j++)
        if (!CP(is_finite)(row[j]))
            return; /* a row that will be refused leaves no trace */
    t->bias -= CP(those)(theirs, t->g);
    for (int64_t j = 0; j < t->features; j++) {
        const real a = row[j] < 0 ? -row[j] : row[j], times = a * inv[j];
        t->of[j].v -= CP(those)(theirs, t->h * t->of[j].q);
        if (!(times > 1 || (inv[j] == 0 && a > 0)))
            continue;
        if (inv[j] > 0)
            t->of[j].v = CP(either)(theirs, t->of[j].v / times, t->of[j].v);
        for (int k = t->first[p]; k < t->first[p + 1]; k++)
            CP_AT(s[k], real, inv)[j] = 1 / (a > least ? a : least);
    }
    t->g = CP(those)(~theirs, t->g);
    t->h = CP(those)(~theirs, t->h);
    CP(take_sizes)(s, t, p);
}

/* Return the sum of the squares of a row's features as they are sized; `hit` takes signs where one is larger than all before. What
 * was never seen has the size of CP(load_sizes), or 0. */
CP_INLINE real CP(sized_squares)(const pack *inv, const pack *x, CP(lane_bits) *hit, const int packs, const int rooted)
{
    pack squares = CP(zero)();
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const lane a = CP_PART(x[j]) * CP_PART(inv[j]), square = a * a;
            hit[part_] |= (CP(lane_bits))(1 - square);
            if (!rooted)
                hit[part_] |= (CP(lane_bits))(CP_PART(inv[j]) == 0) & (CP(lane_bits))(CP_PART(x[j]) != 0);
            CP_PART(squares) += square;
        }
    return CP(sum)(squares)[0];
}

/* Return whether a sign is set. */
CP_INLINE int CP(any_sign)(CP(lane_bits) *hit)
{
    CP_EACH hit[part_] &= ~((CP(bits_type))-1 >> 1);
    return CP(any)(hit);
}

/* Make the weights of all parts but one smaller whose features are larger than all before, and size the row again. */
static CP_NOINLINE void CP(enlarge_parts)(cp_sgd *const *s, company *t, const real *row, const pack *x, int left_out, const int packs)
{
    for (int p = 0; p < t->parts; p++) {
        CP(lane_bits) hit[CP_PARTS] = {0};
        CP(sized_squares)(t->inv[p], x, hit, packs, s[0]->rooted);
        if (p == left_out || !CP(any_sign)(hit))
            continue;
        CP(enlarge_together)(s, t, p, row);
        CP_MINE(t->sized, p) = (double)CP(sized_squares)(t->inv[p], x, hit, packs, s[0]->rooted);
    }
}

/* Divide a row's features by what each part that visits it divides them by; that of number `left_out` does not. */
CP_INLINE void CP(size_together)(cp_sgd *const *s, company *t, const real *row, const pack *x, int left_out, const int packs,
                                 const int rooted)
{
    CP(lane_bits) all[CP_PARTS] = {0};
    for (int p = 0; p < t->parts; p++) {
        CP(lane_bits) hit[CP_PARTS] = {0};
        CP_MINE(t->sized, p) = (double)CP(sized_squares)(t->inv[p], x, hit, packs, rooted);
        CP_EACH all[part_] |= hit[part_] & ((CP(bits_type))0 - (CP(bits_type))(p != left_out)); /* no one can foretell whose row it is */
    }
    if (CP(any_sign)(all))
        CP(enlarge_parts)(s, t, row, x, left_out, packs);
}

/* The same as below where all models are of one part, and visit the row. */
CP_INLINE doubles CP(rates_of_all)(company *t, const double intercept, const int normalized)
{
    doubles rates = t->rate;
    const double seen = CP_MINE(t->seen, 0) += 1, norm = CP_MINE(t->norm, 0) += CP_MINE(t->sized, 0) + intercept;
    const double by = normalized && norm > 0 ? sqrt(seen / norm) : 1;
    CP_WIDE rates.part[wide_] *= by;
    return rates;
}

/* Count a row. Returns the rates of all models; of those whose features are sized, by how large the rows so far are. */
CP_INLINE doubles CP(rates)(company *t, const double intercept, int left_out, const int normalized)
{
    doubles rates = t->rate, times = {0}, square;
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
        const double by = CP_MINE(t->norm, p) > 0 ? sqrt(CP_MINE(square, p)) : 1;
        const CP(wide_bits) all = (CP(wide_bits))(by - (CP(wide_type)){0});
        CP_WIDE times.part[wide_] = (CP(wide_type))((CP(wide_bits))times.part[wide_] | (t->left_out[p].part[wide_] & all));
    }
    CP_WIDE rates.part[wide_] *= times.part[wide_];
    return rates;
}
