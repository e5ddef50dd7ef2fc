/* Trains several models on the same rows except those of a fold: its own (cross-validation), or all others. Models that
 * visit the same rows do so at once (sgd/multi_model.h). If that leaves most lanes empty, models of several folds share
 * vectors, and each row skips some of them. */
#pragma once

#include "sgd/multi_model.h"

/* Fold of each visit and model, and which visits a model makes: those of its fold alone, or all others. */
typedef struct {
    const uint8_t *of, *model_fold;   /* by visit; by model */
    int own;
    int64_t each;                 /* visits that all models make before the next ones, so that the rows stay in a core's
                                   * cache */
    int32_t *visit;               /* space for this many visits */
    uint8_t *number;              /* space for a fold number per visit */
    cp_sgd **left;                /* space for the models */
    int64_t *group;                 /* space for a number per model: the first of the models with which it shares lanes,
                                   * or -1 */
    int *status;                  /* space for two numbers per model; so has `done` */
    int64_t *done;
} cp_parts;

enum { CP_MAX_FOLDS = 256 };

/* Measured cost of a visit of one model, and of lanes shared by several folds, relative to lanes of one fold. */
#define CP_COST_ALONE 0.35
#define CP_COST_SHARED 1.35

/* Set in p->group which models can share lanes: each gets the number of the first one. */
static inline void cp_sgd_group_models(cp_sgd *const *s, int64_t count, const cp_parts *p)
{
    for (int64_t k = 0; k < count; k++) {
        p->group[k] = p->own || !cp_sgd_vectorisable(s[k]) ? -1 : k;
        for (int64_t i = 0; i < k && p->group[k] == k; i++) {
            int alike = p->group[i] == i && cp_sgd_same_shape(s[i], s[k]);
            for (int64_t j = i; alike && j < k; j++)
                alike = p->group[j] != i || p->model_fold[j] != p->model_fold[k] || cp_sgd_same_state(s[j], s[k]);
            p->group[k] = alike ? i : k;
        }
    }
}

/* Return the cost of visits fold by fold, for this many models each; `rows` counts the rows per fold, out of m. */
static inline double cp_sgd_cost_by_part(const int64_t *models, const int64_t *rows, int64_t m, int64_t most)
{
    double cost = 0;
    for (int part = 0; part < CP_MAX_FOLDS; part++) {
        const int64_t n = models[part];
        cost += (double)(m - rows[part]) * ((double)(n / most) + (n % most > 1 ? 1 : n % most ? CP_COST_ALONE : 0));
    }
    return cost;
}

/* Keep in p->group only models that are faster with shared lanes. */
static inline void cp_sgd_share_lanes(cp_sgd *const *s, int64_t count, int64_t m, const cp_parts *p)
{
    int64_t rows[CP_MAX_FOLDS] = {0};
    cp_sgd_group_models(s, count, p);
    for (int64_t i = 0; i < m; i++)
        rows[p->of[i]]++;
    for (int64_t first = 0; first < count; first++) {
        const int64_t most = cp_sgd_at_once(s[first]);
        int64_t models[CP_MAX_FOLDS] = {0}, n = 0;
        for (int64_t k = first; p->group[first] == first && k < count; k++)
            if (p->group[k] == first) {
                models[p->model_fold[k]]++;
                n++;
            }
        const double shared = CP_COST_SHARED * (double)((n + most - 1) / most) * (double)m;
        const int worse = models[p->model_fold[first]] == n || cp_sgd_cost_by_part(models, rows, m, most) <= shared;
        for (int64_t k = count - 1; n > 0 && worse && k >= first; k--)
            p->group[k] = p->group[k] == first ? -1 : p->group[k];
    }
}

/* Remove from p->group groups whose models of a fold are not adjacent. */
static inline void cp_sgd_drop_scattered(int64_t count, const cp_parts *p)
{
    for (int64_t first = 0; first < count; first++) {
        uint8_t seen_fold[CP_MAX_FOLDS] = {0};
        int scattered = 0;
        for (int64_t k = first, last = first; p->group[first] == first && k < count; k++)
            if (p->group[k] == first) {
                scattered |= p->model_fold[k] != p->model_fold[last] && seen_fold[p->model_fold[k]];
                seen_fold[p->model_fold[last = k]] = 1;
            }
        for (int64_t k = count - 1; scattered && k >= first; k--)
            p->group[k] = p->group[k] == first ? -1 : p->group[k];
    }
}

/* Number the teams of models that share lanes across folds. Returns the number of teams. */
static inline int64_t cp_sgd_shared_teams(cp_sgd *const *s, int64_t count, const cp_parts *p, int64_t *team)
{
    int64_t teams = 0;
    for (int64_t first = 0; first < count; first++) {
        const int64_t most = cp_sgd_at_once(s[first]);
        int64_t n = 0;
        for (int part = 0; p->group[first] == first && part < CP_MAX_FOLDS; part++)
            for (int64_t k = first; k < count; k++)
                if (p->group[k] == first && p->model_fold[k] == part)
                    team[k] = teams + n++ / most;
        teams += (n + most - 1) / most;
    }
    return teams;
}

/* Give models that should visit rows at once the same number, in `team`. cp_sgd_learn_parts runs them at once if they
 * are adjacent, and among them those of a fold. */
static inline void cp_sgd_teams(cp_sgd *const *s, int64_t count, int64_t m, const cp_parts *p, int64_t *team)
{
    cp_sgd_share_lanes(s, count, m, p);
    int64_t teams = cp_sgd_shared_teams(s, count, p, team);
    for (int part = 0; part < CP_MAX_FOLDS; part++)
        for (int64_t first = 0; first < count; first++) {
            const int64_t most = cp_sgd_at_once(s[first]);
            int64_t n = 0;
            if (p->group[first] != -1 || p->model_fold[first] != part)
                continue;
            for (int64_t k = first; k < count && n < most; k++)
                if (p->group[k] == -1 && p->model_fold[k] == part
                    && (k == first || (most > 1 && cp_sgd_vectorisable(s[k]) && cp_sgd_same_state(s[first], s[k])))) {
                    p->group[k] = -2; /* already in a team */
                    team[k] = teams;
                    n++;
                }
            teams++;
        }
}

/* Train models of several folds at once on some rows, as long as no error occurs. Returns how many rows are then learnt
 * by the models that visit them. Sets `status` and `done` of each. */
static inline int64_t cp_sgd_learn_at_once_folds(cp_sgd *const *s, int count, const cp_rows *rows,
                                                 const cp_model_folds *folds, int *status, int64_t *done)
{
    int ok = rows->m > 1 && !rows->weight && cp_slots_fit(rows->visit, rows->m, rows->slots), left_out = -1;
    cp_rows first = *rows;
    first.m = rows->m > 0;
    for (int k = 0; k < count; k++) {
        status[k] = CP_SGD_OK;
        done[k] = 0;
        if (folds->model_fold[k] != folds->of[0]) {
            status[k] = cp_sgd_learn(s[k], &first, &done[k]);
            continue;
        }
        left_out = left_out < 0 ? k : left_out; /* the models that skip the first row must hold back the same update */
        ok &= memcmp(CP_AT(s[k], const char, prev), CP_AT(s[left_out], const char, prev),
                     (size_t)(s[k]->features * s[k]->bytes))
                  == 0
              || s[k]->ruled;
    }
    for (int k = 0; k < count; k++)
        ok &= status[k] == CP_SGD_OK;
    return ok ? cp_sgd_learn_at_once(s, count, rows, folds) : first.m;
}

/* Copy the visits from `from` on that are of a fold, or of all others, to p->visit. Returns rows of these. */
static inline cp_rows cp_sgd_visits_of(const cp_rows *rows, int64_t from, const uint8_t *of, uint8_t part, int own,
                                       const cp_parts *p)
{
    cp_rows some = *rows;
    some.visit = p->visit;
    some.m = 0;
    for (int64_t i = from; i < rows->m; i++) {
        p->visit[some.m] = rows->visit[i];
        some.m += (of[i] == part) == own;
    }
    return some;
}

/* Number the folds of some models: of rows in p->number, of models in `mine`. Returns the number of folds. */
static inline int cp_sgd_number_parts(const cp_rows *rows, int count, const uint8_t *of, const uint8_t *model_fold,
                                      const cp_parts *p, uint8_t *mine)
{
    uint8_t number[CP_MAX_FOLDS];
    int parts = 0;
    for (int k = 0; k < count; k++)
        mine[k] = (uint8_t)(parts += k > 0 && model_fold[k] != model_fold[k - 1]);
    memset(number, ++parts, sizeof number);
    for (int k = 0; k < count; k++)
        number[model_fold[k]] = mine[k];
    for (int64_t i = 0; i < rows->m; i++)
        p->number[i] = number[of[i]];
    return parts;
}

/* Train models of several folds that share lanes on some rows; there are at most as many as visit a row at once. */
static inline void cp_sgd_learn_shared(cp_sgd *const *s, int count, const cp_rows *rows, const uint8_t *of,
                                       const uint8_t *model_fold, const cp_parts *p, int *status, int64_t *done)
{
    uint8_t mine[CP_MAX_MODELS];
    const cp_model_folds folds = {mine, p->number, cp_sgd_number_parts(rows, count, of, model_fold, p, mine)};
    if (folds.count == 1) { /* rows that no model visits must not be read: no model would reject their values */
        const cp_rows some = cp_sgd_visits_of(rows, 0, of, model_fold[0], 0, p);
        cp_sgd_learn_all(s, count, &some, status, done);
        return;
    }
    const int64_t learnt_at_once = cp_sgd_learn_at_once_folds(s, count, rows, &folds, status, done);
    for (int k = 0; k < count; k++) {
        int64_t visited = 0, more = 0;
        if (status[k])
            continue;
        for (int64_t i = 0; i < learnt_at_once; i++)
            visited += of[i] != model_fold[k];
        s[k]->totals.rows += visited - done[k];
        done[k] = visited;
        const cp_rows remaining = cp_sgd_visits_of(rows, learnt_at_once, of, model_fold[k], 0, p);
        if (remaining.m > 0)
            status[k] = cp_sgd_learn(s[k], &remaining, &more);
        done[k] += more;
    }
}

/* Store the result of a trained model. */
static inline void cp_sgd_store_result(const cp_parts *p, int64_t count, int64_t k, int64_t *n)
{
    const int result = p->status[count + *n];
    p->done[k] += p->done[count + *n];
    p->status[k] = result;
    ++*n;
}

/* Train a group of lane-sharing models on some rows, as many at once as possible. */
static inline void cp_sgd_learn_group(cp_sgd *const *s, int64_t count, const cp_rows *rows, const uint8_t *of,
                                      int64_t group, const cp_parts *p)
{
    const int64_t most = cp_sgd_at_once(s[group]);
    uint8_t model_fold[CP_MAX_MODELS];
    for (int64_t from = group, to; from < count; from = to) {
        int64_t n = 0, result = 0;
        for (to = from; to < count && n < most; to++)
            if (p->group[to] == group && !p->status[to]) {
                model_fold[n] = p->model_fold[to];
                p->left[n++] = s[to];
            }
        if (n > 0)
            cp_sgd_learn_shared(p->left, (int)n, rows, of, model_fold, p, p->status + count, p->done + count);
        for (int64_t k = from; result < n; k++)
            if (p->group[k] == group && !p->status[k])
                cp_sgd_store_result(p, count, k, &result);
    }
}

/* Train the other models of a fold, from..to, on some rows. */
static inline void cp_sgd_learn_part(cp_sgd *const *s, int64_t count, const cp_rows *rows, const uint8_t *of,
                                     int64_t from, int64_t to, const cp_parts *p)
{
    int64_t n = 0, result = 0;
    for (int64_t k = from; k < to; k++)
        if (p->group[k] < 0 && !p->status[k])
            p->left[n++] = s[k];
    if (n == 0)
        return;
    const cp_rows some = cp_sgd_visits_of(rows, 0, of, p->model_fold[from], p->own, p);
    if (some.m == 0)
        return;
    cp_sgd_learn_all(p->left, n, &some, p->status + count, p->done + count);
    for (int64_t k = from; k < to; k++)
        if (p->group[k] < 0 && !p->status[k])
            cp_sgd_store_result(p, count, k, &result);
}

/* Train each model on its own visits, as cp_sgd_learn does; models of a fold should be adjacent. Sets p->status of
 * each, and p->done to the number of visits made. */
static inline void cp_sgd_learn_parts(cp_sgd *const *s, int64_t count, const cp_rows *rows, const cp_parts *p)
{
    memset(p->status, 0, (size_t)count * sizeof *p->status);
    memset(p->done, 0, (size_t)count * sizeof *p->done);
    cp_sgd_share_lanes(s, count, rows->m, p);
    cp_sgd_drop_scattered(count, p);
    for (int64_t start = 0; start < rows->m; start += p->each) {
        cp_rows some = *rows;
        some.visit = rows->visit + start;
        some.m = rows->m - start < p->each ? rows->m - start : p->each;
        for (int64_t k = 0; k < count; k++)
            if (p->group[k] == k)
                cp_sgd_learn_group(s, count, &some, p->of + start, k, p);
        for (int64_t from = 0, to; from < count; from = to) {
            for (to = from; to < count && p->model_fold[to] == p->model_fold[from];)
                to++;
            cp_sgd_learn_part(s, count, &some, p->of + start, from, to, p);
        }
    }
}
