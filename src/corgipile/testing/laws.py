"""What a broken law is, and how one is stated."""

from typing import Any

__all__ = ["LawBroken", "holds", "refuses"]


class LawBroken(AssertionError):
    """A table, an order or a loader does not do what all of them must."""


def holds(law: Any, *, otherwise: str) -> None:
    """Raise LawBroken unless a law holds.

    Example:
        >>> holds(1 + 1 == 2, otherwise="numbers do not add up")
    """
    if not law:
        raise LawBroken(otherwise)


def refuses(call: Any, error: type[Exception], says: str) -> None:
    """Raise LawBroken unless a call fails by this error, in words that hold some text.

    Example:
        >>> refuses(lambda: int("x"), ValueError, "invalid literal")
    """
    try:
        call()
    except error as reason:
        holds(says in str(reason), otherwise=f"the error should say {says!r}, it says {str(reason)!r}")
    else:
        raise LawBroken(f"what should be a {error.__name__} ({says}) was accepted")
