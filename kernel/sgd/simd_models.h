/* Template: several dense models visit the same rows at once, one update per row, by the learner of sgd/dense.h or,
 * with per-weight rates, that of sgd/cached_rsqrt.h; rows have at most CP_NARROW_PACKS packs. Each model gets the
 * bits that it gets alone: sums across a single model's lanes are taken here vector by vector in the same order, and
 * the loss of all models is computed at once.
 *
 * All models read the same rows. With several folds (`by_fold`), a row changes no bit of the models of its own fold,
 * and their pending update waits. That update belongs to the last row outside their fold, so at most two rows are
 * pending. */

#include "sgd/scratch.h"

#define LANE_POINT CP_LANED(point_type)

/* Sums of products with a row: of v, and of q. */
typedef struct { LANE v, q; } CP(sums_type);
#define SUMS CP(sums_type)

CP_INLINE SUMS CP(added)(SUMS a, SUMS b) { return (SUMS){a.v + b.v, a.q + b.q}; }

/* The products summed: with v; with q too; with v as in CP(dot), for rows of at most two packs or of more. */
enum CP(sums) { CP(OF_V), CP(OF_BOTH), CP(SHORT_DOT), CP(LONG_DOT) };

/* Return the sum of products of features i, i + CP_LANES and so on, which lane i of a single model sums; CP(columns_2)
 * to CP(columns_8) add such lanes as CP(sum) does. Lanes past the last feature add 0, once, at the end. */
CP_INLINE SUMS CP(column)(const SCRATCH *t, const REAL *x, int64_t i, const enum CP(sums) how)
{
    SUMS sum = {CP(lanes)(0), CP(lanes)(0)};
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
            sum = (SUMS){sum.v + sum.q, CP(lanes)(0)};
    }
    return sum;
}

CP_INLINE SUMS CP(columns_2)(const SCRATCH *t, const REAL *x, int64_t i, const enum CP(sums) how)
{
    return CP(added)(CP(column)(t, x, i, how), CP(column)(t, x, i + CP_LANES / 2, how));
}

CP_INLINE SUMS CP(columns_4)(const SCRATCH *t, const REAL *x, int64_t i, const enum CP(sums) how)
{
    return CP(added)(CP(columns_2)(t, x, i, how), CP(columns_2)(t, x, i + CP_LANES / 4, how));
}

CP_INLINE SUMS CP(columns_8)(const SCRATCH *t, const REAL *x, int64_t i, const enum CP(sums) how)
{
    return CP(added)(CP(columns_4)(t, x, i, how), CP(columns_4)(t, x, i + CP_LANES / 8, how));
}

CP_INLINE void CP(products)(SCRATCH *t, const REAL *x, const enum CP(sums) how)
{
    SUMS all = CP(columns_8)(t, x, 0, how);
    if (CP_LANES == 16)
        all = CP(added)(all, CP(columns_8)(t, x, 1, how));
    const LANE behind = CP(lanes)(t->features % CP_LANES ? (REAL)0 : -(REAL)0); /* adding -0 changes nothing */
    t->va = all.v + behind;
    t->qb = all.q + behind;
}

static CP_NOINLINE void CP(plain_products)(SCRATCH *t, const REAL *x) { CP(products)(t, x, CP(OF_V)); }
static CP_NOINLINE void CP(rooted_products)(SCRATCH *t, const REAL *x) { CP(products)(t, x, CP(OF_BOTH)); }
static CP_NOINLINE void CP(dots)(SCRATCH *t, const REAL *x)
{
    if (t->features > 2 * CP_LANES)
        CP(products)(t, x, CP(LONG_DOT));
    else
        CP(products)(t, x, CP(SHORT_DOT));
}

/* The row of the pending update, for the models that visited it, and an older row for the others. */
typedef struct { const REAL *row, *older; CP(lane_bits) by; } CP(held_type);
#define HELD CP(held_type)

/* Apply the pending updates, which do not wait for the slope. */
CP_INLINE void CP(moves)(SCRATCH *t, const HELD *of, CP(lane_bits) go, const int rooted, const int by_fold)
{
    const LANE h = t->h;
    for (int64_t j = 0; j < t->features; j++) {
        const LANE row = CP(lanes)(of->row[j]), q = rooted  ? t->of[j].q
                                                    : by_fold ? CP(choose)(of->by, row, CP(lanes)(of->older[j]))
                                                            : row;
        t->of[j].v -= by_fold ? CP(select_models)(go, h * q) : h * q;
    }
}

/* Return the sums of products of a row with the pending rows, plus `unit`. */
CP_INLINE LANE CP(products_held)(const PACK *x, const HELD *of, const CP(bits_type) * keep, LANE unit, const int packs,
                                 const int by_fold)
{
    PACK p[CP_NARROW_PACKS], older[CP_NARROW_PACKS];
    CP(load_row)(p, of->row, keep, packs);
    PACK a = CP(multiply)(p[0], x[0]);
    for (int j = 1; j < packs; j++)
        a = CP(add_product)(a, p[j], x[j]);
    const LANE sum = CP(lanes)(CP(sum)(a)[0]) + unit;
    if (!by_fold)
        return sum;
    CP(load_row)(older, of->older, keep, packs);
    a = CP(multiply)(older[0], x[0]);
    for (int j = 1; j < packs; j++)
        a = CP(add_product)(a, older[j], x[j]);
    return CP(choose)(of->by, sum, CP(lanes)(CP(sum)(a)[0]) + unit);
}

/* Add the gradients of a row and hold its update back. Returns whether a sum has outgrown its root. */
static CP_NOINLINE int CP(take_gradients)(SCRATCH *t, const REAL *x, const REAL *sized)
{
    const LANE slope = t->slope;
    CP(lane_bits) hit;
    t->sum_bias += slope * slope;
    /* the sign bit is set if the sum is too large */
    hit = (CP(lane_bits))(CP_GROWTH - (t->sum_bias * t->root_bias) * t->root_bias);
    for (int64_t j = 0; j < t->features; j++) {
        const LANE root = t->of[j].root, g = slope * x[j], sum = t->of[j].sum + g * g;
        t->of[j].sum = sum;
        hit |= (CP(lane_bits))(CP_GROWTH - (sum * root) * root);
        t->of[j].q = sized[j] * root;
    }
    return CP(any_model)(hit & ~((CP(bits_type))-1 >> 1));
}

/* Add the gradients of a row with several folds; models that do not visit it have slope 0. Returns whether a sum has
 * outgrown its root. */
static CP_NOINLINE int CP(take_gradients_folds)(SCRATCH *t, const REAL *x, CP(lane_bits) go)
{
    const LANE slope = t->slope;
    CP(lane_bits) hit;
    t->sum_bias += slope * slope;
    hit = (CP(lane_bits))(CP_GROWTH - (t->sum_bias * t->root_bias) * t->root_bias);
    for (int64_t j = 0; j < t->features; j++) {
        const LANE root = t->of[j].root, g = slope * x[j], sum = t->of[j].sum + g * g;
        t->of[j].sum = sum;
        hit |= (CP(lane_bits))(CP_GROWTH - (sum * root) * root);
        t->of[j].q = CP(choose)(go, (x[j] * t->of[j].inv) * root, t->of[j].q);
    }
    return CP(any_model)(hit & ~((CP(bits_type))-1 >> 1));
}

/* Recompute outgrown roots; models that do not visit the row have none. */
static CP_NOINLINE void CP(renew_models)(SCRATCH *t, const REAL *x, CP(lane_bits) go)
{
    for (int64_t j = 0; j < t->features; j++) {
        t->of[j].root = CP(renewed_lane)(t->of[j].sum, t->of[j].root);
        t->of[j].q = CP(choose)(go, (x[j] * t->of[j].inv) * t->of[j].root, t->of[j].q);
    }
    t->root_bias = CP(renewed_lane)(t->sum_bias, t->root_bias);
}

#include "sgd/simd_models_sized.h"

/* Apply the decay of one update to the scales, as CP(decay) does, except for the models in `out`. */
CP_INLINE void CP(decay_models)(SCRATCH *t, const MODEL_MASK *out)
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
        const double scale = CP_MODEL_ENTRY(t->scale, k);
        if (!(scale < 0x1p-20) || CP_MODEL_ENTRY(t->decay, k) == 1 || CP_MODEL_ENTRY(*out, k))
            continue;
        for (int64_t j = 0; j < t->features; j++)
            t->of[j].v[k] *= (REAL)scale;
        CP_MODEL_ENTRY(t->scale, k) = CP_MODEL_ENTRY(t->inverse, k) = 1;
    }
}

/* Clear the results of a row for the models that do not visit it. */
CP_INLINE void CP(clear_left_out)(LANE_POINT *p, CP(lane_bits) go)
{
    p->slope = CP(select_models)(go, p->slope);
    p->loss = CP(select_models)(go, p->loss);
    p->off = CP(select_models)(go, p->off);
    p->e = CP(select_models)(go, p->e);
    p->wrong |= ~go;
}

/* Add a row to the totals of each model, as CP(count) does; `ones`: 1 for each model that visits it, else 0. */
CP_INLINE void CP(count_models)(SCRATCH *t, const enum cp_loss loss, const LANE_POINT *p, const DOUBLES *y,
                                const DOUBLES *ones)
{
    CP(lane_bits) large = {0};
    const DOUBLES off = CP(widen)(p->off), value = CP(widen)(p->loss), e = CP(widen)(p->e);
    const DOUBLES right = CP(widen)((LANE)(~p->wrong & (CP(lane_bits))CP(lanes)(1)));
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
    for (int k = 0; loss == CP_LOGISTIC && CP(any_model)(large) && k < CP_LANE_MODELS; k++)
        if (CP_MODEL_ENTRY(t->ln, k) > 1e270) {
            CP_MODEL_ENTRY(t->loss, k) += cp_log(CP_MODEL_ENTRY(t->ln, k));
            CP_MODEL_ENTRY(t->ln, k) = 1;
        }
}

/* Read the labels of a row for each model. */
CP_INLINE void CP(labels_of)(const cp_chunk *c, int64_t i, LANE *y, DOUBLES *exact)
{
    if (c->each) {
        memcpy(y, (const REAL *)c->each + i * CP_MAX_MODELS, sizeof *y);
        *exact = CP(widen)(*y);
        return;
    }
    *y = CP(lanes)((REAL)c->label[i]);
    CP_WIDE exact->part[wide_] = c->label[i] - (CP(wide_type)){0};
}

/* Hold the update of a row back for the models that visit it. */
CP_INLINE void CP(hold)(SCRATCH *t, LANE g, LANE h, CP(lane_bits) go, const int by_fold)
{
    t->g = by_fold ? CP(choose)(go, g, t->g) : g;
    t->h = by_fold ? CP(choose)(go, h, t->h) : h;
}

/* Learn the rows of a chunk. Returns the number learnt, fewer than the chunk's if a margin is not finite; the models
 * are then as before that row. */
CP_INLINE int64_t CP(models_rows)(cp_sgd *const *s, SCRATCH *t, cp_chunk *c, const enum cp_loss loss, const int rooted,
                                  const int by_fold)
{
    const int normalized = rooted && s[0]->rule == CP_NORMALIZED, packs = (int)(s[0]->padded / CP_LANES);
    const LANE unit = CP(lanes)((REAL)s[0]->intercept), parameter = CP(lanes)((REAL)s[0]->parameter);
    const LANE rate = CP(narrowed)(t->rate);
    HELD of = {(const REAL *)c->before, (const REAL *)c->older,
               by_fold ? t->visitors[c->left_out] : ~(CP(lane_bits)){0}};
    PACK x[CP_NARROW_PACKS], sized[CP_NARROW_PACKS];
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        const int left_out = by_fold ? c->part[i] : t->parts;
        const CP(lane_bits) go = by_fold ? t->visitors[left_out] : ~(CP(lane_bits)){0};
        const DOUBLES ones = CP(widen)(CP(select_models)(go, CP(lanes)(1)));
        LANE m, y, by = rate;
        DOUBLES exact;
        cp_prefetch_rows(c, i, c->lines);
        if (normalized || !rooted)
            CP(load_row)(x, row, keep, packs);
        if (normalized)
            CP(size_row)(s, t, row, x, left_out, packs, 1);
        for (int j = 0; normalized && !by_fold && j < packs; j++)
            sized[j] = CP(multiply)(x[j], t->inv[0][j]);
        if (rooted) {
            CP(rooted_products)(t, row);
            m = (t->va + t->bias) - (t->h * t->qb + t->g);
        } else {
            const LANE px = CP(products_held)(x, &of, keep, unit, packs, by_fold);
            CP(plain_products)(t, row);
            m = (CP(narrowed)(t->scale) * t->va + t->bias) - t->g * px;
        }
        if (CP(any_model)(~(CP(lane_bits))(m - m == 0) & go))
            break;
        if (normalized)
            by = CP(narrowed)(CP(rates)(t, s[0]->intercept, left_out, 1));
        CP(labels_of)(c, i, &y, &exact);
        LANE_POINT result = CP_LANED(formula)(loss, m, y, rooted ? CP(lanes)(1) : rate, parameter);
        if (by_fold)
            CP(clear_left_out)(&result, go);
        CP(moves)(t, &of, go, rooted, by_fold);
        const LANE g = rooted ? t->g : t->g * unit;
        t->bias -= by_fold ? CP(select_models)(go, g) : g;
        t->slope = result.slope;
        if (rooted) {
            if (by_fold ? CP(take_gradients_folds)(t, row, go)
                      : CP(take_gradients)(t, row, normalized ? (const REAL *)sized : row))
                CP(renew_models)(t, row, go);
            const LANE h = by * result.slope;
            CP(hold)(t, (h * t->root_bias) * unit, h, go, by_fold);
        } else {
            if (t->decaying)
                CP(decay_models)(t, &t->left_out[left_out]);
            CP(hold)(t, result.slope, result.slope * CP(narrowed)(t->inverse), go, by_fold);
        }
        of = (HELD){row, !by_fold || left_out == c->left_out ? of.older : of.row, go};
        c->left_out = left_out;
        CP(count_models)(t, loss, &result, &exact, &ones);
        if (t->averaging)
            CP(count_towards_sample)(s, t, go);
    }
    c->before = (const char *)of.row;
    c->older = (const char *)of.older;
    return i;
}

#include "sgd/simd_models_stateful.h"

static CP_NOINLINE int64_t CP(learn_models)(cp_sgd *const *s, void *memory, cp_chunk *c)
{
    SCRATCH *t = memory;
    if (s[0]->rooted)
        return c->part ? CP(models_rows)(s, t, c, s[0]->loss, 1, 1) : CP(models_rows)(s, t, c, s[0]->loss, 1, 0);
    if (s[0]->ruled)
        return CP(ruled_models_rows)(s, t, c, s[0]->loss);
    return c->part ? CP(models_rows)(s, t, c, s[0]->loss, 0, 1) : CP(models_rows)(s, t, c, s[0]->loss, 0, 0);
}

_Static_assert(sizeof(SCRATCH) <= CP_SCRATCH_BYTES, "a company has room");

const cp_multi_model_code CP(multi_model_code) = {CP_LANE_MODELS, CP(assemble), CP(learn_models), CP(part)};
#undef CP_GROWTH
#undef CP_LANE_MODELS
#undef CP_MAX_NARROW_FEATURES
#undef CP_MODEL_ENTRY
#undef CP_WIDE
#undef DOUBLES
#undef MODEL_MASK
#undef LANE_POINT
#undef SCRATCH
#undef HELD
#undef SUMS
