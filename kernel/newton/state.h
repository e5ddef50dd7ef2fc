/* The state of one linear model in Newton's method, in one block of memory that the host allocates.
 *
 * A pass sums over rows, at the current weights, the loss, the gradient and, if asked, the second derivatives: for each
 * pair of outputs the products of features z with a curvature, sum of h z z'. z holds the features, shifted by `center`
 * and multiplied by `factor`, then a 1 for the intercept.
 *
 * Rows are dealt in blocks to lanes, by their place in the pass: lane l sums the blocks l, l + lanes, ... So sums do
 * not depend on how rows are split into calls, or on the number of threads that fill lanes. */
#pragma once

#include "newton/loss.h"
#include "sgd/rows.h"

enum {
    CP_NEWTON_ROWS = CP_CHUNK_ROWS,  /* rows of a block */
    CP_NEWTON_PANEL = 16,            /* columns of z that lie together, for all rows of a block */
    CP_NEWTON_LANES = 8,
    CP_NEWTON_LANE_BYTES = 8 << 20   /* most bytes of a lane's matrices, if there are several lanes */
};

/* CP_NEWTON_NONE: the gradient alone; CP_NEWTON_GRAM: also second derivatives;
 * CP_NEWTON_TRIANGLE: instead the triangle R of rows sqrt(h) z, with -slope / sqrt(h) as the right-hand side */
enum cp_newton_matrix { CP_NEWTON_NONE, CP_NEWTON_GRAM, CP_NEWTON_TRIANGLE };

typedef struct {
    enum cp_loss loss;
    int bytes, sparse, intercept, skip, isa; /* skip: leave out rows that cannot be used */
    int64_t features, outputs;
    double parameter;
    const double *classes, *class_weight;    /* as in cp_sgd_shape */
} cp_newton_shape;

typedef struct {
    int64_t rows, skipped, bad;              /* bad: place in the call of the first unusable row, or -1 */
    int64_t wrong;                           /* rows with a weight whose score is not strictly on the label's side */
    int status;
    double loss, lost, weight, correct;      /* lost: what rounding took from `loss` */
    double squares, sum, square;
} cp_newton_totals;

typedef struct {
    cp_newton_totals totals;
    int64_t filled;                          /* rows of the open block */
    double label[CP_NEWTON_ROWS], weight[CP_NEWTON_ROWS];
    /* z: [panels][rows][panel]; scaled: one panel; row: a row; high, low: gradient; slope: [outputs][rows], at first
     * the margins; curve: likewise, shares of the classes for SOFTMAX; pair: [rows] */
    double *z, *scaled, *row, *high, *low, *matrix, *slope, *curve, *pair;
} cp_newton_lane;

typedef struct {
    cp_sgd form;                             /* what preparing rows needs of a model, see sgd/rows.h */
    enum cp_newton_matrix pass;
    int start, skip, isa;                    /* start: the first step, from weights of zero */
    cp_newton_terms terms;
    int64_t width, padded, pairs, lanes;     /* width: columns of z */
    double *weights, *center, *factor;       /* [outputs][padded]; by columns of z: [padded] */
    cp_newton_lane *lane;
} cp_newton;

static inline int64_t cp_newton_pairs(enum cp_loss loss, int64_t outputs)
{
    return loss == CP_SOFTMAX ? outputs * (outputs + 1) / 2 : outputs;
}

/* Return the outputs of pair `at`: the pairs (0, 0), (0, 1), ..., (1, 1), ...; or those of each output alone. */
static inline void cp_newton_pair(const cp_newton *s, int64_t at, int64_t *k, int64_t *l)
{
    int64_t first = 0, left = at, row = s->form.outputs;
    if (s->form.loss != CP_SOFTMAX) {
        *k = *l = at;
        return;
    }
    for (; left >= row; first++)
        left -= row--;
    *k = first;
    *l = first + left;
}

typedef struct { int64_t padded, pairs, lanes; size_t lane, size; } cp_newton_sizes;

/* Doubles of a lane: z, scaled, row, gradient twice, slopes and curvatures, matrices. */
static inline cp_newton_sizes cp_newton_layout(const cp_newton_shape *shape)
{
    cp_newton_sizes s;
    int64_t classes = cp_loss_per_class(shape->loss) ? shape->outputs : 2;
    s.padded = cp_round_up(shape->intercept + shape->features + 1, CP_NEWTON_PANEL); /* 1: a right-hand side */
    s.pairs = cp_newton_pairs(shape->loss, shape->outputs);
    int64_t matrix = s.pairs * s.padded * s.padded, most = CP_NEWTON_LANE_BYTES / (int64_t)sizeof(double);
    s.lanes = matrix > most ? 1 : most / matrix < CP_NEWTON_LANES ? most / matrix : CP_NEWTON_LANES;
    s.lane = (size_t)((s.padded + CP_NEWTON_PANEL + 1 + 2 * shape->outputs) * CP_NEWTON_ROWS
                      + (3 + 2 * shape->outputs) * s.padded + matrix);
    s.size = (size_t)cp_round_up(sizeof(cp_newton), CP_LINE)
             + (size_t)cp_round_up(s.lanes * (int64_t)sizeof(cp_newton_lane), CP_LINE)
             + sizeof(double) * (s.lane * (size_t)s.lanes
                                 + (size_t)(shape->outputs * s.padded + 2 * (s.padded + classes)));
    return s;
}

static inline size_t cp_newton_size(const cp_newton_shape *shape) { return cp_newton_layout(shape).size; }

static inline double *cp_newton_take(double **space, int64_t count)
{
    double *at = *space;
    *space += count;
    return at;
}

static inline void cp_newton_lane_init(const cp_newton *s, cp_newton_lane *a, double **space)
{
    const int64_t k = s->form.outputs;
    a->z = cp_newton_take(space, s->padded * CP_NEWTON_ROWS);
    a->scaled = cp_newton_take(space, CP_NEWTON_PANEL * CP_NEWTON_ROWS);
    a->slope = cp_newton_take(space, k * CP_NEWTON_ROWS);
    a->curve = cp_newton_take(space, k * CP_NEWTON_ROWS);
    a->pair = cp_newton_take(space, CP_NEWTON_ROWS);
    a->row = cp_newton_take(space, 3 * s->padded);
    a->high = cp_newton_take(space, k * s->padded);
    a->low = cp_newton_take(space, k * s->padded);
    a->matrix = cp_newton_take(space, s->pairs * s->padded * s->padded);
}

/* Initialise the state in zeroed memory, 64-byte aligned. */
static inline void cp_newton_init(cp_newton *s, const cp_newton_shape *shape)
{
    const cp_newton_sizes sizes = cp_newton_layout(shape);
    const int64_t classes = cp_loss_per_class(shape->loss) ? shape->outputs : 2;
    char *memory = (char *)s + cp_round_up(sizeof *s, CP_LINE);
    s->lane = (cp_newton_lane *)memory;
    double *space = (double *)(memory + cp_round_up(sizes.lanes * (int64_t)sizeof(cp_newton_lane), CP_LINE));
    s->form = (cp_sgd){.loss = shape->loss, .bytes = shape->bytes, .sparse = shape->sparse,
                       .features = shape->features, .outputs = shape->outputs, .padded = shape->features,
                       .weighs = shape->class_weight != NULL};
    s->skip = shape->skip;
    s->isa = shape->isa;
    s->width = shape->intercept + shape->features;
    s->padded = sizes.padded;
    s->pairs = sizes.pairs;
    s->lanes = sizes.lanes;
    s->terms.parameter = shape->parameter;
    for (int64_t l = 0; l < s->lanes; l++) {
        cp_newton_lane_init(s, s->lane + l, &space);
        double *ones = s->lane[l].z + shape->features / CP_NEWTON_PANEL * CP_NEWTON_PANEL * CP_NEWTON_ROWS
                       + shape->features % CP_NEWTON_PANEL;
        for (int64_t r = 0; shape->intercept && r < CP_NEWTON_ROWS; r++)
            ones[r * CP_NEWTON_PANEL] = 1;
    }
    s->weights = cp_newton_take(&space, shape->outputs * s->padded);
    s->center = cp_newton_take(&space, s->padded);
    s->factor = cp_newton_take(&space, s->padded);
    double *known = cp_newton_take(&space, 2 * classes);
    s->form.classes = (size_t)((char *)known - (char *)&s->form);
    s->form.class_weight = s->form.classes + (size_t)classes * sizeof(double);
    memcpy(known, shape->classes, (size_t)(cp_losses[shape->loss].labels == CP_NUMBERS ? 0 : classes) * sizeof *known);
    if (shape->class_weight)
        memcpy(known + classes, shape->class_weight, (size_t)classes * sizeof *known);
}
