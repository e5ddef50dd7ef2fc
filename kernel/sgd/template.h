/* Makes every function of the templates for one ISA, in float and in double.
 *
 * Wants CP_VECTOR, the bytes of a native vector, and CP_ISA, the end of the names. */

#define CP_REAL float
#define CP_BYTES 4
#define CP(name) CP_PASTE(name, f32, CP_ISA)
#include "sgd/pack.h"
#include "sgd/loss.h"
#include "sgd/dense.h"
#include "sgd/together.h"
#include "sgd/batch.h"
#include "sgd/softmax.h"
#include "sgd/rules.h"
#include "sgd/rooted.h"
#include "sgd/sparse.h"
#include "sgd/average.h"
#include "sgd/learn.h"
#undef CP_REAL
#undef CP_BYTES
#undef CP

#define CP_REAL double
#define CP_BYTES 8
#define CP(name) CP_PASTE(name, f64, CP_ISA)
#include "sgd/pack.h"
#include "sgd/loss.h"
#include "sgd/dense.h"
#include "sgd/together.h"
#include "sgd/batch.h"
#include "sgd/softmax.h"
#include "sgd/rules.h"
#include "sgd/rooted.h"
#include "sgd/sparse.h"
#include "sgd/average.h"
#include "sgd/learn.h"
#undef CP_REAL
#undef CP_BYTES
#undef CP
#undef CP_VECTOR
#undef CP_ISA
