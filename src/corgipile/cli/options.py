"""Options that several subcommands share."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

import corgipile as cp
from corgipile import orders
from corgipile.arguments import descriptions
from corgipile.cli.opening import names_of, source_of, split_parts, unquoted
from corgipile.errors import BadArgument
from corgipile.settings import BLOCK, Declared, TrainArguments, declared

Command = TypeVar("Command", bound=Callable[..., Any])
PLAIN = (int, float, bool, str, int | None, float | None, bool | None)
SHARED = declared(TrainArguments)
Memory = Annotated[str, typer.Option(help=SHARED["memory"].setting.about)]
Seed = Annotated[int, typer.Option(help=SHARED["seed"].setting.about)]
Block = Annotated[str | None, typer.Option(help=BLOCK.about)]
Buffer = Annotated[str | None, typer.Option(help="Buffer: rows, bytes or share (2%).")]
Balance = Annotated[str | None, typer.Option(help="Column that balances Riffle's blocks, or content.")]
RecordBatch = Annotated[str | None, typer.Option(help="Record batch: bytes ('1MB') or rows.")]
Compression = Annotated[str | None, typer.Option(help="lz4 or zstd.")]
Fill = Annotated[
    float | None, typer.Option("--missing", help="Number that replaces null and NaN in features, if training had none.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help=SHARED["overwrite"].setting.about)]


def with_settings(arguments: type) -> Callable[[Command], Command]:
    """Add an option for each setting of a class to a command, which receives them by name."""

    def decorate(function: Command) -> Command:
        parameters = inspect.signature(function).parameters.values()
        table, *own = (one for one in parameters if one.kind is not one.VAR_KEYWORD)
        settings = [_option(name, one) for name, one in declared(arguments).items() if one.setting.about]
        signature = inspect.Signature([table, *settings, *own])
        function.__signature__ = signature  # type: ignore[attr-defined]
        function.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        return function

    return decorate


def with_help(arguments: type) -> Callable[[Command], Command]:
    """Take the help of a command's options from the attributes of a class."""

    def decorate(function: Command) -> Command:
        for name, entry in descriptions(arguments).items():
            text = " ".join(entry.partition(": ")[2].split())
            function.__annotations__[name].__metadata__[0].help = text.replace("`", "")
        return function

    return decorate


def _option(name: str, setting: Declared) -> inspect.Parameter:
    """Return the option of a setting, of its type or else text."""
    plain = setting.kind in PLAIN
    flag = (f"--{name}",) if setting.default is False else ()
    kind: Any = setting.kind if plain else str | None
    default = setting.default if plain or isinstance(setting.default, str) else None
    annotation = Annotated[kind, typer.Option(*flag, help=setting.setting.about)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def read(given: dict[str, Any]) -> dict[str, Any]:
    """Convert settings from the command line to Python values."""
    return {name: READ[name](value) if name in READ and value is not None else value for name, value in given.items()}


def number_or_text(text: str) -> int | str:
    """Parse a size or position: integers become numbers, other values stay text.

    Example:
        >>> number_or_text("-1"), number_or_text("256KB")
        (-1, '256KB')
    """
    try:
        return int(text)
    except ValueError:
        return text


def columns_of(names: str | None) -> str | list[str] | None:
    """Return a name, or several with commas.

    Example:
        >>> columns_of("x"), columns_of("x,y")
        ('x', ['x', 'y'])
    """
    found = None if names is None else names_of(names)
    return found[0] if found is not None and len(found) == 1 else found


def crosses_of(text: str) -> list[tuple[str, ...]]:
    """Split feature crosses at commas, and their columns at colons.

    Example:
        >>> crosses_of("city:device,hour")
        [('city', 'device'), ('hour',)]
    """
    return [tuple(names_of(part, ":")) for part in split_parts(text)]


def by_column(text: str) -> str | dict[str, str]:
    """Parse one word, or words by column.

    Example:
        >>> by_column("onehot"), by_column("city=onehot,zip=hash:64")
        ('onehot', {'city': 'onehot', 'zip': 'hash:64'})
    """
    found = (part.rpartition("=") for part in split_parts(text))
    return {unquoted(name): how for name, _, how in found} if "=" in text else text


def weight_by_class(text: str) -> str | dict[str, Any]:
    """Parse one word, or weights by class.

    Example:
        >>> weight_by_class("balanced"), weight_by_class("no=1,yes=20")
        ('balanced', {'no': 1.0, 'yes': 20.0})
    """
    weights = by_column(text)
    return weights if isinstance(weights, str) else {name: number_or_word(weight) for name, weight in weights.items()}


def number_or_word(text: str) -> str | float:
    """Parse a number, else a word.

    Example:
        >>> number_or_word("0.5"), number_or_word("mean")
        (0.5, 'mean')
    """
    try:
        return float(text)
    except ValueError:
        return text


def order_of(name: str, block: str | None, buffer: str | None, balance: str | None, label: str) -> Any:
    """Return the order of these settings."""
    order: Any = orders.named(name)
    if getattr(order, "balance", None) is not None:
        order = replace(order, balance=label)
    if balance is not None:
        if not hasattr(order, "balance"):
            raise BadArgument(f"balance needs order riffle, got {name}")
        order = replace(order, balance=balance)
    if block is not None and order.cuts_into == "row":
        raise BadArgument(f"block must be omitted for order {name}, which visits single rows, got {block}")
    sizes = {"block": block, "buffer": buffer}
    return replace(order, **{what: number_or_text(size) for what, size in sizes.items() if size is not None})


def filled(model: Any, missing: float | None) -> Any:
    """Return the model with missing values replaced by a number, if given."""
    return model if missing is None else model.filled(missing)


def _model(path: str) -> Any:
    return cp.load(path)


READ: dict[str, Callable[[Any], Any]] = {
    "features": columns_of,
    "encode": by_column,
    "text": columns_of,
    "labels": columns_of,
    "interactions": crosses_of,
    "missing": number_or_word,
    "class_weight": weight_by_class,
    "memory": number_or_text,
    "block": number_or_text,
    "test": partial(source_of, test=True),
    "warm_start": _model,
}
