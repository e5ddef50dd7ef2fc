"""Reads rows of varying length under the address and undefined-behaviour sanitizers, whole files and broken ones."""

import random
import struct

import numpy as np
import pytest

from corgipile import _kernel

MAIN = r"""
#define _GNU_SOURCE
#include "io/reader.h"
#include <stdio.h>

static void *part(FILE *file, int64_t bytes)
{
    void *made = malloc((size_t)bytes + !bytes); /* just as long as it must be */
    if (fread(made, 1, (size_t)bytes, file) != (size_t)bytes)
        abort();
    return made;
}

static int64_t summed(const cp_lists *l, const int32_t *into, int64_t count)
{
    int64_t sum = 0, place = 0;
    for (int64_t i = 0; i < count; i++) {
        if (into[i] < 0)
            continue;
        const uint8_t *at = (const uint8_t *)(uintptr_t)l->address[into[i]];
        for (int64_t k = 0; k < l->length[into[i]] * l->item; k++)
            sum += ++place % 1009 * at[k];
        sum += l->length[into[i]];
    }
    return sum;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    while (file && fread(&length, 4, 1, file) == 1) {
        /* wide, item, text, rows of each of two pieces, slots, runs, rows of them, items that each piece has, bytes of
           the file, threads */
        int64_t h[12];
        if (fread(h, 8, 12, file) != 12)
            return 1;
        int64_t *places = part(file, 32), *extents = part(file, 16 * h[6]);
        int32_t *into = part(file, 4 * h[7]);
        char *bytes = part(file, h[10]), name[] = "/tmp/corgipile-lists-XXXXXX";
        int fd = mkstemp(name);
        if (fd < 0 || unlink(name) || write(fd, bytes, (size_t)h[10]) != h[10])
            return 2;
        int64_t starts[3] = {0, h[3], h[3] + h[4]}, counts[2] = {h[8], h[9]};
        int32_t fds[2] = {fd, fd}, *owner = malloc(4 * (size_t)h[5]), *slots = malloc(4 * (size_t)h[5]);
        for (int32_t i = 0; i < h[5]; i++)
            owner[i] = CP_NO_OWNER, slots[i] = i;
        uint64_t *address = calloc((size_t)h[5], 8), *other_address = calloc((size_t)h[5], 8);
        int64_t *lengths = calloc((size_t)h[5], 8), *other_lengths = calloc((size_t)h[5], 8);
        cp_lists lists[2] = {{places + 2, counts, h[1], (int)h[2], address, lengths},
                             {places + 2, counts, h[1], (int)h[2], other_address, other_lengths}};
        enum cp_type kind = h[0] ? CP_I64 : CP_I32;
        cp_column columns[2] = {{2, starts, places, fds, {NULL, 0, 1, kind, kind, 0}, &lists[0]},
                                {2, starts, places, fds, {NULL, 0, 1, kind, kind, 0}, &lists[1]}};
        cp_bundles bundles;
        cp_bundles_init(&bundles, 1 << 20);
        cp_reader reader;
        if (cp_reader_start(&reader, (int)h[11]) < 0)
            return 3;
        reader.columns = columns, reader.column_count = 2;
        int64_t sum = 0, listed = 0;
        int status = cp_reader_read(&reader, extents, h[6], into, NULL, 1);
        if (!status) {
            listed = atomic_load(&reader.read.listed);
            status = cp_reader_items(&reader, (cp_runs){extents, h[6], into, NULL, NULL}, owner, &bundles, 1);
        }
        if (!status)
            sum = summed(&lists[0], into, h[7]) + 3 * summed(&lists[1], into, h[7]);
        int64_t left = cp_bundles_release(&bundles, owner, slots, h[5]);
        if (left || bundles.bytes || bundles.rows)
            return 4;
        for (int64_t i = 0; i < h[5]; i++)
            if (owner[i] != CP_NO_OWNER)
                return 5;
        printf("%d %d %lld %lld\n", status, status ? reader.read.error : 0, (long long)sum, (long long)listed);
        cp_reader_stop(&reader);
        cp_bundles_free(&bundles);
        close(fd);
        free(places), free(extents), free(into), free(bytes), free(owner), free(slots);
        free(address), free(other_address), free(lengths), free(other_lengths);
    }
    return 0;
}
"""
BAD_OFFSETS, BAD_TEXT = -1, -2
TEXT = ["", "a", "plain text, and long enough", "grün", "日本", "🐕 dog", "x" * 70_000]


def pieces(rng, item, text):
    """Return the rows of two pieces, as bytes."""
    made = []
    for _ in range(2):
        rows = rng.randrange(1, 30)
        if text:
            made.append([rng.choice(TEXT).encode() for _ in range(rows)])
        else:
            made.append([rng.randbytes(item * rng.choice([0, 0, 1, 5, 3000, 9000])) for _ in range(rows)])
    return made


def case(rng):
    """Return a case: its bytes, and what its reading says."""
    wide, text = rng.random() < 0.5, rng.random() < 0.4
    item = 1 if text else rng.choice([1, 2, 4, 8])
    rows = pieces(rng, item, text)
    flaw = rng.choice(["", "", "", "", "falls", "far", "negative", "short", *(["text"] if text else [])])
    broken, which = rng.randrange(len(rows[0])), []  # a row of the first piece
    data, places = b"", [0, 0, 0, 0]
    for number, piece in enumerate(rows):
        offsets = np.cumsum([0, *(len(row) // item for row in piece)])
        if not number and flaw in ("falls", "far", "negative"):
            offsets[broken + 1] = {"falls": -7 + offsets[broken], "far": offsets[-1] + 1, "negative": -1}[flaw]
            which = [row for row in (broken, broken + 1) if row < len(piece)]
        places[number], data = len(data), data + offsets.astype("<i8" if wide else "<i4").tobytes() + b"gap"
        if not number and flaw == "text":
            piece[broken], which = b"\xc3" * max(1, len(piece[broken])), [broken]
            offsets = np.cumsum([0, *map(len, piece)])
            start = places[number]
            data = data[:start] + offsets.astype("<i8" if wide else "<i4").tobytes() + b"gap"
        places[2 + number], data = len(data), data + b"".join(piece) + b"x" * 5
    every = [row for piece in rows for row in piece]
    runs = []
    for _ in range(rng.randrange(1, 8)):
        start = rng.randrange(len(every))
        runs.append((start, min(len(every), start + rng.choice([0, 1, 3, 40]))))
    wanted = [row for start, stop in runs for row in range(start, stop)]
    slots = max(1, len(wanted)) + rng.randrange(3)
    into = rng.sample(range(slots), len(wanted))
    into = [-1 if rng.random() < 0.2 else slot for slot in into]
    if flaw == "short":
        data = data[: max(0, places[2 + 1] + rng.randrange(-20, 1))]
        which = [row for row in range(len(rows[0]), len(every)) if every[row]]
    counts = [len(b"".join(piece)) // item for piece in rows]
    head = (wide, item, text, *map(len, rows), slots, len(runs), len(wanted), *counts, len(data), rng.randrange(1, 4))
    extents = np.array(runs, np.int64).tobytes()
    said = struct.pack("<12q", *head) + struct.pack("<4q", *places) + extents + np.array(into, "<i4").tobytes() + data
    kept = [(every[row], row) for row, slot in zip(wanted, into, strict=True) if slot >= 0]
    read = wanted if flaw in ("falls", "far", "negative") else [row for _, row in kept]
    if flaw == "short":  # where just offsets are missing it is their reading that fails, of whatever rows
        return said, None if set(wanted) & set(range(len(rows[0]), len(every))) else expected(kept, item)
    if flaw == "falls" and broken not in read and broken + 1 in read:  # which is a row, if of others' items
        return said, None
    if set(which) & set(read):
        return said, (1, BAD_TEXT if flaw == "text" else BAD_OFFSETS, 0, None)
    return said, expected(kept, item)


def expected(kept, item):
    """Return what a reading says that does not fail."""
    place = total = 0
    for row, _ in kept:
        values = np.frombuffer(row, np.uint8).astype(np.int64)
        total += int(((place + 1 + np.arange(len(row))) % 1009 * values).sum()) + len(row) // item
        place += len(row)
    return 0, 0, 4 * total, 2 * place


def test_rows_under_sanitizers(sanitized):
    rng = random.Random(5)  # noqa: S311
    cases = [case(rng) for _ in range(300)]
    said = np.array(sanitized(MAIN, [one for one, _ in cases])).reshape(-1, 4).tolist()
    failed = 0
    for found, (_, wanted) in zip(said, cases, strict=True):
        failed += found[0]
        if wanted is None:  # read, or refused: cut short, or for its offsets
            assert found[:2] in ([0, 0], [1, 0], [1, BAD_OFFSETS])
        else:
            assert found[:3] == list(wanted[:3])
            assert wanted[3] is None or found[3] == wanted[3]
    assert 30 < failed < 200


def test_what_python_asks_is_checked():
    bundles, owner = _kernel.bundles_new(1 << 20), np.full(4, -1, np.int32)
    assert _kernel.bundles_look(bundles) == (0, 0, 0, 0)
    assert _kernel.bundles_release(bundles, owner, np.array([0, -1, 3], np.int32)) == 0
    owner[1] = 5
    assert _kernel.bundles_release(bundles, owner, np.array([1, 2], np.int32)) == 1
    owner[2] = -2
    for slots in ([2], [4]):
        with pytest.raises(ValueError, match="lie within the buffer and have valid owners"):
            _kernel.bundles_release(bundles, owner, np.array(slots, np.int32))
    for end in (_kernel.bundles_drop, _kernel.bundles_retire):
        with pytest.raises(ValueError, match="existing bundles"):
            end(bundles, np.array([0]))
    reader = _kernel.reader_new(1, 4, 3)
    places = [np.array([0, 3]), np.array([8]), np.array([0], np.int32), np.array([32]), np.array([9])]
    spans = [np.zeros(4, np.uint64), np.zeros(4, np.int64)]
    how = {"item": 4, "wide": False, "text": False}
    _kernel.reader_list(reader, *places, *spans, **how)
    for wrong, what in (
        ([np.array([0, 2]), *places[1:], *spans], "must cover all rows"),
        ([*places[:3], np.array([32, 40]), places[4], *spans], "one entry more"),
        ([*places, spans[0][:3], spans[1]], "each slot an address"),
    ):
        with pytest.raises(ValueError, match=what):
            _kernel.reader_list(reader, *wrong, **how)
    with pytest.raises(ValueError, match="1 to 8 bytes"):
        _kernel.reader_list(reader, *places, *spans, **how | {"item": 0})
    for extents, into in ((np.array([[0, 4]]), [0, 1, 2, 3]), (np.array([[0, 2]]), [0]), (np.array([[0, 1]]), [4])):
        with pytest.raises(ValueError, match="lie within the table"):
            _kernel.reader_items(reader, extents, np.array(into, np.int32), owner, bundles, False)  # noqa: FBT003
