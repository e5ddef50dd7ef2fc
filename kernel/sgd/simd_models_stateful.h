/* Template: several models visit the same rows at once whose weights are moved by the rules of sgd/rules.h: by L1, or by rates of
 * their own with L1 or L2. Nothing is held back. All else is as in sgd/simd_models.h. */

/* What an update takes of each model: its rate, that by which v is moved, and what v is moved towards 0 by. */
typedef struct { lane rate, h, penalty; } CP(update_type);

CP_INLINE doubles CP(root_of_each)(doubles a)
{
    double root[CP_MODELS];
    memcpy(root, &a, sizeof root);
    for (int k = 0; k < CP_MODELS; k++)
        root[k] = sqrt(root[k]);
    memcpy(&a, root, sizeof root);
    return a;
}

/* Say how far penalties reach in an update, as CP(reach) does. */
CP_INLINE doubles CP(reach_of_each)(company *t, doubles reach)
{
    const doubles slope = CP(widen)(t->slope);
    CP_WIDE t->slopes.part[wide_] += slope.part[wide_] * slope.part[wide_];
    const doubles root = CP(root_of_each)(t->slopes);
    CP_WIDE {
        const CP(wide_bits) some = (CP(wide_bits))(t->slopes.part[wide_] > 0);
        reach.part[wide_] = (CP(wide_type))(some & (CP(wide_bits))(reach.part[wide_] / root.part[wide_]));
        if (t->decaying) {
            t->undecay.part[wide_] = 1 + reach.part[wide_] * t->l2.part[wide_];
            t->decay.part[wide_] = 1 / t->undecay.part[wide_];
        }
    }
    return reach;
}

/* Begin an update, as CP(begin_update) does, of those who visit a row. */
CP_INLINE CP(update_type) CP(begin_together)(company *t, doubles rate, int left_out, const enum cp_rule rule)
{
    doubles h, penalty = rule == CP_SAME ? rate : CP(reach_of_each)(t, rate);
    if (t->decaying)
        CP(decay_together)(t, &t->left_out[left_out]);
    CP_WIDE {
        penalty.part[wide_] = penalty.part[wide_] * t->l1.part[wide_] * t->inverse.part[wide_];
        h.part[wide_] = rate.part[wide_] * t->inverse.part[wide_];
    }
    return (CP(update_type)){CP(narrowed)(rate), CP(narrowed)(h), CP(narrowed)(penalty)};
}

/* Move the weights of those who visit a row; the slopes of the others are 0. */
CP_INLINE void CP(move_together)(company *t, const real *x, const CP(update_type) *by, CP(lane_bits) go, const enum cp_rule rule)
{
    const lane slope = t->slope, h = by->h, penalty = by->penalty;
    const CP(lane_bits) penal = (CP(lane_bits))(penalty > 0);
    for (int64_t j = 0; j < t->features; j++) {
        const lane v = t->of[j].v;
        lane sum = t->of[j].sum, moved = CP(move_each)(v, &sum, t->of[j].inv, slope * x[j], h, rule);
        moved = CP(either)(penal, CP(soft_each)(moved, penalty), moved);
        t->of[j].v = CP(either)(go, moved, v);
        if (rule != CP_SAME)
            t->of[j].sum = sum;
    }
}

CP_INLINE void CP(move_bias_together)(company *t, lane rate, CP(lane_bits) go, const enum cp_rule rule)
{
    const lane moved = CP(move_each)(t->bias, &t->sum_bias, CP(lanes)(1), t->slope, rate, rule);
    t->bias = CP(either)(go, moved, t->bias);
}

#define CP_UPDATE(rule) \
    static CP_NOINLINE void CP(update_##rule)(company *t, const real *x, doubles rate, int left_out, int intercept) \
    { \
        const CP(lane_bits) go = t->visitors[left_out]; \
        const CP(update_type) by = CP(begin_together)(t, rate, left_out, rule); \
        CP(move_together)(t, x, &by, go, rule); \
        if (intercept) \
            CP(move_bias_together)(t, by.rate, go, rule); \
    }
CP_UPDATE(CP_SAME)
CP_UPDATE(CP_ADAPTIVE)
CP_UPDATE(CP_NORMALIZED)
#undef CP_UPDATE

/* Learn the rows of a chunk, as CP(together) does. */
CP_INLINE int64_t CP(ruled_together)(cp_sgd *const *s, company *t, const cp_chunk *c, const enum cp_loss loss)
{
    const enum cp_rule rule = s[0]->rule;
    const int packs = (int)(s[0]->padded / CP_LANES), intercept = s[0]->intercept;
    const lane parameter = CP(lanes)((real)s[0]->parameter);
    pack x[CP_NARROW];
    CP(bits_type) keep[CP_LANES];
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        const int left_out = c->part ? c->part[i] : t->parts;
        const CP(lane_bits) go = t->visitors[left_out];
        const doubles ones = CP(widen)(CP(those)(go, CP(lanes)(1)));
        lane y;
        doubles exact;
        cp_ask_ahead(c, i, c->lines);
        if (rule == CP_NORMALIZED) {
            CP(load_row)(x, row, keep, packs);
            CP(size_together)(s, t, row, x, left_out, packs, 0);
        }
        CP(dots)(t, row);
        const lane m = CP(narrowed)(t->scale) * t->va + t->bias;
        if (CP(any_model)(~(CP(lane_bits))(m - m == 0) & go))
            break;
        CP(labels_of)(c, i, &y, &exact);
        judged found = CP_LANED(formula_here)(loss, m, y, CP(lanes)(1), parameter);
        CP(leave_out)(&found, go);
        CP(count_together)(t, loss, &found, &exact, &ones);
        t->slope = found.slope;
        const doubles rate = CP(rates)(t, intercept, left_out, rule == CP_NORMALIZED);
        if (rule == CP_SAME)
            CP(update_CP_SAME)(t, row, rate, left_out, intercept);
        else if (rule == CP_ADAPTIVE)
            CP(update_CP_ADAPTIVE)(t, row, rate, left_out, intercept);
        else
            CP(update_CP_NORMALIZED)(t, row, rate, left_out, intercept);
        if (t->averaging)
            CP(look_ahead)(s, t, go);
    }
    return i;
}
