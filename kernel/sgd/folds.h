/* Several models that learn from the same rows but for those of a part: its own, as of folds, or all others. Those who visit the
 * same rows do so at once (sgd/multi_model.h); where that would leave most lanes of vectors empty, models of several parts share them,
 * and each row leaves some out. */
#ifndef CP_SGD_PARTS_H
#define CP_SGD_PARTS_H

#include "sgd/multi_model.h"

/* Which of the visits are of which part, and which parts the models see: theirs alone, or all others. */
typedef struct {
    const uint8_t *of, *theirs;   /* by visit; by model */
    int own;
    int64_t each;                 /* visits that all models make before the next ones come: they stay in a core's cache */
    int32_t *visit;               /* room for so many */
    uint8_t *number;              /* room for so many parts of a company */
    cp_sgd **left;                /* room for the models */
    int64_t *kin;                 /* room for a number a model: the first of those with whom it shares lanes, or -1: nobody */
    int *status;                  /* room for two numbers a model, as of `done` */
    int64_t *done;
} cp_parts;

enum { CP_MOST_PARTS = 256 };

/* What a visit takes of one model, and of lanes whose models are of several parts, beside that of lanes of one part, as measured. */
#define CP_ALONE 0.35
#define CP_APART 1.35

/* Say which models are kin, in p->kin: the first of them has the number of the first. */
static inline void cp_sgd_find_kin(cp_sgd *const *s, int64_t count, const cp_parts *p)
{
    for (int64_t k = 0; k < count; k++) {
        p->kin[k] = p->own || !cp_sgd_sociable(s[k]) ? -1 : k;
        for (int64_t i = 0; i < k && p->kin[k] == k; i++) {
            int alike = p->kin[i] == i && cp_sgd_kin(s[i], s[k]);
            for (int64_t j = i; alike && j < k; j++)
                alike = p->kin[j] != i || p->theirs[j] != p->theirs[k] || cp_sgd_alike(s[j], s[k]);
            p->kin[k] = alike ? i : k;
        }
    }
}

/* Return what the visits of kin take part by part, of so many models each; `rows` are those of a part, of m. */
static inline double cp_sgd_cost_by_part(const int64_t *models, const int64_t *rows, int64_t m, int64_t most)
{
    double cost = 0;
    for (int part = 0; part < CP_MOST_PARTS; part++) {
        const int64_t n = models[part];
        cost += (double)(m - rows[part]) * ((double)(n / most) + (n % most > 1 ? 1 : n % most ? CP_ALONE : 0));
    }
    return cost;
}

/* Leave as kin only those who are better off with their lanes shared. */
static inline void cp_sgd_share_lanes(cp_sgd *const *s, int64_t count, int64_t m, const cp_parts *p)
{
    int64_t rows[CP_MOST_PARTS] = {0};
    cp_sgd_find_kin(s, count, p);
    for (int64_t i = 0; i < m; i++)
        rows[p->of[i]]++;
    for (int64_t first = 0; first < count; first++) {
        const int64_t most = cp_sgd_at_once(s[first]);
        int64_t models[CP_MOST_PARTS] = {0}, n = 0;
        for (int64_t k = first; p->kin[first] == first && k < count; k++)
            if (p->kin[k] == first) {
                models[p->theirs[k]]++;
                n++;
            }
        const double shared = CP_APART * (double)((n + most - 1) / most) * (double)m;
        const int worse = models[p->theirs[first]] == n || cp_sgd_cost_by_part(models, rows, m, most) <= shared;
        for (int64_t k = count - 1; n > 0 && worse && k >= first; k--)
            p->kin[k] = p->kin[k] == first ? -1 : p->kin[k];
    }
}

/* Let go of kin of whom those of a part do not stand side by side. */
static inline void cp_sgd_leave_scattered(int64_t count, const cp_parts *p)
{
    for (int64_t first = 0; first < count; first++) {
        uint8_t met[CP_MOST_PARTS] = {0};
        int scattered = 0;
        for (int64_t k = first, last = first; p->kin[first] == first && k < count; k++)
            if (p->kin[k] == first) {
                scattered |= p->theirs[k] != p->theirs[last] && met[p->theirs[k]];
                met[p->theirs[last = k]] = 1;
            }
        for (int64_t k = count - 1; scattered && k >= first; k--)
            p->kin[k] = p->kin[k] == first ? -1 : p->kin[k];
    }
}

/* Number the teams of models that share their lanes with those of other parts. Returns how many there are. */
static inline int64_t cp_sgd_teams_of_kin(cp_sgd *const *s, int64_t count, const cp_parts *p, int64_t *team)
{
    int64_t teams = 0;
    for (int64_t first = 0; first < count; first++) {
        const int64_t most = cp_sgd_at_once(s[first]);
        int64_t n = 0;
        for (int part = 0; p->kin[first] == first && part < CP_MOST_PARTS; part++)
            for (int64_t k = first; k < count; k++)
                if (p->kin[k] == first && p->theirs[k] == part)
                    team[k] = teams + n++ / most;
        teams += (n + most - 1) / most;
    }
    return teams;
}

/* Give those who best visit rows at once the same number, in `team`; cp_sgd_learn_parts lets them where they stand side by side, and
 * among them those of a part. */
static inline void cp_sgd_teams(cp_sgd *const *s, int64_t count, int64_t m, const cp_parts *p, int64_t *team)
{
    cp_sgd_share_lanes(s, count, m, p);
    int64_t teams = cp_sgd_teams_of_kin(s, count, p, team);
    for (int part = 0; part < CP_MOST_PARTS; part++)
        for (int64_t first = 0; first < count; first++) {
            const int64_t most = cp_sgd_at_once(s[first]);
            int64_t n = 0;
            if (p->kin[first] != -1 || p->theirs[first] != part)
                continue;
            for (int64_t k = first; k < count && n < most; k++)
                if (p->kin[k] == -1 && p->theirs[k] == part
                    && (k == first || (most > 1 && cp_sgd_sociable(s[k]) && cp_sgd_alike(s[first], s[k])))) {
                    p->kin[k] = -2; /* has a number */
                    team[k] = teams;
                    n++;
                }
            teams++;
        }
}

/* Let models of several parts who are kin visit some rows at once, as far as all is well. Returns how many rows are then behind
 * them, or behind those that visit them. Sets `status` and `done` of each. */
static inline int64_t cp_sgd_in_step_apart(cp_sgd *const *s, int count, const cp_rows *rows, const cp_apart *apart, int *status,
                                           int64_t *done)
{
    int well = rows->m > 1 && !rows->weight && cp_slots_fit(rows->visit, rows->m, rows->slots), left_out = -1;
    cp_rows first = *rows;
    first.m = rows->m > 0;
    for (int k = 0; k < count; k++) {
        status[k] = CP_SGD_OK;
        done[k] = 0;
        if (apart->theirs[k] != apart->of[0]) {
            status[k] = cp_sgd_learn(s[k], &first, &done[k]);
            continue;
        }
        left_out = left_out < 0 ? k : left_out; /* what those hold back that the first row leaves out is to be the same */
        well &= memcmp(CP_AT(s[k], const char, prev), CP_AT(s[left_out], const char, prev), (size_t)(s[k]->features * s[k]->bytes)) == 0
                || s[k]->ruled;
    }
    for (int k = 0; k < count; k++)
        well &= status[k] == CP_SGD_OK;
    return well ? cp_sgd_in_step(s, count, rows, apart) : first.m;
}

/* Put the visits from `from` on that are of a part, or of all others, into p->visit. Returns rows of these. */
static inline cp_rows cp_sgd_visits_of(const cp_rows *rows, int64_t from, const uint8_t *of, uint8_t part, int own, const cp_parts *p)
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

/* Number the parts of some models, in p->number, and say which are of which, in `mine`. Returns how many there are. */
static inline int cp_sgd_number_parts(const cp_rows *rows, int count, const uint8_t *of, const uint8_t *theirs, const cp_parts *p,
                                      uint8_t *mine)
{
    uint8_t number[CP_MOST_PARTS];
    int parts = 0;
    for (int k = 0; k < count; k++)
        mine[k] = (uint8_t)(parts += k > 0 && theirs[k] != theirs[k - 1]);
    memset(number, ++parts, sizeof number);
    for (int k = 0; k < count; k++)
        number[theirs[k]] = mine[k];
    for (int64_t i = 0; i < rows->m; i++)
        p->number[i] = number[of[i]];
    return parts;
}

/* Let models of several parts who are kin, at most as many as visit a row at once, learn from some rows. */
static inline void cp_sgd_learn_apart(cp_sgd *const *s, int count, const cp_rows *rows, const uint8_t *of, const uint8_t *theirs,
                                      const cp_parts *p, int *status, int64_t *done)
{
    uint8_t mine[CP_TOGETHER];
    const cp_apart apart = {mine, p->number, cp_sgd_number_parts(rows, count, of, theirs, p, mine)};
    if (apart.count == 1) { /* a row that nobody visits is not to be seen: nobody would refuse what it has */
        const cp_rows some = cp_sgd_visits_of(rows, 0, of, theirs[0], 0, p);
        cp_sgd_learn_all(s, count, &some, status, done);
        return;
    }
    const int64_t behind = cp_sgd_in_step_apart(s, count, rows, &apart, status, done);
    for (int k = 0; k < count; k++) {
        int64_t visited = 0, more = 0;
        if (status[k])
            continue;
        for (int64_t i = 0; i < behind; i++)
            visited += of[i] != theirs[k];
        s[k]->totals.rows += visited - done[k];
        done[k] = visited;
        const cp_rows rest = cp_sgd_visits_of(rows, behind, of, theirs[k], 0, p);
        if (rest.m > 0)
            status[k] = cp_sgd_learn(s[k], &rest, &more);
        done[k] += more;
    }
}

/* Take up what was found of some models that were left. */
static inline void cp_sgd_take_up(const cp_parts *p, int64_t count, int64_t k, int64_t *n)
{
    const int found = p->status[count + *n];
    p->done[k] += p->done[count + *n];
    p->status[k] = found;
    ++*n;
}

/* Let those who are kin learn from some rows, as many at once as can. */
static inline void cp_sgd_learn_kin(cp_sgd *const *s, int64_t count, const cp_rows *rows, const uint8_t *of, int64_t kin,
                                    const cp_parts *p)
{
    const int64_t most = cp_sgd_at_once(s[kin]);
    uint8_t theirs[CP_TOGETHER];
    for (int64_t from = kin, to; from < count; from = to) {
        int64_t n = 0, found = 0;
        for (to = from; to < count && n < most; to++)
            if (p->kin[to] == kin && !p->status[to]) {
                theirs[n] = p->theirs[to];
                p->left[n++] = s[to];
            }
        if (n > 0)
            cp_sgd_learn_apart(p->left, (int)n, rows, of, theirs, p, p->status + count, p->done + count);
        for (int64_t k = from; found < n; k++)
            if (p->kin[k] == kin && !p->status[k])
                cp_sgd_take_up(p, count, k, &found);
    }
}

/* Let the others of a part, models from..to, learn from some rows. */
static inline void cp_sgd_learn_part(cp_sgd *const *s, int64_t count, const cp_rows *rows, const uint8_t *of, int64_t from, int64_t to,
                                     const cp_parts *p)
{
    int64_t n = 0, found = 0;
    for (int64_t k = from; k < to; k++)
        if (p->kin[k] < 0 && !p->status[k])
            p->left[n++] = s[k];
    if (n == 0)
        return;
    const cp_rows some = cp_sgd_visits_of(rows, 0, of, p->theirs[from], p->own, p);
    if (some.m == 0)
        return;
    cp_sgd_learn_all(p->left, n, &some, p->status + count, p->done + count);
    for (int64_t k = from; k < to; k++)
        if (p->kin[k] < 0 && !p->status[k])
            cp_sgd_take_up(p, count, k, &found);
}

/* Let each model learn from the visits that are its own, as cp_sgd_learn does; those of a part should stand side by side. Sets
 * p->status of each, and p->done to how many of its visits it has made. */
static inline void cp_sgd_learn_parts(cp_sgd *const *s, int64_t count, const cp_rows *rows, const cp_parts *p)
{
    memset(p->status, 0, (size_t)count * sizeof *p->status);
    memset(p->done, 0, (size_t)count * sizeof *p->done);
    cp_sgd_share_lanes(s, count, rows->m, p);
    cp_sgd_leave_scattered(count, p);
    for (int64_t start = 0; start < rows->m; start += p->each) {
        cp_rows some = *rows;
        some.visit = rows->visit + start;
        some.m = rows->m - start < p->each ? rows->m - start : p->each;
        for (int64_t k = 0; k < count; k++)
            if (p->kin[k] == k)
                cp_sgd_learn_kin(s, count, &some, p->of + start, k, p);
        for (int64_t from = 0, to; from < count; from = to) {
            for (to = from; to < count && p->theirs[to] == p->theirs[from];)
                to++;
            cp_sgd_learn_part(s, count, &some, p->of + start, from, to, p);
        }
    }
}

#endif
