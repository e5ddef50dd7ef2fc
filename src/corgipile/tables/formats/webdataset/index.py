"""A stored index of a tar file's samples, grouped by the rules of the webdataset package."""

import re
from array import array
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema
from corgipile.tables.formats.webdataset.archive import Member, Walk, printable
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import BATCH_ROWS, Numbers, open_index
from corgipile.tables.spans import array_of
from corgipile.tables.table import Table

__all__ = ["GAPS", "HEAD", "SIZE", "START", "VALUE", "is_integer", "open_samples", "split"]

# Suffixes that the webdataset package decodes to integers, and default label columns here.
INTEGERS = frozenset(("cls", "cls2", "class", "count", "id", "index", "inx", "label"))
HEAD, START, SIZE, GAPS, VALUE = "head", "start ", "size ", "size? ", "value "
NUMBERS = ("passed",)
_NAME = re.compile(r"((?:.*/|)[^./]+)[.]([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__($|/)")
_DIGITS = re.compile(rb"\s*[-+]?[0-9]{1,18}\s*")
_MAX_INTEGER_BYTES = 32
MAX_GAPS, MIN_CELLS = 64, 1 << 20  # cells of the index for each member; smaller indexes may have more


def open_samples(file: File) -> tuple[Table, int]:
    """Return the index of samples, and the number of members outside of samples.

    Column ``name`` has ``start name`` and ``size name``, or ``size? name`` with -1 where a sample lacks it; a column of
    integers also has ``value name``. ``head`` is the start of the sample.

    Raises:
        CorruptFile: The archive is damaged.
        BadSchema: A sample has two members of a column, or its members are not consecutive.
    """
    index, numbers = open_index(file, None, NUMBERS, lambda matrix: _scan(file, matrix))
    return index, numbers["passed"]


class _Samples:
    """Collects the positions of members by sample."""

    def __init__(self) -> None:
        self.columns: dict[str, int] = {}
        self.begins = array("q")
        self.rows, self.kinds, self.starts, self.sizes, self.values = (array("q") for _ in range(5))
        self.not_integers: set[str] = set()
        self._key: str | None = None
        self._sample_columns = 0  # bit set of the current sample's columns
        self._key_columns: dict[str, int] = {}  # bit set of columns by key

    def add(self, key: str, column: str, member: Member, path: str) -> None:
        """Add a member; the caller sets its integer value, if any."""
        if key != self._key:
            self._key = key
            self.begins.append(member.head)
            self._sample_columns = 0
        kind = self.columns.setdefault(column, len(self.columns))
        bit = 1 << kind
        place = f"{path}, member {member.name!r} at byte {member.head}"
        if self._sample_columns & bit:
            raise BadSchema(f"{place}: sample {key!r} must have one member that ends in .{column}, got two")
        before = self._key_columns.get(key, 0)
        if before & ~self._sample_columns and not before & bit:
            raise BadSchema(
                f"{place}: the members of sample {key!r} must be consecutive; rewrite the archive with "
                "`tar --sort=name`"
            )
        self._sample_columns |= bit
        self._key_columns[key] = before | bit
        self.rows.append(len(self.begins) - 1)
        self.kinds.append(kind)
        self.starts.append(member.start)
        self.sizes.append(member.size)
        self.values.append(0)

    def batches(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of the index; raise BadSchema if nearly all samples lack nearly all columns."""
        shape = len(self.columns), len(self.begins)
        if shape[0] * shape[1] > max(MIN_CELLS, MAX_GAPS * len(self.rows)):
            raise BadSchema(
                f"{path}: samples must have the same kinds of members, got {shape[0]} endings in {len(self.rows)} "
                "members; the key of a sample ends at the first dot of its name"
            )
        rows, kinds = (np.frombuffer(numbers, np.int64) for numbers in (self.rows, self.kinds))
        tables = []
        for numbers, missing in ((self.starts, -1), (self.sizes, -1), (self.values, 0)):
            matrix = np.full(shape, missing, np.int64)
            matrix[kinds, rows] = np.frombuffer(numbers, np.int64)
            tables.append(matrix)
        columns = {HEAD: np.frombuffer(self.begins, np.int64)}
        for name, kind in self.columns.items():
            size = GAPS if (tables[1][kind] < 0).any() else SIZE
            whole = is_integer(name) and name not in self.not_integers
            words = (START, size, VALUE) if whole else (START, size)
            columns |= {word + name: matrix[kind] for word, matrix in zip(words, tables, strict=False)}
        for start in range(0, max(1, shape[1]), BATCH_ROWS):
            some = [array_of(column[start : start + BATCH_ROWS].copy()) for column in columns.values()]
            yield pa.record_batch(some, names=list(columns))


def is_integer(column: str) -> bool:
    """Return whether the webdataset package decodes members of this name to integers, by their last suffix.

    Example:
        >>> is_integer("age.cls"), is_integer("cls.txt")
        (True, False)
    """
    return column.rpartition(".")[2] in INTEGERS


def split(name: str) -> tuple[str, str] | None:
    """Return a member's key and column by the rules of the webdataset package; None if it has none.

    Example:
        >>> split("train/0001.seg.PNG"), split("train/README"), split("train/._0001.jpg"), split("__meta__/a.json")
        (('train/0001', 'seg.png'), None, None, None)
    """
    matrix = None if _META.match(name) else _NAME.fullmatch(name)
    return None if matrix is None else (matrix[1], printable(matrix[2].lower()))


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
            text = walk.read(member.start, member.size) if member.size <= _MAX_INTEGER_BYTES else b""
            if _DIGITS.fullmatch(text):
                samples.values[-1] = int(text)
            else:
                samples.not_integers.add(column)
    numbers["passed"] = passed
    yield from samples.batches(file.path)
