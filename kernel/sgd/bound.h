/* Template: the bound of the weights. Where they are longer than it after an update, all outputs together and the intercepts
 * aside, they are scaled down to it: projected onto a ball (Shalev-Shwartz, Singer and Srebro 2007). Weights are scale * v,
 * so that takes one multiplication; the squares of v are summed anew after each dense row, and followed where rows are
 * sparse. There what features owe of L1 counts as unpaid, so that weights are never too long. */

/* Sum v^2 of the features of a sparse row, or of all features of sparse rows. */
CP_INLINE double CP(squares_of)(const cp_sgd *s, const int32_t *index, int64_t n)
{
    const real *v = CP_AT(s, const real, w);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0, at = (index ? index[i] : i) * s->apart; k < s->outputs; k++)
            sum += (double)v[at + k] * (double)v[at + k];
    return sum;
}

/* Sum v^2 anew where it is followed: after all of v changed. */
CP_INLINE void CP(recount)(cp_sgd *s)
{
    if (s->sparse && s->max_norm > 0)
        s->squares = CP(squares_of)(s, NULL, s->features);
}

/* Say that the weights of a sparse row's features are about to change, or have changed. */
CP_INLINE void CP(follow)(cp_sgd *s, const int32_t *index, int64_t n, int sign)
{
    if (index && s->max_norm > 0)
        s->squares += sign * CP(squares_of)(s, index, n);
}

static CP_NOINLINE void CP(settle)(cp_sgd *s);

/* Sum v^2 of dense rows. */
CP_INLINE double CP(squares_dense)(const cp_sgd *s, const CP(bits_type) *keep)
{
    const real *v = CP_AT(s, const real, w);
    double sum = 0;
    for (int64_t k = 0; k < s->outputs; k++)
        sum += (double)CP(dot)(v + k * s->padded, v + k * s->padded, s->padded / CP_LANES, keep);
    return sum;
}

/* Scale down weights that are too long, by the sum of v^2. */
static CP_NOINLINE void CP(keep_within)(cp_sgd *s, double squares)
{
    const double norm = s->scale * sqrt(squares);
    if (!(norm > s->max_norm))
        return;
    s->scale *= s->max_norm / norm;
    s->inverse = 1 / s->scale;
    if (s->scale < 1.0 / (1 << 20)) {
        CP(settle)(s);
        CP(renormalise)(s);
        CP(recount)(s);
    }
}
