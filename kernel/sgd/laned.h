/* Template: the loss formulas on a whole native vector, one model per lane. */

#define QUAD CP(quad_type)
#define MASK CP(mask_type)
#define REAL CP_REAL

typedef CP_REAL CP(quad_type) __attribute__((vector_size(CP_VECTOR)));
#if CP_BYTES == 4
typedef uint32_t CP(bits_type);
#else
typedef uint64_t CP(bits_type);
#endif
typedef CP(bits_type) CP(mask_type) __attribute__((vector_size(CP_VECTOR)));
#include "sgd/loss.h"
