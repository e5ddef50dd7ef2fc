"""A split has the same rows everywhere, has the requested share, and keeps groups together."""

import datetime as dt
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.testing import check_table


def numbers(table):
    return table.read(0, len(table), ["row"])["row"].to_pylist()


def of(rows):
    return pa.table({"row": np.arange(rows), "user": np.arange(rows) // 7})


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.97])
def test_shares_are_within_five_standard_deviations(share):
    rows = 200_000
    for seed in range(3):
        train, test = cp.train_test_split(of(rows), share, seed)
        assert abs(len(test) - rows * share) < 5 * np.sqrt(rows * share * (1 - share))
        assert len(train) + len(test) == rows
    assert sorted(numbers(train) + numbers(test)) == list(range(rows))


def test_sides_are_tables():
    rows = of(3000)
    for side in cp.train_test_split(rows, 0.3):
        check_table(side, rows.take(pa.array(numbers(side))))


def test_the_same_rows_in_every_process_under_any_name_and_however_many_follow(tmp_path):
    script = (
        "import corgipile as cp, pyarrow as pa; rows = pa.table({'row': range(2000), 'user': [f'u{i % 90}' for i in "
        "range(2000)]}); print([[hash(tuple(t.read(0, len(t))['row'].to_pylist())) for t in cp.train_test_split(rows, "
        "0.2, 3, group=g)] for g in (None, 'user')])"
    )
    made = {subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(made) == 1
    for name in ("a.arrow", "b.arrow"):
        with pa.ipc.new_file(str(tmp_path / name), of(500).schema) as writer:
            writer.write_table(of(500))
    first, again = (cp.train_test_split(tmp_path / name, 0.2, 1)[1] for name in ("a.arrow", "b.arrow"))
    assert numbers(first) == numbers(again)
    longer = numbers(cp.train_test_split(of(900), 0.2, 1)[1])
    assert [row for row in longer if row < 500] == numbers(first)
    assert numbers(cp.train_test_split(of(500), 0.2, 2)[1]) != numbers(first)
    assert numbers(pickle.loads(pickle.dumps(first))) == numbers(first)  # noqa: S301
    assert set(numbers(cp.train_test_split(of(500), 0.3, 1)[1])) > set(numbers(first))  # a larger share adds rows


VALUES = {
    "int": np.arange(4000) // 10,
    "small": pa.array(np.arange(4000) // 40, pa.int8()),
    "float": np.arange(4000) // 10 + 0.5,
    "text": [f"user {i // 10}" for i in range(4000)],
    "bytes": [str(i // 10).encode() for i in range(4000)],
    "coded": pa.array([f"user {i // 10}" for i in range(4000)]).dictionary_encode(),
    "date": [dt.date(2020, 1, 1) + dt.timedelta(days=i // 10) for i in range(4000)],
    "money": pa.array(np.arange(4000) // 10).cast(pa.decimal128(22, 2)),
    "null": pa.array([None if i % 3 == 0 else i // 10 for i in range(4000)]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_rows_of_a_value_stay_together(kind):
    rows = pa.table({"row": np.arange(4000), "user": VALUES[kind]})
    train, test = (
        set(side.read(0, len(side))["user"].to_pylist()) for side in cp.train_test_split(rows, 0.3, group="user")
    )
    values = len(train | test)
    assert not train & test
    assert abs(len(test) - 0.3 * values) < 5 * np.sqrt(0.21 * values)


def test_a_value_is_the_same_in_any_type():
    def users(column):
        rows = pa.table({"user": column})
        test = cp.train_test_split(rows, 0.4, group="user")[1]
        return {int(value) for value in test.read(0, len(test))["user"].to_pylist()}

    plain = pa.array(range(100))
    for kind in (pa.int8(), pa.uint16(), pa.float32(), pa.float64()):
        assert users(plain.cast(kind)) == users(plain)
    assert users(plain.dictionary_encode()) == users(plain)
    text = users(plain.cast(pa.string()))
    assert users(plain.cast(pa.large_string()).dictionary_encode()) == text


def test_zeros_and_nans_are_one_value():
    rows = pa.table({"user": [0.0, -0.0, float("nan"), -float("nan")] * 10 + list(map(float, range(60)))})
    train, test = cp.train_test_split(rows, 0.5, group="user")
    sides = [{str(value).strip("-") for value in side.read(0, len(side))["user"].to_pylist()} for side in (train, test)]
    assert not sides[0] & sides[1]


def test_what_cannot_be_split():
    rows = pa.table({"x": range(100), "list": [[1]] * 100})
    for share in (0, 1, -0.1, 1.5, float("nan"), "half"):
        with pytest.raises(BadArgument, match="test must be"):
            cp.train_test_split(rows, share)
    with pytest.raises(BadArgument, match="seed must be a whole number"):
        cp.train_test_split(rows, seed=0.5)
    with pytest.raises(MissingColumn, match="no column 'user'"):
        cp.train_test_split(rows, group="user")
    with pytest.raises(BadSchema, match="to form groups, got"):
        cp.train_test_split(rows, group="list")
    for few in (rows.slice(0, 1), rows.slice(0, 0)):
        with pytest.raises(BadArgument, match="are on one side: it has too few rows for test"):
            cp.train_test_split(few)
