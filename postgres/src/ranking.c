/* Rows ranked by the score of a class: corgipile.auc and corgipile.roc.
 * The server sorts both sides, rows of the class and all others, within work_mem or on disk, so the area is exact for
 * any number of rows. Weighted rows are sorted by score and weight, as 16 bytes, so that sums do not depend on the
 * table's order. */
#include "corgipile.h"

#include <math.h>

#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "sgd/totals.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplesort.h"
#include "utils/uuid.h"

PG_FUNCTION_INFO_V1(corgipile_auc);
PG_FUNCTION_INFO_V1(corgipile_roc);

#define UUID_LESS 2974 /* the < operator of uuid, unnamed in the server's headers */
#define REFUSE(...) ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg(__VA_ARGS__))

#ifdef HAVE_INT128
typedef int128 Area;
#else
typedef double Area;
#endif

enum { OTHERS, CLASS, SIDES };

/* Row counts and weights of both sides. */
typedef struct {
    int64 rows[SIDES];
    double weight[SIDES];
} Sums;

struct CorgiRanks {
    CorgiWatch watch;
    const CorgiModel *model;
    int64 positive;         /* index of the class */
    bool weighted;
    Tuplesortstate *sorts[SIDES];
    Sums all;
    bool has_row[SIDES];      /* while reading: whether a row is left */
    int64 next[SIDES];
    double weight[SIDES];   /* of the next row */
};

/* Convert a score to an integer key that falls as the score rises, and back. */
static int64 key_of(double score)
{
    int64 bits;
    score += 0.0; /* maps -0 to 0 */
    memcpy(&bits, &score, sizeof bits);
    return ~(bits < 0 ? bits ^ PG_INT64_MAX : bits);
}

static double score_of(int64 key)
{
    int64 bits = ~key;
    double score;
    bits = bits < 0 ? bits ^ PG_INT64_MAX : bits;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* Return the evidence for the class: its score, or with probabilities of several classes the log odds, which equal the
 * single score of two classes. */
static double class_evidence(const CorgiRanks *r, const double *scores)
{
    const CorgiModel *m = r->model;
    double top = -INFINITY, sum = 0;
    if (!cp_loss_per_class(m->of.loss))
        return r->positive == 1 ? scores[0] : -scores[0];
    if (!cp_losses[m->of.loss].probability)
        return scores[r->positive];
    for (int64 k = 0; k < m->outputs; k++)
        if (k != r->positive)
            top = Max(top, cp_sgd_log_odds(m->of.loss, scores[k]));
    for (int64 k = 0; k < m->outputs; k++)
        if (k != r->positive)
            sum += cp_exp(cp_sgd_log_odds(m->of.loss, scores[k]) - top);
    return cp_sgd_log_odds(m->of.loss, scores[r->positive]) - (top + cp_log(sum));
}

CorgiRanks *corgi_make_ranks(const CorgiModel *m, int64 positive, bool weighted)
{
    CorgiRanks *r = palloc0(sizeof *r);
    r->model = m;
    r->positive = positive;
    r->weighted = weighted;
    for (int i = 0; i < SIDES; i++)
        r->sorts[i] = tuplesort_begin_datum(weighted ? UUIDOID : INT8OID, weighted ? UUID_LESS : Int8LessOperator,
                                            InvalidOid, false, Max(work_mem / SIDES, 64), NULL, TUPLESORT_NONE);
    return r;
}

/* Pack a key and a weight of at least 0 into bytes of the same order, and back. */
static pg_uuid_t pair_of(int64 key, double weight)
{
    uint64 words[2] = {(uint64) key ^ (uint64) PG_INT64_MIN, 0};
    pg_uuid_t pair;
    memcpy(&words[1], &weight, sizeof weight);
    for (int i = 0; i < 2; i++)
        words[i] = pg_hton64(words[i]);
    memcpy(&pair, words, sizeof pair);
    return pair;
}

static int64 key_of_pair(const pg_uuid_t *pair, double *weight)
{
    uint64 words[2];
    memcpy(words, pair, sizeof words);
    for (int i = 0; i < 2; i++)
        words[i] = pg_ntoh64(words[i]);
    memcpy(weight, &words[1], sizeof *weight);
    return (int64) (words[0] ^ (uint64) PG_INT64_MIN);
}

void corgi_rank_row(CorgiRanks *r, double label, double weight, const double *scores)
{
    int side = label == r->model->class_values[r->positive] ? CLASS : OTHERS;
    int64 key = key_of(class_evidence(r, scores));
    pg_uuid_t pair;
    if (weight == 0)
        return;
    if (r->weighted)
        pair = pair_of(key, weight);
    tuplesort_putdatum(r->sorts[side], r->weighted ? UUIDPGetDatum(&pair) : Int64GetDatum(key), false);
    r->all.rows[side]++;
    r->all.weight[side] += weight;
}

static void rank_row(CorgiWatch *w, double label, double weight, const double *scores)
{
    corgi_rank_row((CorgiRanks *) w, label, weight, scores);
}

static void next_row(CorgiRanks *r, int side)
{
    Datum value;
    bool null;
    r->has_row[side] = CORGI_NEXT_DATUM(r->sorts[side], &value, &null);
    if (!r->has_row[side])
        return;
    r->weight[side] = 1;
    r->next[side] = r->weighted ? key_of_pair(DatumGetUUIDP(value), &r->weight[side]) : DatumGetInt64(value);
    if (r->weighted)
        pfree(DatumGetPointer(value));
}

static void sort_rows(CorgiRanks *r)
{
    for (int i = 0; i < SIDES; i++) {
        tuplesort_performsort(r->sorts[i]);
        next_row(r, i);
    }
}

/* Return the largest remaining score and each side's rows with it. Returns false if none remain. */
static bool next_score(CorgiRanks *r, int64 *key, Sums *tied)
{
    if (!r->has_row[OTHERS] && !r->has_row[CLASS])
        return false;
    *key = Min(r->has_row[OTHERS] ? r->next[OTHERS] : PG_INT64_MAX, r->has_row[CLASS] ? r->next[CLASS] : PG_INT64_MAX);
    memset(tied, 0, sizeof *tied);
    for (int i = 0; i < SIDES; i++)
        for (; r->has_row[i] && r->next[i] == *key; next_row(r, i)) {
            tied->weight[i] += r->weight[i];
            if (tied->rows[i]++ % 4096 == 0)
                CHECK_FOR_INTERRUPTS();
        }
    return true;
}

/* Compute the weighted share of pairs, of a row of the class and another, in which the former scores higher; ties count
 * half. Returns false if there is no pair. Consumes the rows. */
bool corgi_auc(CorgiRanks *r, double *area)
{
    Area pairs = 0;
    int64 key, above = 0;
    /* Products of weights may overflow, so one side's are divided by a power of two, which is exact. */
    double sum = 0, heavier = 0;
    Sums tied;
    sort_rows(r);
    double unit = r->all.weight[OTHERS] > 0 ? ldexp(1, ilogb(r->all.weight[OTHERS])) : 1;
    while (next_score(r, &key, &tied)) {
        pairs += (Area) tied.rows[OTHERS] * (2 * above + tied.rows[CLASS]);
        above += tied.rows[CLASS];
        sum += tied.weight[OTHERS] / unit * (heavier + tied.weight[CLASS] / 2);
        heavier += tied.weight[CLASS];
    }
    for (int i = 0; i < SIDES; i++)
        tuplesort_end(r->sorts[i]);
    if (r->all.rows[OTHERS] == 0 || r->all.rows[CLASS] == 0)
        return false;
    *area = r->weighted ? Min(sum / (r->all.weight[OTHERS] / unit * r->all.weight[CLASS]), 1)
                        : (double) pairs / (2 * ((double) r->all.rows[OTHERS] * (double) r->all.rows[CLASS]));
    return true;
}

/* Return the argument's value as text; NULL if it is NULL. */
static char *class_argument(FunctionCallInfo fcinfo)
{
    Oid type = get_fn_expr_argtype(fcinfo->flinfo, CORGI_EVALUATED_CLASS);
    if (PG_ARGISNULL(CORGI_EVALUATED_CLASS))
        return NULL;
    if (getBaseType(type) == BOOLOID)
        return PG_GETARG_BOOL(CORGI_EVALUATED_CLASS) ? "1" : "0";
    return corgi_argument_text(PG_GETARG_DATUM(CORGI_EVALUATED_CLASS), type);
}

/* Return the class with a name; -1 if there is none. */
static int64 class_of(const CorgiModel *m, const char *class_name)
{
    char *end;
    if (corgi_class_names(m) != NULL)
        return corgi_find_name(m->encoding->classes, class_name, strlen(class_name));
    double value = strtod(class_name, &end);
    for (int64 k = 0; k < m->classes && end != class_name && *end == '\0'; k++)
        if (m->class_values[k] == value)
            return k;
    return -1;
}

/* List the first classes, for an error. */
static char *list_classes(const CorgiModel *m)
{
    StringInfoData text;
    initStringInfo(&text);
    for (int64 k = 0; k < Min(m->classes, 10); k++)
        appendStringInfo(&text, "%s%s", k ? ", " : "", corgi_class_name(m, k));
    appendStringInfoString(&text, m->classes > 10 ? ", ..." : "");
    return text.data;
}

/* Return the evaluated class: the named one, or else the second of two. */
int64 corgi_class_to_evaluate(FunctionCallInfo fcinfo, const CorgiModel *m, const char *name)
{
    char *class_name = class_argument(fcinfo);
    int64 class_index = class_name ? class_of(m, class_name) : 1;
    if (class_name == NULL && m->classes != 2)
        REFUSE("model \"%s\" has " INT64_FORMAT " classes; select one with class => : %s", name,
               m->classes, list_classes(m));
    if (class_index < 0)
        REFUSE("class must be a class of model \"%s\", got %s; it has %s", name, class_name, list_classes(m));
    return class_index;
}

/* Rank the rows of a call; NULL if its model is NULL. */
static CorgiRanks *rank_rows(FunctionCallInfo fcinfo, const char *what)
{
    char *name;
    CorgiModel *m = corgi_model_to_evaluate(fcinfo, &name);
    if (m == NULL)
        return NULL;
    corgi_need_classes(m, name, what);
    CorgiRanks *r = corgi_make_ranks(m, corgi_class_to_evaluate(fcinfo, m, name), !PG_ARGISNULL(PG_NARGS() - 1));
    r->watch.row = rank_row;
    (void) corgi_evaluate_rows(fcinfo, m, name, &r->watch);
    return r;
}

/* auc(model, ...): the area under the curve; NULL if all rows are on one side. */
Datum corgipile_auc(PG_FUNCTION_ARGS)
{
    CorgiRanks *r = rank_rows(fcinfo, "auc");
    double area;
    if (r == NULL || !corgi_auc(r, &area))
        PG_RETURN_NULL();
    PG_RETURN_FLOAT8(area);
}

/* A point of the curve: rows with a score of at least `threshold`. */
typedef struct {
    double threshold;
    Sums above;
} Point;

static void put_point(const CorgiRanks *r, ReturnSetInfo *result, const Point *p)
{
    const Sums *all = &r->all, *above = &p->above;
    bool nulls[5] = {false, all->rows[OTHERS] == 0, all->rows[CLASS] == 0, false, false};
    Datum values[5] = {Float8GetDatum(p->threshold), Float8GetDatum(above->weight[OTHERS] / all->weight[OTHERS]),
                       Float8GetDatum(above->weight[CLASS] / all->weight[CLASS]), Int64GetDatum(above->rows[OTHERS]),
                       Int64GetDatum(above->rows[CLASS])};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Return whether a point lies on the line between two others. */
static bool is_collinear(const CorgiRanks *r, const Point *a, const Point *b, const Point *c)
{
    const Sums *first = &a->above, *middle = &b->above, *last = &c->above;
    if (r->weighted)
        return (middle->weight[OTHERS] - first->weight[OTHERS]) * (last->weight[CLASS] - middle->weight[CLASS]) ==
               (middle->weight[CLASS] - first->weight[CLASS]) * (last->weight[OTHERS] - middle->weight[OTHERS]);
    return (Area) (middle->rows[OTHERS] - first->rows[OTHERS]) * (last->rows[CLASS] - middle->rows[CLASS]) ==
           (Area) (middle->rows[CLASS] - first->rows[CLASS]) * (last->rows[OTHERS] - middle->rows[OTHERS]);
}

/* roc(model, ...): the curve, from the largest threshold on, without points between collinear neighbours. */
Datum corgipile_roc(PG_FUNCTION_ARGS)
{
    ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
    Point last = {.threshold = INFINITY}, now = last, next = last;
    Sums tied;
    int64 key;
    bool pending = false; /* `now` is not returned yet */
    InitMaterializedSRF(fcinfo, 0);
    CorgiRanks *r = rank_rows(fcinfo, "roc");
    if (r == NULL || r->all.rows[OTHERS] + r->all.rows[CLASS] == 0)
        return (Datum) 0;
    sort_rows(r);
    put_point(r, result, &last);
    while (next_score(r, &key, &tied)) {
        next.threshold = score_of(key);
        for (int i = 0; i < SIDES; i++) {
            next.above.rows[i] += tied.rows[i];
            next.above.weight[i] += tied.weight[i];
        }
        if (pending && !is_collinear(r, &last, &now, &next)) {
            put_point(r, result, &now);
            last = now;
        }
        now = next;
        pending = true;
    }
    put_point(r, result, &now);
    for (int i = 0; i < SIDES; i++)
        tuplesort_end(r->sorts[i]);
    return (Datum) 0;
}
