/* Transposes columns of contiguous numbers into rows. */
#pragma once

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define CP_TRANSPOSE_ROWS 16 /* rows transposed at a time: for columns of four bytes, one cache line */

/* Source columns and destination rows: number k of row i moves from from[k] + i * width to `to` + i * stride + k *
 * width. */
typedef struct {
    const char *const *from;
    int64_t columns, width; /* width: 4 or 8 bytes */
    char *to;
    int64_t stride;
} cp_transposition;

/* Copy the columns from k on, one by one; `width` is a constant after inlining. */
static inline __attribute__((always_inline)) void cp_transpose_tail(const cp_transposition *t, int64_t k, int64_t first,
                                                                    int64_t stop, int64_t width)
{
    for (; k < t->columns; k++)
        for (int64_t i = first; i < stop; i++)
            memcpy(t->to + i * t->stride + k * width, t->from[k] + i * width, (size_t)width);
}

#ifdef __SSE2__
static inline __m128i cp_transpose_load(const char *from)
{ return _mm_loadu_si128((const __m128i *)(const void *)from); }

static inline void cp_transpose_store(char *to, __m128i four) { _mm_storeu_si128((__m128i *)(void *)to, four); }

/* Transpose four rows from row i on of the four columns from k on, four bytes each. */
static inline void cp_transpose_4x4(const cp_transposition *t, int64_t k, int64_t i)
{
    char *to = t->to + i * t->stride + k * 4;
    __m128i a = cp_transpose_load(t->from[k] + i * 4), b = cp_transpose_load(t->from[k + 1] + i * 4);
    __m128i c = cp_transpose_load(t->from[k + 2] + i * 4), d = cp_transpose_load(t->from[k + 3] + i * 4);
    __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
    cp_transpose_store(to, _mm_unpacklo_epi64(ab, cd));
    cp_transpose_store(to + t->stride, _mm_unpackhi_epi64(ab, cd));
    ab = _mm_unpackhi_epi32(a, b), cd = _mm_unpackhi_epi32(c, d);
    cp_transpose_store(to + 2 * t->stride, _mm_unpacklo_epi64(ab, cd));
    cp_transpose_store(to + 3 * t->stride, _mm_unpackhi_epi64(ab, cd));
}
#endif

static inline void cp_transpose(const cp_transposition *t, int64_t rows)
{
    for (int64_t first = 0, stop; first < rows; first = stop) {
        int64_t k = 0;
        stop = rows - first < CP_TRANSPOSE_ROWS ? rows : first + CP_TRANSPOSE_ROWS;
#ifdef __SSE2__
        for (; t->width == 4 && stop - first == CP_TRANSPOSE_ROWS && k + 4 <= t->columns; k += 4)
            for (int64_t i = first; i < stop; i += 4)
                cp_transpose_4x4(t, k, i);
#endif
        if (t->width == 4)
            cp_transpose_tail(t, k, first, stop, 4);
        else
            cp_transpose_tail(t, k, first, stop, 8);
    }
}
