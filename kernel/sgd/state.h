/* The state of one linear model in training, in one block of memory that the host allocates.
 *
 * Weights are stored as w = scale * v, so that L2 decay costs one multiplication per row instead of one per element,
 * and is exact in float too. The update of the last row is held back: its row, coefficient and g stay here until the
 * next row (see sgd/dense.h). So results do not depend on how rows are split into calls. */
#pragma once

#include <stddef.h>

#include "sgd/losses.h"
#include "sgd/steps.h"

#ifdef __FAST_MATH__
#error "corgipile's kernel must be compiled without -ffast-math: results would depend on the compiler"
#endif

enum {
    CP_SGD_OK,
    CP_SGD_BAD_SLOT,      /* a slot number outside the buffer */
    CP_SGD_BAD_LABEL,     /* a label of no class, or negative where the loss forbids it */
    CP_SGD_LABEL_VALUE,   /* a label that is NaN or infinite */
    CP_SGD_BAD_VALUE,     /* a feature that is NaN or infinite */
    CP_SGD_BAD_INDEX,     /* a sparse index outside the features */
    CP_SGD_BAD_ORDER,     /* sparse indices that do not increase */
    CP_SGD_BAD_LENGTH,    /* a negative length */
    CP_SGD_BAD_WEIGHT,    /* a weight that is negative, NaN or infinite */
    CP_SGD_DIVERGED       /* the row is finite but its margin is not: training diverged */
};

/* CP_NARROW_PACKS: packs of a row that stay in registers */
enum { CP_BATCH_GROUP = 16, CP_LINE = 64, CP_L2_BYTES = 1 << 20, CP_NARROW_PACKS = 4 };

/* Reals per feature of a sparse model with one output and per-weight learning rates: weight, sum of squares and 1 /
 * size are adjacent, so a visit waits for one cache line. */
enum { CP_RECORD_REALS = 4 };

/* Most models that visit a row at once; most bytes of the scratch memory that they share. */
enum { CP_MAX_MODELS = 16, CP_SCRATCH_BYTES = 40 << 10 };

/* Averaging: the exponent that favours later weights; rows between two samples of the weights. Large sparse
 * models sample less often, so that a sample costs at most as much as the rows between. */
enum { CP_MEAN_ETA = 3, CP_MEAN_ROWS = 64, CP_MEAN_WEIGHTS_PER_ROW = 16 };

/* Configuration from the host. `classes`: two values, negative first, for CP_TWO_CLASSES; `outputs` ascending values
 * for CP_CLASSES; unused for CP_NUMBERS. */
typedef struct {
    enum cp_loss loss;
    int bytes;                  /* bytes per real: 4 or 8 */
    int sparse, intercept, isa; /* isa: a level of cp_sgd_isa(), or -1 for the best of this CPU */
    int average;                /* whether the averaged weights predict */
    int64_t features, outputs, batch;
    int64_t rows;               /* rows of the training table; 0: unknown */
    enum cp_step step;
    double l1, l2, parameter;   /* parameter: that of the loss, if it has one */
    double max_norm;            /* bound of the weights' norm; 0: none */
    const double *classes;
    const double *class_weight; /* weight of each class, in the order of `classes`; NULL: 1 */
} cp_sgd_shape;

typedef struct {
    double loss, ln, squares, sum, square;  /* ln: running product whose logarithm belongs to the loss */
    double correct, weight;                 /* weighted by sample weights */
    double logs, *odds, *by;                /* with sample weights: the sum of logarithms; a call's arrays of their
                                             * arguments and weights, or NULL */
    int64_t rows;
} cp_sgd_totals;

typedef struct {
    enum cp_loss loss;
    int32_t bytes, sparse, intercept, isa, batched, averaged, weighs; /* weighs: there are class weights */
    int32_t ruled, rooted;         /* ruled: updates by sgd/rules.h; rooted: held back by sgd/cached_rsqrt.h or
                                    * sgd/moving.h */
    int32_t bounded;               /* max norm with one learning rate and no L1: the plain learner enforces it */
    enum cp_rule rule;
    int64_t features, outputs, padded, batch; /* padded: features (dense) or outputs (sparse) in whole packs */
    int64_t stride;                           /* sparse: reals between the weights of consecutive features */
    double l1, l2, parameter, rate, decay, undecay, scale, inverse;
    double times, later;           /* factors of the learning rate: in the first epoch; in later ones */
    double seen, norm, slopes;     /* rules: rows, sum of (x / s)^2, mean over outputs of the sum of squared slopes */
    double open;                   /* sum of squared slopes in the open batch */
    double fade[2];                /* Adam: weight left of the initial means of gradients and of their squares */
    double max_norm, squares;      /* bound of the norm; sum of v^2, if tracked */
    double penalty, owed;          /* L1 of an update; total L1 that sparse features owe */
    int64_t held, touched, epoch;  /* rows in the open batch; sparse: features in it, and the batch's number */
    int64_t recount, counted;      /* max norm: rows between recomputations of v^2; updates since the last one or since
                                    * the last flush */
    int64_t every, since, taken;   /* averaging: rows between two samples, rows since the last one, samples so far */
    cp_sgd_totals totals;
    /* offsets in bytes */
    size_t w, bias, prev, tail, g, h, grad, grad_bias, work, stamp, list, classes, class_weight, mean, mean_bias, sums,
        sum_bias, means, mean_biases, inv, roots, paid, size;
} cp_sgd;

#define CP_AT(s, type, field) ((type *)((char *)(s) + (s)->field))

static inline int64_t cp_round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static inline size_t cp_sgd_take(cp_sgd *s, int64_t count, size_t bytes)
{
    size_t at = s->size;
    s->size += (size_t)cp_round_up((int64_t)((size_t)count * bytes), CP_LINE);
    return at;
}

/* Return the layout of a state, without memory. The host limits sizes: features times outputs must stay below 2^40. */
static inline cp_sgd cp_sgd_layout(const cp_sgd_shape *shape)
{
    cp_sgd s = {.loss = shape->loss,
                .bytes = shape->bytes,
                .sparse = shape->sparse,
                .isa = shape->isa,
                .intercept = shape->intercept,
                .features = shape->features,
                .outputs = shape->outputs,
                .batch = shape->batch,
                .batched = shape->batch > 1,
                .l2 = shape->l2,
                .parameter = shape->parameter,
                .averaged = shape->average || cp_steps[shape->step].averages,
                .rule = cp_steps[shape->step].rule,
                .l1 = shape->l1,
                .max_norm = shape->max_norm,
                .fade = {1, 1},
                .times = 1,
                .later = 1};
    size_t real = (size_t)s.bytes;
    const int adaptive = s.rule != CP_SAME, quad = CP_BATCH_GROUP / s.bytes;
    int64_t lanes = CP_LINE / s.bytes, outs = cp_round_up(s.outputs, lanes);
    if (!s.sparse)
        s.times = cp_step_times(shape->step, s.features),
        s.later = cp_step_later(shape->step, s.features, s.outputs, shape->rows);
    s.bounded = s.max_norm > 0 && !adaptive && !(s.l1 > 0) && !s.batched && s.outputs == 1;
    s.ruled = adaptive || s.l1 > 0 || (s.max_norm > 0 && !s.bounded);
    s.recount = s.sparse && s.features > CP_MEAN_ROWS ? s.features : CP_MEAN_ROWS;
    s.decay = s.undecay = s.scale = s.inverse = s.totals.ln = 1;
    if (s.sparse)
        s.padded = s.outputs > 1 ? cp_round_up(s.outputs, CP_BATCH_GROUP / s.bytes) : 1;
    else
        s.padded = cp_round_up(s.features, lanes);
    int64_t row = s.sparse ? 0 : s.padded;
    int64_t all = s.padded * (s.sparse ? s.features : s.outputs);
    s.stride = !adaptive              ? s.padded
              : s.padded == 1        ? CP_RECORD_REALS
              : s.rule == CP_MOMENTS ? 3 * s.padded
                                     : 2 * s.padded + quad;
    s.rooted = adaptive && !(s.max_norm > 0) && !s.sparse && !s.batched && s.outputs == 1
               && s.padded <= CP_NARROW_PACKS * lanes && !(s.l1 > 0 || s.l2 > 0);
    s.size = (size_t)cp_round_up(sizeof(cp_sgd), CP_LINE);
    s.w = cp_sgd_take(&s, s.sparse ? s.stride * s.features : all, real);
    s.bias = cp_sgd_take(&s, outs, real);
    s.prev = cp_sgd_take(&s, row, real);
    s.tail = cp_sgd_take(&s, 2 * row, real);
    s.g = cp_sgd_take(&s, outs, real);
    s.h = cp_sgd_take(&s, outs, real);
    s.work = cp_sgd_take(&s, outs * 2 * (s.batched && cp_loss_per_class(s.loss) ? CP_BATCH_GROUP : 1), real);
    s.grad = cp_sgd_take(&s, s.batched ? all : 0, real);
    s.grad_bias = cp_sgd_take(&s, outs, real);
    s.stamp = cp_sgd_take(&s, s.batched && s.sparse ? s.features : 0, sizeof(int64_t));
    s.list = cp_sgd_take(&s, s.batched && s.sparse ? s.features : 0, sizeof(int32_t));
    s.classes = cp_sgd_take(&s, s.outputs + 1, sizeof(double));
    s.weighs = shape->class_weight != NULL;
    s.class_weight = cp_sgd_take(&s, s.weighs ? s.outputs + 1 : 0, sizeof(double));
    s.every = CP_MEAN_ROWS > all / CP_MEAN_WEIGHTS_PER_ROW || !s.sparse ? CP_MEAN_ROWS : all / CP_MEAN_WEIGHTS_PER_ROW;
    s.mean = cp_sgd_take(&s, s.averaged ? all : 0, sizeof(double));
    s.mean_bias = cp_sgd_take(&s, s.averaged ? outs : 0, sizeof(double));
    s.sums = s.sparse ? s.w + (size_t)s.padded * real : cp_sgd_take(&s, adaptive ? all : 0, real);
    s.sum_bias = cp_sgd_take(&s, adaptive ? outs : 0, real);
    s.means = s.sparse ? s.w + 2 * (size_t)s.padded * real : cp_sgd_take(&s, s.rule == CP_MOMENTS ? all : 0, real);
    s.mean_biases = cp_sgd_take(&s, s.rule == CP_MOMENTS ? outs : 0, real);
    s.inv = s.sparse ? s.w + 2 * (size_t)s.padded * real : cp_sgd_take(&s, s.rule == CP_NORMALIZED ? row : 0, real);
    /* the intercept's comes last */
    s.roots = cp_sgd_take(&s, s.rooted && s.rule != CP_MOMENTS ? row + lanes : 0, real);
    s.paid = cp_sgd_take(&s, s.sparse && s.l1 > 0 ? s.features : 0, sizeof(double));
    return s;
}

static inline size_t cp_sgd_size(const cp_sgd_shape *shape) { return cp_sgd_layout(shape).size; }

static inline int64_t cp_sgd_classes(const cp_sgd_shape *shape)
{
    switch (cp_losses[shape->loss].labels) {
    case CP_TWO_CLASSES: return 2;
    case CP_CLASSES: return shape->outputs;
    case CP_NUMBERS: break;
    }
    return 0;
}
