"""Opens tables: finds the files, finds out their format, joins them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from corgipile.errors import BadArgument, TableError, UnknownFormat
from corgipile.sizes import OnBad, Size
from corgipile.stores.opening import located
from corgipile.stores.urls import RemotePath, is_url, redacted
from corgipile.suggestions import did_you_mean
from corgipile.tables.concat import ConcatTable
from corgipile.tables.folders import files_of, format_named
from corgipile.tables.formats import formats
from corgipile.tables.in_memory import is_pair, of_memory
from corgipile.tables.in_memory.arrays import is_rows
from corgipile.tables.io.files import File, PathLike
from corgipile.tables.io.remote import file_of, open_together
from corgipile.tables.io.spill import Spill, spill_folder
from corgipile.tables.io.unpacking import PACKED_TEXT
from corgipile.tables.partitions import Found, with_keys
from corgipile.tables.reach import Trust, trusting
from corgipile.tables.remote_folders import remote_files_of
from corgipile.tables.remote_images import ImageObjects
from corgipile.tables.svmlight import table as svmlight
from corgipile.tables.table import Table
from corgipile.tables.text import json
from corgipile.tables.text.guess import csv_columns
from corgipile.tables.text.packed import unpacked
from corgipile.tables.unify_schemas import alike, with_rows
from corgipile.tables.webdataset.table import refuse_packed_tar

if TYPE_CHECKING:
    from corgipile.tables.tfrecord.example import Features
    from corgipile.tables.tfrecord.table import Decode

Source = PathLike | Table | Sequence[Any] | Any  # Any: pyarrow has no types
DEFAULTS = {"zero_based": "auto", "decode": "auto", "header": "auto", "on_bad": "raise"}  # which say nothing
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def open(  # noqa: A001 - reads as corgipile.open
    source: Source,
    *,
    label: PathLike | Sequence[PathLike] | None = None,
    format: str | None = None,  # noqa: A002 - the word users look for
    zero_based: bool | Literal["auto"] = "auto",
    index: PathLike | Sequence[PathLike] | None = None,
    decode: "Decode" = "auto",
    features: "Features | None" = None,
    on_bad: OnBad = "raise",
    paths: bool = False,
    spill: Spill = None,
    filesystem: Any = None,
    cache: PathLike | None = None,
    cache_size: Size | None = None,
    trust: Trust = None,
    **more: Any,
) -> Table:
    """Open a table.

    Args:
        source: A path or URL, a glob such as ``"part-*.arrow"`` or ``"shards-{000..009}.tar"``, a folder, or a list of
            these: many files are one table, in the order of the list, or sorted by name. Folders named ``key=value``
            above a file are columns of it, as Hive and Spark write partitions. Columns of many files are found by
            name; floats and integers have the widest type of all, and nulls without a type that of the others. Or what
            is in memory: a table of pyarrow, a data frame of pandas or Polars, an array (its rows become the column
            ``features``) or sparse matrix, ``(X, y)`` with labels, a dictionary of arrays, a list of rows that are
            dictionaries, a structured array, a ``datasets.Dataset``, a ``pyarrow.dataset.Dataset``, an ``AnnData``, a
            dataset of h5py, an array of Zarr, a relation of DuckDB, anything with ``__arrow_c_stream__``, an iterator
            of record batches.
        label: For ``.npy`` features: the ``.npy`` file of labels, or one for each file of features.
        format: ``"anndata"``, ``"arrow"``, ``"arrows"`` (stream), ``"avro"``, ``"csv"``, ``"delta"``, ``"duckdb"``,
            ``"hdf5"``, ``"huggingface"`` (saved dataset), ``"iceberg"``, ``"images"`` (folder), ``"jsonl"``,
            ``"lance"``, ``"mds"``, ``"npz"``, ``"numpy"``, ``"orc"``, ``"parquet"``, ``"sqlite"``, ``"svmlight"``,
            ``"tfrecord"``, ``"webdataset"`` or ``"zarr"``; by default what the bytes tell.
        zero_based: For SVMlight text: whether indices begin at 0; ``"auto"``: at 1 unless an index 0 occurs.
        index: For TFRecord: the text index, or one for each file; by default looked for beside the file. One that is
            given may leave out records, except the last.
        decode: For TFRecord: whether records are ``tensorflow.Example`` messages; if not, they are one column
            ``record``. ``"auto"`` looks at some of them. For WebDataset: False leaves text and integers bytes.
        features: For TFRecord: names of features to decode, or a mapping from names to ``"byte"``, ``"int"``,
            ``"float"`` or Arrow types.
        on_bad: For TFRecord: ``"raise"``, or ``"skip"`` to leave out bad records; ``skipped`` of the table counts them.
        paths: For image folders: add a column ``path``; for WebDataset: ``__key__``, the name of the sample; for
            AnnData: ``obs_names``, the names of the cells.
        spill: Folder for spill files, or ``"off"``. Rows of Parquet and of compressed Arrow files lie in large units
            that must be decoded whole; where a memory budget does not hold enough of them, they are unpacked to a file
            without a name that goes with its last reader. None: what the variable ``CORGIPILE_SPILL`` says, else the
            folder for large temporary files.
        filesystem: A store of obstore, or a file system of fsspec, on which the paths are. Without it a URL says where
            objects lie: ``s3://``, ``gs://``, ``az://``, ``https://``, ``hf://``, and those that fsspec knows; who may
            read them is told by the environment and the files that these services use.
        cache: Folder on a local disk that keeps what was read of objects, for all processes.
        cache_size: Bytes of the cache, such as ``"200GB"``; None: half of what is free there.
        trust: ``"paths"`` lets the data refer to files outside their own folder, an error by default.
        **more: Options of other formats: ``header``, ``delimiter`` and ``types`` of CSV, ``types`` of JSON lines,
            ``group`` of HDF5 and Zarr, ``columns`` of these, AnnData and ``.npz`` (a list of paths of arrays, or a
            dictionary from names to paths), ``table`` of SQLite and DuckDB, ``version`` of Delta Lake, Iceberg and
            Lance, and those of formats that other packages added.

    Raises:
        BadArgument: An argument that does not apply to the format.
        MissingFile: No file lies there.
        UnknownFormat: It is no kind of file that can be opened, a folder of several kinds, or part of a table whose
            log says which files count.
        UntrustedPath: The data refer to a file outside their folder.

    Example:
        >>> import pyarrow as pa
        >>> len(open(pa.table({"label": [0, 1, 1]})))
        3
    """
    if format is not None and format not in formats():
        raise BadArgument(f"format {format!r} is not known; it must be one of {', '.join(formats())}")
    if zero_based not in (True, False, "auto"):
        raise BadArgument(f"zero_based must be True, False or 'auto', got {zero_based!r}")
    beside = {"label": _paths(label), "index": _paths(index)}
    apart = {_absolute(path) for files in beside.values() for path in files}
    parts = _parts(located(source, filesystem, cache, cache_size), format, apart)
    common = {
        "zero_based": zero_based,
        "decode": decode,
        "features": features,
        "on_bad": on_bad,
        "paths": paths or None,
        **more,
    }
    spill_folder(spill)  # what is wrong with it is said for any format
    given = {name: value for name, value in common.items() if value is not None and value != DEFAULTS.get(name)}
    options: list[dict[str, Any]] = [dict(given) for _ in parts]
    for name, files in beside.items():
        if files and len(files) != len(parts):
            raise BadArgument(f"{len(files)} {name} files given for {len(parts)} tables; one for each is needed")
        for chosen, path in zip(options, files, strict=False):
            chosen[name] = path
    for chosen, part in zip(options, parts, strict=True):
        if spill is not None and isinstance(part, Found):
            chosen["spill"] = spill
    parts = _unpacked(_opened(parts), spill)
    with trusting(trust):
        tables = [_open_part(part, format, chosen, spill) for part, chosen in zip(parts, options, strict=True)]
    for kind in formats().values():
        tables = kind.agree(tables)
    tables = with_keys(tables, [part.keys if isinstance(part, Found) else {} for part in parts])
    tables = alike(with_rows(tables)) if len(tables) > 1 else tables
    return tables[0] if len(tables) == 1 else ConcatTable(tables)


def concat(tables: Sequence[Any]) -> Table:
    """Join tables end to end; columns are found by name and have the order of the first table's.

    Types are those that `corgipile.open` gives the parts of one table.

    Args:
        tables: Tables, or what `corgipile.open` takes.

    Raises:
        BadSchema: A column is missing, or of another type: the message names it and the tables.

    Example:
        >>> parts = [pa.table({"x": [1], "label": [0]}), pa.table({"label": [1], "x": [2]})]
        >>> concat(parts).read(0, 2).to_pydict()
        {'x': [1, 2], 'label': [0, 1]}
    """
    if isinstance(tables, str) or not isinstance(tables, Iterable):
        raise BadArgument(f"a list of tables is needed, got {tables!r}")
    joined = alike(with_rows([open(table) for table in tables]))
    return joined[0] if len(joined) == 1 else ConcatTable(joined)


class Index(NamedTuple):
    """An index that was written: its path, the rows it finds, and its own bytes."""

    path: str
    rows: int
    nbytes: int


def write_indexes(source: Source, **options: Any) -> Iterator[Index]:
    """Write the index of each file of a source, one after another.

    Args:
        source: The files.
        **options: As for `open`: other delimiters, for one, find other rows.

    Raises:
        BadArgument: A file is of a format whose rows are found without an index, or which has no such option.
    """
    asked = options.pop("format", None)
    if "index" in options:
        raise BadArgument(f"index={options['index']!r} names an index to read; here one is written, beside each file")
    for found in _unpacked(_parts(located(source), asked, set()), None):
        path = found.path
        name = asked or find_format(path)
        write = formats()[name].index_file
        if write is None:
            raise BadArgument(f"{_place(found)} needs no index: rows of the {name} format are found without one")
        opening = _options_for(path, name, options)
        index = write(path, **opening)
        yield Index(index, len(formats()[name].open(path, **opening)), Path(index).stat().st_size)


def _paths(given: PathLike | Sequence[PathLike] | None) -> list[PathLike]:
    return [] if given is None else [given] if isinstance(given, str | os.PathLike) else list(given)


def _parts(source: Any, format_name: str | None, beside: set[str]) -> list[Any]:
    """List the files and tables of a source, without those that lie beside a table."""
    urls = source if isinstance(source, list) else [source]
    if urls and all(isinstance(one, RemotePath) for one in urls):
        return [found for found in remote_files_of(urls, format_name) if _place(found) not in beside]
    if isinstance(source, str | os.PathLike):
        return [found for found in files_of(source, format_name) if found.path not in beside]
    if isinstance(source, Sequence) and not is_pair(source) and not is_rows(source):
        parts = [part for inner in source for part in _parts(inner, format_name, beside)]
        if not parts:
            raise BadArgument("an empty list was given to open; at least one table is needed")
        return parts
    return [source]


def _place(found: Found) -> str:
    return found.path.path if isinstance(found.path, File) else found.path


def _absolute(path: PathLike) -> str:
    return redacted(str(path)) if is_url(path) else str(Path(path).expanduser().absolute())


def _opened(parts: list[Any]) -> list[Any]:
    """Open objects of stores, some at the same time."""
    remote = [at for at, part in enumerate(parts) if isinstance(part, Found) and isinstance(part.path, RemotePath)]
    for at, file in zip(remote, open_together([parts[at].path for at in remote]), strict=True):
        parts[at] = parts[at]._replace(path=file)
    return parts


def _open_part(part: Any, format_name: str | None, options: dict[str, Any], spill: Spill) -> Table:
    if isinstance(part, Found):
        return _open_file(part.path, format_name, options)
    if options:
        raise BadArgument(f"{', '.join(options)} applies to files only, not to {type(part).__name__}")
    if callable(getattr(part, "read", None)) and callable(getattr(part, "cuts", None)):
        return cast("Table", part)
    found = of_memory(part, lambda path: open(path, spill=spill), spill)
    if found is None:
        raise BadArgument(
            f"cannot open {type(part).__name__}; a path, a table of pyarrow, a data frame, an array, a dictionary of "
            "arrays, a dataset, an iterator of record batches, or a list of these is needed"
        )
    return found


def _open_file(path: str | File, format_name: str | None, options: dict[str, Any]) -> Table:
    name = format_name or find_format(path)
    options = _options_for(path, name, options)
    return formats()[name].open(path, **options, **({"said": True} if format_name == "csv" else {}))


def _unpacked(parts: list[Any], spill: Spill) -> list[Any]:
    """Unpack the files that are compressed and named as CSV or JSON lines, all into one spill file."""
    packed: dict[int, tuple[File, str]] = {}
    for at, part in enumerate(parts):
        named = isinstance(part, Found) and not isinstance(part.path, ImageObjects)
        if named and str(_place(part)).lower().endswith(PACKED_TEXT):
            file = file_of(part.path)
            first = file.read(0, min(6, file.size))
            codec = next((codec for magic, codec in COMPRESSED.items() if first.startswith(magic)), None)
            if codec is not None:
                packed[at] = file, codec
    if packed:
        for at, text in zip(packed, unpacked(tuple(packed.values()), spill), strict=True):
            parts[at] = parts[at]._replace(path=text)
    return parts


def _options_for(path: str | File, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for a format.

    Raises:
        BadArgument: One is none of this format.
    """
    known = formats()[name].options
    for option in sorted(options.keys() - known - {"spill"}):
        takes = f"options of this format are {', '.join(sorted(known))}" if known else "which has no options"
        raise BadArgument(
            f"{option} does not apply to {_place(Found(path, {}))}, whose format is {name}; {takes}"
            f"{did_you_mean(option, known)}"
        )
    # Files of other formats are never unpacked, so whatever is said of spill files is true of them.
    return {key: value for key, value in options.items() if key in known}


def find_format(path: str | File) -> str:
    """Find out the format of a folder, or of a file by its first bytes, or by its name and first line if it is text.

    Raises:
        UnknownFormat: It is of no known format.
    """
    if isinstance(path, ImageObjects):
        return "images"
    if isinstance(path, str) and Path(path).is_dir():
        for name, kind in formats().items():
            if kind.folder(Path(path), []):
                return name
    head = file_of(path)
    path = head.path
    first = head.read(0, min(16, head.size))
    for name, kind in formats().items():
        if (kind.magic and first.startswith(kind.magic)) or kind.knows(first):
            return name
    for magic, name in COMPRESSED.items():
        if first.startswith(magic):
            refuse_packed_tar(path, name)
            raise UnknownFormat(f"{path} is compressed ({name}), so rows have no place; use `corgipile convert` first")
    return _named_format(head, first) or _text_format(head)


def _named_format(file: File, first: bytes) -> str | None:
    """Return the format that a file's name tells, None if it tells none; what has no magic may be empty or damaged."""
    path = file.path
    name = format_named(getattr(file, "plain_name", path))
    if name is not None and formats()[name].magic:
        begins = f"begins with {first[:8]!r}" if first else "is empty"
        raise UnknownFormat(f"{path} {begins}; the {name} format begins with {formats()[name].magic!r}")
    return name


def _text_format(file: File) -> str:
    """Return the format of text whose name does not tell it."""
    head = file.read(0, min(svmlight.HEAD_BYTES, file.size))
    if json.is_array(head):
        raise UnknownFormat(f"{file.path}: {json.ARRAY}")
    try:
        svmlight.check_looks_like_text(file)
    except UnknownFormat as error:
        if svmlight.is_binary(head):
            raise
        whole = len(head) == file.size
        if json.is_lines(head, whole=whole):
            return "jsonl"
        try:
            csv_columns(file.path, head, "auto", whole=whole)
        except TableError as reason:
            raise UnknownFormat(f"{error}; as CSV: {reason}") from None
        return "csv"
    return "svmlight"
