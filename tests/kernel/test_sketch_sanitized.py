"""Runs block sketches under the address and undefined-behaviour sanitizers over labels of all kinds."""

import random
import struct

import numpy as np

from corgipile import _kernel

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "plan/sketch.h"

/* A case: type, floats, blocks, rows of each block, bytes of values; memory is just as long as it must be. */
int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int32_t head[3];
    while (file && fread(&length, 4, 1, file) == 1) {
        if (fread(head, 4, 3, file) != 3)
            return 1;
        int64_t blocks = head[2], item = cp_type_bytes[head[0]], rows = 0, added = 0;
        int64_t *cuts = malloc(8 * (size_t)(blocks + 1));
        double *out = malloc(8 * (size_t)blocks + 1);
        cp_sketch *s = calloc(1, sizeof *s);
        s->most = head[1] ? CP_SKETCH_FLOATS : CP_SKETCH_INTEGERS;
        s->cuts = cuts;
        s->told = malloc(sizeof *s->told * (size_t)blocks + 1);
        if (fread(cuts, 8, (size_t)blocks + 1, file) != (size_t)blocks + 1)
            return 1;
        rows = ((int64_t)length - 12 - 8 * (blocks + 1)) / item;
        for (int64_t at = 0, n; at < rows && added == at; at += n) {
            n = rows - at < 700 ? rows - at : 700;
            char *values = malloc((size_t)(n * item));
            if (fread(values, (size_t)item, (size_t)n, file) != (size_t)n)
                return 1;
            added += cp_sketch_rows(s, blocks, at, values, head[0], n);
            free(values);
        }
        while (s->blocks < blocks)
            cp_sketch_end_block(s);
        cp_sketch_values(s, out);
        printf("%lld\n", (long long)added);
        for (int64_t i = 0; i < blocks; i++) {
            int64_t bits;
            memcpy(&bits, &out[i], 8);
            printf("%lld\n", (long long)bits);
        }
        free(cuts), free(out), free(s->told), free(s);
    }
    return 0;
}
"""
TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def drawn(rng):
    """Draw a type, labels of it and block boundaries; some end in a number that is not finite."""
    code = rng.randrange(len(TYPES))
    generator = np.random.default_rng(rng.randrange(1 << 30))
    rows, span = rng.randrange(3000), rng.choice([1, 2, 3, 64, 65, 1024, 1025, 5000])
    values = generator.integers(0, span, rows) - rng.choice([0, span // 2])
    values = np.sort(values) if rng.random() < 0.5 else values
    labels = values.astype(TYPES[code])
    if code >= 8 and rows:
        labels[-1] = rng.choice([0.0, -0.0, 0.5, np.nan, np.inf, 3e38])
    cuts = np.sort(generator.integers(0, rows + 1, rng.randrange(1, 40)))
    return code, labels, np.concatenate([[0], cuts, [rows]]).astype(np.int64)


def in_python(code, labels, cuts):
    """Return rows added and the bits of the description of each block."""
    sketch, out = _kernel.sketch_new(cuts, code >= 8), np.empty(len(cuts) - 1)
    added = _kernel.sketch_add(sketch, labels, code)
    _kernel.sketch_values(sketch, out)
    return [added, *out.view(np.int64).tolist()]


def test_sketches_under_sanitizers(sanitized):
    rng = random.Random(7)  # noqa: S311
    drafts = [drawn(rng) for _ in range(300)]
    cases = [
        struct.pack("<3i", code, code >= 8, len(cuts) - 1) + cuts.tobytes() + labels.tobytes()
        for code, labels, cuts in drafts
    ]
    assert sanitized(MAIN, cases) == [number for draft in drafts for number in in_python(*draft)]
    assert sum(in_python(*draft)[0] < len(draft[1]) for draft in drafts) > 5
