/* Dispatches by the CPU at run time between copies of the learner, one per vector width that the compiler offers.
 * Every program links sgd/code.h, which compiles them.
 *
 * Unlike `target_clones` this needs no ifunc support in the linker or C library, and gives each width its own native
 * vectors. -DCP_NO_CLONES keeps only the width of the compiler's flags. */
#pragma once

#include "sgd/rows.h"
#include "sgd/totals.h"

#if defined __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#define CP_INLINE static inline __attribute__((always_inline))
#define CP_NOINLINE __attribute__((noinline, unused))
#define CP_COLD __attribute__((noinline, unused, cold)) /* called at most once per chunk, so compiled for size */
#define CP_PASTE2(name, kind, isa) cp_##name##_##kind##_##isa
#define CP_PASTE(name, kind, isa) CP_PASTE2(name, kind, isa)

#if defined __clang__
#define CP_SHUFFLE(mask, a, ...) __builtin_shufflevector(a, a, __VA_ARGS__)
#define CP_SHUFFLE2(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define CP_SHUFFLE(mask, a, ...) __builtin_shuffle(a, (mask){__VA_ARGS__})
#define CP_SHUFFLE2(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif
#define CP_LOW(type, a) (((union { __typeof__(a) whole; type half[2]; }){.whole = (a)}).half[0])
#define CP_HIGH(type, a) (((union { __typeof__(a) whole; type half[2]; }){.whole = (a)}).half[1])

typedef struct {
    int64_t (*learn)(cp_sgd *, const cp_chunk *, int *);
    void (*flush)(cp_sgd *);
    int (*decide)(cp_sgd *, const cp_chunk *, void *);
    void (*weights)(cp_sgd *, void *, void *, int);
    void (*predictor)(cp_sgd *, void *, void *);
    void (*sample_weights)(cp_sgd *);
    int (*row_is_finite)(const cp_sgd *, const cp_chunk *, int64_t);
} cp_sgd_code;

/* Code for several models that visit rows at once in shared scratch memory. The chunk carries the previously visited
 * rows in and out. */
typedef struct {
    int64_t models; /* most models at once */
    void (*assemble)(cp_sgd *const *, int, void *);
    int64_t (*learn)(cp_sgd *const *, void *, cp_chunk *);
    void (*store)(cp_sgd *const *, const void *, const cp_chunk *);
} cp_multi_model_code;

/* CP_CALL applies a function that sgd/levels.h has compiled for each instruction set. */
#if defined __x86_64__ && defined __GNUC__ && !defined CP_NO_CLONES && !defined __AVX512F__
#define CP_CLONES 1
#define CP_CALL(level, name, ...) \
    ((level) == 2 ? name##_avx512(__VA_ARGS__) : (level) == 1 ? name##_avx2(__VA_ARGS__) : name##_base(__VA_ARGS__))
#else
#define CP_CALL(level, name, ...) name##_base(__VA_ARGS__)
#endif

#define CP_LEVEL_CODE(isa) \
    extern __attribute__((visibility("hidden"))) const cp_sgd_code cp_code_f32_##isa, cp_code_f64_##isa; \
    extern __attribute__((visibility("hidden"))) const cp_multi_model_code cp_multi_model_code_f32_##isa, \
        cp_multi_model_code_f64_##isa;
CP_LEVEL_CODE(base)
CP_LEVEL_CODE(avx2)
CP_LEVEL_CODE(avx512)
#undef CP_LEVEL_CODE

/* Return the best level of this CPU: 0 the compiler's default, 1 AVX2, 2 AVX-512. */
static inline int cp_sgd_isa(void)
{
#ifdef CP_CLONES
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512bw"))
        return 2;
    if (__builtin_cpu_supports("avx2"))
        return 1;
#endif
    return 0;
}

static inline const cp_sgd_code *cp_sgd_code_of(const cp_sgd *s)
{
#ifdef CP_CLONES
    if (s->isa == 2)
        return s->bytes == 4 ? &cp_code_f32_avx512 : &cp_code_f64_avx512;
    if (s->isa == 1)
        return s->bytes == 4 ? &cp_code_f32_avx2 : &cp_code_f64_avx2;
#endif
    return s->bytes == 4 ? &cp_code_f32_base : &cp_code_f64_base;
}
