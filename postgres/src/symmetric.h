/* Positive symmetric matrices and their pivoted factor L. Included by summary.c. */
#pragma once

#include "postgres.h"

typedef struct {
    double *at;             /* [n][n]: lower half of the matrix, then of L */
    double *size;           /* [n]: roots of the diagonal, which scale it to 1 */
    int64 *order;           /* [n]: matrix row of each row of L */
    int64 n, rank;          /* rank: numerically independent rows */
} CorgiSymmetric;

extern void corgi_factor(CorgiSymmetric *s);
extern void corgi_solve(const CorgiSymmetric *s, const double *right, double *to, double *room);
extern void corgi_null_vector(const CorgiSymmetric *s, double *to);
