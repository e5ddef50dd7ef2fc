/* Mean and spread of features, for standardisation, and conversion of weights between standardised and raw rows.
 * Nothing here depends on how rows are split into calls. */
#pragma once

#include <float.h>

#include "sgd/scale_sample.h"
#include "sgd/sums.h"

enum { CP_MOMENTS_GROUP = 256, CP_MOMENTS_NOISE = 8 }; /* rows per group; roundings by which a constant feature may
                                                        * differ */

#define CP_MOMENTS_TOLERANCE 1e-8 /* largest relative rounding error of a flag's variance */

/* Running moments. Dense rows are added in groups, as differences from the mean of the previous groups; sparse ones by
 * feature, as differences from its first value. */
typedef struct cp_moments {
    int64_t width, rows, open;  /* open: rows in the current group */
    double at[];                /* four arrays of width: see cp_moments_of */
} cp_moments;

typedef struct {
    /* of values; sum, square: of the current group */
    double *restrict mean, *restrict squares, *restrict sum, *restrict square;
} cp_moments_parts;

/* Return the bytes of the moments. They start as zeros, except for the width. */
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

/* Add a dense row; rows with a non-finite value are skipped. */
#define CP_MOMENTS_ADD(real, name) \
    static inline void name(cp_moments *m, const real *restrict x) \
    { \
        cp_moments_parts p = cp_moments_of(m); \
        int64_t width = m->width; \
        int nonfinite = 0; \
        for (int64_t j = 0; j < width; j++) \
            nonfinite |= !(x[j] - x[j] == 0); \
        if (nonfinite) \
            return; \
        for (int64_t j = 0; m->rows == 0 && j < width; j++) /* a first guess of the mean */ \
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

/* Add an entry of a sparse row; a non-finite value or an unknown feature is skipped. Hosts count the rows. */
static inline void cp_moments_add_entry(cp_moments *m, int64_t feature, double value)
{
    double *first, *count, *sum, *square;
    if (feature < 0 || feature >= m->width || !(value - value == 0))
        return;
    first = m->at + feature, count = first + m->width, sum = count + m->width, square = sum + m->width;
    if (*count == 0)
        *first = value;
    double d = value - *first;
    ++*count;
    *sum += d;
    *square += d * d;
}

static inline void cp_moments_add_entries(cp_moments *m, const int32_t *feature, const void *values, int64_t n,
                                          int bytes)
{
    for (int64_t i = 0; i < n; i++)
        cp_moments_add_entry(m, feature[i],
                             bytes == 4 ? (double)((const float *)values)[i] : ((const double *)values)[i]);
}

/* Compute mean and squares of sparse rows; absent entries are 0. */
static inline void cp_moments_close_sparse(cp_moments *m)
{
    cp_moments_parts p = cp_moments_of(m);
    for (int64_t j = 0; j < m->width; j++) {
        double count = p.squares[j];
        if (count == 0)
            continue;
        double share = count / (double)m->rows;
        double mean = p.mean[j] + p.sum[j] / count;
        p.squares[j] = p.square[j] - p.sum[j] * (p.sum[j] / count) + mean * mean * (count * (1 - share));
        p.mean[j] = mean * share;
    }
}

/* Write the centre and the scale of each feature; a constant feature has scale 1. Ends the moments. Returns the first
 * feature whose spread overflows double, else -1.
 *
 * With `flags`, features of 0 and 1 stay unscaled if rows times their variance suffice to learn them; else they are
 * centred and scaled as far as needed. A flag is recognised by mean and variance. Another feature that matches by
 * chance has a mean square of 1 or less, so the same treatment is safe. */
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

/* Standardise a dense row in place: subtract `center` and multiply by `factor`. */
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

/* Divide the entries of a sparse row; its features must be in range. */
static inline void cp_scale_entries(void *values, const int32_t *feature, int64_t n, int bytes, const void *scale)
{
    for (int64_t i = 0; i < n; i++)
        if (bytes == 4)
            ((float *)values)[i] /= ((const float *)scale)[feature[i]];
        else
            ((double *)values)[i] /= ((const double *)scale)[feature[i]];
}

static inline double cp_as_stored(double x, int bytes) { return bytes == 4 ? (double)(float)x : x; }

/* Convert one output's weights from standardised rows to raw rows, or `back`. Both fit reals of `bytes` bytes. The
 * intercept's shift is summed without rounding. */
static inline void cp_fold(const double *center, const double *scale, int64_t width, int bytes, int back,
                           double *weights, double *intercept)
{
    cp_sum moved = {{0}, 0, 0};
    for (int64_t j = 0; j < width; j++) {
        double whole = back ? weights[j] : weights[j] / scale[j];
        cp_sum_add(&moved, whole * center[j]);
        weights[j] = cp_as_stored(back ? whole * scale[j] : whole, bytes);
    }
    *intercept = cp_as_stored(back ? *intercept + cp_sum_value(moved) : *intercept - cp_sum_value(moved), bytes);
}
