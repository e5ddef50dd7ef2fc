"""Broken laws, and helpers that state a law."""

from typing import Any

__all__ = ["LawBroken", "holds", "refuses"]


class LawBroken(AssertionError):
    """A table, an order or a loader violates a law that all of them must obey."""


def holds(law: Any, *, otherwise: str) -> None:
    """Raise LawBroken unless a law holds.

    Example:
        >>> holds(1 + 1 == 2, otherwise="numbers do not add up")
    """
    if not law:
        raise LawBroken(otherwise)


def refuses(call: Any, error: type[Exception], message: str) -> None:
    """Raise LawBroken unless a call fails with this error and a message that contains some text.

    Example:
        >>> refuses(lambda: int("x"), ValueError, "invalid literal")
    """
    try:
        call()
    except error as reason:
        holds(message in str(reason), otherwise=f"the error must contain {message!r}, got {str(reason)!r}")
    else:
        raise LawBroken(f"a call must raise {error.__name__} ({message}), but succeeded")
