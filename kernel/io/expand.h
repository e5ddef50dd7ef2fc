/* Expands sparse rows to dense ones. */
#pragma once

#include "io/gather.h"

#define CP_EXPAND_RUN 256 /* entries that are converted at a time */

/* Entries of contiguous rows: row i has those from ends[i] to ends[i + 1]. */
typedef struct {
    const char *indices, *values;
    const int64_t *index_ends, *value_ends;
    int64_t rows, indices_count, values_count;
    enum cp_type index_type, value_type;
} cp_sparse_rows;

#define CP_PLACES_CASE(CODE, FROM)                                                                                     \
    case CODE:                                                                                                         \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            FROM value;                                                                                                \
            memcpy(&value, from + i * (int64_t)sizeof(FROM), sizeof(FROM));                                            \
            to[i] = (uint64_t)(int64_t)value;                                                                          \
        }                                                                                                              \
        break;

/* Widen indices; negative ones become too large. */
static inline void cp_places(uint64_t *to, const char *from, enum cp_type type, int64_t count)
{
    switch (type) {
    CP_INTEGER_TYPES(CP_PLACES_CASE)
    case CP_F32:
    case CP_F64:
    case CP_TYPES:
        break;
    }
}

#define CP_EXPAND_TO(REAL)                                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                                               \
        if (places[i] >= (uint64_t)width)                                                                              \
            return 0;                                                                                                  \
        ((REAL *)(void *)out)[places[i]] += ((const REAL *)(const void *)numbers)[i]; \
    }

/* Add the entries of one row to zeroed memory; duplicate indices are summed, as in SciPy. Returns 0 if an index is out
 * of range. */
static inline int cp_expand_row(char *out, int64_t width, int wide, const cp_sparse_rows *s, int64_t row)
{
    int64_t at = s->index_ends[row], from = s->value_ends[row], count = s->index_ends[row + 1] - at;
    uint64_t places[CP_EXPAND_RUN];
    double numbers[CP_EXPAND_RUN];
    for (int64_t done = 0; done < count; done += CP_EXPAND_RUN) {
        int64_t n = count - done < CP_EXPAND_RUN ? count - done : CP_EXPAND_RUN;
        cp_places(places, s->indices + (at + done) * cp_type_bytes[s->index_type], s->index_type, n);
        cp_cast((char *)numbers, wide, s->values + (from + done) * cp_type_bytes[s->value_type], s->value_type, n);
        if (wide) {
            CP_EXPAND_TO(double)
        } else {
            CP_EXPAND_TO(float)
        }
    }
    return 1;
}

/* Return whether a row's offsets are valid and it has as many indices as values. */
static inline int cp_sparse_row_ok(const cp_sparse_rows *s, int64_t row)
{
    int64_t low = s->index_ends[row], high = s->index_ends[row + 1];
    int64_t first = s->value_ends[row], last = s->value_ends[row + 1];
    return low >= 0 && high >= low && high <= s->indices_count && first >= 0 && last >= first &&
           last <= s->values_count && high - low == last - first;
}

/* Expand rows to floats, or to doubles if `wide`. Returns the first row that is invalid, or -1. */
static inline int64_t cp_expand(char *out, int64_t width, int wide, const cp_sparse_rows *s, int64_t first,
                                int64_t count)
{
    int64_t bytes = width * (wide ? 8 : 4);
    for (int64_t i = 0; i < count; i++) {
        memset(out + i * bytes, 0, (size_t)bytes);
        if (!cp_sparse_row_ok(s, first + i) || !cp_expand_row(out + i * bytes, width, wide, s, first + i))
            return first + i;
    }
    return -1;
}
