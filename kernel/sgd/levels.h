/* Includes CP_TEMPLATE for each instruction set, between pragmas that enable it, or for the level CP_CODE_LEVEL alone.
 * The template finds the set's name in CP_ISA, and the bytes of its vectors in CP_VECTOR. */

#if !defined CP_CODE_LEVEL || CP_CODE_LEVEL == 0
#if defined __AVX512F__
#define CP_VECTOR 64
#elif defined __AVX__
#define CP_VECTOR 32
#else
#define CP_VECTOR 16
#endif
#ifdef CP_CLONES
#define CP_FEW_COPIES 1
#endif
#define CP_ISA base
#include CP_TEMPLATE
#undef CP_FEW_COPIES
#undef CP_VECTOR
#undef CP_ISA
#endif

#if defined CP_CLONES && (!defined CP_CODE_LEVEL || CP_CODE_LEVEL == 1)
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#define CP_VECTOR 32
#define CP_ISA avx2
#include CP_TEMPLATE
#undef CP_VECTOR
#undef CP_ISA
#if defined __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#if defined CP_CLONES && (!defined CP_CODE_LEVEL || CP_CODE_LEVEL == 2)
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw")
#endif
#define CP_VECTOR 64
#define CP_ISA avx512
#include CP_TEMPLATE
#undef CP_VECTOR
#undef CP_ISA
#if defined __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#undef CP_TEMPLATE
