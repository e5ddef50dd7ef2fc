/* Prints sums and steps of Newton's method for generated rows; tests/kernel/test_newton.py compares them. */
#include <stdio.h>

#include "newton/newton.h"

enum { ROWS = 700, FEATURES = 19 };

static double next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(*seed >> 11) * 0x1p-52 - 1;
}

static cp_newton *state_of(const cp_newton_shape *shape, void **memory)
{
    *memory = calloc(1, cp_newton_size(shape) + CP_LINE);
    cp_newton *s = (cp_newton *)(((uintptr_t)*memory + CP_LINE - 1) / CP_LINE * CP_LINE);
    cp_newton_init(s, shape);
    return s;
}

static void print_sums(const cp_newton *s)
{
    double gradient = 0, matrix = 0;
    for (int64_t j = 0; j < s->form.outputs * s->padded; j++)
        gradient += s->lane->high[j] + s->lane->low[j];
    for (int64_t j = 0; j < s->pairs * s->padded * s->padded; j++)
        matrix += j % s->padded >= j / s->padded % s->padded ? s->lane->matrix[j] * (double)(j % 7) : 0; /* upper */
    const cp_newton_totals *t = &s->lane->totals;
    printf("%lld %lld %lld %a %a %a\n", (long long)t->rows, (long long)t->skipped, (long long)t->wrong,
           t->loss + t->lost, gradient, matrix);
}

/* Sum the rows of one pass in two calls, lane by lane. */
static void pass(cp_newton *s, cp_rows *r, enum cp_newton_matrix what)
{
    double weights[3 * (FEATURES + 1)], center[FEATURES], factor[FEATURES];
    const int32_t *visit = r->visit;
    for (int j = 0; j < 3 * (FEATURES + 1); j++)
        weights[j] = 0.01 * (j % 11 - 4);
    for (int j = 0; j < FEATURES; j++)
        center[j] = 0.1 * j, factor[j] = 1 + 0.05 * j;
    cp_newton_begin(s, what, 0, 0.5, 0.1, weights, center, factor);
    for (int half = 0; half < 2; half++) {
        r->visit = visit + half * 301;
        r->m = half ? ROWS - 301 : 301;
        for (int64_t l = 0; l < s->lanes; l++)
            cp_newton_add(s, l, r, half * 301);
    }
    r->visit = visit;
    cp_newton_end(s);
    print_sums(s);
}

static void run(enum cp_loss loss, int bytes, int sparse, int skip)
{
    static double classes[3] = {0, 1, 2};
    const int64_t outputs = cp_loss_per_class(loss) ? 3 : 1;
    uint64_t seed = 7;
    cp_newton_shape shape = {.loss = loss, .bytes = bytes, .sparse = sparse, .intercept = 1, .skip = skip, .isa = -1,
                             .features = FEATURES, .outputs = outputs, .parameter = 0.6, .classes = classes};
    char *x = malloc((size_t)ROWS * FEATURES * (size_t)bytes);
    double *y = malloc(ROWS * sizeof *y);
    int32_t *visit = malloc(ROWS * sizeof *visit), *index = malloc(FEATURES * sizeof *index);
    uint64_t *indices = malloc(ROWS * sizeof *indices), *values = malloc(ROWS * sizeof *values);
    int64_t *lengths = malloc(ROWS * sizeof *lengths);
    for (int i = 0; i < ROWS * FEATURES; i++) {
        double value = skip && i == 100 * FEATURES + 3 ? NAN : (double)(float)next(&seed);
        if (bytes == 4)
            ((float *)(void *)x)[i] = (float)value;
        else
            ((double *)(void *)x)[i] = value;
    }
    for (int j = 0; j < FEATURES; j++)
        index[j] = j;
    for (int i = 0; i < ROWS; i++) {
        y[i] = (double)((int)(i * 7919 % 97) % (outputs > 1 ? 3 : 2));
        visit[i] = (int32_t)(i * 11 % ROWS);
        indices[i] = (uint64_t)(uintptr_t)index;
        values[i] = (uint64_t)(uintptr_t)(x + (size_t)i * FEATURES * (size_t)bytes);
        lengths[i] = FEATURES;
    }
    if (skip)
        y[200] = NAN, y[699] = 5;
    cp_rows r = {.x = x, .y = y, .slots = ROWS, .stride = FEATURES * bytes, .y_type = CP_F64, .indices = indices,
                 .values = values, .lengths = lengths, .visit = visit, .m = ROWS};
    void *memory;
    cp_newton *s = state_of(&shape, &memory);
    pass(s, &r, CP_NEWTON_NONE);
    pass(s, &r, CP_NEWTON_GRAM);
    if (outputs == 1)
        pass(s, &r, CP_NEWTON_TRIANGLE);
    free(memory), free(x), free(y), free(visit), free(index), free(indices), free(values), free(lengths);
}

/* Solve for ones, with a column that the first two determine. */
static void solve(void)
{
    enum { N = 80 };
    static double rows[N][N], a[N][N], b[N];
    uint64_t seed = 3;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            rows[i][j] = j == 5 ? rows[i][0] + rows[i][1] : next(&seed) + 2 * (i == j);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < N; k++)
                a[i][j] += rows[k][i] * rows[k][j];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            b[i] += a[i][j];
    double least = cp_cholesky(&a[0][0], N, 1e-10), off = 0;
    cp_triangle_forward(&a[0][0], N, N, b);
    cp_triangle_back(&a[0][0], N, N, b);
    for (int j = 0; j < N; j++)
        off = fmax(off, fabs(b[j] - (j == 5 ? 0 : j < 2 ? 2 : 1)));
    printf("solve %d %d %d\n", least > 1e-8, off < 1e-8, a[5][5] == 0);
}

int main(void)
{
    for (int loss = 0; loss < CP_LOSS_COUNT; loss++)
        for (int form = 0; form < 8 && cp_newton_has((enum cp_loss)loss); form++)
            run((enum cp_loss)loss, form & 1 ? 4 : 8, (form & 2) > 0, form >> 2);
    solve();
    return 0;
}
