/* Parses decimal numbers as the nearest float or double, ties to even, in any locale. It uses Clinger's exact case
 * (1990), else a product with a 128-bit power of five (Eisel and Lemire, Software: Practice and Experience 2021), else,
 * for more than 19 digits that this does not decide, big integers. Reads nothing beyond the bytes given. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define CP_MIN_POWER (-342) /* smaller powers of ten make every 64-bit number zero */
#define CP_MAX_POWER 308    /* larger ones make it infinite */
#define CP_MAX_DIGITS 800   /* significant digits that decide: midpoints between doubles have up to 767 */
#define CP_BIG_WORDS 192    /* words of the big integers: 10^800, 5^1142 and 2^1100 fit */

typedef struct {
    uint64_t digits;         /* up to 19 significant ones */
    int64_t scale;           /* power of ten of the last digit */
    const char *text, *stop; /* begin and end of the digits and the point */
    int negative;
    int more; /* nonzero digits follow */
} cp_decimal;

/* A format of IEEE 754. */
typedef struct {
    int bits;             /* of the fraction */
    int least;            /* exponent stored as 0 */
    int infinite;         /* stored exponent of infinity */
    int64_t from, to;     /* powers of ten beyond which all is zero, or infinity */
    int64_t even, uneven; /* powers of ten between which a product may be a midpoint */
    int64_t exact;        /* largest exact power of ten */
} cp_binary;

static const cp_binary cp_binary64 = {52, -1023, 0x7ff, CP_MIN_POWER, CP_MAX_POWER, -4, 23, 22};
static const cp_binary cp_binary32 = {23, -127, 0xff, -64, 38, -17, 10, 10};

/* The first 128 bits of powers of five: positive ones truncated, reciprocals up to 5^-27 rounded up, others
 * truncated. */
static uint64_t cp_fives[CP_MAX_POWER - CP_MIN_POWER + 1][2];
static pthread_once_t cp_fives_once = PTHREAD_ONCE_INIT;

/* Set the first 128 bits of a number of 32-bit words, least significant first. */
static inline void cp_five_top(const uint32_t *words, int count, uint64_t *high, uint64_t *low)
{
    unsigned __int128 top = 0;
    int taken = 0;
    while (count && !words[count - 1])
        count--;
    for (; count && taken < 5; count--, taken++) {
        if (taken < 4) {
            top = top << 32 | words[count - 1];
            continue;
        }
        int zeros = __builtin_clzll((uint64_t)(top >> 64));
        top = zeros ? top << zeros | words[count - 1] >> (32 - zeros) : top;
    }
    while (!(top >> 127))
        top <<= 1;
    *high = (uint64_t)(top >> 64);
    *low = (uint64_t)top;
}

static inline void cp_fives_fill(void)
{
    uint32_t words[36] = {1};
    for (int power = 0; power <= CP_MAX_POWER; power++) {
        uint64_t *five = cp_fives[power - CP_MIN_POWER], carry = 0;
        cp_five_top(words, 36, &five[0], &five[1]);
        for (int i = 0; i < 36; i++, carry >>= 32)
            words[i] = (uint32_t)(carry += (uint64_t)words[i] * 5);
    }
    memset(words, 0, sizeof words);
    words[35] = (uint32_t)1 << 31; /* 2^1151 */
    for (int power = -1; power >= CP_MIN_POWER; power--) {
        uint64_t *five = cp_fives[power - CP_MIN_POWER], remainder = 0;
        for (int i = 35; i >= 0; i--) {
            remainder = remainder << 32 | words[i];
            words[i] = (uint32_t)(remainder / 5);
            remainder %= 5;
        }
        cp_five_top(words, 36, &five[0], &five[1]);
        if (power >= -27 && !++five[1])
            five[0]++;
    }
}

/* Fill the table of powers of five, once; required before numbers are parsed. */
static inline void cp_number_begin(void)
{
    pthread_once(&cp_fives_once, cp_fives_fill);
}

/* Return the number of eight digits, each a byte from 0 to 9, the first in the lowest byte. */
static inline uint64_t cp_eight(uint64_t v)
{
    const uint64_t mask = 0x000000ff000000ff;
    v = v * 10 + (v >> 8);
    return (uint32_t)(((v & mask) * 0x000f424000000064 + (v >> 16 & mask) * 0x0000271000000001) >> 32);
}

/* Parse digits that follow those in `number`; returns their end. */
static inline const char *cp_digits(const char *p, const char *end, uint64_t *number)
{
    static const uint32_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    while (end - p >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        v ^= 0x3030303030303030;
        /* Carries from the first byte above 9 on do not matter. */
        uint64_t others = ((v + 0x7676767676767676) | v) & 0x8080808080808080;
        int count = others ? __builtin_ctzll(others) >> 3 : 8;
        if (!count)
            return p;
        *number = *number * tens[count] + cp_eight(v << (64 - 8 * count));
        p += count;
        if (count < 8)
            return p;
    }
    for (; p < end && (unsigned char)(*p - '0') <= 9; p++)
        *number = *number * 10 + (uint64_t)(*p - '0');
    return p;
}

/* Parse the exponent after e or E at `p`; returns its end, or NULL if it has no digits. */
static inline const char *cp_exponent(const char *p, const char *end, int64_t *scale)
{
    int64_t exponent = 0;
    p++;
    int negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *digits = p;
    for (; p < end && (unsigned char)(*p - '0') <= 9; p++)
        exponent = exponent < (int64_t)1 << 48 ? exponent * 10 + (*p - '0') : exponent;
    *scale += negative ? -exponent : exponent;
    return p == digits ? NULL : p;
}

/* Parse the digits again if there are more than 19, or leading zeros. */
static inline void cp_decimal_long(cp_decimal *d)
{
    int64_t digits_read = 0, behind = 0, point = 0;
    d->digits = 0;
    d->scale = 0;
    for (const char *p = d->text; p < d->stop; p++) {
        if (*p == '.') {
            point = 1;
            continue;
        }
        digits_read += digits_read || *p != '0';
        if (digits_read <= 19)
            d->digits = d->digits * 10 + (uint64_t)(*p - '0');
        else
            behind |= *p != '0';
        d->scale += (digits_read > 19) - point;
    }
    d->more = behind != 0;
}

#ifdef __SSE2__
/* Parse a decimal of at most 15 digits and 16 bytes, the common case, without branches on its length; 32 bytes must be
 * readable. Returns its end, or NULL for other forms. */
static inline const char *cp_decimal_short(const char *p, cp_decimal *d)
{
    static const uint64_t tens[] = {1,          10,          100,          1000,          10000,          100000,
                                    1000000,    10000000,    100000000,    1000000000,    10000000000,    100000000000,
                                    1000000000000, 10000000000000, 100000000000000};
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i digits = _mm_cmpgt_epi8(_mm_add_epi8(bytes, _mm_set1_epi8(127 - '9')), _mm_set1_epi8(117));
    unsigned others = ~(unsigned)_mm_movemask_epi8(digits) & 0xffff, behind = others & (others - 1);
    int whole = others ? __builtin_ctz(others) : 16, count = 0;
    uint64_t number;
    if (!whole || whole > 8)
        return NULL;
    memcpy(&number, p, 8);
    number = cp_eight((number ^ 0x3030303030303030) << (64 - 8 * whole));
    if (p[whole] == '.') {
        unsigned __int128 fraction;
        count = behind ? __builtin_ctz(behind) - whole - 1 : 0;
        if (!count)
            return NULL;
        memcpy(&fraction, p + whole + 1, 16);
        fraction ^= (unsigned __int128)0x3030303030303030 << 64 | 0x3030303030303030;
        fraction <<= 128 - 8 * count;
        number = number * tens[count] + cp_eight((uint64_t)fraction) * 100000000 + cp_eight((uint64_t)(fraction >> 64));
    }
    d->digits = number;
    d->scale = -count;
    p += whole + (count ? count + 1 : 0);
    return (*p | 32) == 'e' ? NULL : p;
}
#endif

/* Parse a decimal: digits with an optional point, sign and exponent. Returns its end, or NULL if there is none. */
static inline const char *cp_decimal_read(const char *p, const char *end, cp_decimal *d)
{
    char first = p < end ? *p : 0;
    d->negative = first == '-';
    d->more = 0;
    p += (first == '-') | (first == '+');
#ifdef __SSE2__
    const char *stop = end - p >= 32 ? cp_decimal_short(p, d) : NULL;
    if (stop)
        return stop;
#endif
    d->digits = 0;
    d->scale = 0;
    d->text = p;
    int64_t point = 0;
    p = cp_digits(p, end, &d->digits);
    if (p < end && *p == '.') {
        const char *fraction = ++p;
        point = 1;
        p = cp_digits(p, end, &d->digits);
        d->scale = fraction - p;
    }
    d->stop = p;
    int64_t count = p - d->text - point;
    if (!count)
        return NULL;
    if (count > 19)
        cp_decimal_long(d);
    return p < end && (*p | 32) == 'e' ? cp_exponent(p, end, &d->scale) : p;
}

/* Return the bits, without the sign, of digits times a power of ten, rounded. */
static inline uint64_t cp_nearest(uint64_t digits, int64_t power, const cp_binary *b)
{
    uint64_t infinity = (uint64_t)b->infinite << b->bits;
    if (!digits || power < b->from)
        return 0;
    if (power > b->to)
        return infinity;
    int zeros = __builtin_clzll(digits);
    const uint64_t *five = cp_fives[power - CP_MIN_POWER], mask = ~(uint64_t)0 >> (b->bits + 3);
    unsigned __int128 product = (unsigned __int128)(digits << zeros) * five[0];
    if (((uint64_t)(product >> 64) & mask) == mask)
        product += (unsigned __int128)(digits << zeros) * five[1] >> 64;
    uint64_t high = (uint64_t)(product >> 64);
    int above = (int)(high >> 63), shift = above + 61 - b->bits;
    uint64_t fraction = high >> shift;
    int64_t exponent = ((217706 * power) >> 16) + 63 + above - zeros - b->least;
    if (exponent <= 0) { /* subnormal */
        if (exponent <= -63)
            return 0;
        fraction >>= 1 - exponent;
        return (fraction + (fraction & 1)) >> 1; /* may become normal, and its bits are then right */
    }
    if ((uint64_t)product <= 1 && power >= b->even && power <= b->uneven && (fraction & 3) == 1 &&
        fraction << shift == high)
        fraction &= ~(uint64_t)1; /* a midpoint, and the lower number is even */
    fraction = (fraction + (fraction & 1)) >> 1;
    if (fraction >> (b->bits + 1)) {
        fraction >>= 1;
        exponent++;
    }
    return exponent >= b->infinite ? infinity
                                   : (uint64_t)exponent << b->bits | (fraction & (((uint64_t)1 << b->bits) - 1));
}

/* A big integer, least significant word first. */
typedef struct {
    uint32_t word[CP_BIG_WORDS];
    int words;
} cp_big;

static inline void cp_big_times(cp_big *n, uint32_t factor, uint32_t plus)
{
    uint64_t carry = plus;
    for (int i = 0; i < n->words; i++, carry >>= 32)
        n->word[i] = (uint32_t)(carry += (uint64_t)n->word[i] * factor);
    if (carry)
        n->word[n->words++] = (uint32_t)carry;
}

static inline void cp_big_fives(cp_big *n, int64_t power)
{
    for (; power >= 13; power -= 13)
        cp_big_times(n, 1220703125, 0);
    for (; power > 0; power--)
        cp_big_times(n, 5, 0);
}

static inline void cp_big_twos(cp_big *n, int64_t power)
{
    for (; power >= 31; power -= 31)
        cp_big_times(n, (uint32_t)1 << 31, 0);
    cp_big_times(n, (uint32_t)1 << power, 0);
}

static inline int cp_big_compare(const cp_big *a, const cp_big *b)
{
    if (a->words != b->words)
        return a->words < b->words ? -1 : 1;
    for (int i = a->words - 1; i >= 0; i--)
        if (a->word[i] != b->word[i])
            return a->word[i] < b->word[i] ? -1 : 1;
    return 0;
}

/* Compare all digits of a decimal with the midpoint between the number of these bits and the next. */
static inline int cp_halfway(const cp_decimal *d, uint64_t bits, const cp_binary *b)
{
    cp_big decimal = {{0}, 0}, half = {{0}, 0};
    int64_t digits_read = 0, ten = d->scale + 19, behind = 0;
    for (const char *p = d->text; p < d->stop; p++) {
        if (*p == '.' || (!digits_read && *p == '0'))
            continue;
        if (digits_read++ >= CP_MAX_DIGITS)
            behind |= *p != '0';
        else
            cp_big_times(&decimal, 10, (uint32_t)(*p - '0'));
    }
    ten -= digits_read < CP_MAX_DIGITS ? digits_read : CP_MAX_DIGITS;
    int64_t exponent = (int64_t)(bits >> b->bits);
    uint64_t fraction = (bits & (((uint64_t)1 << b->bits) - 1)) | (exponent ? (uint64_t)1 << b->bits : 0);
    int64_t two = (exponent ? exponent : 1) + b->least - b->bits - 1;
    fraction = 2 * fraction + 1;
    half.word[0] = (uint32_t)fraction;
    half.word[1] = (uint32_t)(fraction >> 32);
    half.words = half.word[1] ? 2 : 1;
    cp_big_fives(ten > 0 ? &decimal : &half, ten > 0 ? ten : -ten);
    two -= ten;
    cp_big_twos(two > 0 ? &half : &decimal, two > 0 ? two : -two);
    int order = cp_big_compare(&decimal, &half);
    return order ? order : behind != 0;
}

/* Return the bits of the nearest number, without the sign. */
static inline uint64_t cp_decimal_bits(const cp_decimal *d, const cp_binary *b)
{
    uint64_t bits = cp_nearest(d->digits, d->scale, b);
    if (!d->more || bits == cp_nearest(d->digits + 1, d->scale, b))
        return bits;
    int side = cp_halfway(d, bits, b);
    return bits + (side > 0 || (side == 0 && (bits & 1)));
}

static inline double cp_decimal_double(const cp_decimal *d)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t bits;
    double value;
    if (d->digits <= (uint64_t)1 << 53 && !d->more && d->scale >= -22 && d->scale <= 22) {
        /* Both operands are exact, so there is one correct rounding. */
        value = d->scale < 0 ? (double)d->digits / tens[-d->scale] : (double)d->digits * tens[d->scale];
        memcpy(&bits, &value, 8);
    } else {
        bits = cp_decimal_bits(d, &cp_binary64);
    }
    bits |= (uint64_t)d->negative << 63; /* branchless: signs are random */
    memcpy(&value, &bits, 8);
    return value;
}

static inline float cp_decimal_float(const cp_decimal *d)
{
    uint32_t bits = (uint32_t)cp_decimal_bits(d, &cp_binary32) | (uint32_t)d->negative << 31;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
