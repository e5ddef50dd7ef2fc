"""Group columns: their distinct values, and the group number of each row."""

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
from corgipile.tables.scan import scan_column
from corgipile.tables.spans import flat
from corgipile.tables.table import Table

__all__ = ["Value", "Values", "check_group", "find_groups"]

MAX_GROUPS = 1 << 20
MAX_SHOWN = 5
Value = str | int | bool | None
Codes = npt.NDArray[np.unsignedinteger[Any]]


class Values:
    """The group number of each value; null is a value too.

    Example:
        >>> known = Values("region", ["north", None])
        >>> known.numbers(pa.array([None, "north"])).tolist(), known.describe(1)
        ([1, 0], "group null of 'region'")
    """

    def __init__(self, column: str, values: Iterable[Value] = ()) -> None:
        self.column = column
        self.number_of = {value: number for number, value in enumerate(values)}

    def numbers(self, column: pa.Array, *, learn: bool = False) -> npt.NDArray[np.int64]:
        """Return the number of each value; unknown values get -1, or with ``learn`` a new number."""
        encoded = plain(column).dictionary_encode("encode")
        values = encoded.dictionary.to_pylist()
        if learn:
            for value in values:
                self.number_of.setdefault(value, len(self.number_of))
            if len(self.number_of) > MAX_GROUPS:
                raise _too_many_values(self.column)
        kind = next((type(value) for value in self.number_of if value is not None), None)  # True equals 1
        numbers = [self.number_of.get(value, -1) if value is None or type(value) is kind else -1 for value in values]
        return np.array(numbers, np.int64).take(flat(encoded.indices))

    def known(self, column: pa.Array, first: int, whose: str) -> npt.NDArray[np.int64]:
        """Return the number of each value, the first that of row ``first``; raise BadValue if a value has no model."""
        numbers = self.numbers(column)
        if (unknown := np.flatnonzero(numbers < 0)).size:
            at, examples = int(unknown[0]), [shown(value) for value in [*self.number_of][:MAX_SHOWN]]
            more = "" if len(self.number_of) <= MAX_SHOWN else f" and {len(self.number_of) - MAX_SHOWN} more"
            raise BadValue(
                f"row {first + at} of {whose} is of group {shown(column[at].as_py())} of {self.column!r}, which has no "
                f"model; there are models of {', '.join(examples)}{more}"
            )
        return numbers

    def describe(self, number: int) -> str:
        """Return a group's name in messages."""
        return f"group {shown([*self.number_of][number])} of {self.column!r}"


def shown(value: Value) -> str:
    """Return a value's text in messages."""
    return "null" if value is None else repr(value)


def check_group(schema: pa.Schema, name: str, whose: str) -> None:
    """Raise unless a column can define groups."""
    require(schema, [name], whose)
    kind, types = plain_type(schema.field(name).type), pa.types
    if not (types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind)):
        raise BadSchema(f"column {name!r} of {whose} is {kind}; groups must be text, integers or booleans")


def find_groups(
    table: Table, name: str, limit: float = math.inf, describe: Callable[[int], str] = str
) -> tuple[list[Value], Codes]:
    """Return the groups of a table, ascending, null last, and the group number of each row.

    More than ``limit`` groups raise BudgetTooSmall, in which ``describe`` names the memory that a number of groups
    needs.

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
            if len(seen.number_of) > limit:
                raise BudgetTooSmall(
                    f"column {name!r} has more than {int(limit)} groups, more models than half of the memory holds: "
                    f"{describe(_count(table, name))}, or group by a column of fewer values"
                )
            needed = np.min_scalar_type(len(seen.number_of))
            if needed.itemsize > codes.itemsize:
                codes = codes.astype(needed)
            codes[start : start + len(numbers)] = numbers
    ordered: list[Any] = sorted(value for value in seen.number_of if value is not None)
    groups = [*ordered, *([None] if None in seen.number_of else [])]
    rank = np.empty(len(groups), codes.dtype)
    rank[[seen.number_of[value] for value in groups]] = np.arange(len(groups))
    return groups, np.take(rank, codes, out=codes)


def _too_many_values(name: str) -> BadArgument:
    return BadArgument(f"column {name!r} has more than {MAX_GROUPS} values, too many for groups")


def _count(table: Table, name: str) -> int:
    """Return the number of groups, counted by hashes: the values may not fit in memory."""
    hashes = np.zeros(0, np.int64)
    for _, column in scan_column(table, name):
        values = pc.unique(plain(column)).to_pylist()
        hashes = np.union1d(hashes, np.fromiter((hash(repr(value)) for value in values), np.int64, len(values)))
        if len(hashes) > MAX_GROUPS:
            raise _too_many_values(name)
    return len(hashes)
