"""SVG charts of a page: drawn for a phone's width, with distinct shapes and colours and a text alternative."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from corgipile.proof.markup import Markup, element
from corgipile.proof.scales import Scale

__all__ = ["Chart", "Interval", "Line", "dots", "intervals", "key", "lines"]

SERIES = 9  # colours in the style sheet
WIDTH, HEIGHT = 360, 230
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 24, 34
ROW, LETTER = 15, 6.2  # height of an interval; width of a letter, about
DOTS_SIDE = 150  # side of a dot chart
MAX_NAME_WIDTH = 120  # width of the intervals' names at most


class Line(NamedTuple):
    """A series of points; those that are not finite are left out.

    ``series`` is the number of its colour and shape, 0 that of the page's main series; ``joined`` draws a line, and
    ``chosen`` is the number of the marked point.
    """

    name: str
    points: Sequence[tuple[float, float]]
    series: int = 0
    joined: bool = True
    chosen: int | None = None


class Interval(NamedTuple):
    """A value with half the width of its interval, 0 for none, and its predicted value, if any."""

    name: str
    value: float
    half: float = 0.0
    series: int = 0
    expected: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart in a box of ``width`` by ``height``, with its numbers as a table."""

    title: str
    alternative: str  # text for screen readers
    drawing: Sequence[Markup]
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    width: int = WIDTH
    height: int = HEIGHT


def lines(given: Sequence[Line], x: Scale, y: Scale, names: tuple[str, str], mark: float | None = None) -> list[Markup]:
    """Draw lines in a frame with two labelled scales; the first line is drawn last, above the others.

    ``mark`` is a value on the vertical scale.
    """
    drawing = _frame(x, y, names)
    if mark is not None and y.low <= mark <= y.high:
        drawing.append(_across(_up(y, mark), "mark"))
    for line in reversed(given):
        points = [(_along(x, a), _up(y, b)) for a, b in line.points if math.isfinite(a) and math.isfinite(b)]
        colour = f"s{line.series % SERIES}"
        if line.joined and len(points) > 1:
            kind = "line strong" if line is given[0] else "line"
            path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
            drawing.append(element("path", d=path, class_=f"{colour} {kind}"))
        marked = points if len(points) <= 12 else points[-1:]
        drawing += [element("g", *(_shape(line.series, a, b) for a, b in marked), class_=f"{colour} fill")]
        if line.chosen is not None:
            a, b = line.points[line.chosen]
            drawing.append(element("circle", cx=_along(x, a), cy=_up(y, b), r=7, class_=f"{colour} line"))
    return drawing


def dots(points: Iterable[tuple[float, float]], series: int, names: tuple[str, str]) -> list[Markup]:
    """Draw dots in a square, at places from 0 to 1.

    Example:
        >>> "M10.0 " in "".join(dots([(0, 0)], 0, ("", "")))
        True
    """
    inner, edge, middle = DOTS_SIDE - 20, 10, DOTS_SIDE / 2
    path = "".join(f"M{edge + a * inner:.1f} {edge + (1 - b) * inner:.1f}h0" for a, b in points)
    return [
        element("rect", x=edge - 4, y=edge - 4, width=inner + 8, height=inner + 8, class_="grid"),
        element("path", d=path or "M0 0", class_=f"s{series % SERIES} dots"),
        element("text", names[0], x=middle, y=DOTS_SIDE + 7, text_anchor="middle"),
        element("text", names[1], x=2, y=middle, text_anchor="middle", transform=f"rotate(-90 2 {middle})"),
    ]


def intervals(given: Sequence[Interval], x: Scale, name: str, mark: float | None = None) -> tuple[list[Markup], int]:
    """Draw values in rows, each with its interval; a name is written where it differs from the row above.

    Return the drawing and its height.
    """
    left = min(MAX_NAME_WIDTH, max((len(interval.name) for interval in given), default=0) * LETTER) + 10
    gaps = [at > 0 and interval.name != given[at - 1].name for at, interval in enumerate(given)]
    ends = [10 + ROW * (at + 1) + 7 * sum(gaps[: at + 1]) for at in range(len(given))]
    bottom = (ends or [10])[-1] + 2

    def place(value: float) -> float:
        return left + x.at(value) * (WIDTH - RIGHT - left)

    drawing = [element("path", d=f"M{place(at):.1f} 8V{bottom}", class_="grid") for at, _ in x.ticks]
    drawing += [element("text", text, x=place(at), y=bottom + 14, text_anchor="middle") for at, text in x.ticks]
    drawing.append(element("text", name, x=WIDTH - RIGHT, y=bottom + 28, text_anchor="end"))
    if mark is not None:
        drawing.append(element("path", d=f"M{place(mark):.1f} 4V{bottom}", class_="mark"))
    for at, (interval, end) in enumerate(zip(given, ends, strict=True)):
        y, colour = end - ROW / 2, f"s{interval.series % SERIES}"
        if not at or gaps[at]:
            drawing.append(element("text", _cut(interval.name, left - 10), x=0, y=y + 4, class_="name"))
        if interval.half:
            ends_at = place(interval.value - interval.half), place(interval.value + interval.half)
            drawing.append(element("path", d=f"M{ends_at[0]:.1f} {y}H{ends_at[1]:.1f}", class_=f"{colour} line"))
        if interval.expected is not None:
            drawing.append(_shape(3, place(interval.expected), y, class_=f"{colour} line hollow"))
        drawing.append(element("g", _shape(interval.series, place(interval.value), y), class_=f"{colour} fill"))
    return drawing, bottom + 32


def key(names: Sequence[tuple[str, int]]) -> Markup:
    """Return a legend of colours and shapes."""

    def item(name: str, series: int) -> Markup:
        line = element("path", d="M0 6H28", class_=f"s{series % SERIES} line")
        shape = element("g", _shape(series, 14, 6), class_=f"s{series % SERIES} fill")
        return element("li", element("svg", line, shape, viewBox="0 0 28 12", aria_hidden="true"), name)

    return element("ul", *(item(*interval) for interval in names), class_="key", aria_label="Key")


def _frame(x: Scale, y: Scale, names: tuple[str, str]) -> list[Markup]:
    drawing = [_across(_up(y, at), "grid") for at, _ in y.ticks]
    drawing += [element("text", text, x=LEFT - 6, y=_up(y, at) + 4, text_anchor="end") for at, text in y.ticks]
    below = HEIGHT - BOTTOM + 15
    drawing += [element("text", text, x=_along(x, at), y=below, text_anchor="middle") for at, text in x.ticks]
    drawing.append(element("text", names[1], x=0, y=11))
    drawing.append(element("text", names[0], x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end"))
    return drawing


def _across(y: float, kind: str) -> Markup:
    return element("path", d=f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", class_=kind)


def _along(x: Scale, value: float) -> float:
    return LEFT + x.at(value) * (WIDTH - LEFT - RIGHT)


def _up(y: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - y.at(value) * (HEIGHT - BOTTOM - TOP)


def _shape(series: int, x: float, y: float, class_: str | None = None) -> Markup:
    """Draw the shape of a series: circle, square, triangle, diamond, or inverted triangle."""
    kind, r = series % 5, 3.4
    if kind == 0:
        return element("circle", cx=float(x), cy=float(y), r=r, class_=class_)
    corners: list[tuple[float, float]] = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0.0, -4.4), (4.0, 3.0), (-4.0, 3.0)],
        3: [(0.0, -4.6), (4.6, 0.0), (0.0, 4.6), (-4.6, 0.0)],
        4: [(0.0, 4.4), (4.0, -3.0), (-4.0, -3.0)],
    }[kind]
    return element("path", d="M" + "L".join(f"{x + a:.1f} {y + b:.1f}" for a, b in corners) + "Z", class_=class_)


def _cut(name: str, room: float) -> str:
    """Shorten a long name in the middle, since many names share a beginning."""
    max_letters = max(4, int(room / LETTER))
    if len(name) <= max_letters:
        return name
    end = (max_letters - 2) // 2  # one letter less, since some are wide
    return f"{name[: max_letters - 2 - end]}…{name[len(name) - end :]}"
