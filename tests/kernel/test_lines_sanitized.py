"""Runs the scan for rows of text under the address and undefined-behaviour sanitizers, against one byte by byte."""

import random

MAIN = r"""
#include "formats/lines.h"
#include <stdio.h>
#include <stdlib.h>

/* Find rows of delimited text a byte at a time, as the parser of Arrow reads them; return how many. */
static int64_t slowly(const char *text, int64_t length, int64_t *starts)
{
    int64_t rows = 0, start = 0;
    int quoted = 0;
    for (int64_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '"') {
            if (quoted && i + 1 < length && text[i + 1] == '"')
                i++;
            else if (quoted || i == start || text[i - 1] == ',')
                quoted = !quoted;
        } else if (!quoted && (c == '\n' || c == '\r')) {
            if (i > start)
                starts[rows++] = start;
            start = i + 1 + (c == '\r' && i + 1 < length && text[i + 1] == '\n');
            i = start - 1;
        }
    }
    if (start < length && !quoted)
        starts[rows++] = start;
    return rows;
}

/* Scan in pieces, each a copy of just its bytes, so that reading beyond them is seen. */
static int64_t scan(const char *text, int64_t length, int64_t piece, int64_t room, int64_t *starts)
{
    int64_t rows = 0, at = 0, chunk = piece;
    cp_lines s = {.mark = ',', .quote = '"', .rows_max = room};
    while (at < length) {
        int64_t size = length - at < chunk ? length - at : chunk;
        char *copy = malloc((size_t)size);
        memcpy(copy, text + at, (size_t)size);
        s.starts = starts + rows;
        s.fields = 0; /* rows of any fields */
        cp_lines_scan(&s, copy, size, at + size == length);
        free(copy);
        for (int64_t i = 0; i < s.rows; i++)
            starts[rows++] += at;
        if (s.code == CP_LINES_FIELDS) { /* go on behind what was found */
            at += s.consumed;
            continue;
        }
        if (s.code == CP_LINES_OPEN)
            break;
        chunk = s.consumed ? piece : 2 * chunk;
        at += s.consumed;
    }
    return rows;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    static const int64_t pieces[] = {1, 5, 64, 100, 1 << 20};
    uint32_t length;
    int64_t cases = 0, found = 0, json = 0;
    while (file && fread(&length, 4, 1, file) == 1) {
        char *text = malloc(length + 1);
        int64_t *expected = malloc(8 * (size_t)(length + 1)), *starts = malloc(8 * (size_t)(length + 1));
        if (fread(text, 1, length, file) != length)
            return 1;
        int64_t rows = slowly(text, length, expected);
        for (int i = 0; i < 10; i++) {
            int64_t got = scan(text, length, pieces[i / 2], i & 1 ? 1 : length + 1, starts);
            if (got != rows || memcmp(starts, expected, 8 * (size_t)rows))
                abort();
        }
        cp_lines s = {.rows_max = length + 1, .starts = starts};
        cp_lines_scan(&s, text, length, 1);
        json += s.rows;
        found += rows;
        cases++;
        free(text), free(expected), free(starts);
    }
    printf("%lld %lld %lld\n", (long long)cases, (long long)found, (long long)json);
    return 0;
}
"""
WORDS = [b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"12.5", b" ", b"{", b"x" * 70, b"\0", b"\xff", b'",', b',"']


def test_scan_under_sanitizers(sanitized):
    rng = random.Random(7)  # noqa: S311
    texts = [b"".join(rng.choices(WORDS, k=rng.randrange(60))) for _ in range(1200)]
    count, rows, json = sanitized(MAIN, texts)
    assert count == len(texts)
    assert rows > 4_000
    assert json > 40
