"""Checks for your own table, order or training loop, to call from a test.

Each check returns nothing, or raises `LawBroken`, an ``AssertionError`` that names the broken law and where.

Example:
    >>> from corgipile.orders import CorgiPile
    >>> check_order(CorgiPile(), rows=300)
"""

from corgipile.testing.laws import LawBroken
from corgipile.testing.loaders import check_loader
from corgipile.testing.orders import (
    check_order,
    check_pass,
    check_seeds,
    check_slots,
    check_start,
    check_world,
    measure_order,
)
from corgipile.testing.shuffles import Measured
from corgipile.testing.tables import check_cuts, check_damaged, check_layout, check_manners, check_rows, check_table
from corgipile.testing.wrappers import Counting, Failing, Slow

__all__ = [
    "Counting",
    "Failing",
    "LawBroken",
    "Measured",
    "Slow",
    "check_cuts",
    "check_damaged",
    "check_layout",
    "check_loader",
    "check_manners",
    "check_order",
    "check_pass",
    "check_rows",
    "check_seeds",
    "check_slots",
    "check_start",
    "check_table",
    "check_world",
    "measure_order",
]
