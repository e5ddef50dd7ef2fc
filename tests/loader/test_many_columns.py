"""Wide tables: the calls of a pass do not multiply with the columns."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import _kernel
from corgipile.loader.buffered_reader import BufferedReader

ROWS = 60


def wide(tmp_path, columns):
    kinds = ["f4", "f8", "i8", "u1", "?"]
    numbers = np.random.default_rng(columns).integers(0, 2, (columns, ROWS))
    rows = pa.table({f"c{i}": part.astype(kinds[i % len(kinds)]) for i, part in enumerate(numbers)})
    with pa.ipc.new_file(path := tmp_path / f"{columns}.arrow", rows.schema) as writer:
        writer.write_table(rows)
    return path, rows


@pytest.mark.parametrize("form", ["numpy", "arrow"])
def test_a_step_gathers_all_columns_in_one_call(tmp_path, monkeypatch, form):
    calls, real = [], _kernel.gather
    monkeypatch.setattr(_kernel, "gather", lambda *how: calls.append(len(how[0])) or real(*how))
    counts = []
    for columns in (70, 210):
        path, rows = wide(tmp_path, columns)
        calls.clear()
        order = cp.orders.Riffle(block=5, buffer=20)
        loader = cp.Loader(path, batch_size=16, order=order, seed=3, format=form)
        batches = list(loader)
        seen = np.concatenate(list(loader.feeder.rows(0)))
        for name in rows.column_names:
            got = np.concatenate([np.asarray(batch[name]) for batch in batches])
            assert np.array_equal(got, rows[name].to_numpy()[seen])
        assert set(calls) == {columns}
        counts.append(len(calls))
    assert counts[0] == counts[1]


def calls():
    """Return how often this process called the system to read."""
    return int(re.search(r"syscr: (\d+)", Path("/proc/self/io").read_text())[1])


def test_scattered_rows_of_short_columns_are_read_by_few_calls(tmp_path):
    rows = pa.table({f"c{i}": np.arange(ROWS) + i for i in range(300)})
    with pa.ipc.new_file(path := tmp_path / "a.arrow", rows.schema) as writer:
        writer.write_table(rows, max_chunksize=ROWS // 2)
    order = cp.orders.Riffle(block=1, buffer=ROWS)
    with BufferedReader(path, order=order, prefetch=0) as reader:
        steps, before = reader.epoch(0), calls()
        visit = next(steps)
        assert calls() - before < 300  # one a row of each column would be 18,000
        seen = next(reader.rows(0))
        assert all(np.array_equal(reader.buffer.dense(n)[visit], rows[n].to_numpy()[seen]) for n in rows.column_names)


def test_gather_checks_places_and_sizes():
    rows, out, index = np.arange(8, dtype="f4"), np.zeros(4, "f4"), np.array([7, 0], "i4")
    size = np.array([4])
    _kernel.gather((out,), (rows,), size, index, 2)
    assert out.tolist() == [0, 0, 7, 0]
    many = tuple(np.zeros(2, "f4") for _ in range(200))
    _kernel.gather(many, (rows,) * 200, np.full(200, 4), index, 0)
    assert all(part.tolist() == [7, 0] for part in many)
    for wrong in [
        ((out,), (rows,), size, index, 3),
        ((out,), (rows,), size, index, -1),
        ((out,), (rows,), np.array([0]), index, 0),
        ((out,), (rows,), size, np.array([8], "i4"), 0),
        ((out,), (rows,), size, np.array([-1], "i4"), 0),
        ((out, out), (rows,), size, index, 0),
        ((out, out), (rows, rows[:7].copy()), np.array([4, 4]), index, 0),
    ]:
        with pytest.raises(ValueError, match="must"):
            _kernel.gather(*wrong)
    with pytest.raises(TypeError):
        _kernel.gather((out, None), (rows, rows), np.array([4, 4]), index, 0)
    with pytest.raises(TypeError):
        _kernel.gather([out], (rows,), size, index, 0)
