/* The features of an x86-64 CPU where __builtin_cpu_supports reads them. Zig's runtime library knows of none, so its
 * programs would use SSE2 only. The names, and the bits of features, are those of the libraries of gcc and clang. */
#include <cpuid.h>

enum { SSE4_2 = 8, AVX = 9, AVX2 = 10, FMA = 14, AVX512F = 15, AVX512VL = 20, AVX512BW = 21, AVX512DQ = 22 };

#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN struct {
    unsigned vendor, type, subtype, features[1];
} __cpu_model;
HIDDEN unsigned __cpu_features2[4];

static void set(int feature, unsigned bits, int bit)
{
    __cpu_model.features[0] |= (bits >> bit & 1) << feature;
}

HIDDEN __attribute__((constructor)) int __cpu_indicator_init(void)
{
    unsigned a, b, c, d, saved = 0, above;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return -1;
    set(SSE4_2, c, 20);
    if (c >> 27 & 1) /* the system saves registers that it names */
        __asm__("xgetbv" : "=a"(saved), "=d"(above) : "c"(0));
    if ((saved & 6) != 6)
        return 0;
    set(AVX, c, 28);
    set(FMA, c, 12);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    set(AVX2, b, 5);
#if !defined __APPLE__ /* macOS saves these registers from their first use on, and names them later */
    if ((saved & 0xe0) != 0xe0)
        return 0;
#endif
    set(AVX512F, b, 16);
    set(AVX512DQ, b, 17);
    set(AVX512BW, b, 30);
    set(AVX512VL, b, 31);
    return 0;
}
