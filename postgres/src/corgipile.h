/* All declarations, for files that measure models. */
#ifndef CORGIPILE_H
#define CORGIPILE_H

#include "postgres.h"

#include "composite.h"
#include "learning.h"
#include "members.h"
#include "metrics.h"
#include "operators.h"

#endif
