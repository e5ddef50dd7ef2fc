/* Template: the formulas of the losses for a whole native vector of models at a time, of which each lane is one. */

#define quad CP(quad_type)
#define mask CP(mask_type)
#define real CP_REAL

typedef CP_REAL CP(quad_type) __attribute__((vector_size(CP_VECTOR)));
#if CP_BYTES == 4
typedef uint32_t CP(bits_type);
#else
typedef uint64_t CP(bits_type);
#endif
typedef CP(bits_type) CP(mask_type) __attribute__((vector_size(CP_VECTOR)));
#include "sgd/loss.h"
