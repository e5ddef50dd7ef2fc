"""WebDataset shards as tables: the members of a tar file, grouped by name, are samples."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, BadValue, UnknownFormat
from corgipile.tables.checked import FileTable
from corgipile.tables.format import Format
from corgipile.tables.formats.webdataset.archive import Walk, printable
from corgipile.tables.formats.webdataset.index import GAPS, HEAD, SIZE, START, VALUE, open_samples
from corgipile.tables.io.entries import Entries
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.index_cache import index_writer
from corgipile.tables.io.pieces import pick
from corgipile.tables.io.remote import file_of
from corgipile.tables.spans import array_of, flat
from corgipile.tables.table import LIMIT, IntArray, Table, check_columns

__all__ = [
    "FORMAT",
    "KEY",
    "SUFFIXES",
    "WebDatasetTable",
    "is_text_name",
    "refuse_packed_tar",
    "same_columns",
]

SUFFIXES = (".tar",)
KEY = "__key__"
TEXT = frozenset(("json", "jsn", "text", "transcript", "txt"))  # suffixes that the webdataset package decodes to text
Decode = bool | Literal["auto"]
_UNPACK = {"gzip": "gunzip", "bzip2": "bunzip2", "xz": "unxz", "zstd": "unzstd"}


class WebDatasetTable(FileTable):
    r"""Reads a tar file of samples, as the webdataset package writes and groups them.

    Consecutive members with the same name up to the first dot are a sample; the lower-case rest of the name is the
    column: ``jpg``, ``seg.png``. Its last suffix sets the type: ``txt`` and ``json`` are strings; ``cls``, ``label``
    and the package's other integer names are int64 if all values are integers; other columns are bytes, to be decoded
    in training. A missing member is null. Members outside of samples are ignored: folders, names without a dot or with
    a leading dot, and names such as ``__meta__``.

    The first opening reads the headers and stores positions and integers in an index next to the archive,
    ``NAME.corgipile-index.arrow``.

    Args:
        path: The file, not compressed.
        paths: Add the column ``__key__``, the name of each sample.
        decode: False keeps all columns as bytes.
        columns: Columns and their types, if several files are one table; by default those in the file.

    Attributes:
        passed: Number of ignored members.

    Raises:
        CorruptFile: The archive is damaged, truncated, or not a tar file.
        BadSchema: A sample has two members of a column, or a member without bytes, such as a link.

    Example:
        >>> import io, tarfile, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with tarfile.open(f"{folder}/a.tar", "w") as archive:
        ...         for name, data in (("0.jpg", b"..."), ("0.cls", b"7"), ("1.jpg", b"...."), ("1.cls", b"9")):
        ...             member = tarfile.TarInfo(name)
        ...             member.size = len(data)
        ...             archive.addfile(member, io.BytesIO(data))
        ...     WebDatasetTable(f"{folder}/a.tar").read(1, 2).to_pylist()
        [{'jpg': b'....', 'cls': 9}]
    """

    columnar = True  # a column is read without the others

    def __init__(
        self,
        path: PathLike,
        *,
        paths: bool = False,
        decode: Decode = "auto",
        columns: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        if decode not in (True, False, "auto"):
            raise BadArgument(f'decode must be True, False or "auto", got {decode!r}')
        self._file = file_of(path)
        self._paths, self._decode = paths, decode is not False
        self._index, self.passed = open_samples(self._file)
        self._entries = Entries(self._index)
        self._index_columns = set(self._index.schema.names)
        found = columns or self.column_types()
        self.schema: pa.Schema = pa.schema({**found, **({KEY: pa.string()} if paths else {})})

    def __len__(self) -> int:
        return len(self._index)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        found = self._index.read(start, stop, places := self._index_names(names))
        return self._batch(dict(zip(places, map(flat, found.columns), strict=True)), names)

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        found = self._entries.take(rows, places := self._index_names(names))
        return self._batch(dict(zip(places, found, strict=True)), names)

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray | None:
        """Return the bytes of each row; None if samples lack a member."""
        names = check_columns(self.schema, columns)
        numbers = [name for name in names if self._is_number(name)]
        sized = [SIZE + name for name in names if name != KEY and not self._is_number(name)]
        if not self._index_columns.issuperset(sized) or KEY in names:
            return None
        sizes = np.full(len(rows), 8 * len(numbers), np.int64)
        if sized:
            sizes += sum(self._entries.take(rows, sized))
        return sizes

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a column of bytes that all samples have."""
        check_columns(self.schema, [column])
        return self._file.gather_bytes(*self._entries.take(rows, [START + column, SIZE + column]))

    def column_types(self) -> dict[str, pa.DataType]:
        """Return the columns of the archive and their types."""
        names = [name.removeprefix(START) for name in self._index.schema.names if name.startswith(START)]
        kinds = {name: pa.int64() if VALUE + name in self._index_columns else _type_of(name) for name in names}
        return kinds if self._decode else dict.fromkeys(names, pa.binary())

    def with_columns(self, columns: Mapping[str, pa.DataType]) -> "WebDatasetTable":
        """Return the table with these columns."""
        mine = [(field.name, field.type) for field in self.schema if field.name != KEY]
        if mine == list(columns.items()):
            return self
        return WebDatasetTable(self.path, paths=self._paths, decode=self._decode, columns=columns)

    def _is_number(self, name: str) -> bool:
        return bool(pa.types.is_integer(self.schema.field(name).type))

    def _index_names(self, names: Sequence[str]) -> list[str]:
        """Return the index columns with the positions of these columns."""
        wanted = []
        for name in names:
            words = (HEAD,) if name == KEY else (VALUE + name,) if self._is_number(name) else (START + name,)
            wanted += [*words, SIZE + name, GAPS + name]
        return [HEAD, *dict.fromkeys(word for word in wanted if word in self._index_columns and word != HEAD)]

    def _batch(self, found: dict[str, IntArray], names: Sequence[str]) -> pa.RecordBatch:
        """Read columns, all members in one call."""
        blobs = [name for name in dict.fromkeys(names) if START + name in found]
        made = dict(zip(blobs, self._blobs(found, blobs), strict=True))
        for name in set(names) - set(blobs):
            made[name] = self._column(found, name, len(found[HEAD]))
        return pa.RecordBatch.from_arrays([made[name] for name in names], schema=pick(self.schema, names))

    def _column(self, found: dict[str, npt.NDArray[np.int64]], name: str, rows: int) -> pa.Array:
        """Return a column whose values are not stored in members."""
        if name == KEY:
            return pa.array([self._key(head) for head in found[HEAD].tolist()], pa.string())
        if VALUE + name not in found:
            return pa.nulls(rows, self.schema.field(name).type)
        values = array_of(found[VALUE + name])
        missing = _missing(found, name)
        return values if missing is None else pa.array(found[VALUE + name], mask=missing)

    def _key(self, head: int) -> str:
        name = next(Walk(self._file).members(head)).name
        folder, slash, last = name.rpartition("/")
        return printable(folder + slash + last.partition(".")[0])

    def _blobs(self, found: dict[str, npt.NDArray[np.int64]], names: Sequence[str]) -> list[pa.Array]:
        """Read columns of members in one call, each into a part of one buffer."""
        rows = len(found[HEAD])
        sizes = [np.maximum(found[SIZE + name if SIZE + name in found else GAPS + name], 0) for name in names]
        starts = [np.maximum(found[START + name], 0) for name in names]
        for start, size in zip(starts, sizes, strict=True):
            self._file.check_ranges(start, size)
        ends = [np.append(0, np.cumsum(size)) for size in sizes]
        totals = [int(end[-1]) for end in ends]
        if max(totals, default=0) >= LIMIT:
            raise BadArgument(f"{rows} rows do not fit one record batch: {max(totals)} bytes; read fewer rows")
        data, bases = np.empty(sum(totals), np.uint8), np.append(0, np.cumsum(totals)).tolist()
        if names:
            to = np.concatenate([end[:-1] + base for end, base in zip(ends, bases, strict=False)])
            self._file.gather(np.concatenate(starts), np.concatenate(sizes), data, to)
        return [
            self._blob(name, data[base : base + total], end, found)
            for name, base, total, end in zip(names, bases, totals, ends, strict=False)
        ]

    def _blob(
        self, name: str, data: npt.NDArray[np.uint8], ends: IntArray, found: dict[str, npt.NDArray[np.int64]]
    ) -> pa.Array:
        kind, missing = self.schema.field(name).type, _missing(found, name)
        validity = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
        offsets = pa.py_buffer(ends.astype(np.int32))
        made = pa.Array.from_buffers(kind, len(ends) - 1, [validity, offsets, pa.py_buffer(data)])
        if pa.types.is_string(kind):
            self._check_text(made, name, found[HEAD])
        return made

    def _check_text(self, column: pa.Array, name: str, begins: IntArray) -> None:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row, head in enumerate(begins.tolist()):
                try:
                    column[row].as_py()
                except UnicodeDecodeError as error:
                    raise BadValue(
                        f"{self.path}, sample {self._key(head)!r}: .{name} must be UTF-8, got {error.reason} at byte "
                        f"{error.start}; keep it as bytes with decode=False"
                    ) from None
            raise


def is_text_name(name: str) -> bool:
    """Return whether the webdataset package decodes members of this name to text, by their last suffix."""
    return name.rpartition(".")[2] in TEXT


def _type_of(name: str) -> pa.DataType:
    return pa.string() if is_text_name(name) else pa.binary()


def _missing(found: dict[str, npt.NDArray[np.int64]], name: str) -> npt.NDArray[np.bool_] | None:
    sizes = found.get(GAPS + name)
    return None if sizes is None or not (sizes < 0).any() else sizes < 0


def same_columns(tables: Sequence[Table]) -> list[Table]:
    """Give the archives of one table the columns of all: nulls for missing columns, bytes where types differ.

    Raises:
        BadSchema: No archive has a sample.
    """
    shards = [table for table in tables if isinstance(table, WebDatasetTable)]
    columns: dict[str, pa.DataType] = {}
    for shard in shards:
        for name, kind in shard.column_types().items():
            columns[name] = kind if columns.get(name, kind) == kind else pa.binary()
    if shards and not columns:
        raise BadSchema(
            f"{shards[0].path} has no sample: none of its {shards[0].passed} members has a name such as 0001.jpg"
        )
    return [table.with_columns(columns) if isinstance(table, WebDatasetTable) else table for table in tables]


def refuse_packed_tar(path: str, codec: str) -> None:
    """Raise UnknownFormat if a compressed file has the name of a tar archive."""
    name = path.lower()
    if name.endswith((".tgz", ".tbz2", ".txz")) or ".tar." in name[-9:]:
        raise UnknownFormat(
            f"{path} is a tar file compressed as a whole ({codec}), so samples cannot be located; unpack it once with "
            f"`{_UNPACK[codec]} {path}`: images and sound hardly grow"
        )


FORMAT = Format(
    b"",
    SUFFIXES,
    WebDatasetTable,
    frozenset({"decode", "paths"}),
    agree=same_columns,
    index_file=index_writer(WebDatasetTable),
)
