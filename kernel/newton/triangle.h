/* Upper triangles R with R'R = A: by Cholesky from A, or by Householder reflections from rows; and their solutions.
 *
 * A column that the columns before it determine has a diagonal of 0 afterwards, and a solution of 0. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { CP_TRIANGLE_BLOCK = 64 }; /* pivots between updates of the remaining rows */

/* Subtract the products of the rows `from` to `to` from row i, from column i on. */
static inline void cp_triangle_update(double *a, int64_t n, int64_t from, int64_t to, int64_t i)
{
    double *restrict row = a + i * n;
    for (int64_t k = from; k < to; k++) {
        const double *restrict pivot = a + k * n, times = pivot[i];
        for (int64_t l = i; times != 0 && l < n; l++)
            row[l] -= times * pivot[l];
    }
}

/* Replace the upper triangle of A, [n, n], by R. A pivot of at most `tolerance` times its diagonal counts as 0. Returns
 * the smallest other pivot, relative to its diagonal. */
static inline double cp_cholesky(double *a, int64_t n, double tolerance)
{
    double least = 1;
    for (int64_t j = 0; j < n; j++) /* the lower triangle holds the diagonal */
        if (j + 1 < n)
            a[(j + 1) * n + j] = a[j * n + j];
    const double last = n > 0 ? a[n * n - 1] : 0;
    for (int64_t start = 0; start < n; start += CP_TRIANGLE_BLOCK) {
        const int64_t stop = start + CP_TRIANGLE_BLOCK < n ? start + CP_TRIANGLE_BLOCK : n;
        for (int64_t j = start; j < stop; j++) {
            cp_triangle_update(a, n, start, j, j);
            const double pivot = a[j * n + j], whole = j + 1 < n ? a[(j + 1) * n + j] : last;
            const int kept = pivot > tolerance * whole && whole > 0;
            const double by = kept ? 1 / sqrt(pivot) : 0;
            least = kept && pivot / whole < least ? pivot / whole : least;
            for (int64_t l = j; l < n; l++)
                a[j * n + l] *= by;
        }
        for (int64_t i = stop; i < n; i++)
            cp_triangle_update(a, n, start, stop, i);
    }
    return least;
}

/* Rotate rows, [count, stride], into the first n columns of the triangle; the rows are overwritten. The rows' columns
 * before `from` are 0. */
static inline void cp_triangle_add(double *r, int64_t n, int64_t from, double *rows, int64_t count, int64_t stride,
                                   double *restrict dots)
{
    for (int64_t j = from; j < n; j++) {
        double *restrict top = r + j * stride, square = 0, largest = 0;
        for (int64_t i = 0; i < count; i++)
            largest = fmax(largest, fabs(rows[i * stride + j]));
        if (largest == 0)
            continue;
        for (int64_t i = 0; i < count; i++)
            square += (rows[i * stride + j] / largest) * (rows[i * stride + j] / largest);
        const double old = top[j], norm = copysign(hypot(old, largest * sqrt(square)), old), head = old + norm;
        for (int64_t l = j; l < n; l++)
            dots[l] = top[l];
        for (int64_t i = 0; i < count; i++) {
            const double *restrict row = rows + i * stride, v = row[j] / head;
            for (int64_t l = j; v != 0 && l < n; l++)
                dots[l] += v * row[l];
        }
        const double scale = head / norm; /* 2 / v'v, with the head of v 1 */
        for (int64_t l = j; l < n; l++)
            top[l] -= scale * dots[l];
        for (int64_t i = 0; i < count; i++) {
            double *restrict row = rows + i * stride, v = row[j] / head * scale;
            for (int64_t l = j + 1; v != 0 && l < n; l++)
                row[l] -= v * dots[l];
            row[j] = 0;
        }
    }
}

/* Make diagonals of at most `tolerance` times their column's norm 0, and rotate what their rows hold into the rows
 * below. The last of the n columns is a right-hand side; `work` has space for 2 n doubles. Returns the smallest other
 * diagonal, relative to its column's norm. */
static inline double cp_triangle_rank(double *r, int64_t n, int64_t stride, double tolerance, double *work)
{
    double least = 1;
    for (int64_t j = 0; j + 1 < n; j++) {
        double norm = 0;
        for (int64_t i = 0; i <= j; i++)
            norm = hypot(norm, r[i * stride + j]);
        const double size = fabs(r[j * stride + j]);
        if (size > tolerance * norm && norm > 0) {
            least = size / norm < least ? size / norm : least;
            continue;
        }
        memcpy(work, r + j * stride, (size_t)n * sizeof *work);
        memset(r + j * stride, 0, (size_t)n * sizeof *work);
        work[j] = 0;
        cp_triangle_add(r, n, j + 1, work, 1, stride, work + n);
    }
    return least;
}

/* Solve R'y = b for the n unknowns, in place. */
static inline void cp_triangle_forward(const double *r, int64_t n, int64_t stride, double *b)
{
    for (int64_t j = 0; j < n; j++) {
        b[j] = r[j * stride + j] == 0 ? 0 : b[j] / r[j * stride + j];
        for (int64_t l = j + 1; b[j] != 0 && l < n; l++)
            b[l] -= r[j * stride + l] * b[j];
    }
}

/* Solve R x = b, in place. */
static inline void cp_triangle_back(const double *r, int64_t n, int64_t stride, double *b)
{
    for (int64_t j = n - 1; j >= 0; j--) {
        double sum = b[j];
        for (int64_t l = j + 1; l < n; l++)
            sum -= r[j * stride + l] * b[l];
        b[j] = r[j * stride + j] == 0 ? 0 : sum / r[j * stride + j];
    }
}
