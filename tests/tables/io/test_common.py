"""The caches that all tables of a process share."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from corgipile.tables import open as open_table
from corgipile.tables.formats.arrow import file as arrow
from corgipile.tables.formats.parquet import table as parquet
from corgipile.tables.io.common import Common

FILES = 40


class Owner:
    pass


def test_the_oldest_go_first_and_two_stay_whatever_their_size():
    kept, one, made = Common(5, len), Owner(), []

    def ask(key):
        return kept.of(one, key, lambda: made.append(key) or key)

    for key in ("aa", "bb", "cc", "cc"):
        assert ask(key) == key
    assert (made, len(kept)) == (["aa", "bb", "cc"], 2)
    for key in ("x" * 9, "y" * 9, "x" * 9):
        ask(key)
    assert (made[3:], len(kept)) == (["x" * 9, "y" * 9], 2)


def test_values_of_those_who_are_gone_go():
    kept, one, other = Common(100, len), Owner(), Owner()
    kept.of(one, "a", lambda: "xy")
    del one
    assert kept.of(other, "a", lambda: "z") == "z"
    assert len(kept) == 1


def test_a_fork_begins_with_none_though_the_lock_is_taken():
    kept, one = Common(100, len), Owner()
    kept.of(one, "a", lambda: "xy")
    with kept._lock:
        child = os.fork()
        if not child:
            os._exit(0 if not len(kept) and kept.of(one, "a", lambda: "z") == "z" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert kept.of(one, "a", lambda: "z") == "xy"


def rows(at):
    return pa.table({"x": np.arange(at * 100, at * 100 + 100.0), "label": np.arange(100) % 2})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["parquet", "zstd"])
def test_many_files_keep_as_much_as_one(tmp_path, monkeypatch, kind):
    """Tables share caches of row groups, metadata and readers without affecting each other."""
    module = parquet if kind == "parquet" else arrow
    for at in range(FILES):
        path = tmp_path / f"{at:02}.{'parquet' if kind == 'parquet' else 'arrow'}"
        if kind == "parquet":
            pq.write_table(rows(at), path)
        else:
            pa.feather.write_feather(rows(at), path, compression="zstd")
    monkeypatch.setattr(module._decoded, "_room", 10 * rows(0).nbytes)
    if kind == "parquet":
        monkeypatch.setattr(parquet._footers, "_room", 1)
    table = open_table(tmp_path)
    asked = np.random.default_rng(0).permutation(len(table))
    found = np.concatenate([table.take(part).column(0).to_numpy() for part in np.split(asked, 20)])
    assert (found == asked).all()
    assert len(module._decoded) <= 10
    if kind == "parquet":
        assert len(parquet._footers) == 2
    assert len(arrow._readers) <= 16


def test_each_value_takes_as_long_to_keep_however_many_are_kept():
    looked = []
    kept = Common(1 << 20, lambda value: looked.append(value) or 1)
    owners = [Owner() for _ in range(300)]
    values, walked = kept._values, []
    kept._values = type("Walked", (type(values),), {"__iter__": lambda self: walked.append(1) or iter(())})()
    for owner in owners:
        kept.of(owner, "a", lambda: "x")
    assert (len(kept), len(looked), len(walked)) == (300, 300, 0)
    del owners, owner
    kept.of(last := Owner(), "a", lambda: "x")
    assert (len(kept), kept._total) == (1, 1), last
