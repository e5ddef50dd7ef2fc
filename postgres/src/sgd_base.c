/* The learner for every CPU. */
#define CP_CODE_LEVEL 0
#include "sgd/code.h"
