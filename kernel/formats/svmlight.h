/* Parses SVMlight / LIBSVM text: `label [qid:N] index:value index:value ... [# comment]`. Reads nothing beyond the
 * bytes given, which need no terminator, and does not depend on the locale. */
#pragma once

#include "formats/number.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum cp_svm_code {
    CP_SVM_OK,         /* all complete lines are parsed */
    CP_SVM_FULL,       /* no space for the next row */
    CP_SVM_LABEL,      /* the line does not begin with a number */
    CP_SVM_MULTILABEL, /* several labels, as in 1,3 */
    CP_SVM_PAIR,       /* not of the form index:value */
    CP_SVM_VALUE,      /* no number after the colon */
    CP_SVM_NOT_FINITE, /* NaN or infinity, also by overflow */
    CP_SVM_ORDER,      /* an index not greater than the previous one */
    CP_SVM_NEGATIVE,   /* an index below the base */
    CP_SVM_LARGE       /* an index beyond 31 bits */
};

typedef struct {
    /* in */
    int64_t rows_max, entries_max;
    int64_t *starts;  /* [rows_max] offset of the row's line; or NULL */
    double *labels;   /* [rows_max] */
    int32_t *ends;    /* [rows_max] entries up to and including this row; or NULL */
    int32_t *indices; /* [entries_max] less `base`; or NULL: lines are only checked */
    float *values;    /* [entries_max]; NULL with indices */
    int64_t base;     /* the first index: 0 or 1 */
    /* out */
    int64_t rows, entries, lines, consumed;
    int64_t largest;                /* largest index, as written; -1 without entries */
    int64_t zero_line, zero_column; /* first occurrence of index 0; 0 if none */
    int code;
    int64_t line, column; /* of the error, from 1 */
} cp_svm;

static inline int cp_svm_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static inline int cp_svm_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline int cp_svm_word(const char *p, const char *end, const char *word)
{
    for (; *word; p++, word++)
        if (p == end || (*p | 32) != *word)
            return 0;
    return 1;
}

/* Parse a number; `bad` is the code if there is none. `at` advances only past a number. */
static inline int cp_svm_number(const char **at, const char *end, double *out, int bad)
{
    cp_decimal decimal;
    const char *p = *at, *stop = cp_decimal_read(p, end, &decimal);
    if (!stop) {
        p += p < end && (*p == '-' || *p == '+');
        return cp_svm_word(p, end, "nan") || cp_svm_word(p, end, "inf") ? CP_SVM_NOT_FINITE : bad;
    }
    *out = cp_decimal_double(&decimal);
    if (!isfinite(*out))
        return CP_SVM_NOT_FINITE;
    *at = stop;
    return CP_SVM_OK;
}

/* Parse the index of a pair, including its colon. */
static inline int cp_svm_index(const char **at, const char *end, int64_t *out)
{
    const char *p = *at;
    int64_t index = 0;
    int negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *digits = p;
    for (; p < end && cp_svm_digit(*p); p++)
        index = index <= INT32_MAX ? index * 10 + (*p - '0') : index;
    if (p == digits || p == end || *p != ':')
        return CP_SVM_PAIR;
    if (negative && index)
        return CP_SVM_NEGATIVE;
    if (index > INT32_MAX)
        return CP_SVM_LARGE;
    *out = index;
    *at = p + 1;
    return CP_SVM_OK;
}

static inline int cp_svm_ended(const char *p, const char *end)
{
    return p == end || *p == '#' || cp_svm_space(*p);
}

/* Parse a label and what precedes the first pair. */
static inline int cp_svm_head(const char **at, const char *end, double *label)
{
    const char *p = *at;
    int code = cp_svm_number(&p, end, label, CP_SVM_LABEL);
    if (code)
        return code;
    if (p < end && *p == ',')
        return CP_SVM_MULTILABEL;
    if (!cp_svm_ended(p, end))
        return CP_SVM_LABEL;
    while (p < end && cp_svm_space(*p))
        p++;
    if (cp_svm_word(p, end, "qid:")) {
        double group;
        *at = p;
        p += 4;
        code = cp_svm_number(&p, end, &group, CP_SVM_PAIR);
        if (code || !cp_svm_ended(p, end))
            return CP_SVM_PAIR;
    }
    *at = p;
    return CP_SVM_OK;
}

/* Parse one pair and store it. */
static inline int cp_svm_pair(cp_svm *s, const char **at, const char *end, int64_t *last, float *value)
{
    double number;
    int64_t index;
    const char *p = *at;
    int code = cp_svm_index(&p, end, &index);
    if (code)
        return code;
    if (index < s->base)
        return CP_SVM_NEGATIVE;
    if (index <= *last)
        return CP_SVM_ORDER;
    *at = p;
    code = cp_svm_number(&p, end, &number, CP_SVM_VALUE);
    if (code)
        return code;
    if (!cp_svm_ended(p, end))
        return CP_SVM_VALUE;
    /* From here on a double rounds to an infinite float. */
    if (!(fabs(number) < 0x1.ffffffp+127))
        return CP_SVM_NOT_FINITE;
    *value = (float)number;
    *last = index;
    *at = p;
    return CP_SVM_OK;
}

/* Parse the pairs of a row, from `at` to `end`; on an error `at` is its position. */
static inline int cp_svm_pairs(cp_svm *s, const char *line, const char **at, const char *end)
{
    int64_t last = -1;
    for (;;) {
        const char *p = *at;
        float value = 0;
        while (p < end && cp_svm_space(*p))
            p++;
        *at = p;
        if (p == end || *p == '#')
            break;
        int code = cp_svm_pair(s, at, end, &last, &value);
        if (code)
            return code;
        if (last == 0 && !s->zero_line) {
            s->zero_line = s->lines + 1;
            s->zero_column = p - line + 1;
        }
        if (s->indices) {
            if (s->entries == s->entries_max)
                return CP_SVM_FULL;
            s->indices[s->entries] = (int32_t)(last - s->base);
            s->values[s->entries] = value;
        }
        s->entries++;
    }
    if (last > s->largest)
        s->largest = last;
    return CP_SVM_OK;
}

/* Parse one line, which may be blank or a comment. */
static inline int cp_svm_line(cp_svm *s, const char *text, const char *line, const char *end)
{
    const char *p = line;
    double label;
    int64_t entries = s->entries;
    while (p < end && cp_svm_space(*p))
        p++;
    if (p == end || *p == '#')
        return CP_SVM_OK;
    if (s->rows == s->rows_max)
        return CP_SVM_FULL;
    int code = cp_svm_head(&p, end, &label);
    if (!code)
        code = cp_svm_pairs(s, line, &p, end);
    if (code) {
        s->entries = entries;
        s->line = s->lines + 1;
        s->column = p - line + 1;
        return code;
    }
    s->labels[s->rows] = label;
    if (s->starts)
        s->starts[s->rows] = line - text;
    if (s->ends)
        s->ends[s->rows] = (int32_t)s->entries;
    s->rows++;
    return CP_SVM_OK;
}

/* Parse lines until the text ends, the space is full, or a line is invalid. A last line without a newline is left to
 * the next call (`consumed` is its offset) unless this is the `final` text. */
static inline void cp_svm_parse(cp_svm *s, const char *text, int64_t length, int final)
{
    const char *p = text, *end = text + length;
    s->rows = s->entries = s->lines = s->zero_line = s->zero_column = s->line = s->column = 0;
    s->largest = -1;
    s->code = CP_SVM_OK;
    cp_number_begin();
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop && !final)
            break;
        const char *line_end = stop ? stop : end;
        s->code = cp_svm_line(s, text, p, line_end);
        if (s->code)
            break;
        s->lines++;
        p = stop ? stop + 1 : end;
    }
    s->consumed = p - text;
}
