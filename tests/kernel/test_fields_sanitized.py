"""Runs the reader of columns of text under the address and undefined-behaviour sanitizers, numbers against strtod."""

import math
import random
import struct
from decimal import Context, Decimal

MAIN = r"""
#include "formats/fields.h"
#include <stdio.h>
#include <stdlib.h>

#define FIELDS 6

static int64_t rows_of(const char *text, int64_t length)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < length; i++)
        rows += text[i] == '\n';
    return rows;
}

/* A column of numbers, as double and as float: all are to be what the C library makes of them. */
static int64_t numbers(const char *text, int64_t length)
{
    int64_t rows = rows_of(text, length);
    double *wide = malloc(8 * (size_t)rows);
    float *narrow = malloc(4 * (size_t)rows);
    cp_field f[2] = {{.wanted = 1, .to = {(char *)wide, 8, 1, CP_F64, CP_F64, 0}},
                     {.wanted = 1, .to = {(char *)narrow, 4, 1, CP_F32, CP_F32, 0}}};
    for (int i = 0; i < 2; i++) {
        cp_fields s = {.mark = ',', .count = 1, .fields = &f[i], .rows = rows};
        if (!cp_fields_read(&s, text, length) || f[i].unsure)
            abort();
    }
    for (int64_t row = 0; row < rows; row++) {
        double expected = strtod(text, NULL);
        float expected_narrow = strtof(text, NULL);
        if (memcmp(&wide[row], &expected, 8) || memcmp(&narrow[row], &expected_narrow, 4)) {
            fprintf(stderr, "%.60s: %a and %a, not %a and %a\n", text, wide[row], (double)narrow[row], expected,
                    (double)expected_narrow);
            abort();
        }
        text = strchr(text, '\n') + 1;
    }
    free(wide), free(narrow);
    return rows;
}

/* Any text, of fields of different types. */
static int64_t any(const char *text, int64_t length, int slots)
{
    static const enum cp_type from[FIELDS] = {CP_F64, CP_FIELD_BOOL, CP_I64, CP_U8, CP_F32, CP_I64};
    static const enum cp_type to[FIELDS] = {CP_F32, CP_U8, CP_I64, CP_U8, CP_F64, CP_F32};
    int64_t rows = 3, sure = 0;
    int32_t into[3] = {1, -1, 0};
    cp_field fields[FIELDS] = {{0}};
    for (int i = 0; i < FIELDS; i++) {
        fields[i].wanted = i != 2;
        int64_t size = cp_type_bytes[to[i]];
        fields[i].to = (cp_target){malloc((size_t)(rows * size)), size, 1, from[i], to[i], 0};
        fields[i].known = i & 1 ? memset(malloc(1), 255, 1) : NULL;
    }
    cp_fields s = {.mark = ',', .count = FIELDS, .fields = fields, .rows = rows, .into = slots ? into : NULL};
    if (cp_fields_read(&s, text, length))
        for (int i = 0; i < FIELDS; i++)
            sure += fields[i].wanted && !fields[i].unsure;
    for (int i = 0; i < FIELDS; i++)
        free(fields[i].to.base), free(fields[i].known);
    return sure;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t found = 0, sure = 0;
    while (file && fread(&length, 4, 1, file) == 1) {
        char *text = malloc(length + !length); /* just these bytes, so that reading beyond them is seen */
        if (fread(text, 1, length, file) != length)
            return 1;
        if (length && text[0] == '=') {
            char *copy = malloc(length - 1);
            memcpy(copy, text + 1, length - 1);
            found += numbers(copy, length - 1);
            free(copy);
        } else {
            sure += any(text, length, 0) + any(text, length, 1);
        }
        free(text);
    }
    printf("%lld %lld\n", (long long)found, (long long)sure);
    return 0;
}
"""
EXACT = Context(prec=1200)
WORDS = [b",", b",", b"\n", b"\r\n", b'"', b'""', b" ", b"\t", b"1", b"-2.5", b"NA", b"true", b"300", b"inf", b"1e5"]
WORDS += [b"9" * 30, b"x" * 20, b"\0", b"\xff", b"0.1234567890123456", b"-", b".", b"1.5e-3"]


def between(rng, whole, fraction, bits):
    """Return what is halfway between two neighbours of a format, which has up to 767 digits."""
    while True:
        number = rng.getrandbits(bits - 1)
        one, other = (struct.unpack(fraction, struct.pack(whole, n))[0] for n in (number, number + 1))
        if math.isfinite(other):
            return EXACT.divide(EXACT.add(Decimal(one), Decimal(other)), 2)


def number_of(rng):
    """Return a number in one of the ways in which it can be written."""
    kind = rng.randrange(6)
    if kind == 0:
        return f"{rng.getrandbits(rng.randrange(1, 64))}e{rng.randrange(-350, 320)}"
    if kind == 1:
        half = between(rng, "<Q", "<d", 64) if rng.random() < 0.5 else between(rng, "<I", "<f", 32)
        return rng.choice(["{}", "{:f}", "{:f}000000001", "{:.17e}", "{:.25e}", "{:.9e}"]).format(half)
    if kind == 2:
        return f"{rng.gauss(0, 10 ** rng.randrange(-5, 12)):+.{rng.randrange(25)}f}"
    if kind == 3:
        return f"{'0' * rng.randrange(30)}.{'0' * rng.randrange(30)}{rng.getrandbits(rng.randrange(1, 300))}"
    if kind == 4:
        return rng.choice(["inf", "-Infinity", "+INF", "-0", "0.0e9", "1.", "-.5", "1e400", "-1e-400", "5E-324"])
    return repr(rng.gauss(0, 1))


def test_fields_under_sanitizers(sanitized):
    rng = random.Random(3)  # noqa: S311
    cases = ["".join(f"{number_of(rng)}\n" for _ in range(rng.randrange(1, 60))) for _ in range(400)]
    texts = [b"=" + case.encode() for case in cases]
    lines = [b"1.5,true,,7,2,5\n2,0,x,8,1e3,6\n,,,,,\n", b'1,1,"a,\n""",1,1,1\n' * 3]
    for _ in range(4000):
        if rng.random() < 0.5:
            texts.append(b"".join(rng.choices(WORDS, k=rng.randrange(40))) + b"\n")
            continue
        text = bytearray(rng.choice(lines))
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(3)] = rng.choice(WORDS)
        texts.append(bytes(text))
    found, sure = sanitized(MAIN, texts)
    assert found == sum(case.count("\n") for case in cases)
    assert sure > 4_000
