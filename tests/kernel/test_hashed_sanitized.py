"""Hashes damaged text under the address and undefined-behaviour sanitizers."""

import random

MAIN = r"""
#include "text/hashed.h"
#include <stdio.h>

/* Hash the two halves of a text as words, as a category and crossed; return the entries, or end if they are wrong. */
static int64_t hashed(const uint8_t *text, int64_t length, int variant)
{
    int64_t offsets[3] = {0, length / 2, length}, before = -1;
    double numbers[2] = {1.5, 0};
    uint8_t missing[2] = {0, 1};
    float beside[4] = {0, 1, 2, 3};
    cp_hashed_column columns[3] = {{CP_HASHED_WORDS, 0, text, offsets, NULL},
                                   {CP_HASHED_CATEGORY, 7, text, offsets, NULL},
                                   {CP_HASHED_NUMBER, 9, NULL, NULL, numbers}};
    cp_hashed_term terms[5] = {{1, {0}}, {1, {1}}, {2, {0, 2}}, {2, {0, 0}}, {4, {0, 1, 2, 0}}};
    int32_t ends[2];
    cp_hashed s = {.bits = variant & 1 ? 3 : 18, .ngrams = 1 + variant % 8, .columns_count = 3, .columns = columns,
                   .terms_count = variant & 2 && length < 200 ? 5 : 2, .terms = terms,
                   .missing = variant & 4 ? missing : NULL, .beside = beside, .beside_count = variant & 1 ? 2 : 0};
    if (cp_hashed_rows(&s, 2, ends) < 0 || ends[1] != s.entries || ends[0] > ends[1])
        abort();
    for (int64_t i = 0; i < s.entries; i++) {
        if (i == ends[0])
            before = -1;
        if (s.indices[i] <= before || s.indices[i] >= (1 << s.bits) + s.beside_count || s.values[i] == 0)
            abort();
        before = s.indices[i];
    }
    int64_t entries = s.entries;
    cp_hashed_free(&s);
    return entries;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t sum = 0, cases = 0;
    while (file && fread(&length, 4, 1, file) == 1) {
        uint8_t *text = malloc(length + !length); /* of just these bytes, so that reading beyond them is seen */
        if (fread(text, 1, length, file) != length)
            return 1;
        for (int variant = 0; variant < 8; variant++)
            sum += hashed(text, length, variant);
        free(text);
        cases++;
    }
    printf("%lld %lld\n", (long long)cases, (long long)sum);
    return 0;
}
"""

PARTS = [b"word", b" ", b"Ab", "\u00e9".encode(), "\u0416\u4e2d\U0001f600".encode(), b"-"]
PARTS += [b"\xf0\x9f", b"\xe2", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"]


def test_hashing_under_sanitizers(sanitized):
    rng = random.Random(3)  # noqa: S311
    texts = [b"".join(rng.choices(PARTS, k=rng.randrange(30))) for _ in range(2000)]
    texts += [b"", b"\xf0", b"x" * 300_000, b"one two " * 30_000]
    texts += [" ".join(str(rng.randrange(200_000)) for _ in range(40_000)).encode()]
    count, entries = sanitized(MAIN, texts)
    assert count == len(texts)
    assert entries > 100_000
