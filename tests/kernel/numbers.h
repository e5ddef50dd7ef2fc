/* Pseudo-random numbers, their bytes as float or double, and a hash of results. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <stddef.h>
#include <stdint.h>

static uint64_t seed = 88172645463325252ull;

static double uniform(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0 * 2 - 1;
}

static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull;
    return h;
}

static void fill(void *to, int bytes, int64_t i, double value)
{
    if (bytes == 4)
        ((float *)to)[i] = (float)value;
    else
        ((double *)to)[i] = value;
}

#endif
