"""Content balance: the same orders as by plain integers in Python, under sanitizers, and whatever the build."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel.test_plans import build, run

from corgipile import _kernel

HERE = Path(__file__).parent
ORDERS = "7374ccc841f6bed6"  # of all orders of seriate.c, in version 3 of the order balanced by content


def quotient(x, y):
    """Divide as C does, towards zero."""
    return abs(x) // y * (1 if x >= 0 else -1)


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def below(key, counter, n):
    made = np.empty(1, np.uint64)
    _kernel.randoms(key, counter, made)
    return int(made[0]) * n >> 64


def direction(rows, key):
    """Find the direction along which rows differ most, by six steps of power iteration."""
    mean = [quotient(sum(column), len(rows)) for column in zip(*rows, strict=True)]
    off = [[max(-32767, min(32767, x - m)) for x, m in zip(row, mean, strict=True)] for row in rows]
    found = [below(key, d, 1023) - 511 for d in range(len(mean))]
    for _ in range(6):
        weights = [dot(row, found) for row in off]
        times = [quotient(weight, max(map(abs, weights)) // 4096 + 1) for weight in weights]
        sums = [dot(times, column) for column in zip(*off, strict=True)]
        found = [quotient(x, max(map(abs, sums)) // 511 + 1) for x in sums]
    return found


def seriated(rows, ties):
    """Put alike rows side by side, by bisection."""
    tie = [below(ties, block, 1 << 64) for block in range(len(rows))]

    def apart(a, b):
        return sum((x - y) ** 2 for x, y in zip(rows[a], rows[b], strict=True))

    def split(blocks, start):
        if len(blocks) < 3:
            return sorted(blocks, key=tie.__getitem__)
        to = direction([rows[block] for block in blocks], _kernel.derive(ties, 2 * start + len(blocks)))
        ranked = sorted(blocks, key=lambda block: (dot(rows[block], to), tie[block]))
        half = len(blocks) // 2
        left, right = split(ranked[:half], start), split(ranked[half:], start + half)
        return left + (right[::-1] if apart(left[-1], right[-1]) < apart(left[-1], right[0]) else right)

    return split(list(range(len(rows))), 0)


def rank_at(place, count, phases):
    """Return the rank at a place: the halves of what is left of all ranks take turns."""
    rank = 0
    while count > 1:
        lower = count // 2
        at = place * lower + below(phases, rank << 31 | count, count)
        if at % count + lower < count:  # the turn of the upper half
            place, rank, count = place - at // count, rank + lower, count - lower
        else:
            place, count = at // count, lower
    return rank


def reference(vectors, key):
    """Order blocks as kernel/plan/seriate.h says, without what makes it fast; up to 1024 blocks."""
    rows, count = vectors.tolist(), len(vectors)
    ties = _kernel.derive(key, _kernel.KEY_BALANCE)
    phases, ranked = _kernel.derive(key, _kernel.KEY_PHASES), seriated(rows, ties)
    laid = [ranked[rank_at(place, count, phases)] for place in range(count)]
    for last in (False, False, True):
        if last:
            first = below(ties, (1 << 30) + 1, count)
            laid = laid[:first][::-1] + laid[first:][::-1]
        laid = ahead(rows, laid)[::-1]
    return laid


def ahead(rows, laid):
    """Take, of the next 24 blocks or a quarter of few, the one that balances what came so far, and went on being so."""
    total, count, laid = [sum(column) for column in zip(*rows, strict=True)], len(laid), list(laid)
    waiting, came, sums, past, out = [], {}, [0] * len(total), [0] * len(total), []
    for place in range(count):
        while len(waiting) < min(24, max(count // 4, 1)) and laid:
            came[laid[0]] = place
            waiting.append(laid.pop(0))
        share = [(place + 1) * t // count for t in total]
        off = [s - t + quotient(p, 32) for s, t, p in zip(sums, share, past, strict=True)]
        lengths = [sum(x * (4 * s + x) for x, s in zip(rows[block], off, strict=True)) for block in waiting]
        due = place == 0 or place - came[waiting[0]] >= 48
        out.append(waiting.pop(0 if due else lengths.index(min(lengths))))
        sums = [s + x for s, x in zip(sums, rows[out[-1]], strict=True)]
        past = [p + s - t for p, s, t in zip(past, sums, share, strict=True)]
    return out


def ordered(vectors, key):
    out = np.empty(len(vectors), np.int64)
    _kernel.balance_vectors(vectors, vectors.shape[1], key, out)
    return out.tolist()


def drawn(seed, count=None):
    """Draw vectors: of any size, of few kinds, or all alike."""
    rng = np.random.default_rng(seed)
    count, width = rng.integers(0, 200) if count is None else count, rng.integers(1, 65)
    span = rng.choice([1, 2, 5, 1000, 1 << 15])
    kinds = rng.integers(-span, span, (rng.choice([1, 3, 200]), width))
    return kinds[rng.integers(0, len(kinds), count)].astype(np.int16)


@given(st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_orders_are_those_of_plain_integers(seed):
    vectors = drawn(seed)
    assert ordered(vectors, seed) == reference(vectors, seed)


def test_orders_under_sanitizers(sanitized):
    cases = [(seed, drawn(seed, 3000 if seed == 7 else None)) for seed in range(60)]
    packed = [struct.pack("<Qi", seed, vectors.shape[1]) + vectors.tobytes() for seed, vectors in cases]
    expected = [block for seed, vectors in cases for block in ordered(vectors, seed)]
    assert sanitized((HERE / "seriate.c").read_text(), packed) == expected


def test_orders_do_not_depend_on_the_build(tmp_path):
    for flags in (["-O0"], ["-O3", "-march=native"], ["-O2", "-ffast-math"]):
        assert run(build(tmp_path, *flags, source="seriate.c")) == ORDERS


def test_arm64_makes_the_same_orders(arm64):
    assert arm64("seriate.c", "-std=gnu11") == [ORDERS]


def test_alike_blocks_are_spread_over_every_stretch():
    rng = np.random.default_rng(0)
    kind = np.sort(rng.integers(0, 8, 800))
    vectors = (rng.normal(size=(8, 20)) * 300)[kind] + rng.normal(size=(800, 20)) * 30
    order = ordered(vectors.astype(np.int16), 1)
    assert sorted(order) == list(range(800))
    paths = (
        np.cumsum((vectors - vectors.mean(axis=0))[order], axis=0),
        np.cumsum(vectors - vectors.mean(axis=0), axis=0),
    )
    assert np.abs(paths[0]).max() < 0.03 * np.abs(paths[1]).max()
    for at in range(0, 800, 80):
        assert np.bincount(kind[order[at : at + 80]], minlength=8).min() > 0


def test_arguments_that_do_not_fit():
    out = np.empty(4, np.int64)
    for vectors, width in (
        (np.zeros((4, 2), np.int16), 3),
        (np.zeros((4, 65), np.int16), 65),
        (np.zeros(0, np.int16), 0),
    ):
        with pytest.raises(ValueError, match="vectors of"):
            _kernel.balance_vectors(vectors, width, 0, out)
    one = np.ones(2)
    with pytest.raises(ValueError, match="must have matching shapes"):
        _kernel.content(1, one, one, np.ones(1), np.ones((3, 2)), np.array([2, 1]), np.zeros((2, 3), np.int16))
    with pytest.raises(ValueError, match="must have matching shapes"):
        _kernel.content_turn(2, one, one, np.ones(1), np.ones((3, 2)))
    with pytest.raises(ValueError, match="the same width"):
        _kernel.content_scale(np.ones(3), one, np.ones(2))


def described(features, extras, ends, rows):
    """Describe blocks by the kernel."""
    center, scale = np.empty((2, features + extras))
    _kernel.content_scale(rows, center, scale)
    turn = np.empty((min(features, 32), min(features, 32)))
    _kernel.content_turn(features, center, scale, turn, rows)
    out = np.empty((len(ends), _kernel.content_width(features, extras)), np.int16)
    _kernel.content(features, center, scale, turn, rows, ends, out)
    return out


def rows_drawn(seed):
    """Draw features, extras, ends of blocks, and rows, with numbers that are missing, huge, or all alike."""
    rng = np.random.default_rng(seed)
    features, extras = int(rng.choice([0, 1, 5, 32, 33, 100])), int(rng.choice([1, 3]))
    ends = np.cumsum(rng.integers(0, 6, rng.integers(1, 12)))
    rows = rng.normal(size=(int(ends[-1]), features + extras)) * 10.0 ** rng.integers(-200, 200, features + extras)
    if rows.size:
        rows[:, 0] = rng.choice([0.1, np.nan, 3e307])
        rows.flat[rng.integers(0, rows.size, 3)] = [np.inf, -np.inf, np.nan]
    return features, extras, ends.astype(np.int64), rows


def test_descriptions_under_sanitizers(sanitized):
    cases = [rows_drawn(seed) for seed in range(100)]
    packed = [struct.pack("<3q", f, e, len(ends)) + ends.tobytes() + rows.tobytes() for f, e, ends, rows in cases]
    expected = [number for case in cases for number in described(*case).ravel().tolist()]
    assert sanitized((HERE / "content.c").read_text(), packed) == expected


@given(st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_a_vector_is_the_mean_of_what_rows_differ_by(seed):
    rng = random.Random(seed)  # noqa: S311
    features, extras = rng.randrange(1, 33), rng.randrange(3)
    rows = np.random.default_rng(seed).normal(size=(60, features + extras))
    rows[:, 0] = 5.0 if rng.random() < 0.3 else rows[:, 0]
    ends = np.arange(10, 70, 10)
    spread = rows.std(axis=0)
    off = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    x, y = off[:, :features], off[:, features:]
    matrix, varying = np.cov(x.T, bias=True).reshape(features, features), max(1, (spread[:features] > 0).sum())
    ridge = 0.3 * np.trace(matrix) / varying or 1.0
    x = np.linalg.solve(np.linalg.cholesky(matrix + ridge * np.eye(features)), x.T).T
    x /= np.sqrt(x.var(axis=0).sum() or 1.0)
    products = (y[:, :, None] * x[:, None, :]).reshape(60, -1)
    few = features if features <= 5 else 0
    pairs = np.stack([x[:, i] * x[:, j] for i in range(few) for j in range(i + 1)] or [np.zeros(60)], axis=1)
    pairs = few**0.5 * pairs[:, : few * (few + 1) // 2]
    expected = [1024 * part.reshape(6, 10, -1).mean(axis=1) for part in (np.hstack([x, y]), products, pairs)]
    mixed = min(16, products.shape[1])
    found = np.split(described(features, extras, ends, rows), np.cumsum([features + extras, mixed]), axis=1)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape or one.shape[1] == mixed < other.shape[1]
        assert one.shape != other.shape or np.abs(one - other).max(initial=0) < 1


def test_products_of_few_features_tell_what_their_means_do_not():
    rng = np.random.default_rng(5)
    x, sign = rng.normal(size=20000), np.repeat([1, -1], 10000)
    rows = np.stack([x, x * sign + 0.1 * rng.normal(size=20000), rng.integers(0, 2, 20000)], axis=1)
    found = described(2, 1, np.arange(100, 20100, 100), rows).astype(float)
    gap = np.abs(found[:100].mean(axis=0) - found[100:].mean(axis=0)) / found.std(axis=0).clip(1)
    assert gap[:5].max() < 0.5
    assert gap[5:].max() > 1.5


def test_features_that_say_the_same_count_once():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 2))
    ends = np.arange(20, 420, 20)
    alone = described(2, 0, ends, rows).astype(float)
    often = described(9, 0, ends, np.hstack([rows[:, [0]] * np.ones(8), rows[:, [1]]])).astype(float)
    shares = (often[:, :8] ** 2).sum(), (often[:, 8] ** 2).sum()
    assert shares[0] < 2 * shares[1] * (alone[:, 0] ** 2).sum() / (alone[:, 1] ** 2).sum()


def test_products_tell_what_features_and_labels_alone_do_not():
    rng = np.random.default_rng(4)
    x, sign = rng.normal(size=(20000, 3)), np.repeat([1, -1], 10000)
    rows = np.hstack([x, (np.sign(x[:, :1]) * sign[:, None])])  # the label follows a feature, or goes against it
    found = described(3, 1, np.arange(100, 20100, 100), rows).astype(float)
    gap = np.abs(found[:100].mean(axis=0) - found[100:].mean(axis=0)) / found.std(axis=0).clip(1)
    assert gap[4:].max() > 1.5
    assert gap[:4].max() < 0.6


def alike(rows, spots, features):
    """Return the largest intraclass correlation of what a linear model of the extras leaves, less three errors."""
    each, finite = len(rows) // spots, np.where(np.isfinite(rows), rows, np.nan)
    off = np.nan_to_num(finite - np.nanmean(finite, axis=0))
    x, y = off[:, :features], off[:, features:]
    left = x - y @ np.linalg.lstsq(y, x, rcond=None)[0]
    means = left.reshape(spots, each, -1).mean(axis=1)
    between = each * (means**2).sum(axis=0) / (spots - 1)
    within = ((left - np.repeat(means, each, axis=0)) ** 2).sum(axis=0) / (spots * (each - 1))
    share = (between - within) / (between + (each - 1) * within)
    error = (1 - share) * (1 + (each - 1) * share) * np.sqrt(2 / (each * (each - 1) * (spots - 1)))
    return max(0, ((share - 3 * error) * (left**2).sum(axis=0) / (x**2).sum(axis=0)).max())


def test_what_neighbours_have_in_common_under_sanitizers(sanitized):
    cases, expected = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        spots, each, features, extras = (
            int(rng.integers(low, high)) for low, high in ((2, 60), (2, 9), (1, 6), (0, 4))
        )
        rows = rng.normal(size=(spots * each, features + extras))
        rows[:, : features + seed % 2] += np.repeat(rng.normal(size=(spots, 1)) * rng.choice([0, 0.5, 2]), each, axis=0)
        rows.flat[rng.integers(0, rows.size, 2)] = [np.inf, np.nan]
        cases.append(struct.pack("<4q", spots, each, features, extras) + rows.tobytes())
        expected.append(alike(rows, spots, features))
    found = sanitized((HERE / "similarity.c").read_text(), cases)
    assert np.abs(np.array(found) / 1e6 - expected).max() < 1e-4
    assert sum(one > 100_000 for one in found) > 3
    assert 0 in found


def test_many_features_keep_their_distances():
    rng = np.random.default_rng(3)
    kinds = rng.normal(size=(30, 700))
    rows = np.repeat(kinds, 4, axis=0) + rng.normal(size=(120, 700)) * 0.1
    vectors = described(700, 0, np.arange(4, 124, 4), rows).astype(float)
    assert vectors.shape == (30, 32)
    true, found = (((x[:, None] - x) ** 2).sum(axis=-1)[np.triu_indices(30, 1)] for x in (kinds / 26.4, vectors / 1024))
    assert 0.8 < found.mean() / true.mean() < 1.25
    assert (found / true).std() < 0.4
