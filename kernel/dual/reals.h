/* Template: visits of rows of both types of reals, for the instruction set CP_ISA. */

#define CP_REAL float
#define CP(name) CP_DUAL_PASTE(name, f32, CP_ISA)
#include "dual/visit.h"
#define CP_REAL double
#define CP(name) CP_DUAL_PASTE(name, f64, CP_ISA)
#include "dual/visit.h"
