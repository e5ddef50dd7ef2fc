/* Runs every loss and form of kernel/dual/dual.h on made rows and prints a hash of each model's bits. Rows end exactly
 * where their memory does, so that a sanitizer sees any read past them. */
#include <stdio.h>
#include <stdlib.h>

#include "dual/dual.h"
#include "numbers.h"

enum { ROWS = 300 };

static uint64_t run(const cp_dual_shape *shape)
{
    const int64_t f = shape->features;
    char *x = malloc((size_t)(ROWS * f * shape->bytes)), *values[ROWS];
    int32_t *indices[ROWS], *visit = malloc(ROWS * 4), *places = malloc(ROWS * 4);
    uint64_t at[ROWS], from[ROWS], h = 14695981039346656037ull;
    int64_t lengths[ROWS], *number = malloc(ROWS * 8), done;
    float *y = malloc(ROWS * 4);
    float *weight = malloc(ROWS * 4);
    double *a = calloc((size_t)(ROWS * (shape->outputs + 1)), 8);
    cp_dual *s = aligned_alloc(CP_LINE, (size_t)cp_round_up((int64_t)cp_dual_size(shape), CP_LINE));
    for (int64_t i = 0; i < ROWS; i++) {
        double first = 0, row[64];
        int64_t n = 0;
        for (int64_t j = 0; j < f; j++) {
            row[j] = uniform();
            first = j ? first : row[j];
            fill(x, shape->bytes, i * f + j, row[j]);
        }
        indices[i] = malloc((size_t)f * 4);
        for (int64_t j = 0; j < f; j++)
            if (uniform() > 0.3)
                indices[i][n++] = (int32_t)j;
        indices[i] = realloc(indices[i], (size_t)n * 4 + 1);
        values[i] = malloc((size_t)(n * shape->bytes) + 1);
        for (int64_t j = 0; j < n; j++)
            fill(values[i], shape->bytes, j, row[indices[i][j]]);
        at[i] = (uint64_t)(uintptr_t)indices[i];
        from[i] = (uint64_t)(uintptr_t)values[i];
        lengths[i] = n;
        y[i] = shape->outputs > 1 ? (float)(int)((first + 1) * 1.4999) : (float)(first + 0.3 * uniform() > 0);
        weight[i] = (float)(i % 5) / 2;
        visit[i] = (int32_t)(i * 77 % ROWS);
        number[i] = visit[i];
    }
    cp_rows rows = {.x = x, .y = y, .y_type = CP_F32, .slots = ROWS, .stride = f * shape->bytes, .indices = at,
                    .values = from, .lengths = lengths, .visit = visit, .m = ROWS,
                    .weight = shape->weighted ? weight : NULL, .weight_type = CP_F32};
    memset(s, 0, cp_dual_size(shape));
    cp_dual_init(s, shape);
    double last = 0;
    for (int pass = 0; pass < 5; pass++) {
        cp_dual_begin(s);
        if (cp_dual_learn(s, &rows, number, a, &done) || done != ROWS)
            printf("stopped at %d\n", (int)done);
        cp_dual_again(s, &rows, number, a, places, 3, 0, (uint64_t)pass);
        double bound = cp_dual_value(s, a, ROWS) - cp_dual_norm(s) / 2;
        cp_dual_begin(s);
        cp_dual_learn(s, &rows, NULL, NULL, &done);
        double primal = shape->bound * s->sum + cp_dual_norm(s) / 2;
        if (!(bound >= last * 0.999999) || !(bound <= primal * 1.000001) || s->rows != ROWS)
            printf("bound %g after %g, objective %g\n", bound, last, primal);
        last = bound;
        h = hash(hash(h, &bound, 8), &primal, 8);
    }
    h = hash(h, CP_AT(s, char, w), (size_t)(f * shape->outputs) * 8);
    for (int i = 0; i < ROWS; i++)
        free(indices[i]), free(values[i]);
    free(x), free(visit), free(places), free(number), free(y), free(weight), free(a), free(s);
    return h;
}

/* Every refusal leaves memory alone, and comes before anything is learnt from the row. */
static void refuse(void)
{
    float x[6] = {1, 2, 3, INFINITY, 1e38f, 1e38f}, y[3] = {0, 1, 7}, nan[3] = {NAN, 0, 0};
    int32_t visit[3] = {0, 1, 2}, wrong[3] = {0, 3, 1}, second[1] = {1}, index[2] = {1, 1};
    int64_t number[3] = {0, 1, 2}, done, lengths[3] = {2, 2, 2};
    uint64_t at[3], from[3];
    double classes[2] = {0, 1}, a[3] = {0};
    cp_dual_shape shape = {.loss = CP_HINGE, .bytes = 4, .features = 2, .outputs = 1, .bound = 1, .classes = classes};
    cp_dual *s = calloc(1, 4096);
    cp_rows rows = {.x = x, .y = y, .y_type = CP_F32, .slots = 3, .stride = 8, .visit = visit, .m = 3};
    cp_dual_init(s, &shape);
    rows.visit = wrong;
    printf("slot %d", cp_dual_learn(s, &rows, number, a, &done));
    rows.visit = visit;
    rows.m = 1;
    rows.y = nan;
    printf(" label %d", cp_dual_learn(s, &rows, number, a, &done));
    rows.y = y;
    rows.m = 3;
    x[3] = 4;
    printf(" label %d", cp_dual_learn(s, &rows, number, a, &done));
    x[3] = INFINITY;
    rows.visit = second;
    rows.m = 1;
    printf(" value %d", cp_dual_learn(s, &rows, number, a, &done));
    for (int i = 0; i < 3; i++)
        at[i] = (uint64_t)(uintptr_t)index, from[i] = (uint64_t)(uintptr_t)x;
    shape.sparse = 1;
    cp_dual_init(s, &shape);
    rows.indices = at, rows.values = from, rows.lengths = lengths;
    printf(" indices %d", cp_dual_learn(s, &rows, number, a, &done));
    index[1] = 2;
    printf(" %d\n", cp_dual_learn(s, &rows, number, a, &done));
    free(s);
}

int main(void)
{
    static const int64_t widths[] = {1, 3, 4, 8, 13, 28, 64};
    const enum cp_loss losses[] = {CP_HINGE, CP_HINGES, CP_SQUARED_HINGE, CP_LOGISTIC};
    double classes[] = {0, 1, 2}, of_class[] = {0.5, 2, 0};
    for (int isa = cp_sgd_isa(); isa >= 0; isa--) {
        uint64_t all = 14695981039346656037ull;
        for (int loss = 0; loss < 4; loss++)
            for (int form = 0; form < 16; form++)
                for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
                    cp_dual_shape shape = {.loss = losses[loss], .bytes = form & 1 ? 8 : 4, .sparse = form >> 1 & 1,
                                           .intercept = form >> 2 & 1, .weighted = form >> 3,
                                           .class_weight = form >> 3 && w % 3 == 0 ? of_class : NULL, .features = widths[w], .bound = w % 2 ? 1 : 0.01,
                                           .outputs = losses[loss] == CP_HINGES ? 3 : 1, .classes = classes, .isa = isa};
                    seed = 88172645463325252ull;
                    uint64_t h = run(&shape);
                    all = hash(all, &h, sizeof h);
                }
        printf("%016llx\n", (unsigned long long)all);
    }
    refuse();
    return 0;
}
