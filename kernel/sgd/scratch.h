/* Template: the room that dense models share while they visit rows at once (sgd/simd_models.h): how they come in and leave, and the
 * means of their weights. A lane of a native vector is a model, and a weight of all models is a vector.
 *
 * Models may be of several parts: a row is visited by all but those of its own part. Those of a part stand side by side, and know
 * the same of the rows that they have seen. */

#define CP_MODELS (CP_VECTOR / CP_BYTES)
#define CP_MOST_FEATURES (CP_NARROW * CP_LANES)

typedef double CP(wide_type) __attribute__((vector_size(CP_VECTOR)));
typedef uint64_t CP(wide_bits) __attribute__((vector_size(CP_VECTOR)));
typedef CP_REAL CP(part_type) __attribute__((vector_size(CP_VECTOR / (8 / CP_BYTES)))); /* as many as a native vector has doubles */
typedef struct { CP(wide_type) part[8 / CP_BYTES]; } CP(doubles_type); /* one a model */
typedef struct { CP(wide_bits) part[8 / CP_BYTES]; } CP(choice_type); /* of models, for their doubles */
#define doubles CP(doubles_type)
#define choice CP(choice_type)
#define CP_WIDE for (int wide_ = 0; wide_ < 8 / CP_BYTES; wide_++)
#define CP_MINE(d, k) (d).part[(k) / (CP_VECTOR / 8)][(k) % (CP_VECTOR / 8)]

typedef struct {
    lane bias, g, h, sum_bias, root_bias, slope, va, qb;
    doubles rate, scale, inverse, decay, undecay, slopes, l1, l2;
    doubles loss, ln, correct, weight, squares, sum, square; /* of the totals of each */
    CP(lane_bits) visitors[CP_MODELS + 1];   /* who visits a row of each part; behind the last, one of none of theirs */
    choice left_out[CP_MODELS + 1];          /* who does not */
    CP(lane_bits) averaged, since;           /* who keeps a mean; rows since the last look at its weights */
    choice number;                           /* 0, 1 and so on */
    doubles seen, norm, sized;               /* by part, as the next two; `sized`: the sum of squares of a row as it is sized */
    pack inv[CP_MODELS][CP_NARROW];          /* what features are multiplied by */
    int first[CP_MODELS + 1];                /* model; behind the last part, how many there are */
    int parts, decaying, averaging;
    int64_t features;
    struct { lane v, sum, root, q, inv; } of[CP_MOST_FEATURES + 1];
    doubles mean[CP_MOST_FEATURES + 1];
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

/* Return numbers of some models, and +0 of others, which changes nothing from which it is subtracted. */
CP_INLINE lane CP(those)(CP(lane_bits) pick, lane a) { return (lane)(pick & (CP(lane_bits))a); }

CP_INLINE lane CP(either)(CP(lane_bits) pick, lane yes, lane no)
{
    return (lane)((pick & (CP(lane_bits))yes) | (~pick & (CP(lane_bits))no));
}

/* Return whether a bit of any model is set. */
CP_INLINE int CP(any_model)(CP(lane_bits) bits)
{
    const CP(lane_bits) hit[CP_PARTS] = {bits};
    return CP(any)(hit);
}

/* Say which models are of which part; `place` has the part of each, from 0 on, or is NULL where all are of one. */
CP_INLINE void CP(place)(company *t, int count, const uint8_t *place)
{
    t->parts = place ? place[count - 1] + 1 : 1;
    t->first[t->parts] = count;
    for (int k = 0; k < CP_MODELS; k++)
        CP_MINE(t->number, k) = (uint64_t)k;
    for (int k = count - 1; k >= 0; k--)
        t->first[place ? place[k] : 0] = k;
    for (int p = 0; p <= t->parts; p++)
        t->visitors[p] = ~(CP(lane_bits)){0};
    for (int p = 0; p < t->parts; p++)
        for (int k = t->first[p]; k < t->first[p + 1]; k++) {
            t->visitors[p][k] = 0;
            CP_MINE(t->left_out[p], k) = (uint64_t)-1;
        }
}

#define CP_NUMBERS_OF_EACH(NUMBER) NUMBER(scale) NUMBER(inverse) NUMBER(decay) NUMBER(undecay) NUMBER(slopes)
#define CP_TOTALS_OF_EACH(TOTAL) TOTAL(loss) TOTAL(ln) TOTAL(correct) TOTAL(weight) TOTAL(squares) TOTAL(sum) TOTAL(square)

/* Let a model in. */
CP_INLINE void CP(enter)(const cp_sgd *s, int k, company *t)
{
    const real *w = CP_AT(s, const real, w), *q = CP_AT(s, const real, prev), *sum = CP_AT(s, const real, sums);
    const real *root = CP_AT(s, const real, roots);
    const double *mean = CP_AT(s, const double, mean);
    const int adaptive = s->rule != CP_SAME;
    for (int64_t j = 0; j < t->features; j++) {
        t->of[j].v[k] = w[j];
        t->of[j].q[k] = q[j];
        t->of[j].sum[k] = adaptive ? sum[j] : 0;
        t->of[j].root[k] = s->rooted ? root[j] : 0;
        CP_MINE(t->mean[j], k) = s->averaged ? mean[j] : 0;
    }
    t->bias[k] = *CP_AT(s, const real, bias);
    t->g[k] = *CP_AT(s, const real, g);
    t->h[k] = *CP_AT(s, const real, h);
    t->sum_bias[k] = adaptive ? *CP_AT(s, const real, sum_bias) : 0;
    t->root_bias[k] = s->rooted ? root[s->padded] : 0;
    t->decaying |= s->decay != 1 || (adaptive && s->l2 > 0);
    t->averaging |= s->averaged;
    t->averaged[k] = s->averaged ? (CP(bits_type))-1 : 0;
    t->since[k] = s->averaged ? (CP(bits_type))s->since : 0;
#define CP_NUMBER(name) CP_MINE(t->name, k) = s->name;
#define CP_TOTAL(name) CP_MINE(t->name, k) = s->totals.name;
    CP_NUMBER(rate) CP_NUMBER(l1) CP_NUMBER(l2)
    CP_NUMBERS_OF_EACH(CP_NUMBER)
    CP_TOTALS_OF_EACH(CP_TOTAL)
#undef CP_NUMBER
#undef CP_TOTAL
}

/* Take in what features of a part's rows are divided by. */
CP_INLINE void CP(take_sizes)(cp_sgd *const *s, company *t, int p)
{
    const real *inv = (const real *)t->inv[p];
    const real *kept = CP_AT(s[t->first[p]], const real, inv);
    if (s[0]->rooted)
        CP(load_sizes)(s[t->first[p]], t->inv[p], (int)(s[0]->padded / CP_LANES));
    else
        memcpy(t->inv[p], kept, (size_t)s[0]->padded * sizeof(real));
    for (int64_t j = 0; j < t->features; j++)
        for (int k = t->first[p]; k < t->first[p + 1]; k++)
            t->of[j].inv[k] = inv[j];
}

/* Lanes of no model stay at 0, and their totals go nowhere. */
static CP_NOINLINE void CP(assemble)(cp_sgd *const *s, int count, const uint8_t *place, void *room)
{
    company *t = room;
    memset(t, 0, sizeof *t);
    t->features = s[0]->features;
    CP(place)(t, count, place);
    for (int k = 0; k < count; k++)
        CP(enter)(s[k], k, t);
    for (int64_t j = 0; j < t->features; j++)
        t->of[j].inv = CP(lanes)(1);
    for (int p = 0; p < t->parts; p++) {
        CP_MINE(t->seen, p) = s[t->first[p]]->seen;
        CP_MINE(t->norm, p) = s[t->first[p]]->norm;
        if (s[0]->rule == CP_NORMALIZED)
            CP(take_sizes)(s, t, p);
    }
}

/* Let a model out; `held` is the row of the update that it holds back, but where that is in q, or it holds back none. */
CP_INLINE void CP(leave)(cp_sgd *s, int k, const company *t, const real *held)
{
    real *w = CP_AT(s, real, w), *q = CP_AT(s, real, prev), *sum = CP_AT(s, real, sums), *root = CP_AT(s, real, roots);
    double *mean = CP_AT(s, double, mean);
    for (int64_t j = 0; j < t->features; j++) {
        w[j] = t->of[j].v[k];
        q[j] = s->ruled ? t->of[j].q[k] : held[j];
    }
    for (int64_t j = 0; s->rule != CP_SAME && j < t->features; j++)
        sum[j] = t->of[j].sum[k];
    for (int64_t j = 0; s->rooted && j < t->features; j++)
        root[j] = t->of[j].root[k];
    for (int64_t j = 0; s->averaged && j < t->features; j++)
        mean[j] = CP_MINE(t->mean[j], k);
    if (s->rule != CP_SAME)
        *CP_AT(s, real, sum_bias) = t->sum_bias[k];
    if (s->rooted)
        root[s->padded] = t->root_bias[k];
    *CP_AT(s, real, bias) = t->bias[k];
    *CP_AT(s, real, g) = t->g[k];
    *CP_AT(s, real, h) = t->h[k];
    s->since = s->averaged ? (int64_t)t->since[k] : s->since;
#define CP_NUMBER(name) s->name = CP_MINE(t->name, k);
#define CP_TOTAL(name) s->totals.name = CP_MINE(t->name, k);
    CP_NUMBERS_OF_EACH(CP_NUMBER)
    CP_TOTALS_OF_EACH(CP_TOTAL)
#undef CP_NUMBER
#undef CP_TOTAL
}

static CP_NOINLINE void CP(part)(cp_sgd *const *s, const void *room, const cp_chunk *c)
{
    const company *t = room;
    for (int p = 0; p < t->parts; p++)
        for (int k = t->first[p]; k < t->first[p + 1]; k++) {
            CP(leave)(s[k], k, t, (const real *)(c->part && p == c->left_out ? c->older : c->before));
            s[k]->seen = CP_MINE(t->seen, p);
            s[k]->norm = CP_MINE(t->norm, p);
        }
}

/* Look at the weights of the models whose turn it is, as CP(look_at) does. */
static CP_NOINLINE void CP(look_together)(cp_sgd *const *s, company *t)
{
    doubles share = {0};
    choice due = {0};
    for (int k = 0; k < t->first[t->parts]; k++) {
        if (t->since[k] != (CP(bits_type))s[k]->every)
            continue;
        double *bias = CP_AT(s[k], double, mean_bias);
        CP_MINE(share, k) = (CP_ETA + 1) / (double)(++s[k]->taken + CP_ETA);
        *bias += CP_MINE(share, k) * ((double)t->bias[k] - *bias);
        CP_MINE(due, k) = (uint64_t)-1;
        t->since[k] = 0;
    }
    for (int64_t j = 0; j < t->features; j++) {
        const doubles v = CP(widen)(t->of[j].v);
        CP_WIDE {
            const CP(wide_type) old = t->mean[j].part[wide_];
            const CP(wide_type) mean = old + share.part[wide_] * (t->scale.part[wide_] * v.part[wide_] - old);
            t->mean[j].part[wide_] = (CP(wide_type))((due.part[wide_] & (CP(wide_bits))mean) | (~due.part[wide_] & (CP(wide_bits))old));
        }
    }
}

/* Count a row towards the next look of those who visit it. */
CP_INLINE void CP(look_ahead)(cp_sgd *const *s, company *t, CP(lane_bits) go)
{
    const CP(lane_bits) every = (CP(bits_type))s[0]->every + (CP(lane_bits)){0};
    t->since += (go & t->averaged) & 1;
    if (CP(any_model)((CP(lane_bits))(t->since == every)))
        CP(look_together)(s, t);
}

#undef CP_NUMBERS_OF_EACH
#undef CP_TOTALS_OF_EACH
