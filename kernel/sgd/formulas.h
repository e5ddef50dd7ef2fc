/* The loss formulas for single rows, outside the learner: on quads, whose lanes hold the same row. */
#pragma once

#include "sgd/isa.h"

#define CP(name) CP_PASTE(name, CP_KIND, quad)
#define CP_VECTOR 16
#define CP_REAL float
#define CP_BYTES 4
#define CP_KIND f32
#include "sgd/laned.h"
#undef CP_KIND
#undef CP_REAL
#undef CP_BYTES

#define CP_REAL double
#define CP_BYTES 8
#define CP_KIND f64
#include "sgd/laned.h"
#undef CP_KIND
#undef CP_REAL
#undef CP_BYTES
#undef CP
#undef CP_VECTOR
