"""Same seed, same model: every loss by every step and penalty, the rest of what is trained with drawn for each.

`CORGIPILE_EVERY_BIT=1` tries all of the rest with each: weights of rows and of classes, means, dense and sparse rows.
"""

# ruff: noqa: S608  # tests write SQL

import itertools
import os
import random

import numpy as np
import pytest
from samebits import in_python, make_table

from corgipile.losses import LOSSES
from corgipile.steps import STEPS

KINDS = {loss.name + " of three" * loss.per_class: loss for loss in LOSSES}
PENALTIES = {
    "none": "",
    "l1": "l1 => 0.001",
    "l2": "l2 => 0.01",
    "elastic net": "l1 => 0.001, l2 => 0.01",
    "bound": "max_norm => 0.5",
}
WEIGHTS = ("", "weight => 'w'", "class_weight => 'balanced'", "weight => 'w', class_weight => 'balanced'")
MEANS = ("average => false", "average => true")
ROWS = ("'x'", "ARRAY['k', 'v']")
BATCHES = ("batch_size => 1", "batch_size => 8")
SIZES = "epochs => 2, block_size => '8kB', buffer_size => '100kB'"
SOME = 35  # trainings of one psql


def cases(kind):
    """Return the arguments of trainings: each step and penalty, with all of the rest or some of it."""
    weights = WEIGHTS[:2] if KINDS[kind].numbers else WEIGHTS
    rest = list(itertools.product(weights, MEANS, ROWS, BATCHES))
    drawn = random.Random(kind)  # noqa: S311 - the same in each run
    for step, penalty in itertools.product(STEPS, PENALTIES):
        for weight, mean, rows, batch in rest if os.environ.get("CORGIPILE_EVERY_BIT") else [drawn.choice(rest)]:
            means = "" if step == "auto" and mean == MEANS[0] else mean
            how = [f"step => '{step}'", PENALTIES[penalty], weight, means, batch]
            yield f"'{kind.split()[0]}', {rows}, 'label', {', '.join(filter(None, how))}"


def batched(of):
    """Yield some at a time."""
    while some := tuple(itertools.islice(of, SOME)):
        yield some


@pytest.mark.parametrize("kind", KINDS)
def test_every_loss_by_every_step_and_penalty(server, kind):
    make_table(server, "real", classes=3 if "three" in kind else 2)
    tried = 0
    for some in batched(cases(kind)):
        trainings = [
            f"SELECT count(*) FROM corgipile.train('t', {how}, name => 'every {at}', {SIZES});"
            for at, how in enumerate(some)
        ]
        server.text("\n".join(trainings))
        found = server.rows("SELECT * FROM corgipile.models WHERE name LIKE 'every %'")
        assert len(found) == len(some)
        for stored in found:
            how = some[int(stored["name"].split()[1])]
            python = in_python(server, {**stored, "source": "t"}, "real")
            assert np.array_equal(np.array(stored["coefficients"]), python.coef.astype(np.float64)), how
            assert np.array_equal(np.array(stored["intercepts"]), python.intercept.astype(np.float64)), how
            assert np.abs(python.coef).max() > 0, how
            tried += 1
        server.sql("DELETE FROM corgipile.models WHERE name LIKE 'every %'")
    assert tried >= len(STEPS) * len(PENALTIES)
