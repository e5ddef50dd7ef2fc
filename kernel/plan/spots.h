/* Samples the rows that describe the blocks of a table: spots, runs of a few rows, evenly spaced.
 *
 * A spot covers a page or a few, so that it costs about one small read. CP_SPOTS spots cover all rows of a table of a
 * few megabytes; a large table has one spot per CP_SPOT_SHARE bytes, so that all spots take a small share of its
 * reading time. Spots depend on the table alone, not on its blocks: a block of any size is described by the spots in
 * it, or by the nearest one. */
#pragma once

#include "plan/blocks.h"
#include <string.h>

enum {
    CP_SPOTS = 2048,
    CP_MAX_SPOTS = 1 << 16,
    CP_SPOT_SHARE = 2 << 20, /* bytes of a table for each spot */
    CP_SPOT_PAGE = 4 << 10,
    CP_SPOT_PAGES = 16 << 10, /* bytes of a spot; the most, to reach CP_SPOT_MIN_ROWS rows */
    CP_SPOT_MIN_ROWS = 16,
    CP_SPOT_MAX_ROWS = 256,
    CP_SPOT_BYTES = 16 << 20,
    CP_SPOT_TABLE_PART = 32, /* of all spots: bytes, or this fraction of the table if that is
                                                  * more */
    CP_SPOT_SAMPLE_ROWS = 4096,
    CP_SPOT_SAMPLE_BYTES = 4 << 20, /* rows that estimate the spread of columns; bytes of their numbers */
};

typedef struct {
    int64_t rows, count, each;
} cp_spots;

/* Choose the spots of a table with this many rows of this many bytes. */
static inline cp_spots cp_spots_make(int64_t rows, double row_bytes)
{
    double width = row_bytes > 1 ? row_bytes : 1, bytes = width * (double)rows;
    double page = CP_SPOT_PAGE / width, pages = CP_SPOT_PAGES / width, count = bytes / CP_SPOT_SHARE;
    double most = bytes / CP_SPOT_TABLE_PART > CP_SPOT_BYTES ? bytes / CP_SPOT_TABLE_PART : CP_SPOT_BYTES;
    cp_spots s = {rows, 0, 1};
    if (rows < 1)
        return s;
    page = page < CP_SPOT_MAX_ROWS ? page : CP_SPOT_MAX_ROWS;
    pages = pages < CP_SPOT_MIN_ROWS ? pages : CP_SPOT_MIN_ROWS;
    s.each = cp_max64(1, (int64_t)(page > pages ? page : pages));
    count = count > CP_SPOTS ? count : CP_SPOTS;
    count = count < CP_MAX_SPOTS ? count : CP_MAX_SPOTS;
    most /= width * (double)s.each;
    s.count = cp_min64(rows, cp_max64(1, (int64_t)(count < most ? count : most)));
    s.each = cp_min64(s.each, rows / s.count);
    return s;
}

/* Return the rows of the first sample, which estimates the spread of columns: each byte becomes an 8-byte number. */
static inline int64_t cp_spots_first(double row_bytes)
{
    double most = CP_SPOT_SAMPLE_BYTES / (8 * (row_bytes > 1 ? row_bytes : 1));
    return most < 1 ? 1 : most < CP_SPOT_SAMPLE_ROWS ? (int64_t)most : CP_SPOT_SAMPLE_ROWS;
}

/* Return the number of spots in that sample; the i-th of them is spot i * count / few. */
static inline int64_t cp_spots_few(const cp_spots *s, int64_t first)
{
    return cp_min64(s->count, cp_max64(8, first / s->each));
}

/* Return the first of the rows that a spot stands for. */
static inline int64_t cp_spot_share(const cp_spots *s, int64_t spot)
{
    return s->rows / s->count * spot + s->rows % s->count * spot / s->count;
}

/* Return the first row of a spot. */
static inline int64_t cp_spot_row(const cp_spots *s, int64_t spot)
{
    int64_t from = cp_spot_share(s, spot);
    return from + (cp_spot_share(s, spot + 1) - from - s->each) / 2;
}

/* Write the vector of each block, out[blocks][width], from those of spots: the mean of the spots whose middle row is in
 * it, else that of the spot whose share holds the block's middle row. */
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
