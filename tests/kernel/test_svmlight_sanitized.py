"""Runs the SVMlight parser under the address and undefined-behaviour sanitizers over damaged text."""

import random

MAIN = r"""
#include "formats/svmlight.h"
#include <stdio.h>
#include <stdlib.h>

static int64_t parse(const char *text, int64_t length, int final, int64_t base, int64_t room)
{
    cp_svm s = {0};
    int64_t rows = 0;
    s.rows_max = s.entries_max = room;
    s.base = base;
    s.labels = malloc((size_t)room * 8);
    s.starts = malloc((size_t)room * 8);
    s.ends = malloc((size_t)room * 4);
    s.indices = final ? malloc((size_t)room * 4) : NULL;
    s.values = final ? malloc((size_t)room * 4) : NULL;
    do {
        /* A copy of just these bytes, so that reading beyond them is seen. */
        char *copy = malloc((size_t)length + !length);
        memcpy(copy, text, (size_t)length);
        cp_svm_parse(&s, copy, length, final);
        free(copy);
        if (s.consumed > length || s.rows > room || (s.indices && s.entries > room))
            abort();
        rows += s.rows;
        text += s.consumed;
        length -= s.consumed;
    } while (s.code == CP_SVM_FULL && s.rows);
    free(s.labels), free(s.starts), free(s.ends), free(s.indices), free(s.values);
    return rows + 1000000 * (s.code != CP_SVM_OK && s.code != CP_SVM_FULL);
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t sum = 0, cases = 0;
    while (file && fread(&length, 4, 1, file) == 1) {
        char *text = malloc(length + 1);
        if (fread(text, 1, length, file) != length)
            return 1;
        for (int variant = 0; variant < 8; variant++)
            sum += parse(text, length, variant & 1, variant >> 1 & 1, variant & 4 ? 3 : 500);
        free(text);
        cases++;
    }
    printf("%lld %lld %lld\n", (long long)cases, (long long)(sum / 1000000), (long long)(sum % 1000000));
    return 0;
}
"""


def text_of(rng):
    lines = []
    for _ in range(rng.randrange(8)):
        number = rng.choice(["%d", "%.3f", "%.17g", "%e", "+%d", "%.25f", "-%g"])
        pairs = [f"{k}:{number % (rng.random() * 10 ** rng.randrange(-30, 30))}" for k in range(1, rng.randrange(1, 8))]
        head = rng.choice(["1", "-1", "+1", "0.5", "1e3", "1 qid:7", "", "# only a comment"])
        lines.append(" ".join([head, *pairs]) + rng.choice(["", " # comment", " ", "\r"]))
    return ("\n".join(lines) + rng.choice(["", "\n"])).encode()


def damaged(rng):
    text = bytearray(text_of(rng))
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(text) + 1)
        kind = rng.random()
        if kind < 0.6:
            text[at : at + 1] = bytes([rng.choice(b"0123456789:+-.eE#,\n\r\t nanif\0\xff")])
        elif kind < 0.8:
            text[at:at] = rng.choice(
                [b"9" * rng.randrange(1200), b"1e999", b"nan", b"-inf", b"2147483648:1", b"qid:", b"0:1 "]
            )
        else:
            del text[at : at + rng.randrange(30)]
    return bytes(text)


def test_parser_under_sanitizers(sanitized):
    rng = random.Random(5)  # noqa: S311
    texts = [damaged(rng) for _ in range(4000)]
    count, refused, rows = sanitized(MAIN, texts)
    assert count == len(texts)
    assert refused > 1000
    assert rows > 1000
