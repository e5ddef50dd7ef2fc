"""The papers' bounds against simulated SGD on strongly convex, Polyak-Łojasiewicz and smooth losses."""

import itertools
import math

import numpy as np
import pytest

from corgipile.errors import BadArgument
from corgipile.quality import bounds, h_d

BLOCKS, B, RUNS = 40, 10, 200


def shifts(*, clustered):
    """Return a number per row, with mean 0 and variance 1: equal within blocks, or independent of them."""
    random = np.random.default_rng(5)
    values = np.repeat(random.normal(size=BLOCKS), B) if clustered else random.normal(size=BLOCKS * B)
    return (values - values.mean()) / values.std()


def bound_of(values, n):
    return bounds.CorgiPileBound(n=n, b=B, blocks=BLOCKS, h_d=min(B, h_d(values, np.arange(0, len(values) + 1, B))))


def visits(random, values, n):
    """Return the rows' numbers that an epoch of n random blocks visits, a line per run."""
    chosen = np.argsort(random.random((RUNS, BLOCKS)), axis=1)[:, :n]
    return random.permuted(values.reshape(BLOCKS, B)[chosen].reshape(RUNS, n * B), axis=1)


def descend(values, n, epochs, gradient, rate, start=0.0):
    """Return the runs' points at the start of each epoch, and at the end."""
    random, x = np.random.default_rng(n), np.full(RUNS, start)
    path = [x.copy()]
    for epoch in range(epochs):
        for c in visits(random, values, n).T:
            x = x - rate(epoch) * (gradient(x) - c)
        path.append(x.copy())
    return np.array(path)


@pytest.mark.parametrize("clustered", [True, False])
@pytest.mark.parametrize("n", [1, 4, 20, 39, 40])
def test_sums_of_a_buffer_vary_as_the_first_term_says(n, clustered):
    values = shifts(clustered=clustered)
    sums = visits(np.random.default_rng(0), values, n).sum(axis=1)
    expected = B * n * bound_of(values, n).factor
    assert np.mean(sums**2) == pytest.approx(expected, rel=5 * math.sqrt(2 / RUNS), abs=1e-9)


@pytest.mark.parametrize("n", [4, 20])
def test_error_at_a_constant_rate_is_that_of_the_first_term(n):
    values, rate = shifts(clustered=True), 0.002
    path = descend(values, n, 800 // n, lambda x: x, lambda _: rate)
    error = np.mean(path[len(path) // 2 :] ** 2) / 2
    assert error == pytest.approx(rate * bound_of(values, n).factor / 4, rel=0.2)  # the step's share of the variance


CONVEX = {
    "strongly convex": (lambda x: x, lambda x: x**2 / 2, 1.0),
    "Polyak-Łojasiewicz": (lambda x: 2 * x + 3 * np.sin(2 * x), lambda x: x**2 + 3 * np.sin(x) ** 2, 1 / 32),
}


@pytest.mark.parametrize("kind", CONVEX)
@pytest.mark.parametrize(("n", "clustered"), [(4, True), (20, True), (4, False)])
def test_losses_fall_as_theorem_1_bounds_them(kind, n, clustered):
    gradient, loss, strong = CONVEX[kind]
    values, epochs = shifts(clustered=clustered), 400 // n
    path = descend(values, n, epochs, gradient, lambda s: min(0.05, 6 / (B * n * (s + 24 / n))), 1.0)
    bound = bound_of(values, n)
    errors = loss(path).mean(axis=1)
    for epoch in (epochs // 4, epochs // 2, epochs):
        assert errors[epoch] <= 10 / strong * sum(bound.convex(epoch * n * B))
    assert errors[epochs] < errors[epochs // 4] / 1.5


def test_step_of_theorem_1_decays_as_simulated_above():
    for smooth, slow in ((0.5, 12), (8.0, 24 * 64)):  # the larger of two constants delays the decay
        for epoch in (0, 10):
            step = bounds.theorem_step(epoch, n=4, b=B, strong=1.0, smooth=smooth)
            assert step == pytest.approx(6 / (4 * B * (epoch + slow)))


@pytest.mark.parametrize("n", [4, 20, 40])
def test_gradients_shrink_as_theorem_2_bounds_them(n):
    values, norms = shifts(clustered=True), []
    bound = bound_of(values, n)
    for epochs in (200 // n, 800 // n):
        spread = bound.factor or 1.0
        rate = min(0.1, 1 / math.sqrt(B * n * spread * epochs))
        path = descend(values, n, epochs, np.sin, lambda _, rate=rate: rate, 2.0)
        norms.append(np.mean(np.sin(path[:-1]) ** 2))
        assert norms[-1] <= 10 * sum(bound.smooth(epochs * n * B))
    assert norms[1] < norms[0]


def test_whole_passes_end_nearer_than_the_bounds_epochs():
    values, rate = shifts(clustered=True), 0.01
    drawn = descend(values, 4, 100, lambda x: x, lambda _: rate)
    random, x = np.random.default_rng(0), np.zeros(RUNS)
    for _ in range(10):
        order = values.reshape(BLOCKS, B)[np.argsort(random.random((RUNS, BLOCKS)), axis=1)].reshape(RUNS, -1)
        for c in order.T:
            x = x - rate * (x - c)
    assert np.mean(x**2) < np.mean(drawn[50:] ** 2)


def test_visits_reach_the_error_and_no_fewer_do():
    bound = bounds.CorgiPileBound(n=10, b=50, blocks=200, h_d=25.0, variance=3.0)
    for error in (1.0, 1e-3, 1e-9):
        found = bound.visits_to(error)
        assert sum(bound.convex(found)) <= error < sum(bound.convex(found - 1))
    rows, blocks = bound.seconds_to(1e-3, latency=0.0, transfer=1e-6)
    assert blocks == pytest.approx(bound.factor * rows)  # without latency only the visits count
    rows, blocks = bound.seconds_to(1e-3, latency=1e-2, transfer=0.0)
    assert blocks <= rows  # h_D is at most b


def test_exchange_reaches_the_counted_permutations():
    home = [0, 0, 1, 1]  # two rows per rank; an exchange of everything reaches all, none of it 2! 2! of 4!
    kept = sum([home[i] for i in order] == home for order in itertools.permutations(range(4)))
    assert math.exp(bounds.log_reachable_share(4, 2, 0.0)) == pytest.approx(kept / 24)
    assert bounds.shuffling_error(4, 2, 0.0) == pytest.approx(1 - kept / 24)
    assert bounds.shuffling_error(4, 2, 1.0) == 0


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 9}, {"b": 0}, {"h_d": 11.0}, {"variance": -1.0}])
def test_refuses_what_no_table_has(wrong):
    with pytest.raises(BadArgument, match="must hold"):
        bounds.CorgiPileBound(**{"n": 2, "b": 10, "blocks": 8, "h_d": 1.0, **wrong})
    with pytest.raises(BadArgument, match="error must be above 0"):
        bounds.CorgiPileBound(n=2, b=10, blocks=8, h_d=1.0).visits_to(0)
