"""A format and an order of another package: found by entry point, used by name like ours."""

import importlib
import json
import sys

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import plugins
from corgipile.errors import BadArgument
from corgipile.orders import named
from corgipile.tables.registry import formats
from corgipile.testing import check_loader, check_order, check_table

PACKAGE = '''
"""Rows of text, a number a line; and an order that turns blocks round."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from corgipile.orders.order import Sized, Step, too_small, with_sizes
from corgipile.tables import MemoryTable
from corgipile.tables.format import Format


class Lines(MemoryTable):
    def __init__(self, path, scale=1):
        self.path, self.scale = str(path), scale
        numbers = [scale * int(line) for line in Path(path).read_text().splitlines()[1:]]
        super().__init__(pa.table({"x": pa.array(numbers, pa.int64())}))

    def __reduce__(self):
        return Lines, (self.path, self.scale)


FORMAT = Format(b"#lines\\n", (".lines",), Lines, frozenset({"scale"}))


@dataclass(frozen=True, kw_only=True)
class Turned(Sized):
    name: ClassVar[str] = "turned"

    def fit(self, rows, row_bytes, budget, *, whole=False):
        block = self.fit_block(rows, row_bytes, budget)
        if budget is not None and self.slots_of(block) > budget:
            raise too_small(self.name, self.slots_of(block), budget, row_bytes)
        return with_sizes(self, block=block, buffer=block)

    def slots_of(self, block):
        return block * (1 + self.ahead)

    def slots(self, blocks):
        return self.slots_of(max(1, self.block_rows))

    def steps(self, blocks, key, start=0):
        first, stop = key.share(blocks.rows)
        edges = np.append(np.arange(first, stop, self.block_rows), stop)
        turn = key.hash() % max(1, len(edges) - 1)
        for number in range(start, len(edges) - 1):
            at = (number + turn) % (len(edges) - 1)
            extents = np.array([[edges[at], edges[at + 1]]], np.int64)
            base = number % (1 + self.ahead) * self.block_rows
            into = np.arange(base, base + edges[at + 1] - edges[at], dtype=np.int32)
            yield Step(extents, into, into[::-1].copy())
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package beside ours."""
    (tmp_path / "others.py").write_text(PACKAGE)
    about = tmp_path / "others-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    entries = "[corgipile.formats]\nlines = others:FORMAT\n[corgipile.orders]\nturned = others:Turned\n"
    (about / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path, about / "entry_points.txt"
    sys.modules.pop("others", None)


@pytest.fixture(autouse=True)
def _forget():
    """Ask for entry points anew, before and after."""

    def forget():
        importlib.invalidate_caches()
        plugins.registered.cache_clear()
        formats.cache_clear()

    forget()
    yield
    forget()


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "numbers.lines"
    path.write_text("#lines\n" + "".join(f"{i}\n" for i in range(200)))
    return path


def test_a_format_of_another_package(package, lines, tmp_path):
    rows = pa.table({"x": np.arange(200)})
    check_table(cp.open(lines), rows)
    assert cp.open(tmp_path, format="lines").read(7, 8).to_pylist() == [{"x": 7}]
    assert cp.open(lines, scale=3).read(7, 8).to_pylist() == [{"x": 21}]
    assert cp.convert(lines, tmp_path / "out.arrow") == 200
    assert cp.open(tmp_path / "out.arrow").read(0, 200).to_pylist() == rows.to_pylist()
    with pytest.raises(BadArgument, match=r"scale does not apply to .*, whose format is arrow"):
        cp.open(tmp_path / "out.arrow", scale=3)


def test_without_the_package_its_format_is_unknown(lines):
    with pytest.raises(BadArgument, match=r"format must be one of .*arrow, arrows.*, got 'lines'"):
        cp.open(lines, format="lines")


def test_an_order_of_another_package(package, lines):
    check_order(named("turned"), block=3, buffer=3, random=False)
    check_loader(lambda: cp.Loader(lines, batch_size=16, order="turned", seed=4))
    with cp.Loader(lines, batch_size=16, order="turned", memory="1KB", seed=4) as loader:
        seen = np.concatenate([batch["x"] for batch in loader])
        assert json.dumps(loader.state_dict()["order"])
    assert sorted(seen.tolist()) == list(range(200))
    with pytest.raises(BadArgument, match=r"the names are .*full, partial, turned"):
        named("turnd")


def test_what_cannot_be_loaded_is_told_and_left_out(package, lines):
    package[1].write_text("[corgipile.formats]\nlines = others:MISSING\n")
    with pytest.warns(UserWarning, match=r"corgipile.formats 'lines' .* cannot be loaded: AttributeError"):
        assert "lines" not in formats()


def test_what_is_no_format_or_has_a_name_of_ours_is_refused(package):
    package[1].write_text("[corgipile.formats]\narrow = others:FORMAT\n")
    with pytest.raises(BadArgument, match="'arrow' of another package must be a Format with a new name"):
        formats()
