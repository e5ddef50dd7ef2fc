/* Template: one visit of a row. Sums use the same lanes in the same order on every CPU.
 *
 * Expects CP_REAL, the type of features, and CP(name), and undefines them. */

typedef double CP(lanes) __attribute__((vector_size(32)));
typedef CP_REAL CP(reals) __attribute__((vector_size(4 * sizeof(CP_REAL))));

typedef struct { double margin, square; } CP(products_type);

CP_DUAL_INLINE void CP(load)(const CP_REAL *x, CP(lanes) *v)
{
    CP(reals) reals;
    memcpy(&reals, x, sizeof reals);
    *v = __builtin_convertvector(reals, CP(lanes));
}

/* Return w . x and x . x. */
CP_DUAL_INLINE CP(products_type) CP(products)(const double *w, const CP_REAL *x, const int32_t *index, int64_t n)
{
    double m = 0, q = 0;
    int64_t j = 0;
    if (!index) {
        CP(lanes) a0 = {0}, a1 = {0}, b0 = {0}, b1 = {0}, v, x0, x1;
        for (; j + 8 <= n; j += 8) {
            CP(load)(x + j, &x0);
            CP(load)(x + j + 4, &x1);
            memcpy(&v, w + j, sizeof v);
            a0 += v * x0;
            b0 += x0 * x0;
            memcpy(&v, w + j + 4, sizeof v);
            a1 += v * x1;
            b1 += x1 * x1;
        }
        a0 += a1;
        b0 += b1;
        m = (a0[0] + a0[2]) + (a0[1] + a0[3]);
        q = (b0[0] + b0[2]) + (b0[1] + b0[3]);
        for (; j < n; j++) {
            m += w[j] * (double)x[j];
            q += (double)x[j] * (double)x[j];
        }
        return (CP(products_type)){m, q};
    }
    double m1 = 0, q1 = 0;
    for (; j + 2 <= n; j += 2) {
        double x0 = (double)x[j], x1 = (double)x[j + 1];
        m += w[index[j]] * x0;
        q += x0 * x0;
        m1 += w[index[j + 1]] * x1;
        q1 += x1 * x1;
    }
    for (; j < n; j++) {
        m += w[index[j]] * (double)x[j];
        q += (double)x[j] * (double)x[j];
    }
    return (CP(products_type)){m + m1, q + q1};
}

CP_DUAL_INLINE void CP(add)(double *w, const CP_REAL *x, const int32_t *index, int64_t n, double by)
{
    int64_t j = 0;
    for (; !index && j + 4 <= n; j += 4) {
        CP(lanes) v, reals;
        memcpy(&v, w + j, sizeof v);
        CP(load)(x + j, &reals);
        v += by * reals;
        memcpy(w + j, &v, sizeof v);
    }
    for (; j < n; j++)
        w[index ? index[j] : j] += by * (double)x[j];
}

CP_DUAL_INLINE int CP(finite)(const CP_REAL *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        if (x[j] - x[j] != 0)
            return 0;
    return 1;
}

/* Visit a row: evaluate it, and move its dual variables `a` unless NULL: one per output, then its weight. `pull` gets
 * the steepest gradient of variables that can move, and the flattest of those held by a bound. Returns a status. */
CP_DUAL_INLINE int CP(visit)(cp_dual *s, const cp_dual_row *row, double *a, int judged, cp_dual_pull *pull)
{
    const CP_REAL *x = (const CP_REAL *)row->x;
    double *w = CP_AT(s, double, w), *bias = CP_AT(s, double, bias), top = -INFINITY;
    int64_t best = 0;
    *pull = (cp_dual_pull){0, INFINITY};
    for (int64_t k = 0; k < s->outputs; k++, w += s->features) {
        CP(products_type) products = CP(products)(w, x, row->index, row->n);
        const double m = products.margin + bias[k], square = products.square + s->intercept;
        const double y = s->outputs == 1 ? row->label : (int64_t)row->label == k ? 1 : -1;
        if (!(m - m == 0) || !(square - square == 0))
            return CP(finite)(x, row->n) ? CP_SGD_DIVERGED : CP_SGD_BAD_VALUE;
        if (judged) {
            s->sum += row->weight * cp_dual_loss(s->loss, y * m);
            best = m > top ? k : best;
            top = m > top ? m : top;
        }
        if (!a || row->weight == 0)
            continue;
        cp_dual_point to = s->loss == CP_LOGISTIC ? cp_dual_newton(s, row->weight, y * m, square, a[k])
                                                  : cp_dual_clip(s, row->weight, y * m, square, a[k]);
        const double by = (to.a - a[k]) * y, size = to.slope < 0 ? -to.slope : to.slope;
        pull->free = !to.held && size > pull->free ? size : pull->free;
        pull->held = to.held && size < pull->held ? size : pull->held;
        if (by != 0) {
            a[k] = to.a;
            CP(add)(w, x, row->index, row->n, by);
            bias[k] += s->intercept ? by : 0;
        }
    }
    if (a && s->weighted)
        a[s->outputs] = row->weight;
    if (judged) {
        s->rows++;
        s->weight += row->weight;
        s->correct += (s->outputs == 1 ? (top > 0) == (row->label > 0) : best == (int64_t)row->label) ? row->weight : 0;
    }
    return CP_SGD_OK;
}

/* Visit rows in the order of r->visit; `a` NULL: only to evaluate them. Returns the number visited, fewer than all on
 * an error. */
static __attribute__((noinline)) int64_t CP(learn)(cp_dual *s, const cp_rows *r, const int64_t *number, double *a,
                                                   int *status)
{
    cp_dual_row row;
    cp_dual_pull pull;
    for (int64_t i = 0; i < r->m; i++) {
        cp_dual_prefetch(s, r, number, a, i);
        if ((*status = cp_dual_read_row(s, r, i, &row))
            || (s->sparse && (*status = cp_check_indices(row.index, row.n, s->features)))
            || (*status = CP(visit)(s, &row, a ? a + number[i] * s->stride : NULL, 1, &pull)))
            return i;
    }
    return r->m;
}

/* Revisit learnt rows while they are in memory, each pass in another order. Skips variables that a bound holds more
 * firmly than any moved in the previous pass. Ends when none could move by `still`. */
static __attribute__((noinline)) void CP(again)(cp_dual *s, const cp_rows *r, const int64_t *number, double *a,
                                                int32_t *places, int64_t passes, double still, uint64_t key)
{
    cp_dual_row row;
    cp_dual_pull pull;
    double last = INFINITY, most = 0;
    int64_t left = r->m;
    for (int64_t i = 0; i < left; i++)
        places[i] = (int32_t)i;
    for (int64_t pass = 0; pass < passes && left > 0; pass++, last = most) {
        most = 0;
        cp_shuffle32(places, (uint64_t)left, cp_derive2(key, (uint64_t)pass));
        for (int64_t i = 0; i < left; i++) {
            int64_t at = places[i];
            if (cp_dual_read_row(s, r, at, &row) || CP(visit)(s, &row, a + number[at] * s->stride, 0, &pull))
                return;
            most = pull.free > most ? pull.free : most;
            if (pull.free == 0 && pull.held > last)
                places[i--] = places[--left];
        }
        if (most <= still)
            return;
        if (s->loss == CP_LOGISTIC && most <= s->near) {
            if (s->near <= still || s->near <= CP_DUAL_MIN_GRADIENT)
                return;
            s->near *= 0.1; /* all are solved to the current precision: increase it */
        }
    }
}

#undef CP_REAL
#undef CP
