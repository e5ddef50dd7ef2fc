"""Passes in pieces through staging memory: all rows in their places, and every slot of the order."""

import time

import numpy as np
import pyarrow as pa
import pytest

from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.staging import Stage, pieces
from corgipile.orders import Step
from corgipile.tables import open as open_table

ROWS = 5000
ORDERS = ("riffle", "corgipile", "block_only", "no_shuffle", "full", "sliding_window", "reservoir")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("staging") / "rows.arrow"
    rows = pa.table({"row": pa.array(range(ROWS), pa.int64()), "x": pa.array(np.arange(ROWS, dtype=np.float32))})
    with pa.ipc.new_file(str(path), rows.schema) as writer:
        writer.write_table(rows, max_chunksize=333)
    return open_table(path)


def visited(table, order, stage, *, start=0, shard=(), late=0, delay=0.0):
    """Follow a staged pass; look at each piece's rows ``late`` pieces later. Return the rows of each step."""
    with BufferedReader(table, order=order, memory="12KB", seed=4) as reader:
        rows, steps, waiting = np.full(reader.slots + 1, -1, np.int64), [[]], []
        buffer = reader.stage(stage, np.empty)

        def scatter(number, piece):
            into = np.where(piece.into < 0, reader.slots, piece.into)
            rows[into] = buffer.dense("row")[stage.rows(number)][: len(into)]
            assert (buffer.dense("x")[stage.rows(number)][: len(into)] == rows[into]).all() or late
            steps[-1] += rows[piece.visit].tolist()
            if piece.last:
                steps.append([])

        for number, piece in enumerate(reader.epoch(1, start)):
            assert max(len(piece.into), len(piece.visit)) <= stage.room
            time.sleep(delay)
            waiting.append((number, piece))
            if len(waiting) > late:
                scatter(*waiting.pop(0))
        for number, piece in waiting:
            scatter(number, piece)
        return [step for step in steps if step]


def plain(table, order, start=0):
    with BufferedReader(table, order=order, memory="12KB", seed=4) as reader:
        return [reader.buffer.dense("row")[visit].tolist() for visit in reader.epoch(1, start) if len(visit)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stage", [Stage(7, 3), Stage(64, 4), Stage(6000, 3)])
def test_steps_are_those_of_a_pass_without_pieces(table, order, stage):
    assert visited(table, order, stage) == plain(table, order)
    assert visited(table, order, stage, start=3, late=1) == plain(table, order, 3)


def test_a_place_is_read_into_again_after_the_second_request(table):
    """What the law of `Stage` forbids goes wrong: the laws above can fail."""
    assert visited(table, "riffle", Stage(16, 4), late=3, delay=0.002) != plain(table, "riffle")
    assert visited(table, "full", Stage(16, 4), late=3, delay=0.002) != plain(table, "full")


def test_pieces_hold_all_rows_and_visits():
    random = np.random.default_rng(0)
    for room in range(1, 12):
        starts = np.cumsum(random.integers(6, 15, 5))
        extents = np.stack([starts, starts + random.integers(0, 6, 5)], axis=1)
        rows = np.concatenate([np.arange(*extent) for extent in extents])
        step = Step(extents, np.arange(len(rows), dtype=np.int32), np.arange(random.integers(0, 20), dtype=np.int32))
        parts = list(pieces(step, room))
        assert (
            np.concatenate([np.arange(*extent) for part in parts for extent in part.extents]).tolist() == rows.tolist()
        )
        assert np.concatenate([part.into for part in parts]).tolist() == step.into.tolist()
        assert np.concatenate([part.visit for part in parts]).tolist() == step.visit.tolist()
        assert all(max(len(part.into), len(part.visit)) <= room for part in parts)
        first = next((at for at, part in enumerate(parts) if len(part.visit)), len(parts))
        assert not any(len(part.into) for part in parts[first + 1 :])  # all rows come before the second visit
