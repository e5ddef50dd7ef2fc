"""Opens tables: finds the files, finds out their format, joins them."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa

from corgipile.errors import BadArgument, MissingFile, UnknownFormat
from corgipile.tables import svmlight
from corgipile.tables.base import Table
from corgipile.tables.concat import ConcatTable
from corgipile.tables.files import File, PathLike
from corgipile.tables.formats import FORMATS
from corgipile.tables.indexes import INDEX_SUFFIX
from corgipile.tables.memory import MemoryTable

Source = PathLike | Table | Sequence[Any] | Any  # Any: pyarrow has no types
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
STREAM = b"\xff\xff\xff\xff"


def open(  # noqa: A001 - reads as corgipile.open
    source: Source,
    *,
    label: PathLike | Sequence[PathLike] | None = None,
    format: str | None = None,  # noqa: A002 - the word users look for
    zero_based: bool | Literal["auto"] = "auto",
) -> Table:
    """Open a table.

    Args:
        source: A path, a glob such as ``"part-*.arrow"``, a folder, a list of these, or a ``pyarrow.Table``.
            Many files are one table, in the order of the list, or sorted by name.
        label: For ``.npy`` features: the ``.npy`` file of labels, or one for each file of features.
        format: ``"arrow"``, ``"numpy"``, ``"parquet"`` or ``"svmlight"``; found out from the file by default.
        zero_based: For SVMlight text: whether indices begin at 0; ``"auto"``: at 1 unless an index 0 occurs.

    Raises:
        MissingFile: No file lies there.
        UnknownFormat: It is no kind of file that can be opened.

    Example:
        >>> import pyarrow as pa
        >>> len(open(pa.table({"label": [0, 1, 1]})))
        3
    """
    if format is not None and format not in FORMATS:
        raise BadArgument(f"format {format!r} is not known; it must be one of {', '.join(FORMATS)}")
    if zero_based not in (True, False, "auto"):
        raise BadArgument(f"zero_based must be True, False or 'auto', got {zero_based!r}")
    labels = [] if label is None else [label] if isinstance(label, str | os.PathLike) else list(label)
    parts = _parts(source, {str(Path(path).expanduser().absolute()) for path in labels})
    if labels and len(labels) != len(parts):
        raise BadArgument(f"{len(labels)} label files given for {len(parts)} tables; one for each is needed")
    options: list[dict[str, Any]] = [{"label": path} for path in labels] or [{} for _ in parts]
    for chosen in options:
        if zero_based != "auto":
            chosen["zero_based"] = zero_based
    tables = [_open_part(part, format, chosen) for part, chosen in zip(parts, options, strict=True)]
    tables = svmlight.same_base(tables)
    return tables[0] if len(tables) == 1 else ConcatTable(tables)


def _parts(source: Any, labels: set[str]) -> list[Any]:
    """List the files and tables of a source."""
    if isinstance(source, str | os.PathLike):
        return [path for path in _files(os.fspath(source)) if path not in labels]
    if isinstance(source, Sequence):
        parts = [part for inner in source for part in _parts(inner, labels)]
        if not parts:
            raise BadArgument("an empty list was given to open; at least one table is needed")
        return parts
    return [source]


def _files(source: str) -> list[str]:
    path = Path(source).expanduser().absolute()
    if path.is_dir():
        suffixes = tuple(suffix for kind in FORMATS.values() for suffix in kind.suffixes)
        found = [str(inner) for inner in path.iterdir() if inner.name.endswith(suffixes) and inner.is_file()]
        missing = f"folder {path} has no file ending in {', '.join(suffixes)}"
    elif not path.exists() and glob.has_magic(source):
        names = glob.glob(str(path), recursive=True)  # noqa: PTH207 - the pattern may be absolute
        found = [name for name in names if Path(name).is_file()]
        missing = f"no file matches {source!r}"
    else:
        return [str(path)]
    found = sorted(name for name in found if not name.endswith(INDEX_SUFFIX))
    if not found:
        raise MissingFile(missing)
    return found


def _open_part(part: Any, format_name: str | None, options: dict[str, Any]) -> Table:
    if isinstance(part, pa.RecordBatch):
        part = pa.Table.from_batches([part])
    if not isinstance(part, str):
        if options:
            raise BadArgument(f"{', '.join(options)} applies to files only, not to {type(part).__name__}")
        if isinstance(part, pa.Table):
            return MemoryTable(part)
        if callable(getattr(part, "read", None)) and callable(getattr(part, "cuts", None)):
            return cast("Table", part)
        raise BadArgument(f"cannot open {type(part).__name__}; a path, a pyarrow.Table or a list of these is needed")
    name = format_name or find_format(part)
    for option in options.keys() - FORMATS[name].options:
        raise BadArgument(f"{option} does not apply to {part}, whose format is {name}")
    return FORMATS[name].open(part, **options)


def find_format(path: str) -> str:
    """Find out the format of a file by its first bytes, or by its name and first line if it is text.

    Raises:
        UnknownFormat: It is of no known format.
    """
    head = File(path)
    first = head.read(0, min(16, head.size))
    for name, kind in FORMATS.items():
        if kind.magic and (first.startswith(kind.magic) or (name == "arrow" and first.startswith(STREAM))):
            return name
    for magic, name in COMPRESSED.items():
        if first.startswith(magic):
            raise UnknownFormat(f"{path} is compressed ({name}), so rows have no place; use `corgipile convert` first")
    for name, kind in FORMATS.items():
        if kind.magic and path.endswith(kind.suffixes):
            raise UnknownFormat(f"{path} begins with {first[:8]!r}; the {name} format with {kind.magic!r}")
    if not path.endswith(FORMATS["svmlight"].suffixes):
        svmlight.check_looks_like_text(head)
    return "svmlight"
