/* Dual coordinate descent for linear SVMs and logistic models; dual/state.h has the formulas.
 *
 *     state = zeroed memory of cp_dual_size(&shape) bytes, 64-byte aligned;  cp_dual_init(state, &shape);
 *     each pass:  cp_dual_begin(state);  cp_dual_learn(state, &rows, number, a, &done) ...
 *
 * `a` has one dual variable per row of the table and output (the state's `stride` per row), 0 before the first visit;
 * number[i] is the row number of visit[i]. A model depends on the rows and their order alone, as in sgd/sgd.h. */
#pragma once

#include "dual/state.h"
#include "sgd/isa.h"

#if defined __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#define CP_DUAL_INLINE static inline __attribute__((always_inline))
#define CP_DUAL_PASTE2(name, kind, isa) cp_dual_##name##_##kind##_##isa
#define CP_DUAL_PASTE(name, kind, isa) CP_DUAL_PASTE2(name, kind, isa)

typedef struct {
    const void *x;
    const int32_t *index;      /* NULL: dense */
    int64_t n;
    double label, weight;      /* -1 or 1, or a class number; sample weight times class weight */
} cp_dual_row;

typedef struct { double free, held; } cp_dual_pull;

/* Prefetch a row some visits ahead, and its dual variables. */
CP_DUAL_INLINE void cp_dual_prefetch(const cp_dual *s, const cp_rows *r, const int64_t *number, const double *a,
                                     int64_t i)
{
    if (i + CP_DUAL_PREFETCH_ROWS >= r->m)
        return;
    int64_t slot = r->visit[i + CP_DUAL_PREFETCH_ROWS];
    const char *x = s->sparse ? (const char *)(uintptr_t)r->values[slot] : (const char *)r->x + slot * r->stride;
    int64_t bytes = (s->sparse ? r->lengths[slot] : s->features) * s->bytes;
    for (int64_t at = 0; at < bytes && at < 2048; at += CP_LINE)
        __builtin_prefetch(x + at);
    if (s->sparse)
        for (int64_t at = 0; at < bytes / s->bytes * 4 && at < 2048; at += CP_LINE)
            __builtin_prefetch((const char *)(uintptr_t)r->indices[slot] + at);
    if (a)
        __builtin_prefetch(a + number[i + CP_DUAL_PREFETCH_ROWS] * s->stride, 1);
}

/* Turn a stored label into -1 or 1, or a class number. Returns a status. */
static inline int cp_dual_label(const cp_dual *s, double *label)
{
    const double *classes = CP_AT(s, const double, classes);
    int64_t k = cp_find_class(classes, s->count, *label);
    if (k < 0)
        return *label - *label != 0 ? CP_SGD_LABEL_VALUE : CP_SGD_BAD_LABEL;
    *label = s->outputs == 1 ? (double)(2 * k - 1) : (double)k;
    return CP_SGD_OK;
}

/* Set the weight of a row from its sample weight and its class. Returns a status. */
CP_DUAL_INLINE int cp_dual_weigh(const cp_dual *s, const cp_rows *r, int64_t i, cp_dual_row *row)
{
    if (r->weight)
        cp_read_labels(r->weight, r->weight_type, r->visit + i, 1, &row->weight);
    if (!(row->weight >= 0 && row->weight < INFINITY))
        return CP_SGD_BAD_WEIGHT;
    if (s->weighs)
        row->weight *= CP_AT(s, const double, class_weight)[row->label > 0 ? (int64_t)row->label : 0];
    return CP_SGD_OK;
}

/* Read the address, label and weight of a row; indices are not checked. Returns a status. */
CP_DUAL_INLINE int cp_dual_read_row(const cp_dual *s, const cp_rows *r, int64_t i, cp_dual_row *row)
{
    int64_t slot = r->visit[i];
    int status;
    row->label = 0;
    row->weight = 1;
    cp_read_labels(r->y, r->y_type, r->visit + i, 1, &row->label);
    if ((status = cp_dual_label(s, &row->label)) || (s->weighted && (status = cp_dual_weigh(s, r, i, row))))
        return status;
    row->n = s->sparse ? r->lengths[slot] : s->features;
    row->x = s->sparse ? (const void *)(uintptr_t)r->values[slot] : (const char *)r->x + slot * r->stride;
    row->index = s->sparse ? (const int32_t *)(uintptr_t)r->indices[slot] : NULL;
    return CP_SGD_OK;
}

#define CP_TEMPLATE "dual/reals.h"
#include "sgd/levels.h"

static inline void cp_dual_init(cp_dual *s, const cp_dual_shape *shape)
{
    *s = cp_dual_layout(shape);
    if (s->isa < 0 || s->isa > cp_sgd_isa())
        s->isa = cp_sgd_isa();
    memcpy(CP_AT(s, double, classes), shape->classes, (size_t)s->count * sizeof(double));
    if (s->weighs)
        memcpy(CP_AT(s, double, class_weight), shape->class_weight, (size_t)s->count * sizeof(double));
}

/* Begin a pass: clear its totals. The fewer Newton steps remain, the more precisely single coordinates are solved. */
static inline void cp_dual_begin(cp_dual *s)
{
    if (s->rows && s->newtons <= s->rows / 10)
        s->near = s->near > 10 * CP_DUAL_MIN_GRADIENT ? 0.1 * s->near : CP_DUAL_MIN_GRADIENT;
    s->newtons = s->rows = 0;
    s->sum = s->correct = s->weight = 0;
}

/* Visit rows in the order of r->visit; `a` NULL: only to evaluate them. Sets `done` to the number of rows visited; on
 * an error, visit[done] is the row that caused it. The host checks row numbers. */
static inline int cp_dual_learn(cp_dual *s, const cp_rows *r, const int64_t *number, double *a, int64_t *done)
{
    int status = CP_SGD_OK;
    if (!cp_slots_fit(r->visit, r->m, r->slots)) {
        for (*done = 0; r->visit[*done] >= 0 && r->visit[*done] < r->slots;)
            ++*done;
        return CP_SGD_BAD_SLOT;
    }
    *done = s->bytes == 4 ? CP_CALL(s->isa, cp_dual_learn_f32, s, r, number, a, &status)
                          : CP_CALL(s->isa, cp_dual_learn_f64, s, r, number, a, &status);
    return status;
}

/* Revisit rows that cp_dual_learn has learnt, `passes` times or until no variable could move by `still`; `places` has
 * space for a number per row. */
static inline void cp_dual_again(cp_dual *s, const cp_rows *r, const int64_t *number, double *a, int32_t *places,
                                 int64_t passes, double still, uint64_t key)
{
    if (!cp_slots_fit(r->visit, r->m, r->slots))
        return;
    if (s->bytes == 4)
        CP_CALL(s->isa, cp_dual_again_f32, s, r, number, a, places, passes, still, key);
    else
        CP_CALL(s->isa, cp_dual_again_f64, s, r, number, a, places, passes, still, key);
}
