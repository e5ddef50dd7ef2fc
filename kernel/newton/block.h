/* Template: sums over one block of rows. Every instruction set does the same operations in the same order.
 *
 * Expects CP_VECTOR, the bytes of a native vector, and CP(name). */

enum { CP(wide) = CP_VECTOR / 8 };
typedef double CP(vector) __attribute__((vector_size(CP_VECTOR)));

/* Add the row of `lane->row` to the open block. */
static void CP(place)(const cp_newton *s, cp_newton_lane *a)
{
    for (int64_t q = 0; q < s->padded; q += CP_NEWTON_PANEL)
        memcpy(a->z + q * CP_NEWTON_ROWS + a->filled * CP_NEWTON_PANEL, a->row + q, CP_NEWTON_PANEL * sizeof *a->z);
}

/* Write z of a row to `lane->row`. Returns a status. */
static int CP(read_row)(const cp_newton *s, cp_newton_lane *a, const void *x, const int32_t *index, int64_t n)
{
    const double *restrict center = s->center, *restrict factor = s->factor;
    const int64_t features = s->form.features;
    double *restrict z = a->row + s->offset;
    int bad = 0, status = s->form.sparse ? cp_check_indices(index, n, features) : CP_SGD_OK;
    if (status)
        return status;
    a->row[0] = 1; /* without an intercept, the first feature follows */
    if (s->form.sparse) {
        for (int64_t j = 0; j < features; j++)
            z[j] = -center[j] * factor[j];
        for (int64_t i = 0; i < n; i++) {
            const double value = s->form.bytes == 4 ? (double)((const float *)x)[i] : ((const double *)x)[i];
            z[index[i]] = (value - center[index[i]]) * factor[index[i]];
        }
    } else if (s->form.bytes == 4)
        for (int64_t j = 0; j < features; j++)
            z[j] = ((double)((const float *)x)[j] - center[j]) * factor[j];
    else
        for (int64_t j = 0; j < features; j++)
            z[j] = (((const double *)x)[j] - center[j]) * factor[j];
    for (int64_t j = 0; j < features; j++)
        bad |= !(z[j] - z[j] == 0);
    return bad ? CP_SGD_BAD_VALUE : CP_SGD_OK;
}

/* Write the margins of the block's rows for one output. */
static void CP(margins)(const cp_newton *s, const cp_newton_lane *a, const double *restrict w, double *margin)
{
    for (int64_t r = 0; r < a->filled; r++) {
        double sum[CP_NEWTON_PANEL] = {0};
        for (int64_t q = 0; q < s->padded; q += CP_NEWTON_PANEL) {
            const double *restrict z = a->z + q * CP_NEWTON_ROWS + r * CP_NEWTON_PANEL;
            for (int c = 0; c < CP_NEWTON_PANEL; c++)
                sum[c] += w[q + c] * z[c];
        }
        for (int half = CP_NEWTON_PANEL / 2; half > 0; half /= 2)
            for (int c = 0; c < half; c++)
                sum[c] += sum[c + half];
        margin[r] = sum[0];
    }
}

/* Add slope z of the block's rows to the gradient: by blocks, or, `exact`, row by row with the rounding of products
 * and sums (Dekker 1971; Knuth). */
static inline void CP(gradient)(const cp_newton *s, cp_newton_lane *a, const double *slope, double *high, double *low,
                                const int exact)
{
    const double split = 134217729;
    for (int64_t q = 0; q < s->padded; q += CP_NEWTON_PANEL) {
        const double *restrict z = a->z + q * CP_NEWTON_ROWS;
        double sum[CP_NEWTON_PANEL] = {0}, lost[CP_NEWTON_PANEL] = {0};
        for (int64_t r = 0; r < a->filled; r++, z += CP_NEWTON_PANEL) {
            const double g = slope[r], g_high = g * split - (g * split - g), g_low = g - g_high;
            for (int c = 0; c < CP_NEWTON_PANEL; c++) {
                const double p = g * z[c];
                if (!exact) {
                    sum[c] += p;
                    continue;
                }
                const double t = z[c] * split, z_high = t - (t - z[c]), z_low = z[c] - z_high;
                const double off = ((g_high * z_high - p) + g_high * z_low + g_low * z_high) + g_low * z_low;
                const double next = sum[c] + p, back = next - sum[c];
                lost[c] += ((sum[c] - (next - back)) + (p - back)) + off;
                sum[c] = next;
            }
        }
        for (int c = 0; c < CP_NEWTON_PANEL; c++) {
            const double next = high[q + c] + sum[c], back = next - high[q + c];
            low[q + c] += ((high[q + c] - (next - back)) + (sum[c] - back)) + lost[c];
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

/* End a block: add its rows to the sums. */
static __attribute__((noinline)) void CP(sum_block)(const cp_newton *s, cp_newton_lane *a)
{
    const int64_t outputs = s->form.outputs;
    for (int64_t k = 0; k < outputs; k++)
        CP(margins)(s, a, s->weights + k * s->padded, a->slope + k * CP_NEWTON_ROWS);
    cp_newton_points(s, a);
    for (int64_t k = 0; k < outputs; k++) {
        double *slope = a->slope + k * CP_NEWTON_ROWS, *high = a->high + k * s->padded, *low = a->low + k * s->padded;
        if (s->pass == CP_NEWTON_NONE)
            CP(gradient)(s, a, slope, high, low, 1);
        else
            CP(gradient)(s, a, slope, high, low, 0);
    }
    if (s->pass == CP_NEWTON_TRIANGLE)
        CP(rotate)(s, a);
    for (int64_t at = 0, k, l; s->pass == CP_NEWTON_GRAM && at < s->pairs; at++) {
        cp_newton_pair(s, at, &k, &l);
        CP(gram)(s, a, cp_newton_curve(s, a, k, l), a->matrix + at * s->padded * s->padded);
    }
    a->filled = 0;
}

#undef CP_VECTOR
#undef CP
