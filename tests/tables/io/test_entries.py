"""Columns of an index are equal, cached or not."""

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.tables.io import entries


@pytest.mark.parametrize("short", [0, 1 << 14])
@pytest.mark.parametrize("room", [0, 1 << 20])
def test_entries_are_those_of_the_index(short, room, monkeypatch):
    monkeypatch.setattr(entries, "MAX_CACHED_ENTRIES", short)
    monkeypatch.setattr(entries._cached, "_room", room)
    tables = [pa.table({"start": np.arange(50) * 7 + at, "size": np.arange(50)[::-1] + at}) for at in range(4)]
    found = [entries.Entries(cp.open(table)) for table in tables]
    random = np.random.default_rng(0)
    for turn in range(20):
        at, rows = turn % 4, random.integers(0, 50, 9)
        size, start = found[at].take(rows, ["size", "start"])
        assert size.tolist() == (49 - rows + at).tolist()
        assert start.tolist() == (rows * 7 + at).tolist()
