/* Cholesky factorisation of a positive symmetric matrix with pivoting, and solution of equations. */
#include "symmetric.h"

#include <math.h>

#include "miscadmin.h"

#define MIN_PIVOT 1e-12 /* smallest pivot of a matrix with unit diagonal */

#define AT(i, j) s->at[(i) * s->n + (j)]

static void exchange(double *a, double *b)
{
    double old = *a;
    *a = *b;
    *b = old;
}

/* Exchange rows and columns k < p of the remaining matrix, and rows of L. */
static void exchange_rows(CorgiSymmetric *s, int64 k, int64 p)
{
    int64 row = s->order[k];
    s->order[k] = s->order[p];
    s->order[p] = row;
    for (int64 j = 0; j < k; j++)
        exchange(&AT(k, j), &AT(p, j));
    for (int64 j = k + 1; j < p; j++)
        exchange(&AT(j, k), &AT(p, j));
    for (int64 i = p + 1; i < s->n; i++)
        exchange(&AT(i, k), &AT(i, p));
    exchange(&AT(k, k), &AT(p, p));
}

/* Scale the matrix to a unit diagonal. */
static void scale_diagonal(CorgiSymmetric *s)
{
    for (int64 i = 0; i < s->n; i++) {
        s->order[i] = i;
        s->size[i] = sqrt(AT(i, i));
    }
    for (int64 i = 0; i < s->n; i++)
        for (int64 j = 0; j <= i; j++)
            AT(i, j) /= s->size[i] * s->size[j];
}

/* Factor a matrix with a positive diagonal. Stops where the remaining rows depend on earlier ones. */
void corgi_factor(CorgiSymmetric *s)
{
    scale_diagonal(s);
    for (s->rank = 0; s->rank < s->n; s->rank++) {
        int64 k = s->rank, best = k;
        double root;
        CHECK_FOR_INTERRUPTS();
        for (int64 i = k + 1; i < s->n; i++)
            best = AT(i, i) > AT(best, best) ? i : best;
        if (!(AT(best, best) > MIN_PIVOT))
            return;
        if (best != k)
            exchange_rows(s, k, best);
        AT(k, k) = root = sqrt(AT(k, k));
        for (int64 i = k + 1; i < s->n; i++)
            AT(i, k) /= root;
        for (int64 i = k + 1; i < s->n; i++)
            for (int64 j = k + 1; j <= i; j++)
                AT(i, j) -= AT(i, k) * AT(j, k);
    }
}

/* Back-substitute through the transpose of the first rows of L. */
static void substitute_back(const CorgiSymmetric *s, int64 n, double *x)
{
    for (int64 i = n - 1; i >= 0; i--) {
        for (int64 j = i + 1; j < n; j++)
            x[i] -= AT(j, i) * x[j];
        x[i] /= AT(i, i);
    }
}

/* Solve the equations of a full-rank matrix for one right side; `room` holds n numbers. */
void corgi_solve(const CorgiSymmetric *s, const double *right, double *to, double *room)
{
    for (int64 i = 0; i < s->n; i++) {
        room[i] = right[s->order[i]] / s->size[s->order[i]];
        for (int64 j = 0; j < i; j++)
            room[i] -= AT(i, j) * room[j];
        room[i] /= AT(i, i);
    }
    substitute_back(s, s->n, room);
    for (int64 i = 0; i < s->n; i++)
        to[s->order[i]] = room[i] / s->size[s->order[i]];
}

/* Compute a null vector of the scaled singular matrix, which shows the dependent rows. */
void corgi_null_vector(const CorgiSymmetric *s, double *to)
{
    double *sum = palloc(sizeof *sum * (Size) (s->rank + 1));
    for (int64 j = 0; j < s->rank; j++)
        sum[j] = AT(s->rank, j);
    substitute_back(s, s->rank, sum);
    memset(to, 0, sizeof *to * (Size) s->n);
    for (int64 j = 0; j < s->rank; j++)
        to[s->order[j]] = sum[j];
    to[s->order[s->rank]] = -1;
    pfree(sum);
}
