"""SVMlight and LIBSVM text files as tables, with random access by an index of byte offsets."""

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from corgipile.errors import BadSparseRow, BadValue, CorruptFile, ParseError, UnknownFormat
from corgipile.tables.checked import FileTable
from corgipile.tables.format import Format
from corgipile.tables.formats.svmlight.index import open_index, row_bytes_of
from corgipile.tables.formats.svmlight.text import Summary, ZeroBased, parse_rows, schema, stream_batches
from corgipile.tables.io.files import File, PathLike, digest
from corgipile.tables.io.index_cache import index_writer
from corgipile.tables.io.pieces import pick, take_runs
from corgipile.tables.io.remote import file_of
from corgipile.tables.pages import varlen_cuts
from corgipile.tables.spans import flat
from corgipile.tables.table import IntArray, Table, even_cuts

__all__ = [
    "FORMAT",
    "SUFFIXES",
    "SvmlightTable",
    "check_looks_like_text",
    "same_base",
    "stream_batches",
]

SUFFIXES = (".svm", ".libsvm", ".svmlight")
MAX_GAP, MAX_RUN = 1 << 15, 1 << 18  # bytes of text between two rows in one read; bytes parsed at a time
HEAD_BYTES = 1 << 16  # bytes that decide the format
INDEX_ROWS = 1 << 20  # rows of the index read at a time


class SvmlightTable(FileTable):
    r"""Reads SVMlight text: columns ``label``, ``features_k`` (indices from 0), ``features_v``.

    The first opening parses and checks the whole file and stores an index next to it,
    ``NAME.corgipile-index.arrow``.

    Args:
        path: The file.
        zero_based: Whether indices begin at 0; ``"auto"``: at 1 unless an index 0 occurs.

    Attributes:
        base: The first index, 0 or 1.
        dims: The number of features.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(f"{folder}/a.svm").write_text("+1 1:0.5 3:2 # a comment\n-1 2:1\n")
        ...     SvmlightTable(f"{folder}/a.svm").read(0, 1).to_pylist()
        [{'label': 1.0, 'features_k': [0, 2], 'features_v': [0.5, 2.0]}]
    """

    def __init__(self, path: PathLike, zero_based: ZeroBased = "auto") -> None:
        self._file = file_of(path)
        self.zero_based = zero_based
        self._index, summary = open_index(self._file)
        self.base = summary.base(self._file.path, zero_based)
        self.schema: pa.Schema = schema(summary, self.base)
        self.dims = max(summary.largest + 1 - self.base, 0)

    def __reduce__(self) -> tuple[type["SvmlightTable"], tuple[str, ZeroBased]]:
        return SvmlightTable, (self._file.path, self.zero_based)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def fingerprint(self) -> str:
        """Return a digest of content, schema, rows and base."""
        return digest(super().fingerprint, str(self.base))

    def run_cuts(self, columns: Sequence[str], run_bytes: int) -> IntArray:
        """Cut the text at runs of ``run_bytes``."""
        parts = pairwise(even_cuts(len(self), INDEX_ROWS).tolist())
        begins = (flat(self._index.read(start, stop, ["start"]).column(0)) for start, stop in parts)
        return varlen_cuts(begins, run_bytes)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        """Read a run of rows; ``label`` alone comes from the index."""
        if names == ["label"]:
            return self._with_schema(self._index.read(start, stop, names))
        places = row_bytes_of(self._index, start, stop, self._file.size)
        if (places[1:] <= places[:-1]).any():
            raise self._changed_error()
        text = memoryview(self._file.read(int(places[0]), int(places[-1] - places[0])))
        parsed, batch = parse_rows(text, stop - start, self.base, self.schema)
        if parsed.code or parsed.rows != stop - start:
            raise self._changed_error()
        return batch if names == self.schema.names else self._with_schema(batch.select(names))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        gap, max_rows = (size * len(self) // max(self._file.size, 1) for size in (MAX_GAP, MAX_RUN))
        return take_runs(rows, gap, lambda start, stop: self.read(start, stop, names), max(1, max_rows))

    def _with_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(batch.columns, schema=pick(self.schema, batch.schema.names))

    def _changed_error(self) -> CorruptFile:
        return CorruptFile(f"{self._file.path} or its index changed after it was opened; open it again")


def same_base(tables: Sequence[Table]) -> list[Table]:
    """Give the texts of one table the same base: 0 if an index 0 occurs in any of them."""
    texts = [table for table in tables if isinstance(table, SvmlightTable)]
    if len({table.base for table in texts}) < 2:
        return list(tables)
    return [
        SvmlightTable(*table.__reduce__()[1][:1], zero_based=True)
        if isinstance(table, SvmlightTable) and table.zero_based == "auto"
        else table
        for table in tables
    ]


def check_looks_like_text(file: File) -> None:
    """Raise UnknownFormat unless the first line of a file parses.

    Bad values and indices pass: opening the file reports them with their line.
    """
    head = file.read(0, min(HEAD_BYTES, file.size))
    whole = len(head) == file.size
    if not head:
        raise UnknownFormat(f"{file.path} is empty, so its format is unknown; set format=")
    try:
        parsed, _ = parse_rows(memoryview(head), 1, 0, schema(Summary(), 0))
        cut_off = not whole and parsed.code > 1 and b"\n" not in head[parsed.consumed :]
        if not cut_off:
            parsed.check(memoryview(head), file.path, 0, 0)
    except (BadValue, BadSparseRow):
        return
    except ParseError as error:
        known = (
            f"{file.path} is of no known format (Arrow, Parquet, .npy, TFRecord, tar, or text: SVMlight, CSV, "
            f"JSON lines); it begins with {head[:8]!r}"
        )
        if is_binary(head):
            model = head[8:9] == b"{" and int.from_bytes(head[:8], "little") < file.size
            raise UnknownFormat(known + ", as a model in the safetensors format does" * model) from None
        raise UnknownFormat(f"{known}, and as text: {error}") from None


def is_binary(head: bytes) -> bool:
    """Return whether a file is binary, by its first bytes.

    Example:
        >>> is_binary(b"+1 3:0.5"), is_binary(bytes(8))
        (False, True)
    """
    return any(byte < 9 or 13 < byte < 32 for byte in head[:512])


FORMAT = Format(
    b"",
    SUFFIXES,
    SvmlightTable,
    frozenset({"zero_based"}),
    agree=same_base,
    index_file=index_writer(SvmlightTable),
)
