/* Template: several dense models visit the same rows at once with the rules of sgd/rules.h: L1, or per-weight rates
 * with L1 or L2. No update is held back; all else is as in sgd/simd_models.h. */

/* Factors of an update per model: the learning rate, that of v, and the L1 penalty of v. */
typedef struct { LANE rate, h, penalty; } CP(update_type);

CP_INLINE DOUBLES CP(roots)(DOUBLES a)
{
    double root[CP_LANE_MODELS];
    memcpy(root, &a, sizeof root);
    for (int k = 0; k < CP_LANE_MODELS; k++)
        root[k] = sqrt(root[k]);
    memcpy(&a, root, sizeof root);
    return a;
}

/* Return the rates of penalties in an update, as CP(reach) does. */
CP_INLINE DOUBLES CP(reaches)(SCRATCH *t, DOUBLES reach)
{
    const DOUBLES slope = CP(widen)(t->slope);
    CP_WIDE t->slopes.part[wide_] += slope.part[wide_] * slope.part[wide_];
    const DOUBLES root = CP(roots)(t->slopes);
    CP_WIDE {
        const CP(wide_bits) positive = (CP(wide_bits))(t->slopes.part[wide_] > 0);
        reach.part[wide_] = (CP(wide_type))(positive & (CP(wide_bits))(reach.part[wide_] / root.part[wide_]));
        if (t->decaying) {
            t->undecay.part[wide_] = 1 + reach.part[wide_] * t->l2.part[wide_];
            t->decay.part[wide_] = 1 / t->undecay.part[wide_];
        }
    }
    return reach;
}

/* Begin an update, as CP(begin_update) does. */
CP_INLINE CP(update_type) CP(begin_models)(SCRATCH *t, DOUBLES rate, const enum cp_rule rule)
{
    DOUBLES h, penalty = rule == CP_SAME ? rate : CP(reaches)(t, rate);
    if (t->decaying)
        CP(decay_models)(t);
    CP_WIDE {
        penalty.part[wide_] = penalty.part[wide_] * t->l1.part[wide_] * t->inverse.part[wide_];
        h.part[wide_] = rate.part[wide_] * t->inverse.part[wide_];
    }
    return (CP(update_type)){CP(narrowed)(rate), CP(narrowed)(h), CP(narrowed)(penalty)};
}

CP_INLINE void CP(move_models)(SCRATCH *t, const REAL *x, const CP(update_type) * by, const enum cp_rule rule)
{
    const LANE slope = t->slope, h = by->h, penalty = by->penalty;
    const CP(lane_bits) penal = (CP(lane_bits))(penalty > 0);
    for (int64_t j = 0; j < t->features; j++) {
        LANE sum = t->of[j].sum, moved = CP(move_each)(t->of[j].v, &sum, t->of[j].inv, slope * x[j], h, rule);
        t->of[j].v = CP(choose)(penal, CP(soft_each)(moved, penalty), moved);
        if (rule != CP_SAME)
            t->of[j].sum = sum;
    }
}

#define CP_UPDATE(rule) \
    static CP_NOINLINE void CP(update_##rule)(SCRATCH *t, const REAL *x, DOUBLES rate, int intercept) \
    { \
        const CP(update_type) by = CP(begin_models)(t, rate, rule); \
        CP(move_models)(t, x, &by, rule); \
        if (intercept) \
            t->bias = CP(move_each)(t->bias, &t->sum_bias, CP(lanes)(1), t->slope, by.rate, rule); \
    }
CP_UPDATE(CP_SAME)
CP_UPDATE(CP_ADAPTIVE)
CP_UPDATE(CP_NORMALIZED)
#undef CP_UPDATE

/* Learn the rows of a chunk, as CP(models_rows) does. */
CP_INLINE int64_t CP(ruled_models_rows)(cp_sgd *const *s, SCRATCH *t, const cp_chunk *c, const enum cp_loss loss)
{
    const enum cp_rule rule = s[0]->rule;
    const int packs = (int)(s[0]->padded / CP_LANES), intercept = s[0]->intercept;
    const LANE parameter = CP(lanes)((REAL)s[0]->parameter);
    PACK x[CP_NARROW_PACKS];
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    for (i = 0; i < c->n; i++) {
        const REAL *row = (const REAL *)c->row[i];
        LANE y;
        DOUBLES exact;
        cp_prefetch_rows(c, i, c->lines);
        if (rule == CP_NORMALIZED) {
            CP(load_row)(x, row, keep, packs);
            CP(size_row)(s, t, row, x, packs, 0);
        }
        CP(dots)(t, row);
        const LANE m = CP(narrowed)(t->scale) * t->va + t->bias;
        if (CP(any_model)(~(CP(lane_bits))(m - m == 0)))
            break;
        CP(labels_of)(c, i, &y, &exact);
        const LANE_POINT result = CP_LANED(formula)(loss, m, y, CP(lanes)(1), parameter);
        CP(count_models)(t, loss, &result, &exact);
        t->slope = result.slope;
        const DOUBLES rate = CP(rates)(t, intercept, rule == CP_NORMALIZED);
        if (rule == CP_SAME)
            CP(update_CP_SAME)(t, row, rate, intercept);
        else if (rule == CP_ADAPTIVE)
            CP(update_CP_ADAPTIVE)(t, row, rate, intercept);
        else
            CP(update_CP_NORMALIZED)(t, row, rate, intercept);
        if (t->averaging)
            CP(count_towards_sample)(s, t);
    }
    return i;
}
