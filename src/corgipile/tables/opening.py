"""Opening of tables: resolves files, detects formats, joins parts."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from corgipile.errors import BadArgument, TableError, UnknownFormat
from corgipile.sizes import OnBad, Size
from corgipile.stores.opening import located
from corgipile.suggestions import did_you_mean
from corgipile.tables.concat import ConcatTable
from corgipile.tables.folders import files_of, format_named
from corgipile.tables.formats.images.remote import ImageObjects
from corgipile.tables.formats.svmlight import table as svmlight
from corgipile.tables.formats.text import json
from corgipile.tables.formats.text.guess import csv_columns
from corgipile.tables.formats.text.packed import unpacked
from corgipile.tables.formats.webdataset.table import refuse_packed_tar
from corgipile.tables.in_memory import is_pair, of_memory
from corgipile.tables.in_memory.arrays import is_rows
from corgipile.tables.io.files import File, PathLike
from corgipile.tables.io.index_cache import opening_together
from corgipile.tables.io.remote import RemoteFile, file_of, open_together
from corgipile.tables.io.spill import Spill, spill_folder
from corgipile.tables.io.unpacking import PACKED_TEXT
from corgipile.tables.partitions import SourceFile, with_keys
from corgipile.tables.reach import Trust, trusting
from corgipile.tables.registry import formats
from corgipile.tables.remote_folders import remote_files_of
from corgipile.tables.table import Table, adopt
from corgipile.tables.unify_schemas import drop_empty, unify_schemas
from corgipile.urls import RemotePath, is_url, redacted

if TYPE_CHECKING:
    from corgipile.tables.formats.tfrecord.example import Features
    from corgipile.tables.formats.tfrecord.table import Decode

Source = PathLike | Table | Sequence[Any] | Any  # Any: pyarrow has no types
DEFAULTS = {"zero_based": "auto", "decode": "auto", "header": "auto", "on_bad": "raise"}  # values that mean "not given"
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
            these. Many files form one table, in the order of the list, or sorted by name. Folders named ``key=value``
            above a file become columns, as in Hive and Spark partitions. Columns of many files match by name; numbers
            get the widest type, and untyped nulls the type of the other files. Or an object in memory: a pyarrow
            table, a pandas or Polars data frame, an array or tensor (its rows become the column ``features``), a
            sparse matrix, ``(X, y)`` with labels, a dictionary of arrays, a list of dictionaries, a structured array, a
            ``datasets.Dataset``, a ``pyarrow.dataset.Dataset``, an ``AnnData``, an h5py dataset, a Zarr array, a
            DuckDB relation, an object with ``__arrow_c_stream__``, or an iterator of record batches.
        label: For ``.npy`` features: the ``.npy`` file of labels, or one for each file of features.
        format: ``"anndata"``, ``"arrow"``, ``"arrows"`` (stream), ``"avro"``, ``"csv"``, ``"delta"``, ``"duckdb"``,
            ``"hdf5"``, ``"huggingface"`` (saved dataset), ``"iceberg"``, ``"images"`` (folder), ``"jsonl"``,
            ``"lance"``, ``"mds"``, ``"npz"``, ``"numpy"``, ``"orc"``, ``"parquet"``, ``"sqlite"``, ``"svmlight"``,
            ``"tfrecord"``, ``"webdataset"`` or ``"zarr"``; detected from the bytes by default.
        zero_based: For SVMlight text: whether indices begin at 0; ``"auto"`` means 1 unless an index 0 occurs.
        index: For TFRecord: the text index, or one for each file; by default a file next to the data. A given index
            may leave out records, except the last.
        decode: For TFRecord: whether records are ``tensorflow.Example`` messages; otherwise they are one column
            ``record``. ``"auto"`` samples records. For WebDataset: False keeps text and integers as bytes.
        features: For TFRecord: names of features to decode, or a mapping from names to ``"byte"``, ``"int"``,
            ``"float"`` or Arrow types.
        on_bad: For TFRecord: ``"raise"``, or ``"skip"`` to skip bad records, which ``skipped`` of the table counts.
        paths: For image folders: add a column ``path``; for WebDataset: ``__key__``, the name of the sample; for
            AnnData: ``obs_names``, the names of the cells.
        spill: Folder for spill files, or ``"off"``. Parquet and compressed Arrow files have large units that are
            decoded whole. If a memory budget holds too few of them, they are unpacked to an unnamed file that is
            deleted with its last reader. None: the variable ``CORGIPILE_SPILL``, else the folder for large temporary
            files.
        filesystem: An obstore store or fsspec file system that holds the paths. Without it, URLs name the store:
            ``s3://``, ``gs://``, ``az://``, ``https://``, ``hf://``, and those of fsspec; credentials come from the
            usual environment variables and files of these services.
        cache: Local folder that caches objects for all processes.
        cache_size: Bytes of the cache, such as ``"200GB"``; None: half of the free space there.
        trust: ``"paths"`` allows data to refer to files outside their own folder, an error by default.
        **more: Options of other formats: ``header``, ``delimiter`` and ``types`` of CSV, ``types`` of JSON lines,
            ``group`` of HDF5 and Zarr, ``columns`` of these, AnnData and ``.npz`` (a list of paths of arrays, or a
            dictionary from names to paths), ``table`` of SQLite and DuckDB, ``version`` of Delta Lake, Iceberg and
            Lance, and those of formats from other packages.

    Raises:
        BadArgument: An argument does not apply to the format.
        MissingFile: The file does not exist.
        UnknownFormat: The format is unknown, a folder has several formats, or the file belongs to a table with a log.
        UntrustedPath: The data refer to a file outside their folder.

    Example:
        >>> import pyarrow as pa
        >>> len(open(pa.table({"label": [0, 1, 1]})))
        3
    """
    if format is not None and format not in formats():
        raise BadArgument(f"format must be one of {', '.join(formats())}, got {format!r}")
    if zero_based not in (True, False, "auto"):
        raise BadArgument(f"zero_based must be True, False or 'auto', got {zero_based!r}")
    common = {
        "zero_based": zero_based,
        "decode": decode,
        "features": features,
        "on_bad": on_bad,
        "paths": paths or None,
        **more,
    }
    set_options = {name: value for name, value in common.items() if value is not None and value != DEFAULTS.get(name)}
    companions = {"label": _paths(label), "index": _paths(index)}
    if isinstance(source, Table) and not (set_options or label or index):
        return source
    excluded = {_absolute(path) for files in companions.values() for path in files}
    parts = _parts(located(source, filesystem, cache, cache_size), format, excluded)
    spill_folder(spill)  # raises for a bad folder, whatever the format
    options: list[dict[str, Any]] = [dict(set_options) for _ in parts]
    for name, files in companions.items():
        if files and len(files) != len(parts):
            raise BadArgument(f"{name} must have one file for each of {len(parts)} tables, got {len(files)}")
        for part_options, path in zip(options, files, strict=False):
            part_options[name] = path
    for part_options, part in zip(options, parts, strict=True):
        if spill is not None and isinstance(part, SourceFile):
            part_options["spill"] = spill
    parts = _unpacked(_opened(parts), spill)
    with trusting(trust), opening_together(len(parts)):
        tables = [_open_part(part, format, chosen, spill) for part, chosen in zip(parts, options, strict=True)]
    for kind in formats().values():
        tables = kind.agree(tables)
    return _joined(with_keys(tables, [part.keys if isinstance(part, SourceFile) else {} for part in parts]))


def concat(tables: Sequence[Any]) -> Table:
    """Concatenate tables; columns match by name, in the order of the first table.

    Types are unified as by `corgipile.open` for the parts of one table.

    Args:
        tables: Tables, or sources for `corgipile.open`.

    Raises:
        BadSchema: A column is missing or has another type; the message names it and the tables.

    Example:
        >>> import pyarrow as pa
        >>> parts = [pa.table({"x": [1], "label": [0]}), pa.table({"label": [1], "x": [2]})]
        >>> concat(parts).read(0, 2).to_pydict()
        {'x': [1, 2], 'label': [0, 1]}
    """
    if isinstance(tables, str) or not isinstance(tables, Iterable):
        raise BadArgument(f"tables must be a list, got {tables!r}")
    return _joined([open(table) for table in tables])


def _joined(tables: list[Table]) -> Table:
    tables = unify_schemas(drop_empty(tables)) if len(tables) > 1 else tables
    return tables[0] if len(tables) == 1 else ConcatTable(tables)


class Index(NamedTuple):
    """A written index: its path, number of rows, and size in bytes."""

    path: str
    rows: int
    nbytes: int


def write_indexes(source: Source, **options: Any) -> Iterator[Index]:
    """Write the index of each file of a source.

    Args:
        source: The files.
        **options: Options of `open`, since a delimiter, for example, changes the rows.

    Raises:
        BadArgument: The format of a file needs no index, or has no such option.
    """
    format_name = options.pop("format", None)
    if "index" in options:
        raise BadArgument(f"index={options['index']!r} must not be given, since an index is written next to each file")
    for file in _unpacked(_parts(located(source), format_name, set()), None):
        path = file.path
        name = format_name or find_format(path)
        write = formats()[name].index_file
        if write is None:
            raise BadArgument(f"{_place(file)} needs no index: the {name} format locates rows without one")
        opening = _options_for(path, name, options)
        index = write(path, **opening)
        yield Index(index, len(formats()[name].open(path, **opening)), Path(index).stat().st_size)


def _paths(value: PathLike | Sequence[PathLike] | None) -> list[PathLike]:
    return [] if value is None else [value] if isinstance(value, str | os.PathLike) else list(value)


def _parts(source: Any, format_name: str | None, excluded: set[str]) -> list[Any]:
    """Return the files and tables of a source, without companion files such as labels and indexes."""
    urls = source if isinstance(source, list) else [source]
    if urls and all(isinstance(url, RemotePath) for url in urls):
        return [file for file in remote_files_of(urls, format_name) if _place(file) not in excluded]
    if isinstance(source, str | os.PathLike):
        return [file for file in files_of(source, format_name) if file.path not in excluded]
    if isinstance(source, Sequence) and not is_pair(source) and not is_rows(source):
        parts = [part for inner in source for part in _parts(inner, format_name, excluded)]
        if not parts:
            raise BadArgument("source must be a list of at least one table, got an empty list")
        return parts
    return [source]


def _place(file: SourceFile) -> str:
    return file.path.path if isinstance(file.path, File) else file.path


def _absolute(path: PathLike) -> str:
    return redacted(str(path)) if is_url(path) else str(Path(path).expanduser().absolute())


def _opened(parts: list[Any]) -> list[Any]:
    """Open remote objects concurrently."""
    remote = [at for at, part in enumerate(parts) if isinstance(part, SourceFile) and isinstance(part.path, RemotePath)]
    for at, file in zip(remote, open_together([parts[at].path for at in remote]), strict=True):
        parts[at] = parts[at]._replace(path=file)
    return parts


def _open_part(part: Any, format_name: str | None, options: dict[str, Any], spill: Spill) -> Table:
    table = _table_of(part, format_name, options, spill)
    if spill is not None and table is not part:
        vars(table)["spill"] = spill_folder(spill)  # computed rows, such as hashed text, are spilled from any format
    return table


def _table_of(part: Any, format_name: str | None, options: dict[str, Any], spill: Spill) -> Table:
    if isinstance(part, SourceFile):
        return _open_file(part.path, format_name, options)
    if options:
        raise BadArgument(f"{', '.join(options)} applies only to files, not to {type(part).__name__}")
    if callable(getattr(part, "read", None)) and callable(getattr(part, "cuts", None)):
        return adopt(part)
    table = of_memory(part, lambda path: open(path, spill=spill), spill)
    if table is None:
        raise BadArgument(
            "source must be a path, a pyarrow table, a data frame, an array, a dictionary of arrays, a dataset, an "
            f"iterator of record batches, or a list of these, got {type(part).__name__}"
            + "; for a dataset of rows: DataLoader(rows, batch_sampler=BatchSampler(rows))"
            * hasattr(part, "__getitem__")
        )
    return table


def _open_file(path: str | File, format_name: str | None, options: dict[str, Any]) -> Table:
    name = format_name or find_format(path)
    options = _options_for(path, name, options)
    if formats()[name].local and isinstance(path, File):
        if isinstance(path, RemoteFile):
            raise BadArgument(f"{path.path} must be a local file, since it has the {name} format; copy it first")
        path = path.path
    return formats()[name].open(path, **options, **({"sure": True} if format_name == "csv" else {}))


def _unpacked(parts: list[Any], spill: Spill) -> list[Any]:
    """Unpack compressed CSV and JSON lines files into one spill file."""
    packed: dict[int, tuple[File, str]] = {}
    for at, part in enumerate(parts):
        named = isinstance(part, SourceFile) and not isinstance(part.path, ImageObjects)
        if named and str(_place(part)).lower().endswith(PACKED_TEXT):
            file = file_of(part.path)
            head = file.read(0, min(6, file.size))
            codec = next((codec for magic, codec in COMPRESSED.items() if head.startswith(magic)), None)
            if codec is not None:
                packed[at] = file, codec
    if packed:
        for at, text in zip(packed, unpacked(tuple(packed.values()), spill), strict=True):
            parts[at] = parts[at]._replace(path=text)
    return parts


def _options_for(path: str | File, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for a format.

    Raises:
        BadArgument: An option does not belong to the format.
    """
    known = formats()[name].options
    for option in sorted(options.keys() - known - {"spill"}):
        takes = f"its options are {', '.join(sorted(known))}" if known else "which has no options"
        raise BadArgument(
            f"{option} does not apply to {_place(SourceFile(path, {}))}, whose format is {name}; {takes}"
            f"{did_you_mean(option, known)}"
        )
    # Other formats are never unpacked, so they ignore the spill option.
    return {key: value for key, value in options.items() if key in known}


def find_format(path: str | File) -> str:
    """Return the format of a folder, or of a file by its first bytes; of text by its name and first line.

    Raises:
        UnknownFormat: The format is unknown.
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
    """Return the format of a file by its suffix; raise UnknownFormat if its magic bytes are missing."""
    path = file.path
    name = format_named(getattr(file, "plain_name", path))
    if name is not None and formats()[name].magic:
        begins = f"begins with {first[:8]!r}" if first else "is empty"
        raise UnknownFormat(f"{path} {begins}; the {name} format must begin with {formats()[name].magic!r}")
    return name


def _text_format(file: File) -> str:
    """Return the format of text by its content."""
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
