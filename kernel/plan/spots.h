/* Which rows are looked at to tell what is in the blocks of a table: spots, runs of a few rows, evenly spaced.
 *
 * A spot is what a page or a few hold, so that it costs about one small read. Of a table of few
 * megabytes CP_SPOTS of them are all its rows; of a large one there is a spot for each CP_SPOT_SHARE bytes, so that all of
 * them take a small share of the time of reading it. They depend on the table alone,
 * not on how it is cut: blocks of any size are told by the spots in them, or by the one nearest to them. */
#ifndef CP_SPOTS_H
#define CP_SPOTS_H

#include "plan/blocks.h"
#include <string.h>

enum {
    CP_SPOTS = 2048, CP_MOST_SPOTS = 1 << 16,
    CP_SPOT_SHARE = 2 << 20,    /* bytes of a table for each spot */
    CP_SPOT_PAGE = 4 << 10, CP_SPOT_PAGES = 16 << 10, /* bytes of it; at most, for the sake of CP_SPOT_FEW rows */
    CP_SPOT_FEW = 16, CP_SPOT_MOST = 256,
    CP_SPOT_BYTES = 16 << 20, CP_SPOT_PART = 32, /* of all spots: bytes, or this part of the table if that is more */
};

typedef struct {
    int64_t rows, count, each;
} cp_spots;

/* Choose spots of a table of so many rows, of so many bytes each. */
static inline cp_spots cp_spots_make(int64_t rows, double row_bytes)
{
    double width = row_bytes > 1 ? row_bytes : 1, bytes = width * (double)rows;
    double page = CP_SPOT_PAGE / width, pages = CP_SPOT_PAGES / width, count = bytes / CP_SPOT_SHARE;
    double most = bytes / CP_SPOT_PART > CP_SPOT_BYTES ? bytes / CP_SPOT_PART : CP_SPOT_BYTES;
    cp_spots s = {rows, 0, 1};
    if (rows < 1)
        return s;
    page = page < CP_SPOT_MOST ? page : CP_SPOT_MOST;
    pages = pages < CP_SPOT_FEW ? pages : CP_SPOT_FEW;
    s.each = cp_max64(1, (int64_t)(page > pages ? page : pages));
    count = count > CP_SPOTS ? count : CP_SPOTS;
    count = count < CP_MOST_SPOTS ? count : CP_MOST_SPOTS;
    most /= width * (double)s.each;
    s.count = cp_min64(rows, cp_max64(1, (int64_t)(count < most ? count : most)));
    s.each = cp_min64(s.each, rows / s.count);
    return s;
}

/* Where the share of a spot begins: the rows it stands for. */
static inline int64_t cp_spot_share(const cp_spots *s, int64_t spot)
{
    return s->rows / s->count * spot + s->rows % s->count * spot / s->count;
}

/* The first row of a spot. */
static inline int64_t cp_spot_row(const cp_spots *s, int64_t spot)
{
    int64_t from = cp_spot_share(s, spot);
    return from + (cp_spot_share(s, spot + 1) - from - s->each) / 2;
}

/* Write the vector of each block, out[blocks][width], from those of spots: the mean of the spots of which the middle row
 * is in it, else the one in whose share its own middle row is. */
static inline void cp_spots_spread(const cp_spots *s, const int16_t *vectors, int64_t width, const int64_t *cuts,
                                   int64_t blocks, int64_t *sums, int16_t *out)
{
    int64_t spot = 0, own = 0;
    for (int64_t block = 0; block < blocks; block++, out += width) {
        int64_t middle = cuts[block] + (cuts[block + 1] - cuts[block]) / 2, first = spot;
        memset(sums, 0, sizeof *sums * (size_t)width);
        for (; spot < s->count && cp_spot_row(s, spot) + s->each / 2 < cuts[block + 1]; spot++)
            for (int64_t d = 0; d < width; d++)
                sums[d] += vectors[spot * width + d];
        while (own + 1 < s->count && cp_spot_share(s, own + 1) <= middle)
            own++;
        for (int64_t d = 0; d < width && s->count > 0; d++)
            out[d] = spot > first ? (int16_t)(sums[d] / (spot - first)) : vectors[own * width + d];
    }
}

#endif
