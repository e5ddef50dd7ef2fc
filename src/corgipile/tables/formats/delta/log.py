"""Files that a Delta log refers to: data files, sidecars of checkpoints, deletion vectors."""

import base64
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from uuid import UUID

import pyarrow.parquet as pq

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.nesting import check_text
from corgipile.tables.formats.parquet.table import ParquetTable
from corgipile.tables.io.files import File
from corgipile.tables.reach import outside, trusts_paths, within

__all__ = ["LOG", "check_log", "check_vectors", "place"]

LOG, SIDECARS = "_delta_log", "_sidecars"
MAX_BYTES, MAX_LINE = 128 << 20, 2 << 20  # decoded bytes of a log file; bytes of a line, of which the library takes 40
MAX_MASK = 1 << 27  # rows of the masks of all deletion vectors, which the library holds at a byte each
BATCH_ROWS = 1 << 12  # actions of a checkpoint decoded at once
VECTOR = ("add.path", *(f"add.deletionVector.{name}" for name in ("storageType", "pathOrInlineDv", "offset")))
UUID_CHARACTERS = 20  # at the end of a vector's name
TREEMAP, RUNS, CONTAINER = 1681511377, 12347, 1 << 16  # magic numbers and rows of containers of Roaring bitmaps
MAX_HEAD = 24 + (1 << 13) + (1 << 18)  # bytes of the largest header of a Roaring bitmap
ASCII85 = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
NAME = re.compile(r"[\w.%+=-]+", re.ASCII)


def place(folder: Path, path: str) -> Path:
    """Return the path of a data file from its URL-encoded name in the log."""
    if "://" in path and not path.startswith("file://"):
        raise UnknownFormat(f"{folder} must have only local files, got {path}")
    return within(folder, unquote(path.removeprefix("file://")), folder / LOG)


def check_log(folder: Path) -> None:
    """Check the log before the library reads it, since the library accepts any size and any file.

    Raises:
        CorruptFile: A file or a line is too large, or a checkpoint names a file twice.
        UntrustedPath: The name of a sidecar is a path or a URL.
    """
    for path in sorted(path for glob in ("*", "*/*") for path in (folder / LOG).glob(glob) if path.is_file()):
        _check_size(path)
        if ".checkpoint." in path.name or path.suffix == ".parquet":
            _check_checkpoint(path)


def _check_size(path: Path) -> None:
    table = ParquetTable(path, "off") if path.suffix == ".parquet" else None
    units = table.units(table.schema.names) if table else None
    size = max(path.stat().st_size, units.total + units.dictionary if units else 0)
    if size > MAX_BYTES:
        raise CorruptFile(f"{path} must have at most {MAX_BYTES} bytes of actions, got {size:.0f}; rewrite the table")
    if table is None and size > MAX_LINE:
        for _ in _lines(path):
            pass


def _check_checkpoint(path: Path) -> None:
    named = set[tuple[str, Any]]()
    for action in _actions(path, ["sidecar.path", "add.path"]):
        for kind, name in ((kind, _get(action, kind, "path")) for kind in ("sidecar", "add") if action.get(kind)):
            if kind == "sidecar" and not trusts_paths() and not (isinstance(name, str) and NAME.fullmatch(name)):
                raise outside(name, path)
            if (kind, name) in named:
                raise CorruptFile(f"{path} must name each file once, got {name!r:.200} twice; write it again")
            named.add((kind, name))


def check_vectors(folder: Path, rows: Mapping[Path, int]) -> None:
    """Check the deletion vectors before the library reads them, since it reads any file and any number of rows.

    Args:
        folder: The folder of the table.
        rows: Rows of each live file.

    Raises:
        UntrustedPath: A vector lies outside the folder.
        CorruptFile: A vector marks rows beyond the end of its file.
        UnknownFormat: The vectors of all files have too many rows.
    """
    log, marked = folder / LOG, dict[Path, int]()
    for source in sorted([*log.glob("*.json"), *log.glob("**/*.parquet")]):
        for action in _actions(source, VECTOR):
            if vector := _get(action, "add", "deletionVector"):
                kind, name = str(_get(vector, "storageType")), str(_get(vector, "pathOrInlineDv"))
                if not trusts_paths():
                    _check_place(folder, source, kind, name)
                path = place(folder, str(_get(action, "add", "path")))
                if path in rows:
                    offset = _get(vector, "offset")
                    end = _end(_head(folder, kind, name, 1 if offset is None else offset), path)
                    if end > rows[path] + CONTAINER:
                        raise CorruptFile(f"a deletion vector of {path} must mark rows below {rows[path]}, got {end}")
                    marked[path] = max(marked.get(path, 0), end)
    if sum(marked.values()) > MAX_MASK:
        raise UnknownFormat(f"{folder} must have deletion vectors of at most {MAX_MASK} rows, got more; purge them")


def _check_place(folder: Path, source: Path, kind: str, name: str) -> None:
    if kind == "u" and not NAME.fullmatch(f"{name[:-UUID_CHARACTERS]}x"):
        raise outside(name, source)
    if kind == "p":
        parts = urlparse(name)
        if parts.scheme != "file" or parts.netloc or parts.query or parts.fragment or re.search(r"[\\\s]", name):
            raise outside(name, source)
        within(folder, unquote(parts.path), source)


def _head(folder: Path, kind: str, name: str, offset: int) -> bytes:
    """Return the header of a deletion vector, without its size; empty if its file does not exist."""
    if kind == "i":
        return _ascii85(name[: MAX_HEAD // 4 * 5])
    if kind == "u":
        prefix, code = name[:-UUID_CHARACTERS], name[-UUID_CHARACTERS:]
        path = folder / prefix / f"deletion_vector_{UUID(bytes=_ascii85(code))}.bin"
    elif kind == "p":
        path = Path(unquote(urlparse(name).path))
    else:
        raise CorruptFile(f"{folder} must have deletion vectors of storage type i, p or u, got {kind!r}")
    if not path.exists():
        return b""
    file = File(path)
    return file.read(min(file.size, offset + 4), min(MAX_HEAD, max(0, file.size - offset - 4)))


def _ascii85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(ASCII85))


def _end(head: bytes, path: Path) -> int:
    """Return the row after the last container of a Roaring bitmap, which has 65,536 rows."""
    if not head:
        return 0
    magic, bitmaps = struct.unpack_from("<IQ", head)
    if magic != TREEMAP or bitmaps > 1:
        raise CorruptFile(f"a deletion vector of {path} must be a bitmap of rows below 2**32, got magic number {magic}")
    if bitmaps == 0:
        return 0
    high, cookie = struct.unpack_from("<II", head, 12)
    count, at = (cookie >> 16) + 1, 20
    if cookie & 65535 == RUNS:
        at += (count + 7) // 8
    else:
        [count], at = struct.unpack_from("<I", head, at), at + 4
    keys = struct.unpack_from(f"<{2 * min(count, CONTAINER)}H", head, at)[::2]
    return int(high << 32) + CONTAINER * (1 + int(max(keys, default=-1)))


def _get(found: Any, *keys: str) -> Any:
    """Return a value within nested objects, None if one has no such key."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _actions(path: Path, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the actions of a log file; a Parquet file is read only in these columns."""
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        present = [name for name in columns if name.partition(".")[0] in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH_ROWS, columns=present) if present else ():
            yield from batch.to_pylist()
    elif path.suffix == ".json":
        for line in _lines(path):
            check_text(line, str(path))
            action = json.loads(line, object_pairs_hook=_object)
            if not isinstance(action, dict):
                raise CorruptFile(f"{path} must have an object on each line, got {line!r:.80}")
            yield action


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError for repeated keys, since the library may use another value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a JSON object must not repeat keys")
    return found


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file that are not empty."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise CorruptFile(f"{path} must have lines of at most {MAX_LINE} bytes, got more; rewrite the table")
            if not line.isspace():
                yield line
