"""Suggestions for mistyped names."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["column_meant", "did_you_mean", "listed"]

_MAX_LISTED = 8  # names in a message


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """Return a question to append to a message, empty if no name is close.

    Example:
        >>> did_you_mean("rifle", ["riffle", "full"])
        '; did you mean riffle?'
        >>> did_you_mean("sorted", ["riffle", "full"])
        ''
        >>> did_you_mean("label", ["x", " label"])
        "; did you mean ' label', with the blank? Text that has ', ' between fields has it in names"
    """
    if not isinstance(word, str):
        return ""
    known = {name.lower(): name for name in names}
    matches = get_close_matches(word.lower(), known, n=1, cutoff=0.66)  # about one wrong letter in three
    if not matches:
        return ""
    name = known[matches[0]]
    if name.strip() == name:
        return f"; did you mean {name}?"
    return f"; did you mean {name!r}, with the blank? Text that has ', ' between fields has it in names"


def column_meant(word: str, names: Iterable[str]) -> str:
    """Return a suggestion for an unknown column, also for joined names as on a command line.

    Example:
        >>> column_meant("x,y", ["x", "y"])
        "; several columns are a list in Python: ['x', 'y']"
        >>> column_meant("x:y", ["x", "y"])
        "; columns that are crossed are a tuple in Python: ('x', 'y')"
        >>> column_meant("z1", ["x", "z"])
        '; did you mean z?'
    """
    known = list(names)
    for mark, what, join in (
        (",", "several columns are a list", list),
        (":", "columns that are crossed are a tuple", tuple),
    ):
        parts = [part.strip() for part in word.split(mark)]
        if len(parts) > 1 and set(parts) <= set(known):
            return f"; {what} in Python: {join(parts)!r}"
    return did_you_mean(word, known)


def listed(names: Iterable[str]) -> str:
    """Return a list of names for messages, with the number of omitted ones.

    Example:
        >>> listed(["x", "y"])
        "'x', 'y'"
    """
    named = list(names)
    more = f" and {len(named) - _MAX_LISTED} more" if len(named) > _MAX_LISTED else ""
    return ", ".join(map(repr, named[:_MAX_LISTED])) + more
