/* Template: sums over one block of rows. Every instruction set does the same operations in the same order.
 *
 * Expects CP_VECTOR, the bytes of a native vector, and CP_ISA, the set's name. */

#define CP(name) CP_NEWTON_PASTE(name, CP_ISA)

enum { CP(wide) = CP_VECTOR / 8 };
typedef double CP(vector) __attribute__((vector_size(CP_VECTOR)));

/* Write the z of a row of the open block: (number - center) * factor. */
#define CP_NEWTON_PLACE(name, real) \
    static inline __attribute__((always_inline)) void CP(name)(const cp_newton *s, cp_newton_lane *a, \
                                                               const real *restrict x) \
    { \
        for (int64_t q = 0; q < s->form.features; q += CP_NEWTON_PANEL, x += CP_NEWTON_PANEL) { \
            double *restrict z = a->z + q * CP_NEWTON_ROWS + a->filled * CP_NEWTON_PANEL; \
            const double *restrict center = s->center + q, *restrict factor = s->factor + q; \
            const int64_t n = s->form.features - q; \
            for (int c = 0; n >= CP_NEWTON_PANEL && c < CP_NEWTON_PANEL; c++) \
                z[c] = ((double)x[c] - center[c]) * factor[c]; \
            for (int c = 0; n < CP_NEWTON_PANEL && c < n; c++) \
                z[c] = ((double)x[c] - center[c]) * factor[c]; \
        } \
    }
CP_NEWTON_PLACE(place_f32, float)
CP_NEWTON_PLACE(place_f64, double)
#undef CP_NEWTON_PLACE

/* Write a sparse row by way of `lane->row`, which is 0 before and after. Returns a status. */
static int CP(place_sparse)(const cp_newton *s, cp_newton_lane *a, const void *x, const int32_t *index, int64_t n)
{
    const int status = cp_check_indices(index, n, s->form.features);
    if (status)
        return status;
    for (int64_t i = 0; i < n; i++)
        a->row[index[i]] = s->form.bytes == 4 ? (double)((const float *)x)[i] : ((const double *)x)[i];
    CP(place_f64)(s, a, a->row);
    for (int64_t i = 0; i < n; i++)
        a->row[index[i]] = 0;
    return CP_SGD_OK;
}

/* Write the margins of the block's rows from `first` on for one output. */
static inline void CP(margins)(const cp_newton *s, const cp_newton_lane *a, int64_t first, const double *w,
                               double *margin)
{
    enum { parts = CP_NEWTON_PANEL / CP(wide) };
    for (int64_t r = first; r < a->filled; r++) {
        CP(vector) sum[parts] = {{0}}, x, y;
        double t[CP_NEWTON_PANEL];
        for (int64_t q = 0; q < s->padded; q += CP_NEWTON_PANEL)
            for (int v = 0; v < parts; v++) {
                memcpy(&x, w + q + v * CP(wide), sizeof x);
                memcpy(&y, a->z + q * CP_NEWTON_ROWS + r * CP_NEWTON_PANEL + v * CP(wide), sizeof y);
                sum[v] += x * y;
            }
        memcpy(t, sum, sizeof t);
        margin[r] = (((t[0] + t[8]) + (t[4] + t[12])) + ((t[2] + t[10]) + (t[6] + t[14])))
                    + (((t[1] + t[9]) + (t[5] + t[13])) + ((t[3] + t[11]) + (t[7] + t[15])));
    }
}

/* Add rows of a chunk to the open block, with their margins. Returns whether all are sound: a number that is not finite
 * makes a margin so. */
static __attribute__((noinline)) int CP(take)(const cp_newton *s, cp_newton_lane *a, const cp_chunk *c, int64_t from,
                                              int64_t n)
{
    const int64_t first = a->filled;
    int status = CP_SGD_OK, bad = 0;
    for (int64_t i = from; i < from + n; i++, a->filled++) {
        a->label[a->filled] = c->label[i];
        a->weight[a->filled] = c->weight[i];
        if (s->form.sparse)
            status |= CP(place_sparse)(s, a, c->row[i], c->index[i], c->length[i]);
        else if (s->form.bytes == 4)
            CP(place_f32)(s, a, (const float *)(const void *)c->row[i]);
        else
            CP(place_f64)(s, a, (const double *)(const void *)c->row[i]);
    }
    for (int64_t k = 0; k < s->form.outputs; k++)
        CP(margins)(s, a, first, s->weights + k * s->padded, a->slope + k * CP_NEWTON_ROWS);
    for (int64_t r = first; r < a->filled; r++)
        bad |= !(a->slope[r] - a->slope[r] == 0);
    return !status && !bad;
}

/* Add slope z of the block's rows to the gradient, and what that rounds away to `low`. */
static inline void CP(gradient)(const cp_newton *s, const cp_newton_lane *a, const double *slope, double *high,
                                double *low)
{
    for (int64_t q = 0; q < s->padded; q += CP_NEWTON_PANEL) {
        const double *restrict z = a->z + q * CP_NEWTON_ROWS;
        double sum[CP_NEWTON_PANEL] = {0};
        for (int64_t r = 0; r < a->filled; r++, z += CP_NEWTON_PANEL)
            for (int c = 0; c < CP_NEWTON_PANEL; c++)
                sum[c] += slope[r] * z[c];
        for (int c = 0; c < CP_NEWTON_PANEL; c++) {
            const double next = high[q + c] + sum[c], back = next - high[q + c];
            low[q + c] += (high[q + c] - (next - back)) + (sum[c] - back);
            high[q + c] = next;
        }
    }
}

/* Add to four rows of the matrix, and two vectors of its columns. */
static inline __attribute__((always_inline)) void CP(tile)(const double *left, const double *right, int64_t rows,
                                                           double *matrix, int64_t stride)
{
    CP(vector) sum[4][2] = {{{0}}}, x, y;
    for (int64_t r = 0; r < rows; r++, left += CP_NEWTON_PANEL, right += CP_NEWTON_PANEL) {
        memcpy(&x, right, sizeof x);
        memcpy(&y, right + CP(wide), sizeof y);
        for (int i = 0; i < 4; i++) {
            sum[i][0] += left[i] * x;
            sum[i][1] += left[i] * y;
        }
    }
    for (int i = 0; i < 4; i++)
        for (int v = 0; v < 2; v++) {
            double *to = matrix + i * stride + v * CP(wide);
            memcpy(&x, to, sizeof x);
            x += sum[i][v];
            memcpy(to, &x, sizeof x);
        }
}

/* Add the products of the block's columns, weighted by `curve`, to the upper panels of a matrix. */
static void CP(gram)(const cp_newton *s, cp_newton_lane *a, const double *curve, double *matrix)
{
    const int panel = CP_NEWTON_PANEL;
    for (int64_t i = 0; i < s->width; i += panel) {
        const double *z = a->z + i * CP_NEWTON_ROWS;
        for (int64_t r = 0; r < a->filled; r++)
            for (int c = 0; c < panel; c++)
                a->scaled[r * panel + c] = curve[r] * z[r * panel + c];
        for (int64_t j = i; j < s->width; j += panel)
            for (int at = 0; at < panel && i + at < s->width; at += 4)
                for (int by = 0; by < panel && j + by < s->width; by += 2 * CP(wide))
                    if (j + by + 2 * CP(wide) > i + at)
                        CP(tile)(a->scaled + at, a->z + j * CP_NEWTON_ROWS + by, a->filled,
                                 matrix + (i + at) * s->padded + j + by, s->padded);
    }
}

/* Rotate the block's rows, times the root of their curvature, into the triangle; z is overwritten. */
static void CP(rotate)(const cp_newton *s, cp_newton_lane *a)
{
    const int64_t n = s->width + 1;
    for (int64_t r = 0; r < a->filled; r++) {
        const double root = sqrt(a->curve[r]);
        double *row = a->row;
        for (int64_t q = 0; q < s->padded; q += CP_NEWTON_PANEL)
            for (int c = 0; c < CP_NEWTON_PANEL; c++)
                row[q + c] = root * a->z[q * CP_NEWTON_ROWS + r * CP_NEWTON_PANEL + c];
        row[s->width] = root > 0 ? -a->slope[r] / root : 0;
        cp_triangle_add(a->matrix, n, 0, row, 1, s->padded, row + s->padded);
    }
}

/* Turn the margins of LOGISTIC into slopes and curvatures, many rows at a time; add the rows' losses. */
static void CP(logistic)(cp_newton_lane *a)
{
    double margin[CP_NEWTON_ROWS], *restrict slope = a->slope, *restrict curve = a->curve, *restrict value = a->pair;
    const double *restrict label = a->label, *restrict weight = a->weight;
    memcpy(margin, slope, sizeof margin);
    for (int64_t r = 0; r < a->filled; r++) {
        const cp_newton_point at = cp_newton_logistic(label[r] * margin[r], label[r]);
        value[r] = at.value;
        slope[r] = weight[r] * at.slope;
        curve[r] = weight[r] * at.curve;
    }
    for (int64_t r = 0; r < a->filled; r++) {
        a->totals.rows++;
        a->totals.weight += weight[r];
        cp_newton_count(&a->totals, value[r], weight[r]);
        cp_newton_count_side(&a->totals, margin[r], label[r], weight[r]);
    }
}

/* End a block: add its rows to the sums. */
static __attribute__((noinline)) void CP(sum_block)(const cp_newton *s, cp_newton_lane *a)
{
    const int64_t outputs = s->form.outputs;
    if (s->form.loss == CP_LOGISTIC)
        CP(logistic)(a);
    else
        cp_newton_points(s, a);
    for (int64_t k = 0; k < outputs; k++)
        CP(gradient)(s, a, a->slope + k * CP_NEWTON_ROWS, a->high + k * s->padded, a->low + k * s->padded);
    if (s->pass == CP_NEWTON_TRIANGLE)
        CP(rotate)(s, a);
    for (int64_t at = 0, k, l; s->pass == CP_NEWTON_GRAM && at < s->pairs; at++) {
        cp_newton_pair(s, at, &k, &l);
        CP(gram)(s, a, cp_newton_curve(s, a, k, l), a->matrix + at * s->padded * s->padded);
    }
    a->filled = 0;
}

#undef CP
