"""The values of a column that tells groups of rows apart, and the number of each."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.arrow_memory import frugal
from corgipile.errors import BadArgument, BadSchema, BadValue, BudgetTooSmall
from corgipile.features.choose import require
from corgipile.features.encoders import plain, plain_type
from corgipile.tables.arrow.spans import flat
from corgipile.tables.scan import scan_column
from corgipile.tables.table import Table

__all__ = ["Value", "Values", "check_group", "find_groups"]

MOST_GROUPS = 1 << 20
SHOWN = 5
Value = str | int | bool | None
Codes = npt.NDArray[np.unsignedinteger[Any]]


class Values:
    """Groups by value, each with its number; null is a value of its own.

    Args:
        column: The column.
        values: Those that are known.

    Example:
        >>> known = Values("region", ["north", None])
        >>> known.numbers(pa.array([None, "north"])).tolist(), known.told(1)
        ([1, 0], "group null of 'region'")
    """

    def __init__(self, column: str, values: Iterable[Value] = ()) -> None:
        self.column = column
        self.number_of = {value: number for number, value in enumerate(values)}

    def numbers(self, column: pa.Array, *, learn: bool = False) -> npt.NDArray[np.int64]:
        """Return the number of each value, -1 of one that is not known; or learn what it is."""
        found = plain(column).dictionary_encode("encode")
        values = found.dictionary.to_pylist()
        if learn:
            for value in values:
                self.number_of.setdefault(value, len(self.number_of))
            if len(self.number_of) > MOST_GROUPS:
                raise _beyond(self.column)
        kind = next((type(value) for value in self.number_of if value is not None), None)  # since True equals 1
        found_at = [self.number_of.get(value, -1) if value is None or type(value) is kind else -1 for value in values]
        known = np.array(found_at, np.int64)
        return known.take(flat(found.indices))

    def known(self, column: pa.Array, first: int, whose: str) -> npt.NDArray[np.int64]:
        """Return the number of each value.

        Args:
            column: The values.
            first: The number of their first row.
            whose: The table, for errors.

        Raises:
            BadValue: One is of no group that there is a model of.
        """
        numbers = self.numbers(column)
        if (unknown := np.flatnonzero(numbers < 0)).size:
            at, some = int(unknown[0]), [shown(value) for value in [*self.number_of][:SHOWN]]
            more = "" if len(self.number_of) <= SHOWN else f" and {len(self.number_of) - SHOWN} more"
            raise BadValue(
                f"row {first + at} of {whose} is of group {shown(column[at].as_py())} of {self.column!r}, of which "
                f"there is no model; there are models of {', '.join(some)}{more}"
            )
        return numbers

    def told(self, number: int) -> str:
        """Return how a group is called."""
        return f"group {shown([*self.number_of][number])} of {self.column!r}"


def shown(value: Value) -> str:
    """Return a value as messages have it."""
    return "null" if value is None else repr(value)


def check_group(schema: pa.Schema, name: str, whose: str) -> None:
    """Raise unless a column tells groups apart.

    Raises:
        MissingColumn: There is no such column.
        BadSchema: Its values are none that groups are told apart by.
    """
    require(schema, [name], whose)
    kind, types = plain_type(schema.field(name).type), pa.types
    if not (types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind)):
        raise BadSchema(
            f"column {name!r} of {whose} is {kind}; groups are told apart by text, whole numbers or booleans"
        )


def find_groups(
    table: Table, name: str, most: float = math.inf, told: Callable[[int], str] = str
) -> tuple[list[Value], Codes]:
    """Return the groups of a table, ascending, null last, and the number of each row's.

    Args:
        table: The table.
        name: The column that tells them apart.
        most: How many there may be.
        told: Says of how many there are what would do; asked for where there are too many.

    Raises:
        BudgetTooSmall: There are more than ``most``, which is known once they are seen.

    Example:
        >>> from corgipile.tables import open
        >>> groups, codes = find_groups(open(pa.table({"g": ["b", None, "a", "b"]})), "g")
        >>> groups, codes.tolist()
        (['a', 'b', None], [1, 2, 0, 1])
    """
    check_group(table.schema, name, repr(table))
    seen, codes = Values(name), np.zeros(len(table), np.uint8)
    with frugal():
        for start, column in scan_column(table, name):
            numbers = seen.numbers(column, learn=True)
            if len(seen.number_of) > most:
                raise _too_many(int(most), name, told(_count(table, name)))
            wanted = np.min_scalar_type(len(seen.number_of))
            if wanted.itemsize > codes.itemsize:
                codes = codes.astype(wanted)
            codes[start : start + len(numbers)] = numbers
    ordered: list[Any] = sorted(value for value in seen.number_of if value is not None)
    groups = [*ordered, *([None] if None in seen.number_of else [])]
    rank = np.empty(len(groups), codes.dtype)
    rank[[seen.number_of[value] for value in groups]] = np.arange(len(groups))
    return groups, np.take(rank, codes, out=codes)


def _beyond(name: str) -> BadArgument:
    return BadArgument(f"column {name!r} has more than {MOST_GROUPS} values, too many for groups")


def _too_many(most: int, name: str, told: str) -> BudgetTooSmall:
    return BudgetTooSmall(
        f"column {name!r} has more than {most} groups, more models than half of the memory holds: {told}, "
        "or a column of fewer values"
    )


def _count(table: Table, name: str) -> int:
    """Return how many groups there are, of which hashes are kept: there may be too many to keep."""
    found = np.zeros(0, np.int64)
    for _, column in scan_column(table, name):
        values = pc.unique(plain(column)).to_pylist()
        found = np.union1d(found, np.fromiter((hash(repr(value)) for value in values), np.int64, len(values)))
        if len(found) > MOST_GROUPS:
            raise _beyond(name)
    return len(found)
