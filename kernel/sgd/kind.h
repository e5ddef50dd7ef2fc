/* All templates for one kind of reals and one instruction set. */

#include "sgd/pack.h"
#include "sgd/loss.h"
#include "sgd/dense.h"
#include "sgd/batch.h"
#include "sgd/softmax.h"
#include "sgd/rules.h"
#include "sgd/cached_rsqrt.h"
#include "sgd/simd_models.h"
#include "sgd/sparse.h"
#include "sgd/average.h"
#include "sgd/learn.h"
