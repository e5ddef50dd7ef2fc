/* What some rows of a table say of how its features are scaled, before it is learnt from. */
#ifndef CP_LOOK_H
#define CP_LOOK_H

#include <math.h>
#include <stdint.h>
#include <stddef.h>

enum { CP_LOOK_RUNS = 4, CP_LOOK_RUN = 256, CP_LOOK_NUMBERS = 1 << 18 }; /* runs of rows; rows, and numbers, of a run */

/* How features are scaled: as SGD wants them, or what its usual steps do not suit. */
enum cp_scales { CP_SCALES_FINE, CP_SCALES_APART, CP_ROWS_SHORT, CP_ROWS_LONG, CP_ROWS_ASIDE };

typedef struct {
    int64_t width, rows, zeros;
    double length;              /* sum of squared lengths of rows */
    double at[];                /* four a feature, one after another: sum of squares, least, most, sum */
} cp_look;

typedef struct {
    enum cp_scales scales;
    double length, apart;       /* mean squared length of a row; how many times larger the largest feature is */
    double aside;               /* share of mean squares that squared means have, of a mean feature */
    int64_t largest, smallest;  /* of the features that vary; -1 */
} cp_looked;

/* Begin with zeros, but for the width. */
static inline size_t cp_look_size(int64_t width) { return sizeof(cp_look) + (size_t)width * 4 * sizeof(double); }

/* Return where the next run of rows begins and ends, of a table's rows; the one before ended at `end`. May be empty. */
static inline int64_t cp_look_run(int64_t rows, int64_t width, int run, int64_t end, int64_t *stop)
{
    int64_t some = CP_LOOK_NUMBERS / width, last, start;
    some = some < 2 ? 2 : some > CP_LOOK_RUN ? CP_LOOK_RUN : some;
    last = rows > some ? rows - some : 0;
    start = run == CP_LOOK_RUNS - 1 ? last : (int64_t)(run * ((double)last / (CP_LOOK_RUNS - 1)));
    *stop = start + some < rows ? start + some : rows;
    return start > end ? start : end;
}

/* Take in a row; one that is not finite throughout is passed over. */
static inline void cp_look_add(cp_look *k, const double *row)
{
    double *squares = k->at, *least = squares + k->width, *most = least + k->width, *sum = most + k->width, length = 0;
    for (int64_t j = 0; j < k->width; j++)
        if (!isfinite(row[j]))
            return;
    for (int64_t j = 0; j < k->width; j++) {
        double square = row[j] * row[j];
        squares[j] += square;
        sum[j] += row[j];
        length += square;
        k->zeros += row[j] == 0;
        least[j] = k->rows == 0 || row[j] < least[j] ? row[j] : least[j];
        most[j] = k->rows == 0 || row[j] > most[j] ? row[j] : most[j];
    }
    k->length += length;
    k->rows++;
}

/* Say whether SGD would learn badly from these features as they are: its usual steps are too large for rows so long, or
 * too small for rows so short, or features are so far apart in size that no step suits all of them. Features that are
 * mostly zeros, counts and flags, are best left alone. Features that lie to one side of 0 are alike, to each other and to the
 * intercept: steps are long for what they have in common and short for what tells rows apart. */
static inline enum cp_scales cp_look_judge(const cp_look *k, double length, double apart, double aside)
{
    double width = (double)k->width, zeros = (double)k->zeros / (width * (k->rows > 0 ? (double)k->rows : 1));
    if (k->rows == 0 || zeros >= 0.5)
        return CP_SCALES_FINE;
    if (apart >= 1000)
        return CP_SCALES_APART;
    if (length <= 0.01)
        return CP_ROWS_SHORT;
    if (length >= 10 * (width > 10 ? width : 10))
        return CP_ROWS_LONG;
    return aside >= 0.25 && zeros < 0.25 && k->rows >= CP_LOOK_RUN ? CP_ROWS_ASIDE : CP_SCALES_FINE;
}

/* Say what the rows have shown. */
static inline cp_looked cp_look_end(const cp_look *k)
{
    const double *squares = k->at, *least = squares + k->width, *most = least + k->width, *sum = most + k->width;
    cp_looked found = {CP_SCALES_FINE, 1, 1, 0, -1, -1};
    int64_t vary = 0;
    for (int64_t j = 0; j < k->width; j++) {
        if (!(most[j] > least[j]) || !(squares[j] > 0))
            continue;
        found.aside += sum[j] / (double)k->rows * (sum[j] / squares[j]);
        vary++;
        if (found.largest < 0 || squares[j] > squares[found.largest])
            found.largest = j;
        if (found.smallest < 0 || squares[j] < squares[found.smallest])
            found.smallest = j;
    }
    if (found.largest >= 0 && squares[found.smallest] < squares[found.largest])
        found.apart = sqrt(squares[found.largest] / (double)k->rows) / sqrt(squares[found.smallest] / (double)k->rows);
    if (k->rows > 0)
        found.length = k->length / (double)k->rows;
    if (vary > 0)
        found.aside /= (double)vary;
    found.scales = cp_look_judge(k, found.length, found.apart, found.aside);
    return found;
}

#endif
