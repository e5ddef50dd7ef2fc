/* Tells what rows that lie beside each other have in common, and so what a buffer of few blocks does to a batch.
 *
 * Of spots of a few rows it is the share of a feature's variance that lies between them, beyond what the label explains:
 * one-way analysis of variance of what is left of each feature once it is regressed on the label, an intraclass
 * correlation (Shrout and Fleiss 1979). */
#ifndef CP_ALIKE_H
#define CP_ALIKE_H

#include "check.h"
#include <math.h>
#include <stdint.h>

enum { CP_ALIKE_BATCH = 256, CP_SURE = 3 }; /* rows of a batch at least, for steps of few add up; standard errors */
#define CP_ALIKE_DEFF 1.1 /* that batches may have by what is left to chance */

/* Take from a column, of every `width`-th number, its part along another one that is centred. */
static inline void cp_take_off(double *column, const double *along, int64_t count, int64_t width)
{
    double product = 0, square = 0;
    for (int64_t i = 0; i < count * width; i += width) {
        product += column[i] * along[i];
        square += along[i] * along[i];
    }
    for (int64_t i = 0; i < count * width && square > 0; i += width)
        column[i] -= product / square * along[i];
}

/* Centre a column, what is not finite being its mean. Returns the sum of its squares. */
static inline double cp_centre(double *column, int64_t count, int64_t width)
{
    double sum = 0, finite = 0, squares = 0;
    for (int64_t i = 0; i < count * width; i += width)
        if (column[i] - column[i] == 0) {
            sum += column[i];
            finite++;
        }
    for (int64_t i = 0; i < count * width; i += width) {
        column[i] = column[i] - column[i] == 0 ? column[i] - sum / finite : 0;
        squares += column[i] * column[i];
    }
    return squares;
}

/* Return the share of a centred column's variance that lies between spots, less what may be chance; 0 at least. */
static inline double cp_between(const double *column, int64_t spots, int64_t each, int64_t width)
{
    double between = 0, all = 0, share, error, n = (double)each, s = (double)spots;
    for (int64_t spot = 0; spot < spots; spot++) {
        double sum = 0;
        for (int64_t i = 0; i < each; i++, column += width) {
            sum += *column;
            all += *column * *column;
        }
        between += sum * sum / n;
    }
    double within = (all - between) / (s * (n - 1));
    between /= s - 1;
    if (!(between > within))
        return 0;
    share = (between - within) / (between + (n - 1) * within);
    error = (1 - share) * (1 + (n - 1) * share) * sqrt(2 / (n * (n - 1) * (s - 1)));
    return share > CP_SURE * error ? share - CP_SURE * error : 0;
}

/* Return how much of its variance the feature has that is most alike within spots, beyond what the extras explain; 0
 * where that cannot be told. rows[spots * each][features + extras] are overwritten. */
static inline double cp_alike(double *rows, int64_t spots, int64_t each, int64_t features, int64_t extras)
{
    int64_t width = features + extras, count = spots * each;
    double most = 0;
    if (spots < 2 || each < 2)
        return 0;
    for (int64_t e = features; e < width; e++) {
        cp_centre(rows + e, count, width);
        for (int64_t before = features; before < e; before++)
            cp_take_off(rows + e, rows + before, count, width);
    }
    for (int64_t j = 0; j < features; j++) {
        double squares = cp_centre(rows + j, count, width), left = 0;
        for (int64_t e = features; e < width; e++)
            cp_take_off(rows + j, rows + e, count, width);
        for (int64_t i = j; i < count * width; i += width)
            left += rows[i] * rows[i];
        if (left > 1e-9 * squares) /* else the label says it all */
            most = fmax(most, left / squares * cp_between(rows + j, spots, each, width));
    }
    return most;
}

/* Whether blocks are better balanced by all that is in them than by the label: so many of all are dealt from at a time, and a
 * batch then has several rows of each, alike so far. What is alike is worth a look where this holds for all of it, 1. */
static inline int cp_wants_content(double alike, int64_t blocks, int64_t dealt, int64_t batch)
{
    double rows = (double)(batch > CP_ALIKE_BATCH ? batch : CP_ALIKE_BATCH) / (double)(dealt > 1 ? dealt : 1);
    return blocks > dealt && rows > 1 && 1 + alike * (rows - 1) > CP_ALIKE_DEFF;
}

#endif
