/* Template: the bound of the weights. Where they are longer than it after an update, all outputs together and the intercepts
 * aside, they are scaled down to it: projected onto a ball (Shalev-Shwartz, Singer and Srebro 2007). Weights are scale * v,
 * so that takes one multiplication. The sum of v^2 is followed: with one rate for all and no L1 an update h x makes it
 *
 *     |v - h x|^2 = |v|^2 + h (h |x|^2 - 2 v . x),
 *
 * of which v . x is known, and it is summed anew every s->recount rows; of other rules by the features of a sparse row before and
 * after, or anew after a dense one. What sparse features owe of L1 counts as unpaid, so that weights are never too long. */

/* Follow an update h x of v, and scale weights down that are too long then. Returns whether they were. */
CP_INLINE int CP(bind)(cp_sgd *s, real h, real vx, real xx)
{
    s->squares += (double)h * ((double)h * (double)xx - 2 * (double)vx);
    if (s->squares * (s->scale * s->scale) <= s->max_norm * s->max_norm)
        return 0;
    if (s->squares - s->squares != 0) { /* beyond what numbers can hold, or of a row that taught nothing: look at v itself */
        s->counted = s->recount;
        return 0;
    }
    s->scale = s->max_norm / sqrt(s->squares);
    s->inverse = 1 / s->scale;
    return 1;
}

/* Count an update that is about to be followed. Returns whether v^2 is to be summed anew before. */
CP_INLINE int CP(counts)(cp_sgd *s)
{
    if (s->counted++ < s->recount)
        return 0;
    s->counted = 1;
    return 1;
}

CP_INLINE real CP(squares_of_packs)(const pack *a, int packs)
{
    pack sum = CP(multiply)(a[0], a[0]);
    for (int j = 1; j < packs; j++)
        sum = CP(add_product)(sum, a[j], a[j]);
    return CP(sum)(sum)[0];
}

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

/* Sum v^2 of dense rows. */
CP_INLINE double CP(squares_dense)(const cp_sgd *s, const CP(bits_type) *keep)
{
    const real *v = CP_AT(s, const real, w);
    double sum = 0;
    for (int64_t k = 0; k < s->outputs; k++)
        sum += (double)CP(dot)(v + k * s->padded, v + k * s->padded, s->padded / CP_LANES, keep);
    return sum;
}

/* Sum v^2 anew where it is followed: after all of v changed. */
CP_INLINE void CP(recount)(cp_sgd *s)
{
    CP(bits_type) keep[CP_LANES];
    CP(tail_mask)(keep, s->features);
    if (s->max_norm > 0)
        s->squares = s->sparse ? CP(squares_of)(s, NULL, s->features) : CP(squares_dense)(s, keep);
}

/* Say that the weights of a sparse row's features are about to change, or have changed. */
CP_INLINE void CP(follow)(cp_sgd *s, const int32_t *index, int64_t n, int sign)
{
    if (index && s->max_norm > 0)
        s->squares += sign * CP(squares_of)(s, index, n);
}

static CP_NOINLINE void CP(settle)(cp_sgd *s);

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
