/* The state of one linear model in dual coordinate descent, in one block of memory that the host allocates, and the
 * solution of one coordinate.
 *
 * For rows x_i with labels y_i of -1 or 1, an SVM or a logistic model minimises
 *
 *     P(w) = 1/2 |w|^2 + sum_i C_i loss(y_i w . x_i)
 *
 * where C_i is C times the row's weight. With a dual variable a_i per row, w = sum_i a_i y_i x_i, the dual function
 *
 *     D(a) = -1/2 |w|^2 + sum_i value(a_i)  <=  P(any w)
 *
 * is maximal at the same w, where both are equal. A visit of a row maximises D over that row's variable alone (Hsieh et
 * al., ICML 2008; for logistic models Yu, Huang and Lin, 2011). There is no learning rate, and P - D bounds the error.
 *
 * | loss          | 0 <= a <= | value(a), of C_i                           |
 * |---------------|-----------|--------------------------------------------|
 * | HINGE         | C         | a                                          |
 * | SQUARED_HINGE | infinity  | a - a^2 / (4 C)                            |
 * | LOGISTIC      | C         | -a log(a / C) - (C - a) log((C - a) / C)   |
 *
 * The intercept is the weight of a feature that is 1 in every row; unlike in sgd/ it is part of |w|^2. Weights and dual
 * variables are doubles whatever the features are. HINGES is one HINGE for each class against the rest, LOGISTICS
 * likewise. */
#pragma once

#include "plan/permute.h"
#include "sgd/rows.h"
#include "sgd/totals.h"

enum { CP_DUAL_MAX_NEWTON_STEPS = 20, CP_DUAL_PREFETCH_ROWS = 8 };
#define CP_DUAL_MIN_GRADIENT 1e-8

typedef struct {
    enum cp_loss loss;
    int bytes, sparse, intercept, isa;  /* bytes per feature: 4 or 8; isa: 0, or 1 for AVX2, -1 for the best */
    int64_t features, outputs;
    double bound;                       /* C */
    int weighted;                       /* there are sample weights */
    const double *classes;              /* as in cp_sgd_shape */
    const double *class_weight;         /* as in cp_sgd_shape */
} cp_dual_shape;

typedef struct {
    enum cp_loss loss;                  /* that of one output */
    int32_t bytes, sparse, intercept, isa;
    int32_t weighted, weighs;           /* there are sample or class weights; there are class weights */
    int64_t features, outputs, count;   /* count: classes */
    int64_t stride;                     /* doubles per row in `a`: a variable per output, then the weight if
                                         * `weighted` */
    double bound, diagonal;                      /* C; 1 / (2 C) for SQUARED_HINGE */
    double near;                                 /* LOGISTIC: gradient of one coordinate at which it counts as solved */
    int64_t newtons, rows;                       /* Newton steps and rows in this pass */
    double sum, correct, weight;                 /* weighted sums of this pass: losses, correct rows, weights */
    size_t w, bias, classes, class_weight, size; /* offsets in bytes */
} cp_dual;

static inline int cp_dual_has(enum cp_loss loss)
{
    return loss == CP_HINGE || loss == CP_HINGES || loss == CP_SQUARED_HINGE || loss == CP_LOGISTIC
           || loss == CP_LOGISTICS;
}

static inline cp_dual cp_dual_layout(const cp_dual_shape *shape)
{
    int64_t classes = cp_loss_per_class(shape->loss) ? shape->outputs : 2;
    size_t line = CP_LINE, w = (size_t)(shape->features * shape->outputs) * sizeof(double);
    cp_dual s = {.loss = cp_losses[shape->loss].rest ? cp_losses[shape->loss].one : shape->loss,
                 .bytes = shape->bytes,
                 .sparse = shape->sparse,
                 .intercept = shape->intercept,
                 .isa = shape->isa,
                 .features = shape->features,
                 .outputs = shape->outputs,
                 .count = classes,
                 .bound = shape->bound,
                 .near = 1e-2,
                 .weighs = shape->class_weight != NULL};
    s.weighted = s.weighs || shape->weighted;
    s.stride = s.outputs + s.weighted;
    s.diagonal = s.loss == CP_SQUARED_HINGE ? 0.5 / s.bound : 0;
    s.w = (size_t)cp_round_up(sizeof(cp_dual), CP_LINE);
    s.bias = s.w + (w + line - 1) / line * line;
    s.classes = s.bias + (size_t)s.outputs * sizeof(double);
    s.class_weight = s.classes + (size_t)classes * sizeof(double);
    s.size = s.class_weight + (s.weighs ? (size_t)classes * sizeof(double) : 0);
    return s;
}

static inline size_t cp_dual_size(const cp_dual_shape *shape) { return cp_dual_layout(shape).size; }

/* Return the natural logarithm of any positive number. */
static inline double cp_dual_log(double x) { return x >= 1 ? cp_log(x) : -cp_log(1 / x); }

/* Return log(1 - part / whole), with all its digits for a small part. */
static inline double cp_dual_log_less(double part, double whole)
{
    const double r = part / whole;
    return r < 0x1p-10 ? -r * (1 + r * (0.5 + r * (1.0 / 3 + r * (0.25 + r * 0.2))))
                       : cp_dual_log((whole - part) / whole);
}

/* The new value of a variable, the gradient there, and whether a bound holds it. */
typedef struct { double a, slope; int held; } cp_dual_point;

/* Solve a coordinate of HINGE or SQUARED_HINGE: move the variable to the top of a parabola, within its bounds. */
static inline cp_dual_point cp_dual_clip(const cp_dual *s, double weight, double ym, double square, double a)
{
    const double most = s->loss == CP_SQUARED_HINGE ? INFINITY : s->bound * weight;
    const double diagonal = weight == 1 ? s->diagonal : s->diagonal / weight;
    double slope = ym - 1 + diagonal * a, to = a - slope / (square + diagonal);
    if ((a <= 0 && slope >= 0) || (a >= most && slope <= 0))
        return (cp_dual_point){a, slope, 1};
    to = to > 0 ? to : 0;
    return (cp_dual_point){to < most ? to : most, slope, 0};
}

/* Solve a coordinate of LOGISTIC by Newton's method on the smaller of a and C - a, which stays inside the bounds and
 * keeps its digits there. */
static inline cp_dual_point cp_dual_newton(cp_dual *s, double weight, double ym, double square, double a)
{
    const double top = s->bound * weight;
    const int other = 0.5 * square * (top - 2 * a) + ym < 0;
    const double from = other ? top - a : a, pull = other ? -ym : ym;
    double z = from <= 0 ? 1e-3 * top : top - from < 0.5 * top ? 0.1 * from : from;
    double slope = square * (z - from) + pull + cp_dual_log(z / (top - z));
    const double first = slope;
    int moved = z != from;
    for (int i = 0; i < CP_DUAL_MAX_NEWTON_STEPS && !(slope < s->near && slope > -s->near); i++) {
        double to = z - slope / (square + top / (top - z) / z);
        z = to > 0 ? to : 0.1 * z;
        slope = square * (z - from) + pull + cp_dual_log(z / (top - z));
        s->newtons++;
        moved = 1;
    }
    return (cp_dual_point){!moved ? a : other ? top - z : z, first, 0};
}

/* Return the loss of a row, without C. */
static inline double cp_dual_loss(enum cp_loss loss, double ym)
{
    const double lack = ym < 1 ? 1 - ym : 0;
    if (loss == CP_LOGISTIC)
        return ym > 0 ? cp_log(1 + cp_exp(-ym)) : cp_log(1 + cp_exp(ym)) - ym;
    return loss == CP_SQUARED_HINGE ? lack * lack : lack;
}

/* Return what the dual variables of n rows add to D. */
static inline double cp_dual_value(const cp_dual *s, const double *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++, a += s->stride) {
        const double weight = s->weighted ? a[s->outputs] : 1, top = s->bound * weight;
        for (int64_t k = 0; weight > 0 && k < s->outputs; k++)
            if (s->loss != CP_LOGISTIC)
                sum += a[k] - s->diagonal / 2 / weight * a[k] * a[k];
            else if (a[k] > 0 && a[k] < top)
                sum -= a[k] * (a[k] < 0.5 * top ? cp_dual_log(a[k] / top) : cp_dual_log_less(top - a[k], top))
                       + (top - a[k]) * cp_dual_log_less(a[k], top);
    }
    return sum;
}

/* Return |w|^2 over all outputs, intercepts included. */
static inline double cp_dual_norm(const cp_dual *s)
{
    const double *w = CP_AT(s, const double, w), *bias = CP_AT(s, const double, bias);
    double sum = 0;
    for (int64_t j = 0; j < s->features * s->outputs; j++)
        sum += w[j] * w[j];
    for (int64_t k = 0; k < s->outputs; k++)
        sum += bias[k] * bias[k];
    return sum;
}
