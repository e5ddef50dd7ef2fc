/* Trains several models on the same rows: compatible ones at once (sgd/simd_models.h), all others one after another.
 * Each gets the bits that it gets alone. */
#pragma once

#include "sgd/sgd.h"

enum { CP_MIN_MODELS = 4 }; /* fewer are as fast one after another, two up to twice as fast */

/* Return the code for this many models at once, with the narrowest vectors that hold them. */
static inline const cp_multi_model_code *cp_multi_model_code_of(const cp_sgd *s, int64_t count)
{
#ifdef CP_CLONES
    if (s->isa == 2 && count * s->bytes > 32)
        return s->bytes == 4 ? &cp_multi_model_code_f32_avx512 : &cp_multi_model_code_f64_avx512;
    if (s->isa >= 1)
        return s->bytes == 4 ? &cp_multi_model_code_f32_avx2 : &cp_multi_model_code_f64_avx2;
#endif
    (void)count;
    return s->bytes == 4 ? &cp_multi_model_code_f32_base : &cp_multi_model_code_f64_base;
}

/* Return whether a model can visit rows at once with similar ones. */
static inline int cp_sgd_vectorisable(const cp_sgd *s)
{
    const int plain = !s->ruled && !s->bounded, ruled = s->ruled && s->rule != CP_MOMENTS && !(s->max_norm > 0);
    return cp_loss_is_inlined(s->loss) && (plain || ruled) && !s->sparse && !s->batched && !s->weighs
           && s->padded * s->bytes <= CP_NARROW_PACKS * CP_LINE;
}

/* Return how many models like this one visit rows at once; 1 if it cannot share lanes. */
static inline int64_t cp_sgd_at_once(const cp_sgd *s)
{
    const int64_t models = cp_sgd_vectorisable(s) ? cp_multi_model_code_of(s, CP_MAX_MODELS)->models : 1;
    return models >= CP_MIN_MODELS ? models : 1;
}

/* Return whether two such models differ only in rates, penalty, averages and weights. */
static inline int cp_sgd_same_state(const cp_sgd *a, const cp_sgd *b)
{
    const size_t sizes = a->rule == CP_NORMALIZED ? (size_t)(a->padded * a->bytes) : 0;
    return a->loss == b->loss && a->bytes == b->bytes && a->features == b->features && a->intercept == b->intercept
           && a->isa == b->isa && a->rule == b->rule && a->ruled == b->ruled && a->rooted == b->rooted
           && memcmp(CP_AT(a, const char, classes), CP_AT(b, const char, classes), 2 * sizeof(double)) == 0
           && a->seen == b->seen && a->norm == b->norm
           && memcmp(CP_AT(a, const char, inv), CP_AT(b, const char, inv), sizes) == 0;
}

/* Read the labels of a chunk for each model: [row][CP_MAX_MODELS]. The sets must be in range. */
static inline void cp_labels_per_model(const cp_sgd *s, int count, const cp_rows *r, int64_t from, cp_chunk *c,
                                       void *each)
{
    const int64_t end = (r->sets - 1) * r->labels + count; /* bytes that can be read at least */
    uint8_t present[CP_CHUNK_ROWS * CP_MAX_MODELS] = {0};
    double number[CP_CHUNK_ROWS], code[2] = {0, 1};
    int status = CP_SGD_OK;
    if (cp_encode_labels(s, code, 2, &status) < 2) {
        c->n = 0;
        c->status = status;
        return;
    }
    cp_read_labels(r->y, r->y_type, r->visit + from, c->n, number);
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t at = (int64_t)number[i] * r->labels;
        if (at + CP_MAX_MODELS <= end)
            memcpy(present + i * CP_MAX_MODELS, r->set + at, CP_MAX_MODELS);
        else
            memcpy(present + i * CP_MAX_MODELS, r->set + at, (size_t)count);
    }
    /* All at a time and without branches; codes are -1, 0 and 1, so nothing is rounded. */
    const float low = (float)code[0], more = (float)(code[1] - code[0]);
    for (int64_t k = 0; s->bytes == 4 && k < c->n * CP_MAX_MODELS; k++)
        ((float *)each)[k] = low + more * (float)(present[k] != 0);
    for (int64_t k = 0; s->bytes == 8 && k < c->n * CP_MAX_MODELS; k++)
        ((double *)each)[k] = code[0] + (code[1] - code[0]) * (double)(present[k] != 0);
}

/* Train models at once on the rows from visit[1] on, as long as no error occurs. The models must have learnt the first
 * row, so that they hold back the same update. Returns the number of rows learnt, which their row totals do not
 * include. With sets of labels, each model has the label after that of the previous model. */
static inline int64_t cp_sgd_learn_at_once(cp_sgd *const *s, int count, const cp_rows *rows)
{
    const cp_multi_model_code *code = cp_multi_model_code_of(s[0], count);
    double each[CP_CHUNK_ROWS * CP_MAX_MODELS];
    _Alignas(CP_LINE) char memory[CP_SCRATCH_BYTES];
    cp_rows r = *rows;
    cp_chunk c;
    int64_t done = 1;
    cp_guard_tail(s[0], &r);
    cp_begin_weights(s[0], &r, &c);
    c.each = r.set ? each : NULL;
    c.before = cp_dense_row(s[0], &r, r.visit[0]);
    code->assemble(s, count, memory);
    while (done < r.m) {
        cp_prepare(s[0], &r, done, CP_CHUNK_ROWS, &c);
        if (r.set)
            cp_labels_per_model(s[0], count, &r, done, &c, each);
        const int64_t learnt = code->learn(s, memory, &c);
        done += learnt;
        if (learnt < c.n || c.status)
            break;
    }
    code->store(s, memory, &c);
    return done;
}

/* Train each of several models on the same rows, as cp_sgd_learn does, with the status and the number of rows learnt of
 * each. Compatible models should be adjacent. With sets of labels, model k has label k. */
static inline void cp_sgd_learn_all(cp_sgd *const *s, int64_t count, const cp_rows *rows, int *status, int64_t *done)
{
    const int fit = rows->m > 1 && !rows->weight && cp_slots_fit(rows->visit, rows->m, rows->slots);
    for (int64_t from = 0, to; from < count; from = to) {
        int ok = fit && cp_sgd_vectorisable(s[from]);
        const int64_t most = cp_sgd_at_once(s[from]);
        for (to = from + 1;
             ok && to < count && to - from < most && cp_sgd_vectorisable(s[to]) && cp_sgd_same_state(s[from], s[to]);)
            to++;
        ok &= to - from >= CP_MIN_MODELS;
        for (int64_t k = from; k < to; k++) {
            cp_rows first = *rows;
            first.m = fit;
            first.set = rows->set ? rows->set + k : NULL;
            status[k] = CP_SGD_OK;
            done[k] = 0;
            if (ok)
                status[k] = cp_sgd_learn(s[k], &first, &done[k]);
        }
        for (int64_t k = from; k < to; k++)
            ok &= status[k] == CP_SGD_OK;
        cp_rows group_rows = *rows;
        group_rows.set = rows->set ? rows->set + from : NULL;
        const int64_t learnt_at_once = ok ? cp_sgd_learn_at_once(s + from, (int)(to - from), &group_rows) : 0;
        for (int64_t k = from; k < to; k++) {
            cp_rows remaining = *rows;
            int64_t more = 0;
            s[k]->totals.rows += ok ? learnt_at_once - 1 : 0;
            done[k] = ok ? learnt_at_once : done[k];
            remaining.visit += done[k];
            remaining.m -= done[k];
            remaining.set = rows->set ? rows->set + k : NULL;
            if (!status[k] && remaining.m > 0) {
                status[k] = cp_sgd_learn(s[k], &remaining, &more);
                done[k] += more;
            }
        }
    }
}
