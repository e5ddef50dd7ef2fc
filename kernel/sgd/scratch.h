/* Template: scratch memory of dense models that visit rows at once (sgd/simd_models.h): loading and storing models, and
 * averaging their weights. A lane of a native vector is a model; a weight of all models is a vector. The models have
 * seen the same rows. */

#define CP_LANE_MODELS (CP_VECTOR / CP_BYTES)
#define CP_MAX_NARROW_FEATURES (CP_NARROW_PACKS * CP_LANES)

typedef double CP(wide_type) __attribute__((vector_size(CP_VECTOR)));
typedef uint64_t CP(wide_bits) __attribute__((vector_size(CP_VECTOR)));
/* as many lanes as a native vector has doubles */
typedef CP_REAL CP(part_type) __attribute__((vector_size(CP_VECTOR / (8 / CP_BYTES))));
typedef struct { CP(wide_type) part[8 / CP_BYTES]; } CP(doubles_type); /* one double per model */
#define DOUBLES CP(doubles_type)
#define CP_WIDE for (int wide_ = 0; wide_ < 8 / CP_BYTES; wide_++)
#define CP_MODEL_ENTRY(d, k) (d).part[(k) / (CP_VECTOR / 8)][(k) % (CP_VECTOR / 8)]

typedef struct {
    LANE bias, g, h, sum_bias, root_bias, slope, va, qb;
    DOUBLES rate, scale, inverse, decay, undecay, slopes, l1, l2;
    DOUBLES loss, ln, correct, weight, squares, sum, square; /* totals of each model */
    CP(lane_bits) averaged, since; /* models that average weights; rows since the last sample */
    double seen, norm, sized;      /* as in each model; `sized`: scaled squares of a row */
    PACK inv[CP_NARROW_PACKS];     /* inverse feature scales */
    int count, decaying, averaging;
    int64_t features;
    struct { LANE v, sum, root, q, inv; } of[CP_MAX_NARROW_FEATURES + 1];
    DOUBLES mean[CP_MAX_NARROW_FEATURES + 1];
} CP(scratch_type);
#define SCRATCH CP(scratch_type)

CP_INLINE DOUBLES CP(widen)(LANE a)
{
    DOUBLES d;
#if CP_BYTES == 4
    d.part[0] = __builtin_convertvector(CP_LOW(CP(part_type), a), CP(wide_type));
    d.part[1] = __builtin_convertvector(CP_HIGH(CP(part_type), a), CP(wide_type));
#else
    d.part[0] = a;
#endif
    return d;
}

CP_INLINE LANE CP(narrowed)(DOUBLES d)
{
    union { LANE whole; CP(part_type) part[8 / CP_BYTES]; } a;
    CP_WIDE a.part[wide_] = __builtin_convertvector(d.part[wide_], CP(part_type));
    return a.whole;
}

CP_INLINE LANE CP(lanes)(REAL a) { return a - (LANE){0}; }

CP_INLINE LANE CP(choose)(CP(lane_bits) pick, LANE yes, LANE no)
{
    return (LANE)((pick & (CP(lane_bits))yes) | (~pick & (CP(lane_bits))no));
}

/* Return whether a bit of any model is set. */
CP_INLINE int CP(any_model)(CP(lane_bits) bits)
{
    const CP(lane_bits) hit[CP_PARTS] = {bits};
    return CP(any)(hit);
}

#define CP_NUMBERS_OF_EACH(NUMBER) NUMBER(scale) NUMBER(inverse) NUMBER(decay) NUMBER(undecay) NUMBER(slopes)
#define CP_TOTALS_OF_EACH(TOTAL) \
    TOTAL(loss) TOTAL(ln) TOTAL(correct) TOTAL(weight) TOTAL(squares) TOTAL(sum) TOTAL(square)

/* Load a model into lane k. */
CP_INLINE void CP(load_model)(const cp_sgd *s, int k, SCRATCH *t)
{
    const REAL *w = CP_AT(s, const REAL, w), *q = CP_AT(s, const REAL, prev), *sum = CP_AT(s, const REAL, sums);
    const REAL *root = CP_AT(s, const REAL, roots);
    const double *mean = CP_AT(s, const double, mean);
    const int adaptive = s->rule != CP_SAME;
    for (int64_t j = 0; j < t->features; j++) {
        t->of[j].v[k] = w[j];
        t->of[j].q[k] = q[j];
        t->of[j].sum[k] = adaptive ? sum[j] : 0;
        t->of[j].root[k] = s->rooted ? root[j] : 0;
        CP_MODEL_ENTRY(t->mean[j], k) = s->averaged ? mean[j] : 0;
    }
    t->bias[k] = *CP_AT(s, const REAL, bias);
    t->g[k] = *CP_AT(s, const REAL, g);
    t->h[k] = *CP_AT(s, const REAL, h);
    t->sum_bias[k] = adaptive ? *CP_AT(s, const REAL, sum_bias) : 0;
    t->root_bias[k] = s->rooted ? root[s->padded] : 0;
    t->decaying |= s->decay != 1 || (adaptive && s->l2 > 0);
    t->averaging |= s->averaged;
    t->averaged[k] = s->averaged ? (CP(bits_type))-1 : 0;
    t->since[k] = s->averaged ? (CP(bits_type))s->since : 0;
#define CP_NUMBER(name) CP_MODEL_ENTRY(t->name, k) = s->name;
#define CP_TOTAL(name) CP_MODEL_ENTRY(t->name, k) = s->totals.name;
    CP_NUMBER(rate) CP_NUMBER(l1) CP_NUMBER(l2)
    CP_NUMBERS_OF_EACH(CP_NUMBER)
    CP_TOTALS_OF_EACH(CP_TOTAL)
#undef CP_NUMBER
#undef CP_TOTAL
}

/* Copy the feature scales, which all models share. */
CP_INLINE void CP(take_sizes)(cp_sgd *const *s, SCRATCH *t)
{
    const REAL *inv = (const REAL *)t->inv;
    if (s[0]->rooted)
        CP(load_sizes)(s[0], t->inv, (int)(s[0]->padded / CP_LANES));
    else
        memcpy(t->inv, CP_AT(s[0], const REAL, inv), (size_t)s[0]->padded * sizeof(REAL));
    for (int64_t j = 0; j < t->features; j++)
        t->of[j].inv = CP(lanes)(inv[j]);
}

/* Load all models. Lanes without a model stay at 0, and their totals are discarded. */
static CP_COLD void CP(assemble)(cp_sgd *const *s, int count, void *memory)
{
    SCRATCH *t = memory;
    memset(t, 0, sizeof *t);
    t->features = s[0]->features;
    t->count = count;
    t->seen = s[0]->seen;
    t->norm = s[0]->norm;
    for (int k = 0; k < count; k++)
        CP(load_model)(s[k], k, t);
    for (int64_t j = 0; j < t->features; j++)
        t->of[j].inv = CP(lanes)(1);
    if (s[0]->rule == CP_NORMALIZED)
        CP(take_sizes)(s, t);
}

/* Store lane k in its model. `held` is the row of the pending update, unless that is in q or there is none. */
CP_INLINE void CP(store_model)(cp_sgd *s, int k, const SCRATCH *t, const REAL *held)
{
    REAL *w = CP_AT(s, REAL, w), *q = CP_AT(s, REAL, prev), *sum = CP_AT(s, REAL, sums), *root = CP_AT(s, REAL, roots);
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
        mean[j] = CP_MODEL_ENTRY(t->mean[j], k);
    if (s->rule != CP_SAME)
        *CP_AT(s, REAL, sum_bias) = t->sum_bias[k];
    if (s->rooted)
        root[s->padded] = t->root_bias[k];
    *CP_AT(s, REAL, bias) = t->bias[k];
    *CP_AT(s, REAL, g) = t->g[k];
    *CP_AT(s, REAL, h) = t->h[k];
    s->since = s->averaged ? (int64_t)t->since[k] : s->since;
#define CP_NUMBER(name) s->name = CP_MODEL_ENTRY(t->name, k);
#define CP_TOTAL(name) s->totals.name = CP_MODEL_ENTRY(t->name, k);
    CP_NUMBERS_OF_EACH(CP_NUMBER)
    CP_TOTALS_OF_EACH(CP_TOTAL)
#undef CP_NUMBER
#undef CP_TOTAL
}

static CP_COLD void CP(part)(cp_sgd *const *s, const void *memory, const cp_chunk *c)
{
    const SCRATCH *t = memory;
    for (int k = 0; k < t->count; k++) {
        CP(store_model)(s[k], k, t, (const REAL *)c->before);
        s[k]->seen = t->seen;
        s[k]->norm = t->norm;
    }
}

/* Sample the weights of the models that are due, as CP(sample_weights) does. */
static CP_COLD void CP(sample_models)(cp_sgd *const *s, SCRATCH *t)
{
    DOUBLES share = {0};
    struct { CP(wide_bits) part[8 / CP_BYTES]; } due = {0};
    for (int k = 0; k < t->count; k++) {
        if (t->since[k] != (CP(bits_type))s[k]->every)
            continue;
        double *bias = CP_AT(s[k], double, mean_bias);
        CP_MODEL_ENTRY(share, k) = (CP_MEAN_ETA + 1) / (double)(++s[k]->taken + CP_MEAN_ETA);
        *bias += CP_MODEL_ENTRY(share, k) * ((double)t->bias[k] - *bias);
        CP_MODEL_ENTRY(due, k) = (uint64_t)-1;
        t->since[k] = 0;
    }
    for (int64_t j = 0; j < t->features; j++) {
        const DOUBLES v = CP(widen)(t->of[j].v);
        CP_WIDE {
            const CP(wide_type) old = t->mean[j].part[wide_];
            const CP(wide_type) mean = old + share.part[wide_] * (t->scale.part[wide_] * v.part[wide_] - old);
            t->mean[j].part[wide_] =
                (CP(wide_type))((due.part[wide_] & (CP(wide_bits))mean) | (~due.part[wide_] & (CP(wide_bits))old));
        }
    }
}

/* Count a row towards the next sample. */
CP_INLINE void CP(count_towards_sample)(cp_sgd *const *s, SCRATCH *t)
{
    const CP(lane_bits) every = (CP(bits_type))s[0]->every + (CP(lane_bits)){0};
    t->since += t->averaged & 1;
    if (CP(any_model)((CP(lane_bits))(t->since == every)))
        CP(sample_models)(s, t);
}

#undef CP_NUMBERS_OF_EACH
#undef CP_TOTALS_OF_EACH
