"""Runs what an audit counts under the address and undefined-behaviour sanitizers, against NumPy's and Python's own."""

import random
import struct
from itertools import pairwise

import numpy as np
import pytest

from corgipile import _kernel
from corgipile.quality.visits import mixed

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "quality/visits.h"

static void print_all(const int64_t *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        printf("%lld\n", (long long)values[i]);
}

/* A case: visits, rows, batches, kinds, bound; row numbers, classes, sizes. Memory is just as long as it must be. */
int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t head[5];
    while (file && fread(&length, 4, 1, file) == 1) {
        if (fread(head, 8, 5, file) != 5)
            return 1;
        int64_t n = head[0], rows = head[1], batches = head[2], kinds = head[3], words = rows / 64 + (rows % 64 > 0);
        int64_t *given = malloc(8 * (size_t)(2 * n + batches));
        if (fread(given, 8, (size_t)(2 * n + batches), file) != (size_t)(2 * n + batches))
            return 1;
        int64_t *chosen = malloc(8 * (size_t)n), *places = malloc(8 * (size_t)n), *codes = malloc(8 * (size_t)n);
        double *along = malloc(8 * (size_t)batches), *counts = malloc(8 * (size_t)(batches * kinds));
        cp_visits v = {calloc((size_t)words, 8), rows, (uint64_t)head[4], chosen, 0, 0, 0, {0, 0}, 0, NULL, 16};
        v.places = rows ? places : NULL;
        int64_t half = batches / 2, first = 0, total = 0;
        for (int64_t i = 0; i < half; i++)
            first += given[2 * n + i];
        cp_visits_add(&v, given, given + 2 * n, half, along);
        total = v.count;
        v.chosen = chosen + total;
        v.places = rows ? places + first : NULL;
        cp_visits_add(&v, given + first, given + 2 * n + half, batches - half, along + half);
        printf("%lld\n%lld\n%lld\n", (long long)v.hash_sum, (long long)v.foreign, (long long)(total + v.count));
        print_all((int64_t *)v.seen, words);
        for (int64_t i = 0; i < batches; i++)
            printf("%lld\n", (long long)along[i]);
        print_all(places, rows ? n : 0);
        int64_t *last = malloc(8 * (size_t)kinds), *longest = calloc((size_t)kinds, 8);
        memset(last, 255, 8 * (size_t)kinds);
        int64_t table[7] = {0, 1, 2, -1, 3, 4, 5};
        printf("%lld\n", (long long)cp_classes_find(given + n, n, table, -3, 7, codes));
        int status = cp_classes_add(given + n, given + 2 * n, batches, kinds, counts, 0, last, longest);
        printf("%d\n", status);
        if (!status) {
            print_all(last, kinds), print_all(longest, kinds);
            for (int64_t i = 0; i < batches * kinds; i++)
                printf("%lld\n", (long long)counts[i]);
        }
        free(v.seen), free(given), free(chosen), free(places), free(codes);
        free(along), free(counts), free(last), free(longest);
    }
    return 0;
}
"""


def drawn(rng):
    """Draw visits, some of rows in order or of none of the table, their classes, and the sizes of batches."""
    generator = np.random.default_rng(rng.randrange(1 << 30))
    n, rows, kinds = rng.randrange(400), rng.choice([0, 1, 63, 64, 65, 300]), rng.randrange(1, 6)
    ids = generator.integers(-2 * (rng.random() < 0.3), max(1, rows + rng.choice([0, 0, 2])), n)
    if n and rng.random() < 0.4:
        ids[n // 3 :] = np.arange(n - n // 3) * rng.choice([1, -1, 7, 4096, -4096, 4097, -4097])
    if n and rng.random() < 0.1:
        ids[0], ids[-1] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    codes = generator.integers(0, kinds + (rng.random() < 0.1), n)
    cuts = np.sort(generator.integers(0, n + 1, rng.randrange(8)))
    return ids, codes, np.diff(np.concatenate([[0], cuts, [n]])), rows, kinds, rng.choice([0, 1 << 62, -1])


def expected(ids, codes, sizes, rows, kinds, bound):
    """Return what the program prints, by definitions."""
    hashes, wide = mixed(ids), ids.astype(object)
    seen = np.zeros(-(-rows // 64) * 64, np.uint8)
    inside = (ids >= 0) & (ids < rows)
    seen[ids[inside]] = 1
    steps = [int(step) for step in np.diff(wide)]
    steps = [(step + (1 << 63)) % (1 << 64) - (1 << 63) for step in steps]
    goes_on = [0, 0] + [int(a == b != 0 and abs(b) <= 4096) for a, b in pairwise(steps)]
    batch_of = np.repeat(np.arange(len(sizes)), sizes)
    out = [int(hashes.sum(dtype=np.uint64).astype(np.int64)), int((~inside).sum())]
    out.append(int((hashes <= np.uint64(bound % (1 << 64))).sum()))
    out += np.packbits(seen, bitorder="little").view(np.int64).tolist()
    out += [sum(goes_on[at] for at in np.flatnonzero(batch_of == batch)) for batch in range(len(sizes))]
    out += [int(row * (16 / rows)) if good else 0 for row, good in zip(ids, inside, strict=True)] if rows else []
    odd = np.flatnonzero((codes < -3) | (codes > 3) | (codes == 0))
    out.append(int(odd[0]) if len(odd) else len(codes))
    if (codes >= kinds).any():
        return [*out, -1]
    at = [[-1, *np.flatnonzero(codes == kind).tolist()] for kind in range(kinds)]
    out += [0, *(places[-1] for places in at), *(max(np.diff(places) - 1, default=0) for places in at)]
    counts = np.zeros((len(sizes), kinds), int)
    np.add.at(counts, (batch_of, codes), 1)
    return [*out, *counts.ravel().tolist()]


def test_what_an_audit_counts_under_sanitizers(sanitized):
    rng = random.Random(11)  # noqa: S311
    drafts = [drawn(rng) for _ in range(300)]
    cases = [
        struct.pack("<5q", len(ids), rows, len(sizes), kinds, bound)
        + b"".join(values.astype(np.int64).tobytes() for values in (ids, codes, sizes))
        for ids, codes, sizes, rows, kinds, bound in drafts
    ]
    assert sanitized(MAIN, cases) == [number for draft in drafts for number in expected(*draft)]


def test_arrays_that_do_not_fit_are_refused():
    ids, sizes, room, last = np.arange(4), np.array([4]), np.zeros(4, np.int64), np.zeros(3, np.int64)
    seen, along = np.zeros(1, np.uint64), np.zeros(1)
    good = [ids, sizes, seen, 64, 1, room, along, last, room, 16]
    _kernel.visits_add(*good)
    for at, bad in [(1, np.array([5])), (3, 65), (3, -1), (5, room[:3]), (6, np.zeros(2)), (7, room), (8, room[:1])]:
        with pytest.raises(ValueError, match="must match"):
            _kernel.visits_add(*good[:at], bad, *good[at + 1 :])
    with pytest.raises(ValueError, match="codes must hold all values"):
        _kernel.classes_find(ids, room, 0, room[:3])
    for codes, counts in ((ids, np.zeros(3)), (ids - 1, np.zeros(4)), (ids[:3], np.zeros(4))):
        with pytest.raises(ValueError, match="must match"):
            _kernel.classes_add(codes, sizes, counts, 0, None, None)
