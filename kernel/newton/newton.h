/* Newton's method for linear models; newton/state.h has the sums, newton/triangle.h the solution of a step.
 *
 *     state = zeroed memory of cp_newton_size(&shape) bytes, 64-byte aligned;  cp_newton_init(state, &shape);
 *     each pass:  cp_newton_begin(state, ...);  for each lane: cp_newton_add(state, lane, &rows, first) ...;
 *                 cp_newton_end(state)
 *
 * Lanes may be filled by different threads. Sums depend on the rows and their order alone. */
#pragma once

#include "newton/state.h"
#include "newton/triangle.h"
#include "sgd/isa.h"

#if defined __clang__
#pragma STDC FP_CONTRACT OFF
#endif

/* Return the curvatures of the block's rows for a pair of outputs. */
static inline const double *cp_newton_curve(const cp_newton *s, const cp_newton_lane *a, int64_t k, int64_t l)
{
    const double *p = a->curve + k * CP_NEWTON_ROWS, *q = a->curve + l * CP_NEWTON_ROWS;
    if (s->form.loss != CP_SOFTMAX)
        return p;
    for (int64_t r = 0; r < a->filled; r++)
        a->pair[r] = a->weight[r] * p[r] * (k == l ? 1 - p[r] : -q[r]);
    return a->pair;
}

static inline void cp_newton_count(cp_newton_totals *t, double value, double weight)
{
    const double add = weight * value, next = t->loss + add, back = next - t->loss;
    t->lost += (t->loss - (next - back)) + (add - back);
    t->loss = next;
}

/* Count whether the margin of a row is on its label's side. */
static inline void cp_newton_count_side(cp_newton_totals *t, double m, double y, double w)
{
    t->correct += (m > 0) == (y > 0) ? w : 0;
    t->wrong += w > 0 && !(y * m > 0);
}

/* Turn the margins of row r into slopes and shares of its classes; add its loss. */
static inline void cp_newton_softmax(const cp_newton *s, cp_newton_lane *a, int64_t r)
{
    const int64_t classes = s->form.outputs, own = (int64_t)a->label[r];
    double *m = a->slope + r, *p = a->curve + r, sum = 0;
    int64_t best = 0, ties = 0;
    for (int64_t k = 1; k < classes; k++)
        best = m[k * CP_NEWTON_ROWS] > m[best * CP_NEWTON_ROWS] ? k : best;
    const double top = m[best * CP_NEWTON_ROWS], loss = top - m[own * CP_NEWTON_ROWS];
    for (int64_t k = 0; k < classes; k++) {
        ties += m[k * CP_NEWTON_ROWS] == top;
        sum += p[k * CP_NEWTON_ROWS] = cp_exp(m[k * CP_NEWTON_ROWS] - top);
    }
    for (int64_t k = 0; k < classes; k++) {
        p[k * CP_NEWTON_ROWS] /= sum;
        m[k * CP_NEWTON_ROWS] = a->weight[r] * (p[k * CP_NEWTON_ROWS] - (k == own));
    }
    cp_newton_count(&a->totals, cp_log(sum) + loss, a->weight[r]);
    a->totals.correct += best == own ? a->weight[r] : 0;
    a->totals.wrong += a->weight[r] > 0 && (best != own || ties > 1);
}

/* Turn the margins of row r, one per class, each against the rest, into slopes and curvatures; add its loss. */
static inline void cp_newton_rest(const cp_newton *s, cp_newton_lane *a, int64_t r)
{
    const int64_t own = (int64_t)a->label[r];
    const double w = a->weight[r];
    int64_t best = 0, wrong = 0;
    for (int64_t k = 1; k < s->form.outputs; k++)
        best = a->slope[k * CP_NEWTON_ROWS + r] > a->slope[best * CP_NEWTON_ROWS + r] ? k : best;
    for (int64_t k = 0; k < s->form.outputs; k++) {
        double *m = a->slope + k * CP_NEWTON_ROWS + r, y = k == own ? 1 : -1;
        const cp_newton_point at = cp_newton_at(s->form.loss, *m, y, &s->terms);
        wrong += w > 0 && !(y * *m > 0);
        cp_newton_count(&a->totals, at.value, w);
        *m = w * at.slope;
        a->curve[k * CP_NEWTON_ROWS + r] = w * at.curve;
    }
    a->totals.correct += best == own ? w : 0;
    a->totals.wrong += wrong > 0;
}

/* Turn the margin of row r into slope and curvature; add its loss, and its error or whether it is right. */
static inline void cp_newton_one(const cp_newton *s, cp_newton_lane *a, int64_t r)
{
    const double m = a->slope[r], y = a->label[r], w = a->weight[r];
    cp_newton_totals *t = &a->totals;
    cp_newton_point at = cp_newton_at(s->form.loss, m, y, &s->terms);
    cp_newton_count(t, at.value, w);
    if (s->start)
        at = cp_newton_start(s->form.loss, at, m, y);
    a->slope[r] = w * at.slope;
    a->curve[r] = w * at.curve;
    if (cp_losses[s->form.loss].labels == CP_NUMBERS) {
        const double off = (cp_losses[s->form.loss].exponential ? cp_exp(m) : m) - y;
        t->squares += w * (off * off);
        t->sum += w * y;
        t->square += w * (y * y);
    } else
        cp_newton_count_side(t, m, y, w);
}

static inline void cp_newton_points(const cp_newton *s, cp_newton_lane *a)
{
    for (int64_t r = 0; r < a->filled; r++) {
        a->totals.rows++;
        a->totals.weight += a->weight[r];
        if (s->form.loss == CP_SOFTMAX)
            cp_newton_softmax(s, a, r);
        else if (cp_loss_per_class(s->form.loss))
            cp_newton_rest(s, a, r);
        else
            cp_newton_one(s, a, r);
    }
}

#define CP_NEWTON_PASTE2(name, isa) cp_newton_##name##_##isa
#define CP_NEWTON_PASTE(name, isa) CP_NEWTON_PASTE2(name, isa)

#define CP_TEMPLATE "newton/block.h"
#include "sgd/levels.h"

/* Apply a function of the template at the state's instruction set. */
#define CP_NEWTON_CALL(s, name, ...) CP_CALL((s)->isa, cp_newton_##name, __VA_ARGS__)

/* Begin a pass at weights [outputs][width], the intercept last. */
static inline void cp_newton_begin(cp_newton *s, enum cp_newton_matrix pass, int start, double blend,
                                   double width, const double *weights, const double *center, const double *factor)
{
    const int64_t outputs = s->form.outputs;
    s->pass = pass;
    s->start = start;
    s->terms.blend = blend;
    s->terms.width = width;
    s->isa = s->isa < 0 || s->isa > cp_sgd_isa() ? cp_sgd_isa() : s->isa;
    for (int64_t k = 0; k < outputs; k++)
        memcpy(s->weights + k * s->padded, weights + k * s->width, (size_t)s->width * sizeof *weights);
    memcpy(s->center, center, (size_t)s->form.features * sizeof *center);
    memcpy(s->factor, factor, (size_t)s->form.features * sizeof *factor);
    for (int64_t l = 0; l < s->lanes; l++) {
        cp_newton_lane *a = s->lane + l;
        a->filled = 0;
        a->totals = (cp_newton_totals){0};
        memset(a->row, 0, (size_t)s->padded * sizeof *a->row);
        memset(a->high, 0, (size_t)(2 * outputs * s->padded) * sizeof *a->high); /* high, low */
        memset(a->matrix, 0, (size_t)(s->pairs * s->padded * s->padded) * sizeof *a->matrix);
    }
}

/* Take note of an unusable row. Returns whether the pass may go on. */
static inline int cp_newton_refuse(const cp_newton *s, cp_newton_lane *a, int status, int64_t at)
{
    a->totals.skipped++;
    if (s->skip && status != CP_SGD_BAD_LENGTH)
        return 1;
    a->totals.bad = at;
    a->totals.status = status;
    return 0;
}

/* Return the flaw of row i of the chunk, which is the open block's last. */
static inline int cp_newton_flaw(const cp_newton *s, const cp_newton_lane *a, const cp_chunk *c, int64_t i)
{
    int status = s->form.sparse ? cp_check_indices(c->index[i], c->length[i], s->form.features) : CP_SGD_OK;
    for (int64_t j = 0; !status && j < s->form.features; j++) {
        const int64_t column = j % CP_NEWTON_PANEL;
        const double z = a->z[(j - column) * CP_NEWTON_ROWS + (a->filled - 1) * CP_NEWTON_PANEL + column];
        status = z - z == 0 ? CP_SGD_OK : CP_SGD_BAD_VALUE;
    }
    return status;
}

/* Add rows of a chunk one by one; the first is number `at` of the call. Returns whether the pass may go on. */
static inline int cp_newton_sift(const cp_newton *s, cp_newton_lane *a, const cp_chunk *c, int64_t at)
{
    for (int64_t i = 0, status; i < c->n; i++) {
        if (CP_NEWTON_CALL(s, take, s, a, c, i, 1) || !(status = cp_newton_flaw(s, a, c, i)))
            continue;
        a->filled--;
        if (!cp_newton_refuse(s, a, (int)status, at + i))
            return 0;
    }
    return 1;
}

/* Add the visits `from` to `to`, which are of one block, to a lane. Returns whether the pass may go on. */
static inline int cp_newton_add_block(const cp_newton *s, cp_newton_lane *a, const cp_rows *r, int64_t from,
                                      int64_t to, cp_chunk *c)
{
    for (int64_t at = from; at < to; at++) {
        const int64_t filled = a->filled;
        cp_prepare(&s->form, r, at, to - at, c);
        if (!CP_NEWTON_CALL(s, take, s, a, c, 0, c->n)) {
            a->filled = filled;
            if (!cp_newton_sift(s, a, c, at))
                return 0;
        }
        at += c->n;
        if (at < to && !cp_newton_refuse(s, a, c->status, at))
            return 0;
    }
    return 1;
}

/* Add a lane's rows of a call to its sums; the call's first row is number `first` of the pass. If a row cannot be used,
 * the lane's `bad` is its place in the call and `status` says why. */
static inline void cp_newton_add(const cp_newton *s, int64_t lane, cp_rows *r, int64_t first)
{
    cp_newton_lane *a = s->lane + lane;
    const int64_t rows = CP_NEWTON_ROWS;
    cp_chunk c;
    r->safe = r->slots; /* rows are not read past their end */
    cp_begin_weights(&s->form, r, &c);
    a->totals.status = CP_SGD_OK;
    for (int64_t block = first / rows; block * rows < first + r->m; block++) {
        const int64_t from = block * rows - first, to = from + rows;
        if (block % s->lanes != lane)
            continue;
        if (!cp_newton_add_block(s, a, r, from > 0 ? from : 0, to < r->m ? to : r->m, &c))
            return;
        if (to <= r->m)
            CP_NEWTON_CALL(s, sum_block, s, a);
    }
}

/* End a pass: sum the lanes, in their order, into the first. */
static inline void cp_newton_end(cp_newton *s)
{
    cp_newton_lane *to = s->lane;
    const int64_t gradients = s->form.outputs * s->padded, numbers = s->pairs * s->padded * s->padded;
    for (int64_t l = 0; l < s->lanes; l++) {
        cp_newton_lane *a = s->lane + l;
        cp_newton_totals *t = &to->totals, *u = &a->totals;
        if (a->filled)
            CP_NEWTON_CALL(s, sum_block, s, a);
        if (a == to)
            continue;
        t->rows += u->rows, t->skipped += u->skipped, t->wrong += u->wrong, t->weight += u->weight;
        t->correct += u->correct, t->squares += u->squares, t->sum += u->sum, t->square += u->square;
        cp_newton_count(t, u->loss, 1);
        t->lost += u->lost;
        for (int64_t j = 0; j < gradients; j++) {
            const double next = to->high[j] + a->high[j], back = next - to->high[j];
            to->low[j] += ((to->high[j] - (next - back)) + (a->high[j] - back)) + a->low[j];
            to->high[j] = next;
        }
        if (s->pass == CP_NEWTON_TRIANGLE)
            cp_triangle_add(to->matrix, s->width + 1, 0, a->matrix, s->width + 1, s->padded, a->row);
        for (int64_t j = 0; s->pass == CP_NEWTON_GRAM && j < numbers; j++)
            to->matrix[j] += a->matrix[j];
    }
}
