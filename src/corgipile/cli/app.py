"""The application: its subcommands and their names."""

import ast
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from corgipile import __version__
from corgipile.cli.console import discard_output, fail
from corgipile.cli.opening import with_opening
from corgipile.outputs import writing

COMMANDS = (  # each in a module of that name
    *("sql", "train", "search", "predict", "evaluate", "summary", "compare", "convert", "reshuffle"),
    *("plan", "audit", "info", "doctor", "index", "locate", "simulate", "partition", "pg"),
)
SYNONYMS = {  # names that users of other tools try
    **dict.fromkeys(("eval", "test", "score", "measure", "metrics", "validate"), "evaluate"),
    "fit": "train",
    **dict.fromkeys(("tune", "grid"), "search"),
    "coef": "summary",
    "infer": "predict",
    "shuffle": "reshuffle",
    **dict.fromkeys(("head", "describe", "show"), "info"),
}
# Old names, accepted until the next release.
RENAMED = {
    "judge": "evaluate",
    "inspect": "info --full",
    "rewind": "locate",
    "stage": "partition",
    **dict.fromkeys(("restage", "repartition"), "partition --parts"),
}
FIRST = "model grid features label encode missing epochs learning_rate l2 batch_size memory test save"  # in --help
WITHOUT_OPENING = ("sql", "audit", "doctor", "index", "simulate")  # these open no single table


class Commands(TyperGroup):
    """The subcommands, each loaded on first use."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: TyperCommand(name) for name in COMMANDS})  # names for completion and suggestions

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a subcommand; return None for an unknown name."""
        found: Any = _load(cmd_name) if cmd_name in COMMANDS else None
        others = [one for one in found.params if one.name not in FIRST.split()] if found and ctx.obj else []
        if len(others) > 20 and len(found.params) - len(others) > 5:  # a command that trains
            for one in others:
                one.hidden = one.param_type_name == "option"
            found.epilog = f"`corgipile {cmd_name} --help --all` shows all options."
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a subcommand by its name or its old name; suggest it for synonyms of its name."""
        if args and args[0] in RENAMED:
            old, new = args[0], RENAMED[args[0]]
            if not ctx.resilient_parsing:  # as shell completion is
                message = f"note: `corgipile {old}` is now `corgipile {new}`; the old name goes in the next release"
                typer.echo(message, err=True)
            args = [*new.split(), *args[1:]]
        if args and args[0] in SYNONYMS:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {SYNONYMS[args[0]]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line about each subcommand."""
        del ctx
        wide = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            about = (TyperCommand(name, help=_about(name)).get_short_help_str(wide) for name in COMMANDS)
            formatter.write_dl(list(zip(COMMANDS, about, strict=True)))


def _load(name: str) -> Any:
    module = import_module(f"corgipile.cli.{name}")
    group = typer.Typer(rich_markup_mode=None, callback=lambda: None)  # a callback makes it a group
    if name == "pg":
        group.add_typer(module.group, name=name)
    else:
        group.command(name)(module.command if name in WITHOUT_OPENING else with_opening(module.command))
    return typer.main.get_group(group).commands[name]


def _about(name: str) -> str | None:
    """Return the docstring of a subcommand; its module is parsed, not imported."""
    spec = find_spec(f"corgipile.cli.{name}")
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(f"corgipile.cli.{name}")
    if source is None:  # compiled modules only
        return str(_load(name).help)
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    return ast.get_docstring(next(node for node in functions if node.name == "command"))


app = typer.Typer(
    cls=Commands,
    help="Feed SGD from data larger than memory: full-shuffle accuracy at the speed of a sequential read.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(words: list[str]) -> int:
    """Run a command, flush its output and return its exit code."""
    json = "--json" in words
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent; reserve its descriptor
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays open
    asked = {"-h", "--help"} & {*words}
    brief = bool(asked) and "--all" not in words
    words = [word for word in words if not (asked and word == "--all")]
    words = [f" {word}" if word[:2] == "--" and word[2:3].isspace() else word for word in words]  # an SQL comment
    try:
        # With --json, we print typer's usage errors as JSON.
        code = app(words, prog_name="corgipile", standalone_mode=not json, obj=brief) or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except OSError as error:  # from typer's own output, such as help
        discard_output()
        return fail(f"cannot write the output: {error.strerror}", type(error).__name__, json=json, code=2)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = fail(error.format_message(), "Usage", json=True, code=2)
    return _flush(int(code), json=json)


def _flush(code: int, *, json: bool) -> int:
    """Flush stdout; return the exit code, or 2 if only the flush failed."""
    try:
        with writing("the output"):
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        discard_output()
        return code or fail(str(error), type(error).__name__, json=json, code=2)
    return code


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"corgipile {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
