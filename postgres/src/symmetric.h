/* Positive symmetric matrices: their factor L, rows and columns in the order of their pivots. Included by summary.c. */
#ifndef CORGI_SYMMETRIC_H
#define CORGI_SYMMETRIC_H

#include "postgres.h"

typedef struct {
    double *at;             /* [n][n]: the lower half of the matrix, then that of L */
    double *size;           /* [n]: roots of the diagonal, by which the matrix is divided so that its own is 1 */
    int64 *order;           /* [n]: the row of the matrix that each of L is of */
    int64 n, rank;          /* rank: rows that are no sums of those before, as far as numbers tell */
} CorgiSymmetric;

extern void corgi_factor(CorgiSymmetric *s);
extern void corgi_solve(const CorgiSymmetric *s, const double *right, double *to, double *room);
extern void corgi_null_vector(const CorgiSymmetric *s, double *to);

#endif
