"""A shard of MDS: a table of sample offsets, then the samples."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, CorruptFile
from corgipile.tables.checked import FileTable
from corgipile.tables.formats.mds.encodings import encoding_of
from corgipile.tables.formats.mds.images import IMAGES
from corgipile.tables.formats.mds.stored import Encoding, Stored
from corgipile.tables.io.files import File, PathLike
from corgipile.tables.io.pieces import check_rows, pick
from corgipile.tables.table import LIMIT, IntArray, check_columns

__all__ = ["Column", "MdsShard"]

OFFSET_BYTES = 4  # bytes of an offset or a length


class Column(NamedTuple):
    """A column in the index; ``size`` is None for values of variable length."""

    name: str
    encoding: str
    size: int | None


class MdsShard(FileTable):
    """Reads the samples of an uncompressed shard in place.

    Args:
        file: The shard, or its path.
        rows: Number of samples in the index.
        columns: The columns, in the order of their values in a sample.
        kinds: Encodings inferred from an earlier shard; None to infer them from this one.
    """

    columnar = True  # a column is read without the others

    def __init__(
        self, file: File | PathLike, rows: int, columns: Sequence[Column], kinds: "dict[str, Encoding] | None" = None
    ) -> None:
        self._file = file if isinstance(file, File) else File(file)
        self._rows, self._columns, self._initial_kinds = rows, tuple(columns), kinds
        self._at = {column.name: at for at, column in enumerate(columns)}
        self._variable = [at for at, column in enumerate(columns) if column.size is None]
        self._check_head()
        self.kinds = kinds or self._sampled_kinds()
        self.schema: pa.Schema = pa.schema([(column.name, self.kinds[column.name].kind) for column in columns])

    def __reduce__(self) -> tuple[type["MdsShard"], tuple[object, ...]]:
        return MdsShard, (self._file.path, self._rows, self._columns, self._initial_kinds)

    def __len__(self) -> int:
        return self._rows

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the stored bytes of each row; None for images, whose stored size differs."""
        names = check_columns(self.schema, columns)
        if any(self._columns[self._at[name]].encoding in IMAGES for name in names):
            return None
        _, sizes = self._places(check_rows(rows, len(self)))
        return np.asarray(sizes[:, [self._at[name] for name in names]].sum(axis=1))

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a column of bytes."""
        check_columns(self.schema, [column])
        starts, sizes = self._places(check_rows(rows, len(self)))
        at = self._at[column]
        return self._file.gather_bytes(starts[:, at], sizes[:, at])

    def _check_head(self) -> None:
        (stated,) = (
            np.frombuffer(self._file.read(0, OFFSET_BYTES), "<u4").tolist()
            if self._file.size >= OFFSET_BYTES
            else (None,)
        )
        if stated != self._rows:
            raise CorruptFile(f"{self._file.path} must have the {self._rows} samples of the index, got {stated}")
        if self._file.size < OFFSET_BYTES * (self._rows + 2):
            raise CorruptFile(
                f"{self._file.path} is truncated: it has {self._file.size} bytes for {self._rows} samples"
            )

    def _sampled_kinds(self) -> dict[str, Encoding]:
        first = np.arange(min(1, self._rows))
        starts, sizes = self._places(first)
        return {
            column.name: encoding_of(column.name, column.encoding, self._stored(at, first, starts, sizes))
            for at, column in enumerate(self._columns)
        }

    def _places(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return starts and sizes of the values of samples, int64[samples, columns]."""
        begins, lengths = self._samples(rows)
        head = OFFSET_BYTES * len(self._variable)
        if (lengths < head).any():
            raise self._damaged(rows, lengths < head)
        prefixes = (
            self._file.gather(begins, np.full(len(rows), head)).view("<u4").reshape(len(rows), len(self._variable))
        )
        sizes = np.array([column.size or 0 for column in self._columns], np.int64) + np.zeros((len(rows), 1), np.int64)
        sizes[:, self._variable] = prefixes
        wrong = sizes.sum(axis=1) + head != lengths
        if wrong.any():
            raise self._damaged(rows, wrong)
        return begins[:, None] + head + np.cumsum(sizes, axis=1) - sizes, sizes

    def _samples(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return starts and sizes of samples."""
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            ends = np.frombuffer(
                self._file.read(OFFSET_BYTES * (1 + int(rows[0])), OFFSET_BYTES * (len(rows) + 1)), "<u4"
            )
            begins, stops = ends[:-1].astype(np.int64), ends[1:].astype(np.int64)
        else:
            pairs = (
                self._file.gather(OFFSET_BYTES * (1 + rows), np.full(len(rows), 2 * OFFSET_BYTES))
                .view("<u4")
                .reshape(-1, 2)
            )
            begins, stops = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
        wrong = (begins > stops) | (stops > self._file.size)
        if wrong.any():
            raise self._damaged(rows, wrong)
        return begins, stops - begins

    def _damaged(self, rows: IntArray, wrong: npt.NDArray[np.bool_]) -> CorruptFile:
        row = int(rows[np.flatnonzero(wrong)[0]])
        return CorruptFile(f"{self._file.path} is damaged: the values of sample {row} do not fit its place")

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        if not self._variable:
            return self._fixed_batch(rows, names)
        starts, sizes = self._places(rows)
        wanted = [self._at[name] for name in dict.fromkeys(names)]
        totals = sizes[:, wanted].sum(axis=0)
        if len(totals) and totals.max() >= LIMIT:
            raise BadArgument(f"{len(rows)} rows do not fit one record batch: {totals.max()} bytes; read fewer rows")
        bases = np.append(0, np.cumsum(totals))
        ends = [np.append(0, np.cumsum(sizes[:, at])) for at in wanted]
        data = np.empty(int(bases[-1]), np.uint8)
        if wanted:
            to = np.concatenate([end[:-1] + base for end, base in zip(ends, bases, strict=False)])
            self._file.gather(starts[:, wanted].T.reshape(-1), sizes[:, wanted].T.reshape(-1), data, to)
        arrays = {}
        for at, end, base in zip(wanted, ends, bases.tolist(), strict=False):
            name = self._columns[at].name
            stored = Stored(data[base : base + int(end[-1])], end, partial(self._place, rows, name))
            arrays[name] = self.kinds[name].decode(stored)
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=pick(self.schema, names))

    def _fixed_batch(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Read whole samples of fixed length and split them into columns."""
        widths = [column.size or 0 for column in self._columns]
        begins, lengths = self._samples(rows)
        if (lengths != sum(widths)).any():
            raise self._damaged(rows, lengths != sum(widths))
        samples = self._file.gather(begins, lengths).reshape(len(rows), sum(widths))
        ends, arrays = np.append(0, np.cumsum(widths)).tolist(), {}
        for name in dict.fromkeys(names):
            low, high = ends[self._at[name]], ends[self._at[name] + 1]
            data = np.ascontiguousarray(samples[:, low:high]).reshape(-1)
            places = np.arange(len(rows) + 1) * (high - low)
            arrays[name] = self.kinds[name].decode(Stored(data, places, partial(self._place, rows, name)))
        return pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=pick(self.schema, names))

    def _stored(self, at: int, rows: IntArray, starts: IntArray, sizes: IntArray) -> Stored:
        """Read the values of a column."""
        data = self._file.gather(starts[:, at], sizes[:, at])
        name = self._columns[at].name
        return Stored(data, np.append(0, np.cumsum(sizes[:, at])), partial(self._place, rows, name))

    def _place(self, rows: IntArray, name: str, row: int) -> str:
        return f"{self._file.path}, sample {int(rows[row])}: column {name!r}"
