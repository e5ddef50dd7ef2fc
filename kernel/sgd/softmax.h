/* Template: losses with one score per class and their formulas, dense: one update per row, and mini-batches.
 *
 * The update of one row is applied in the walk that scores the next, so weights are read once per row. */

/* Add a row of weight w to the totals. */
CP_INLINE void CP(count_class)(cp_sgd *s, int right, double w)
{
    s->totals.rows++;
    s->totals.weight += w;
    s->totals.correct += right ? w : 0;
}

/* Turn scores into slopes, w * step * (probability - [k is the label]), and add the row to the totals. Returns 0 if a
 * score is not finite. Scores have space for whole quads. */
CP_INLINE int CP(SOFTMAX)(cp_sgd *s, REAL *score, int64_t target, double w, REAL step, REAL *slope)
{
    const int64_t outputs = s->outputs;
    int64_t best = 0;
    QUAD sum = CP(all)(0);
    for (int64_t k = 0; k < outputs; k++) {
        if (!CP(is_finite)(score[k]))
            return 0;
        best = score[k] > score[best] ? k : best;
    }
    const REAL top = score[best];
    s->totals.loss += w * ((double)top - (double)score[target]);
    for (int64_t k = 0; k < outputs; k += CP_QUAD) {
        QUAD z;
        memcpy(&z, score + k, sizeof z);
        QUAD e = CP(exp_minus)(top - z);
        for (int64_t i = outputs - k; i < CP_QUAD; i++)
            e[i] = 0;
        memcpy(slope + k, &e, sizeof e);
        sum += e;
    }
    const REAL total = CP(sum_quad)(sum)[0];
    cp_add_log(&s->totals, (double)total, w);
    CP(count_class)(s, best == target, w);
    step *= (REAL)w;
    for (int64_t k = 0; k < outputs; k++)
        slope[k] = (slope[k] / total - (k == target ? 1 : 0)) * step;
    return 1;
}

/* Turn scores into slopes of one-vs-rest hinge losses, times w * step, and add the row to the totals. Returns 0 if a
 * score is not finite. */
CP_INLINE int CP(HINGES)(cp_sgd *s, REAL *score, int64_t target, double w, REAL step, REAL *slope)
{
    int64_t best = 0;
    REAL loss = 0;
    step *= (REAL)w;
    for (int64_t k = 0; k < s->outputs; k++) {
        const REAL y = k == target ? 1 : -1, short_of = 1 - y * score[k];
        if (!CP(is_finite)(score[k]))
            return 0;
        best = score[k] > score[best] ? k : best;
        loss += short_of > 0 ? short_of : 0;
        slope[k] = short_of > 0 ? -y * step : 0;
    }
    s->totals.loss += w * (double)loss;
    CP(count_class)(s, best == target, w);
    return 1;
}

/* Turn scores into slopes of one-vs-rest logistic losses, and add the row to the totals. The row's logarithms are taken
 * of one product, kept below 1e30 so that its product with those of other rows stays finite. */
CP_INLINE int CP(LOGISTICS)(cp_sgd *s, REAL *score, int64_t target, double w, REAL step, REAL *slope)
{
    const QUAD by = CP(all)(step * (REAL)w);
    int64_t best = 0;
    double odds = 1;
    for (int64_t k = 0; k < s->outputs; k++)
        if (!CP(is_finite)(score[k]))
            return 0;
    for (int64_t k = 0; k < s->outputs; k++) {
        const POINT at = CP(LOGISTIC)(CP(all)(score[k]), CP(all)(k == target ? 1 : -1), by, by);
        best = score[k] > score[best] ? k : best;
        slope[k] = at.slope[0];
        s->totals.loss += w * (double)at.loss[0];
        odds *= 1 + (double)at.e[0];
        if (odds > 1e30) {
            s->totals.loss += w * cp_log(odds);
            odds = 1;
        }
    }
    cp_add_log(&s->totals, odds, w);
    CP(count_class)(s, best == target, w);
    return 1;
}

CP_INLINE int CP(per_class)(cp_sgd *s, REAL *score, int64_t target, double w, REAL step, REAL *slope)
{
#define CP_NO_SCORES(id, ...) case CP_##id: break;
#define CP_SLOPES(id, ...) case CP_##id: return CP(id)(s, score, target, w, step, slope);
    switch (s->loss) { CP_LOSSES(CP_NO_SCORES, CP_SLOPES) }
#undef CP_NO_SCORES
#undef CP_SLOPES
    return 0;
}

/* Apply h * p to the weights of two outputs and score x by them, in one walk.
 * They lie at v and at v + stride; `stride` is 0 for the last of an odd number. */
CP_INLINE void CP(walk_two)(REAL *v, int64_t stride, const REAL *p, const REAL *x, int64_t packs,
                            const CP(bits_type) *keep, const REAL *h, REAL *score)
{
    const REAL h0 = h[0], h1 = stride ? h[1] : 0;
    PACK a0 = CP(zero)(), a1 = CP(zero)();
    for (int64_t j = 0; j < packs; j++) {
        PACK pj = CP(row_pack)(p, j, packs, keep), xj = CP(row_pack)(x, j, packs, keep);
        PACK w0 = CP(subtract_scaled)(CP(load)(v + j * CP_LANES), h0, pj);
        CP(store)(v + j * CP_LANES, w0);
        PACK w1 = CP(subtract_scaled)(CP(load)(v + stride + j * CP_LANES), h1, pj);
        CP(store)(v + stride + j * CP_LANES, w1);
        a0 = CP(add_product)(a0, w0, xj);
        a1 = CP(add_product)(a1, w1, xj);
    }
    score[0] = CP(sum)(a0)[0];
    if (stride)
        score[1] = CP(sum)(a1)[0];
}

static CP_NOINLINE int64_t CP(scores_rows)(cp_sgd *s, const cp_chunk *c)
{
    const int64_t packs = s->padded / CP_LANES, outputs = s->outputs;
    REAL *v = CP_AT(s, REAL, w), *bias = CP_AT(s, REAL, bias), *score = CP_AT(s, REAL, work);
    REAL *g = CP_AT(s, REAL, g), *h = CP_AT(s, REAL, h);
    const REAL *prev = CP_AT(s, REAL, prev);
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s->features);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        cp_prefetch_rows(c, i, c->lines);
        for (int64_t k = 0; k < outputs; k += 2)
            CP(walk_two)(v + k * s->padded, k + 1 < outputs ? s->padded : 0, prev, row, packs, keep, h + k, score + k);
        for (int64_t k = 0; k < outputs; k++) {
            bias[k] -= s->intercept ? g[k] : 0;
            score[k] = (REAL)s->scale * score[k] + bias[k];
        }
        if (!CP(per_class)(s, score, (int64_t)c->label[i], c->weight[i], (REAL)s->rate, g)) {
            memset(g, 0, (size_t)outputs * sizeof(REAL));
            memset(h, 0, (size_t)outputs * sizeof(REAL));
            break;
        }
        prev = row;
        CP(shrink)(s);
        for (int64_t k = 0; k < outputs; k++)
            h[k] = g[k] * (REAL)s->inverse;
    }
    CP(keep_row)(s, prev);
    return i;
}

static CP_NOINLINE int64_t CP(scores_batches)(cp_sgd *s, const cp_chunk *c)
{
    const int64_t packs = s->padded / CP_LANES, outputs = s->outputs, stride = cp_round_up(outputs, CP_LANES);
    REAL *v = CP_AT(s, REAL, w), *bias = CP_AT(s, REAL, bias), *grad_bias = CP_AT(s, REAL, grad_bias);
    REAL *score = CP_AT(s, REAL, work), *slope = score + CP_BATCH_GROUP * stride;
    CP(bits_type) keep[CP_LANES];
    int64_t i = 0, wanted = 1, rows = 1;
    CP(tail_mask)(keep, s->features);
    while (i < c->n && rows == wanted) {
        wanted = c->n - i < CP_BATCH_GROUP ? c->n - i : CP_BATCH_GROUP;
        wanted = wanted < s->batch - s->held ? wanted : s->batch - s->held;
        wanted = s->rule == CP_NORMALIZED ? 1 : wanted; /* the next row changes weights before it is scored */
        const double norm = wanted == 1 && s->rule == CP_NORMALIZED
                                ? CP(take_in)(s, NULL, (const REAL *)c->row[i], s->features) : 0;
        for (int64_t r = 0; r < wanted; r++)
            cp_prefetch_rows(c, i + r, c->lines);
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t r = 0; r < wanted; r++)
                score[r * stride + k] = (REAL)s->scale * CP(dot)(v + k * s->padded, (const REAL *)c->row[i + r],
                                                                packs, keep) + bias[k];
        for (rows = 0; rows < wanted; rows++)
            if (!CP(per_class)(s, score + rows * stride, (int64_t)c->label[i + rows], c->weight[i + rows], 1,
                               slope + rows * stride))
                break;
        if (rows == 1)
            CP(took)(s, norm);
        for (int64_t r = 0; s->ruled && r < rows; r++)
            CP(note_slopes)(s, slope + r * stride);
        for (int64_t k = 0; k < outputs; k++) {
            CP(gather_gradient)(CP_AT(s, REAL, grad) + k * s->padded, c->row + i, slope + k, stride, rows, packs, keep);
            for (int64_t r = 0; r < rows; r++)
                grad_bias[k] += slope[r * stride + k];
        }
        s->held += rows;
        i += rows;
        if (s->held == s->batch)
            CP(close_batch)(s);
    }
    return i;
}
