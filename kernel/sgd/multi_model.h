/* Several models that visit the same rows: those that can do so at once (sgd/simd_models.h), all others one after another. Each
 * gets the bits that it gets alone. */
#ifndef CP_SGD_COMPANY_H
#define CP_SGD_COMPANY_H

#include "sgd/sgd.h"

/* Return the code for so many models at once: of vectors as narrow as hold them. */
static inline const cp_sgd_company *cp_sgd_company_of(const cp_sgd *s, int64_t count)
{
#ifdef CP_CLONES
    if (s->isa == 2 && count * s->bytes > 32)
        return s->bytes == 4 ? &cp_together_code_f32_avx512 : &cp_together_code_f64_avx512;
    if (s->isa >= 1)
        return s->bytes == 4 ? &cp_together_code_f32_avx2 : &cp_together_code_f64_avx2;
#endif
    (void)count;
    return s->bytes == 4 ? &cp_together_code_f32_base : &cp_together_code_f64_base;
}

/* Return whether a model can visit rows at once with others that are like it. */
static inline int cp_sgd_sociable(const cp_sgd *s)
{
    const int plain = !s->ruled && !s->bounded, ruled = s->ruled && s->rule != CP_MOMENTS && !(s->max_norm > 0);
    int copied = 0;
#define CP_COPY(id) copied |= s->loss == CP_##id;
    CP_COPIES(CP_COPY)
#undef CP_COPY
    return copied && (plain || ruled) && !s->sparse && !s->batched && !s->weighs && s->padded * s->bytes <= CP_NARROW * CP_LINE;
}

/* Return how many models that are like one visit rows at once; 1 where each does by itself. */
static inline int64_t cp_sgd_at_once(const cp_sgd *s)
{
    return cp_sgd_sociable(s) ? cp_sgd_company_of(s, CP_TOGETHER)->models : 1;
}

/* Return whether two such models differ in nothing but rates, penalty, means, weights and the rows that they have seen. */
static inline int cp_sgd_kin(const cp_sgd *a, const cp_sgd *b)
{
    return a->loss == b->loss && a->bytes == b->bytes && a->features == b->features && a->intercept == b->intercept && a->isa == b->isa
           && a->rule == b->rule && a->ruled == b->ruled && a->rooted == b->rooted
           && memcmp(CP_AT(a, const char, classes), CP_AT(b, const char, classes), 2 * sizeof(double)) == 0;
}

/* Return whether besides what such models know of the rows so far is the same. */
static inline int cp_sgd_alike(const cp_sgd *a, const cp_sgd *b)
{
    const size_t sizes = a->rule == CP_NORMALIZED ? (size_t)(a->padded * a->bytes) : 0;
    return cp_sgd_kin(a, b) && a->seen == b->seen && a->norm == b->norm
           && memcmp(CP_AT(a, const char, inv), CP_AT(b, const char, inv), sizes) == 0;
}

/* Take the labels of a chunk as each of some models has them: [row][CP_TOGETHER]. The sets are known to be there. */
static inline void cp_labels_of_each(const cp_sgd *s, int count, const cp_rows *r, int64_t from, cp_chunk *c, void *each)
{
    const int64_t end = (r->sets - 1) * r->labels + count; /* bytes that are there at least */
    uint8_t there[CP_CHUNK * CP_TOGETHER] = {0};
    double number[CP_CHUNK], code[2] = {0, 1};
    int status = CP_SGD_OK;
    if (cp_encode_labels(s, code, 2, &status) < 2) {
        c->n = 0;
        c->status = status;
        return;
    }
    cp_read_labels(r->y, r->y_type, r->visit + from, c->n, number);
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t at = (int64_t)number[i] * r->labels;
        if (at + CP_TOGETHER <= end)
            memcpy(there + i * CP_TOGETHER, r->set + at, CP_TOGETHER);
        else
            memcpy(there + i * CP_TOGETHER, r->set + at, (size_t)count);
    }
    /* All at a time and without branches; codes are -1, 0 and 1, so that nothing is rounded. */
    const float low = (float)code[0], more = (float)(code[1] - code[0]);
    for (int64_t k = 0; s->bytes == 4 && k < c->n * CP_TOGETHER; k++)
        ((float *)each)[k] = low + more * (float)(there[k] != 0);
    for (int64_t k = 0; s->bytes == 8 && k < c->n * CP_TOGETHER; k++)
        ((double *)each)[k] = code[0] + (code[1] - code[0]) * (double)(there[k] != 0);
}

/* Which models visit rows at once but those of their own parts, numbered from 0 on: of each model; of each row; and how many
 * there are, which is the number of rows of none of them. */
typedef struct {
    const uint8_t *theirs, *of;
    int count;
} cp_apart;

/* Let some models visit rows from visit[1] on at once, as far as all is well: those who visit the first are behind it, so that
 * they hold back the same one, and so do the others. Returns how many rows are then behind them; what they count of rows does not
 * have these. Where rows have sets of labels, a model has the label after that of the model before. `apart`: NULL where all
 * visit all rows. */
static inline int64_t cp_sgd_in_step(cp_sgd *const *s, int count, const cp_rows *rows, const cp_apart *apart)
{
    const cp_sgd_company *code = cp_sgd_company_of(s[0], count);
    double each[CP_CHUNK * CP_TOGETHER];
    _Alignas(CP_LINE) char room[CP_COMPANY];
    cp_rows r = *rows;
    cp_chunk c;
    int64_t done = 1;
    cp_guard_tail(s[0], &r);
    cp_begin_weights(s[0], &r, &c);
    c.each = r.set ? each : NULL;
    c.part = NULL;
    c.before = c.older = cp_dense_row(s[0], &r, r.visit[0]);
    c.left_out = apart ? apart->of[0] : 0;
    for (int k = count - 1; apart && k >= 0; k--)
        if (apart->theirs[k] == c.left_out)
            c.older = CP_AT(s[k], const char, prev);
    code->assemble(s, count, apart ? apart->theirs : NULL, room);
    while (done < r.m) {
        cp_prepare(s[0], &r, done, CP_CHUNK, &c);
        c.part = apart ? apart->of + done : NULL;
        if (r.set)
            cp_labels_of_each(s[0], count, &r, done, &c, each);
        const int64_t learnt = code->learn(s, room, &c);
        done += learnt;
        if (learnt < c.n || c.status)
            break;
    }
    code->part(s, room, &c);
    return done;
}

/* Let each of several models learn from the same rows, as cp_sgd_learn does: status and rows learnt are those of each. Those that
 * are alike should stand side by side. Of sets of labels each model has the label of its number. */
static inline void cp_sgd_learn_all(cp_sgd *const *s, int64_t count, const cp_rows *rows, int *status, int64_t *done)
{
    const int fit = rows->m > 1 && !rows->weight && cp_slots_fit(rows->visit, rows->m, rows->slots);
    for (int64_t from = 0, to; from < count; from = to) {
        int well = fit && cp_sgd_sociable(s[from]);
        const int64_t most = cp_sgd_at_once(s[from]);
        for (to = from + 1; well && to < count && to - from < most && cp_sgd_sociable(s[to]) && cp_sgd_alike(s[from], s[to]);)
            to++;
        well &= to - from > 1;
        for (int64_t k = from; k < to; k++) {
            cp_rows first = *rows;
            first.m = fit;
            first.set = rows->set ? rows->set + k : NULL;
            status[k] = CP_SGD_OK;
            done[k] = 0;
            if (well)
                status[k] = cp_sgd_learn(s[k], &first, &done[k]);
        }
        for (int64_t k = from; k < to; k++)
            well &= status[k] == CP_SGD_OK;
        cp_rows theirs = *rows;
        theirs.set = rows->set ? rows->set + from : NULL;
        const int64_t behind = well ? cp_sgd_in_step(s + from, (int)(to - from), &theirs, NULL) : 0;
        for (int64_t k = from; k < to; k++) {
            cp_rows rest = *rows;
            int64_t more = 0;
            s[k]->totals.rows += well ? behind - 1 : 0;
            done[k] = well ? behind : done[k];
            rest.visit += done[k];
            rest.m -= done[k];
            rest.set = rows->set ? rows->set + k : NULL;
            if (!status[k] && rest.m > 0) {
                status[k] = cp_sgd_learn(s[k], &rest, &more);
                done[k] += more;
            }
        }
    }
}

#endif
