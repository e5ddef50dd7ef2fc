/* Exact sums of doubles: the same for any order of the numbers and any split into parts. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { CP_SUM_WORDS = 68, CP_SUM_CARRY_EVERY = 1 << 29 }; /* words of 32 bits; numbers added between two carries */

/* The sum is that of word[i] * 2^(32 i - 1074), plus the non-finite numbers. It starts as zeros. */
typedef struct {
    int64_t word[CP_SUM_WORDS];
    int64_t added;      /* since the last carry */
    double nonfinite;   /* sum of the infinite and NaN numbers */
} cp_sum;

/* Bring all words but the last into 0 to 2^32 - 1. */
static inline void cp_sum_carry(cp_sum *s)
{
    for (int i = 0; i + 1 < CP_SUM_WORDS; i++) {
        int64_t over = s->word[i] >> 32;
        s->word[i] -= over * (INT64_C(1) << 32);
        s->word[i + 1] += over;
    }
    s->added = 0;
}

static inline void cp_sum_add(cp_sum *s, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52 & 0x7ff);
    if (exponent == 0x7ff) {
        s->nonfinite += x;
        return;
    }
    uint64_t digits = (bits & ((UINT64_C(1) << 52) - 1)) | (uint64_t)(exponent > 0) << 52;
    exponent -= exponent > 0;
    int at = (int)(exponent / 32);
    int shift = (int)(exponent % 32);
    int64_t low = (int64_t)((digits << shift) & 0xffffffff);
    int64_t middle = (int64_t)((digits >> (32 - shift)) & 0xffffffff);
    int64_t high = shift ? (int64_t)(digits >> (64 - shift)) : 0;
    s->word[at] += bits >> 63 ? -low : low;
    s->word[at + 1] += bits >> 63 ? -middle : middle;
    s->word[at + 2] += bits >> 63 ? -high : high;
    if (++s->added == CP_SUM_CARRY_EVERY)
        cp_sum_carry(s);
}

/* Replace the sum by its absolute value; returns whether it was negative. */
static inline int cp_sum_absolute(cp_sum *s)
{
    cp_sum_carry(s);
    if (s->word[CP_SUM_WORDS - 1] >= 0)
        return 0;
    for (int i = 0; i < CP_SUM_WORDS; i++)
        s->word[i] = -s->word[i];
    cp_sum_carry(s);
    return 1;
}

/* Return the sum, rounded once. */
static inline double cp_sum_value(cp_sum s)
{
    int top = CP_SUM_WORDS - 1, free = 0;
    uint64_t remainder;
    double value;
    if (s.nonfinite != 0) /* true for NaN too */
        return s.nonfinite;
    int negative = cp_sum_absolute(&s);
    while (top > 2 && s.word[top] == 0)
        top--;
    uint64_t head = (uint64_t)s.word[top] << 32 | (uint64_t)s.word[top - 1];
    uint64_t next = (uint64_t)s.word[top - 2];
    for (remainder = 0; head != 0 && !(head >> 63); free++) {
        head = head << 1 | next >> 31;
        next = next << 1 & 0xffffffff;
    }
    for (int i = top - 3; i >= 0; i--)
        remainder |= (uint64_t)s.word[i];
    if (head == 0)
        value = ldexp((double)next, -1074);
    else /* 64 digits and a sticky bit, so that rounding is correct */
        value = ldexp((double)(head | (uint64_t)((next | remainder) != 0)), 32 * (top - 1) - 1074 - free);
    return negative ? -value : value;
}
