"""Source lines of error messages, cut to the terminal's width."""

from collections.abc import Sequence

from corgipile.sql.answers.cells import clean
from corgipile.sql.answers.tables import cut, width_of

__all__ = ["around"]


def around(lines: Sequence[str], wide: int) -> list[str]:
    r"""Return the lines; a line with a caret below is cut to `wide` columns around the caret.

    Example:
        >>> print(*around(["SELECT a, b, c FROM t TRAIN BY smv", " " * 31 + "^"], 20), sep="\n")
        …FROM t TRAIN BY smv
                         ^
    """
    shown = [clean(line) for line in lines]
    for at in range(1, len(shown)):
        if set(shown[at].strip()) == {"^"}:
            shown[at - 1 : at + 1] = (cut(line, wide) for line in _scroll(shown[at - 1], shown[at], wide))
    return shown


def _scroll(line: str, caret: str, wide: int) -> tuple[str, str]:
    """Cut both lines on the left until the caret and some text after it are visible."""
    whole, place = width_of(line), caret.index("^")
    away = max(0, min(place - wide * 2 // 3, whole - wide))
    if not away:
        return line, caret
    count, width = 0, 0
    while width <= away:
        width += width_of(line[count])
        count += 1
    return "…" + line[count:], " " * (place - width + 1) + caret.strip()
