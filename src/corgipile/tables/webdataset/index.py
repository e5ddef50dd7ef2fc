"""Which members make a sample, and where they lie: the rules of the webdataset package, kept beside the file."""

import re
from array import array
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema
from corgipile.tables.arrow.spans import array_of
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import BATCH_ROWS, Numbers, open_index
from corgipile.tables.table import Table
from corgipile.tables.webdataset.archive import Member, Walk, printable

__all__ = ["GAPS", "HEAD", "SIZE", "START", "VALUE", "is_integer", "open_samples", "split"]

# What the webdataset package decodes to integers, and what is a label here unless another column is named.
INTEGERS = frozenset(("cls", "cls2", "class", "count", "id", "index", "inx", "label"))
HEAD, START, SIZE, GAPS, VALUE = "head", "start ", "size ", "size? ", "value "
NUMBERS = ("passed",)
_NAME = re.compile(r"((?:.*/|)[^./]+)[.]([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__($|/)")
_DIGITS = re.compile(rb"\s*[-+]?[0-9]{1,18}\s*")
_LONGEST = 32  # bytes of an integer


def open_samples(file: File) -> tuple[Table, int]:
    """Return where the members of each sample lie, and how many members belong to none.

    For each column ``name`` there is ``start name`` and ``size name``, or ``size? name``, -1 where a sample lacks it;
    where all are integers there is ``value name`` too. ``head`` is where the sample begins.

    Raises:
        CorruptFile: The archive is damaged.
        BadSchema: A sample has two members of a kind, or its members lie apart.
    """
    index, numbers = open_index(file, None, NUMBERS, lambda found: _scan(file, found))
    return index, numbers["passed"]


class _Samples:
    """Collects members by sample; a few numbers each."""

    def __init__(self) -> None:
        self.columns: dict[str, int] = {}
        self.begins = array("q")
        self.rows, self.kinds, self.starts, self.sizes, self.values = (array("q") for _ in range(5))
        self.not_integers: set[str] = set()
        self._key: str | None = None
        self._own = 0  # columns of the present sample, as bits
        self._seen: dict[str, int] = {}  # by key: which columns its samples have, as bits

    def add(self, key: str, column: str, member: Member, path: str) -> None:
        """Add a member; what it is worth as an integer comes by `value`."""
        if key != self._key:
            self._key = key
            self.begins.append(member.head)
            self._own = 0
        kind = self.columns.setdefault(column, len(self.columns))
        bit = 1 << kind
        place = f"{path}, member {member.name!r} at byte {member.head}"
        if self._own & bit:
            raise BadSchema(f"{place}: sample {key!r} has two members that end in .{column}; one is right")
        before = self._seen.get(key, 0)
        if before & ~self._own and not before & bit:
            raise BadSchema(
                f"{place}: the members of sample {key!r} lie apart; those of a sample must follow one another "
                "(`tar --sort=name` writes them so)"
            )
        self._own |= bit
        self._seen[key] = before | bit
        self.rows.append(len(self.begins) - 1)
        self.kinds.append(kind)
        self.starts.append(member.start)
        self.sizes.append(member.size)
        self.values.append(0)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the index."""
        shape = len(self.columns), len(self.begins)
        rows, kinds = (np.frombuffer(numbers, np.int64) for numbers in (self.rows, self.kinds))
        tables = []
        for numbers, missing in ((self.starts, -1), (self.sizes, -1), (self.values, 0)):
            found = np.full(shape, missing, np.int64)
            found[kinds, rows] = np.frombuffer(numbers, np.int64)
            tables.append(found)
        columns = {HEAD: np.frombuffer(self.begins, np.int64)}
        for name, kind in self.columns.items():
            size = GAPS if (tables[1][kind] < 0).any() else SIZE
            whole = is_integer(name) and name not in self.not_integers
            words = (START, size, VALUE) if whole else (START, size)
            columns |= {word + name: found[kind] for word, found in zip(words, tables, strict=False)}
        for start in range(0, max(1, shape[1]), BATCH_ROWS):
            some = [array_of(column[start : start + BATCH_ROWS].copy()) for column in columns.values()]
            yield pa.record_batch(some, names=list(columns))


def is_integer(column: str) -> bool:
    """Say whether the webdataset package takes members of this name for integers: their last ending counts.

    Example:
        >>> is_integer("age.cls"), is_integer("cls.txt")
        (True, False)
    """
    return column.rpartition(".")[2] in INTEGERS


def split(name: str) -> tuple[str, str] | None:
    """Return the key and the column of a member, by the rules of the webdataset package; None if it has none.

    Example:
        >>> split("train/0001.seg.PNG"), split("train/README"), split("train/._0001.jpg"), split("__meta__/a.json")
        (('train/0001', 'seg.png'), None, None, None)
    """
    found = None if _META.match(name) else _NAME.fullmatch(name)
    return None if found is None else (found[1], printable(found[2].lower()))


def _scan(file: File, numbers: Numbers) -> Iterator[pa.RecordBatch]:
    samples, walk, passed = _Samples(), Walk(file.scanned()), 0
    for member in walk.members():
        parts = split(member.name)
        if parts is None:
            passed += 1
            continue
        if member.flaw:
            raise BadSchema(f"{file.path}, member {member.name!r} at byte {member.head} {member.flaw}")
        key, column = parts
        samples.add(key, column, member, file.path)
        if is_integer(column) and column not in samples.not_integers:
            text = walk.read(member.start, member.size) if member.size <= _LONGEST else b""
            if _DIGITS.fullmatch(text):
                samples.values[-1] = int(text)
            else:
                samples.not_integers.add(column)
    numbers["passed"] = passed
    yield from samples.batches()
