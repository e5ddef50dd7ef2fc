"""Arguments of functions and classes, each declared once as a field of a dataclass."""

import inspect
import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from corgipile.suggestions import did_you_mean

__all__ = ["descriptions", "documented", "init_takes", "takes"]

ENTRY = re.compile(r"^    (\w+): .*(?:\n {8}.*)*", re.MULTILINE)  # of a docstring's section
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class _Arguments(Protocol):
    def checked(self) -> Self: ...


A = TypeVar("A", bound=_Arguments)


def takes(arguments: Callable[P, A]) -> Callable[[Callable[[A], R]], Callable[P, R]]:
    """Give a function of one value the fields of its class as named and typed arguments.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Steps:
        ...     rows: int
        ...     batch_size: int = 1
        ...     def checked(self):
        ...         return self
        >>> @takes(Steps)
        ... def steps(given: Steps) -> int:
        ...     return given.rows // given.batch_size
        >>> steps(6, batch_size=2)
        3
        >>> steps(6, batchsize=2)
        Traceback (most recent call last):
        ...
        TypeError: steps() got an unexpected keyword argument 'batchsize'; did you mean batch_size?
    """
    return partial(_wrapped, arguments)


def init_takes(arguments: Callable[P, A]) -> Callable[[Callable[[S, A], None]], Callable[Concatenate[S, P], None]]:
    """Give an ``__init__`` of one value the fields of its class as named and typed arguments."""
    return partial(_wrapped, arguments)


def _wrapped(arguments: Any, function: Any) -> Any:
    """Return a function of arguments for a function whose last parameter is their class."""
    known, own = inspect.signature(arguments), inspect.signature(function)
    *first, _ = own.parameters.values()
    name = arguments.__init__.__qualname__ = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for word in kwargs.keys() - known.parameters.keys():
            hint = did_you_mean(word, known.parameters)
            raise TypeError(f"{name}() got an unexpected keyword argument {word!r}{hint}")
        return function(*args[: len(first)], arguments(*args[len(first) :], **kwargs).checked())

    plain = [one.replace(annotation=_plain(one.annotation)) for one in known.parameters.values()]
    first = [one.replace(kind=one.POSITIONAL_ONLY) for one in first]
    call.__signature__ = own.replace(parameters=[*first, *plain])  # type: ignore[attr-defined]
    return call


def _plain(kind: Any) -> Any:
    """Return a type without its declaration."""
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind


def descriptions(arguments: type) -> dict[str, str]:
    """Return the entries of "Attributes:" by name, from the docstrings of a class and of the classes it extends."""
    found: dict[str, str] = {}
    for base in reversed(arguments.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
        found |= {entry[1]: entry[0] for entry in ENTRY.finditer(section)}
    return found


def documented(arguments: type) -> Callable[[type[S]], type[S]]:
    """Add the attributes of arguments, and of the classes they extend, to a class's docstring as its "Args:"."""

    def decorate(kind: type[S]) -> type[S]:
        if kind.__doc__ is not None:  # python -OO removes docstrings
            found = descriptions(arguments)
            described = "\n".join(found[name] for name in inspect.signature(arguments).parameters)
            head, mark, rest = re.split(r"(\n\n(?=Attributes:|Raises:))", inspect.cleandoc(kind.__doc__), maxsplit=1)
            kind.__doc__ = f"{head}\n\nArgs:\n{described}{mark}{rest}"
        return kind

    return decorate
