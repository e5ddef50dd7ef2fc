"""Charts as SVG inside a page: drawn for a phone's width, told apart by shape and colour, described in words."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from corgipile.proof.markup import Markup, element
from corgipile.proof.scales import Scale

__all__ = ["Chart", "Interval", "Line", "dots", "intervals", "key", "lines"]

SERIES = 9  # colours, of the style sheet
WIDTH, HEIGHT = 360, 230
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 24, 34
ROW, LETTER = 15, 6.2  # of intervals; of text, about
SIDE = 150  # of a chart of dots
NAMES = 120  # room for names of intervals, at most


class Line(NamedTuple):
    """Points that are joined.

    Attributes:
        name: What it is of.
        points: Its points; those that are not finite are left out.
        series: Its colour and shape; the first is the one that the page is about.
        joined: Whether a line joins them.
        chosen: Which of the points is marked, by number.
    """

    name: str
    points: Sequence[tuple[float, float]]
    series: int = 0
    joined: bool = True
    chosen: int | None = None


class Interval(NamedTuple):
    """A value and how far off it may be.

    Attributes:
        name: What it is of.
        value: The value.
        half: Half the width of its interval; 0 for none.
        series: Its colour and shape.
        expected: What was predicted; None for nothing.
    """

    name: str
    value: float
    half: float = 0.0
    series: int = 0
    expected: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart, and its numbers as a table.

    Attributes:
        title: What it shows.
        said: The same in a sentence with its numbers, for who does not see it.
        drawing: Its elements, of a box of ``width`` by ``height``.
        head: Names of the columns of its table.
        rows: The cells.
    """

    title: str
    said: str
    drawing: Sequence[Markup]
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    width: int = WIDTH
    height: int = HEIGHT


def lines(given: Sequence[Line], x: Scale, y: Scale, names: tuple[str, str], mark: float | None = None) -> list[Markup]:
    """Draw lines in a frame.

    Args:
        given: The lines; the first is drawn last, above the others.
        x: The scale along.
        y: The scale upwards.
        names: What the scales are of.
        mark: A number of the scale upwards that is marked.
    """
    made = _frame(x, y, names)
    if mark is not None and y.low <= mark <= y.high:
        made.append(_across(_up(y, mark), "mark"))
    for line in reversed(given):
        points = [(_along(x, a), _up(y, b)) for a, b in line.points if math.isfinite(a) and math.isfinite(b)]
        colour = f"s{line.series % SERIES}"
        if line.joined and len(points) > 1:
            kind = "line strong" if line is given[0] else "line"
            way = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
            made.append(element("path", d=way, class_=f"{colour} {kind}"))
        few = points if len(points) <= 12 else points[-1:]
        made += [element("g", *(_shape(line.series, a, b) for a, b in few), class_=f"{colour} fill")]
        if line.chosen is not None:
            a, b = line.points[line.chosen]
            made.append(element("circle", cx=_along(x, a), cy=_up(y, b), r=7, class_=f"{colour} line"))
    return made


def dots(points: Iterable[tuple[float, float]], series: int, names: tuple[str, str]) -> list[Markup]:
    """Draw dots in a square, of places from 0 to 1.

    Example:
        >>> "M10.0 " in "".join(dots([(0, 0)], 0, ("", "")))
        True
    """
    inner, edge = SIDE - 20, 10
    found = "".join(f"M{edge + a * inner:.1f} {edge + (1 - b) * inner:.1f}h0" for a, b in points)
    return [
        element("rect", x=edge - 4, y=edge - 4, width=inner + 8, height=inner + 8, class_="grid"),
        element("path", d=found or "M0 0", class_=f"s{series % SERIES} dots"),
        element("text", names[0], x=edge + inner / 2, y=SIDE + 7, text_anchor="middle"),
        element(
            "text",
            names[1],
            x=2,
            y=edge + inner / 2,
            text_anchor="middle",
            transform=f"rotate(-90 2 {edge + inner / 2})",
        ),
    ]


def intervals(given: Sequence[Interval], x: Scale, name: str, mark: float | None = None) -> tuple[list[Markup], int]:
    """Draw values below one another, each with its interval; a name is written where it differs from the one before.

    Returns:
        The drawing, and its height.
    """
    left = min(NAMES, max((len(one.name) for one in given), default=0) * LETTER) + 10
    gaps = [at > 0 and one.name != given[at - 1].name for at, one in enumerate(given)]
    ends = [10 + ROW * (at + 1) + 7 * sum(gaps[: at + 1]) for at in range(len(given))]
    bottom = (ends or [10])[-1] + 2

    def place(value: float) -> float:
        return left + x.at(value) * (WIDTH - RIGHT - left)

    made = [element("path", d=f"M{place(at):.1f} 8V{bottom}", class_="grid") for at, _ in x.ticks]
    made += [element("text", text, x=place(at), y=bottom + 14, text_anchor="middle") for at, text in x.ticks]
    made.append(element("text", name, x=WIDTH - RIGHT, y=bottom + 28, text_anchor="end"))
    if mark is not None:
        made.append(element("path", d=f"M{place(mark):.1f} 4V{bottom}", class_="mark"))
    for at, (one, end) in enumerate(zip(given, ends, strict=True)):
        y, colour = end - ROW / 2, f"s{one.series % SERIES}"
        if not at or gaps[at]:
            made.append(element("text", _cut(one.name, left - 10), x=0, y=y + 4, class_="name"))
        if one.half:
            ends_at = place(one.value - one.half), place(one.value + one.half)
            made.append(element("path", d=f"M{ends_at[0]:.1f} {y}H{ends_at[1]:.1f}", class_=f"{colour} line"))
        if one.expected is not None:
            made.append(_shape(3, place(one.expected), y, class_=f"{colour} line hollow"))
        made.append(element("g", _shape(one.series, place(one.value), y), class_=f"{colour} fill"))
    return made, bottom + 32


def key(names: Sequence[tuple[str, int]]) -> Markup:
    """Say which colour and shape is which, as a list."""

    def item(name: str, series: int) -> Markup:
        line = element("path", d="M0 6H28", class_=f"s{series % SERIES} line")
        shape = element("g", _shape(series, 14, 6), class_=f"s{series % SERIES} fill")
        return element("li", element("svg", line, shape, viewBox="0 0 28 12", aria_hidden="true"), name)

    return element("ul", *(item(*one) for one in names), class_="key", aria_label="Key")


def _frame(x: Scale, y: Scale, names: tuple[str, str]) -> list[Markup]:
    made = [_across(_up(y, at), "grid") for at, _ in y.ticks]
    made += [element("text", text, x=LEFT - 6, y=_up(y, at) + 4, text_anchor="end") for at, text in y.ticks]
    made += [
        element("text", text, x=_along(x, at), y=HEIGHT - BOTTOM + 15, text_anchor="middle") for at, text in x.ticks
    ]
    made.append(element("text", names[1], x=0, y=11))
    made.append(element("text", names[0], x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end"))
    return made


def _across(y: float, kind: str) -> Markup:
    return element("path", d=f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", class_=kind)


def _along(x: Scale, value: float) -> float:
    return LEFT + x.at(value) * (WIDTH - LEFT - RIGHT)


def _up(y: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - y.at(value) * (HEIGHT - BOTTOM - TOP)


def _shape(series: int, x: float, y: float, class_: str | None = None) -> Markup:
    """Draw the shape of a series: circle, square, triangle, diamond, and so on."""
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
    """Leave out the middle of a name that is too long: many begin alike."""
    most = max(4, int(room / LETTER))
    if len(name) <= most:
        return name
    end = (most - 2) // 2  # one letter less, lest wide ones reach into the drawing
    return f"{name[: most - 2 - end]}…{name[len(name) - end :]}"
