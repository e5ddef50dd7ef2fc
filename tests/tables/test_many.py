"""Work is linear in the columns and files of a table, measured in calls, not seconds."""

import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.tables.arrow.metadata import BatchMetadata

ROWS, MOST = 60, 2.2


def calls(run):
    """Count the function calls in this thread, of Python and C."""
    count = Counter()

    def note(frame, event, argument):
        count[event] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count["call"] + count["c_call"]


def wide(folder, kind, columns):
    values = (lambda at: [f"{at} {row}" for row in range(ROWS)]) if "text" in kind else lambda at: np.arange(ROWS) / 7
    rows = {f"c{at}": values(at) for at in range(columns)} | {"label": np.arange(ROWS) % 2}
    path = folder / f"{columns}.{kind.split()[0]}"
    if path.suffix == ".parquet":
        pq.write_table(pa.table(rows), path, row_group_size=ROWS // 2)
    elif path.suffix == ".csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in [rows, *zip(*rows.values(), strict=True)]))
    else:
        with pa.ipc.new_file(path, pa.table(rows).schema) as writer:
            writer.write_table(pa.table(rows), max_chunksize=ROWS // 2)
    return path


def many(folder, kind, files):
    where = folder / str(files)
    where.mkdir()
    for number in range(files):
        rows = {"x": np.arange(3) / 7, "label": np.arange(3) % 2}
        path = where / f"{number}.{kind}"
        if kind == "npy":
            np.save(path, np.ones((3, 2), np.float32))
        elif kind == "csv":
            path.write_text("x,label\n0.5,1\n1.5,0\n")
        elif kind == "parquet":
            pq.write_table(pa.table(rows), path)
        else:
            with pa.ipc.new_file(path, pa.table(rows).schema) as writer:
                writer.write_table(pa.table(rows))
    return where


def first(path, **how):
    for _ in cp.Loader(path, batch_size=16, memory="64MB", **how):
        return


@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv", "parquet text", "arrow text"])
def test_work_grows_no_faster_than_columns(tmp_path, kind):
    few, twice = wide(tmp_path, kind, 200), wide(tmp_path, kind, 400)
    hows = [{}] if "text" in kind else [{}, {"features": "numeric", "label": "label"}]
    runs = [lambda path, how=how: first(path, **how) for how in hows]
    if "text" not in kind:
        runs.append(lambda path: cp.train(path, label="label", epochs=1, standardize=True, memory="16MB"))
    for run in runs:
        run(few)  # warm up imports and caches
        assert calls(lambda run=run: run(twice)) < MOST * calls(lambda run=run: run(few))


@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv", "npy"])
def test_work_grows_no_faster_than_files(tmp_path, kind):
    few, twice = many(tmp_path, kind, 20), many(tmp_path, kind, 40)
    for path in (few, twice):
        first(path)
    for run in (cp.open, first):
        assert calls(lambda run=run: run(twice)) < MOST * calls(lambda run=run: run(few))


def test_a_record_batch_is_described_once_for_all_columns(tmp_path, monkeypatch):
    asked, many_of = [], BatchMetadata.many
    monkeypatch.setattr(BatchMetadata, "many", lambda self, of: asked.append(len(of)) or many_of(self, of))
    counts = []
    for columns in (50, 100):
        table = cp.open(wide(tmp_path, "arrow", columns))
        asked.clear()
        rows = np.array([59, 0, 31])
        taken = table._scatter.take(table.schema, rows, table._slices)
        assert taken.column(7).to_pylist() == (rows / 7).tolist()
        assert taken.column("label").to_pylist() == [1, 0, 1]
        counts.append(sum(asked))
    assert counts == [2, 2]
