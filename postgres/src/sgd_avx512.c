/* The learner for CPUs with AVX-512. */
#define CP_CODE_LEVEL 2
#include "sgd/code.h"
