/* Instantiates all templates for one instruction set, in float and in double.
 *
 * Expects CP_VECTOR, the bytes of a native vector, and CP_ISA, the suffix of the names. */

#define CP(name) CP_PASTE(name, CP_KIND, CP_ISA)
#define CP_LANED(name) CP_PASTE(name, CP_LANED_KIND, CP_ISA)

#define CP_REAL float
#define CP_BYTES 4
#define CP_LANED_KIND f32_lanes
#define CP_KIND CP_LANED_KIND
#include "sgd/laned.h"
#undef CP_KIND
#define CP_KIND f32
#include "sgd/kind.h"
#undef CP_KIND
#undef CP_LANED_KIND
#undef CP_REAL
#undef CP_BYTES

#define CP_REAL double
#define CP_BYTES 8
#define CP_LANED_KIND f64_lanes
#define CP_KIND CP_LANED_KIND
#include "sgd/laned.h"
#undef CP_KIND
#define CP_KIND f64
#include "sgd/kind.h"
#undef CP_KIND
#undef CP_LANED_KIND
#undef CP_REAL
#undef CP_BYTES
#undef CP
#undef CP_LANED
