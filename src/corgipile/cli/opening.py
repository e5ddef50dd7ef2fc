"""Options for opening tables: the format's options and the cache of object stores."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

import corgipile as cp
from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.suggestions import did_you_mean

if TYPE_CHECKING:
    from corgipile.stores import opening as stores
    from corgipile.tables import registry
else:
    stores, registry = lazy("corgipile.stores.opening"), lazy("corgipile.tables.registry")

__all__ = ["Open", "names_of", "options_of", "source_of", "split_parts", "types_of", "unquoted", "with_opening"]

Command = TypeVar("Command", bound=Callable[..., Any])
Words = list[str] | None
Open = Annotated[
    Words, typer.Option("--open", metavar="KEY=VALUE", help="Option of the table's format (group=/train); repeatable.")
]
TEST = typer.Option("--open-test", metavar="KEY=VALUE", help="Option of the test table; default: as --open.")
QUOTED = r'(?<![^,:=])"(?:[^"]|"")*"(?=[,:=])'  # a name that may hold marks
COMMON_OPTIONS = {"format", "spill", "trust"}  # of `corgipile.open`, for any format


class _OpenOptions(NamedTuple):
    """A command's options for opening tables."""

    cache: str | None = None
    cache_size: str | None = None
    open: Words = None
    open_test: Words = None


NO_OPTIONS = _OpenOptions()
_current: ContextVar[_OpenOptions] = ContextVar("kept", default=NO_OPTIONS)


def with_opening(function: Command) -> Command:
    """Add options for opening tables to a command; `source_of` uses them."""
    signature = inspect.signature(function)
    kinds: dict[str, Any] = {
        "cache": Annotated[str | None, typer.Option(help="Folder that caches objects of stores.")],
        "cache_size": Annotated[
            str | None, typer.Option(help="Size of the cache: bytes ('200GB') or share of the disk.")
        ],
        "open": Open,
    } | ({"open_test": Annotated[Words, TEST]} if "test" in signature.parameters else {})
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in kinds.items()]

    @functools.wraps(function)
    def run(*values: Any, **named: Any) -> Any:
        before = _current.set(_OpenOptions(**{name: named.pop(name, None) for name in kinds}))
        try:
            return function(*values, **named)
        finally:
            _current.reset(before)

    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *own])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def source_of(names: str | Sequence[str], *, test: bool = False) -> Any:
    """Return the source of a table: one name, a list of names, or ``x.npy,y.npy`` as features and labels.

    With options of the format, the table is opened.
    """
    given = _current.get()
    sources = [_cached(_pair(name), given) for name in ([names] if isinstance(names, str) else names)]
    source = sources[0] if len(sources) == 1 else sources
    options = options_of((given.open_test if test else None) or given.open)
    return cp.open(source, **options) if options else source


def _cached(source: Any, given: _OpenOptions) -> Any:
    if given.cache is None and given.cache_size is None:
        return source
    return stores.located(source, cache=given.cache, cache_size=given.cache_size)


def _pair(name: str) -> Any:
    features, comma, label = name.rpartition(",")
    if not (comma and features.endswith(".npy") and label.endswith(".npy")) or Path(name).exists():
        return name
    return cp.open(features, label=label)


def options_of(words: Words) -> dict[str, Any]:
    """Parse KEY=VALUE options of formats; each must be known and given once.

    Example:
        >>> options_of(["group=/train", "columns=x,y", "version=3", "types=x=float32,y=int8"])
        {'group': '/train', 'columns': ['x', 'y'], 'version': 3, 'types': {'x': 'float32', 'y': 'int8'}}
    """
    options: dict[str, Any] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        known = COMMON_OPTIONS.union(*(kind.options for kind in registry.formats().values()))
        if not equals or name not in known:
            what = f"unknown option {name!r}" if equals else f"{word!r} must be KEY=VALUE"
            raise BadArgument(f"--open: {what}; options are {', '.join(sorted(known))}{did_you_mean(name, known)}")
        if name in options:
            raise BadArgument(f"--open: {name} is given twice")
        options[name] = READ.get(name, _plain)(value)
    return options


def split_parts(text: str, mark: str = ",") -> list[str]:
    """Split text at a mark that is not within double quotes."""
    return re.findall(f"((?:{QUOTED}|[^{mark}])*){mark}", text + mark)


def unquoted(name: str) -> str:
    """Return a name without the double quotes that it needs for a mark in it."""
    return name[1:-1].replace('""', '"') if re.fullmatch('".*[,:=].*"', name, re.DOTALL) else name


def names_of(text: str, mark: str = ",") -> list[str]:
    """Split names at a mark; those that hold one stand in double quotes.

    Example:
        >>> names_of('a,"b,c","d"')
        ['a', 'b,c', '"d"']
    """
    return [unquoted(name) for name in split_parts(text, mark)]


def _pair_of(part: str) -> tuple[str, str]:
    """Split ``name=word`` at the first mark that is not within double quotes."""
    name, *words = split_parts(part, "=")
    return unquoted(name), unquoted("=".join(words))


def types_of(text: str) -> dict[str, str]:
    """Parse types by column name, each with a type and once."""
    pairs = [_pair_of(part.strip()) for part in split_parts(text)]
    types = {name.strip(): kind.strip() for name, kind in pairs}
    if len(types) < len(pairs) or not all(types) or not all(types.values()):
        raise BadArgument(f"types must be different names with types, such as x=float32,y=int8, got {text!r}")
    return types


def _names(text: str) -> list[str] | dict[str, str]:
    """Parse names, or old=new pairs."""
    pairs = list(map(_pair_of, split_parts(text)))
    return {name: value or name for name, value in pairs} if any(value for _, value in pairs) else names_of(text)


def _plain(text: str) -> bool | int | str:
    """Parse a boolean or an integer; other values are text."""
    return {"true": True, "false": False}.get(text.lower(), int(text) if re.fullmatch(r"-?\d+", text) else text)


def _delimiter(text: str) -> str:
    return {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}.get(text.lower(), text)


# Parsers of options whose value is not a plain boolean, integer or text.
READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("columns", "features"), _names),
    **dict.fromkeys(("format", "group", "index", "label", "on_bad", "spill", "table", "trust"), str),
    "delimiter": _delimiter,
    "types": types_of,
}
