/* Template: max norm. If the weights of all outputs, without intercepts, are longer than the bound after an update,
 * they are scaled down to it: projected onto a ball (Shalev-Shwartz, Singer and Srebro 2007). Weights are scale * v, so
 * this takes one multiplication. The sum of v^2 is tracked: with one learning rate and no L1, an update h x makes it
 *
 *     |v - h x|^2 = |v|^2 + h (h |x|^2 - 2 v . x),
 *
 * where v . x is known; it is recomputed every s->recount rows. Other rules track it by the features of a sparse row
 * before and after the update, or recompute it after a dense one. L1 that sparse features owe counts as unpaid, so
 * weights never exceed the bound. */

/* Track an update h x of v, and scale the weights down if they exceed the bound. Returns whether they did. */
CP_INLINE int CP(bind)(cp_sgd *s, REAL h, REAL vx, REAL xx)
{
    s->squares += (double)h * ((double)h * (double)xx - 2 * (double)vx);
    if (s->squares * (s->scale * s->scale) <= s->max_norm * s->max_norm)
        return 0;
    if (s->squares - s->squares != 0) { /* the sum overflowed, or the row changed nothing: recompute it from v */
        s->counted = s->recount;
        return 0;
    }
    s->scale = s->max_norm / sqrt(s->squares);
    s->inverse = 1 / s->scale;
    return 1;
}

/* Count an update about to be tracked. Returns whether v^2 must be recomputed first. */
CP_INLINE int CP(counts)(cp_sgd *s)
{
    if (s->counted++ < s->recount)
        return 0;
    s->counted = 1;
    return 1;
}

CP_INLINE REAL CP(squares_of_packs)(const PACK *a, int packs)
{
    PACK sum = CP(multiply)(a[0], a[0]);
    for (int j = 1; j < packs; j++)
        sum = CP(add_product)(sum, a[j], a[j]);
    return CP(sum)(sum)[0];
}

/* Sum v^2 over the features of a sparse row, or over all features of a sparse model. */
CP_INLINE double CP(squares_of)(const cp_sgd *s, const int32_t *index, int64_t n)
{
    const REAL *v = CP_AT(s, const REAL, w);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0, at = (index ? index[i] : i) * s->stride; k < s->outputs; k++)
            sum += (double)v[at + k] * (double)v[at + k];
    return sum;
}

/* Sum v^2 over a dense model. */
CP_INLINE double CP(squares_dense)(const cp_sgd *s, const CP(bits_type) *keep)
{
    const REAL *v = CP_AT(s, const REAL, w);
    double sum = 0;
    for (int64_t k = 0; k < s->outputs; k++)
        sum += (double)CP(dot)(v + k * s->padded, v + k * s->padded, s->padded / CP_LANES, keep);
    return sum;
}

/* Recompute the tracked sum of v^2, after all of v changed. */
CP_INLINE void CP(recount)(cp_sgd *s)
{
    CP(bits_type) keep[CP_LANES];
    CP(tail_mask)(keep, s->features);
    if (s->max_norm > 0)
        s->squares = s->sparse ? CP(squares_of)(s, NULL, s->features) : CP(squares_dense)(s, keep);
}

/* Subtract the features of a sparse row from the tracked sum before they change, or add them afterwards. */
CP_INLINE void CP(follow)(cp_sgd *s, const int32_t *index, int64_t n, int sign)
{
    if (index && s->max_norm > 0)
        s->squares += sign * CP(squares_of)(s, index, n);
}

static CP_COLD void CP(settle)(cp_sgd *s);

/* Scale the weights down if they exceed the bound, given the sum of v^2. */
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
