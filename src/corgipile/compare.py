"""Trains one model by every order of the field on one table, and measures each."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from corgipile import linear, orders, tables
from corgipile.about import column
from corgipile.errors import BadArgument
from corgipile.loader.feeder import Feeder
from corgipile.orders import Order
from corgipile.quality import Report, measure
from corgipile.reshuffle import reshuffle
from corgipile.sizes import Size
from corgipile.tables import Table

__all__ = ["ORDERS", "Result", "compare"]

SHUFFLE_ONCE = "shuffle_once"
ORDERS = (
    "no_shuffle",
    "sliding_window",
    "reservoir",
    "block_only",
    "corgipile",
    "riffle",
    "balanced",
    "full",
    SHUFFLE_ONCE,
)
Watch = Callable[[str, int, int, dict[str, Any]], None]


@dataclass(frozen=True)
class Result:
    """What one order did.

    Attributes:
        order: Its name.
        metric: What ``score`` is: "accuracy" or "r2".
        score: Of held-out rows where given, else of the rows trained on, after the last epoch.
        loss: Mean training loss of the last epoch.
        seconds: Seconds of an epoch, median.
        rows_per_second: Rows visited in an epoch by these seconds.
        bytes_read: Bytes read in an epoch.
        buffer_bytes: Bytes of rows in memory at most.
        deff: Measured design effect of a batch; 1.0 is a full shuffle.
        prefix: Measured prefix discrepancy.
        expected_score: Score of each epoch, first to last.
        setup_seconds: Seconds spent once, before the first epoch, to write the table in another order.
    """

    order: str
    metric: str
    score: float
    loss: float
    seconds: float
    rows_per_second: float
    bytes_read: int
    buffer_bytes: int
    deff: float
    prefix: float
    scores: tuple[float, ...]
    setup_seconds: float = 0.0
