"""Scales of charts: positions of numbers, and labels of axes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corgipile.sizes import format_bytes

__all__ = ["Scale", "bytes_scale", "linear", "log", "short"]

MAX_LOG_TICKS = 6  # ticks of a logarithmic scale at most


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic scale, with marked numbers and their labels."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return a number's position, from 0 to 1, clamped at the ends.

        Example:
            >>> linear([0, 10]).at(5), log([1, 100]).at(10), log([1, 100]).at(0)
            (0.5, 0.5, 0.0)
        """
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(values: Iterable[float], *, zero: bool = False, most: int = 5, whole: bool = False) -> Scale:
    """Return a scale for finite numbers, with ticks at round, or ``whole``, ones and at most so many intervals.

    With ``zero`` it starts at 0 unless numbers are negative.

    Example:
        >>> [text for _, text in linear([0.02, 0.97], zero=True).ticks]
        ['0', '0.2', '0.4', '0.6', '0.8', '1']
        >>> [text for _, text in linear([1, 2], zero=True, whole=True).ticks]
        ['0', '1', '2']
    """
    low, high = _ends(values)
    low = min(low, 0.0) if zero else low
    if high == low:
        low, high = (0.0, high or 1.0) if zero and high >= 0 else (low - abs(low or 1) / 2, high + abs(high or 1) / 2)
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [size * power for size in (1, 2, 2.5, 5, 10)] + [1.0] * whole
    step = next(size for size in steps if size >= rough * (1 - 1e-9) and not (whole and size % 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((at * step, short(at * step, step)) for at in range(first, last + 1))
    return Scale(first * step, last * step, ticks)


def log(values: Iterable[float], *, least: float = 1e-3) -> Scale:
    """Return a logarithmic scale for numbers; those below ``least`` lie at its lower end.

    Example:
        >>> [text for _, text in log([0.7, 300]).ticks]
        ['1', '10', '100']
    """
    low, high = (max(end, least) for end in _ends(values))
    power = math.floor(math.log10(low))
    marks = [float(f"{size}e{at}") for at in range(power, math.ceil(math.log10(high)) + 2) for size in (1, 2, 5)]
    first = max(at for at, mark in enumerate(marks) if mark <= low * (1 + 1e-9))
    last = max(first + 1, next(at for at, mark in enumerate(marks) if mark >= high * (1 - 1e-9)))
    shown = marks[first : last + 1]
    if len(shown) > MAX_LOG_TICKS:
        powers = [mark for mark in shown if f"{mark:e}".startswith("1")]
        shown = powers[:: -(-len(powers) // MAX_LOG_TICKS)]
    return Scale(marks[first], marks[last], tuple((mark, f"{mark:g}") for mark in shown), logarithmic=True)


def bytes_scale(values: Sequence[float]) -> Scale:
    """Return a logarithmic scale of bytes, marked at powers of 4.

    Example:
        >>> [text for _, text in bytes_scale([16 << 10, 1 << 20]).ticks]
        ['16 KB', '64 KB', '256 KB', '1 MB']
    """
    low, high = (max(end, 1.0) for end in _ends(values))
    first, last = math.floor(math.log(low, 4) + 1e-9), math.ceil(math.log(high, 4) - 1e-9)
    last = max(last, first + 1)
    step = -(-(last - first) // 5)
    ticks = tuple((4.0**at, format_bytes(4.0**at)) for at in range(first, last + 1, step))
    return Scale(4.0**first, 4.0**last, ticks, logarithmic=True)


def short(value: float, step: float = 0.0) -> str:
    """Format a number briefly; ``step``: the smallest visible difference.

    Example:
        >>> short(1_500_000), short(0.30000000000000004, 0.1), short(12_000), short(0.0123, 0.0001)
        ('1.5M', '0.3', '12k', '0.0123')
    """
    if value == 0:
        return "0"
    size = max(abs(value), step)
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if size >= scale:
            return f"{value / min(scale, 1e3 if unit == 'k' else scale):.4g}{unit}"
    places = max(0, -math.floor(math.log10(step) + 1e-9) + 1) if step else 0
    return f"{round(value, places):.6g}" if step else f"{value:.4g}"


def _ends(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 1.0)
