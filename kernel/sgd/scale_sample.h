/* Checks from a sample of rows whether the features of a table need scaling. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stddef.h>

/* runs of rows; most rows, and numbers, per run */
enum { CP_LOOK_RUNS = 4, CP_LOOK_RUN = 256, CP_LOOK_NUMBERS = 1 << 18 };

/* Result of the check: scales suit SGD, or the reason why its default steps do not. */
enum cp_scales { CP_SCALES_FINE, CP_SCALES_DIFFER, CP_FEATURES_SMALL, CP_ROWS_LONG, CP_ROWS_OFF_CENTRE };

/* Limits measured on tables of 160 to 20,000 rows, in 5 epochs: beyond them R2 is over 0.01 below that of standardised
 * features. SGD learns a feature if rows times its mean square reach CP_LOOK_MIN_SQUARES. */
#define CP_LOOK_MIN_SQUARES 100.0
#define CP_LOOK_MIN_ROWS 200.0    /* smaller tables count as this many rows, since features of spread 1 are fine in
                                   * all */
#define CP_LOOK_MAX_RATIO 1000.0
#define CP_LOOK_MAX_LENGTH 10.0   /* mean squared length per feature; fewer than 10 features count as 10 */
#define CP_LOOK_MAX_MEAN 0.25

typedef struct {
    int64_t width, rows;
    double at[];                /* five arrays, a value per feature: sums of squares, minima, maxima, sums, zeros */
} cp_scale_sample;

typedef struct {
    enum cp_scales scales;
    double length, scale_ratio; /* mean squared length of a row; size of the largest feature over the smallest's */
    double mean_share;          /* share of squared means in mean squares, averaged over features */
    double least;               /* mean square of the smallest feature's non-zero values */
    int64_t largest, smallest;  /* features that vary; flags only if they are too small; -1: none */
} cp_scale_result;

/* Return the bytes of a sample. It starts as zeros, except for the width. */
static inline size_t cp_look_size(int64_t width)
{
    return sizeof(cp_scale_sample) + (size_t)width * 5 * sizeof(double);
}

/* Return the start of the next run of rows, and its end in `stop`; the previous run ended at `end`. A run may be
 * empty. */
static inline int64_t cp_look_run(int64_t rows, int64_t width, int run, int64_t end, int64_t *stop)
{
    int64_t some = CP_LOOK_NUMBERS / width;
    some = some < 2 ? 2 : some > CP_LOOK_RUN ? CP_LOOK_RUN : some;
    int64_t last = rows > some ? rows - some : 0;
    int64_t start = run == CP_LOOK_RUNS - 1 ? last : (int64_t)(run * ((double)last / (CP_LOOK_RUNS - 1)));
    *stop = start + some < rows ? start + some : rows;
    return start > end ? start : end;
}

/* Add a row; rows with a non-finite value are skipped. */
static inline void cp_look_add(cp_scale_sample *k, const double *row)
{
    double *squares = k->at, *least = squares + k->width, *most = least + k->width, *sum = most + k->width;
    double *zeros = sum + k->width;
    for (int64_t j = 0; j < k->width; j++)
        if (!isfinite(row[j]))
            return;
    for (int64_t j = 0; j < k->width; j++) {
        squares[j] += row[j] * row[j];
        sum[j] += row[j];
        zeros[j] += row[j] == 0;
        least[j] = k->rows == 0 || row[j] < least[j] ? row[j] : least[j];
        most[j] = k->rows == 0 || row[j] > most[j] ? row[j] : most[j];
    }
    k->rows++;
}

/* Return whether SGD would learn badly from the unscaled features of a table of `rows` rows, and why.
 *
 * Sizes are compared over non-zero values, so that rare features do not count as small. Flags, features of 0 and 1,
 * have the right size. Rare features (flags and those mostly 0) count as small together if few rows have them. If
 * features lie to one side of 0, steps are long in the direction shared with the intercept and short in those that
 * separate rows. Flags are not centred and do not count for this. */
static inline cp_scale_result cp_scale_sample_end(const cp_scale_sample *k, int64_t rows)
{
    const double *squares = k->at, *least = squares + k->width, *most = least + k->width, *sum = most + k->width;
    const double *zeros = sum + k->width, seen = (double)k->rows;
    const double learnt = (double)rows > CP_LOOK_MIN_ROWS ? (double)rows : CP_LOOK_MIN_ROWS;
    cp_scale_result result = {CP_SCALES_FINE, 0, 1, 0, INFINITY, -1, -1};
    double numbers = 0, full = 0, shared = 0, rare = 0, met = 0, large = 0;
    int64_t rarest = -1;
    for (int64_t j = 0; j < k->width && k->rows > 0; j++) {
        const double square = squares[j] / seen, size = squares[j] / (seen - zeros[j]);
        const double mean_share = sum[j] / seen * (sum[j] / squares[j]);
        const int varies = most[j] > least[j] && squares[j] > 0;
        const int flag = varies && least[j] >= 0 && most[j] <= 1 && squares[j] == sum[j];
        if (!flag)
            result.length += square, numbers++;
        if (!varies)
            continue;
        if (!flag && size > large)
            large = size, result.largest = j;
        if (!flag && size < result.least)
            result.least = size, result.smallest = j;
        if (flag || zeros[j] > seen / 2) {
            rarest = rarest < 0 || squares[j] < squares[rarest] ? j : rarest;
            rare++, met += square;
        } else
            full++, result.mean_share += mean_share;
        if (!flag) /* minus the expected value for a true mean of 0 */
            shared += mean_share / (mean_share < 1 - 1e-12 ? 1 - mean_share : 1e-12) - 1 / seen;
    }
    result.mean_share /= full > 0 ? full : 1;
    if (result.smallest >= 0)
        result.scale_ratio = sqrt(large) / sqrt(result.least);
    if (result.scale_ratio >= CP_LOOK_MAX_RATIO)
        result.scales = CP_SCALES_DIFFER;
    else if (result.least * learnt < CP_LOOK_MIN_SQUARES)
        result.scales = CP_FEATURES_SMALL;
    else if (rare > 0 && met / rare * learnt < CP_LOOK_MIN_SQUARES) {
        result.scales = CP_FEATURES_SMALL;
        result.smallest = rarest, result.least = squares[rarest] / seen;
    } else if (result.length >= CP_LOOK_MAX_LENGTH * (numbers > 10 ? numbers : 10))
        result.scales = CP_ROWS_LONG;
    else if (result.mean_share >= CP_LOOK_MAX_MEAN || learnt < CP_LOOK_MIN_SQUARES * (1 + shared))
        result.scales = CP_ROWS_OFF_CENTRE;
    return result;
}
