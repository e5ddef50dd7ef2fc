/* Standardised features: mean and spread of each, from rows in the order of the table, and weights of such rows turned
 * into weights of the rows as they are. Nothing here depends on how rows are cut into calls. */
#ifndef CP_MOMENTS_H
#define CP_MOMENTS_H

#include <float.h>

#include "sgd/scale_sample.h"
#include "sgd/sums.h"

enum { CP_MOMENTS_GROUP = 256, CP_MOMENTS_NOISE = 8 }; /* rows; roundings by which a constant feature may differ */

#define CP_MOMENTS_TOLERANCE 1e-8 /* largest relative rounding error of a flag's variance */

/* Dense rows are added up in groups, as differences from the mean of the groups before; sparse ones by feature, as
 * differences from its first value. */
typedef struct cp_moments {
    int64_t width, rows, open;  /* open: of the rows, those of the group under way */
    double at[];                /* four a feature, one after another: see cp_moments_of */
} cp_moments;

typedef struct {
    double *restrict mean, *restrict squares, *restrict sum, *restrict square; /* of values; sum, square: of the group */
} cp_moments_parts;

/* Begin with zeros, but for the width. */
static inline size_t cp_moments_size(int64_t width) { return sizeof(cp_moments) + (size_t)width * 4 * sizeof(double); }

static inline cp_moments_parts cp_moments_of(cp_moments *m)
{
    return (cp_moments_parts){m->at, m->at + m->width, m->at + 2 * m->width, m->at + 3 * m->width};
}

/* End a group of dense rows. */
static inline void cp_moments_close(cp_moments *m)
{
    cp_moments_parts p = cp_moments_of(m);
    for (int64_t j = 0; m->open > 0 && j < m->width; j++) {
        double shift = p.sum[j] / (double)m->rows;
        p.squares[j] += p.square[j] - p.sum[j] * shift;
        p.mean[j] += shift;
        p.sum[j] = p.square[j] = 0;
    }
    m->open = 0;
}

/* Add a dense row; one that is not finite throughout is passed over. */
#define CP_MOMENTS_ADD(real, name) \
    static inline void name(cp_moments *m, const real *restrict x) \
    { \
        cp_moments_parts p = cp_moments_of(m); \
        int64_t width = m->width; \
        int strange = 0; \
        for (int64_t j = 0; j < width; j++) \
            strange |= !(x[j] - x[j] == 0); \
        if (strange) \
            return; \
        for (int64_t j = 0; m->rows == 0 && j < width; j++) /* rows differ little from it, a constant feature not at all */ \
            p.mean[j] = (double)x[j]; \
        for (int64_t j = 0; j < width; j++) { \
            double d = (double)x[j] - p.mean[j]; \
            p.sum[j] += d; \
            p.square[j] += d * d; \
        } \
        m->rows++; \
        if (++m->open == CP_MOMENTS_GROUP) \
            cp_moments_close(m); \
    }
CP_MOMENTS_ADD(float, cp_moments_add_f32)
CP_MOMENTS_ADD(double, cp_moments_add_f64)

static inline void cp_moments_add(cp_moments *m, const void *row, int bytes)
{
    if (bytes == 4)
        cp_moments_add_f32(m, row);
    else
        cp_moments_add_f64(m, row);
}

/* Add an entry of a sparse row; one that is not finite, or of no feature, is passed over. The rows are counted by hosts. */
static inline void cp_moments_add_entry(cp_moments *m, int64_t feature, double value)
{
    double *first, *count, *sum, *square, d;
    if (feature < 0 || feature >= m->width || !(value - value == 0))
        return;
    first = m->at + feature, count = first + m->width, sum = count + m->width, square = sum + m->width;
    if (*count == 0)
        *first = value;
    d = value - *first;
    ++*count;
    *sum += d;
    *square += d * d;
}

static inline void cp_moments_add_entries(cp_moments *m, const int32_t *feature, const void *values, int64_t n, int bytes)
{
    for (int64_t i = 0; i < n; i++)
        cp_moments_add_entry(m, feature[i], bytes == 4 ? (double)((const float *)values)[i] : ((const double *)values)[i]);
}

/* Make mean and squares of what sparse rows left; what is not there is 0. */
static inline void cp_moments_close_sparse(cp_moments *m)
{
    cp_moments_parts p = cp_moments_of(m);
    for (int64_t j = 0; j < m->width; j++) {
        double count = p.squares[j], share, mean;
        if (count == 0)
            continue;
        share = count / (double)m->rows;
        mean = p.mean[j] + p.sum[j] / count;
        p.squares[j] = p.square[j] - p.sum[j] * (p.sum[j] / count) + mean * mean * (count * (1 - share));
        p.mean[j] = mean * share;
    }
}

/* Write the centre and the scale of each feature; a constant feature has scale 1. With `flags`, features of 0 and 1
 * stay unscaled if rows times their variance suffice to learn them; else they are centred and scaled as far as needed.
 * A flag is recognised by mean and variance. Another feature that matches by chance has a mean square of 1 or less, so
 * the same treatment is safe. Ends the moments. Returns the first feature whose spread overflows double, else -1. */
static inline int64_t cp_moments_scaling(cp_moments *m, int sparse, int centred, int flags, int bytes, double *center,
                                         double *scale)
{
    double noise = CP_MOMENTS_NOISE * (bytes == 4 ? (double)FLT_EPSILON : DBL_EPSILON);
    double least = bytes == 4 ? (double)(FLT_MIN / FLT_EPSILON) : DBL_MIN / DBL_EPSILON;
    cp_moments_parts p = cp_moments_of(m);
    if (sparse)
        cp_moments_close_sparse(m);
    else
        cp_moments_close(m);
    for (int64_t j = 0; j < m->width; j++) {
        double spread = sqrt(p.squares[j] < 0 ? 0 : p.squares[j] / (double)(m->rows > 0 ? m->rows : 1));
        double flag = p.mean[j] * (1 - p.mean[j]);
        if (!isfinite(spread))
            return j;
        center[j] = centred ? p.mean[j] : 0;
        scale[j] = spread <= noise * fabs(p.mean[j]) || spread <= least ? 1 : spread;
        if (flags && flag > 0 && fabs(spread * spread - flag) <= CP_MOMENTS_TOLERANCE * flag) {
            scale[j] = fmin(1, spread * fmax(1, sqrt((double)m->rows / CP_LOOK_MIN_SQUARES)));
            center[j] = scale[j] < 1 ? center[j] : 0;
        }
    }
    return -1;
}

/* Take from a dense row what is to be taken and multiply by `factor`, all of its numbers. */
static inline void cp_scale_row(void *row, int bytes, int64_t width, const void *center, const void *factor)
{
    if (bytes == 4) {
        float *restrict x = row;
        const float *restrict c = center, *restrict f = factor;
        for (int64_t j = 0; j < width; j++)
            x[j] = (x[j] - c[j]) * f[j];
    } else {
        double *restrict x = row;
        const double *restrict c = center, *restrict f = factor;
        for (int64_t j = 0; j < width; j++)
            x[j] = (x[j] - c[j]) * f[j];
    }
}

/* Divide the entries of a sparse row, whose features are known to be in range. */
static inline void cp_scale_entries(void *values, const int32_t *feature, int64_t n, int bytes, const void *scale)
{
    for (int64_t i = 0; i < n; i++)
        if (bytes == 4)
            ((float *)values)[i] /= ((const float *)scale)[feature[i]];
        else
            ((double *)values)[i] /= ((const double *)scale)[feature[i]];
}

static inline double cp_as_stored(double x, int bytes) { return bytes == 4 ? (double)(float)x : x; }

/* Turn one output's weights of standardised rows into weights of the rows as they are, or `back`; both are such as reals
 * of `bytes` bytes hold. What goes into the intercept is added up without rounding. */
static inline void cp_fold(const double *center, const double *scale, int64_t width, int bytes, int back, double *weights,
                           double *intercept)
{
    cp_sum moved = {{0}, 0, 0};
    for (int64_t j = 0; j < width; j++) {
        double whole = back ? weights[j] : weights[j] / scale[j];
        cp_sum_add(&moved, whole * center[j]);
        weights[j] = cp_as_stored(back ? whole * scale[j] : whole, bytes);
    }
    *intercept = cp_as_stored(back ? *intercept + cp_sum_value(moved) : *intercept - cp_sum_value(moved), bytes);
}

#endif
