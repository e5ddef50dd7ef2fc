/* Coordinate descent for quadratic models with an L1 penalty. */
#pragma once

#include <float.h>
#include <math.h>
#include <stdint.h>

/* Minimise slope'd + d'Ad / 2 + the sum of l1 |w + d|, coordinate by coordinate, at most `sweeps` times; w becomes
 * w + d, slope becomes slope + Ad. Returns whether the last sweep changed more than the rounding of the largest w. */
static inline int cp_shrink(const double *restrict a, int64_t n, const double *restrict l1, int64_t sweeps,
                            double *restrict slope, double *restrict w)
{
    const double rounding = 1e-12; /* of l1: a weight of 0 stays 0 */
    double moved = 1, largest = 0;
    for (int64_t sweep = 0; moved > DBL_EPSILON * largest && sweep < sweeps; sweep++) {
        moved = largest = 0;
        for (int64_t j = 0; j < n; j++) {
            const double *restrict row = a + j * n, curve = row[j];
            const double to = w[j] * curve - slope[j], size = fabs(to) - l1[j];
            const double flat = l1[j] > 0 ? 0 : w[j]; /* the optimum without curvature */
            const double next = !(curve > 0) ? flat : size > rounding * l1[j] ? copysign(size, to) / curve : 0;
            const double by = next - w[j], unit = curve > 0 ? sqrt(curve) : 0;
            for (int64_t k = 0; by != 0 && k < n; k++)
                slope[k] += by * row[k];
            moved = fmax(moved, fabs(by) * unit);
            largest = fmax(largest, fabs(next) * unit);
            w[j] = next;
        }
    }
    return moved > DBL_EPSILON * largest;
}
