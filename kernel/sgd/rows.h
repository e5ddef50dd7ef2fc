/* Turns slot numbers into addresses and stored labels into numbers, one chunk of rows at a time. */
#pragma once

#include "io/gather.h"
#include "sgd/state.h"

enum { CP_CHUNK_ROWS = 128, CP_PREFETCH_ROWS = 20, CP_MAX_PREFETCH_LINES = 32 };

/* Memory layout of rows. Dense: x + slot * stride (bytes); sparse: addresses and lengths by slot. */
typedef struct {
    const void *x, *y;
    int64_t slots, stride, safe;  /* safe: slots that can be read past their end, see cp_guard_tail */
    enum cp_type y_type;
    const uint64_t *indices, *values;
    const int64_t *lengths;
    const int32_t *visit;
    int64_t m;
    const uint8_t *set;           /* y numbers label sets, each with a byte per label, nonzero if present; or NULL */
    int64_t sets, labels;
    const void *weight;           /* by slot, or NULL: each row has weight 1 */
    enum cp_type weight_type;
} cp_rows;

typedef struct {
    const char *row[CP_CHUNK_ROWS + CP_PREFETCH_ROWS];
    const int32_t *index[CP_CHUNK_ROWS + CP_PREFETCH_ROWS];
    int64_t length[CP_CHUNK_ROWS + CP_PREFETCH_ROWS];
    double label[CP_CHUNK_ROWS], weight[CP_CHUNK_ROWS];
    const char *y;             /* labels, and the slots whose labels the next chunk needs */
    const int32_t *next;
    int64_t n, nexts, lines, ahead, last, y_size; /* last: the byte where a row's last pack ends, perhaps past the row's
                                                   * last cache line */
    const void *each;          /* labels for each of CP_MAX_MODELS models, reals, row by row; NULL if all share
                                * `label` */
    const char *before;        /* several dense models: the last row visited */
    int weighted;              /* whether a weight may differ from 1 */
    int status;                /* of the row after the last one, where preparation stopped */
} cp_chunk;

/* Return whether every slot is in range, without a branch per row. */
static inline int cp_slots_fit(const int32_t *visit, int64_t m, int64_t slots)
{
    uint32_t top = 0;
    for (int64_t i = 0; i < m; i++)
        top = (uint32_t)visit[i] > top ? (uint32_t)visit[i] : top;
    return m == 0 || (int64_t)top < slots;
}

#define CP_LABELS(kind, real) \
    case kind: \
        for (int64_t i = 0; i < n; i++) \
            out[i] = (double)((const real *)y)[visit[i]]; \
        break;

static inline void cp_read_labels(const void *y, enum cp_type type, const int32_t *visit, int64_t n, double *out)
{
    switch (type) {
    CP_NUMBER_TYPES(CP_LABELS)
    case CP_TYPES: break;
    }
}

/* Turn numbers of label sets into labels 0 and 1; NaN if the set is out of range. */
static inline void cp_labels_of_sets(const cp_rows *r, double *label, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        label[i] = label[i] >= 0 && label[i] < (double)r->sets ? r->set[(int64_t)label[i] * r->labels] != 0 : NAN;
}

/* Check that sparse indices increase and are in range, before they are used. */
static inline int cp_check_indices(const int32_t *index, int64_t n, int64_t features)
{
    int falls = 0;
    if (n <= 0)
        return n < 0 ? CP_SGD_BAD_LENGTH : CP_SGD_OK;
    for (int64_t j = 1; j < n; j++)
        falls |= index[j] <= index[j - 1];
    if (falls)
        return CP_SGD_BAD_ORDER;
    return index[0] < 0 || index[n - 1] >= features ? CP_SGD_BAD_INDEX : CP_SGD_OK;
}

static inline int64_t cp_find_class(const double *classes, int64_t count, double y)
{
    double guess = y - classes[0];
    if (guess >= 0 && guess < (double)count && classes[(int64_t)guess] == y)
        return (int64_t)guess;
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (classes[middle] < y)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && classes[low] == y ? low : -1;
}

/* Turn stored labels into -1 and 1 or class numbers, or leave them as targets. Returns the index of the first invalid
 * one, or n. There is a loop per kind, since a branch per row would cost as much as its update. */
static inline int64_t cp_code_labels(const cp_sgd *s, double *label, int64_t n)
{
    const double *classes = CP_AT(s, const double, classes), negative = classes[0], positive = classes[1];
    const double least = cp_losses[s->loss].not_negative ? 0 : -INFINITY;
    int64_t i = 0;
    switch (cp_losses[s->loss].labels) {
    case CP_TWO_CLASSES: { /* whole vectors, without a branch, which shuffled labels would mispredict */
        double good = 0;
        for (int64_t j = 0; j < n; j++)
            good += (label[j] == positive ? 1.0 : 0.0) + (label[j] == negative ? 1.0 : 0.0);
        if (good < (double)n)
            for (n = 0; label[n] == positive || label[n] == negative;)
                n++;
        for (; i < n; i++)
            label[i] = (label[i] == positive ? 1.0 : 0.0) - (label[i] == negative ? 1.0 : 0.0);
        break;
    }
    case CP_CLASSES:
        for (double k; i < n && (k = (double)cp_find_class(classes, s->outputs, label[i])) >= 0; i++)
            label[i] = k;
        break;
    case CP_NUMBERS:
        while (i < n && label[i] - label[i] == 0 && label[i] >= least)
            i++;
    }
    return i;
}

static inline int64_t cp_encode_labels(const cp_sgd *s, double *label, int64_t n, int *status)
{
    int64_t good = cp_code_labels(s, label, n);
    if (good < n)
        *status = label[good] - label[good] != 0 ? CP_SGD_LABEL_VALUE : CP_SGD_BAD_LABEL;
    return good;
}

/* Set the weights of a chunk that are the same for all rows. */
static inline void cp_begin_weights(const cp_sgd *s, const cp_rows *r, cp_chunk *c)
{
    c->weighted = s->weighs || r->weight != NULL;
    for (int64_t i = 0; i < CP_CHUNK_ROWS; i++)
        c->weight[i] = 1;
}

/* Set the weights of rows from their own and their class weights, after labels are coded. Returns the index of the
 * first invalid one, or n. */
static inline int64_t cp_weigh(const cp_sgd *s, const cp_rows *r, const int32_t *visit, int64_t n, cp_chunk *c)
{
    const double *of = CP_AT(s, const double, class_weight);
    int64_t good = n;
    if (r->weight)
        cp_read_labels(r->weight, r->weight_type, visit, n, c->weight);
    for (int64_t i = n - 1; r->weight && i >= 0; i--)
        good = c->weight[i] >= 0 && c->weight[i] < INFINITY ? good : i;
    for (int64_t i = 0; s->weighs && i < good; i++)
        c->weight[i] = (r->weight ? c->weight[i] : 1) * of[c->label[i] > 0 ? (int64_t)c->label[i] : 0];
    return good;
}

/* Copy the last slots to the state's tail. Rows are read in whole packs, up to 63 bytes past their end, which would
 * leave the buffer there. */
static inline void cp_guard_tail(cp_sgd *s, cp_rows *r)
{
    int64_t row = s->features * s->bytes, whole = s->padded * s->bytes, end = (r->slots - 1) * r->stride + row;
    r->safe = end < whole ? 0 : r->stride == 0 ? r->slots : (end - whole) / r->stride + 1;
    if (r->safe < r->slots)
        memcpy(CP_AT(s, char, tail), (const char *)r->x + r->safe * r->stride, (size_t)(end - r->safe * r->stride));
}

static inline const char *cp_dense_row(const cp_sgd *s, const cp_rows *r, int64_t slot)
{
    if (slot >= r->safe)
        return CP_AT(s, const char, tail) + (slot - r->safe) * r->stride;
    return (const char *)r->x + slot * r->stride;
}

static inline void cp_place_rows(const cp_sgd *s, const cp_rows *r, int64_t from, cp_chunk *c)
{
    int64_t available = r->m - from < CP_CHUNK_ROWS + CP_PREFETCH_ROWS ? r->m - from : CP_CHUNK_ROWS + CP_PREFETCH_ROWS;
    const int32_t *visit = r->visit + from;
    for (int64_t i = 0; i < available; i++) {
        int32_t slot = visit[i];
        c->row[i] = s->sparse ? (const char *)(uintptr_t)r->values[slot] : cp_dense_row(s, r, slot);
        if (s->sparse) {
            c->index[i] = (const int32_t *)(uintptr_t)r->indices[slot];
            c->length[i] = r->lengths[slot];
        }
    }
    for (int64_t i = available; i < CP_CHUNK_ROWS + CP_PREFETCH_ROWS; i++) {
        c->row[i] = c->row[available - 1];
        c->index[i] = s->sparse ? c->index[available - 1] : NULL;
        c->length[i] = s->sparse ? c->length[available - 1] : 0;
    }
}

static inline int64_t cp_row_lines(const cp_sgd *s)
{
    int64_t lines = (s->features * s->bytes + CP_LINE - 1) / CP_LINE;
    return lines < CP_MAX_PREFETCH_LINES ? lines : CP_MAX_PREFETCH_LINES;
}

static inline int64_t cp_row_ahead(const cp_sgd *s)
{
    int64_t lines = cp_row_lines(s);
    return lines <= 8 ? 10 : lines < CP_MAX_PREFETCH_LINES ? 6 : 2;
}

static inline void cp_prepare(const cp_sgd *s, const cp_rows *r, int64_t from, int64_t most, cp_chunk *c)
{
    int64_t n = r->m - from < CP_CHUNK_ROWS ? r->m - from : CP_CHUNK_ROWS;
    n = n < most ? n : most;
    cp_place_rows(s, r, from, c);
    cp_read_labels(r->y, r->y_type, r->visit + from, n, c->label);
    if (r->set)
        cp_labels_of_sets(r, c->label, n);
    c->status = CP_SGD_OK;
    c->n = cp_encode_labels(s, c->label, n, &c->status);
    if (c->weighted) {
        int64_t good = cp_weigh(s, r, r->visit + from, c->n, c);
        c->status = good < c->n ? CP_SGD_BAD_WEIGHT : c->status;
        c->n = good;
    }
    c->y = (const char *)r->y;
    c->y_size = cp_type_bytes[r->y_type];
    c->next = r->visit + from + n;
    c->nexts = r->m - from - n;
    c->lines = cp_row_lines(s);
    c->ahead = cp_row_ahead(s);
    c->last = s->padded * s->bytes - 1;
}

/* Prefetch a row CP_PREFETCH_ROWS visits ahead into the second-level cache, a nearer one into the first, and a label
 * of the next chunk. One stage alone exceeds the few cache lines that a core can wait for at a time. Must be
 * inlined: GCC drops calls of functions that only prefetch. */
static inline __attribute__((always_inline)) void cp_prefetch_rows(const cp_chunk *c, int64_t i, int64_t lines)
{
    const char *near = c->row[i + c->ahead], *far = c->row[i + CP_PREFETCH_ROWS];
    for (int64_t line = 0; line < lines; line++)
        __builtin_prefetch(near + line * CP_LINE);
    __builtin_prefetch(near + c->last);
    for (int64_t line = 0; line < lines; line++)
        __builtin_prefetch(far + line * CP_LINE, 0, 1);
    __builtin_prefetch(far + c->last, 0, 1);
    if (i < c->nexts)
        __builtin_prefetch(c->y + c->next[i] * c->y_size);
}
