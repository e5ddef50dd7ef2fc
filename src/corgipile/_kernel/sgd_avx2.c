/* The learner for CPUs with AVX2. */
#define CP_CODE_LEVEL 1
#include "sgd/code.h"
