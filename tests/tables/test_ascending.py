"""Row order inferred from footers, checked against the rows."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.tables.ascending import sorted_columns
from corgipile.tables.mixing import mix


def written(folder, rows, group=50, name="rows", **more):
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table(rows), path, row_group_size=group, **more)
    return path


@given(st.integers(1, 400), st.integers(20, 90), st.integers(0, 99), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_column_that_is_named_ascends_and_one_that_is_sorted_is_named(tmp_path_factory, count, group, seed, down):
    random = np.random.default_rng(seed)
    day = np.sort(random.integers(0, 9, count))[:: -1 if down else 1]
    rows = {"day": day, "x": random.normal(size=count), "kind": random.integers(0, 2, count), "one": np.ones(count)}
    found = sorted_columns(cp.open(written(tmp_path_factory.mktemp("rows"), rows, group)))
    parts = [day[at : at + group] for at in range(0, count, group)]
    sure = len(parts) > 1 and len(parts[-1]) >= 32 <= len(parts[0])
    apart = sure and (parts[-1].max() < parts[0].min() if down else parts[-1].min() > parts[0].max())
    assert found == ({"day": "descending" if down else "ascending"} if apart else {})


TIMES = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=at) for at in range(200)]
KINDS = {
    "text": pa.array([f"{at:04d}" for at in range(200)]),
    "bytes": pa.array([b"%04d" % at for at in range(200)]),
    "categories": pa.array([f"{at // 9:04d}" for at in range(200)]).dictionary_encode(),
    "times": pa.array(TIMES),
    "dates": pa.array([one.date() for one in TIMES]),
    "decimals": pa.array([decimal.Decimal(at) / 4 for at in range(200)]),
    "nulls among": pa.array([None if at % 3 else at for at in range(200)]),
    "NaN among": pa.array([float("nan") if at % 3 else at for at in range(200)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_all_kinds(kind, tmp_path):
    assert sorted_columns(cp.open(written(tmp_path, {"by": KINDS[kind]}))) == {"by": "ascending"}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None] * 200, pa.float64()),
        pa.nulls(200),
        pa.array([[at, at] for at in range(200)]),
        pa.array([{"a": at} for at in range(200)]),
        pa.array([float("nan")] * 200),
        pa.array([None] * 50 + list(range(150))),
    ],
)
def test_columns_of_which_nothing_is_said(column, tmp_path):
    assert sorted_columns(cp.open(written(tmp_path, {"by": column, "z": [1, 0] * 100}))) == {}


def test_files_and_tables_of_several(tmp_path):
    parts = [written(tmp_path, {"by": np.arange(100) + 100 * at}, name=f"{at}") for at in range(4)]
    assert sorted_columns(cp.open(parts)) == {"by": "ascending"}
    assert sorted_columns(cp.open(parts[::-1])) == {}
    assert sorted_columns(cp.open(written(tmp_path, {"by": np.arange(100)}, 100))) == {}
    assert sorted_columns(cp.open(written(tmp_path, {"by": np.arange(100)}, write_statistics=False))) == {}
    assert sorted_columns(cp.open({"by": np.arange(100)})) == {}
    assert sorted_columns(mix([(cp.open(part), 1) for part in parts])) == {}


def test_of_many_row_groups_some_are_looked_at_first(tmp_path):
    x = np.arange(40 * 200)
    x[40 * 77 : 40 * 79] = x[40 * 77 : 40 * 79][::-1]  # two parts swapped
    table = cp.open(written(tmp_path, {"by": np.arange(40 * 200), "nearly": x, "z": x[::-1] % 5}, 40))
    looked = []
    spans = type(table).spans
    told = sorted_columns(table)
    assert told == {"by": "ascending"}
    type(table).spans = lambda self, names, parts: looked.append((names, len(parts))) or spans(self, names, parts)
    try:
        sorted_columns(table)
    finally:
        type(table).spans = spans
    assert looked == [(["by", "nearly", "z"], 64), (["by", "nearly"], 200)]
