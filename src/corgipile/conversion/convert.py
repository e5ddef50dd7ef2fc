"""Conversion of a table to another format."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from corgipile.arrow_memory import frugal
from corgipile.conversion.casts import cast
from corgipile.conversion.columns import shape
from corgipile.conversion.sources import Options, stream
from corgipile.conversion.stream import Stream
from corgipile.conversion.targets import check_out, target_of, writer_of
from corgipile.conversion.writers.form import Settings
from corgipile.errors import BadArgument
from corgipile.sizes import Size, parse_bytes, yes_or_no
from corgipile.tables.formats.text.types import Types
from corgipile.tables.io.files import PathLike
from corgipile.tables.unit_check import DEFAULT_MEMORY

Progress = Callable[[int, int | None], None]
_FOR = {"header": "CSV text", "zero_based": "files of SVMlight text"}


def convert(
    source: Any,
    out: PathLike,
    *,
    to: str | None = None,
    record_batch: int | str | None = None,
    shard_size: Size | None = None,
    compression: str | None = None,
    label: str | int | None = None,
    columns: Sequence[str] | None = None,
    types: Types | None = None,
    inexact: bool = False,
    pack: bool = False,
    memory: Size = DEFAULT_MEMORY,
    header: bool | Literal["auto"] = "auto",
    zero_based: bool | Literal["auto"] = "auto",
    progress: Progress | None = None,
    overwrite: bool = False,
) -> int:
    """Write a table in another format, streaming; the files appear when all are complete.

    Reads all sources of `corgipile.open`, text and TFRecord also in gzip, bzip2 or xz, and IDX images. The format is
    detected from the bytes. Several files are written as one table.

    Args:
        source: Table, ``pyarrow.Table``, path, glob, or list of paths.
        out: The file to write; replaces an earlier output of ours, but never a file of the source. With ``%06d`` in its
            name it is many files. MDS shards lie in a folder, those of WebDataset may.
        to: ``"arrow"``, ``"parquet"``, ``"mds"``, ``"webdataset"`` or ``"tfrecord"``; by default from the ending of
            ``out``, else Arrow. A column that the format cannot hold is an error.
        record_batch: Size of an Arrow record batch in bytes ("1MB") or rows; None: 4 MB, or 1 MB if it must be read
            whole. For Parquet, size of a row group; None: 2 MB decoded, which any budget holds.
        shard_size: Bytes per file for formats of many files, exceeded by a larger row only; None: 64 MB for MDS, 512 MB
            for WebDataset and Parquet, 128 MB for TFRecord.
        compression: Arrow: None, "lz4" or "zstd"; only an uncompressed file can be read in place. Parquet: None for
            "zstd", or "snappy", "lz4", "gzip", "brotli", "none". MDS: None, "zstd" or "gz".
        label: Column to be named ``label``: a name, or a position (-1: the last). For IDX images and ``.npy`` features:
            the path of the labels.
        columns: Columns of the source to keep besides the label; all by default.
        types: Types by column name of the source, as Arrow types or their names: ``{"x": "float32"}``; for lists, those
            of the items. Text is parsed as these types. A value that would change is an error.
        inexact: Let ``types`` round floats; values that are too large stay errors.
        pack: Pack all numeric scalar columns but the label into one float32 list column ``features``.
        memory: Bytes that a stored unit may take while it is decoded; a larger unit is an error.
        header: Whether the first line of CSV text names columns; "auto": unless all its fields are numbers.
        zero_based: For SVMlight text: whether indices begin at 0; "auto": if an index 0 occurs. It and ``header`` are
            errors if no file uses them.
        progress: Called with rows written and rows in all (None if unknown).
        overwrite: Replace a file of any kind, but never one of the source.

    Returns:
        The number of rows written.

    Raises:
        WouldOverwrite: ``out`` is one of the source's files, or of another kind.
        BadSchema: The format cannot hold a column.
        BudgetTooSmall: A stored unit takes more memory than ``memory``.
        ParseError: A line of text does not parse.
        BadValue: A value to pack is missing, does not fit its type, or does not fit the format.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "out.arrow"
        >>> convert(pa.table({"x": [1.0, 2.0], "y": [3, 4], "class": [0, 1]}), path, label="class", pack=True)
        2
        >>> pa.ipc.open_file(path).read_all().to_pylist()[1]
        {'features': [2.0, 4.0], 'label': 1}
    """
    if isinstance(columns, str):
        raise BadArgument(f"columns must be a list of names, got {columns!r}")
    pack = yes_or_no(pack, "pack")
    if inexact and not types:
        raise BadArgument("inexact has no effect without types")
    kind = target_of(out, to)
    inputs: tuple[Any, ...] = (source, label if isinstance(label, str) and Path(label).is_file() else [])
    settings = Settings.of(shard_size, record_batch, compression)
    check_out(out, kind, settings, inputs=inputs, overwrite=overwrite)
    how = choice(header, "header"), pack, choice(zero_based, "zero_based"), types
    options = Options(label, *how, parse_bytes(memory))
    typed = cast(stream(source, options), types, inexact=yes_or_no(inexact, "inexact"))
    _check_used(typed, header=header, zero_based=zero_based)
    inputs += typed.paths
    shaped = shape(typed, label=label, columns=columns, pack=pack)
    with frugal(), writer_of(out, kind, shaped.schema, settings, inputs=inputs, overwrite=overwrite) as writer:
        done = 0
        for batch in shaped.batches:
            writer.write(batch)
            done += batch.num_rows
            if progress is not None:
                progress(done, shaped.rows)
    return writer.rows


def choice(value: bool | Literal["auto"], what: str) -> bool | Literal["auto"]:
    """Return a boolean option, or "auto".

    Example:
        >>> choice("auto", "header"), choice(value=True, what="header")
        ('auto', True)
    """
    return "auto" if isinstance(value, str) and value == "auto" else yes_or_no(value, what)


def _check_used(typed: Stream, **options: bool | Literal["auto"]) -> None:
    """Raise BadArgument for an option that no source used."""
    for name, value in options.items():
        if value != "auto" and name not in typed.heeded:
            raise BadArgument(f"{name} is for {_FOR[name]}, got {value} for another source: leave it out")
