/* Linear models by stochastic gradient descent: the losses of sgd/losses.h, dense and sparse rows, one update per row
 * or per batch, sample weights, L2. The loss before each update is summed in the same pass.
 *
 *     w <- (1 - rate * l2) w - rate * weight * gradient        (the intercept is not regularised)
 *
 * The weight of a row is its sample weight times that of its class. Losses and scores are weighted means; the gradient
 * of a batch is the mean over its rows.
 *
 * A model depends on the rows and their order alone: not on the CPU, the compiler, the vector width, or how rows are
 * split into calls. Compile with -ffp-contract=off.
 *
 *     state = zeroed memory of cp_sgd_size(&shape) bytes, 64-byte aligned;  cp_sgd_init(state, &shape);
 *     each epoch:  cp_sgd_begin(state, rate);  cp_sgd_learn(state, &rows, &done) ...;  cp_sgd_flush(state); */
#pragma once

#include "sgd/formulas.h"
#include "sgd/optimizer_state.h"

static inline void cp_sgd_init(cp_sgd *s, const cp_sgd_shape *shape)
{
    cp_sgd layout = cp_sgd_layout(shape);
    *s = layout;
    if (s->isa < 0 || s->isa > cp_sgd_isa())
        s->isa = cp_sgd_isa();
    if (shape->classes && cp_sgd_classes(shape) > 0)
        memcpy(CP_AT(s, double, classes), shape->classes, (size_t)cp_sgd_classes(shape) * sizeof(double));
    if (s->weighs)
        memcpy(CP_AT(s, double, class_weight), shape->class_weight, (size_t)cp_sgd_classes(shape) * sizeof(double));
}

/* Apply the pending update: that of the last row, or of the last batch, full or not. */
static inline void cp_sgd_flush(cp_sgd *s) { cp_sgd_code_of(s)->flush(s); }

/* Begin an epoch: set its learning rate, times the factor of the step, and clear the totals. Requires rate >= 0, and
 * rate * l2 < 1 with one rate for all weights. */
static inline void cp_sgd_begin(cp_sgd *s, double rate)
{
    cp_sgd_flush(s);
    s->rate = rate *= s->seen > 0 ? s->later : s->times;
    /* the other rules set it per update */
    s->decay = s->rule == CP_SAME ? 1 - rate * s->l2 : s->rule == CP_MOMENTS ? 1 / (1 + rate * s->l2) : 1;
    s->undecay = 1 / s->decay;
    memset(&s->totals, 0, sizeof s->totals);
    s->totals.ln = 1;
}

/* Learn from rows in the order of r->visit. Sets `done` to the number of rows learnt; on an error, visit[done] is the
 * row that caused it. No slot is read if any is out of range. */
static inline int cp_sgd_learn(cp_sgd *s, const cp_rows *rows, int64_t *done)
{
    const cp_sgd_code *code = cp_sgd_code_of(s);
    cp_rows r = *rows;
    cp_chunk c;
    double odds[CP_CHUNK_ROWS], by[CP_CHUNK_ROWS];
    *done = 0;
    if (!cp_slots_fit(r.visit, r.m, r.slots)) {
        while (r.visit[*done] >= 0 && r.visit[*done] < r.slots)
            ++*done;
        return CP_SGD_BAD_SLOT;
    }
    if (!s->sparse && r.slots > 0)
        cp_guard_tail(s, &r);
    cp_begin_weights(s, &r, &c);
    while (*done < r.m) {
        int status = CP_SGD_OK;
        cp_prepare(s, &r, *done, s->averaged ? s->every - s->since : CP_CHUNK_ROWS, &c);
        if (c.weighted)
            s->totals.odds = odds, s->totals.by = by;
        int64_t learnt = code->learn(s, &c, &status);
        if (c.weighted)
            cp_add_stored_logs(&s->totals, odds, by);
        *done += learnt;
        if (s->averaged && (s->since += learnt) == s->every)
            code->sample_weights(s);
        if (status)
            return status;
        if (learnt < c.n)
            return code->row_is_finite(s, &c, learnt) ? CP_SGD_DIVERGED : CP_SGD_BAD_VALUE;
        if (c.status)
            return c.status;
    }
    return CP_SGD_OK;
}

/* Score rows with a flushed state: out[i][k] for visit[i] and output k, float or double like the state. */
static inline int cp_sgd_decide(cp_sgd *s, const cp_rows *rows, void *out)
{
    const cp_sgd_code *code = cp_sgd_code_of(s);
    cp_rows r = *rows;
    cp_chunk c = {.lines = cp_row_lines(s), .ahead = cp_row_ahead(s), .last = s->padded * s->bytes - 1};
    if (!cp_slots_fit(r.visit, r.m, r.slots))
        return CP_SGD_BAD_SLOT;
    if (!s->sparse && r.slots > 0)
        cp_guard_tail(s, &r);
    for (int64_t from = 0; from < r.m; from += c.n) {
        c.n = r.m - from < CP_CHUNK_ROWS ? r.m - from : CP_CHUNK_ROWS;
        cp_place_rows(s, &r, from, &c);
        int status = code->decide(s, &c, (char *)out + from * s->outputs * s->bytes);
        if (status)
            return status;
    }
    return CP_SGD_OK;
}

/* Turn a row's scores, one per class, into probabilities, in place and without overflow. One-vs-rest probabilities are
 * divided by their sum. */
static inline void cp_sgd_probabilities(enum cp_loss loss, double *score, int64_t classes)
{
    for (int64_t k = 0; k < classes; k++)
        score[k] = cp_sgd_log_odds(loss, score[k]);
    double top = score[0], sum = 0;
    for (int64_t k = 1; k < classes; k++)
        top = score[k] > top ? score[k] : top;
    for (int64_t k = 0; k < classes; k++)
        sum += score[k] = cp_exp_minus_f64_quad((cp_quad_type_f64_quad){top - score[k]})[0];
    for (int64_t k = 0; k < classes; k++)
        score[k] /= sum;
}

/* Copy the weights [outputs][features] and biases [outputs] that predict out of a flushed state; cp_sgd_get copies
 * those that the next row changes. They differ if weights are averaged. */
static inline void cp_sgd_predictor(cp_sgd *s, void *weights, void *biases)
{
    cp_sgd_code_of(s)->predictor(s, weights, biases);
}

static inline void cp_sgd_get(cp_sgd *s, void *weights, void *biases)
{
    cp_sgd_code_of(s)->weights(s, weights, biases, 0);
}

/* Set the weights to start from; the optimizer state is reset. */
static inline void cp_sgd_set(cp_sgd *s, void *weights, void *biases)
{
    cp_sgd_flush(s);
    cp_sgd_forget(s);
    cp_sgd_code_of(s)->weights(s, weights, biases, 1);
}
