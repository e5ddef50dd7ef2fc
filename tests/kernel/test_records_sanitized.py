"""Runs the readers of TFRecord frames, Examples and byte ranges under sanitizers over damaged bytes."""

import random
import struct

import pytest

MAIN = r"""
#define _GNU_SOURCE
#define CP_RANGES_SHARED 4096
#include "formats/example.h"
#include "io/ranges.h"
#include "formats/tfrecord.h"
#include <stdio.h>

#define ROOM 64

/* A copy of just these bytes, so that reading beyond them is seen. */
static uint8_t *copy_of(const uint8_t *bytes, int64_t count)
{
    uint8_t *copy = malloc((size_t)count + !count);
    memcpy(copy, bytes, (size_t)count);
    return copy;
}

/* Walk over a file in chunks, then check and lay together what was found. */
static int64_t walk(const uint8_t *bytes, int64_t count, int64_t chunk)
{
    int64_t starts[ROOM], sizes[ROOM], ends[ROOM + 1], at = 0, rows = 0, most = chunk;
    cp_tfr_scan s = {.starts = starts, .sizes = sizes, .room = 7};
    while (at < count) {
        int code;
        s.count = chunk < count - at ? chunk : count - at;
        s.remaining = count - at;
        s.bytes = copy_of(bytes + at, s.count);
        cp_tfr_walk(&s);
        uint8_t *out = malloc((size_t)s.count + 1);
        if (cp_tfr_pack(s.bytes, starts, sizes, s.rows, out, ends, &code) >= 0 || s.consumed > s.remaining)
            abort();
        free(out);
        free((void *)s.bytes);
        rows += s.rows;
        at += s.consumed;
        chunk = s.consumed || s.code ? most : 2 * chunk;
    }
    return rows;
}

/* Read a message as an Example with features x (integers), y (floats) and z (bytes). */
static int64_t decode(const uint8_t *bytes, int64_t count, int64_t expected)
{
    const uint8_t *data = copy_of(bytes, count), names[] = "xyz";
    int64_t ends[3] = {0, count, count}, any[3] = {expected, expected, expected};
    int64_t spans[12], counts[6], sizes[3], values = 0;
    int32_t kinds[3] = {CP_EXAMPLE_INT, CP_EXAMPLE_FLOAT, CP_EXAMPLE_BYTES};
    cp_span wanted[3] = {{names, names + 1}, {names + 1, names + 2}, {names + 2, names + 3}}, places[3];
    cp_examples x = {.data = data, .ends = ends, .rows = 1, .features = 3, .names = wanted, .kinds = kinds,
                     .expected = any, .spans = spans, .counts = counts, .bytes = sizes};
    if (cp_examples_find(&x, places) == CP_EXAMPLE_OK)
        for (int f = 0; f < 3; f++) {
            int64_t room = kinds[f] == CP_EXAMPLE_BYTES ? sizes[f] : counts[f], wide = f == 0 ? 8 : f == 1 ? 4 : 1;
            int64_t both[4] = {spans[2 * f], spans[2 * f + 1], spans[2 * f], spans[2 * f + 1]}; /* two rows */
            cp_values v = {malloc((size_t)(2 * room * wide) + 1), malloc((size_t)counts[f] * 16 + 1),
                           2 * room, 2 * counts[f], kinds[f], 0, 0};
            if (cp_examples_fill(&v, data, both, 2) < 0 || v.at != 2 * room
                || memcmp(v.values, (char *)v.values + room * wide, (size_t)(room * wide)))
                abort();
            values += counts[f];
            v.room = v.room ? v.room - 1 : 0; /* too little room is refused */
            if (room && cp_examples_fill(&v, data, both, 2) == 0)
                abort();
            free(v.values);
            free(v.ends);
        }
    free((void *)data);
    return values;
}

/* Write ranges to a file of their own and compare it; what cannot be written is told. */
static void written(const cp_ranges *r, const uint8_t *bytes)
{
    FILE *copy = tmpfile();
    uint8_t found[256];
    if (!copy || cp_ranges_write(fileno(copy), r->out, r->to, r->lengths, r->offsets, r->count))
        abort();
    for (int64_t i = 0; i < r->count; i++)
        if (pread(fileno(copy), found, (size_t)r->lengths[i], (off_t)r->offsets[i]) != r->lengths[i] ||
            memcmp(found, bytes + r->offsets[i], (size_t)r->lengths[i]))
            abort();
    if (cp_ranges_write(-1, r->out, r->to, r->lengths, r->offsets, r->count) != EBADF)
        abort();
    fclose(copy);
}

/* Read some ranges of the file and compare them; ranges beyond its end must be told. */
static int64_t ranges(int fd, const uint8_t *bytes, int64_t size, uint32_t seed)
{
    int64_t offsets[ROOM], lengths[ROOM], to[ROOM], total = 0, at = 0;
    cp_ranges r = {.fd = fd, .offsets = offsets, .lengths = lengths, .to = to};
    for (; r.count < ROOM; r.count++) {
        seed = seed * 1664525u + 1013904223u;
        at += seed >> 16 & 1 ? seed >> 24 : seed >> 18;
        lengths[r.count] = seed >> 8 & 255;
        offsets[r.count] = at;
        at += seed >> 17 & 1 ? lengths[r.count] : 3;
        to[r.count] = total;
        total += lengths[r.count];
    }
    r.out = malloc((size_t)total + 1);
    int status = cp_ranges_read(&r, 4);
    for (int64_t i = 0; !status && i < r.count; i++)
        if (lengths[i] &&
            (offsets[i] + lengths[i] > size || memcmp(r.out + to[i], bytes + offsets[i], (size_t)lengths[i])))
            abort();
    if (!status)
        written(&r, bytes);
    free(r.out);
    return status;
}

/* Sum up ranges of which some neighbours are of one length; compare with the sums of single ones. */
static void summed(const uint8_t *bytes, int64_t count)
{
    int64_t starts[ROOM], lengths[ROOM];
    uint32_t sums[ROOM];
    for (int64_t i = 0; i < ROOM; i++) {
        lengths[i] = count ? (i % 7 < 4 ? 13 : i * 5) % (count + 1) : 0;
        starts[i] = (i * 31) % (count - lengths[i] + 1);
    }
    for (int64_t some = 0; some < ROOM; some += 9) {
        cp_crc32c_ranges((const char *)bytes, starts, lengths, some, sums);
        for (int64_t i = 0; i < some; i++)
            if (sums[i] != ~cp_crc_by_tables(~0u, bytes + starts[i], lengths[i]))
                abort();
    }
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    uint32_t length;
    int64_t rows = 0, values = 0, cases = 0, short_ranges = 0, size = 0;
    const uint8_t *digits = (const uint8_t *)"123456789";
    if (cp_crc32c(digits, 9) != 0xe3069283u || cp_crc_by_tables(~0u, digits, 9) != ~0xe3069283u)
        return 1;
    while (file && fread(&length, 4, 1, file) == 1) {
        uint8_t *bytes = malloc(length + 1);
        if (fread(bytes, 1, length, file) != length)
            return 1;
        for (int64_t chunk = 16; chunk < 5000; chunk *= 6)
            rows += walk(bytes, length, chunk);
        values += decode(bytes, length, cases % 3 ? -1 : 1);
        summed(bytes, length);
        free(bytes);
        cases++;
    }
    if (!file)
        return 1;
    size = ftell(file);
    rewind(file);
    uint8_t *whole = malloc((size_t)size);
    if (fread(whole, 1, (size_t)size, file) != (size_t)size)
        return 1;
    for (uint32_t seed = 0; seed < 300; seed++)
        short_ranges += ranges(fileno(file), whole, size, seed);
    free(whole);
    fclose(file);
    printf("%lld %lld %lld %lld\n", (long long)cases, (long long)rows, (long long)values, (long long)short_ranges);
    return 0;
}
"""


def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data):
    size = struct.pack("<Q", len(data))
    return size + crc(size) + data + crc(data)


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def message(rng):
    """Write an Example with the features x, y and z."""
    numbers = bytes(rng.randrange(128) for _ in range(rng.randrange(4)))
    lists = {
        b"x": field(3, field(1, numbers) if rng.random() < 0.5 else b"".join(b"\x08%c" % n for n in numbers)),
        b"y": field(2, field(1, struct.pack("<2f", 1, rng.random()))),
        b"z": field(1, field(1, b"abc") * rng.randrange(3)),
    }
    return field(1, b"".join(field(1, field(1, name) + field(2, value)) for name, value in lists.items()))


def damaged(rng):
    data = bytearray(message(rng) if rng.random() < 0.5 else b"".join(frame(message(rng)) for _ in range(4)))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data) + 1)
        if rng.random() < 0.7:
            data[at : at + 1] = bytes([rng.choice([0, 1, 8, 10, 13, 18, 26, 127, 128, 255, rng.randrange(256)])])
        else:
            del data[at : at + rng.randrange(30)]
    return bytes(data)


@pytest.mark.parametrize("extra", [[], ["-DCP_NO_CLONES"]])
def test_records_under_sanitizers(sanitized, extra):
    rng = random.Random(5)  # noqa: S311
    found = [damaged(rng) for _ in range(1500)]
    count, rows, values, short = sanitized(MAIN, found, *extra)
    assert count == len(found)
    assert rows > 1000
    assert values > 500
    assert 0 < short < 300, short
