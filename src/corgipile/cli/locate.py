"""``corgipile locate``."""

from typing import Annotated, Any

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import show_json
from corgipile.cli.flags import Json, Tables
from corgipile.cli.opening import source_of
from corgipile.cli.options import Memory, Seed, number_or_text

LOADER = ("order", "memory", "batch_size", "seed", "ranks", "drop_last")  # what a state says itself


@guarded
def command(
    ctx: typer.Context,
    table: Tables,
    *,
    state: Annotated[
        str | None, typer.Option(help="File with the state of a loader or a dataset, as JSON; says all that follows.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Which batch of the epoch, from 0.")] = None,
    row: Annotated[list[int] | None, typer.Option(help="Which row's turn; repeatable.")] = None,
    rank: Annotated[int | None, typer.Option(help="Whose batch; else all.")] = None,
    epoch: Annotated[int | None, typer.Option(help="Which epoch; else that of the state, or 0.")] = None,
    order: Annotated[str, typer.Option(help="Order of the loader.")] = "auto",
    memory: Memory = "64MB",
    batch_size: Annotated[int, typer.Option(help="Rows of its batches.")] = 256,
    seed: Seed = 0,
    ranks: Annotated[int, typer.Option(help="Ranks that share the epoch.")] = 1,
    drop_last: Annotated[bool, typer.Option("--drop-last", help="Whether a short last batch is left out.")] = False,
    json: Json = False,
) -> None:
    """Say which rows a step of training had, or when rows have their turn, from the seed alone."""
    from corgipile import tables  # noqa: PLC0415
    from corgipile.errors import BadArgument  # noqa: PLC0415
    from corgipile.loader import Loader, Rewind  # noqa: PLC0415
    from corgipile.loader.skips import Skips  # noqa: PLC0415

    if (step is None) == (not row):
        raise BadArgument("one of --step and --row is right: which rows a step had, or when rows have their turn")
    opened, skips = tables.open(source_of(table)), Skips()
    if state is not None:
        given = [name for name in LOADER if _said(ctx, name)]
        if given:
            raise BadArgument(f"--{given[0].replace('_', '-')} is said by the state; leave it out")
        known = _state(state)
        rewind = Rewind.of(opened, known)
        skips.resume(known.get("skip", []), len(opened))
    else:
        rewind = Loader(
            opened, order=order, memory=number_or_text(memory), batch_size=batch_size, seed=seed, world=ranks,
            drop_last=drop_last,
        ).rewind()  # fmt: skip
    epoch = rewind.epoch if epoch is None else epoch
    facts: dict[str, Any] = {"epoch": epoch}
    found: dict[int, list[int]] = {}
    if step is not None:
        whose = range(rewind.world_of(step, epoch=epoch)) if rank is None else [rank]
        found = {one: rewind.rows_of(step, rank=one, epoch=epoch).tolist() for one in whose}
        facts |= {"step": step, "ranks": [{"rank": one, "rows": rows} for one, rows in found.items()]}
        lines = [f"epoch {epoch}, step {step}, rank {one}: {' '.join(map(str, rows))}" for one, rows in found.items()]
    else:
        visits = [one for one in rewind.visits_of(row or [], epoch=epoch) if rank in (None, one.rank)]
        facts |= {"visits": [one._asdict() for one in visits]}
        lines = [f"row {one.row}: epoch {epoch}, step {one.step}, rank {one.rank}, place {one.place}" for one in visits]
        missed = sorted({*(row or [])} - {one.row for one in visits})
        lines += [f"row {one}: not in epoch {epoch}" + (f", rank {rank}" if rank is not None else "") for one in missed]
    asked = {*(row or [one for rows in found.values() for one in rows])}
    gone = [one for one in skips.state() if (one in asked if isinstance(one, int) else one == [epoch, step])]
    if gone:
        facts["skipped"] = gone
        names = (f"row {one}" if isinstance(one, int) else f"step {one[1]}" for one in gone)
        lines.append(f"left out, as the state says: {', '.join(names)}")
    if json:
        show_json(facts)
    else:
        typer.echo("\n".join(lines))


def _said(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _state(path: str) -> Any:
    from pathlib import Path  # noqa: PLC0415

    from corgipile.errors import StateMismatch  # noqa: PLC0415
    from corgipile.nesting import parse_json  # noqa: PLC0415
    from corgipile.tables.io.files import readable  # noqa: PLC0415

    with readable(path):
        text = Path(path).read_bytes()
    try:
        return parse_json(text, path, ValueError)
    except ValueError as error:
        raise StateMismatch(
            f"{path} holds no state as JSON, as json.dump(loader.state_dict()) writes it: {error}"
        ) from None
