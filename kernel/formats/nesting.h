/* Measures the nesting depth of JSON, so that recursive parsers never get text that exhausts their stack. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Return the end of the string that begins before `at`: behind its quote, or the end of the text. */
static inline const char *cp_nesting_string(const char *at, const char *end)
{
    for (const char *begin = at; (at = memchr(at, '"', (size_t)(end - at))); at++) {
        const char *last = at;
        while (last > begin && last[-1] == '\\')
            last--;
        if (!((at - last) & 1))
            return at + 1;
    }
    return end;
}

/* Return the largest number of open brackets and braces; those within strings do not count. */
static inline int64_t cp_nesting(const char *text, int64_t length)
{
    int64_t depth = 0, most = 0;
    for (const char *at = text, *end = text + length; at < end;) {
        char c = *at++;
        if (c == '"') {
            at = cp_nesting_string(at, end);
        } else if ((c | 0x20) == '{') { /* or [ */
            depth++;
            most = depth > most ? depth : most;
        } else if ((c | 0x20) == '}') { /* or ] */
            depth -= depth > 0;
        }
    }
    return most;
}
