/* Describes blocks by vectors of what is in them: the sketches that plan/seriate.h orders blocks by.
 *
 * A row is some features and some extras: its label, or the classes of it. Each number is taken from its column's centre
 * in units of its spread, and what is missing as the centre. More than CP_PLAIN features are added into as many numbers
 * first, each into CP_SPREAD of them with a sign of its own, so that rows are as far from each other as they were. These
 * numbers are turned so that they vary alike in every direction, but for those in which little varies: balance then looks
 * after all projections of the features, not only after those that have most of the variance in common. A block's vector
 * is the mean of its rows: features, extras, and the products of both, the gradient of a linear model at zero, of which
 * more than CP_PRODUCTS are added up in the same way; and of no more than CP_FEW features their products with each other,
 * by which the gradient of a model varies that has learnt something. All features together vary as much as one extra.
 * Vectors are whole numbers, 1 is CP_CONTENT_UNIT. */
#ifndef CP_CONTENT_H
#define CP_CONTENT_H

#include "check.h"
#include "plan/permute.h"
#include <math.h>
#include <string.h>

enum { CP_PLAIN = 32, CP_FEW = 5, CP_PRODUCTS = 16, CP_SPREAD = 4, CP_CONTENT_UNIT = 1 << 10, CP_FAR = 8, CP_FINE = 1 << 16 };
#define CP_RIDGE 0.3 /* of the mean variance, is added to every direction's */

/* How rows are looked at: what cp_content_scale and cp_content_turn learn of some of them. */
typedef struct {
    int64_t features, extras;
    const double *center, *scale; /* [features + extras] */
    const double *turn;           /* [plain][plain], zeros above the diagonal */
} cp_lens;

static inline int64_t cp_content_plain(int64_t features) { return features < CP_PLAIN ? features : CP_PLAIN; }

/* Features whose products with each other count: all of them, or none. */
static inline int64_t cp_content_few(int64_t features) { return features <= CP_FEW ? features : 0; }

static inline int64_t cp_content_pairs(int64_t features)
{
    int64_t few = cp_content_few(features);
    return few * (few + 1) / 2;
}

/* Numbers of a vector of so many features and extras. */
static inline int64_t cp_content_width(int64_t features, int64_t extras)
{
    int64_t plain = cp_content_plain(features), products = plain * extras;
    return plain + extras + (products < CP_PRODUCTS ? products : CP_PRODUCTS) + cp_content_pairs(features);
}

/* Numbers that are added up for a block, and those of one row. */
static inline int64_t cp_content_room(int64_t features, int64_t extras)
{
    int64_t plain = cp_content_plain(features);
    return 2 * (plain + extras) + plain * extras + cp_content_few(features) * cp_content_few(features);
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

/* Write the numbers of a row, [plain + extras], CP_FINE times as many units as each is spreads off its centre. */
static inline void cp_content_row(const cp_lens *lens, const double *row, int64_t *numbers)
{
    int64_t plain = cp_content_plain(lens->features), width = lens->features + lens->extras;
    memset(numbers, 0, sizeof *numbers * (size_t)(plain + lens->extras));
    for (int64_t j = 0; j < width; j++) {
        double off = (row[j] - lens->center[j]) * lens->scale[j];
        if (off != off)
            continue;
        int64_t fine = (int64_t)lrint((off > CP_FAR ? CP_FAR : off < -CP_FAR ? -CP_FAR : off) * CP_FINE);
        uint64_t random = plain < lens->features ? cp_random(CP_GOLDEN, (uint64_t)j) : 0; /* a copy: 5 bits of place, a sign */
        if (j >= lens->features)
            numbers[plain + j - lens->features] = fine;
        else if (plain == lens->features)
            numbers[j] = fine;
        else
            for (int copy = 0; copy < CP_SPREAD; copy++, random >>= 6)
                numbers[random % CP_PLAIN] += random & CP_PLAIN ? fine : -fine;
    }
}

/* Replace a symmetric matrix, of which the lower triangle is given and `ridge` is added to its diagonal, by the inverse of
 * its Cholesky factor. */
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
            row[j] = sum; /* what stood there is not needed for the next columns, which begin behind it */
        }
        for (int64_t j = 0; j < i; j++)
            row[j] *= -diagonal;
        row[i] = diagonal;
    }
}

/* Find the turn of a lens whose centre and scale are known, turn[plain][plain], from rows[count][features + extras].
 * `room` is that of a block. */
static inline void cp_content_turn(const cp_lens *lens, const double *rows, int64_t count, int64_t *room, double *turn)
{
    int64_t plain = cp_content_plain(lens->features), width = lens->features + lens->extras;
    double mean[CP_PLAIN] = {0}, total = 0, varying = 0, kept;
    memset(turn, 0, sizeof *turn * (size_t)(plain * plain));
    for (int64_t i = 0; i < count; i++) {
        cp_content_row(lens, rows + i * width, room);
        for (int64_t j = 0; j < plain; j++) {
            double number = (double)room[j] / CP_FINE;
            mean[j] += number / (double)count;
            for (int64_t k = 0; k <= j; k++)
                turn[j * plain + k] += number * ((double)room[k] / CP_FINE) / (double)count;
        }
    }
    for (int64_t j = 0; j < plain; j++) {
        for (int64_t k = 0; k <= j; k++)
            turn[j * plain + k] -= mean[j] * mean[k];
        total += turn[j * plain + j];
        varying += turn[j * plain + j] > 0;
    }
    double ridge = total > 0 ? CP_RIDGE * total / varying : 1;
    cp_invert_root(turn, plain, ridge);
    kept = (double)plain; /* of the variance, once it is turned */
    for (int64_t j = 0; j < plain * plain; j++)
        kept -= ridge * turn[j] * turn[j];
    for (int64_t j = 0; j < plain * plain; j++)
        turn[j] = total > 0 && kept > 0 ? turn[j] / sqrt(kept) : 0;
}

/* Add up the rows of a block: their numbers, the products of features and extras, and those of few features. */
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
                products[e * plain + j] += numbers[j] * numbers[plain + e] / CP_FINE;
        for (int64_t j = 0; j < few; j++)
            for (int64_t k = 0; k < few; k++)
                squares[j * few + k] += numbers[j] * numbers[k] / CP_FINE;
    }
}

static inline int16_t cp_content_number(double mean)
{
    double number = mean * CP_CONTENT_UNIT;
    return (int16_t)lrint(number > INT16_MAX ? INT16_MAX : number < -INT16_MAX ? -INT16_MAX : number);
}

/* Write what is left of sums once they are turned: means. */
static inline void cp_content_turned(const cp_lens *lens, const int64_t *sums, int64_t rows, double *means)
{
    int64_t plain = cp_content_plain(lens->features);
    for (int64_t i = 0; i < plain; i++) {
        means[i] = 0;
        for (int64_t j = 0; j <= i; j++)
            means[i] += lens->turn[i * plain + j] * ((double)sums[j] / CP_FINE);
        means[i] /= (double)rows;
    }
}

/* Write the products of few features with each other, squares[few][few] turned on both sides; one varies as a feature. */
static inline void cp_content_squared(const cp_lens *lens, const int64_t *squares, int64_t rows, int16_t *out)
{
    int64_t few = cp_content_few(lens->features);
    double half[CP_FEW * CP_FEW] = {0}; /* turned on one side, its columns laid out as rows */
    for (int64_t k = 0; k < few; k++) {
        double means[CP_FEW];
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

/* Write the vector of a block of `rows` rows, at least one. */
static inline void cp_content_vector(const cp_lens *lens, const int64_t *sums, int64_t rows, int16_t *out)
{
    int64_t plain = cp_content_plain(lens->features), each = plain + lens->extras, all = plain * lens->extras;
    double means[CP_PLAIN], products[CP_PRODUCTS] = {0};
    cp_content_turned(lens, sums, rows, means);
    for (int64_t j = 0; j < plain; j++)
        out[j] = cp_content_number(means[j]);
    for (int64_t j = plain; j < each; j++)
        out[j] = cp_content_number((double)sums[j] / CP_FINE / (double)rows);
    for (int64_t j = 0; j < all; j++) {
        uint64_t random = cp_random(CP_GOLDEN, (uint64_t)(lens->features + j));
        if (j % plain == 0)
            cp_content_turned(lens, sums + each + j, rows, means);
        for (int copy = 0; all > CP_PRODUCTS && copy < CP_SPREAD; copy++, random >>= 6)
            products[random % CP_PRODUCTS] += (random & CP_PLAIN ? means[j % plain] : -means[j % plain]) / sqrt(CP_SPREAD);
        if (all <= CP_PRODUCTS)
            products[j] = means[j % plain];
    }
    for (int64_t j = 0; j < CP_PRODUCTS && j < all; j++)
        out[each + j] = cp_content_number(products[j]);
    cp_content_squared(lens, sums + each + all, rows, out + each + (all < CP_PRODUCTS ? all : CP_PRODUCTS));
}

/* Describe blocks that end at these rows of rows[ends[blocks - 1]][features + extras]; zeros for one without rows.
 * `room` is for cp_content_room numbers. */
static inline void cp_content(const cp_lens *lens, const double *rows, const int64_t *ends, int64_t blocks, int64_t *room,
                              int16_t *out)
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

#endif
