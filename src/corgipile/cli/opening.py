"""How commands open tables: what is said of the format, and of the cache of what is read in object stores."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

__all__ = ["Open", "options_of", "source_of", "types_of", "with_opening"]

Command = TypeVar("Command", bound=Callable[..., Any])
Words = list[str] | None
Open = Annotated[
    Words, typer.Option("--open", metavar="KEY=VALUE", help="Option of the table's format (group=/train); repeatable.")
]
TEST = typer.Option("--open-test", metavar="KEY=VALUE", help="The same of the test table; else as --open.")
BESIDE = {"format", "spill", "trust"}  # of `corgipile.open`, for any format


class _Given(NamedTuple):
    """What a command was told of tables, beside their names."""

    cache: str | None = None
    cache_size: str | None = None
    open: Words = None
    open_test: Words = None


NOTHING = _Given()
_kept: ContextVar[_Given] = ContextVar("kept", default=NOTHING)


def with_opening(function: Command) -> Command:
    """Let a command have options for how tables are opened; `source_of` hears of them."""
    made = inspect.signature(function)
    kinds: dict[str, Any] = {
        "cache": Annotated[str | None, typer.Option(help="Folder that keeps what is read of objects in stores.")],
        "cache_size": Annotated[str | None, typer.Option(help="Its bytes ('200GB'), or share of the disk.")],
        "open": Open,
    } | ({"open_test": Annotated[Words, TEST]} if "test" in made.parameters else {})
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kinds[name]) for name in kinds
    ]

    @functools.wraps(function)
    def run(*values: Any, **named: Any) -> Any:
        before = _kept.set(_Given(**{name: named.pop(name, None) for name in kinds}))
        try:
            return function(*values, **named)
        finally:
            _kept.reset(before)

    run.__signature__ = made.replace(parameters=[*made.parameters.values(), *own])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def source_of(names: str | Sequence[str], *, test: bool = False) -> Any:
    """Return what to open: one name as it is, several as a list, ``x.npy,y.npy`` as features with their labels.

    Where something is said of its format, it is opened.

    Args:
        names: The names.
        test: Whether it is a test table.
    """
    given = _kept.get()
    names = [names] if isinstance(names, str) else names
    sources = [_cached(_pair(name), given) for name in names]
    source = sources[0] if len(sources) == 1 else sources
    options = options_of((given.open_test if test else None) or given.open)
    if not options:
        return source
    from corgipile import tables  # noqa: PLC0415

    return tables.open(source, **options)


def _cached(source: Any, given: _Given) -> Any:
    if given.cache is None and given.cache_size is None:
        return source
    from corgipile.stores.opening import located  # noqa: PLC0415

    return located(source, cache=given.cache, cache_size=given.cache_size)


def _pair(name: str) -> Any:
    from corgipile import tables  # noqa: PLC0415

    features, comma, label = name.rpartition(",")
    if not (comma and features.endswith(".npy") and label.endswith(".npy")) or Path(name).exists():
        return name
    return tables.open(features, label=label)


def options_of(words: Words) -> dict[str, Any]:
    """Read options of formats.

    Raises:
        BadArgument: One is no option of a format, was given twice, or has no such value.

    Example:
        >>> options_of(["group=/train", "columns=x,y", "version=3", "types=x=float32,y=int8"])
        {'group': '/train', 'columns': ['x', 'y'], 'version': 3, 'types': {'x': 'float32', 'y': 'int8'}}
    """
    from corgipile.errors import BadArgument  # noqa: PLC0415
    from corgipile.suggestions import did_you_mean  # noqa: PLC0415
    from corgipile.tables.formats import formats  # noqa: PLC0415

    found: dict[str, Any] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        known = BESIDE.union(*(kind.options for kind in formats().values()))
        if not equals or name not in known:
            what = f"{name!r} is no option of a format" if equals else f"{word!r} is no KEY=VALUE"
            raise BadArgument(f"--open: {what}; there are {', '.join(sorted(known))}{did_you_mean(name, known)}")
        if name in found:
            raise BadArgument(f"--open: {name} is given twice")
        found[name] = READ.get(name, _plain)(value)
    return found


def types_of(text: str) -> dict[str, str]:
    """Read types by the names of columns.

    Raises:
        BadArgument: There is a name without a type, or twice.
    """
    from corgipile.errors import BadArgument  # noqa: PLC0415

    pairs = [part.partition("=") for part in text.split(",")]
    found = {name.strip(): kind.strip() for name, _, kind in pairs}
    if len(found) < len(pairs) or not all(found) or not all(found.values()):
        raise BadArgument(f"types are {text!r}; names with their types, each once, are right: x=float32,y=int8")
    return found


def _names(text: str) -> list[str] | dict[str, str]:
    """Read names, or what things are called."""
    parts = text.split(",")
    if "=" not in text:
        return parts
    return {name: value if equals else name for name, equals, value in (part.partition("=") for part in parts)}


def _plain(text: str) -> bool | int | str:
    """Read a truth value or a whole number; all else is text."""
    return {"true": True, "false": False}.get(text.lower(), int(text) if re.fullmatch(r"-?\d+", text) else text)


def _delimiter(text: str) -> str:
    return {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}.get(text.lower(), text)


# What a value is read as where it is not plain: the rest, of formats of other packages too, is.
READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("columns", "features"), _names),
    **dict.fromkeys(("format", "group", "index", "label", "on_bad", "spill", "table", "trust"), str),
    "delimiter": _delimiter,
    "types": types_of,
}
