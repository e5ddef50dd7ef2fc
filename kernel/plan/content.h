/* Describes blocks by vectors of their content; plan/seriate.h orders blocks by such sketches.
 *
 * A row is some features and some extras: its label, or the classes of it. Each number is centred and divided by its
 * column's spread; missing values count as the centre. More than CP_CONTENT_FEATURES features are first hashed into
 * that many numbers, each into CP_HASH_COPIES of them with random signs, which preserves distances between rows.
 *
 * The features are then whitened with a ridge, so that balance considers all projections of the features, not only the
 * common ones with most of the variance. A block's vector is the mean over its rows of the features, the extras, and
 * the products of both, which are the gradient of a linear model at zero; more than CP_CONTENT_PRODUCTS of them are
 * hashed likewise. Up to CP_SQUARED_FEATURES features also contribute their products with each other, by which the
 * gradient of a trained model varies. All features together vary as much as one extra. Vectors are whole numbers, 1 is
 * CP_CONTENT_UNIT. */
#pragma once

#include "check.h"
#include "plan/permute.h"
#include <math.h>
#include <string.h>

enum {
    CP_CONTENT_FEATURES = 32,
    CP_SQUARED_FEATURES = 5,
    CP_CONTENT_PRODUCTS = 16,
    CP_HASH_COPIES = 4,
    CP_CONTENT_UNIT = 1 << 10,
    CP_CONTENT_MAX_SPREADS = 8,
    CP_CONTENT_SCALE = 1 << 16
};
#define CP_CONTENT_RIDGE 0.3 /* added to the variance of every direction, in mean variances */

/* Transformation of rows, estimated from a sample by cp_content_scale and cp_content_turn. */
typedef struct {
    int64_t features, extras;
    const double *center, *scale; /* [features + extras] */
    const double *turn;           /* [plain][plain], lower triangular */
} cp_lens;

static inline int64_t cp_content_plain(int64_t features)
{
    return features < CP_CONTENT_FEATURES ? features : CP_CONTENT_FEATURES;
}

/* Return the number of features whose products with each other count: all of them, or none. */
static inline int64_t cp_content_few(int64_t features) { return features <= CP_SQUARED_FEATURES ? features : 0; }

static inline int64_t cp_content_pairs(int64_t features)
{
    int64_t few = cp_content_few(features);
    return few * (few + 1) / 2;
}

/* Return the length of a vector for this many features and extras. */
static inline int64_t cp_content_width(int64_t features, int64_t extras)
{
    int64_t plain = cp_content_plain(features), products = plain * extras;
    return plain + extras + (products < CP_CONTENT_PRODUCTS ? products : CP_CONTENT_PRODUCTS)
           + cp_content_pairs(features);
}

/* Return the size of a block's sums plus the numbers of one row. */
static inline int64_t cp_content_room(int64_t features, int64_t extras)
{
    int64_t plain = cp_content_plain(features);
    return 2 * (plain + extras) + plain * extras + cp_content_few(features) * cp_content_few(features);
}

/* Set the mean of each column of rows[count][width], and 1 / spread; 0 for constant columns. Non-finite values do not
 * count. */
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

/* Write the numbers of a row, [plain + extras]: spreads off the centre, times CP_CONTENT_SCALE. */
static inline void cp_content_row(const cp_lens *lens, const double *row, int64_t *numbers)
{
    int64_t plain = cp_content_plain(lens->features), width = lens->features + lens->extras;
    memset(numbers, 0, sizeof *numbers * (size_t)(plain + lens->extras));
    for (int64_t j = 0; j < width; j++) {
        double off = (row[j] - lens->center[j]) * lens->scale[j];
        if (off != off)
            continue;
        int64_t fine = (int64_t)lrint((off > CP_CONTENT_MAX_SPREADS    ? CP_CONTENT_MAX_SPREADS
                                       : off < -CP_CONTENT_MAX_SPREADS ? -CP_CONTENT_MAX_SPREADS
                                                                       : off)
                                      * CP_CONTENT_SCALE);
        /* per copy: 5 bits of position and a sign */
        uint64_t random = plain < lens->features ? cp_random(CP_GOLDEN, (uint64_t)j) : 0;
        if (j >= lens->features)
            numbers[plain + j - lens->features] = fine;
        else if (plain == lens->features)
            numbers[j] = fine;
        else
            for (int copy = 0; copy < CP_HASH_COPIES; copy++, random >>= 6)
                numbers[random % CP_CONTENT_FEATURES] += random & CP_CONTENT_FEATURES ? fine : -fine;
    }
}

/* Replace a symmetric matrix, given by its lower triangle, by the inverse of its Cholesky factor, after adding `ridge`
 * to the diagonal. */
static inline void cp_invert_root(double *matrix, int64_t width, double ridge)
{
    for (int64_t i = 0; i < width; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = matrix[i * width + j] + (i == j ? ridge : 0);
            for (int64_t k = 0; k < j; k++)
                sum -= matrix[i * width + k] * matrix[j * width + k];
            matrix[i * width + j] = i == j ? sqrt(sum) : sum / matrix[j * width + j];
        }
    for (int64_t i = 0; i < width; i++) {
        double *row = matrix + i * width, diagonal = 1 / row[i];
        for (int64_t j = 0; j < i; j++) {
            double sum = 0;
            for (int64_t k = j; k < i; k++)
                sum += row[k] * matrix[k * width + j];
            row[j] = sum; /* later columns start behind this entry and do not need its old value */
        }
        for (int64_t j = 0; j < i; j++)
            row[j] *= -diagonal;
        row[i] = diagonal;
    }
}

/* Estimate the whitening matrix turn[plain][plain] of a lens with known centre and scale, from rows[count][features +
 * extras]. `room` is that of a block. */
static inline void cp_content_turn(const cp_lens *lens, const double *rows, int64_t count, int64_t *room, double *turn)
{
    int64_t plain = cp_content_plain(lens->features), width = lens->features + lens->extras;
    double mean[CP_CONTENT_FEATURES] = {0}, total = 0, varying = 0, kept;
    memset(turn, 0, sizeof *turn * (size_t)(plain * plain));
    for (int64_t i = 0; i < count; i++) {
        cp_content_row(lens, rows + i * width, room);
        for (int64_t j = 0; j < plain; j++) {
            double number = (double)room[j] / CP_CONTENT_SCALE;
            mean[j] += number / (double)count;
            for (int64_t k = 0; k <= j; k++)
                turn[j * plain + k] += number * ((double)room[k] / CP_CONTENT_SCALE) / (double)count;
        }
    }
    for (int64_t j = 0; j < plain; j++) {
        for (int64_t k = 0; k <= j; k++)
            turn[j * plain + k] -= mean[j] * mean[k];
        total += turn[j * plain + j];
        varying += turn[j * plain + j] > 0;
    }
    double ridge = total > 0 ? CP_CONTENT_RIDGE * total / varying : 1;
    cp_invert_root(turn, plain, ridge);
    kept = (double)plain; /* variance left after the transformation */
    for (int64_t j = 0; j < plain * plain; j++)
        kept -= ridge * turn[j] * turn[j];
    for (int64_t j = 0; j < plain * plain; j++)
        turn[j] = total > 0 && kept > 0 ? turn[j] / sqrt(kept) : 0;
}

/* Sum over the rows of a block: their numbers, the products of features and extras, and the products of features if
 * few. */
static inline void cp_content_sum(const cp_lens *lens, const double *rows, int64_t count, int64_t *sums)
{
    int64_t plain = cp_content_plain(lens->features), each = plain + lens->extras, few = cp_content_few(lens->features);
    int64_t *products = sums + each, *squares = products + plain * lens->extras, *numbers = squares + few * few;
    memset(sums, 0, sizeof *sums * (size_t)(each + plain * lens->extras + few * few));
    for (int64_t i = 0; i < count; i++) {
        cp_content_row(lens, rows + i * (lens->features + lens->extras), numbers);
        for (int64_t j = 0; j < each; j++)
            sums[j] += numbers[j];
        for (int64_t e = 0; e < lens->extras; e++)
            for (int64_t j = 0; j < plain; j++)
                products[e * plain + j] += numbers[j] * numbers[plain + e] / CP_CONTENT_SCALE;
        for (int64_t j = 0; j < few; j++)
            for (int64_t k = 0; k < few; k++)
                squares[j * few + k] += numbers[j] * numbers[k] / CP_CONTENT_SCALE;
    }
}

static inline int16_t cp_content_number(double mean)
{
    double number = mean * CP_CONTENT_UNIT;
    return (int16_t)lrint(number > INT16_MAX ? INT16_MAX : number < -INT16_MAX ? -INT16_MAX : number);
}

/* Write the transformed means of the features from their sums. */
static inline void cp_content_turned(const cp_lens *lens, const int64_t *sums, int64_t rows, double *means)
{
    int64_t plain = cp_content_plain(lens->features);
    for (int64_t i = 0; i < plain; i++) {
        means[i] = 0;
        for (int64_t j = 0; j <= i; j++)
            means[i] += lens->turn[i * plain + j] * ((double)sums[j] / CP_CONTENT_SCALE);
        means[i] /= (double)rows;
    }
}

/* Write the products of features with each other, squares[few][few] transformed on both sides; each varies like a
 * feature. */
static inline void cp_content_squared(const cp_lens *lens, const int64_t *squares, int64_t rows, int16_t *out)
{
    int64_t few = cp_content_few(lens->features);
    double half[CP_SQUARED_FEATURES * CP_SQUARED_FEATURES] = {0}; /* transformed on one side, transposed */
    for (int64_t k = 0; k < few; k++) {
        double means[CP_SQUARED_FEATURES];
        cp_content_turned(lens, squares + k * few, rows, means);
        for (int64_t i = 0; i < few; i++)
            half[i * few + k] = means[i];
    }
    for (int64_t i = 0; i < few; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k <= j; k++)
                sum += lens->turn[j * few + k] * half[i * few + k];
            *out++ = cp_content_number(sqrt((double)few) * sum);
        }
}

/* Write the vector of a block of at least one row. */
static inline void cp_content_vector(const cp_lens *lens, const int64_t *sums, int64_t rows, int16_t *out)
{
    int64_t plain = cp_content_plain(lens->features), each = plain + lens->extras, all = plain * lens->extras;
    double means[CP_CONTENT_FEATURES], products[CP_CONTENT_PRODUCTS] = {0};
    cp_content_turned(lens, sums, rows, means);
    for (int64_t j = 0; j < plain; j++)
        out[j] = cp_content_number(means[j]);
    for (int64_t j = plain; j < each; j++)
        out[j] = cp_content_number((double)sums[j] / CP_CONTENT_SCALE / (double)rows);
    for (int64_t j = 0; j < all; j++) {
        uint64_t random = cp_random(CP_GOLDEN, (uint64_t)(lens->features + j));
        if (j % plain == 0)
            cp_content_turned(lens, sums + each + j, rows, means);
        for (int copy = 0; all > CP_CONTENT_PRODUCTS && copy < CP_HASH_COPIES; copy++, random >>= 6)
            products[random % CP_CONTENT_PRODUCTS] +=
                (random & CP_CONTENT_FEATURES ? means[j % plain] : -means[j % plain]) / sqrt(CP_HASH_COPIES);
        if (all <= CP_CONTENT_PRODUCTS)
            products[j] = means[j % plain];
    }
    for (int64_t j = 0; j < CP_CONTENT_PRODUCTS && j < all; j++)
        out[each + j] = cp_content_number(products[j]);
    cp_content_squared(lens, sums + each + all, rows,
                       out + each + (all < CP_CONTENT_PRODUCTS ? all : CP_CONTENT_PRODUCTS));
}

/* Write the vectors of blocks that end at these rows of rows[ends[blocks - 1]][features + extras]; zeros for empty
 * blocks. `room` has space for cp_content_room numbers. */
static inline void cp_content(const cp_lens *lens, const double *rows, const int64_t *ends, int64_t blocks,
                              int64_t *room, int16_t *out)
{
    int64_t numbers = cp_content_width(lens->features, lens->extras);
    for (int64_t i = 0, from = 0; i < blocks; from = ends[i++]) {
        CP_CHECK(ends[i] >= from);
        memset(out + i * numbers, 0, sizeof *out * (size_t)numbers);
        if (ends[i] == from)
            continue;
        cp_content_sum(lens, rows + from * (lens->features + lens->extras), ends[i] - from, room);
        cp_content_vector(lens, room, ends[i] - from, out + i * numbers);
    }
}
