/* Template: losses of one score a class, with their formulas, dense: one row an update, and mini-batches.
 *
 * The update of one row is applied in the walk that makes the scores of the next, so weights are read once a row. */

/* Count a row for its weight w. */
CP_INLINE void CP(count_class)(cp_sgd *s, int right, double w)
{
    s->totals.rows++;
    s->totals.weight += w;
    s->totals.correct += right ? w : 0;
}

/* Turn scores into slopes, w * step * (probability - [k is the label]), and count the row. Returns 0 where a score is
 * not finite. Scores have room for whole quads. */
CP_INLINE int CP(SOFTMAX)(cp_sgd *s, real *score, int64_t target, double w, real step, real *slope)
{
    const int64_t outputs = s->outputs;
    int64_t best = 0;
    quad sum = CP(all)(0);
    for (int64_t k = 0; k < outputs; k++) {
        if (!CP(is_finite)(score[k]))
            return 0;
        best = score[k] > score[best] ? k : best;
    }
    const real top = score[best];
    s->totals.loss += w * ((double)top - (double)score[target]);
    for (int64_t k = 0; k < outputs; k += CP_QUAD) {
        quad z, e;
        memcpy(&z, score + k, sizeof z);
        e = CP(exp_minus)(top - z);
        for (int64_t i = outputs - k; i < CP_QUAD; i++)
            e[i] = 0;
        memcpy(slope + k, &e, sizeof e);
        sum += e;
    }
    const real total = CP(sum_quad)(sum)[0];
    cp_add_log(&s->totals, (double)total, w);
    CP(count_class)(s, best == target, w);
    step *= (real)w;
    for (int64_t k = 0; k < outputs; k++)
        slope[k] = (slope[k] / total - (k == target ? 1 : 0)) * step;
    return 1;
}

/* Turn scores into slopes of one hinge an output, w * step times, its class against the rest, and count the row. Returns 0 where a
 * score is not finite. */
CP_INLINE int CP(HINGES)(cp_sgd *s, real *score, int64_t target, double w, real step, real *slope)
{
    int64_t best = 0;
    real loss = 0;
    step *= (real)w;
    for (int64_t k = 0; k < s->outputs; k++) {
        const real y = k == target ? 1 : -1, short_of = 1 - y * score[k];
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

/* The same of one logistic loss an output. The logarithms of a row are taken together: of 1e30 at most, for their product with
 * those of other rows is to be a number. */
CP_INLINE int CP(LOGISTICS)(cp_sgd *s, real *score, int64_t target, double w, real step, real *slope)
{
    const quad by = CP(all)(step * (real)w);
    int64_t best = 0;
    double odds = 1;
    for (int64_t k = 0; k < s->outputs; k++)
        if (!CP(is_finite)(score[k]))
            return 0;
    for (int64_t k = 0; k < s->outputs; k++) {
        const point at = CP(LOGISTIC)(CP(all)(score[k]), CP(all)(k == target ? 1 : -1), by, by);
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

CP_INLINE int CP(per_class)(cp_sgd *s, real *score, int64_t target, double w, real step, real *slope)
{
#define CP_NO_SCORES(id, ...) case CP_##id: break;
#define CP_SLOPES(id, ...) case CP_##id: return CP(id)(s, score, target, w, step, slope);
    switch (s->loss) { CP_LOSSES(CP_NO_SCORES, CP_SLOPES) }
#undef CP_NO_SCORES
#undef CP_SLOPES
    return 0;
}

/* Apply h * p to the weights of two outputs, at v and at v + apart, and score x by them, in one walk; apart is 0
 * for the last of an odd number. */
CP_INLINE void CP(walk_two)(real *v, int64_t apart, const real *p, const real *x, int64_t packs,
                            const CP(bits_type) *keep, const real *h, real *score)
{
    const real h0 = h[0], h1 = apart ? h[1] : 0;
    pack a0 = CP(zero)(), a1 = CP(zero)();
    for (int64_t j = 0; j < packs; j++) {
        pack pj = CP(row_pack)(p, j, packs, keep), xj = CP(row_pack)(x, j, packs, keep);
        pack w0 = CP(subtract_scaled)(CP(load)(v + j * CP_LANES), h0, pj);
        CP(store)(v + j * CP_LANES, w0);
        pack w1 = CP(subtract_scaled)(CP(load)(v + apart + j * CP_LANES), h1, pj);
        CP(store)(v + apart + j * CP_LANES, w1);
        a0 = CP(add_product)(a0, w0, xj);
        a1 = CP(add_product)(a1, w1, xj);
    }
    score[0] = CP(sum)(a0)[0];
    if (apart)
        score[1] = CP(sum)(a1)[0];
}

static CP_NOINLINE int64_t CP(SCORES_rows)(cp_sgd *s, const cp_chunk *c)
{
    const int64_t packs = s->padded / CP_LANES, outputs = s->outputs;
    real *v = CP_AT(s, real, w), *bias = CP_AT(s, real, bias), *score = CP_AT(s, real, work);
    real *g = CP_AT(s, real, g), *h = CP_AT(s, real, h);
    const real *prev = CP_AT(s, real, prev);
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s->features);
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        cp_ask_ahead(c, i, c->lines);
        for (int64_t k = 0; k < outputs; k += 2)
            CP(walk_two)(v + k * s->padded, k + 1 < outputs ? s->padded : 0, prev, row, packs, keep, h + k, score + k);
        for (int64_t k = 0; k < outputs; k++) {
            bias[k] -= s->intercept ? g[k] : 0;
            score[k] = (real)s->scale * score[k] + bias[k];
        }
        if (!CP(per_class)(s, score, (int64_t)c->label[i], c->weight[i], (real)s->rate, g)) {
            memset(g, 0, (size_t)outputs * sizeof(real));
            memset(h, 0, (size_t)outputs * sizeof(real));
            break;
        }
        prev = row;
        CP(shrink)(s);
        for (int64_t k = 0; k < outputs; k++)
            h[k] = g[k] * (real)s->inverse;
    }
    CP(keep_row)(s, prev);
    return i;
}

static CP_NOINLINE int64_t CP(SCORES_batches)(cp_sgd *s, const cp_chunk *c)
{
    const int64_t packs = s->padded / CP_LANES, outputs = s->outputs, apart = cp_round_up(outputs, CP_LANES);
    real *v = CP_AT(s, real, w), *bias = CP_AT(s, real, bias), *grad_bias = CP_AT(s, real, grad_bias);
    real *score = CP_AT(s, real, work), *slope = score + CP_GROUP * apart;
    CP(bits_type) keep[CP_LANES];
    int64_t i = 0, wanted = 1, rows = 1;
    CP(tail_mask)(keep, s->features);
    while (i < c->n && rows == wanted) {
        wanted = c->n - i < CP_GROUP ? c->n - i : CP_GROUP;
        wanted = wanted < s->batch - s->held ? wanted : s->batch - s->held;
        wanted = s->rule == CP_NORMALIZED ? 1 : wanted; /* the next row changes weights before it is scored */
        const double norm = wanted == 1 && s->rule == CP_NORMALIZED
                                ? CP(take_in)(s, NULL, (const real *)c->row[i], s->features) : 0;
        for (int64_t r = 0; r < wanted; r++)
            cp_ask_ahead(c, i + r, c->lines);
        for (int64_t k = 0; k < outputs; k++)
            for (int64_t r = 0; r < wanted; r++)
                score[r * apart + k] = (real)s->scale * CP(dot)(v + k * s->padded, (const real *)c->row[i + r],
                                                                packs, keep) + bias[k];
        for (rows = 0; rows < wanted; rows++)
            if (!CP(per_class)(s, score + rows * apart, (int64_t)c->label[i + rows], c->weight[i + rows], 1,
                               slope + rows * apart))
                break;
        if (rows == 1)
            CP(took)(s, norm);
        for (int64_t r = 0; s->ruled && r < rows; r++)
            CP(note_slopes)(s, slope + r * apart);
        for (int64_t k = 0; k < outputs; k++) {
            CP(gather_gradient)(CP_AT(s, real, grad) + k * s->padded, c->row + i, slope + k, apart, rows, packs, keep);
            for (int64_t r = 0; r < rows; r++)
                grad_bias[k] += slope[r * apart + k];
        }
        s->held += rows;
        i += rows;
        if (s->held == s->batch)
            CP(close_batch)(s);
    }
    return i;
}
