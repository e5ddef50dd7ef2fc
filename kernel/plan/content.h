/* Describes blocks by vectors of what is in them: the sketches that plan/seriate.h orders blocks by.
 *
 * A row is some features and some extras, which count CP_EXTRA_WEIGHT times: its label, or the classes of it. Each
 * number is taken from its column's centre in units of its spread, and what is missing as the centre. A block's vector is
 * the mean of its rows; more than CP_PLAIN features are added into as many numbers first, each into CP_SPREAD of them with a
 * sign of its own, so that vectors are as far from each other as the rows were. All features together vary as much as
 * one extra. Vectors are whole numbers, 1 is CP_CONTENT_UNIT. */
#ifndef CP_CONTENT_H
#define CP_CONTENT_H

#include "check.h"
#include "plan/permute.h"
#include <math.h>
#include <string.h>

enum { CP_PLAIN = 32, CP_SPREAD = 4, CP_EXTRA_WEIGHT = 2, CP_CONTENT_UNIT = 1 << 10, CP_FAR = 8, CP_FINE = 1 << 16 };

/* Numbers of a vector of so many features and extras. */
static inline int64_t cp_content_width(int64_t features, int64_t extras)
{
    return (features < CP_PLAIN ? features : CP_PLAIN) + extras;
}

/* Find the mean of each column of rows[count][width], and 1 over its spread; 0 where nothing varies. What is not finite
 * does not count. */
static inline void cp_content_scale(const double *rows, int64_t count, int64_t width, double *center, double *scale)
{
    for (int64_t j = 0; j < width; j++) {
        double sum = 0, squares = 0, n = 0;
        for (int64_t i = 0; i < count; i++)
            if (rows[i * width + j] - rows[i * width + j] == 0) {
                sum += rows[i * width + j];
                n++;
            }
        center[j] = n > 0 ? sum / n : 0;
        for (int64_t i = 0; i < count; i++) {
            double off = rows[i * width + j] - center[j];
            squares += off - off == 0 ? off * off : 0;
        }
        scale[j] = squares > 0 ? sqrt(n / squares) : 0;
    }
}

/* Add up the rows of a block, each number CP_FINE times as many units as it is spreads off its centre. */
static inline void cp_content_sum(const double *rows, int64_t count, int64_t width, const double *center,
                                  const double *scale, int64_t *sums)
{
    memset(sums, 0, sizeof *sums * (size_t)width);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j++) {
            double off = (rows[i * width + j] - center[j]) * scale[j];
            if (off == off)
                sums[j] += (int64_t)lrint((off > CP_FAR ? CP_FAR : off < -CP_FAR ? -CP_FAR : off) * CP_FINE);
        }
}

static inline int16_t cp_content_number(int64_t sum, double weight, int64_t rows)
{
    double number = (double)sum * weight / (double)rows;
    return (int16_t)lrint(number > INT16_MAX ? INT16_MAX : number < -INT16_MAX ? -INT16_MAX : number);
}

/* Write the vector of a block of `rows` rows, at least one; `varying` of its features are not constant. */
static inline void cp_content_vector(const int64_t *sums, int64_t rows, int64_t features, int64_t extras,
                                     int64_t varying, int16_t *out)
{
    int64_t mixed[CP_PLAIN] = {0}, plain = cp_content_width(features, 0);
    double unit = (double)CP_CONTENT_UNIT / CP_FINE, copies = features > CP_PLAIN ? CP_SPREAD : 1;
    double weight = varying ? unit / sqrt((double)varying * copies) : 0;
    for (int64_t j = 0; features > CP_PLAIN && j < features; j++) {
        uint64_t random = cp_random(CP_GOLDEN, (uint64_t)j); /* bits: for each copy five of place and one of sign */
        for (int copy = 0; copy < CP_SPREAD; copy++, random >>= 6)
            mixed[random % CP_PLAIN] += random & CP_PLAIN ? sums[j] : -sums[j];
    }
    for (int64_t j = 0; j < plain; j++)
        out[j] = cp_content_number(features > CP_PLAIN ? mixed[j] : sums[j], weight, rows);
    for (int64_t j = 0; j < extras; j++)
        out[plain + j] = cp_content_number(sums[features + j], unit * CP_EXTRA_WEIGHT, rows);
}

/* Describe blocks that end at these rows of rows[ends[blocks - 1]][features + extras]; zeros for one without rows. `sums`
 * is room for as many. */
static inline void cp_content(const double *rows, const int64_t *ends, int64_t blocks, int64_t features, int64_t extras,
                              const double *center, const double *scale, int64_t *sums, int16_t *out)
{
    int64_t width = features + extras, numbers = cp_content_width(features, extras), varying = 0;
    for (int64_t j = 0; j < features; j++)
        varying += scale[j] != 0;
    for (int64_t i = 0, from = 0; i < blocks; from = ends[i++]) {
        CP_CHECK(ends[i] >= from);
        memset(out + i * numbers, 0, sizeof *out * (size_t)numbers);
        if (ends[i] == from)
            continue;
        cp_content_sum(rows + from * width, ends[i] - from, width, center, scale, sums);
        cp_content_vector(sums, ends[i] - from, features, extras, varying, out + i * numbers);
    }
}

#endif
