"""Text hashing in plain Python, by the rule of docs/specs/hashed-features.md."""

import numpy as np

APART = "80-A9 AB-B4 B6-B9 BB-BF D7 F7 55A-55F 589-58A 5BE 5C0 5C3 5F3-5F4 60C-60D 61B 61D-61F 66A-66D 6D4 964-965 "
APART += "1361-1368 2000-206F 20A0-20CF 2E00-2E7F 3000-3004 3008-3020 3030 FE00-FE6F FEFF-FF0F FF1A-FF20 FF3B-FF40 "
APART += "FF5B-FF65 FFF0-FFFF"
ALONE = "2190-2BFF 2E80-2FFF 3005-3007 3021-302F 3031-30FF 3400-9FFF F900-FAFF 1F000-1FAFF 20000-3FFFF"
LOWERED = "C0-DE 100-12F 132-137 139-148 14A-17E 1A0-1A5 1AF 1CD-1EF 1F8-21F 222-233 386-3AB 400-481 48A-4CE 4D0-52F "
LOWERED += "531-556 1E00-1E95 1EA0-1EFF FF21-FF3A"
SIGMA = ("\u03c2", "\u03c3")  # at the end of a word, and elsewhere


def _within(code, ranges):
    ends = (part.split("-") for part in ranges.split())
    return any(int(one[0], 16) <= code <= int(one[-1], 16) for one in ends)


def characters(data):
    """Yield the characters of bytes, and invalid UTF-8 as bytes."""
    at = 0
    while at < len(data):
        for size in (1, 2, 3, 4):
            try:
                yield data[at : at + size].decode()
            except UnicodeDecodeError:
                continue
            break
        else:
            size = 1
            yield data[at : at + 1]
        at += size


def words(data):
    """Return the words of bytes in lower case, as bytes."""
    found, word = [], b""
    for one in [*characters(data), " "]:
        code = 0 if isinstance(one, bytes) else ord(one)
        ascii_word = isinstance(one, str) and code < 128 and (one.isalnum() or one == "_")
        alone = code >= 128 and _within(code, ALONE)
        letter = isinstance(one, bytes) or ascii_word or (code >= 128 and not alone and not _within(code, APART))
        if not letter:
            found += [word] if word else []
            word = b""
        if alone:
            found.append(one.encode())
        if letter:
            lowered = code < 128 or _within(code, LOWERED)
            word += one if isinstance(one, bytes) else (one.lower() if lowered else one).replace(*SIGMA).encode()
    return found


def murmur(data, seed):
    """Return MurmurHash3_x86_32."""
    h, most = seed, 0xFFFFFFFF
    for at in range(0, len(data), 4):
        part = data[at : at + 4]
        k = int.from_bytes(part, "little") * 0xCC9E2D51 & most
        k = (k << 15 | k >> 17) & most
        h ^= k * 0x1B873593 & most
        if len(part) == 4:
            h = (h << 13 | h >> 19) & most
            h = h * 5 + 0xE6546B64 & most
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & most
    h = (h ^ h >> 13) * 0xC2B2AE35 & most
    return h ^ h >> 16


def grams(data, ngrams, seed=0):
    """Return the hashes of the n-grams of text."""
    found = words(data)
    return [
        murmur(b" ".join(found[end - n : end]), seed)
        for end in range(1, len(found) + 1)
        for n in range(1, min(ngrams, end) + 1)
    ]


def row(features, bits):
    """Return a row of hashes and values as a dictionary of values by place."""
    made = {}
    for h, value in features:
        signed = h - (h >> 31 << 32)
        place = abs(signed) % (1 << bits)
        made[place] = made.get(place, 0.0) + (value if signed >= 0 else -value)
    return {place: made[place] for place in sorted(made) if made[place] != 0}


def text_row(data, ngrams, bits, seed=0):
    """Return a row of one text as values by place: signed counts, divided by the root of their total."""
    found = grams(data, ngrams, seed)
    by = np.float32(1 / np.sqrt(max(len(found), 1)))
    return {place: float(np.float32(count) * by) for place, count in row([(h, 1.0) for h in found], bits).items()}


def text_items(data, ngrams, seed=0):
    """Return the hashes of n-grams with the value of each."""
    found = grams(data, ngrams, seed)
    return [(h, len(found) ** -0.5) for h in found]


def crossed(parts):
    """Return the hashes and values of all combinations of the items of columns."""
    found = [(None, 1.0)]
    for items in parts:
        found = [
            (h if before is None else murmur(h.to_bytes(4, "little"), before), value * by)
            for before, value in found
            for h, by in items
        ]
    return found
