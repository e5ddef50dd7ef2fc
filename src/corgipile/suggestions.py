"""What a mistyped name was meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "listed"]

_MOST = 8


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """Return a question to be put behind a message, empty if no name is close.

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
    found = get_close_matches(word.lower(), known, n=1, cutoff=0.66)  # a letter of three
    if not found:
        return ""
    name = known[found[0]]
    if name.strip() == name:
        return f"; did you mean {name}?"
    return f"; did you mean {name!r}, with the blank? Text that has ', ' between fields has it in names"


def listed(names: Iterable[str]) -> str:
    """Write names one after the other, the first of them if they are many.

    Example:
        >>> listed(["x", "y"])
        "'x', 'y'"
    """
    named = list(names)
    more = f" and {len(named) - _MOST} more" if len(named) > _MOST else ""
    return ", ".join(map(repr, named[:_MOST])) + more
