/* Measures the similarity of neighbouring rows, and so how a buffer of few blocks affects a batch.
 *
 * The measure is the share of a feature's variance that lies between spots of a few rows, beyond what the label
 * explains: a one-way analysis of variance of the residuals after regressing the feature on the label, an intraclass
 * correlation (Shrout and Fleiss 1979). */
#pragma once

#include "check.h"
#include <math.h>
#include <stdint.h>

/* Fewest rows per batch, since small steps add up; standard errors subtracted. */
enum { CP_SIMILARITY_BATCH = 256, CP_SIMILARITY_SIGMAS = 3 };
#define CP_SIMILARITY_DEFF 1.1 /* largest deff that may be left to chance */

/* Subtract from a column, every `width`-th number, its projection onto a centred one. */
static inline void cp_remove_projection(double *column, const double *direction, int64_t count, int64_t width)
{
    double product = 0, square = 0;
    for (int64_t i = 0; i < count * width; i += width) {
        product += column[i] * direction[i];
        square += direction[i] * direction[i];
    }
    for (int64_t i = 0; i < count * width && square > 0; i += width)
        column[i] -= product / square * direction[i];
}

/* Centre a column; non-finite values become its mean. Returns the sum of its squares. */
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

/* Return the share of a centred column's variance between spots, less CP_SIMILARITY_SIGMAS standard errors; at least
 * 0. */
static inline double cp_intraclass_share(const double *column, int64_t spots, int64_t each, int64_t width)
{
    double between = 0, all = 0, n = (double)each, s = (double)spots;
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
    double share = (between - within) / (between + (n - 1) * within);
    double error = (1 - share) * (1 + (n - 1) * share) * sqrt(2 / (n * (n - 1) * (s - 1)));
    return share > CP_SIMILARITY_SIGMAS * error ? share - CP_SIMILARITY_SIGMAS * error : 0;
}

/* Return the largest intraclass share of the variance over the features, beyond what the extras explain; 0 if it cannot
 * be measured. rows[spots * each][features + extras] are overwritten. */
static inline double cp_similarity(double *rows, int64_t spots, int64_t each, int64_t features, int64_t extras)
{
    int64_t width = features + extras, count = spots * each;
    double most = 0;
    if (spots < 2 || each < 2)
        return 0;
    for (int64_t e = features; e < width; e++) {
        cp_centre(rows + e, count, width);
        for (int64_t before = features; before < e; before++)
            cp_remove_projection(rows + e, rows + before, count, width);
    }
    for (int64_t j = 0; j < features; j++) {
        double squares = cp_centre(rows + j, count, width), left = 0;
        for (int64_t e = features; e < width; e++)
            cp_remove_projection(rows + j, rows + e, count, width);
        for (int64_t i = j; i < count * width; i += width)
            left += rows[i] * rows[i];
        if (left > 1e-9 * squares) /* else the label explains all of it */
            most = fmax(most, left / squares * cp_intraclass_share(rows + j, spots, each, width));
    }
    return most;
}

/* Return whether blocks should be balanced by their content instead of the label: if `dealt` blocks are dealt at a
 * time, a batch has several similar rows of each. Measuring is worth its cost if this holds for a similarity of 1. */
static inline int cp_wants_content(double similarity, int64_t blocks, int64_t dealt, int64_t batch)
{
    double rows = (double)(batch > CP_SIMILARITY_BATCH ? batch : CP_SIMILARITY_BATCH) / (double)(dealt > 1 ? dealt : 1);
    return blocks > dealt && rows > 1 && 1 + similarity * (rows - 1) > CP_SIMILARITY_DEFF;
}
