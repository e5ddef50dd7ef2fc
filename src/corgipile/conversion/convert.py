"""The conversion itself: open, shape, write."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from corgipile.arrow_memory import frugal
from corgipile.conversion.columns import shape
from corgipile.conversion.sources import Options, stream
from corgipile.conversion.stream import Stream
from corgipile.errors import BadArgument
from corgipile.outputs import check_target
from corgipile.sizes import yes_or_no
from corgipile.tables.arrow.writer import TABLE, Writer
from corgipile.tables.io.files import PathLike

Progress = Callable[[int, int | None], None]
_FOR = {"header": "CSV text", "zero_based": "files of SVMlight text"}


def convert(
    source: Any,
    out: PathLike,
    *,
    record_batch: int | str | None = None,
    compression: str | None = None,
    label: str | int | None = None,
    columns: Sequence[str] | None = None,
    pack: bool = False,
    header: bool | Literal["auto"] = "auto",
    zero_based: bool | Literal["auto"] = "auto",
    progress: Progress | None = None,
    overwrite: bool = False,
) -> int:
    """Write a table as Arrow IPC file, streaming; the file appears when it is complete.

    Reads Arrow files and streams, saved Hugging Face datasets, Parquet, NumPy, TFRecord, SVMlight and CSV or TSV text
    (these three plain, gzip, bzip2 or xz), IDX images, image folders, open tables and ``pyarrow.Table``; the kind is
    found from the bytes. Several files are written as one.

    Args:
        source: Table, ``pyarrow.Table``, path, glob, or list of paths.
        out: Path of the file to write; a table of ours that is there is replaced, but never a file of the source.
        record_batch: Size of a record batch: bytes ("1MB") or rows; None: 4 MB, or 1 MB where it must be read whole.
        compression: None, "lz4" or "zstd". Only an uncompressed file can be read in place.
        label: Column to be called ``label`` in the file: name, or position (-1: the last). For IDX images and
            ``.npy`` features: the path of the labels.
        columns: Columns of the source to keep, the label aside; all by default.
        pack: Put all numeric scalar columns but the label into one float32 list column ``features``.
        header: Whether the first line of CSV text names columns; "auto": unless all its fields are numbers.
        zero_based: For SVMlight text: whether indices begin at 0; "auto": if an index 0 occurs. It and ``header`` are
            refused where no file is read by them.
        progress: Called with rows written and rows in all (None if unknown).
        overwrite: Replace a file of any kind; never one of the source.

    Returns:
        The number of rows written.

    Raises:
        WouldOverwrite: ``out`` is one of the source's files, or of another kind.
        ParseError: A line of text does not parse.
        BadValue: A value to be packed is missing.

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
    inputs: tuple[Any, ...] = (source, label if isinstance(label, str) and Path(label).is_file() else [])
    check_target(out, TABLE, inputs=inputs, overwrite=overwrite)
    found = stream(source, Options(label, _choice(header, "header"), pack, _choice(zero_based, "zero_based")))
    _check_heeded(found, header=header, zero_based=zero_based)
    inputs += found.paths
    shaped = shape(found, label=label, columns=columns, pack=pack)
    with frugal(), Writer(out, shaped.schema, record_batch, compression, inputs=inputs, overwrite=overwrite) as writer:
        done = 0
        for batch in shaped.batches:
            writer.write(batch)
            done += batch.num_rows
            if progress is not None:
                progress(done, shaped.rows)
    return writer.rows


def _choice(value: bool | Literal["auto"], what: str) -> bool | Literal["auto"]:
    return "auto" if isinstance(value, str) and value == "auto" else yes_or_no(value, what)


def _check_heeded(found: Stream, **said: bool | Literal["auto"]) -> None:
    """Raise BadArgument if the caller said what no source was read by."""
    for name, value in said.items():
        if value != "auto" and name not in found.heeded:
            raise BadArgument(f"{name} is {value}, but it is for {_FOR[name]}, which the source is not; leave it out")
