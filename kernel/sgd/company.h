/* Several models that visit the same rows: those that can do so at once (sgd/together.h), all others one after another. Each
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
    const int plain = !s->ruled && !s->bounded, rooted = s->rooted && s->rule != CP_MOMENTS;
    int copied = 0;
#define CP_COPY(id) copied |= s->loss == CP_##id;
    CP_COPIES(CP_COPY)
#undef CP_COPY
    return copied && (plain || rooted) && !s->sparse && !s->batched && !s->weighs && s->padded * s->bytes <= CP_NARROW * CP_LINE;
}

/* Return whether two such models differ in nothing but rates, penalty, means and weights: what they know of the rows so far is
 * the same. */
static inline int cp_sgd_alike(const cp_sgd *a, const cp_sgd *b)
{
    const size_t sizes = a->rule == CP_NORMALIZED ? (size_t)(a->padded * a->bytes) : 0;
    return a->loss == b->loss && a->bytes == b->bytes && a->features == b->features && a->intercept == b->intercept && a->isa == b->isa
           && a->rule == b->rule && a->seen == b->seen && a->norm == b->norm
           && memcmp(CP_AT(a, const char, inv), CP_AT(b, const char, inv), sizes) == 0
           && memcmp(CP_AT(a, const char, classes), CP_AT(b, const char, classes), 2 * sizeof(double)) == 0;
}

/* Take the labels of a chunk as each of some models has them: [row][CP_TOGETHER]. The sets are known to be there. */
static inline void cp_labels_of_each(const cp_sgd *s, int count, const cp_rows *r, int64_t from, cp_chunk *c, void *each)
{
    double number[CP_CHUNK], code[2] = {0, 1};
    int status = CP_SGD_OK;
    if (cp_encode_labels(s, code, 2, &status) < 2) {
        c->n = 0;
        c->status = status;
        return;
    }
    cp_read_labels(r->y, r->y_type, r->visit + from, c->n, number);
    for (int64_t i = 0; i < c->n; i++) {
        const uint8_t *set = r->set + (int64_t)number[i] * r->labels;
        for (int k = 0; s->bytes == 4 && k < count; k++)
            ((float *)each)[i * CP_TOGETHER + k] = set[k] ? (float)code[1] : (float)code[0];
        for (int k = 0; s->bytes == 8 && k < count; k++)
            ((double *)each)[i * CP_TOGETHER + k] = set[k] ? code[1] : code[0];
    }
}

/* Let some models visit rows from visit[1] on at once, as far as all is well: the first is behind them, so that all hold back
 * the same one. Returns how many rows are then behind them. Where rows have sets
 * of labels, a model has the label after that of the model before. */
static inline int64_t cp_sgd_in_step(cp_sgd *const *s, int count, const cp_rows *rows)
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
    memset(each, 0, r.set ? sizeof each : 0);
    code->assemble(s, count, room);
    while (done < r.m) {
        cp_prepare(s[0], &r, done, &c);
        c.before = cp_dense_row(s[0], &r, r.visit[done - 1]);
        if (r.set)
            cp_labels_of_each(s[0], count, &r, done, &c, each);
        const int64_t whole = c.n;
        int looks = 0;
        for (int k = 1; k < count; k++)
            if (s[k]->averaged && c.n > s[k]->every - s[k]->since)
                c.n = s[k]->every - s[k]->since;
        const int64_t learnt = code->learn(s, count, room, &c);
        done += learnt;
        for (int k = 0; k < count; k++)
            looks |= s[k]->averaged && (s[k]->since += learnt) == s[k]->every;
        if (looks)
            code->show(s, count, room);
        for (int k = 0; k < count; k++)
            if (s[k]->averaged && s[k]->since == s[k]->every)
                cp_sgd_code_of(s[k])->look_at(s[k]);
        if (learnt < c.n || (c.n == whole && c.status))
            break;
    }
    code->part(s, count, room);
    return done;
}

/* Let each of several models learn from the same rows, as cp_sgd_learn does: status and rows learnt are those of each. Those that
 * are alike should stand side by side. Of sets of labels each model has the label of its number. */
static inline void cp_sgd_learn_all(cp_sgd *const *s, int64_t count, const cp_rows *rows, int *status, int64_t *done)
{
    const int fit = rows->m > 1 && !rows->weight && cp_slots_fit(rows->visit, rows->m, rows->slots);
    for (int64_t from = 0, to; from < count; from = to) {
        int well = fit && cp_sgd_sociable(s[from]);
        const int64_t most = cp_sgd_company_of(s[from], CP_TOGETHER)->models;
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
        const int64_t behind = well ? cp_sgd_in_step(s + from, (int)(to - from), &theirs) : 0;
        for (int64_t k = from; k < to; k++) {
            cp_rows rest = *rows;
            int64_t more = 0;
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

/* Which of the visits are of which part, and which parts the models see: theirs alone, or all others. */
typedef struct {
    const uint8_t *of, *theirs;   /* by visit; by model */
    int own;
    int64_t each;                 /* visits that all models make before the next ones come: they stay in a core's cache */
    int32_t *visit;               /* room for so many */
    cp_sgd **left;                /* room for the models */
    int *status;                  /* room for two numbers a model, as of `done` */
    int64_t *done;
} cp_parts;

/* Let each model learn from the visits that are its own, as cp_sgd_learn does; those of a part should stand side by side. Sets
 * p->status of each, and p->done to how many of its visits it has made. */
static inline void cp_sgd_learn_parts(cp_sgd *const *s, int64_t count, const cp_rows *rows, const cp_parts *p)
{
    cp_rows some = *rows;
    int *found = p->status + count;
    int64_t *more = p->done + count;
    some.visit = p->visit;
    memset(p->status, 0, (size_t)count * sizeof *p->status);
    memset(p->done, 0, (size_t)count * sizeof *p->done);
    for (int64_t start = 0; start < rows->m; start += p->each) {
        const int64_t stop = rows->m - start < p->each ? rows->m : start + p->each;
        for (int64_t from = 0, to; from < count; from = to) {
            int64_t n = 0;
            some.m = 0;
            for (int64_t i = start; i < stop; i++) {
                p->visit[some.m] = rows->visit[i];
                some.m += (p->of[i] == p->theirs[from]) == p->own;
            }
            for (to = from; to < count && p->theirs[to] == p->theirs[from]; to++)
                if (!p->status[to])
                    p->left[n++] = s[to];
            if (some.m > 0)
                cp_sgd_learn_all(p->left, n, &some, found, more);
            n = 0;
            for (int64_t k = from; some.m > 0 && k < to; k++)
                if (!p->status[k]) {
                    p->done[k] += more[n];
                    p->status[k] = found[n++];
                }
        }
    }
}

#endif
