/* Factors a positive symmetric matrix by Cholesky with the largest pivot first, and solves equations by it. */
#include "symmetric.h"

#include <math.h>

#include "miscadmin.h"

#define SINGULAR 1e-12 /* a pivot, of a matrix whose diagonal is 1: what is left of a row beside those before */

#define AT(i, j) s->at[(i) * s->n + (j)]

static void exchange(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* Exchange two rows and columns, k < p, of what is left, and of the rows of L. */
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

/* Divide the matrix so that its diagonal is 1; its rows may have any scale. */
static void level(CorgiSymmetric *s)
{
    for (int64 i = 0; i < s->n; i++) {
        s->order[i] = i;
        s->size[i] = sqrt(AT(i, i));
    }
    for (int64 i = 0; i < s->n; i++)
        for (int64 j = 0; j <= i; j++)
            AT(i, j) /= s->size[i] * s->size[j];
}

/* Factor the matrix, whose diagonal is positive; ends where only sums of the rows before are left. */
void corgi_factor(CorgiSymmetric *s)
{
    level(s);
    for (s->rank = 0; s->rank < s->n; s->rank++) {
        int64 k = s->rank, best = k;
        double root;
        CHECK_FOR_INTERRUPTS();
        for (int64 i = k + 1; i < s->n; i++)
            best = AT(i, i) > AT(best, best) ? i : best;
        if (!(AT(best, best) > SINGULAR))
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

/* Turn values by the first rows of L back through its transpose. */
static void back(const CorgiSymmetric *s, int64 n, double *x)
{
    for (int64 i = n - 1; i >= 0; i--) {
        for (int64 j = i + 1; j < n; j++)
            x[i] -= AT(j, i) * x[j];
        x[i] /= AT(i, i);
    }
}

/* Solve the equations of a matrix of full rank for one right side; `room` is for n numbers. */
void corgi_solve(const CorgiSymmetric *s, const double *right, double *to, double *room)
{
    for (int64 i = 0; i < s->n; i++) {
        room[i] = right[s->order[i]] / s->size[s->order[i]];
        for (int64 j = 0; j < i; j++)
            room[i] -= AT(i, j) * room[j];
        room[i] /= AT(i, i);
    }
    back(s, s->n, room);
    for (int64 i = 0; i < s->n; i++)
        to[s->order[i]] = room[i] / s->size[s->order[i]];
}

/* Find a vector that the divided matrix, which has no full rank, makes nothing of: which rows add up to another. */
void corgi_null_vector(const CorgiSymmetric *s, double *to)
{
    double *sum = palloc(sizeof *sum * (Size) (s->rank + 1));
    for (int64 j = 0; j < s->rank; j++)
        sum[j] = AT(s->rank, j);
    back(s, s->rank, sum);
    memset(to, 0, sizeof *to * (Size) s->n);
    for (int64 j = 0; j < s->rank; j++)
        to[s->order[j]] = sum[j];
    to[s->order[s->rank]] = -1;
    pfree(sum);
}
