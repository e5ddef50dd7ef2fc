"""Writes sparse rows out under the address and undefined-behaviour sanitizers, whole ones and broken ones."""

import random
import struct

import numpy as np
import pytest

from corgipile import _kernel
from corgipile.tables.table import type_code

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "io/expand.h"

static void *part(FILE *file, int64_t bytes)
{
    void *made = malloc((size_t)bytes); /* just as long as it must be */
    if (fread(made, 1, (size_t)bytes, file) != (size_t)bytes)
        abort();
    return made;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    while (file && fread(&length, 4, 1, file) == 1) {
        int64_t head[7]; /* type of indices and values, whether double, width, rows, indices, values */
        if (fread(head, 8, 7, file) != 7)
            return 1;
        int64_t rows = head[4], bytes = rows * head[3] * (head[2] ? 8 : 4);
        int64_t *ends = part(file, 8 * (rows + 1)), *others = part(file, 8 * (rows + 1));
        char *indices = part(file, head[5] * cp_type_bytes[head[0]]);
        char *values = part(file, head[6] * cp_type_bytes[head[1]]);
        char *out = malloc((size_t)bytes);
        memset(out, 255, (size_t)bytes);
        cp_sparse_rows s = {indices, values, ends, others, rows, head[5], head[6], head[0], head[1]};
        int64_t bad = cp_expand(out, head[3], (int)head[2], &s, 0, rows);
        double sum = 0;
        for (int64_t i = 0; bad < 0 && i < rows * head[3]; i++)
            sum += (double)(i + 1) * (head[2] ? ((double *)(void *)out)[i] : ((float *)(void *)out)[i]);
        printf("%lld %lld\n", (long long)bad, (long long)sum);
        free(ends), free(others), free(indices), free(values), free(out);
    }
    return 0;
}
"""
WHOLE = [np.dtype(kind) for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
TYPES = [*WHOLE, np.dtype("f4"), np.dtype("f8")]


def case(rng):
    """Return a case, and its arrays."""
    width, rows = rng.choice([1, 7, 100]), rng.randrange(1, 6)
    lengths = [rng.choice([0, 1, 3, 255, 256, 600]) for _ in range(rows)]
    ends = np.append(0, np.cumsum(lengths)).astype(np.int64)
    indices = np.array([rng.randrange(width) for _ in range(ends[-1])], rng.choice(WHOLE))
    values = np.array([rng.randrange(100) for _ in range(ends[-1])], rng.choice(TYPES))
    others = ends.copy()
    flaw = rng.choice(["", "", "", "index", "lengths", "far", "back"])
    if flaw == "index" and len(indices):
        low = indices.dtype.kind == "i" and rng.random() < 0.5
        indices[rng.randrange(len(indices))] = -1 if low else max(width, np.iinfo(indices.dtype).max)
    elif flaw == "lengths":
        others[rng.randrange(rows + 1)] += 1
    elif flaw:
        ends[rng.randrange(rows + 1)] = 1 << 62 if flaw == "far" else -5
    return indices, ends, values, others, width, rng.random() < 0.5


def slowly(indices, ends, values, others, width, wide):
    """Return the first row that is broken, else -1, and a sum of all numbers by their places."""
    rows = len(ends) - 1
    out = np.zeros((rows, width))
    for row in range(rows):
        low, high, first, last = map(int, (*ends[row : row + 2], *others[row : row + 2]))
        within = 0 <= low <= high <= len(indices) and 0 <= first <= last <= len(values)
        if not within or high - low != last - first or not all(0 <= i < width for i in indices[low:high].tolist()):
            return row, 0
        np.add.at(out[row], indices[low:high].astype(int), values[first:last].astype(float))
    return -1, int((out.reshape(-1) * np.arange(1, out.size + 1)).sum())


def test_rows_under_sanitizers(sanitized):
    rng, said, expected = random.Random(3), [], []  # noqa: S311
    for _ in range(400):
        indices, ends, values, others, width, wide = one = case(rng)
        head = type_code(indices.dtype), type_code(values.dtype), wide, width, len(ends) - 1, len(indices), len(values)
        said.append(struct.pack("<7q", *head) + b"".join(part.tobytes() for part in (ends, others, indices, values)))
        expected += slowly(*one)
    assert sanitized(MAIN, said) == expected
    assert 50 < sum(bad >= 0 for bad in expected[::2]) < 350


def test_what_python_asks_is_checked():
    asked = np.zeros((2, 3), "f4"), np.zeros(2, "i4"), np.array([0, 1, 2]), np.ones(2), np.array([0, 1, 2])
    how = {"width": 3, "index_type": type_code(np.dtype("i4")), "value_type": type_code(np.dtype("f8")), "wide": False}
    assert _kernel.expand(*asked, 0, 2, **how) == -1
    assert asked[0].tolist() == [[1, 0, 0], [1, 0, 0]]
    for first, count, wrong in (
        (1, 2, {}),
        (-1, 1, {}),
        (0, -1, {}),
        (0, 2, {"width": 4}),
        (0, 2, {"width": 1 << 62}),
        (0, 2, {"width": 0}),
        (0, 2, {"wide": True}),
        (0, 2, {"index_type": 8}),
        (0, 2, {"value_type": 10}),
        (0, 2, {"value_type": -1}),
    ):
        with pytest.raises(ValueError, match="rows must lie within the arrays"):
            _kernel.expand(*asked, first, count, **how | wrong)
    with pytest.raises(ValueError, match="rows must lie within"):
        _kernel.expand(*asked[:4], np.array([0, 1]), 0, 2, **how)
    with pytest.raises(TypeError, match="elements of 4 bytes, must have 8"):
        _kernel.expand(*asked[:4], np.array([0, 1, 2], "i4"), 0, 2, **how)
    with pytest.raises((BufferError, ValueError)):
        _kernel.expand(b"x" * 24, *asked[1:], 0, 2, **how)
