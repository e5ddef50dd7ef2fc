/* Template: several models visit the same rows at once by the rules of sgd/rooted.h, as sgd/together.h lets plain ones: each gets
 * the bits that it gets alone. Rows, and what they are divided by, are common to all, so that of what is held back, q = p / (s r),
 * each has but its own r. */

typedef struct {
    struct { pack v, sum, root; } of[CP_TOGETHER * CP_NARROW]; /* side by side: arrays of 4 KB would seem to overlap to the CPU */
    pack p[CP_NARROW];
    quad bias[CP_TOGETHER / CP_QUAD], g[CP_TOGETHER / CP_QUAD], h[CP_TOGETHER / CP_QUAD];
    quad sum_bias[CP_TOGETHER / CP_QUAD], root_bias[CP_TOGETHER / CP_QUAD];
    double rate[CP_TOGETHER];
    cp_sgd_totals totals[CP_TOGETHER];
    CP(rooted_type) sizes;    /* of features only */
} CP(rooted_company_type);
#define rooted_company CP(rooted_company_type)

static CP_NOINLINE void CP(assemble_rooted)(cp_sgd *const *s, int count, rooted_company *t, int packs)
{
    memset(t, 0, sizeof *t);
    for (int k = 0; k < count; k++) {
        CP(rooted_type) r;
        const int at = k / CP_QUAD, lane_ = k % CP_QUAD;
        CP(load_rooted)(s[k], &r, packs);
        for (int j = 0; j < packs; j++) {
            t->of[k * packs + j].v = r.v[j];
            t->of[k * packs + j].sum = r.sum[j];
            t->of[k * packs + j].root = r.root[j];
        }
        t->bias[at][lane_] = r.bias[0];
        t->g[at][lane_] = r.g[0];
        t->h[at][lane_] = r.h;
        t->sum_bias[at][lane_] = r.sum_bias[0];
        t->root_bias[at][lane_] = r.root_bias[0];
        t->rate[k] = s[k]->rate;
        t->totals[k] = s[k]->totals;
    }
    for (int k = count; k < CP_TOGETHER; k++)
        t->totals[k].ln = 1;
    if (s[0]->rule == CP_NORMALIZED)
        CP(load_sizes)(s[0], &t->sizes, packs);
}

static CP_NOINLINE void CP(part_rooted)(cp_sgd *const *s, int count, const rooted_company *t, int packs)
{
    for (int k = 0; k < count; k++) {
        CP(rooted_type) r;
        const int at = k / CP_QUAD, lane_ = k % CP_QUAD;
        for (int j = 0; j < packs; j++) {
            r.v[j] = t->of[k * packs + j].v;
            r.q[j] = CP(multiply)(t->p[j], t->of[k * packs + j].root);
            r.sum[j] = t->of[k * packs + j].sum;
            r.root[j] = t->of[k * packs + j].root;
        }
        r.bias = CP(all)(t->bias[at][lane_]);
        r.g = CP(all)(t->g[at][lane_]);
        r.h = t->h[at][lane_];
        r.sum_bias = CP(all)(t->sum_bias[at][lane_]);
        r.root_bias = CP(all)(t->root_bias[at][lane_]);
        CP(store_rooted)(s[k], &r, packs);
        s[k]->totals = t->totals[k];
    }
}

/* Apply what is held back, and make weights smaller whose features are larger than all before, as CP(enlarge_rooted) does. */
static CP_NOINLINE void CP(enlarge_together)(cp_sgd *const *s, int count, rooted_company *t, const real *row, const int packs)
{
    for (int64_t j = 0; j < s[0]->features; j++)
        if (!CP(is_finite)(row[j]))
            return;
    for (int k = 0; k < count; k++) {
        CP(rooted_type) r;
        for (int j = 0; j < packs; j++) {
            r.v[j] = t->of[k * packs + j].v;
            r.q[j] = CP(multiply)(t->p[j], t->of[k * packs + j].root);
        }
        r.bias = r.g = CP(all)(0);
        r.h = t->h[k / CP_QUAD][k % CP_QUAD];
        CP(enlarge_rooted)(s[k], &r, row, packs);
        for (int j = 0; j < packs; j++)
            t->of[k * packs + j].v = r.v[j];
    }
    for (int at = 0; at < CP_TOGETHER / CP_QUAD; at++) {
        t->bias[at] -= t->g[at];
        t->g[at] = t->h[at] = CP(all)(0);
    }
    CP(load_sizes)(s[0], &t->sizes, packs);
}

/* Score a row by all models. Returns whether each margin is finite. */
CP_INLINE int CP(margins_together)(const rooted_company *t, const pack *x, quad *m, int quads, const int packs)
{
    mask finite = ~(mask){0};
    for (int at = 0; at < quads; at++) {
        quad va[CP_QUAD], qb[CP_QUAD];
        for (int k = 0; k < CP_QUAD; k++) {
            const int from = (at * CP_QUAD + k) * packs;
            pack a = CP(multiply)(t->of[from].v, x[0]), b = CP(multiply)(CP(multiply)(t->p[0], t->of[from].root), x[0]);
            for (int j = 1; j < packs; j++) {
                a = CP(add_product)(a, t->of[from + j].v, x[j]);
                b = CP(add_product)(b, CP(multiply)(t->p[j], t->of[from + j].root), x[j]);
            }
            va[k] = CP(quarter)(a);
            qb[k] = CP(quarter)(b);
        }
        m[at] = (CP(sums)(va) + t->bias[at]) - (t->h[at] * CP(sums)(qb) + t->g[at]);
        finite &= (mask)(m[at] - m[at] == 0);
    }
    return CP(every)(finite);
}

/* Apply what is held back, and take the gradients in. Returns whether a sum has outgrown its root. */
CP_INLINE int CP(squares_together)(rooted_company *t, const pack *x, const quad *slope, int quads, const int packs)
{
    CP(lane_bits) hit[CP_PARTS] = {0};
    mask hit_bias = {0};
    for (int at = 0; at < quads; at++) {
        for (int k = 0; k < CP_QUAD; k++) {
            const int from = (at * CP_QUAD + k) * packs;
            for (int j = from; j < from + packs; j++)
                CP_EACH {
                    const lane g = slope[at][k] * CP_PART(x[j - from]), root = CP_PART(t->of[j].root);
                    CP_PART(t->of[j].v) = CP_PART(t->of[j].v) - t->h[at][k] * (CP_PART(t->p[j - from]) * root);
                    CP_PART(t->of[j].sum) += g * g;
                    hit[part_] |= (CP(lane_bits))((CP_PART(t->of[j].sum) * root) * root > CP_GROWTH);
                }
        }
        t->bias[at] -= t->g[at];
        t->sum_bias[at] += slope[at] * slope[at];
        hit_bias |= (mask)((t->sum_bias[at] * t->root_bias[at]) * t->root_bias[at] > CP_GROWTH);
    }
    return CP(any)(hit) | !CP(every)(~hit_bias);
}

static CP_NOINLINE void CP(renew_together)(rooted_company *t, int quads, int packs)
{
    for (int j = 0; j < quads * CP_QUAD * packs; j++)
        CP_EACH CP_PART(t->of[j].root) = CP(renewed_lane)(CP_PART(t->of[j].sum), CP_PART(t->of[j].root));
    for (int at = 0; at < quads; at++)
        t->root_bias[at] = CP(renewed_quad)(t->sum_bias[at], t->root_bias[at]);
}

/* Copies for each number of packs, as few as may be: the loss is nothing to them. */
#define CP_COPY(n) \
    static CP_NOINLINE int CP(margins_together_##n)(const rooted_company *t, const pack *x, quad *m, int quads) \
    { \
        return CP(margins_together)(t, x, m, quads, n); \
    } \
    static CP_NOINLINE int CP(squares_together_##n)(rooted_company *t, const pack *x, const quad *slope, int quads) \
    { \
        return CP(squares_together)(t, x, slope, quads, n); \
    }
CP_COPY(1) CP_COPY(2) CP_COPY(3) CP_COPY(4)
#undef CP_COPY

typedef struct {
    int (*margins)(const rooted_company *, const pack *, quad *, int);
    int (*squares)(rooted_company *, const pack *, const quad *, int);
} CP(rooted_code);

static const CP(rooted_code) CP(rooted_codes)[CP_NARROW] = {
    {CP(margins_together_1), CP(squares_together_1)},
    {CP(margins_together_2), CP(squares_together_2)},
    {CP(margins_together_3), CP(squares_together_3)},
    {CP(margins_together_4), CP(squares_together_4)},
};

/* Learn the rows of a chunk, as CP(together) does. */
CP_INLINE int64_t CP(rooted_together)(cp_sgd *const *s, int count, const cp_chunk *c, const enum cp_loss loss)
{
    const int packs = (int)(s[0]->padded / CP_LANES);
    const CP(rooted_code) *code = &CP(rooted_codes)[packs - 1];
    rooted_company t;
    CP(bits_type) keep[CP_LANES];
    pack x[CP_NARROW], sized[CP_NARROW], squares = CP(zero)();
    quad m[CP_TOGETHER / CP_QUAD] = {{0}}, slope[CP_TOGETHER / CP_QUAD];
    real by[CP_TOGETHER];
    const int quads = (count + CP_QUAD - 1) / CP_QUAD, normalized = s[0]->rule == CP_NORMALIZED;
    const quad unit = CP(all)((real)s[0]->intercept), parameter = CP(all)((real)s[0]->parameter), one = CP(all)(1);
    double seen = s[0]->seen, norm = s[0]->norm;
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    CP(assemble_rooted)(s, count, &t, packs);
    CP(load_row)(x, c->before, keep, packs);
    if (normalized)
        CP(sized)(&t.sizes, x, sized, &squares, packs);
    for (int j = 0; j < packs; j++)
        t.p[j] = normalized ? sized[j] : x[j];
    for (int k = 0; k < CP_TOGETHER; k++)
        by[k] = (real)t.rate[k];
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        cp_ask_ahead(c, i, packs);
        CP(load_row)(x, row, keep, packs);
        if (normalized && CP(sized)(&t.sizes, x, sized, &squares, packs)) {
            CP(enlarge_together)(s, count, &t, row, packs);
            CP(sized)(&t.sizes, x, sized, &squares, packs);
        }
        if (!code->margins(&t, x, m, quads))
            break;
        point found[CP_TOGETHER / CP_QUAD];
        for (int at = 0; at < quads; at++) {
            found[at] = CP(formula)(loss, m[at], CP(labels_of)(c, i, at), one, parameter);
            slope[at] = found[at].slope;
        }
        if (code->squares(&t, x, slope, quads))
            CP(renew_together)(&t, quads, packs);
        if (normalized) {
            seen++;
            norm += (double)CP(sum)(squares)[0] + s[0]->intercept;
            const double times = norm > 0 ? sqrt(seen / norm) : 1;
            for (int k = 0; k < CP_TOGETHER; k++)
                by[k] = (real)(t.rate[k] * times);
        }
        for (int at = 0; at < quads; at++) {
            quad rate;
            memcpy(&rate, by + at * CP_QUAD, sizeof rate);
            t.h[at] = rate * slope[at];
            t.g[at] = (t.h[at] * t.root_bias[at]) * unit;
            for (int k = 0; k < CP_QUAD; k++)
                CP(count)(&t.totals[at * CP_QUAD + k], loss, &found[at], k, CP(label_of)(c, i, at * CP_QUAD + k), 1, s[0]->parameter);
        }
        for (int j = 0; j < packs; j++)
            t.p[j] = normalized ? sized[j] : x[j];
    }
    CP(part_rooted)(s, count, &t, packs);
    for (int k = 0; normalized && k < count; k++) {
        s[k]->seen = seen;
        s[k]->norm = norm;
    }
    return i;
}

#define CP_COPY(id) \
    static CP_NOINLINE int64_t CP(id##_together)(cp_sgd *const *s, int count, const cp_chunk *c) \
    { \
        if (s[0]->rooted) \
            return CP(rooted_together)(s, count, c, CP_##id); \
        switch (s[0]->padded / CP_LANES) { \
        case 1: return CP(together)(s, count, c, CP_##id, 1); \
        case 2: return CP(together)(s, count, c, CP_##id, 2); \
        case 3: return CP(together)(s, count, c, CP_##id, 3); \
        default: return CP(together)(s, count, c, CP_##id, 4); \
        } \
    }
CP_COPIES(CP_COPY)
#undef CP_COPY

static CP_NOINLINE int64_t CP(learn_together)(cp_sgd *const *s, int count, const cp_chunk *c)
{
#define CP_COPY(id) \
    if (s[0]->loss == CP_##id) \
        return CP(id##_together)(s, count, c);
    CP_COPIES(CP_COPY)
#undef CP_COPY
    return 0;
}
