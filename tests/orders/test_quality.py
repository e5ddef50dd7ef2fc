"""How well orders mix, compared with exact expectations within stated bounds."""

from dataclasses import replace

import numpy as np
import pytest

from corgipile.orders import Blocks, CorgiPile, Key, Riffle, visited_rows

ROWS, BLOCK, CLASSES, BATCH = 200_000, 100, 10, 256
LABELS = np.arange(ROWS) * CLASSES // ROWS


def excess(order, seeds=4):
    """Return the mean design effect of batches of label-sorted rows; 1 is a full shuffle."""
    fitted = order.fit(ROWS, 8.0, None)
    blocks = Blocks(ROWS, even=BLOCK, sketch=LABELS[::BLOCK] + 0.5)
    share, effects = 1 / CLASSES, []
    for seed in range(seeds):
        labels = LABELS[np.concatenate(list(visited_rows(fitted, blocks, Key(seed))))]
        labels = labels[: len(labels) // BATCH * BATCH].reshape(-1, BATCH)
        means = np.stack([(labels == k).mean(axis=1) for k in range(CLASSES)])
        effects.append(BATCH * ((means - share) ** 2).mean() / (share * (1 - share)))
    return np.mean(effects)


@pytest.mark.parametrize("n", [16, 64, 128])
def test_corgipile_has_the_expected_design_effect(n):
    """METHODS: Var = (sigma^2/B) [(nb-B)/(nb-1) + (1-alpha) h_D (B-1)/(nb-1)]; blocks of one label have h_D = b."""
    kept = 1 - (n - 1) / (ROWS // BLOCK - 1)
    expected = (n * BLOCK - BATCH) / (n * BLOCK - 1) + kept * BLOCK * (BATCH - 1) / (n * BLOCK - 1)
    assert excess(CorgiPile(block=BLOCK, buffer=n * BLOCK)) == pytest.approx(expected, rel=0.1)


def test_riffle_mixes_as_promised():
    riffle = Riffle(block=BLOCK, buffer=128 * BLOCK)
    assert excess(riffle) < 1.5
    assert excess(replace(riffle, balance="label")) < 0.5


def test_balanced_prefixes_drift_less_than_a_full_shuffles():
    """Max excess of one class's count over its share, in sigma sqrt(m): near 0.9 here, near 1.2 for a full shuffle."""
    riffle = Riffle(block=BLOCK, buffer=128 * BLOCK, balance="label").fit(ROWS, 8.0, None)
    blocks = Blocks(ROWS, even=BLOCK, sketch=LABELS[::BLOCK] + 0.5)
    labels = LABELS[np.concatenate(list(visited_rows(riffle, blocks, Key(0))))]
    worst = max(np.abs(np.cumsum((labels == k) - 1 / CLASSES)).max() for k in range(CLASSES))
    assert worst / np.sqrt(0.09 * ROWS) < 1.5


def test_rows_of_a_block_are_permuted():
    riffle = Riffle(block=1000, buffer=4000).fit(20_000, 8.0, None)
    visits = np.concatenate(list(visited_rows(riffle, Blocks(20_000, even=1000), Key(3))))
    first = visits[visits < 1000]
    assert abs(np.corrcoef(first, np.arange(1000))[0, 1]) < 5 / np.sqrt(1000)
