"""Sliding window: TensorFlow's shuffle buffer."""

from dataclasses import dataclass
from typing import ClassVar

from corgipile.orders.streaming import Streaming


@dataclass(frozen=True, kw_only=True)
class SlidingWindow(Streaming):
    """Visit a random row of a window over the stored order and replace it by the next one (``tf.data`` shuffle).

    Example:
        >>> import numpy as np
        >>> from corgipile.orders import Blocks, Key, visited_rows
        >>> order = SlidingWindow(block=4, buffer=3).fit(12, 8, None)
        >>> visits = np.concatenate(list(visited_rows(order, Blocks(12, even=4), Key(seed=0))))
        >>> sorted(visits.tolist()) == list(range(12))
        True
    """

    name: ClassVar[str] = "sliding_window"
    reservoir: ClassVar[bool] = False
