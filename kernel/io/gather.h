/* Moves rows between slots and batches: gather, scatter with a change of number type, and rows of varying length. */
#pragma once

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define CP_GATHER_BYTES 12288      /* bytes between a prefetch and its use */
#define CP_RAGGED_PREFETCH_ROWS 12 /* rows between a prefetch and its use, for rows of varying length */
#define CP_RUN_BYTES 4096          /* bytes assembled before they are written */
#define CP_CACHE_BYTES (8ll << 20) /* larger buffers are written past the cache */

/* Return the rows between a prefetch and its use: enough bytes to keep memory busy. */
static inline int64_t cp_gather_ahead(int64_t bytes)
{
    int64_t rows = CP_GATHER_BYTES / (bytes ? bytes : 1);
    return rows < 4 ? 4 : rows > 48 ? 48 : rows;
}

/* Prefetch a row into the second-level cache: prefetches into the first wait for its few line buffers, and rows of 1 KB
 * evict each other. Past 4 KB the hardware prefetcher takes over. Must be inlined: GCC drops calls of functions that
 * only prefetch. */
static inline __attribute__((always_inline)) void cp_prefetch(const char *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes && at < 4096; at += 64)
        __builtin_prefetch(row + at, 0, 2);
    __builtin_prefetch(row + bytes - 1, 0, 2);
}

/* Copy a row without a call: 64 bytes at a time, then 16, then one overlapping piece. */
static inline __attribute__((always_inline)) void cp_copy_row(char *to, const char *from, int64_t bytes)
{
    int64_t at = 0;
    if (bytes < 16) {
        for (; at + 4 <= bytes; at += 4)
            memcpy(to + at, from + at, 4);
        for (; at < bytes; at++)
            to[at] = from[at];
        return;
    }
    for (; at + 64 <= bytes; at += 64)
        memcpy(to + at, from + at, 64);
    for (; at + 16 <= bytes; at += 16)
        memcpy(to + at, from + at, 16);
    if (at < bytes)
        memcpy(to + bytes - 16, from + bytes - 16, 16);
}

/* Gather rows of one number, without prefetches: the CPU overlaps enough of these loads. `bytes` is a constant. */
static inline __attribute__((always_inline)) void cp_gather_numbers(char *to, const char *from, const int64_t bytes,
                                                                    const int32_t *index, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * bytes, from + index[i] * bytes, (size_t)bytes);
}

/* to[i] = from[index[i]], rows of `bytes` bytes. */
static inline void cp_gather(char *to, const char *from, int64_t bytes, const int32_t *index, int64_t count)
{
    if (bytes == 4) {
        cp_gather_numbers(to, from, 4, index, count);
        return;
    }
    if (bytes == 8) {
        cp_gather_numbers(to, from, 8, index, count);
        return;
    }
    int64_t ahead = cp_gather_ahead(bytes);
    for (int64_t i = 0; i < count; i++) {
        if (i + ahead < count)
            cp_prefetch(from + index[i + ahead] * bytes, bytes);
        cp_copy_row(to + i * bytes, from + index[i] * bytes, bytes);
    }
}

/* Concatenate rows of varying length: row i begins at address[index[i]] and has length[index[i]] items. */
static inline void cp_gather_ragged(char *out, const uint64_t *address, const int64_t *length, int64_t item,
                                    const int32_t *index, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (i + CP_RAGGED_PREFETCH_ROWS < count) {
            int32_t next = index[i + CP_RAGGED_PREFETCH_ROWS];
            cp_prefetch((const char *)(uintptr_t)address[next], length[next] * item);
        }
        int64_t bytes = length[index[i]] * item;
        memcpy(out, (const char *)(uintptr_t)address[index[i]], (size_t)bytes);
        out += bytes;
    }
}

enum cp_type { CP_I8, CP_U8, CP_I16, CP_U16, CP_I32, CP_U32, CP_I64, CP_U64, CP_F32, CP_F64, CP_TYPES };
static const uint8_t cp_type_bytes[CP_TYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};

/* Applies a macro to the code and the C type of each integer, or of each number. */
#define CP_INTEGER_TYPES(X)                                                                                            \
    X(CP_I8, int8_t) X(CP_U8, uint8_t) X(CP_I16, int16_t) X(CP_U16, uint16_t)                                          \
    X(CP_I32, int32_t) X(CP_U32, uint32_t) X(CP_I64, int64_t) X(CP_U64, uint64_t)
#define CP_NUMBER_TYPES(X) CP_INTEGER_TYPES(X) X(CP_F32, float) X(CP_F64, double)

#define CP_CAST_TO(TO, FROM)                                                                                           \
    for (int64_t i = 0; i < items; i++) {                                                                              \
        FROM value;                                                                                                    \
        memcpy(&value, from + i * (int64_t)sizeof(FROM), sizeof(FROM));                                                \
        ((TO *)(void *)to)[i] = (TO)value;                                                                             \
    }                                                                                                                  \
    break

#define CP_CAST_CASE(CODE, FROM)                                                                                       \
    case CODE:                                                                                                         \
        if (wide) {                                                                                                    \
            CP_CAST_TO(double, FROM);                                                                                  \
        }                                                                                                              \
        CP_CAST_TO(float, FROM);

/* Convert `items` numbers of any type to float, or to double if `wide`. */
static inline void cp_cast(char *to, int wide, const char *from, enum cp_type type, int64_t items)
{
    switch (type) {
    CP_NUMBER_TYPES(CP_CAST_CASE)
    case CP_TYPES: break;
    }
}

/* Destination of a column's rows: slot s begins at base + s * stride. */
typedef struct {
    char *base;
    int64_t stride;
    int64_t items;             /* numbers per row */
    enum cp_type from, to;     /* equal, or `to` is CP_F32 or CP_F64 */
    int past_cache;            /* bypass the cache: the buffer is larger than it */
} cp_target;

static inline void cp_put_row(const cp_target *t, char *to, const char *row)
{
    if (t->from == t->to)
        cp_copy_row(to, row, t->items * cp_type_bytes[t->from]);
    else
        cp_cast(to, t->to == CP_F64, row, t->from, t->items);
}

/* One loop per pair of types: in a table of scalar columns a row is a single number. */
#define CP_EACH_SCALAR(TO, FROM)                                                                                       \
    for (int64_t j = 0; j < count; j++) {                                                                              \
        int64_t i = sweep ? sweep[j] : j;                                                                              \
        FROM value;                                                                                                    \
        memcpy(&value, rows + i * (int64_t)sizeof(FROM), sizeof(FROM));                                                \
        TO number = (TO)value;                                                                                         \
        if (into[i] >= 0)                                                                                              \
            memcpy(t->base + into[i] * t->stride, &number, sizeof number);                                             \
    }                                                                                                                  \
    return 1

#define CP_SCALAR_CASE(CODE, FROM)                                                                                     \
    case CODE:                                                                                                         \
        if (wide) {                                                                                                    \
            CP_EACH_SCALAR(double, FROM);                                                                              \
        }                                                                                                              \
        CP_EACH_SCALAR(float, FROM);

static inline int cp_scatter_same_scalars(const cp_target *t, const char *rows, const int32_t *into,
                                          const int32_t *sweep, int64_t count)
{
    if (cp_type_bytes[t->from] == 4) {
        CP_EACH_SCALAR(uint32_t, uint32_t);
    }
    if (cp_type_bytes[t->from] == 8) {
        CP_EACH_SCALAR(uint64_t, uint64_t);
    }
    return 0;
}

/* Store the numbers of a scalar column in their slots, in the order of `sweep` unless NULL. Returns 0 if the column is
 * not scalar, or has a type that the general loop handles well enough. */
static inline int cp_scatter_scalars(const cp_target *t, const char *rows, const int32_t *into, const int32_t *sweep,
                                     int64_t count)
{
    int wide = t->to == CP_F64;
    if (t->items != 1)
        return 0;
    if (t->from == t->to)
        return cp_scatter_same_scalars(t, rows, into, sweep, count);
    switch (t->from) {
    CP_NUMBER_TYPES(CP_SCALAR_CASE)
    case CP_TYPES: break;
    }
    return 0;
}

/* Store contiguous rows in their slots; rows with a negative slot are dropped. */
static inline void cp_scatter(const cp_target *t, const char *rows, const int32_t *into, int64_t count)
{
    if (cp_scatter_scalars(t, rows, into, NULL, count))
        return;
    int64_t width = t->items * cp_type_bytes[t->from];
    for (int64_t i = 0; i < count; i++)
        if (into[i] >= 0)
            cp_put_row(t, t->base + into[i] * t->stride, rows + i * width);
}

/* Copy to memory that is not read soon: whole lines are written without being fetched first. */
static inline void cp_copy_past_cache(char *to, const char *from, int64_t bytes)
{
#ifdef __SSE2__
    int64_t head = -(int64_t)(uintptr_t)to & 15;
    if (head < bytes) {
        memcpy(to, from, (size_t)head);
        to += head, from += head, bytes -= head;
        for (; bytes >= 16; to += 16, from += 16, bytes -= 16)
            _mm_stream_si128((__m128i *)(void *)to, _mm_loadu_si128((const __m128i *)(const void *)from));
    }
#endif
    memcpy(to, from, (size_t)bytes);
}

static inline void cp_fence(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* Store contiguous rows in the order of `sweep`, in which slots ascend in runs. Each run is assembled in the
 * first-level cache and written at once, past the cache if the buffer is larger than it. */
static inline void cp_scatter_sweep(const cp_target *t, const char *rows, const int32_t *into, const int32_t *sweep,
                                    int64_t count)
{
    int64_t width = t->items * cp_type_bytes[t->from], wide = t->items * cp_type_bytes[t->to];
    char run[CP_RUN_BYTES];
    int64_t most = t->stride == wide && t->past_cache ? CP_RUN_BYTES / wide : 0;
    if (most < 2 && cp_scatter_scalars(t, rows, into, sweep, count))
        return;
    for (int64_t j = 0; j < count;) {
        int32_t slot = into[sweep[j]];
        int64_t length = 0;
        if (slot < 0 || most < 2) {
            if (slot >= 0)
                cp_put_row(t, t->base + slot * t->stride, rows + sweep[j] * width);
            j++;
            continue;
        }
        for (; j < count && length < most && into[sweep[j]] == slot + length; j++, length++)
            cp_put_row(t, run + length * wide, rows + sweep[j] * width);
        cp_copy_past_cache(t->base + slot * t->stride, run, length * wide);
    }
    cp_fence();
}
