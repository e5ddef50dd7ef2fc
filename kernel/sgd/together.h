/* Template: several models visit the same rows at once, dense, one update a row, the learner of sgd/dense.h with rows of at
 * most CP_NARROW packs. Each gets the bits that it gets alone: a lane of a quad is a model, and lanes do what the quads of one
 * model do. Rows, labels and p . x are common to all, and the loss is computed of a quad of models at a time, which is what a
 * single model waits for. */

typedef struct {
    pack v[CP_TOGETHER * CP_NARROW];
    quad g[CP_TOGETHER / CP_QUAD], h[CP_TOGETHER / CP_QUAD], bias[CP_TOGETHER / CP_QUAD], rate[CP_TOGETHER / CP_QUAD];
    quad scale[CP_TOGETHER / CP_QUAD], inverse[CP_TOGETHER / CP_QUAD];
    cp_sgd_totals totals[CP_TOGETHER];
} CP(company_type);
#define company CP(company_type)

typedef double CP(wide_type) __attribute__((vector_size(8 * CP_QUAD)));

/* Return the label of a row as a model sees it; as a quad of them do. */
CP_INLINE double CP(label_of)(const cp_chunk *c, int64_t i, int k) { return c->each ? c->each[i * CP_TOGETHER + k] : c->label[i]; }

CP_INLINE quad CP(labels_of)(const cp_chunk *c, int64_t i, int at)
{
    CP(wide_type) y;
    if (!c->each)
        return CP(all)((real)c->label[i]);
    memcpy(&y, c->each + i * CP_TOGETHER + at * CP_QUAD, sizeof y);
    return __builtin_convertvector(y, quad);
}

/* Lanes of no model stay at 0, and their totals go nowhere. */
CP_INLINE void CP(assemble)(cp_sgd *const *s, int count, company *t, const int packs)
{
    memset(t, 0, sizeof *t);
    for (int k = 0; k < count; k++) {
        const int at = k / CP_QUAD, lane_ = k % CP_QUAD;
        const pending q = CP(get_pending)(s[k]);
        for (int j = 0; j < packs; j++)
            t->v[k * packs + j] = CP(load)(CP_AT(s[k], const real, w) + j * CP_LANES);
        t->g[at][lane_] = q.g[0];
        t->h[at][lane_] = q.h;
        t->bias[at][lane_] = q.bias[0];
        t->scale[at][lane_] = q.scale;
        t->inverse[at][lane_] = q.inverse;
        t->rate[at][lane_] = (real)s[k]->rate;
        t->totals[k] = s[k]->totals;
    }
    for (int k = count; k < CP_TOGETHER; k++)
        t->totals[k].ln = 1;
}

CP_INLINE void CP(part)(cp_sgd *const *s, int count, const company *t, const pack *p, const int packs)
{
    for (int k = 0; k < count; k++) {
        const int at = k / CP_QUAD, lane_ = k % CP_QUAD;
        for (int j = 0; j < packs; j++) {
            CP(store)(CP_AT(s[k], real, w) + j * CP_LANES, t->v[k * packs + j]);
            CP(store)(CP_AT(s[k], real, prev) + j * CP_LANES, p[j]);
        }
        *CP_AT(s[k], real, g) = t->g[at][lane_];
        *CP_AT(s[k], real, h) = t->h[at][lane_];
        *CP_AT(s[k], real, bias) = t->bias[at][lane_];
        s[k]->totals = t->totals[k];
    }
}

/* Take the decay of one update into the scales of some models, as CP(decay) does. */
static CP_NOINLINE void CP(decay_together)(cp_sgd *const *s, int count, company *t, int packs)
{
    for (int k = 0; k < count; k++) {
        if (s[k]->decay == 1)
            continue;
        if (CP(decay)(s[k])) {
            for (int j = 0; j < packs; j++)
                t->v[k * packs + j] = CP(scale)(t->v[k * packs + j], (real)s[k]->scale);
            CP(rescaled)(s[k]);
        }
        t->scale[k / CP_QUAD][k % CP_QUAD] = (real)s[k]->scale;
        t->inverse[k / CP_QUAD][k % CP_QUAD] = (real)s[k]->inverse;
    }
}

/* Learn the rows of a chunk. Returns those done: fewer than there are where a margin is not finite; each model is then as
 * before that row. */
CP_INLINE int64_t CP(together)(cp_sgd *const *s, int count, const cp_chunk *c, const enum cp_loss loss, const int packs)
{
    company t;
    pack p[CP_NARROW], x[CP_NARROW];
    CP(bits_type) keep[CP_LANES];
    quad m[CP_TOGETHER / CP_QUAD];
    const int quads = (count + CP_QUAD - 1) / CP_QUAD;
    const quad unit = CP(all)((real)s[0]->intercept), parameter = CP(all)((real)s[0]->parameter);
    int decaying = 0;
    int64_t i;
    CP(tail_mask)(keep, s[0]->features);
    CP(assemble)(s, count, &t, packs);
    for (int k = 0; k < count; k++)
        decaying |= s[k]->decay != 1;
    for (int j = 0; j < packs; j++)
        p[j] = CP(load)(CP_AT(s[0], const real, prev) + j * CP_LANES);
    for (i = 0; i < c->n; i++) {
        const real *row = (const real *)c->row[i];
        mask finite = (mask)(unit == unit);
        cp_ask_ahead(c, i, packs);
        CP(load_row)(x, row, keep, packs);
        pack b = CP(multiply)(p[0], x[0]);
        for (int j = 1; j < packs; j++)
            b = CP(add_product)(b, p[j], x[j]);
        const quad px = CP(sum)(b) + unit;
        for (int at = 0; at < quads; at++) {
            quad part[CP_QUAD];
            for (int k = 0; k < CP_QUAD; k++) {
                const pack *v = t.v + (at * CP_QUAD + k) * packs;
                pack a = CP(multiply)(v[0], x[0]);
                for (int j = 1; j < packs; j++)
                    a = CP(add_product)(a, v[j], x[j]);
                part[k] = CP(quarter)(a);
            }
            m[at] = (t.scale[at] * CP(sums)(part) + t.bias[at]) - t.g[at] * px;
            finite &= (mask)(m[at] - m[at] == 0);
        }
        if (!CP(every)(finite))
            break;
        for (int at = 0; at < quads; at++) {
            for (int k = 0; k < CP_QUAD; k++) {
                pack *v = t.v + (at * CP_QUAD + k) * packs;
                for (int j = 0; j < packs; j++)
                    v[j] = CP(subtract_scaled)(v[j], t.h[at][k], p[j]);
            }
            t.bias[at] -= t.g[at] * unit;
        }
        if (decaying)
            CP(decay_together)(s, count, &t, packs);
        for (int at = 0; at < quads; at++) {
            const point found = CP(formula)(loss, m[at], CP(labels_of)(c, i, at), t.rate[at], parameter);
            t.g[at] = found.slope;
            t.h[at] = found.slope * t.inverse[at];
            for (int k = 0; k < CP_QUAD; k++)
                CP(count)(&t.totals[at * CP_QUAD + k], loss, &found, k, CP(label_of)(c, i, at * CP_QUAD + k), 1,
                          s[0]->parameter);
        }
        for (int j = 0; j < packs; j++)
            p[j] = x[j];
    }
    CP(part)(s, count, &t, p, packs);
    return i;
}
