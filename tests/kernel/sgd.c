/* Runs every loss, form and batch size of kernel/sgd/sgd.h on made rows and prints a hash of each model's bits.
 * Rows end exactly where their memory does, so that a sanitizer sees any read past them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "numbers.h"
#include "sgd/code.h"
#include "sgd/evaluate.h"
#include "sgd/multi_model.h"

enum { ROWS = 128, MOST = 150 };

typedef struct {
    void *x, *values;
    int32_t *indices, *visit;
    uint64_t *at, *from;
    int64_t *lengths;
    float *y, *weight;
} data;

static data make(const cp_sgd_shape *shape)
{
    int64_t f = shape->features, total = 0;
    data d = {.x = malloc((size_t)(ROWS * f * shape->bytes)), .values = malloc((size_t)(ROWS * f * shape->bytes)),
              .indices = malloc(ROWS * (size_t)f * 4), .visit = malloc(ROWS * 4), .at = malloc(ROWS * 8),
              .from = malloc(ROWS * 8), .lengths = malloc(ROWS * 8), .y = malloc(ROWS * 4),
              .weight = malloc(ROWS * 4)};
    for (int64_t i = 0; i < ROWS; i++) {
        double first = 0;
        d.at[i] = (uint64_t)(uintptr_t)(d.indices + total);
        d.from[i] = (uint64_t)(uintptr_t)((char *)d.values + total * shape->bytes);
        d.lengths[i] = 0;
        for (int64_t j = 0; j < f; j++) {
            double value = uniform();
            first = j ? first : value;
            fill(d.x, shape->bytes, i * f + j, value);
            if (uniform() > 0.4) {
                d.indices[total] = (int32_t)j;
                fill(d.values, shape->bytes, total++, value);
                d.lengths[i]++;
            }
        }
        d.y[i] = cp_losses[shape->loss].not_negative ? (float)(int)(first * 2 + 2)
                 : cp_losses[shape->loss].labels == CP_NUMBERS ? (float)first
                 : cp_loss_per_class(shape->loss) ? (float)((int)((first + 1) * 1.4999)) : (float)(first > 0.1);
        d.visit[i] = (int32_t)((i * 377) % ROWS);
        d.weight[i] = (float)(i % 5) / 2;
    }
    return d;
}

static void drop(data *d)
{
    free(d->x), free(d->values), free(d->indices), free(d->visit);
    free(d->at), free(d->from), free(d->lengths), free(d->y), free(d->weight);
}

static uint64_t run(cp_sgd_shape shape, int weighted)
{
    data d = make(&shape);
    cp_sgd *s = aligned_alloc(CP_LINE, cp_sgd_size(&shape));
    char *out = malloc((size_t)(shape.bytes * shape.outputs * (shape.features + 1)));
    char *scores = malloc((size_t)(shape.bytes * shape.outputs) * ROWS);
    cp_rows rows = {.x = d.x, .y = d.y, .y_type = CP_F32, .slots = ROWS, .stride = shape.features * shape.bytes,
                    .indices = d.at, .values = d.from, .lengths = d.lengths, .visit = d.visit, .m = ROWS,
                    .weight = weighted ? d.weight : NULL, .weight_type = CP_F32};
    int64_t done;
    int status = 0;
    memset(s, 0, cp_sgd_size(&shape));
    cp_sgd_init(s, &shape);
    for (int epoch = 0; epoch < 3 && !status; epoch++) {
        cp_sgd_begin(s, cp_losses[shape.loss].labels == CP_NUMBERS || shape.loss == CP_SQUARED_HINGE ? 0.01 : 0.3);
        status = cp_sgd_learn(s, &rows, &done);
        cp_sgd_flush(s);
    }
    cp_sgd_predictor(s, out, out + shape.bytes * shape.outputs * shape.features);
    status = status ? status : cp_sgd_decide(s, &rows, scores);
    double loss = cp_sgd_loss(s) + s->totals.squares;
    uint64_t h = hash(14695981039346656037ull, out, (size_t)(shape.bytes * shape.outputs * (shape.features + 1)));
    h = hash(hash(h, scores, (size_t)(shape.bytes * shape.outputs) * ROWS), &loss, sizeof loss);
    if (status || s->totals.rows != ROWS)
        printf("status %d\n", status);
    free(scores), free(out), free(s);
    drop(&d);
    return h;
}

/* Every refusal leaves memory alone. */
static void refuse(void)
{
    float x[3] = {1, 2, 3}, y[3] = {0, 1, 7}, weight[3] = {0, -1, 1};
    int32_t visit[3] = {0, 1, 2}, wrong[3] = {0, 3, 1}, below[1] = {-1}, index[3] = {0, 5, 5};
    double classes[2] = {0, 1};
    cp_sgd_shape shape = {.loss = CP_LOGISTIC, .bytes = 4, .features = 1, .outputs = 1, .batch = 1, .classes = classes};
    cp_sgd *s = calloc(1, cp_sgd_size(&shape) + CP_LINE);
    cp_sgd *state = (cp_sgd *)cp_round_up((int64_t)(uintptr_t)s, CP_LINE);
    cp_rows rows = {.x = x, .y = y, .y_type = CP_F32, .slots = 3, .stride = 4, .visit = visit, .m = 3};
    int64_t done;
    cp_sgd_init(state, &shape);
    cp_sgd_begin(state, 0.1);
    printf("label %d", cp_sgd_learn(state, &rows, &done));
    rows.weight = weight;
    rows.weight_type = CP_F32;
    printf(" weight %d", cp_sgd_learn(state, &rows, &done));
    rows.weight = NULL;
    rows.visit = wrong;
    printf(" slot %d", cp_sgd_learn(state, &rows, &done));
    rows.visit = below;
    rows.m = 1;
    printf(" slot %d", cp_sgd_learn(state, &rows, &done));
    printf(" indices %d %d %d\n", cp_check_indices(index, 3, 9), cp_check_indices(index, 2, 5), cp_check_indices(index, -1, 9));
    free(s);
}

enum { MODELS = 9 };

static cp_sgd *model(const cp_sgd_shape *shape, int k)
{
    cp_sgd *s = aligned_alloc(CP_LINE, cp_sgd_size(shape));
    memset(s, 0, cp_sgd_size(shape));
    cp_sgd_init(s, shape);
    cp_sgd_begin(s, 0.01 * (k + 1));
    return s;
}

/* Return whether two models are the same, and let go of both. */
static int the_same(const cp_sgd_shape *shape, cp_sgd *a, cp_sgd *b)
{
    const size_t size = (size_t)(shape->bytes * shape->outputs * (shape->features + 1));
    char *of = malloc(2 * size);
    cp_sgd *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        cp_sgd_flush(both[i]);
        cp_sgd_predictor(both[i], of + (size_t)i * size, of + (size_t)i * size + shape->bytes * shape->outputs * shape->features);
    }
    int same = memcmp(of, of + size, size) == 0 && memcmp(&a->totals, &b->totals, sizeof a->totals) == 0;
    free(of), free(a), free(b);
    return same;
}

/* Let models of several rates and penalties learn from the same rows, and each alone; return how many differ. */
static int crowd(cp_sgd_shape shape)
{
    data d = make(&shape);
    cp_rows rows = {.x = d.x, .y = d.y, .y_type = CP_F32, .slots = ROWS, .stride = shape.features * shape.bytes,
                    .indices = d.at, .values = d.from, .lengths = d.lengths, .visit = d.visit, .m = ROWS};
    cp_sgd *s[MODELS], *alone;
    cp_sgd_shape each[MODELS];
    int status[MODELS], differ = 0;
    int64_t done[MODELS];
    for (int k = 0; k < MODELS; k++) {
        each[k] = shape;
        each[k].l2 = k % 4 && shape.step == CP_STEP_CONSTANT ? 0.001 * k : 0;
        each[k].l2 = shape.l1 > 0 ? 0.001 * (k % 2) : each[k].l2;
        each[k].average = k % 3 == 1;
        each[k].step = k == 5 ? CP_STEP_NORMALIZED : shape.step;
        s[k] = model(&each[k], k);
    }
    cp_sgd_learn_all(s, MODELS, &rows, status, done);
    for (int k = 0; k < MODELS; k++) {
        int64_t learnt;
        alone = model(&each[k], k);
        differ += cp_sgd_learn(alone, &rows, &learnt) != status[k] || learnt != done[k];
        differ += !the_same(&each[k], s[k], alone);
    }
    drop(&d);
    return differ;
}

/* Let models learn from the same rows by labels of their own, and each alone; return how many differ. */
static int chorus(cp_sgd_shape shape)
{
    enum { SETS = 5 };
    data d = make(&shape);
    uint8_t *sets = malloc(SETS * MODELS);
    cp_rows rows = {.x = d.x, .y = d.y, .y_type = CP_F32, .slots = ROWS, .stride = shape.features * shape.bytes,
                    .indices = d.at, .values = d.from, .lengths = d.lengths, .visit = d.visit, .m = ROWS, .set = sets,
                    .sets = SETS, .labels = MODELS};
    cp_sgd *s[MODELS];
    float *labels = malloc(ROWS * sizeof *labels);
    int status[MODELS], differ = 0;
    int64_t done[MODELS];
    for (int k = 0; k < MODELS; k++)
        s[k] = model(&shape, k % 3);
    for (int i = 0; i < SETS * MODELS; i++)
        sets[i] = (uint8_t)(i % 7 > 2);
    for (int i = 0; i < ROWS; i++)
        d.y[i] = (float)(i * 3 % SETS);
    d.y[d.visit[ROWS - 100]] = SETS; /* there is none */
    cp_sgd_learn_all(s, MODELS, &rows, status, done);
    rows.y = labels;
    rows.set = NULL;
    for (int k = 0; k < MODELS; k++) {
        int64_t learnt;
        cp_sgd *alone = model(&shape, k % 3);
        for (int i = 0; i < ROWS; i++)
            labels[i] = d.y[i] < SETS ? sets[(int)d.y[i] * MODELS + k] : NAN;
        differ += cp_sgd_learn(alone, &rows, &learnt) != status[k] || learnt != done[k];
        differ += !the_same(&shape, s[k], alone);
    }
    free(labels), free(sets);
    drop(&d);
    return differ;
}

static double number(const void *of, int bytes, int64_t at)
{
    return bytes == 4 ? (double)((const float *)of)[at] : ((const double *)of)[at];
}

/* Count rows by scores, and as a visit at a rate of 0 does, which adds products up in another order; return whether they differ. */
static int judged(cp_sgd *s, const cp_rows *rows, const data *d, const void *scores, int k)
{
    const cp_loss_choice of = {s->loss, s->parameter};
    cp_sgd_totals t = {.ln = 1};
    int64_t learnt;
    int differ = 0;
    for (int64_t i = 0; i < ROWS; i++) {
        const int32_t slot = d->visit[i];
        const double weight = d->weight[slot], score = number(scores, s->bytes, i * MODELS + k);
        double own[1];
        cp_rows one = *rows;
        one.visit += i;
        one.m = 1;
        differ += cp_sgd_decide(s, &one, own) != CP_SGD_OK || memcmp(own, (const char *)scores + (i * MODELS + k) * s->bytes, (size_t)s->bytes);
        cp_evaluate_score(of, s->bytes, score, d->y[slot] > 0 ? 1 : -1, rows->weight ? &weight : NULL, &t);
    }
    differ += cp_sgd_learn(s, rows, &learnt) != CP_SGD_OK || t.rows != s->totals.rows || t.weight != s->totals.weight;
    const double loss = (t.loss + t.logs + cp_log(t.ln)) / cp_sgd_loss(s) - 1, near = s->bytes == 4 ? 1e-6 : 1e-12;
    return differ || t.correct != s->totals.correct || !(loss < near && loss > -near);
}

/* Let models score rows side by side, as outputs of one state, and each alone; return how many differ. */
static int abreast(cp_sgd_shape shape, int weighted)
{
    data d = make(&shape);
    cp_rows rows = {.x = d.x, .y = d.y, .y_type = CP_F32, .slots = ROWS, .stride = shape.features * shape.bytes,
                    .indices = d.at, .values = d.from, .lengths = d.lengths, .visit = d.visit, .m = ROWS,
                    .weight = weighted ? d.weight : NULL, .weight_type = CP_F32};
    const size_t line = (size_t)(shape.features * shape.bytes), real = (size_t)shape.bytes;
    char *w = malloc(MODELS * (line + real)), *bias = w + MODELS * line, *scores = malloc(ROWS * MODELS * real);
    cp_sgd_shape wide = shape;
    cp_sgd *s[MODELS], *all;
    int differ = 0;
    wide.outputs = MODELS;
    all = model(&wide, 0);
    for (int k = 0; k < MODELS; k++) {
        int64_t learnt;
        s[k] = model(&shape, k);
        differ += cp_sgd_learn(s[k], &rows, &learnt) != CP_SGD_OK;
        cp_sgd_begin(s[k], 0);
        cp_sgd_get(s[k], w + (size_t)k * line, bias + (size_t)k * real);
    }
    cp_sgd_set(all, w, bias);
    differ += cp_sgd_decide(all, &rows, scores) != CP_SGD_OK;
    for (int k = 0; k < MODELS; k++) {
        differ += judged(s[k], &rows, &d, scores, k);
        free(s[k]);
    }
    free(all), free(w), free(scores);
    drop(&d);
    return differ;
}

static void accompany(void)
{
    double classes[] = {0, 1, 2};
    int differ = 0;
    for (int loss = 0; loss < CP_LOSS_COUNT; loss++)
        for (int form = 0; form < 3; form++)
            for (int width = 5; width < 40; width += 23) {
                cp_sgd_shape shape = {.loss = (enum cp_loss)loss, .parameter = cp_losses[loss].usual, .bytes = form ? 4 : 8,
                                      .sparse = form == 2, .batch = 1, .features = width, .intercept = width > 5, .isa = -1,
                                      .outputs = cp_loss_per_class((enum cp_loss)loss) ? 3 : 1, .classes = classes};
                for (int step = 0; step < 6; step++) {
                    shape.step = step % 3 == 0 ? CP_STEP_CONSTANT : step % 3 == 1 ? CP_STEP_ADAGRAD : CP_STEP_AUTO;
                    shape.l1 = step < 3 ? 0 : 0.001;
                    differ += crowd(shape) + chorus(shape);
                }
                shape.step = CP_STEP_CONSTANT;
                if (cp_losses[loss].labels == CP_TWO_CLASSES)
                    differ += abreast(shape, width > 5);
            }
    printf("company %d\n", differ);
}

int main(void)
{
    static const int64_t widths[] = {1, 3, 8, 16, 17, 28, 64, MOST};
    double classes[] = {0, 1, 2}, class_weight[] = {0.5, 2, 3};
    for (int isa = cp_sgd_isa(); isa >= 0; isa--) {
        uint64_t all = 14695981039346656037ull;
        for (int loss = 0; loss < CP_LOSS_COUNT; loss++)
            for (int form = 0; form < 8; form++)
                for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
                    seed = 88172645463325252ull;
                    cp_sgd_shape shape = {.loss = (enum cp_loss)loss, .parameter = cp_losses[loss].usual,
                                          .bytes = form & 1 ? 8 : 4, .sparse = form >> 1 & 1,
                                          .batch = form & 4 ? 48 : 1, .features = widths[w], .intercept = w & 1,
                                          .outputs = cp_loss_per_class((enum cp_loss)loss) ? 3 : 1, .l2 = w & 2 ? 0.01 : 0,
                                          .classes = classes, .isa = isa, .average = w % 3 == 1};
                    if (cp_losses[loss].labels == CP_NUMBERS)
                        shape.l2 = 0.05;
                    for (int ruled = 0; ruled < 3; ruled++) {
                        shape.step = !ruled ? CP_STEP_CONSTANT : ruled == 2 ? CP_STEP_ADAM
                                     : w % 2 ? CP_STEP_ADAGRAD : CP_STEP_NORMALIZED;
                        shape.l1 = ruled && w % 3 == 2 ? 0.001 : 0;
                        shape.max_norm = ruled && w % 4 >= 2 ? 0.3 : 0;
                        shape.class_weight = w % 4 == 3 && cp_losses[loss].labels != CP_NUMBERS ? class_weight : NULL;
                        uint64_t h = run(shape, w % 4 >= 2);
                        all = hash(all, &h, sizeof h);
                    }
                }
        printf("%016llx\n", (unsigned long long)all);
    }
    refuse();
    accompany();
    return 0;
}
