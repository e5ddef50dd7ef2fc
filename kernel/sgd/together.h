/* Template: several models visit the same rows at once, dense, one update a row, by the learner of sgd/dense.h or, where each
 * weight has a rate of its own, by that of sgd/rooted.h, with rows of at most CP_NARROW packs. Each gets the bits that it gets
 * alone. A lane of a native vector is a model, and a weight of all models is a vector: what one model adds up across its lanes is
 * added here vector to vector, in the same order, and the loss is computed of all models at a time. Rows are common to all. */

#define CP_MODELS (CP_VECTOR / CP_BYTES)

typedef double CP(wide_type) __attribute__((vector_size(CP_VECTOR)));
typedef CP_REAL CP(part_type) __attribute__((vector_size(CP_VECTOR / (8 / CP_BYTES)))); /* as many as a native vector has doubles */
typedef struct { CP(wide_type) part[8 / CP_BYTES]; } CP(doubles_type); /* one a model */
#define doubles CP(doubles_type)
#define judged CP_LANED(point_type)
#define CP_WIDE for (int wide_ = 0; wide_ < 8 / CP_BYTES; wide_++)
#define CP_MINE(d, k) (d).part[(k) / (CP_VECTOR / 8)][(k) % (CP_VECTOR / 8)]

typedef struct {
    lane bias, g, h, sum_bias, root_bias, slope, va, qb;
    doubles rate, scale, inverse, decay, undecay;
    doubles loss, ln, correct, weight, squares, sum, square; /* of the totals of each */
    double seen, norm;
    int64_t features, rows;
    int decaying;
    CP(rooted_type) sizes; /* of features only */
    struct { lane v, sum, root, q; } of[CP_NARROW * CP_LANES + 1];
} CP(company_type);
#define company CP(company_type)

CP_INLINE doubles CP(widen)(lane a)
{
    doubles d;
#if CP_BYTES == 4
    d.part[0] = __builtin_convertvector(CP_LOW(CP(part_type), a), CP(wide_type));
    d.part[1] = __builtin_convertvector(CP_HIGH(CP(part_type), a), CP(wide_type));
#else
    d.part[0] = a;
#endif
    return d;
}

CP_INLINE lane CP(narrowed)(doubles d)
{
    union { lane whole; CP(part_type) part[8 / CP_BYTES]; } a;
    CP_WIDE a.part[wide_] = __builtin_convertvector(d.part[wide_], CP(part_type));
    return a.whole;
}

CP_INLINE lane CP(lanes)(real a) { return a - (lane){0}; }

/* Return whether a bit of any model is set. */
CP_INLINE int CP(any_model)(CP(lane_bits) bits)
{
    const CP(lane_bits) hit[CP_PARTS] = {bits};
    return CP(any)(hit);
}

/* Lanes of no model stay at 0, and their totals go nowhere. */
static CP_NOINLINE void CP(assemble)(cp_sgd *const *s, int count, void *room)
{
    company *t = room;
    memset(t, 0, sizeof *t);
    t->features = s[0]->features;
    for (int k = 0; k < count; k++) {
        const real *w = CP_AT(s[k], const real, w), *q = CP_AT(s[k], const real, prev);
        const real *sum = CP_AT(s[k], const real, sums), *root = CP_AT(s[k], const real, roots);
        for (int64_t j = 0; j < t->features; j++) {
            t->of[j].v[k] = w[j];
            t->of[j].q[k] = q[j];
            t->of[j].sum[k] = s[k]->rooted ? sum[j] : 0;
            t->of[j].root[k] = s[k]->rooted ? root[j] : 0;
        }
        t->bias[k] = *CP_AT(s[k], const real, bias);
        t->g[k] = *CP_AT(s[k], const real, g);
        t->h[k] = *CP_AT(s[k], const real, h);
        t->sum_bias[k] = s[k]->rooted ? *CP_AT(s[k], const real, sum_bias) : 0;
        t->root_bias[k] = s[k]->rooted ? root[s[k]->padded] : 0;
        t->decaying |= s[k]->decay != 1;
        const double of[] = {s[k]->rate, s[k]->scale, s[k]->inverse, s[k]->decay, s[k]->undecay, s[k]->totals.loss, s[k]->totals.ln,
                             s[k]->totals.correct, s[k]->totals.weight, s[k]->totals.squares, s[k]->totals.sum, s[k]->totals.square};
        for (int i = 0; i < 12; i++)
            CP_MINE((&t->rate)[i], k) = of[i];
    }
    t->seen = s[0]->seen, t->norm = s[0]->norm;
    if (s[0]->rule == CP_NORMALIZED)
        CP(load_sizes)(s[0], &t->sizes, (int)(s[0]->padded / CP_LANES));
}

/* Give models the weights that they have. */
static CP_NOINLINE void CP(show)(cp_sgd *const *s, int count, const void *room)
{
    const company *t = room;
    for (int k = 0; k < count; k++) {
        real *w = CP_AT(s[k], real, w);
        for (int64_t j = 0; j < t->features; j++)
            w[j] = t->of[j].v[k];
        *CP_AT(s[k], real, bias) = t->bias[k];
        s[k]->scale = CP_MINE(t->scale, k);
    }
}

static CP_NOINLINE void CP(part)(cp_sgd *const *s, int count, const void *room)
{
    const company *t = room;
    CP(show)(s, count, room);
    for (int k = 0; k < count; k++) {
        real *q = CP_AT(s[k], real, prev), *sum = CP_AT(s[k], real, sums), *root = CP_AT(s[k], real, roots);
        cp_sgd_totals *totals = &s[k]->totals;
        for (int64_t j = 0; j < t->features; j++)
            q[j] = t->of[j].q[k];
        for (int64_t j = 0; s[k]->rooted && j < t->features; j++) {
            sum[j] = t->of[j].sum[k];
            root[j] = t->of[j].root[k];
        }
        *CP_AT(s[k], real, g) = t->g[k];
        *CP_AT(s[k], real, h) = t->h[k];
        if (s[k]->rooted) {
            *CP_AT(s[k], real, sum_bias) = t->sum_bias[k];
            root[s[k]->padded] = t->root_bias[k];
        }
        s[k]->inverse = CP_MINE(t->inverse, k);
        totals->loss = CP_MINE(t->loss, k);
        totals->ln = CP_MINE(t->ln, k);
        totals->correct = CP_MINE(t->correct, k);
        totals->weight = CP_MINE(t->weight, k);
        totals->squares = CP_MINE(t->squares, k);
        totals->sum = CP_MINE(t->sum, k);
        totals->square = CP_MINE(t->square, k);
        totals->rows += t->rows;
        s[k]->seen = t->seen;
        s[k]->norm = t->norm;
    }
}

/* Sums of products with a row: of v, and of q. */
typedef struct { lane v, q; } CP(both_type);
#define both CP(both_type)

CP_INLINE both CP(added)(both a, both b) { return (both){a.v + b.v, a.q + b.q}; }

/* The products of features i, i + CP_LANES and so on, which lane i of a single model adds up; then the sums of such lanes as
 * CP(sum) adds them. What lanes behind the last feature add is 0: it is added once, at the end. */
CP_INLINE both CP(column)(const company *t, const real *x, int64_t i, const int rooted)
{
    both sum = {CP(lanes)(0), CP(lanes)(0)};
    if (i < t->features) {
        sum.v = t->of[i].v * x[i];
        if (rooted)
            sum.q = t->of[i].q * x[i];
        for (int64_t j = i + CP_LANES; j < t->features; j += CP_LANES) {
            sum.v += t->of[j].v * x[j];
            if (rooted)
                sum.q += t->of[j].q * x[j];
        }
    }
    return sum;
}

CP_INLINE both CP(columns_2)(const company *t, const real *x, int64_t i, const int rooted)
{
    return CP(added)(CP(column)(t, x, i, rooted), CP(column)(t, x, i + CP_LANES / 2, rooted));
}

CP_INLINE both CP(columns_4)(const company *t, const real *x, int64_t i, const int rooted)
{
    return CP(added)(CP(columns_2)(t, x, i, rooted), CP(columns_2)(t, x, i + CP_LANES / 4, rooted));
}

CP_INLINE both CP(columns_8)(const company *t, const real *x, int64_t i, const int rooted)
{
    return CP(added)(CP(columns_4)(t, x, i, rooted), CP(columns_4)(t, x, i + CP_LANES / 8, rooted));
}

CP_INLINE void CP(products)(company *t, const real *x, const int rooted)
{
    both all = CP(columns_8)(t, x, 0, rooted);
    if (CP_LANES == 16)
        all = CP(added)(all, CP(columns_8)(t, x, 1, rooted));
    const lane behind = CP(lanes)(t->features % CP_LANES ? (real)0 : -(real)0); /* of which -0 changes nothing */
    t->va = all.v + behind;
    t->qb = all.q + behind;
}

static CP_NOINLINE void CP(plain_products)(company *t, const real *x) { CP(products)(t, x, 0); }
static CP_NOINLINE void CP(rooted_products)(company *t, const real *x) { CP(products)(t, x, 1); }

/* Apply what is held back, which does not wait for the slope. */
CP_INLINE void CP(moves)(company *t, const real *before, const int rooted)
{
    const lane h = t->h;
    for (int64_t j = 0; j < t->features; j++)
        t->of[j].v -= rooted ? h * t->of[j].q : h * before[j];
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

static CP_NOINLINE void CP(renew_together)(company *t, const real *sized)
{
    for (int64_t j = 0; j < t->features; j++) {
        t->of[j].root = CP(renewed_lane)(t->of[j].sum, t->of[j].root);
        t->of[j].q = sized[j] * t->of[j].root;
    }
    t->root_bias = CP(renewed_lane)(t->sum_bias, t->root_bias);
}

/* Apply what is held back, and make weights smaller whose features are larger than all before, as CP(enlarge_rooted) does. */
static CP_NOINLINE void CP(enlarge_together)(cp_sgd *const *s, int count, company *t, const real *row)
{
    const real least = CP_BYTES == 4 ? (real)1e-37 : (real)1e-307;
    const real *inv = CP_AT(s[0], const real, inv);
    for (int64_t j = 0; j < t->features; j++)
        if (!CP(is_finite)(row[j]))
            return; /* a row that will be refused leaves no trace */
    t->bias -= t->g;
    for (int64_t j = 0; j < t->features; j++) {
        const real a = row[j] < 0 ? -row[j] : row[j], times = a * inv[j];
        t->of[j].v -= t->h * t->of[j].q;
        if (!(times > 1 || (inv[j] == 0 && a > 0)))
            continue;
        if (inv[j] > 0)
            t->of[j].v /= times;
        for (int k = 0; k < count; k++)
            CP_AT(s[k], real, inv)[j] = 1 / (a > least ? a : least);
    }
    t->g = t->h = (lane){0};
    CP(load_sizes)(s[0], &t->sizes, (int)(s[0]->padded / CP_LANES));
}

/* Take the decay of one update into the scales, as CP(decay) does. */
CP_INLINE void CP(decay_together)(cp_sgd *const *s, int count, company *t)
{
    CP(lane_bits) small = {0};
    CP_WIDE {
        t->scale.part[wide_] *= t->decay.part[wide_];
        t->inverse.part[wide_] *= t->undecay.part[wide_];
        small |= (CP(lane_bits))(t->scale.part[wide_] < 0x1p-20);
    }
    for (int k = 0; CP(any_model)(small) && k < count; k++) {
        const double scale = CP_MINE(t->scale, k);
        for (int64_t j = 0; s[k]->decay != 1 && scale < 0x1p-20 && j < t->features; j++)
            t->of[j].v[k] *= (real)scale;
        if (s[k]->decay != 1 && scale < 0x1p-20)
            CP_MINE(t->scale, k) = CP_MINE(t->inverse, k) = 1;
    }
}

/* Count a row for each model, as CP(count) does. */
CP_INLINE void CP(count_together)(company *t, const enum cp_loss loss, const judged *p, doubles y)
{
    CP(lane_bits) large = {0};
    const doubles off = CP(widen)(p->off), value = CP(widen)(p->loss), e = CP(widen)(p->e);
    const doubles right = CP(widen)((lane)(~p->wrong & (CP(lane_bits))CP(lanes)(1)));
    CP_WIDE {
        t->weight.part[wide_] += 1;
        if (cp_losses[loss].labels == CP_NUMBERS) {
            const CP(wide_type) square = off.part[wide_] * off.part[wide_];
            t->loss.part[wide_] += square / 2;
            t->squares.part[wide_] += square;
            t->sum.part[wide_] += y.part[wide_];
            t->square.part[wide_] += y.part[wide_] * y.part[wide_];
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

/* Learn the rows of a chunk. Returns those done: fewer than there are where a margin is not finite; each model is then as
 * before that row. */
CP_INLINE int64_t CP(together)(cp_sgd *const *s, int count, company *t, const cp_chunk *c, const enum cp_loss loss,
                               const int rooted)
{
    const int normalized = rooted && s[0]->rule == CP_NORMALIZED, packs = (int)(s[0]->padded / CP_LANES);
    const lane unit = CP(lanes)((real)s[0]->intercept), parameter = CP(lanes)((real)s[0]->parameter);
    const lane rate = CP(narrowed)(t->rate);
    const real *before = (const real *)c->before;
    pack x[CP_NARROW], p[CP_NARROW], sized[CP_NARROW], squares = CP(zero)();
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    CP(load_row)(p, before, keep, packs);
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        lane m, y, by = rate;
        doubles exact;
        cp_ask_ahead(c, i, c->lines);
        if (normalized || !rooted)
            CP(load_row)(x, row, keep, packs);
        if (normalized) {
            if (CP(sized)(&t->sizes, x, sized, &squares, packs)) {
                CP(enlarge_together)(s, count, t, row);
                CP(sized)(&t->sizes, x, sized, &squares, packs);
            }
        }
        if (rooted) {
            CP(rooted_products)(t, row);
            m = (t->va + t->bias) - (t->h * t->qb + t->g);
        } else {
            pack b = CP(multiply)(p[0], x[0]);
            for (int j = 1; j < packs; j++)
                b = CP(add_product)(b, p[j], x[j]);
            const lane px = CP(lanes)(CP(sum)(b)[0]) + unit;
            CP(plain_products)(t, row);
            m = (CP(narrowed)(t->scale) * t->va + t->bias) - t->g * px;
        }
        if (CP(any_model)(~(CP(lane_bits))(m - m == 0)))
            break;
        if (normalized) {
            doubles rates = t->rate;
            t->seen++;
            t->norm += (double)CP(sum)(squares)[0] + s[0]->intercept;
            const double times = t->norm > 0 ? sqrt(t->seen / t->norm) : 1;
            CP_WIDE rates.part[wide_] *= times;
            by = CP(narrowed)(rates);
        }
        CP(labels_of)(c, i, &y, &exact);
        const judged found = CP_LANED(formula_here)(loss, m, y, rooted ? CP(lanes)(1) : rate, parameter);
        CP(moves)(t, before, rooted);
        t->bias -= rooted ? t->g : t->g * unit;
        t->slope = found.slope;
        if (rooted) {
            const real *of = normalized ? (const real *)sized : row;
            if (CP(take_gradients)(t, row, of))
                CP(renew_together)(t, of);
            t->h = by * found.slope;
            t->g = (t->h * t->root_bias) * unit;
        } else {
            if (t->decaying)
                CP(decay_together)(s, count, t);
            t->g = found.slope;
            t->h = found.slope * CP(narrowed)(t->inverse);
            for (int j = 0; j < packs; j++)
                p[j] = x[j];
        }
        before = row;
        CP(count_together)(t, loss, &found, exact);
    }
    t->rows += i;
    for (int64_t j = 0; !rooted && j < t->features; j++)
        t->of[j].q = CP(lanes)(before[j]);
    return i;
}

static CP_NOINLINE int64_t CP(learn_together)(cp_sgd *const *s, int count, void *room, const cp_chunk *c)
{
#define CP_COPY(id) \
    if (s[0]->loss == CP_##id) \
        return s[0]->rooted ? CP(together)(s, count, room, c, CP_##id, 1) : CP(together)(s, count, room, c, CP_##id, 0);
    CP_COPIES(CP_COPY)
#undef CP_COPY
    return 0;
}

_Static_assert(sizeof(company) <= CP_COMPANY, "a company has room");

static const cp_sgd_company CP(together_code) = {
    CP_MODELS, CP(assemble), CP(learn_together), CP(show), CP(part),
};
#undef CP_GROWTH
#undef CP_MODELS
#undef CP_MINE
#undef CP_WIDE
#undef doubles
#undef judged
#undef company
#undef both
