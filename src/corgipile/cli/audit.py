"""``corgipile audit``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import show_json
from corgipile.cli.flags import Json
from corgipile.cli.options import Overwrite, number_or_text, with_help
from corgipile.cli.pages import Html, check_page, command_text
from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.quality import lives, loader_audit

if TYPE_CHECKING:
    from corgipile.proof import audit as pages
else:
    pages = lazy("corgipile.proof.audit")


@guarded
@with_help(loader_audit.AuditPlan)
def command(
    loader: Annotated[str, typer.Argument(help="Function that makes a loader: module:function.")],
    *,
    id: Annotated[str, typer.Option(metavar="FIELD")],  # noqa: A002 - as in `audit`
    key: Annotated[str | None, typer.Option(metavar="FIELD,...")] = None,
    rows: Annotated[int | None, typer.Option()] = None,
    batches: Annotated[int | None, typer.Option()] = None,
    world: Annotated[str | None, typer.Option(metavar="NUMBER,...")] = None,
    workers: Annotated[str | None, typer.Option(metavar="NUMBER,...")] = None,
    tp: Annotated[int, typer.Option()] = 1,
    source: Annotated[str | None, typer.Option(metavar="FIELD")] = None,
    weights: Annotated[str | None, typer.Option(metavar="SOURCE=WEIGHT,...")] = None,
    tokens: Annotated[str | None, typer.Option(metavar="FIELD,FIELD")] = None,
    max_deff: Annotated[float | None, typer.Option()] = None,
    exactly_once: Annotated[bool, typer.Option("--exactly-once")] = False,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    memory: Annotated[bool, typer.Option()] = True,
    allow: Annotated[list[str] | None, typer.Option(metavar="FAULT")] = None,
    start: Annotated[str, typer.Option()] = "fork",
    timeout: Annotated[float, typer.Option()] = 300.0,
    junit: Annotated[str | None, typer.Option(help="Also write a JUnit file.")] = None,
    github: Annotated[bool, typer.Option("--github", help="Print annotations of GitHub Actions.")] = False,
    html: Html = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Audit a loader: run, kill and resume it, and name its faults; exit 1 if there are any."""
    if html is not None:
        check_page(html, [], overwrite=overwrite)
    audit = loader_audit.audit_loader(
        loader, id=_finder(id), key=_list(key, _finder), source=source and _finder(source), tp=tp, rows=rows,
        weights=dict(_list(weights, _weight) or ()) or None, tokens=_list(tokens, _finder), batches=batches,
        world=_list(world, int), workers=_list(workers, int), max_deff=max_deff, exactly_once=exactly_once,
        resume=resume or None, memory=memory, allow=allow or (), start=start, timeout=timeout,
    )  # fmt: skip
    if junit is not None:
        audit.save_junit(junit, overwrite=overwrite)
    if html is not None:
        pages.audit_page(audit.report, command_text()).save(html, overwrite=overwrite)
    if json:
        show_json(audit.as_dict())
    else:
        typer.echo(str(audit))
    if github:
        typer.echo("\n".join(audit.annotations()), err=json)
    if audit.faults:
        raise typer.Exit(1)


def _list(text: str | None, read: Any) -> list[Any] | None:
    try:
        return None if text is None else [read(part) for part in text.split(",")]
    except ValueError as error:
        raise BadArgument(f"{text!r} must be values with commas: {error}") from None


def _finder(text: str) -> Any:
    return lives.find_maker(text) if ":" in text else number_or_text(text)


def _weight(text: str) -> tuple[str, float]:
    name, _, weight = text.rpartition("=")
    return name, float(weight)
