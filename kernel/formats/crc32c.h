/* CRC-32C (Castagnoli), and its masked form in TFRecord files: by the CPU's instruction if it has one, else by eight
 * tables (slicing-by-8, Kounavis and Berry 2008). -DCP_NO_CLONES uses the tables only. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#if defined __x86_64__ && defined __GNUC__ && !defined CP_NO_CLONES
#include <nmmintrin.h>
#define CP_CRC_X86 1
#elif defined __ARM_FEATURE_CRC32 && !defined CP_NO_CLONES
#include <arm_acle.h>
#define CP_CRC_ARM 1
#endif

static uint32_t cp_crc_tables[8][256];
static pthread_once_t cp_crc_once = PTHREAD_ONCE_INIT;

static inline void cp_crc_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        cp_crc_tables[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) {
            uint32_t crc = cp_crc_tables[t - 1][i];
            cp_crc_tables[t][i] = crc >> 8 ^ cp_crc_tables[0][crc & 255];
        }
}

/* Load a little-endian number; the supported machines are little-endian too. */
static inline uint64_t cp_load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t cp_load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t cp_crc_by_tables(uint32_t crc, const uint8_t *p, int64_t n)
{
    pthread_once(&cp_crc_once, cp_crc_fill);
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v = cp_load_u64(p) ^ crc;
        crc = 0;
        for (int t = 0; t < 8; t++)
            crc ^= cp_crc_tables[7 - t][v >> 8 * t & 255];
    }
    for (; n > 0; p++, n--)
        crc = crc >> 8 ^ cp_crc_tables[0][(crc ^ *p) & 255];
    return crc;
}

#if defined CP_CRC_X86
#define CP_SSE42 __attribute__((target("sse4.2,crc32"))) static inline
CP_SSE42 uint32_t cp_crc_by_cpu(uint32_t crc, const uint8_t *p, int64_t n)
{
    uint64_t wide = crc;
    for (; n >= 8; p += 8, n -= 8)
        wide = _mm_crc32_u64(wide, cp_load_u64(p));
    for (crc = (uint32_t)wide; n > 0; p++, n--)
        crc = _mm_crc32_u8(crc, *p);
    return crc;
}

/* Compute the CRC-32C of three ranges of equal length: the instruction accepts new bytes every cycle, but takes
 * three. */
CP_SSE42 void cp_crc_three(const char *data, const int64_t *starts, int64_t n, uint32_t *out)
{
    const uint8_t *a = (const uint8_t *)data + starts[0], *b = (const uint8_t *)data + starts[1];
    const uint8_t *c = (const uint8_t *)data + starts[2];
    uint64_t of_a = ~0u, of_b = ~0u, of_c = ~0u;
    int64_t at = 0;
    for (; at + 8 <= n; at += 8) {
        of_a = _mm_crc32_u64(of_a, cp_load_u64(a + at));
        of_b = _mm_crc32_u64(of_b, cp_load_u64(b + at));
        of_c = _mm_crc32_u64(of_c, cp_load_u64(c + at));
    }
    out[0] = ~cp_crc_by_cpu((uint32_t)of_a, a + at, n - at);
    out[1] = ~cp_crc_by_cpu((uint32_t)of_b, b + at, n - at);
    out[2] = ~cp_crc_by_cpu((uint32_t)of_c, c + at, n - at);
}
#elif defined CP_CRC_ARM
static inline uint32_t cp_crc_by_cpu(uint32_t crc, const uint8_t *p, int64_t n)
{
    for (; n >= 8; p += 8, n -= 8)
        crc = __crc32cd(crc, cp_load_u64(p));
    for (; n > 0; p++, n--)
        crc = __crc32cb(crc, *p);
    return crc;
}
#endif

static inline uint32_t cp_crc32c(const void *data, int64_t n)
{
#if defined CP_CRC_X86
    if (__builtin_cpu_supports("sse4.2"))
        return ~cp_crc_by_cpu(~0u, data, n);
#elif defined CP_CRC_ARM
    return ~cp_crc_by_cpu(~0u, data, n);
#endif
    return ~cp_crc_by_tables(~0u, data, n);
}

/* Compute the CRC-32C of each of many ranges; three at a time if neighbours have equal lengths. */
static inline void cp_crc32c_ranges(const char *data, const int64_t *starts, const int64_t *lengths, int64_t count,
                                    uint32_t *out)
{
    for (int64_t i = 0; i < count; i++) {
#if defined CP_CRC_X86
        if (i + 2 < count && lengths[i] == lengths[i + 1] && lengths[i] == lengths[i + 2] &&
            __builtin_cpu_supports("sse4.2")) {
            cp_crc_three(data, starts + i, lengths[i], out + i);
            i += 2;
            continue;
        }
#endif
        out[i] = cp_crc32c(data + starts[i], lengths[i]);
    }
}

/* Return the masked CRC: a plain CRC of bytes that contain CRCs would be weak. */
static inline uint32_t cp_crc_masked(const void *data, int64_t n)
{
    uint32_t crc = cp_crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
