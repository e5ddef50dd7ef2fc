"""``corgipile convert``."""

from typing import Annotated

import typer

from corgipile.bars import progress
from corgipile.cli.console import command as guarded
from corgipile.cli.console import printable, show_json
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.opening import names_of, source_of, types_of
from corgipile.cli.options import Compression, Overwrite, RecordBatch, number_or_text
from corgipile.errors import BadArgument
from corgipile.lazy import lazy

conversion = lazy("corgipile.conversion")
inputs = lazy("corgipile.tables.inputs")


@guarded
def command(
    source: Annotated[list[str], typer.Argument(help="Files, globs or folders, then the output.")],
    *,
    label: Annotated[str | None, typer.Option(help="Column to rename to 'label': name or position (-1: last).")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to keep, separated by commas.")] = None,
    types: Annotated[str | None, typer.Option(help="Types of columns: x=float32,y=int8.")] = None,
    inexact: Annotated[bool, typer.Option("--inexact", help="Allow types to round floats.")] = False,
    pack: Annotated[bool, typer.Option("--pack", help="Put all numeric columns in one list 'features'.")] = False,
    memory: Annotated[str, typer.Option(help="Largest stored unit to decode.")] = "64MB",
    header: Annotated[bool | None, typer.Option(help="Whether line 1 of CSV text is a header.")] = None,
    zero_based: Annotated[bool | None, typer.Option(help="Whether SVMlight indices begin at 0.")] = None,
    to: Annotated[
        str | None, typer.Option(help="arrow, parquet, mds, webdataset or tfrecord; default: by name.")
    ] = None,
    record_batch: RecordBatch = None,
    shard_size: Annotated[str | None, typer.Option(help="Bytes of each output file.")] = None,
    compression: Compression = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Convert any table to Arrow, Parquet, MDS, WebDataset or TFRecord, streaming."""
    *sources, out = source
    if not sources:
        raise BadArgument(f"convert needs a source and an output, got only {out}")
    inputs.check_apart(out, sources)
    with progress(f"convert to {out}", quiet=quiet or json) as bar:
        rows = conversion.convert(
            source_of(sources),
            out,
            to=to,
            shard_size=shard_size,
            record_batch=None if record_batch is None else number_or_text(record_batch),
            compression=compression,
            label=None if label is None else number_or_text(label),
            columns=None if columns is None else names_of(columns),
            types=None if types is None else types_of(types),
            inexact=inexact,
            pack=pack,
            memory=memory,
            header="auto" if header is None else header,
            zero_based="auto" if zero_based is None else zero_based,
            progress=bar,
            overwrite=overwrite,
        )
    if json:
        show_json({"rows": rows, "path": out})
    elif not quiet:
        typer.echo(printable(f"{out}: {rows:,} rows"))
