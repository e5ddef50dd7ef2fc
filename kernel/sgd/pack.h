/* Template: a pack is 64 bytes of reals (16 float or 8 double lanes), in as many native vectors as needed. Every
 * instruction set does the same operations on the same lanes, so all get the same bits.
 *
 * Expects CP_REAL, CP_BYTES (4 or 8) and CP_VECTOR (bytes of a native vector: 16, 32 or 64). */

#define PACK CP(pack_type)
#define LANE CP(lane_type)
#define QUAD CP(quad_type)
#define MASK CP(mask_type)
#define REAL CP_REAL
#define CP_PARTS (64 / CP_VECTOR)
#define CP_LANES (64 / CP_BYTES)
#define CP_QUAD (16 / CP_BYTES)

#if CP_BYTES == 4
typedef uint32_t CP(bits_type);
#else
typedef uint64_t CP(bits_type);
#endif
typedef CP_REAL CP(lane_type) __attribute__((vector_size(CP_VECTOR)));
typedef CP(bits_type) CP(lane_bits) __attribute__((vector_size(CP_VECTOR)));
typedef CP_REAL CP(quad_type) __attribute__((vector_size(16)));
typedef CP(bits_type) CP(mask_type) __attribute__((vector_size(16)));
typedef CP_REAL CP(half_type) __attribute__((vector_size(32)));
typedef CP(bits_type) CP(half_bits) __attribute__((vector_size(32)));
typedef struct { CP(lane_type) part[CP_PARTS]; } CP(pack_type);

#define CP_EACH for (int part_ = 0; part_ < CP_PARTS; part_++)
#define CP_PART(a) (a).part[part_]

/* Learn a chunk of narrow rows by a function for their packs: a copy for each number, or, where few CPUs run this
 * level, one for all. */
#undef CP_BY_PACKS
#if defined CP_FEW_COPIES
#define CP_BY_PACKS(function, loss, packs) return CP(function)(s, c, loss, (int)(packs));
#else
#define CP_BY_PACKS(function, loss, packs) \
    switch (packs) { \
    case 1: return CP(function)(s, c, loss, 1); \
    case 2: return CP(function)(s, c, loss, 2); \
    case 3: return CP(function)(s, c, loss, 3); \
    } \
    return CP(function)(s, c, loss, 4);
#endif

CP_INLINE PACK CP(load)(const REAL *from)
{
    PACK a;
    CP_EACH memcpy(&CP_PART(a), from + part_ * (CP_VECTOR / CP_BYTES), CP_VECTOR);
    return a;
}

CP_INLINE void CP(store)(REAL *to, PACK a)
{
    CP_EACH memcpy(to + part_ * (CP_VECTOR / CP_BYTES), &CP_PART(a), CP_VECTOR);
}

CP_INLINE PACK CP(zero)(void)
{
    PACK a;
    CP_EACH CP_PART(a) = (LANE){0};
    return a;
}

/* Keep the lanes set in `keep`; the others, even NaN, become 0. */
CP_INLINE PACK CP(first)(PACK a, const CP(bits_type) *keep)
{
    CP_EACH {
        CP(lane_bits) bits;
        memcpy(&bits, keep + part_ * (CP_VECTOR / CP_BYTES), CP_VECTOR);
        CP_PART(a) = (LANE)((CP(lane_bits))CP_PART(a) & bits);
    }
    return a;
}

CP_INLINE void CP(tail_mask)(CP(bits_type) *keep, int64_t count)
{
    for (int64_t i = 0; i < CP_LANES; i++)
        keep[i] = (CP(bits_type))((count - 1) % CP_LANES >= i ? -1 : 0);
}

/* Load a row; `keep` masks the features in the last pack. */
CP_INLINE void CP(load_row)(PACK *x, const void *row, const CP(bits_type) *keep, const int packs)
{
    for (int j = 0; j < packs; j++)
        x[j] = CP(load)((const REAL *)row + j * CP_LANES);
    x[packs - 1] = CP(first)(x[packs - 1], keep);
}

CP_INLINE PACK CP(multiply)(PACK a, PACK b)
{
    CP_EACH CP_PART(a) = CP_PART(a) * CP_PART(b);
    return a;
}

/* Return a + b * c, never fused. */
CP_INLINE PACK CP(add_product)(PACK a, PACK b, PACK c)
{
    CP_EACH CP_PART(a) = CP_PART(a) + CP_PART(b) * CP_PART(c);
    return a;
}

CP_INLINE PACK CP(add_scaled)(PACK a, REAL b, PACK c)
{
    CP_EACH CP_PART(a) = CP_PART(a) + b * CP_PART(c);
    return a;
}

CP_INLINE PACK CP(subtract_scaled)(PACK a, REAL b, PACK c)
{
    CP_EACH CP_PART(a) = CP_PART(a) - b * CP_PART(c);
    return a;
}

CP_INLINE PACK CP(scale)(PACK a, REAL b)
{
    CP_EACH CP_PART(a) = CP_PART(a) * b;
    return a;
}

CP_INLINE PACK CP(add)(PACK a, PACK b)
{
    CP_EACH CP_PART(a) = CP_PART(a) + CP_PART(b);
    return a;
}

CP_INLINE QUAD CP(sum_quad)(QUAD q)
{
#if CP_BYTES == 4
    q += CP_SHUFFLE(MASK, q, 2, 3, 0, 1);
    return q + CP_SHUFFLE(MASK, q, 1, 0, 3, 2);
#else
    return q + CP_SHUFFLE(MASK, q, 1, 0);
#endif
}

/* Sum the lanes by halves, lane i with lane i + half, down to a quad, so that the tree is the same for every vector
 * width. */
CP_INLINE QUAD CP(quarter)(PACK a)
{
#if CP_VECTOR == 16
    return (a.part[0] + a.part[2]) + (a.part[1] + a.part[3]);
#else
#if CP_VECTOR == 64
    CP(half_type) half = CP_LOW(CP(half_type), a.part[0]) + CP_HIGH(CP(half_type), a.part[0]);
#else
    CP(half_type) half = a.part[0] + a.part[1];
#endif
    return CP_LOW(QUAD, half) + CP_HIGH(QUAD, half);
#endif
}

/* Sum all lanes; every lane of the result holds the sum. */
CP_INLINE QUAD CP(sum)(PACK a) { return CP(sum_quad)(CP(quarter)(a)); }

/* Return (v - h q) . x + bias - g: the margin of weights whose update by h q, and by g for the intercept, is still
 * pending. */
CP_INLINE QUAD CP(margin_held)(const PACK *v, const PACK *q, const PACK *x, QUAD bias, REAL h, QUAD g, const int packs)
{
    PACK a = CP(multiply)(v[0], x[0]), b = CP(multiply)(q[0], x[0]);
    for (int j = 1; j < packs; j++) {
        a = CP(add_product)(a, v[j], x[j]);
        b = CP(add_product)(b, q[j], x[j]);
    }
    return (CP(sum)(a) + bias) - (h * CP(sum)(b) + g);
}

/* Sum the lanes of each of a quad of quads, in the order of CP(sum_quad); lane k of the result is the sum of quad k. */
CP_INLINE QUAD CP(sums)(const QUAD *q)
{
#if CP_BYTES == 4
    const QUAD a = CP_SHUFFLE2(MASK, q[0], q[1], 0, 4, 1, 5) + CP_SHUFFLE2(MASK, q[0], q[1], 2, 6, 3, 7);
    const QUAD b = CP_SHUFFLE2(MASK, q[2], q[3], 0, 4, 1, 5) + CP_SHUFFLE2(MASK, q[2], q[3], 2, 6, 3, 7);
    return CP_SHUFFLE2(MASK, a, b, 0, 1, 4, 5) + CP_SHUFFLE2(MASK, a, b, 2, 3, 6, 7);
#else
    return CP_SHUFFLE2(MASK, q[0], q[1], 0, 2) + CP_SHUFFLE2(MASK, q[0], q[1], 1, 3);
#endif
}

/* Return whether every bit is set. */
CP_INLINE int CP(every)(MASK a)
{
    uint64_t word[2];
    memcpy(word, &a, sizeof word);
    return (word[0] & word[1]) == (uint64_t)-1;
}

/* Return whether a bit of any lane is set. */
CP_INLINE int CP(any)(const CP(lane_bits) *hit)
{
    uint64_t word[2];
#if CP_VECTOR == 16
    const MASK all = (hit[0] | hit[1]) | (hit[2] | hit[3]);
#else
#if CP_VECTOR == 64
    const CP(half_bits) half = CP_LOW(CP(half_bits), hit[0]) | CP_HIGH(CP(half_bits), hit[0]);
#else
    const CP(half_bits) half = hit[0] | hit[1];
#endif
    const MASK all = CP_LOW(MASK, half) | CP_HIGH(MASK, half);
#endif
    memcpy(word, &all, sizeof word);
    return (word[0] | word[1]) != 0;
}
