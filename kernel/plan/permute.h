/* Randomness: a hash for keys, a counter-based generator, Fisher-Yates shuffles, and a keyed bijection.
 *
 * Nothing here keeps state. A number depends on (key, counter) alone, so any position of any epoch is computed
 * directly, in any process. A key is a hash of (seed, epoch, purpose, index): adding seed and epoch instead would make
 * seed 7 epoch 1 equal to seed 8 epoch 0. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CP_GOLDEN 0x9E3779B97F4A7C15u /* 2^64 / golden ratio */
#define CP_ROUNDS 6                   /* Feistel rounds of the bijection */
#define CP_SMALL_ROUNDS 24            /* rounds below 2^12, where halves of a few bits mix slowly */
#define CP_TABLED 256                 /* longest permutation with a table: a network of few bits is not uniform */

/* Mix 64 bits so that each input bit flips each output bit with probability 1/2 (SplitMix64's finaliser). */
static inline uint64_t cp_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Hash a list of numbers into a key; order and count matter. */
static inline uint64_t cp_derive(const uint64_t *parts, size_t count)
{
    uint64_t key = cp_mix(count + CP_GOLDEN);
    for (size_t i = 0; i < count; i++)
        key = cp_mix(cp_mix(parts[i] + CP_GOLDEN) + key * CP_GOLDEN);
    return key;
}

static inline uint64_t cp_derive2(uint64_t key, uint64_t index)
{
    uint64_t parts[2] = {key, index};
    return cp_derive(parts, 2);
}

/* Return the counter-th number of the stream of `key` (SplitMix64 at a given position). */
static inline uint64_t cp_random(uint64_t key, uint64_t counter)
{
    return cp_mix(key + (counter + 1) * CP_GOLDEN);
}

static inline uint64_t cp_high(uint64_t a, uint64_t b)
{
    return (uint64_t)(((unsigned __int128)a * b) >> 64);
}

/* Return a number in [0, n); the bias is below n / 2^64. */
static inline uint64_t cp_below(uint64_t key, uint64_t counter, uint64_t n)
{
    return cp_high(cp_random(key, counter), n);
}

#define CP_DEFINE_SHUFFLE(NAME, TYPE)                                                                                  \
    static inline void NAME(TYPE *items, uint64_t count, uint64_t key)                                                 \
    {                                                                                                                  \
        for (uint64_t i = count; i > 1; i--) {                                                                         \
            uint64_t j = cp_below(key, i, i);                                                                          \
            TYPE held = items[i - 1];                                                                                  \
            items[i - 1] = items[j];                                                                                   \
            items[j] = held;                                                                                           \
        }                                                                                                              \
    }
CP_DEFINE_SHUFFLE(cp_shuffle8, uint8_t)
CP_DEFINE_SHUFFLE(cp_shuffle32_long, int32_t)
CP_DEFINE_SHUFFLE(cp_shuffle64, int64_t)

/* Shuffle the rows of one block: one random number gives two swaps, with a bias below count / 2^32. */
static inline void cp_shuffle32(int32_t *items, uint64_t count, uint64_t key)
{
    if (count >= 1 << 16) {
        cp_shuffle32_long(items, count, key);
        return;
    }
    for (uint64_t i = count; i > 1; i -= 2) {
        uint64_t random = cp_random(key, i), j = (random >> 32) * i >> 32;
        int32_t held = items[i - 1];
        items[i - 1] = items[j];
        items[j] = held;
        j = (random & 0xFFFFFFFFu) * (i - 1) >> 32; /* 0 for the last, single item */
        held = items[i - 2];
        items[i - 2] = items[j];
        items[j] = held;
    }
}

/* A permutation of [0, n) in O(1) memory, n up to 2^63. A short one is a shuffled table. A longer one is an alternating
 * Feistel network on the smallest power of two that holds n, walked along its cycle until the value falls into [0, n)
 * (fewer than two steps on average). A network alone is even on a power of two, and nearly always of one parity just
 * below: every other key exchanges two random values. */
typedef struct {
    uint64_t n, keys[CP_SMALL_ROUNDS], low_mask, high_mask;
    uint64_t one, other; /* values that are exchanged; equal: none are */
    int low_bits, rounds;
    uint8_t value[CP_TABLED], position[CP_TABLED]; /* of a short permutation: at each position, of each value */
} cp_bijection;

static inline void cp_bijection_table(cp_bijection *b, uint64_t key)
{
    for (uint64_t i = 0; i < b->n; i++)
        b->value[i] = (uint8_t)i;
    cp_shuffle8(b->value, b->n, key);
    for (uint64_t i = 0; i < b->n; i++)
        b->position[b->value[i]] = (uint8_t)i;
}

static inline cp_bijection cp_bijection_make(uint64_t n, uint64_t key)
{
    cp_bijection b = {.n = n};
    uint64_t swap = cp_derive2(key, CP_SMALL_ROUNDS);
    int bits = 1;
    if (n <= CP_TABLED) {
        cp_bijection_table(&b, key);
        return b;
    }
    while (bits < 63 && (n - 1) >> bits)
        bits++;
    b.low_bits = bits / 2;
    b.low_mask = (1ull << b.low_bits) - 1;
    b.high_mask = (1ull << (bits - b.low_bits)) - 1;
    b.rounds = bits < 12 ? CP_SMALL_ROUNDS : CP_ROUNDS;
    for (int i = 0; i < b.rounds; i++)
        b.keys[i] = cp_random(key, (uint64_t)i);
    if (cp_random(swap, 0) >> 63) {
        b.one = cp_below(swap, 1, n);
        b.other = cp_below(swap, 2, n - 1);
        b.other += b.other >= b.one;
    }
    return b;
}

static inline uint64_t cp_exchange(const cp_bijection *b, uint64_t i)
{
    return i == b->one ? b->other : i == b->other ? b->one : i;
}

static inline void cp_feistel(const cp_bijection *b, uint64_t *high, uint64_t *low, int round)
{
    if (round & 1)
        *low ^= (cp_mix(*high * CP_GOLDEN + b->keys[round]) >> 32) & b->low_mask;
    else
        *high ^= (cp_mix(*low * CP_GOLDEN + b->keys[round]) >> 32) & b->high_mask;
}

static inline uint64_t cp_permute(const cp_bijection *b, uint64_t i)
{
    if (b->n <= CP_TABLED)
        return b->value[i];
    do {
        uint64_t low = i & b->low_mask, high = i >> b->low_bits;
        for (int round = 0; round < b->rounds; round++)
            cp_feistel(b, &high, &low, round);
        i = high << b->low_bits | low;
    } while (i >= b->n);
    return cp_exchange(b, i);
}

static inline uint64_t cp_unpermute(const cp_bijection *b, uint64_t i)
{
    if (b->n <= CP_TABLED)
        return b->position[i];
    i = cp_exchange(b, i);
    do {
        uint64_t low = i & b->low_mask, high = i >> b->low_bits;
        for (int round = b->rounds; round-- > 0;)
            cp_feistel(b, &high, &low, round);
        i = high << b->low_bits | low;
    } while (i >= b->n);
    return i;
}
