/* Template: several dense models visit the same rows at once, one update per row, by the learner of sgd/dense.h or,
 * with per-weight rates, that of sgd/cached_rsqrt.h; rows have at most CP_NARROW_PACKS packs. Each model gets the
 * bits that it gets alone: sums across a single model's lanes are taken here vector by vector in the same order, and
 * the loss of all models is computed at once. */

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

/* Apply the pending updates, which do not wait for the slope. */
CP_INLINE void CP(moves)(SCRATCH *t, const REAL *held, const int rooted)
{
    const LANE h = t->h;
    for (int64_t j = 0; j < t->features; j++)
        t->of[j].v -= h * (rooted ? t->of[j].q : CP(lanes)(held[j]));
}

/* Return the sum of products of a row with the pending row, plus `unit`. */
CP_INLINE LANE CP(products_held)(const PACK *x, const REAL *held, const CP(bits_type) * keep, LANE unit,
                                 const int packs)
{
    PACK p[CP_NARROW_PACKS];
    CP(load_row)(p, held, keep, packs);
    PACK a = CP(multiply)(p[0], x[0]);
    for (int j = 1; j < packs; j++)
        a = CP(add_product)(a, p[j], x[j]);
    return CP(lanes)(CP(sum)(a)[0]) + unit;
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

/* Recompute outgrown roots. */
static CP_NOINLINE void CP(renew_models)(SCRATCH *t, const REAL *x)
{
    for (int64_t j = 0; j < t->features; j++) {
        t->of[j].root = CP(renewed_lane)(t->of[j].sum, t->of[j].root);
        t->of[j].q = (x[j] * t->of[j].inv) * t->of[j].root;
    }
    t->root_bias = CP(renewed_lane)(t->sum_bias, t->root_bias);
}

#include "sgd/simd_models_sized.h"

/* Apply the decay of one update to the scales, as CP(decay) does. */
CP_INLINE void CP(decay_models)(SCRATCH *t)
{
    CP(lane_bits) small = {0};
    CP_WIDE {
        t->scale.part[wide_] *= t->decay.part[wide_];
        t->inverse.part[wide_] *= t->undecay.part[wide_];
        small |= (CP(lane_bits))(t->scale.part[wide_] < 0x1p-20);
    }
    for (int k = 0; CP(any_model)(small) && k < t->count; k++) {
        const double scale = CP_MODEL_ENTRY(t->scale, k);
        if (!(scale < 0x1p-20) || CP_MODEL_ENTRY(t->decay, k) == 1)
            continue;
        for (int64_t j = 0; j < t->features; j++)
            t->of[j].v[k] *= (REAL)scale;
        CP_MODEL_ENTRY(t->scale, k) = CP_MODEL_ENTRY(t->inverse, k) = 1;
    }
}

/* Add a row to the totals of each model, as CP(count) does. */
CP_INLINE void CP(count_models)(SCRATCH *t, const enum cp_loss loss, const LANE_POINT *p, const DOUBLES *y)
{
    CP(lane_bits) large = {0};
    const DOUBLES off = CP(widen)(p->off), value = CP(widen)(p->loss), e = CP(widen)(p->e);
    const DOUBLES right = CP(widen)((LANE)(~p->wrong & (CP(lane_bits))CP(lanes)(1)));
    CP_WIDE {
        t->weight.part[wide_] += 1;
        if (cp_losses[loss].labels == CP_NUMBERS) {
            const CP(wide_type) square = off.part[wide_] * off.part[wide_], label = y->part[wide_];
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

/* Learn the rows of a chunk. Returns the number learnt, fewer than the chunk's if a margin is not finite; the models
 * are then as before that row. */
CP_INLINE int64_t CP(models_rows)(cp_sgd *const *s, SCRATCH *t, cp_chunk *c, const enum cp_loss loss, const int rooted)
{
    const int normalized = rooted && s[0]->rule == CP_NORMALIZED, packs = (int)(s[0]->padded / CP_LANES);
    const LANE unit = CP(lanes)((REAL)s[0]->intercept), parameter = CP(lanes)((REAL)s[0]->parameter);
    const LANE rate = CP(narrowed)(t->rate);
    const REAL *held = (const REAL *)c->before;
    PACK x[CP_NARROW_PACKS], sized[CP_NARROW_PACKS];
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        LANE m, y, by = rate;
        DOUBLES exact;
        cp_prefetch_rows(c, i, c->lines);
        if (normalized || !rooted)
            CP(load_row)(x, row, keep, packs);
        if (normalized)
            CP(size_row)(s, t, row, x, packs, 1);
        for (int j = 0; normalized && j < packs; j++)
            sized[j] = CP(multiply)(x[j], t->inv[j]);
        if (rooted) {
            CP(rooted_products)(t, row);
            m = (t->va + t->bias) - (t->h * t->qb + t->g);
        } else {
            const LANE px = CP(products_held)(x, held, keep, unit, packs);
            CP(plain_products)(t, row);
            m = (CP(narrowed)(t->scale) * t->va + t->bias) - t->g * px;
        }
        if (CP(any_model)(~(CP(lane_bits))(m - m == 0)))
            break;
        if (normalized)
            by = CP(narrowed)(CP(rates)(t, s[0]->intercept, 1));
        CP(labels_of)(c, i, &y, &exact);
        const LANE_POINT result = CP_LANED(formula)(loss, m, y, rooted ? CP(lanes)(1) : rate, parameter);
        CP(moves)(t, held, rooted);
        t->bias -= rooted ? t->g : t->g * unit;
        t->slope = result.slope;
        if (rooted) {
            if (CP(take_gradients)(t, row, normalized ? (const REAL *)sized : row))
                CP(renew_models)(t, row);
            t->h = by * result.slope;
            t->g = (t->h * t->root_bias) * unit;
        } else {
            if (t->decaying)
                CP(decay_models)(t);
            t->g = result.slope;
            t->h = result.slope * CP(narrowed)(t->inverse);
        }
        held = row;
        CP(count_models)(t, loss, &result, &exact);
        if (t->averaging)
            CP(count_towards_sample)(s, t);
    }
    c->before = (const char *)held;
    return i;
}

#include "sgd/simd_models_stateful.h"

static CP_NOINLINE int64_t CP(learn_models)(cp_sgd *const *s, void *memory, cp_chunk *c)
{
    SCRATCH *t = memory;
    if (s[0]->rooted)
        return CP(models_rows)(s, t, c, s[0]->loss, 1);
    if (s[0]->ruled)
        return CP(ruled_models_rows)(s, t, c, s[0]->loss);
    return CP(models_rows)(s, t, c, s[0]->loss, 0);
}

_Static_assert(sizeof(SCRATCH) <= CP_SCRATCH_BYTES, "the scratch memory fits");

const cp_multi_model_code CP(multi_model_code) = {CP_LANE_MODELS, CP(assemble), CP(learn_models), CP(part)};
#undef CP_GROWTH
#undef CP_LANE_MODELS
#undef CP_MAX_NARROW_FEATURES
#undef CP_MODEL_ENTRY
#undef CP_WIDE
#undef DOUBLES
#undef LANE_POINT
#undef SCRATCH
#undef SUMS
