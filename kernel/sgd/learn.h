/* Template: entry points for sgd/sgd.h: learn a chunk, flush the state, score rows, export weights. */

static CP_NOINLINE int64_t CP(learn)(cp_sgd *s, const cp_chunk *c, int *status)
{
    if (s->sparse)
        return CP(sparse)(s, c, status);
    const int per_class = cp_loss_per_class(s->loss);
    if (s->batched)
        return per_class ? CP(scores_batches)(s, c) : CP(margin_batches)(s, c);
    if (s->rooted && !per_class)
        return s->rule == CP_MOMENTS ? CP(moving_rows)(s, c) : CP(rooted_rows)(s, c);
    if (s->ruled)
        return per_class ? CP(ruled_scores)(s, c) : CP(ruled_margins)(s, c);
    return per_class ? CP(scores_rows)(s, c) : CP(margin_rows)(s, c);
}

/* Apply the pending update, the open batch and the scale. Then w holds the model, so that training resumes bit for bit
 * from a saved one. */
static CP_NOINLINE void CP(flush)(cp_sgd *s)
{
    REAL *g = CP_AT(s, REAL, g), *h = CP_AT(s, REAL, h), *bias = CP_AT(s, REAL, bias);
    const REAL *prev = CP_AT(s, const REAL, prev);
    if (s->batched)
        CP(close_batch)(s);
    else if (!s->sparse)
        for (int64_t k = 0; k < s->outputs; k++) {
            REAL *v = CP_AT(s, REAL, w) + k * s->padded;
            for (int64_t j = 0; j < s->features; j++)
                v[j] -= h[k] * prev[j];
            bias[k] -= s->intercept && !s->bounded ? g[k] : 0;
            g[k] = h[k] = 0;
        }
    CP(settle)(s);
    if (s->counted > 0) { /* hides the rounding errors of the tracked sum */
        CP(recount)(s);
        CP(keep_within)(s, s->squares);
        s->counted = 0;
    }
    if (s->scale != 1)
        CP(renormalise)(s);
    CP(recount)(s);
    if (s->rooted && s->rule != CP_MOMENTS)
        CP(take_roots)(s);
    if (s->since > 0)
        CP(sample_weights)(s);
}

/* Score the rows of a chunk into out[row][output]. If a single-output loss has several outputs, they are models that
 * score the same rows. */
static CP_NOINLINE int CP(decide)(cp_sgd *s, const cp_chunk *c, void *to)
{
    REAL *out = (REAL *)to, *score = CP_AT(s, REAL, work);
    const REAL *v = CP_AT(s, const REAL, w), *bias = CP_AT(s, const REAL, bias);
    CP(bits_type) keep[CP_LANES];
    CP(tail_mask)(keep, s->features);
    for (int64_t i = 0; i < c->n; i++) {
        if (s->sparse) {
            int status = cp_check_indices(c->index[i], c->length[i], s->features);
            if (status)
                return status;
            if (s->outputs > 1 && !cp_loss_per_class(s->loss))
                CP(sparse_each)(s, c->index[i], (const REAL *)c->row[i], c->length[i], score);
            else
                CP(sparse_scores)(s, c->index[i], (const REAL *)c->row[i], c->length[i], score);
        } else {
            cp_prefetch_rows(c, i, c->lines);
            for (int64_t k = 0; k < s->outputs; k++)
                score[k] = (REAL)s->scale * CP(dot)(v + k * s->padded, (const REAL *)c->row[i],
                                                    s->padded / CP_LANES, keep) + bias[k];
        }
        memcpy(out + i * s->outputs, score, (size_t)s->outputs * sizeof(REAL));
    }
    return CP_SGD_OK;
}

/* Copy weights [output][feature] and biases out of a flushed state, or into it. */
static CP_COLD void CP(weights)(cp_sgd *s, void *weights, void *biases, int into)
{
    REAL *v = CP_AT(s, REAL, w), *bias = CP_AT(s, REAL, bias), *coef = (REAL *)weights;
    if (into)
        s->scale = s->inverse = 1;
    for (int64_t k = 0; k < s->outputs; k++)
        for (int64_t j = 0; j < s->features; j++) {
            REAL *at = s->sparse ? v + j * s->stride + k : v + k * s->padded + j;
            if (into)
                *at = coef[k * s->features + j];
            else
                coef[k * s->features + j] = (REAL)s->scale * *at;
        }
    memcpy(into ? bias : (REAL *)biases, into ? (REAL *)biases : bias, (size_t)s->outputs * sizeof(REAL));
}

/* Copy the weights that predict: the averaged ones, if there are any. */
static CP_COLD void CP(predictor)(cp_sgd *s, void *weights, void *biases)
{
    const double *mean = CP_AT(s, const double, mean), *mean_bias = CP_AT(s, const double, mean_bias);
    REAL *coef = (REAL *)weights;
    if (s->taken == 0) {
        CP(weights)(s, weights, biases, 0);
        return;
    }
    for (int64_t k = 0; k < s->outputs; k++) {
        for (int64_t j = 0; j < s->features; j++)
            coef[k * s->features + j] = (REAL)mean[s->sparse ? j * s->padded + k : k * s->padded + j];
        ((REAL *)biases)[k] = (REAL)mean_bias[k];
    }
}

/* Return whether all features of a row are finite. */
static CP_COLD int CP(row_is_finite)(const cp_sgd *s, const cp_chunk *c, int64_t i)
{
    const REAL *x = (const REAL *)c->row[i];
    int64_t n = s->sparse ? c->length[i] : s->features;
    for (int64_t j = 0; j < n; j++)
        if (!CP(is_finite)(x[j]))
            return 0;
    return 1;
}

const cp_sgd_code CP(code) = {CP(learn),     CP(flush),          CP(decide),       CP(weights),
                                     CP(predictor), CP(sample_weights), CP(row_is_finite)};
