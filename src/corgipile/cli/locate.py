"""``corgipile locate``."""

from pathlib import Path
from typing import Annotated, Any

import typer

import corgipile as cp
from corgipile.cli.console import command as guarded
from corgipile.cli.console import show_json
from corgipile.cli.flags import Json, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Memory, Seed, number_or_text
from corgipile.errors import BadArgument, StateMismatch
from corgipile.lazy import lazy

files = lazy("corgipile.tables.io.files")
nesting = lazy("corgipile.nesting")
skipping = lazy("corgipile.loader.skips")

LOADER_OPTIONS = ("order", "memory", "batch_size", "seed", "ranks", "drop_last")  # which a state contains


@guarded
def command(
    ctx: typer.Context,
    table: Tables,
    *,
    state: Annotated[
        str | None, typer.Option(help="JSON file with the state of a loader or dataset; replaces the loader's options.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Batch of the epoch, from 0.")] = None,
    row: Annotated[list[int] | None, typer.Option(help="Row to locate; repeatable.")] = None,
    rank: Annotated[int | None, typer.Option(help="Rank; default: all.")] = None,
    epoch: Annotated[int | None, typer.Option(help="Epoch; default: the state's, or 0.")] = None,
    order: Annotated[str, typer.Option(help="Order of the loader.")] = "auto",
    memory: Memory = "64MB",
    batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 256,
    seed: Seed = 0,
    ranks: Annotated[int, typer.Option(help="Ranks that share the epoch.")] = 1,
    drop_last: Annotated[bool, typer.Option("--drop-last", help="Drop a short last batch.")] = False,
    json: Json = False,
) -> None:
    """Show the rows of a training step, or the steps of rows, computed from the seed alone."""
    if (step is None) == (not row):
        raise BadArgument("exactly one of --step and --row must be given: the rows of a step, or the steps of rows")
    opened, skips = cp.open(source_of(table)), skipping.Skips()
    if state is not None:
        given = [name for name in LOADER_OPTIONS if _is_given(ctx, name)]
        if given:
            raise BadArgument(f"--{given[0].replace('_', '-')} must be omitted, since the state contains it")
        known = _state(state)
        rewind = cp.loader.Rewind.of(opened, known)
        skips.resume(known.get("skip", []), len(opened))
    else:
        rewind = cp.Loader(
            opened, order=order, memory=number_or_text(memory), batch_size=batch_size, seed=seed, world=ranks,
            drop_last=drop_last,
        ).rewind()  # fmt: skip
    epoch = rewind.epoch if epoch is None else epoch
    facts: dict[str, Any] = {"epoch": epoch}
    rows_by_rank: dict[int, list[int]] = {}
    if step is not None:
        ranks_shown = range(rewind.world_of(step, epoch=epoch)) if rank is None else [rank]
        rows_by_rank = {one: rewind.rows_of(step, rank=one, epoch=epoch).tolist() for one in ranks_shown}
        facts |= {"step": step, "ranks": [{"rank": one, "rows": rows} for one, rows in rows_by_rank.items()]}
        where = f"epoch {epoch}, step {step}, rank"
        lines = [f"{where} {one}: {' '.join(map(str, rows))}" for one, rows in rows_by_rank.items()]
    else:
        visits = [one for one in rewind.visits_of(row or [], epoch=epoch) if rank in (None, one.rank)]
        facts |= {"visits": [one._asdict() for one in visits]}
        lines = [f"row {one.row}: epoch {epoch}, step {one.step}, rank {one.rank}, place {one.place}" for one in visits]
        missed = sorted({*(row or [])} - {one.row for one in visits})
        lines += [f"row {one}: not in epoch {epoch}" + (f", rank {rank}" if rank is not None else "") for one in missed]
    rows_shown = {*(row or [one for rows in rows_by_rank.values() for one in rows])}
    skipped = [one for one in skips.state() if (one in rows_shown if isinstance(one, int) else one == [epoch, step])]
    if skipped:
        facts["skipped"] = skipped
        names = (f"row {one}" if isinstance(one, int) else f"step {one[1]}" for one in skipped)
        lines.append(f"skipped by the state: {', '.join(names)}")
    if json:
        show_json(facts)
    else:
        typer.echo("\n".join(lines))


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _state(path: str) -> Any:
    with files.readable(path):
        text = Path(path).read_bytes()
    try:
        return nesting.parse_json(text, path, ValueError)
    except ValueError as error:
        rule = "must be a JSON state, as json.dump(loader.state_dict()) writes it"
        raise StateMismatch(f"{path} {rule}: {error}") from None
