/* Template: dense rows, one update per batch by the mean gradient of `batch` rows. A batch continues across calls. */

/* Add the product of each row and its slope to a gradient, in row order; slopes may be strided. */
CP_INLINE void CP(gather_gradient)(REAL *grad, const char *const *row, const REAL *slope, int64_t stride, int64_t rows,
                                   int64_t packs, const CP(bits_type) *keep)
{
    for (int64_t j = 0; j < packs; j++) {
        PACK sum = CP(load)(grad + j * CP_LANES);
        for (int64_t r = 0; r < rows; r++)
            sum = CP(add_scaled)(sum, slope[r * stride], CP(row_pack)((const REAL *)row[r], j, packs, keep));
        CP(store)(grad + j * CP_LANES, sum);
    }
}

/* Defined in sgd/rules.h. */
static CP_NOINLINE void CP(update_batch)(cp_sgd *s);
static CP_NOINLINE double CP(take_in)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n);

/* Count a row whose score was finite. */
CP_INLINE void CP(took)(cp_sgd *s, double norm)
{
    s->seen++;
    s->norm += norm + (s->intercept ? 1 : 0);
}

/* Add the squared slopes of a row, which scale the penalties of the rules. */
CP_INLINE void CP(note_slopes)(cp_sgd *s, const REAL *slope)
{
    for (int64_t k = 0; k < s->outputs; k++)
        s->open += (double)slope[k] * (double)slope[k];
}

/* Apply the open batch, full or not, as the mean over its rows. */
static CP_NOINLINE void CP(close_batch)(cp_sgd *s)
{
    REAL *v = CP_AT(s, REAL, w), *grad = CP_AT(s, REAL, grad);
    REAL *bias = CP_AT(s, REAL, bias), *grad_bias = CP_AT(s, REAL, grad_bias);
    if (s->held == 0)
        return;
    if (s->ruled) {
        CP(update_batch)(s);
        s->held = s->touched = 0;
        s->epoch++;
        return;
    }
    CP(shrink)(s);
    double mean = s->rate / (double)s->held;
    REAL h = (REAL)(mean * s->inverse);
    if (s->sparse) {
        const int32_t *list = CP_AT(s, const int32_t, list);
        for (int64_t i = 0; i < s->touched; i++)
            for (int64_t k = 0, at = list[i] * s->padded; k < s->padded; k++) {
                v[at + k] -= h * grad[at + k];
                grad[at + k] = 0;
            }
    } else {
        for (int64_t i = 0; i < s->outputs * s->padded; i++) {
            v[i] -= h * grad[i];
            grad[i] = 0;
        }
    }
    for (int64_t k = 0; k < s->outputs; k++) {
        bias[k] -= s->intercept ? (REAL)mean * grad_bias[k] : 0;
        grad_bias[k] = 0;
    }
    s->held = s->touched = 0;
    s->epoch++;
}

/* Turn the margins of up to CP_BATCH_GROUP rows into slopes, a quad at a time, and add the rows to the totals. */
CP_INLINE void CP(slopes_of)(cp_sgd *s, const enum cp_loss loss, const REAL *margin, const double *label,
                             const double *weight, int64_t rows, REAL *slope)
{
    for (int64_t r = 0; r < rows; r += CP_QUAD) {
        QUAD m, y = CP(all)(1), w = y;
        memcpy(&m, margin + r, sizeof m);
        for (int64_t i = 0; i < CP_QUAD && r + i < rows; i++)
            y[i] = (REAL)label[r + i], w[i] = (REAL)weight[r + i];
        POINT at = CP(formula)(loss, m, y, w, CP(all)((REAL)s->parameter));
        memcpy(slope + r, &at.slope, sizeof m);
        for (int i = 0; i < CP_QUAD && r + i < rows; i++)
            CP(count)(&s->totals, loss, &at, i, label[r + i], weight[r + i], s->parameter);
    }
}

static CP_NOINLINE void CP(slopes)(cp_sgd *s, const REAL *margin, const double *label, const double *weight,
                                   int64_t rows, REAL *slope)
{
#define CP_SLOPES(id) if (s->loss == CP_##id) CP(slopes_of)(s, CP_##id, margin, label, weight, rows, slope); else
    CP_INLINED(CP_SLOPES) CP(slopes_of)(s, s->loss, margin, label, weight, rows, slope);
#undef CP_SLOPES
}

static CP_NOINLINE int64_t CP(margin_batches)(cp_sgd *s, const cp_chunk *c)
{
    const int64_t packs = s->padded / CP_LANES;
    REAL *v = CP_AT(s, REAL, w), *bias = CP_AT(s, REAL, bias), *grad_bias = CP_AT(s, REAL, grad_bias);
    CP(bits_type) keep[CP_LANES];
    int64_t i = 0, wanted = 1, rows = 1;
    const int ruled = s->ruled, normalized = s->rule == CP_NORMALIZED;
    CP(tail_mask)(keep, s->features);
    while (i < c->n && rows == wanted) {
        REAL margin[CP_BATCH_GROUP] = {0}, slope[CP_BATCH_GROUP];
        wanted = c->n - i < CP_BATCH_GROUP ? c->n - i : CP_BATCH_GROUP;
        wanted = wanted < s->batch - s->held ? wanted : s->batch - s->held;
        for (rows = 0; rows < wanted; rows++) {
            const REAL *row = (const REAL *)c->row[i + rows];
            cp_prefetch_rows(c, i + rows, c->lines);
            const double norm = normalized ? CP(take_in)(s, NULL, row, s->features) : 0;
            margin[rows] = (REAL)s->scale * CP(dot)(v, row, packs, keep) + *bias;
            if (!CP(is_finite)(margin[rows]))
                break;
            if (ruled)
                CP(took)(s, norm);
        }
        CP(slopes)(s, margin, c->label + i, c->weight + i, rows, slope);
        CP(gather_gradient)(CP_AT(s, REAL, grad), c->row + i, slope, 1, rows, packs, keep);
        for (int64_t r = 0; r < rows; r++)
            *grad_bias += slope[r];
        for (int64_t r = 0; ruled && r < rows; r++)
            CP(note_slopes)(s, slope + r);
        s->held += rows;
        i += rows;
        if (s->held == s->batch)
            CP(close_batch)(s);
    }
    return i;
}
