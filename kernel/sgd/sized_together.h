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

/* Return whether a feature of a row is larger than all before; sets the sum of their squares as they are sized. What was never
 * seen has the size of CP(load_sizes), or 0. */
CP_INLINE int CP(sized_squares)(const pack *inv, const pack *x, real *sum, const int packs, const int rooted)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    pack squares = CP(zero)();
    for (int j = 0; j < packs; j++)
        CP_EACH {
            const lane a = CP_PART(x[j]) * CP_PART(inv[j]), square = a * a;
            hit[part_] |= (CP(lane_bits))(1 - square);
            if (!rooted)
                hit[part_] |= (CP(lane_bits))(CP_PART(inv[j]) == 0) & (CP(lane_bits))(CP_PART(x[j]) != 0);
            CP_PART(squares) += square;
        }
    CP_EACH hit[part_] &= ~((CP(bits_type))-1 >> 1);
    *sum = CP(sum)(squares)[0];
    return CP(any)(hit);
}

/* Divide a row's features by what each part that visits it divides them by; that of number `left_out` does not. */
CP_INLINE void CP(size_together)(cp_sgd *const *s, company *t, const real *row, const pack *x, int left_out, const int packs,
                                 const int rooted)
{
    for (int p = 0; p < t->parts; p++)
        if (CP(sized_squares)(t->inv[p], x, &t->sized[p], packs, rooted) & (p != left_out)) {
            CP(enlarge_together)(s, t, p, row);
            CP(sized_squares)(t->inv[p], x, &t->sized[p], packs, rooted);
        }
}

/* Count a row. Returns the rates of all models; of those whose features are sized, by how large the rows so far are. */
CP_INLINE doubles CP(rates)(company *t, const double intercept, int left_out, const int normalized)
{
    doubles rates = t->rate, times = {0};
    for (int p = 0; p < t->parts; p++) {
        const double more[] = {(double)t->sized[p] + intercept, 0}; /* without a branch: no one can foretell whose row it is */
        t->seen[p] += p != left_out;
        t->norm[p] += more[p == left_out];
        const double by = normalized && t->norm[p] > 0 ? sqrt(t->seen[p] / t->norm[p]) : 1;
        CP_WIDE times.part[wide_] = (CP(wide_type))((CP(wide_bits))times.part[wide_] | (t->left_out[p].part[wide_] & (CP(wide_bits))(by - (CP(wide_type)){0})));
    }
    if (normalized)
        CP_WIDE rates.part[wide_] *= times.part[wide_];
    return rates;
}
