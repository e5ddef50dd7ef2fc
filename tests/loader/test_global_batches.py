"""Loaders of fixed global batches: the same rows in every world, and states that resume in another."""

import json
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BudgetTooSmall, StateMismatch

ROWS = 1000
TABLE = pa.table(
    {
        "row": pa.array(range(ROWS), pa.int64()),
        "text": [f"{row}" * (row % 7) for row in range(ROWS)],
        "label": pa.array([row // 100 for row in range(ROWS)], pa.int32()),
    }
)


def loader(rank=0, world=1, worker=0, workers=1, **settings):
    given = {"batch_size": 48, "seed": 3, "memory": "256KB", "global_batches": "fixed", "columns": ["row"], **settings}
    return cp.Loader(TABLE, rank=rank, world=world, worker=worker, workers=workers, **given)


def epoch(world, state=None, **settings):
    """Return the rows of each global batch."""
    ranks = [loader(rank, world, **settings) for rank in range(world)]
    for one in ranks:
        if state is not None:
            one.load_state_dict(json.loads(json.dumps(state)))
    batches = [[batch["row"].tolist() for batch in one] for one in ranks]
    return [sorted(set(chain(*parts))) for parts in zip(*batches, strict=True)]


@pytest.mark.parametrize("order", ["auto", "riffle", "corgipile", "full", "no_shuffle"])
def test_worlds_see_the_same_batches(order):
    alone = epoch(1, order=order)
    assert [len(batch) for batch in alone] == [48] * 20 + [40]
    assert sorted(chain(*alone)) == list(range(ROWS))
    for world in (2, 3, 8):
        assert epoch(world, order=order) == alone


def test_a_state_goes_on_in_another_world():
    alone, three = epoch(1), loader(1, 3)
    batches = iter(three)
    for _ in range(7):
        next(batches)
    state = three.state_dict()
    assert epoch(4, state) == alone[7:]
    assert epoch(1, state) == alone[7:]
    worker = loader(worker=1, workers=2)
    worker.load_state_dict(state)
    assert [sorted(batch["row"].tolist()) for batch in worker] == [alone[step] for step in range(7, 21) if step % 2]
    for other in ({"batch_size": 96}, {"global_batches": None}):
        with pytest.raises(StateMismatch, match='give global_batches="fixed", batch_size=48'):
            loader(**other).load_state_dict(state)
    assert three.rows_of(9, rank=2).tolist() == loader(2, 3).rows_of(9).tolist()


def test_rows_of_any_length_too():
    assert epoch(3, columns=["row", "text"]) == epoch(1, columns=["row", "text"])


def test_what_is_repeated_and_dropped():
    assert [loader(0, 3).repeated, loader(0, 3, drop_last=True).repeated] == [2, 0]
    assert sum(len(batch["row"]) for rank in range(3) for batch in loader(rank, 3)) == ROWS + 2
    assert len(list(chain(*epoch(3, drop_last=True)))) == 960


def test_what_is_wrong_is_said():
    with pytest.raises(BadArgument, match="48 rows do not divide among 5 ranks"):
        loader(0, 5)
    with pytest.raises(BadArgument, match='"fixed" or None'):
        loader(global_batches="same")
    with pytest.raises(BudgetTooSmall, match="give memory="):
        loader(memory="100B")


def test_a_file_of_row_groups(tmp_path):
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=150)
    parts = {
        world: [
            [batch["row"] for batch in cp.Loader(
                tmp_path / "t.parquet", batch_size=48, memory="1MB", rank=rank, world=world, global_batches="fixed"
            )]
            for rank in range(world)
        ]
        for world in (1, 4)
    }  # fmt: skip
    joined = [np.sort(np.concatenate(batch)) for batch in zip(*parts[4], strict=True)]
    assert all(map(np.array_equal, joined, map(np.sort, parts[1][0])))
