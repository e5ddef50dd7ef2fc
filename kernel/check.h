/* Internal assertions. They are compiled with -DCP_CHECKS, or in a server extension with -DUSE_ASSERT_CHECKING; a
 * failed one aborts the process. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#if defined(CP_CHECKS) || defined(USE_ASSERT_CHECKING)
enum { CP_CHECKED = 1 };
#else
enum { CP_CHECKED = 0 };
#endif

#define CP_CHECK(holds)                                                                                                \
    do {                                                                                                               \
        if (CP_CHECKED && !(holds)) {                                                                                  \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #holds);                                        \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
