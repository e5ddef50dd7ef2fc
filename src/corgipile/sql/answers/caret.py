"""Lines of a message that show where an error is, cut to a terminal."""

from collections.abc import Sequence

from corgipile.sql.answers.cells import clean
from corgipile.sql.answers.tables import cut, width_of

__all__ = ["around"]


def around(lines: Sequence[str], wide: int) -> list[str]:
    r"""Return lines as they are, but of one with a caret below it the part around the caret, no wider than this.

    Example:
        >>> print(*around(["SELECT a, b, c FROM t TRAIN BY smv", " " * 31 + "^"], 20), sep="\n")
        …FROM t TRAIN BY smv
                         ^
    """
    shown = [clean(line) for line in lines]
    for at in range(1, len(shown)):
        if set(shown[at].strip()) == {"^"}:
            shown[at - 1 : at + 1] = (cut(line, wide) for line in _moved(shown[at - 1], shown[at], wide))
    return shown


def _moved(line: str, caret: str, wide: int) -> tuple[str, str]:
    """Take as much from the left of both as brings the caret, and some of what follows it, into sight."""
    whole, place = width_of(line), caret.index("^")
    away = max(0, min(place - wide * 2 // 3, whole - wide))
    if not away:
        return line, caret
    taken, gone = 0, 0
    while gone <= away:
        gone += width_of(line[taken])
        taken += 1
    return "…" + line[taken:], " " * (place - gone + 1) + caret.strip()
