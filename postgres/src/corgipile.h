/* All declarations, for files that measure models. */
#pragma once

#include "postgres.h"

#include "composite.h"
#include "learning.h"
#include "members.h"
#include "metrics.h"
#include "operators.h"
