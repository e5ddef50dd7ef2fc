"""Lance datasets: rows read by number through ``lance``."""

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, CorgiPileError, CorruptFile, MissingFile
from corgipile.extras import extra
from corgipile.tables.format import folder_format
from corgipile.tables.formats.lance_pages import longest_value
from corgipile.tables.io.files import File, PathLike
from corgipile.tables.io.pieces import Recent, check_names, pick
from corgipile.tables.library import LibraryTable
from corgipile.tables.reach import local, within
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import IntArray
from corgipile.tables.values import value_type

__all__ = ["FORMAT", "LanceTable", "is_lance"]

CACHE_BYTES = 16 << 20  # metadata cache of the library, whose default is gigabytes
TAKEN_BYTES = 4 << 20  # bytes of rows that the library reads at a time
MAX_FILES = 256  # files whose pages are searched for long rows
ADVICE = "rows are decoded at every reading; `corgipile convert` writes a file that is read in place"
_process: int | None = None  # the process that uses the library


def is_lance(folder: Path) -> bool:
    """Return whether a folder is a Lance dataset."""
    return (folder / "_versions").is_dir()


class LanceTable(LibraryTable):
    """Reads a Lance dataset at one version; later writes are not visible.

    Args:
        path: The folder.
        version: Number or tag of the version; the latest by default.
    """

    advice = ADVICE

    def __init__(self, path: PathLike, version: int | str | None = None) -> None:
        self.path = str(Path(path).expanduser().absolute())
        if not is_lance(Path(self.path)):
            raise MissingFile(f"{self.path} is not a Lance dataset: it has no folder _versions")
        self._requested_version, self._local = version, threading.local()
        self._longest = Recent[int](1 << 12)
        with self._converted_errors():
            dataset = self._dataset()
            for base in getattr(dataset, "base_paths", dict)().values():
                local(Path(self.path), base.path, f"{self.path}/_versions")
            self.version = int(dataset.version)
            stored = dataset.schema.remove_metadata()
            rows = int(dataset.count_rows())
            self._bytes = sum(file.stat().st_size for file in (Path(self.path) / "data").rglob("*") if file.is_file())
        self._requested_version = self.version
        kinds = [value_type(field.type) for field in stored]
        for name, kind in zip(stored.names, kinds, strict=True):
            if isinstance(kind, pa.BaseExtensionType):
                raise BadSchema(f"{self.path}: column {name!r} must not have an extension type, got {kind}")
        schema = pa.schema(list(zip(stored.names, kinds, strict=True)))
        check_names(schema, self.path)
        name = Path(self.path).resolve().name
        manifests = sorted(one.name for one in (Path(self.path) / "_versions").iterdir())
        identity = f"{name} {self.version} {self._bytes if self.version else manifests}"
        super().__init__(self.path, identity, schema, rows)

    def __reduce__(self) -> tuple[type["LanceTable"], tuple[str, int]]:
        return LanceTable, (self.path, self.version)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the data files."""
        return self._bytes

    def longest_row(self, columns: Sequence[str]) -> int:
        """Return the bytes of the longest row of columns, as the pages of the largest files state it; else 0."""
        varying = frozenset(name for name in columns if not fixed_row_bytes(pick(self.schema, [name])))
        return self._longest.get(varying, lambda: self._find_longest(varying) if varying else 0)

    def _find_longest(self, names: frozenset[str]) -> int:
        reader = extra("lance.file", "reading Lance", "lance", package="pylance").LanceFileReader
        folder, longest = Path(self.path, "data"), 0
        files = [file for fragment in self._dataset().get_fragments() for file in fragment.data_files()]
        for file in sorted(files, key=lambda file: -(file.file_size_bytes or 0))[:MAX_FILES]:
            with contextlib.suppress(OSError, CorruptFile, ValueError), self._converted_errors():
                path = within(folder, file.path, self.path)
                longest = max(longest, longest_value(File(path), reader(str(path)).metadata(), names))
        return longest

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return self._take(list(range(start, stop)), names)

    def _some(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return self._take(rows.tolist(), names)

    def _take(self, rows: list[int], names: list[str]) -> pa.RecordBatch:
        with self._converted_errors():
            step, wanted = max(1, TAKEN_BYTES // max(1, self.longest_row(names))), list(dict.fromkeys(names))
            parts = (rows[at : at + step] for at in range(0, len(rows), step))
            table = pa.concat_tables([self._dataset().take(part, columns=wanted) for part in parts])
            arrays = [_cast(table.column(name), self.schema.field(name).type) for name in names]
        return self._whole(pa.table(arrays, names=[str(at) for at in range(len(arrays))]), len(rows), names)

    def _dataset(self) -> Any:
        """Return this thread's own dataset.

        Raises:
            BadArgument: The process was forked after its parent used the library, which may then deadlock.
        """
        if _process not in (None, os.getpid()):
            raise BadArgument(
                f"{self.path}: Lance cannot be read in a forked process whose parent has used it, as its threads are "
                "lost: start workers with multiprocessing_context='spawn', or `corgipile convert` the table"
            )
        if not hasattr(self._local, "dataset"):
            self._local.dataset = _library().dataset(
                self.path,
                version=self._requested_version,
                metadata_cache_size_bytes=CACHE_BYTES,
                index_cache_size_bytes=CACHE_BYTES,
            )
        return self._local.dataset

    @contextlib.contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Convert errors of the library to errors of this package."""
        try:
            yield
        except BaseException as error:  # panics of the library do not derive from Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            if isinstance(error, CorgiPileError):
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            if not hasattr(self, "version") and self._requested_version is not None:
                raise BadArgument(f"{self.path} has no version {self._requested_version!r}: {reason}") from None
            raise CorruptFile(f"{self.path}: {reason}") from None


def _library() -> Any:
    global _process  # noqa: PLW0603 - one library for all tables
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that forks may hang; `_dataset` refuses them
        lance = extra("lance", "reading Lance", "lance", package="pylance")
    _process = os.getpid()
    return lance


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    chunks = [chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk for chunk in column.chunks]
    return pa.chunked_array([chunk.cast(kind) for chunk in chunks], kind)


FORMAT = folder_format(LanceTable, is_lance, "version", log=True)
