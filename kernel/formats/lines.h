/* Finds the rows of text: lines of delimited text, whose quoted fields may contain line ends (RFC 4180), and lines of
 * JSON. Reads nothing beyond the bytes given. */
#pragma once

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum cp_lines_code {
    CP_LINES_OK,     /* all complete rows are found */
    CP_LINES_FULL,   /* no space for the next row */
    CP_LINES_FIELDS, /* the number of fields differs from earlier rows */
    CP_LINES_SHAPE,  /* a line of JSON that does not begin with a brace */
    CP_LINES_OPEN    /* the text ends within quotes */
};

typedef struct {
    /* in */
    char mark;  /* between fields; 0: lines of JSON */
    char quote; /* starts a field that may contain marks, quotes and line ends; 0: none */
    int64_t rows_max;
    int64_t *starts; /* [rows_max] offset of each row */
    /* in and out */
    int64_t fields; /* of every row; 0: those of the first */
    /* out */
    int64_t rows, consumed;
    int code;
    int64_t at, got; /* offset of the invalid row, and its fields */
} cp_lines;

typedef struct {
    uint64_t end, quote, mark;
} cp_lines_masks;

/* Classify 64 bytes. */
static inline cp_lines_masks cp_lines_classify(const cp_lines *s, const char *text)
{
    cp_lines_masks masks = {0, 0, 0};
#ifdef __SSE2__
    const __m128i newline = _mm_set1_epi8('\n'), back = _mm_set1_epi8('\r');
    const __m128i quote = _mm_set1_epi8(s->quote), mark = _mm_set1_epi8(s->mark);
    for (int i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(text + 16 * i));
        __m128i ends = _mm_cmpeq_epi8(bytes, newline);
        if (s->mark)
            ends = _mm_or_si128(ends, _mm_cmpeq_epi8(bytes, back));
        masks.end |= (uint64_t)(uint32_t)_mm_movemask_epi8(ends) << 16 * i;
        masks.quote |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, quote)) << 16 * i;
        masks.mark |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, mark)) << 16 * i;
    }
#else
    for (int i = 0; i < 64; i++) {
        masks.end |= (uint64_t)(text[i] == '\n' || (s->mark && text[i] == '\r')) << i;
        masks.quote |= (uint64_t)(text[i] == s->quote) << i;
        masks.mark |= (uint64_t)(text[i] == s->mark) << i;
    }
#endif
    if (!s->quote)
        masks.quote = 0;
    if (!s->mark)
        masks.mark = 0;
    return masks;
}

/* Add a row; `end` is the end of its line, `marks` the number of marks in it. */
static inline int cp_lines_row(cp_lines *s, const char *text, int64_t start, int64_t end, int64_t marks)
{
    int64_t first = start;
    while (!s->mark && first < end && (text[first] == ' ' || text[first] == '\t' || text[first] == '\r'))
        first++;
    if (first == end)
        return CP_LINES_OK; /* blank */
    if (s->rows == s->rows_max)
        return CP_LINES_FULL;
    s->at = start;
    s->got = marks + 1;
    if (!s->mark && text[first] != '{')
        return CP_LINES_SHAPE;
    if (s->mark && !s->fields)
        s->fields = s->got;
    if (s->mark && s->got != s->fields)
        return CP_LINES_FIELDS;
    s->starts[s->rows++] = start;
    return CP_LINES_OK;
}

/* Find rows until the text ends or the space is full. A row without a line end is left to the next call (`consumed` is
 * its offset) unless this is the `final` text. */
static inline void cp_lines_scan(cp_lines *s, const char *text, int64_t length, int final)
{
    int64_t start = 0, marks = 0, skip = 0; /* `skip`: bytes before it are done */
    int quoted = 0;
    s->rows = s->at = s->got = 0;
    s->code = CP_LINES_OK;
    for (int64_t base = 0; base < length; base += 64) {
        char last[64] = {0};
        const char *block = text + base;
        int64_t left = length - base;
        if (left < 64)
            block = memcpy(last, block, (size_t)left);
        cp_lines_masks masks = cp_lines_classify(s, block);
        uint64_t inside = left < 64 ? ((uint64_t)1 << left) - 1 : ~(uint64_t)0;
        if (skip > base)
            inside &= skip - base < 64 ? ~(uint64_t)0 << (skip - base) : 0;
        while (inside) {
            uint64_t next = (quoted ? masks.quote : masks.end | masks.quote) & inside;
            uint64_t before = next ? (next & -next) - 1 : ~(uint64_t)0; /* bytes before the next special one */
            if (!quoted)
                marks += __builtin_popcountll(masks.mark & inside & before);
            if (!next)
                break;
            int64_t i = base + __builtin_ctzll(next), step = 1;
            char follows = i + 1 < length ? text[i + 1] : 0;
            if (i + 1 == length && !final && text[i] != '\n')
                goto done; /* the next byte decides what this is */
            if (text[i] == s->quote && s->quote) {
                if (quoted && follows == s->quote)
                    step = 2;
                else if (quoted || i == start || text[i - 1] == s->mark)
                    quoted = !quoted;
            } else {
                step += text[i] == '\r' && follows == '\n';
                s->code = cp_lines_row(s, text, start, i, marks);
                if (s->code)
                    goto done;
                start = i + step;
                marks = 0;
            }
            skip = i + step;
            inside &= skip - base < 64 ? ~(uint64_t)0 << (skip - base) : 0;
        }
    }
    if (final && start < length) {
        s->at = start;
        s->code = quoted ? CP_LINES_OPEN : cp_lines_row(s, text, start, length, marks);
        if (!s->code)
            start = length;
    }
done:
    s->consumed = start;
}
