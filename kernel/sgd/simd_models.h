/* Template: several models visit the same rows at once, dense, one update a row, by the learner of sgd/dense.h or, where each
 * weight has a rate of its own, by that of sgd/cached_rsqrt.h, with rows of at most CP_NARROW packs. Each gets the bits that it gets
 * alone: what one model adds up across its lanes is added here vector to vector, in the same order, and the loss is computed of
 * all models at a time.
 *
 * Rows are common to all. Where models are `apart`, of several parts, a row changes no bit of those of its own part: what they hold
 * back waits. It is of the row before the last one that was not of their part; so there are never more than two such rows. */

#include "sgd/scratch.h"

#define judged CP_LANED(point_type)

/* Sums of products with a row: of v, and of q. */
typedef struct { lane v, q; } CP(both_type);
#define both CP(both_type)

CP_INLINE both CP(added)(both a, both b) { return (both){a.v + b.v, a.q + b.q}; }

/* What is added up: products with v; with q too; with v as CP(dot) does, of rows of at most two packs or of more. */
enum CP(sums) { CP(OF_V), CP(OF_BOTH), CP(SHORT_DOT), CP(LONG_DOT) };

/* The products of features i, i + CP_LANES and so on, which lane i of a single model adds up; then the sums of such lanes as
 * CP(sum) adds them. What lanes behind the last feature add is 0: it is added once, at the end. */
CP_INLINE both CP(column)(const company *t, const real *x, int64_t i, const enum CP(sums) how)
{
    both sum = {CP(lanes)(0), CP(lanes)(0)};
    if (i < t->features) {
        sum.v = how < CP(SHORT_DOT) ? t->of[i].v * x[i] : sum.v + t->of[i].v * x[i];
        if (how == CP(OF_BOTH))
            sum.q = t->of[i].q * x[i];
        for (int64_t j = i + CP_LANES; j < t->features; j += CP_LANES) {
            if (how == CP(LONG_DOT) && j == i + CP_LANES)
                sum.q += t->of[j].v * x[j];
            else
                sum.v += t->of[j].v * x[j];
            if (how == CP(OF_BOTH))
                sum.q += t->of[j].q * x[j];
        }
        if (how == CP(LONG_DOT))
            sum = (both){sum.v + sum.q, CP(lanes)(0)};
    }
    return sum;
}

CP_INLINE both CP(columns_2)(const company *t, const real *x, int64_t i, const enum CP(sums) how)
{
    return CP(added)(CP(column)(t, x, i, how), CP(column)(t, x, i + CP_LANES / 2, how));
}

CP_INLINE both CP(columns_4)(const company *t, const real *x, int64_t i, const enum CP(sums) how)
{
    return CP(added)(CP(columns_2)(t, x, i, how), CP(columns_2)(t, x, i + CP_LANES / 4, how));
}

CP_INLINE both CP(columns_8)(const company *t, const real *x, int64_t i, const enum CP(sums) how)
{
    return CP(added)(CP(columns_4)(t, x, i, how), CP(columns_4)(t, x, i + CP_LANES / 8, how));
}

CP_INLINE void CP(products)(company *t, const real *x, const enum CP(sums) how)
{
    both all = CP(columns_8)(t, x, 0, how);
    if (CP_LANES == 16)
        all = CP(added)(all, CP(columns_8)(t, x, 1, how));
    const lane behind = CP(lanes)(t->features % CP_LANES ? (real)0 : -(real)0); /* of which -0 changes nothing */
    t->va = all.v + behind;
    t->qb = all.q + behind;
}

static CP_NOINLINE void CP(plain_products)(company *t, const real *x) { CP(products)(t, x, CP(OF_V)); }
static CP_NOINLINE void CP(rooted_products)(company *t, const real *x) { CP(products)(t, x, CP(OF_BOTH)); }
static CP_NOINLINE void CP(dots)(company *t, const real *x)
{
    if (t->features > 2 * CP_LANES)
        CP(products)(t, x, CP(LONG_DOT));
    else
        CP(products)(t, x, CP(SHORT_DOT));
}

/* The row whose update is held back, by those who visited it, and an older one, by the others. */
typedef struct { const real *row, *older; CP(lane_bits) by; } CP(held_type);
#define held CP(held_type)

/* Apply what is held back, which does not wait for the slope. */
CP_INLINE void CP(moves)(company *t, const held *of, CP(lane_bits) go, const int rooted, const int apart)
{
    const lane h = t->h;
    for (int64_t j = 0; j < t->features; j++) {
        const lane row = CP(lanes)(of->row[j]), q = rooted ? t->of[j].q : apart ? CP(either)(of->by, row, CP(lanes)(of->older[j])) : row;
        t->of[j].v -= apart ? CP(those)(go, h * q) : h * q;
    }
}

/* Return the sums of products of a row with those that are held back, and 1. */
CP_INLINE lane CP(products_held)(const pack *x, const held *of, const CP(bits_type) *keep, lane unit, const int packs, const int apart)
{
    pack p[CP_NARROW], older[CP_NARROW];
    CP(load_row)(p, of->row, keep, packs);
    pack a = CP(multiply)(p[0], x[0]);
    for (int j = 1; j < packs; j++)
        a = CP(add_product)(a, p[j], x[j]);
    const lane sum = CP(lanes)(CP(sum)(a)[0]) + unit;
    if (!apart)
        return sum;
    CP(load_row)(older, of->older, keep, packs);
    a = CP(multiply)(older[0], x[0]);
    for (int j = 1; j < packs; j++)
        a = CP(add_product)(a, older[j], x[j]);
    return CP(either)(of->by, sum, CP(lanes)(CP(sum)(a)[0]) + unit);
}

/* Take the gradients of a row in, and hold its update back. Returns whether a sum has outgrown its root. */
static CP_NOINLINE int CP(take_gradients)(company *t, const real *x, const real *sized)
{
    const lane slope = t->slope;
    CP(lane_bits) hit;
    t->sum_bias += slope * slope;
    hit = (CP(lane_bits))(CP_GROWTH - (t->sum_bias * t->root_bias) * t->root_bias); /* its sign is that of too large */
    for (int64_t j = 0; j < t->features; j++) {
        const lane root = t->of[j].root, g = slope * x[j], sum = t->of[j].sum + g * g;
        t->of[j].sum = sum;
        hit |= (CP(lane_bits))(CP_GROWTH - (sum * root) * root);
        t->of[j].q = sized[j] * root;
    }
    return CP(any_model)(hit & ~((CP(bits_type))-1 >> 1));
}

/* The same of models apart: the slopes of those who do not visit the row are 0. */
static CP_NOINLINE int CP(take_gradients_apart)(company *t, const real *x, CP(lane_bits) go)
{
    const lane slope = t->slope;
    CP(lane_bits) hit;
    t->sum_bias += slope * slope;
    hit = (CP(lane_bits))(CP_GROWTH - (t->sum_bias * t->root_bias) * t->root_bias);
    for (int64_t j = 0; j < t->features; j++) {
        const lane root = t->of[j].root, g = slope * x[j], sum = t->of[j].sum + g * g;
        t->of[j].sum = sum;
        hit |= (CP(lane_bits))(CP_GROWTH - (sum * root) * root);
        t->of[j].q = CP(either)(go, (x[j] * t->of[j].inv) * root, t->of[j].q);
    }
    return CP(any_model)(hit & ~((CP(bits_type))-1 >> 1));
}

/* Make roots anew that have been outgrown: none of those who do not visit the row. */
static CP_NOINLINE void CP(renew_together)(company *t, const real *x, CP(lane_bits) go)
{
    for (int64_t j = 0; j < t->features; j++) {
        t->of[j].root = CP(renewed_lane)(t->of[j].sum, t->of[j].root);
        t->of[j].q = CP(either)(go, (x[j] * t->of[j].inv) * t->of[j].root, t->of[j].q);
    }
    t->root_bias = CP(renewed_lane)(t->sum_bias, t->root_bias);
}

#include "sgd/simd_models_sized.h"

/* Take the decay of one update into the scales, as CP(decay) does, of those who are not left out. */
CP_INLINE void CP(decay_together)(company *t, const choice *out)
{
    const int count = t->first[t->parts];
    CP(lane_bits) small = {0};
    CP_WIDE {
        const CP(wide_bits) one = (CP(wide_bits))(1 - (CP(wide_type)){0}), pick = ~out->part[wide_];
        t->scale.part[wide_] *= (CP(wide_type))((pick & (CP(wide_bits))t->decay.part[wide_]) | (~pick & one));
        t->inverse.part[wide_] *= (CP(wide_type))((pick & (CP(wide_bits))t->undecay.part[wide_]) | (~pick & one));
        small |= (CP(lane_bits))(t->scale.part[wide_] < 0x1p-20);
    }
    for (int k = 0; CP(any_model)(small) && k < count; k++) {
        const double scale = CP_MINE(t->scale, k);
        if (!(scale < 0x1p-20) || CP_MINE(t->decay, k) == 1 || CP_MINE(*out, k))
            continue;
        for (int64_t j = 0; j < t->features; j++)
            t->of[j].v[k] *= (real)scale;
        CP_MINE(t->scale, k) = CP_MINE(t->inverse, k) = 1;
    }
}

/* Leave out of what was found of a row all that is of those who do not visit it. */
CP_INLINE void CP(leave_out)(judged *p, CP(lane_bits) go)
{
    p->slope = CP(those)(go, p->slope);
    p->loss = CP(those)(go, p->loss);
    p->off = CP(those)(go, p->off);
    p->e = CP(those)(go, p->e);
    p->wrong |= ~go;
}

/* Count a row for each model, as CP(count) does; `ones`: 1 of each that visits it, else 0. */
CP_INLINE void CP(count_together)(company *t, const enum cp_loss loss, const judged *p, const doubles *y, const doubles *ones)
{
    CP(lane_bits) large = {0};
    const doubles off = CP(widen)(p->off), value = CP(widen)(p->loss), e = CP(widen)(p->e);
    const doubles right = CP(widen)((lane)(~p->wrong & (CP(lane_bits))CP(lanes)(1)));
    CP_WIDE {
        t->weight.part[wide_] += ones->part[wide_];
        if (cp_losses[loss].labels == CP_NUMBERS) {
            const CP(wide_type) square = off.part[wide_] * off.part[wide_], label = y->part[wide_] * ones->part[wide_];
            t->loss.part[wide_] += square / 2;
            t->squares.part[wide_] += square;
            t->sum.part[wide_] += label;
            t->square.part[wide_] += label * label;
        } else {
            t->loss.part[wide_] += value.part[wide_];
            t->correct.part[wide_] += right.part[wide_];
        }
        if (loss == CP_LOGISTIC) {
            t->ln.part[wide_] *= 1 + e.part[wide_];
            large |= (CP(lane_bits))(t->ln.part[wide_] > 1e270);
        }
    }
    for (int k = 0; loss == CP_LOGISTIC && CP(any_model)(large) && k < CP_MODELS; k++)
        if (CP_MINE(t->ln, k) > 1e270) {
            CP_MINE(t->loss, k) += cp_log(CP_MINE(t->ln, k));
            CP_MINE(t->ln, k) = 1;
        }
}

/* Take the labels of a row as models see them. */
CP_INLINE void CP(labels_of)(const cp_chunk *c, int64_t i, lane *y, doubles *exact)
{
    if (c->each) {
        memcpy(y, (const real *)c->each + i * CP_TOGETHER, sizeof *y);
        *exact = CP(widen)(*y);
        return;
    }
    *y = CP(lanes)((real)c->label[i]);
    CP_WIDE exact->part[wide_] = c->label[i] - (CP(wide_type)){0};
}

/* Hold the update of a row back, by those who visit it. */
CP_INLINE void CP(hold)(company *t, lane g, lane h, CP(lane_bits) go, const int apart)
{
    t->g = apart ? CP(either)(go, g, t->g) : g;
    t->h = apart ? CP(either)(go, h, t->h) : h;
}

/* Learn the rows of a chunk. Returns those done: fewer than there are where a margin is not finite; each model is then as
 * before that row. */
CP_INLINE int64_t CP(together)(cp_sgd *const *s, company *t, cp_chunk *c, const enum cp_loss loss, const int rooted, const int apart)
{
    const int normalized = rooted && s[0]->rule == CP_NORMALIZED, packs = (int)(s[0]->padded / CP_LANES);
    const lane unit = CP(lanes)((real)s[0]->intercept), parameter = CP(lanes)((real)s[0]->parameter);
    const lane rate = CP(narrowed)(t->rate);
    held of = {(const real *)c->before, (const real *)c->older, apart ? t->visitors[c->left_out] : ~(CP(lane_bits)){0}};
    pack x[CP_NARROW], sized[CP_NARROW];
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        const int left_out = apart ? c->part[i] : t->parts;
        const CP(lane_bits) go = apart ? t->visitors[left_out] : ~(CP(lane_bits)){0};
        const doubles ones = CP(widen)(CP(those)(go, CP(lanes)(1)));
        lane m, y, by = rate;
        doubles exact;
        cp_ask_ahead(c, i, c->lines);
        if (normalized || !rooted)
            CP(load_row)(x, row, keep, packs);
        if (normalized)
            CP(size_together)(s, t, row, x, left_out, packs, 1);
        for (int j = 0; normalized && !apart && j < packs; j++)
            sized[j] = CP(multiply)(x[j], t->inv[0][j]);
        if (rooted) {
            CP(rooted_products)(t, row);
            m = (t->va + t->bias) - (t->h * t->qb + t->g);
        } else {
            const lane px = CP(products_held)(x, &of, keep, unit, packs, apart);
            CP(plain_products)(t, row);
            m = (CP(narrowed)(t->scale) * t->va + t->bias) - t->g * px;
        }
        if (CP(any_model)(~(CP(lane_bits))(m - m == 0) & go))
            break;
        if (normalized)
            by = CP(narrowed)(CP(rates)(t, s[0]->intercept, left_out, 1));
        CP(labels_of)(c, i, &y, &exact);
        judged found = CP_LANED(formula_here)(loss, m, y, rooted ? CP(lanes)(1) : rate, parameter);
        if (apart)
            CP(leave_out)(&found, go);
        CP(moves)(t, &of, go, rooted, apart);
        const lane g = rooted ? t->g : t->g * unit;
        t->bias -= apart ? CP(those)(go, g) : g;
        t->slope = found.slope;
        if (rooted) {
            if (apart ? CP(take_gradients_apart)(t, row, go) : CP(take_gradients)(t, row, normalized ? (const real *)sized : row))
                CP(renew_together)(t, row, go);
            const lane h = by * found.slope;
            CP(hold)(t, (h * t->root_bias) * unit, h, go, apart);
        } else {
            if (t->decaying)
                CP(decay_together)(t, &t->left_out[left_out]);
            CP(hold)(t, found.slope, found.slope * CP(narrowed)(t->inverse), go, apart);
        }
        of = (held){row, !apart || left_out == c->left_out ? of.older : of.row, go};
        c->left_out = left_out;
        CP(count_together)(t, loss, &found, &exact, &ones);
        if (t->averaging)
            CP(look_ahead)(s, t, go);
    }
    c->before = (const char *)of.row;
    c->older = (const char *)of.older;
    return i;
}

#include "sgd/simd_models_stateful.h"

static CP_NOINLINE int64_t CP(learn_together)(cp_sgd *const *s, void *room, cp_chunk *c)
{
    company *t = room;
#define CP_HELD(id, rooted) c->part ? CP(together)(s, t, c, CP_##id, rooted, 1) : CP(together)(s, t, c, CP_##id, rooted, 0)
#define CP_COPY(id) \
    if (s[0]->loss == CP_##id) \
        return s[0]->rooted ? (CP_HELD(id, 1)) : s[0]->ruled ? CP(ruled_together)(s, t, c, CP_##id) : (CP_HELD(id, 0));
    CP_COPIES(CP_COPY)
#undef CP_COPY
#undef CP_HELD
    return 0;
}

_Static_assert(sizeof(company) <= CP_COMPANY, "a company has room");

static const cp_sgd_company CP(together_code) = {CP_MODELS, CP(assemble), CP(learn_together), CP(part)};
#undef CP_GROWTH
#undef CP_MODELS
#undef CP_MOST_FEATURES
#undef CP_MINE
#undef CP_WIDE
#undef doubles
#undef choice
#undef judged
#undef company
#undef held
#undef both
