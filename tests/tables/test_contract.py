"""The contract of a table: wrappers forward every member of it, and no caller guesses whether a table has one."""

import importlib
import inspect
import pickle
import pkgutil
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile import tables
from corgipile.errors import BudgetTooSmall
from corgipile.features.encoders import Number
from corgipile.features.hashed import HashedColumns
from corgipile.features.hashing import Hashing, Source
from corgipile.features.table import EncodedColumns
from corgipile.linear.features import find_inputs
from corgipile.linear.labelled import Labelled
from corgipile.linear.nulls import NullsAsNaN
from corgipile.tables.cast_table import CastTable
from corgipile.tables.checked import Checked
from corgipile.tables.concat import ConcatTable
from corgipile.tables.encoded import Unpacked
from corgipile.tables.mixing import Mix
from corgipile.tables.partitions import Partition
from corgipile.tables.row_mask import RowMask
from corgipile.tables.selection import MaskTable, Selection, TakeTable
from corgipile.tables.subset import Subset
from corgipile.tables.table import Table
from corgipile.tables.units import Units
from corgipile.tables.views import Columns
from corgipile.tables.wrapper import Combined, Wrapper
from corgipile.testing import Counting, Failing, Slow, check_table
from corgipile.testing.wrappers import _Instrumented

SRC = Path(cp.__file__).parent
ROWS = pa.table(
    {"x": [0.5, 1.5, 2.5, 3.5], "items": [[1, 2]] * 4, "blob": [b"a", b"bc", b"def", b""], "text": list("abcd")}
)
MEMBERS = {name for name in vars(Table) if not name.startswith("_")}
REQUIRED = {"schema", "nbytes", "fingerprint", "cuts", "read", "take", "layout"}


class Stored(tables.MemoryTable):
    """A table in memory that has its own value of every member."""

    advice, place, spill, taken_runs, samples_widths = "slow", "here", Path("/spill"), 7, False

    def row_sizes(self, rows, columns):
        return rows + 100

    def take_bytes(self, rows, column):
        return [b"own" + value for value in super().take_bytes(rows, column)]

    def shared_bytes(self, columns):
        return 5 * len(columns)

    def list_width(self, name):
        return 9

    def run_cuts(self, columns, run_bytes):
        return np.array([0, 3, len(self)])

    def units(self, columns):
        return Units(2, 8, 32, 2, 8.0)

    def is_unencoded(self, columns):
        return True

    def longest_row(self, columns):
        return 44


WRAPPERS = {
    Columns: lambda table: Columns(table, ["x", "blob", "items"]),
    Partition: lambda table: Partition(table, {"year": pa.scalar(2024)}),
    CastTable: lambda table: CastTable(table, table.schema, {name: name for name in table.schema.names}, {}),
    Subset: lambda table: Subset(table, [[1, 2], [3, 4]]),
    MaskTable: lambda table: MaskTable(table, RowMask.of([False, True, False, True])),
    TakeTable: lambda table: TakeTable(table, np.array([3, 1])),
    EncodedColumns: lambda table: EncodedColumns(table, [Number("x", 0.0)]),
    HashedColumns: lambda table: HashedColumns(table, Hashing(18, 1, (Source("text", "words"),), (("text",),)), ()),
    Labelled: lambda table: Labelled(table, "label", np.arange(len(table))),
    NullsAsNaN: lambda table: NullsAsNaN(table, find_inputs(table, ["x"], None)),
    Counting: Counting,
    Slow: lambda table: Slow(table, 0.0),
    Failing: lambda table: Failing(table, 1000),
}
# What each class changes on purpose; the members of its subclasses included.
CHANGED = {
    Selection: {"memory_runs", "list_width", "samples_widths", "run_cuts"},
    TakeTable: {"location"},
    NullsAsNaN: {"row_sizes"},
    EncodedColumns: {"is_unencoded"},
    HashedColumns: {"place"},
    _Instrumented: {"location", "list_width", "samples_widths", "units"},
}


def subclasses(kind):
    """Return all classes of the package that derive from a class."""
    for room in ("tables", "features", "linear", "testing"):
        for found in pkgutil.walk_packages([str(SRC / room)], f"corgipile.{room}."):
            importlib.import_module(found.name)
    waiting, seen = [kind], set()
    while waiting:
        new = set(waiting.pop().__subclasses__()) - seen
        seen |= {one for one in new if one.__module__.startswith("corgipile.")}
        waiting += new
    return seen


def test_the_wrapper_forwards_every_member():
    others = {"schema", "columnar", "read", "take", "write_plain", "open_plain", "select", "slice", "filter"}
    assert MEMBERS - others - vars(Wrapper).keys() == set()  # `stored` columns and `unpacked` serve these
    own = {"memory_runs", "list_width", "run_cuts", "location", "layout", "unpacked", "cuts", "nbytes", "fingerprint"}
    assert MEMBERS - others - own - {"tables"} - vars(Combined).keys() == set()  # the others are of its subclasses


def test_only_wrappers_hold_a_table():
    """A class that reads another table in its own way would have to forward the members by itself."""
    others = [kind for kind in subclasses(Table) if not issubclass(kind, Wrapper | Combined)]
    assert [kind.__name__ for kind in others if "self.table = " in inspect.getsource(kind)] == ["ReadOnce"]


def test_every_wrapper_is_listed_here():
    others = {Selection, _Instrumented, Unpacked}  # bases, and what writes the table to a spill file first
    assert subclasses(Wrapper) - others == {*WRAPPERS}
    assert subclasses(Combined) == {ConcatTable, Mix}


@pytest.mark.parametrize("kind", WRAPPERS, ids=lambda kind: kind.__name__)
def test_wrappers_keep_the_members_of_the_table(kind):
    table = Stored(ROWS)
    over = WRAPPERS[kind](table)
    changed = set().union(*(names for base, names in CHANGED.items() if issubclass(kind, base)))
    column = "blob" if kind is EncodedColumns else "x"
    rows = np.arange(len(over))
    places = over.places(rows)
    for name in ("advice", "place", "spill", "taken_runs", "samples_widths", "at_hand"):
        assert (getattr(over, name) == getattr(table, name)) == (name not in changed), name
    assert [*over.tables] == [table]
    assert [part[2].tolist() for part in over.parts_of(rows)] == [places.tolist()]
    assert over.by_column(column)
    assert over.shared_bytes([column]) == 5
    assert over.longest_row([column]) == 44
    assert over.take_bytes(rows, "blob") == table.take_bytes(places, "blob")
    members = {
        "row_sizes": lambda one, at: one.row_sizes(at, [column]),
        "list_width": lambda one, at: one.list_width("items"),
        "run_cuts": lambda one, at: one.run_cuts([column], 10),
        "memory_runs": lambda one, at: one.memory_runs(3),
        "units": lambda one, at: one.units([column]),
        "is_unencoded": lambda one, at: one.is_unencoded([column]),
    }
    for name, ask in members.items():
        assert (str(ask(over, rows)) == str(ask(table, places))) == (name not in changed), name
    if kind is not EncodedColumns:
        assert (over.location([column]) is not None) == ("location" not in changed)


@pytest.mark.parametrize("kind", WRAPPERS, ids=lambda kind: kind.__name__)
def test_wrappers_obey_the_laws_and_unpack(kind):
    over = WRAPPERS[kind](tables.MemoryTable(ROWS))
    rows = pa.Table.from_batches([over.read(0, len(over))])
    names = rows.schema.names
    assert over.take(np.arange(len(over))[::-1]).to_pylist() == rows.to_pylist()[::-1]
    some = over.unpacked(names[1:], lambda table, stored: table.select(stored) if stored else table)
    if some is None:
        assert kind is HashedColumns  # its rows are unpacked as they are
        some = over
    assert some.read(0, len(over), names[1:]).to_pylist() == rows.select(names[1:]).to_pylist()
    if kind not in {Labelled, NullsAsNaN}:  # these have no fingerprint of their own
        check_table(over, rows)


def test_combined_tables_forward_members():
    one, other = Stored(ROWS), tables.MemoryTable(ROWS)
    for over in (ConcatTable([other, one]), Mix([other, one], [4, 4])):
        assert (over.advice, over.spill, over.taken_runs, over.samples_widths) == ("slow", Path("/spill"), 256, True)
        assert over.place
        assert over.by_column("x")
        assert over.at_hand
        assert over.shared_bytes(["x"]) == 5
        assert over.longest_row(["x"]) == 44
        assert over.units(["x"]) == one.units(["x"])
        assert over.row_sizes(np.arange(8), ["x"]) is None
        assert not over.is_unencoded(["x"])
        values = over.take_bytes(np.arange(8), "blob")
        assert sum(value.startswith(b"own") for value in values) == 4
    both = ConcatTable([one, one])
    assert both.row_sizes(np.array([5, 1]), ["x"]).tolist() == [101, 101]
    assert ConcatTable([other]).place == ""


def test_members_are_asked_for_without_a_guess():
    """All tables have all members, so no caller needs ``getattr`` or ``hasattr``."""
    asked = re.compile(rf'\b(?:get|has)attr\([^"\n]*, "(?:{"|".join(MEMBERS - REQUIRED)})"')
    assert [path.name for path in SRC.rglob("*.py") if asked.search(path.read_text())] == []


class Foreign:
    """A table of another package, with the required members only."""

    schema, nbytes, fingerprint = ROWS.schema, 100, "theirs"

    def __len__(self):
        return 4

    def __repr__(self):
        return "Foreign"

    def cuts(self, rows):
        return tables.MemoryTable(ROWS).cuts(rows)

    def read(self, start, stop, columns=None):
        return tables.MemoryTable(ROWS).read(start, stop, columns)

    def take(self, rows, columns=None):
        return tables.MemoryTable(ROWS).take(rows, columns)

    def layout(self, columns):
        return tables.MemoryTable(ROWS).layout(columns)


class Better(Foreign):
    """A table of another package with some of the other members."""

    advice, path = "buy", "there"

    def __init__(self):
        self.place = "disk"

    def row_sizes(self, rows, columns):
        return rows + 1


def test_a_table_of_another_package_needs_eight_members():
    opened = cp.open(Foreign())
    assert isinstance(opened, Table)
    assert cp.open(opened) is opened
    assert (repr(opened), opened.advice, opened.units(["x"]), opened.shared_bytes(["x"])) == ("Foreign", None, None, 0)
    check_table(Foreign(), ROWS)
    assert pickle.loads(pickle.dumps(opened)).read(0, 4).to_pylist() == ROWS.to_pylist()  # noqa: S301 - ours
    assert tables.filter(Foreign(), pa.compute.field("x") > 1).select(["x"]).read(0, 3).to_pydict() == {
        "x": [1.5, 2.5, 3.5]
    }
    assert tables.select(Foreign(), ["x"]).slice(3).read(0, 1).to_pydict() == {"x": [3.5]}
    assert len(cp.concat([Foreign(), ROWS])) == len(ConcatTable([Foreign(), opened])) == 8
    with cp.Loader(Foreign(), batch_size=2, columns=["x"]) as loader:
        assert sorted(np.concatenate([batch["x"] for batch in loader]).tolist()) == ROWS["x"].to_pylist()


def test_a_table_of_another_package_may_have_more():
    opened = cp.open(Better())
    assert (opened.advice, opened.place, opened.path, opened.spill) == ("buy", "disk", "there", opened.slice(1).spill)
    assert opened.slice(2).row_sizes(np.array([0, 1]), ["x"]).tolist() == [3, 4]


def test_checked_tables_have_the_members():
    assert issubclass(Checked, Table)
    assert REQUIRED <= MEMBERS


@pytest.mark.parametrize("values", [np.zeros(1 << 21), ["a" * 90] * (1 << 18)])
def test_rows_that_no_memory_holds_are_refused(tmp_path, monkeypatch, values):
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    table = cp.open(tmp_path / "a.parquet")
    monkeypatch.setattr("corgipile.tables.checked.MUCH_BYTES", 1 << 20)
    assert table.read(0, len(table)).num_rows == len(table)
    monkeypatch.setattr("corgipile.tables.checked.available_memory", lambda: 8 << 20)
    with pytest.raises(BudgetTooSmall, match="are free; read fewer rows"):
        table.read(0, len(table))
    assert table.read(0, 1000).num_rows == 1000
