"""``corgipile reshuffle``."""

import time
from typing import Annotated

import typer

from corgipile.bars import progress
from corgipile.cli.console import command as guarded
from corgipile.cli.console import printable, show_json
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.opening import source_of
from corgipile.cli.options import Block, Compression, Memory, Overwrite, RecordBatch, Seed, number_or_text
from corgipile.errors import BadArgument
from corgipile.lazy import lazy

relayout = lazy("corgipile.relayout")
inputs = lazy("corgipile.tables.inputs")


@guarded
def command(
    source: Annotated[list[str], typer.Argument(help="Files of the table, then the output file.")],
    *,
    method: Annotated[str, typer.Option(help="two-pass (exact full shuffle), corgi2 or bmf.")] = "two-pass",
    memory: Memory = "64MB",
    seed: Seed = 0,
    block: Block = None,
    record_batch: RecordBatch = None,
    compression: Compression = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the rows of a table once in a better order, within a memory budget."""
    *sources, out = source
    if not sources:
        raise BadArgument(f"reshuffle needs a table and an output file, got only {out}")
    inputs.check_apart(out, sources)
    start = time.perf_counter()
    with progress(f"reshuffle to {out}", quiet=quiet or json) as bar:
        rows = relayout.reshuffle(
            source_of(sources),
            out,
            method,
            memory=number_or_text(memory),
            seed=seed,
            block=None if block is None else number_or_text(block),
            record_batch=None if record_batch is None else number_or_text(record_batch),
            compression=compression,
            progress=bar,
            overwrite=overwrite,
        )
    seconds = time.perf_counter() - start
    if json:
        show_json({"rows": rows, "path": out, "method": method, "seconds": seconds})
    elif not quiet:
        typer.echo(printable(f"{out}: {rows:,} rows, {method}, {seconds:.2f} s"))
