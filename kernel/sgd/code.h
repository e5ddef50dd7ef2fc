/* Compiles the learner for the level CP_CODE_LEVEL, numbered as by cp_sgd_isa(), or for all: once in each program. */
#pragma once

#include "sgd/isa.h"

#define CP_TEMPLATE "sgd/template.h"
#include "sgd/levels.h"
