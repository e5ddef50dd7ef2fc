"""Numbers in text go straight into slots, from one or several files; other cells raise the usual errors."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import corgipile as cp
from corgipile.errors import BadValue
from corgipile.loader.text import TextReader

SIZES = 700, 0, 1, 1300, 64


def write(folder, tables):
    for number, rows in enumerate(tables):
        csv.write_csv(rows, folder / f"{number}.csv")
    return folder


def parts(sizes=SIZES):
    random, start = np.random.default_rng(0), 0
    for size in sizes:
        numbers = np.arange(start, start + size)
        yield pa.table({"x": random.standard_normal(size), "row": numbers, "even": numbers % 2 == 0})
        start += size


@pytest.mark.parametrize("order", ["no_shuffle", "riffle", "full", "sliding_window"])
@pytest.mark.parametrize("sizes", [SIZES, (5,) * 40, (900,)])
def test_files_are_read_as_one(tmp_path, order, sizes):
    given = [*parts(sizes)]
    table, rows = cp.open(write(tmp_path, given)), pa.concat_tables(given)
    with cp.Loader(table, order=order, batch_size=32, memory="64KB") as loader:
        assert isinstance(loader.feeder._reader(), TextReader)
        batches = list(loader)
    seen = {name: np.concatenate([batch[name] for batch in batches]) for name in rows.schema.names}
    at = seen["row"]
    assert sorted(at.tolist()) == list(range(sum(sizes)))
    for name, values in seen.items():
        assert (values == rows[name].to_numpy(zero_copy_only=False)[at]).all()
    with cp.Loader(table, order=order, batch_size=32, memory="64KB", columns=["even"]) as loader:
        assert sum(int(batch["even"].sum()) for batch in loader) == int(rows["even"].to_numpy().sum())


def test_a_null_in_one_of_many_files_is_named(tmp_path):
    first, second = parts((100, 100))
    holed = second.set_column(0, "x", pa.array([None if row == 20 else 0.5 for row in range(100)]))
    table = cp.open(write(tmp_path, [first, holed]))
    with cp.Loader(table, batch_size=32) as loader, pytest.raises(BadValue, match=r"row 120 of column 'x' is null"):
        list(loader)
