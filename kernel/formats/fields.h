/* Parses columns of numbers in delimited text with known rows (lines.h), by the rules of Arrow's reader: a field may be
 * quoted (RFC 4180), blanks around a number are ignored, and some words are null. It marks a column as `unsure` at the
 * first field that may not be a number of its type; the caller then decides. */
#pragma once

#include "formats/number.h"
#include "io/gather.h"

#include <math.h>

#define CP_FIELD_BOOL CP_TYPES /* the type of text that is true or false, a byte each */

typedef struct {
    /* in */
    int wanted;     /* whether to read it */
    cp_target to;   /* destination of rows; `from` is the type of the text, or CP_FIELD_BOOL */
    uint8_t *known; /* null mask: bits of null rows are cleared; NULL: a null is not a number */
    /* out */
    int64_t nulls;
    int unsure; /* a row may not be a number: later ones are skipped */
} cp_field;

typedef struct {
    /* in */
    char mark;           /* field separator: not a quote, a line end, or a character of numbers */
    int64_t count;       /* of fields */
    cp_field *fields;    /* [count] */
    int64_t rows;
    const int32_t *into; /* [rows] slot of each, -1 for none; or NULL: in order */
} cp_fields;

static inline int cp_field_ended(const cp_fields *s, const char *p)
{
    return *p == s->mark || *p == '\n' || *p == '\r';
}

/* Return the end of the field that begins at `p`, or NULL if its quotes are not closed; the text must end with a line
 * end. */
static inline const char *cp_field_skip(const cp_fields *s, const char *p, const char *end)
{
    if (*p == '"') {
        do {
            p = memchr(p + 1, '"', (size_t)(end - p - 1));
            if (!p)
                return NULL;
            p++;
        } while (*p == '"');
    }
#ifdef __SSE2__
    const __m128i mark = _mm_set1_epi8(s->mark), line = _mm_set1_epi8('\n'), back = _mm_set1_epi8('\r');
    for (; end - p >= 16; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, line), _mm_cmpeq_epi8(bytes, back));
        int hits = _mm_movemask_epi8(_mm_or_si128(ends, _mm_cmpeq_epi8(bytes, mark)));
        if (hits)
            return p + __builtin_ctz((unsigned)hits);
    }
#endif
    while (!cp_field_ended(s, p))
        p++;
    return p;
}

static inline int cp_field_is(const char *p, const char *end, const char *const *words)
{
    size_t size = (size_t)(end - p);
    for (; *words; words++)
        if (strlen(*words) == size && memcmp(p, *words, size) == 0)
            return 1;
    return 0;
}

/* Parse a word for infinity with an optional sign; returns its end, or NULL if there is none. */
static inline const char *cp_field_infinity(const char *p, const char *end, double *value)
{
    static const char word[] = "infinity";
    int length = 0, negative = *p == '-';
    p += negative || *p == '+';
    while (length < 8 && p + length < end && (p[length] | 32) == word[length])
        length++;
    *value = negative ? -INFINITY : INFINITY;
    return length == 8 ? p + 8 : length >= 3 ? p + 3 : NULL;
}

static inline const char *cp_field_float(const char *p, const char *end, enum cp_type type, void *value)
{
    cp_decimal decimal;
    double infinite, *wide = value;
    float *narrow = value;
    const char *stop = cp_decimal_read(p, end, &decimal);
    if (!stop) {
        stop = cp_field_infinity(p, end, &infinite);
        if (type == CP_F64)
            *wide = infinite;
        else
            *narrow = (float)infinite;
    } else if (type == CP_F64) {
        *wide = cp_decimal_double(&decimal);
    } else {
        *narrow = cp_decimal_float(&decimal);
    }
    return stop;
}

/* Parse an integer of at most 18 digits, or somewhat longer ones of 64 bits, that fits its type. */
static inline const char *cp_field_integer(const char *p, const char *end, enum cp_type type, int64_t *value)
{
    int bits = 8 * cp_type_bytes[type], whole = type == CP_U8 || type == CP_U16 || type == CP_U32 || type == CP_U64;
    int negative = *p == '-' && !whole;
    uint64_t number = 0, most = whole ? ~(uint64_t)0 >> (64 - bits) : ((uint64_t)1 << (bits - 1)) - !negative;
    const char *digits = p + negative, *stop = cp_digits(digits, end, &number);
    if (stop == digits || stop - digits > 19 || number > most)
        return NULL;
    *value = (int64_t)(negative ? 0 - number : number);
    return stop;
}

/* Parse a value of a field's type; returns its end, or NULL if there is certainly none. */
static inline const char *cp_field_value(const cp_field *f, const char *p, const char *end, void *value)
{
    if (f->to.from == CP_F32 || f->to.from == CP_F64)
        return cp_field_float(p, end, f->to.from, value);
    return f->to.from == CP_FIELD_BOOL ? NULL : cp_field_integer(p, end, f->to.from, value);
}

/* Parse a field that is not a plain number: null, quoted, between blanks, true or false. Returns whether it is
 * valid. */
static inline int cp_field_other(cp_field *f, const char *p, const char *stop, int64_t row, void *to)
{
    static const char *const nulls[] = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
                                        "1.#QNAN", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null", NULL};
    static const char *const yes[] = {"1", "True", "TRUE", "true", NULL};
    static const char *const no[] = {"0", "False", "FALSE", "false", NULL};
    if (*p == '"') {
        if (stop[-1] != '"' || memchr(p + 1, '"', (size_t)(stop - p - 2)))
            return 0;
        p++, stop--;
    } else if (f->known && cp_field_is(p, stop, nulls)) {
        f->known[row >> 3] &= (uint8_t) ~(1 << (row & 7));
        f->nulls++;
        memset(to, 0, 8);
        return 1;
    }
    if (f->to.from == CP_FIELD_BOOL) {
        *(uint8_t *)to = (uint8_t)cp_field_is(p, stop, yes);
        return *(uint8_t *)to || cp_field_is(p, stop, no);
    }
    while (p < stop && (*p == ' ' || *p == '\t'))
        p++;
    while (p < stop && (stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    return p < stop && cp_field_value(f, p, stop, to) == stop;
}

static inline void cp_field_store(const cp_fields *s, const cp_field *f, int64_t row, const void *value)
{
    int64_t slot = s->into ? s->into[row] : row;
    if (slot < 0)
        return;
    char *to = f->to.base + slot * f->to.stride;
    if (f->to.from == CP_FIELD_BOOL)
        memcpy(to, value, 1);
    else if (f->to.from != f->to.to)
        cp_cast(to, f->to.to == CP_F64, value, f->to.from, 1);
    else if (cp_type_bytes[f->to.to] == 8)
        memcpy(to, value, 8);
    else if (cp_type_bytes[f->to.to] == 4)
        memcpy(to, value, 4);
    else
        memcpy(to, value, cp_type_bytes[f->to.to]);
}

/* Parse a field; returns its end, or NULL if its quotes are not closed. */
static inline const char *cp_field_read(const cp_fields *s, cp_field *f, const char *p, const char *end, int64_t row)
{
    uint64_t value; /* of any type */
    if (!f->wanted || f->unsure)
        return cp_field_skip(s, p, end);
    const char *stop = cp_field_value(f, p, end, &value);
    if (!stop || !cp_field_ended(s, stop)) {
        stop = cp_field_skip(s, p, end);
        if (!stop)
            return NULL;
        if (!cp_field_other(f, p, stop, row, &value)) {
            f->unsure = 1;
            return stop;
        }
    }
    cp_field_store(s, f, row, &value);
    return stop;
}

/* Parse the rows of text that ends with a line end; returns whether there are exactly that many rows, all with `count`
 * fields. */
static inline int cp_fields_read(cp_fields *s, const char *text, int64_t length)
{
    const char *p = text, *end = text + length;
    int64_t row = 0;
    if (!length || (end[-1] != '\n' && end[-1] != '\r'))
        return 0;
    cp_number_begin();
    while (p < end) {
        if (*p == '\n' || *p == '\r') { /* blank lines, and the second half of a line end */
            p++;
            continue;
        }
        if (row == s->rows)
            return 0;
        for (int64_t i = 0; i < s->count; i++) {
            p = cp_field_read(s, &s->fields[i], p, end, row);
            if (!p || p == end || (*p == s->mark) != (i + 1 < s->count))
                return 0;
            p++;
        }
        row++;
    }
    return row == s->rows;
}
