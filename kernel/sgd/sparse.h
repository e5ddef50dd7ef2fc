/* Template: sparse rows. Weights are ordered by feature; all outputs of a feature are adjacent. */

/* Return the sum of value * weight, in four running sums whatever the vector width. */
CP_INLINE REAL CP(sparse_dot)(const REAL *v, const int64_t stride, const int32_t *index, const REAL *x, int64_t n)
{
    REAL a[4] = {0, 0, 0, 0};
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        a[0] += x[j] * v[index[j] * stride];
        a[1] += x[j + 1] * v[index[j + 1] * stride];
        a[2] += x[j + 2] * v[index[j + 2] * stride];
        a[3] += x[j + 3] * v[index[j + 3] * stride];
    }
    for (int lane_ = 0; j < n; j++, lane_++)
        a[lane_] += x[j] * v[index[j] * stride];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

/* Return the sum of value^2, in four running sums. */
CP_INLINE REAL CP(sparse_squares)(const REAL *x, int64_t n)
{
    REAL a[4] = {0, 0, 0, 0};
    for (int64_t j = 0; j < n; j++)
        a[j % 4] += x[j] * x[j];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

/* Compute the score of every output; `score` has space for whole quads. */
CP_INLINE void CP(sparse_scores)(const cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, REAL *score)
{
    const REAL *v = CP_AT(s, const REAL, w), *bias = CP_AT(s, const REAL, bias), scale = (REAL)s->scale;
    if (s->outputs == 1) {
        *score = scale
                 * (s->stride == 1 ? CP(sparse_dot)(v, 1, index, x, n)
                                  : CP(sparse_dot)(v, CP_RECORD_REALS, index, x, n))
                 + *bias;
        return;
    }
    for (int64_t k = 0; k < s->padded; k += CP_QUAD) {
        QUAD sum = CP(all)(0), part, b;
        memcpy(&b, bias + k, sizeof b);
        for (int64_t j = 0; j < n; j++) {
            memcpy(&part, v + index[j] * s->stride + k, sizeof part);
            sum += x[j] * part;
        }
        sum = scale * sum + b;
        memcpy(score + k, &sum, sizeof sum);
    }
}

/* Compute the score of every output as if it were a single-output model: stacked models get the bits that each gets
 * alone. */
CP_INLINE void CP(sparse_each)(const cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, REAL *score)
{
    const REAL *v = CP_AT(s, const REAL, w), *bias = CP_AT(s, const REAL, bias), scale = (REAL)s->scale;
    for (int64_t k = 0; k < s->outputs; k++)
        score[k] = scale * CP(sparse_dot)(v + k, s->stride, index, x, n) + bias[k];
}

/* Subtract h[k] * value from the weights (or the gradient) of every feature of a row. */
CP_INLINE void CP(sparse_subtract)(REAL *to, int64_t padded, const int32_t *index, const REAL *x, int64_t n,
                                   const REAL *h)
{
    if (padded == 1) {
        for (int64_t j = 0; j < n; j++)
            to[index[j]] -= *h * x[j];
        return;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < padded; k += CP_QUAD) {
            QUAD w, step;
            memcpy(&w, to + index[j] * padded + k, sizeof w);
            memcpy(&step, h + k, sizeof step);
            w -= step * x[j];
            memcpy(to + index[j] * padded + k, &w, sizeof w);
        }
}

/* Add a row to the open batch. The batch stores the negative gradient, so that CP(sparse_subtract) works for both. */
CP_INLINE void CP(sparse_hold)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, const REAL *slope)
{
    int64_t *stamp = CP_AT(s, int64_t, stamp);
    int32_t *list = CP_AT(s, int32_t, list);
    REAL *grad_bias = CP_AT(s, REAL, grad_bias), *minus = CP_AT(s, REAL, h);
    for (int64_t j = 0; j < n; j++)
        if (stamp[index[j]] != s->epoch + 1) {
            stamp[index[j]] = s->epoch + 1;
            list[s->touched++] = index[j];
        }
    if (s->ruled)
        CP(note_slopes)(s, slope);
    for (int64_t k = 0; k < s->outputs; k++) {
        grad_bias[k] += slope[k];
        minus[k] = -slope[k];
    }
    CP(sparse_subtract)(CP_AT(s, REAL, grad), s->padded, index, x, n, minus);
    if (++s->held == s->batch)
        CP(close_batch)(s);
}

/* Apply the update of a row; `vx` is v . x. */
CP_INLINE void CP(sparse_apply)(cp_sgd *s, const int32_t *index, const REAL *x, int64_t n, const REAL *slope, REAL vx)
{
    REAL *bias = CP_AT(s, REAL, bias), *h = CP_AT(s, REAL, h);
    if (CP(decay)(s)) {
        vx *= (REAL)s->scale;
        CP(renormalise)(s);
    }
    if (s->bounded && CP(counts)(s))
        CP(recount)(s);
    for (int64_t k = 0; k < s->outputs; k++) {
        bias[k] -= s->intercept ? slope[k] : 0;
        h[k] = slope[k] * (REAL)s->inverse;
    }
    CP(sparse_subtract)(CP_AT(s, REAL, w), s->padded, index, x, n, h);
    if (s->bounded)
        CP(bind)(s, *h, vx, CP(sparse_squares)(x, n));
}

/* Prefetch a distant row into the second-level cache, a nearer one into the first, the weights of a nearer one still,
 * and a label of the next chunk. */
CP_INLINE void CP(sparse_ahead)(const cp_sgd *s, const cp_chunk *c, int64_t i)
{
    const int64_t far = i + CP_PREFETCH_ROWS, middle = i + 8, near = i + 4, most = 1024;
    int64_t bytes = c->length[far] * (int64_t)sizeof(REAL) < most ? c->length[far] * (int64_t)sizeof(REAL) : most;
    for (int64_t at = 0; at < bytes + CP_LINE; at += CP_LINE) {
        __builtin_prefetch(c->row[far] + at, 0, 1);
        __builtin_prefetch((const char *)c->index[far] + at, 0, 1);
    }
    bytes = c->length[middle] * (int64_t)sizeof(REAL) < most ? c->length[middle] * (int64_t)sizeof(REAL) : most;
    for (int64_t at = 0; at < bytes + CP_LINE; at += CP_LINE) {
        __builtin_prefetch(c->row[middle] + at);
        __builtin_prefetch((const char *)c->index[middle] + at);
    }
    if (s->features * s->stride * (int64_t)sizeof(REAL) > CP_L2_BYTES)
        for (int64_t j = 0; j < c->length[near] && j < 64; j++)
            __builtin_prefetch((const char *)CP_AT(s, const REAL, w)
                               + (uint32_t)c->index[near][j] * (uint64_t)s->stride * sizeof(REAL));
    if (i < c->nexts)
        __builtin_prefetch(c->y + c->next[i] * c->y_size);
}

/* Learn from sparse rows. Returns the number learnt; `status` is set if a row's indices are invalid. */
CP_INLINE int64_t CP(sparse_rows)(cp_sgd *s, const cp_chunk *c, int *status, const int per_class)
{
    REAL *score = CP_AT(s, REAL, work), *slope = per_class ? CP_AT(s, REAL, g) : score + CP_LANES;
    const REAL step = (REAL)(s->batched || s->ruled ? 1 : s->rate);
    const int recorded = s->rule == CP_NORMALIZED && s->outputs == 1; /* CP(ready) computes the score */
    int64_t i;
    for (i = 0; i < c->n; i++) {
        const int32_t *index = c->index[i];
        const REAL *x = (const REAL *)c->row[i];
        const int64_t n = c->length[i];
        CP(sparse_ahead)(s, c, i);
        if ((*status = cp_check_indices(index, n, s->features)))
            break;
        const double norm = s->ruled ? CP(ready)(s, index, x, n, score) : 0;
        const REAL vx = s->bounded ? CP(sparse_dot)(CP_AT(s, const REAL, w), 1, index, x, n) : 0;
        if (s->bounded)
            *score = (REAL)s->scale * vx + *CP_AT(s, const REAL, bias);
        else if (!recorded)
            CP(sparse_scores)(s, index, x, n, score);
        if (per_class) {
            if (!CP(per_class)(s, score, (int64_t)c->label[i], c->weight[i], step, slope))
                break;
        } else {
            if (!CP(is_finite)(*score))
                break;
            *slope = CP(slope)(&s->totals, s->loss, CP(all)(*score), CP(all)(step * (REAL)c->weight[i]), c->label[i],
                               c->weight[i], s->parameter)[0];
        }
        if (s->ruled)
            CP(took)(s, norm);
        if (s->batched)
            CP(sparse_hold)(s, index, x, n, slope);
        else if (s->ruled)
            CP(update_sparse)(s, index, x, n, 0, slope, slope);
        else
            CP(sparse_apply)(s, index, x, n, slope, vx);
    }
    return i;
}

static CP_NOINLINE int64_t CP(sparse)(cp_sgd *s, const cp_chunk *c, int *status)
{
    return cp_loss_per_class(s->loss) ? CP(sparse_rows)(s, c, status, 1) : CP(sparse_rows)(s, c, status, 0);
}
