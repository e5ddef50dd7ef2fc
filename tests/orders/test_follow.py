"""Following steps without data: invalid steps are refused."""

import numpy as np
import pytest

from corgipile import _kernel
from corgipile.orders import Blocks, Key, Step, visited_rows


class Steps:
    """An order of some steps over four slots."""

    def __init__(self, *steps):
        self._steps = [Step(np.array(extents), *map(np.array, slots)) for extents, *slots in steps]

    def slots(self, blocks):
        return 4

    def steps(self, blocks, key, start=0):
        return iter(self._steps[start:])


def test_rows_wait_in_their_slots_and_those_that_are_not_wanted_nowhere():
    order = Steps(([[4, 7], [1, 3]], [3, -1, 0, 1, 2], [0, 3]), ([[8, 9]], [3], [3, 1, 2]))
    assert [rows.tolist() for rows in visited_rows(order, Blocks(9, even=1), Key(0))] == [[6, 4], [8, 1, 2]]


@pytest.mark.parametrize(
    "step",
    [
        ([[0, 2]], [0], [0]),
        ([[0, 1]], [0, 1], [0]),
        ([[0, 1]], [4], [0]),
        ([[0, 1]], [-2], [0]),
        ([[0, 1]], [0], [4]),
        ([[0, 1]], [0], [-1]),
    ],
)
def test_what_is_no_step_is_refused(step):
    with pytest.raises(ValueError, match="extents must match `into`, and slots must lie within row_of"):
        list(visited_rows(Steps(step), Blocks(2, even=1), Key(0)))


def test_room_for_rows_is_checked():
    one = np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="slots"):
        _kernel.follow(np.array([[0, 1]]), one, one, np.zeros(4, np.int64), np.empty(0, np.int64))
    with pytest.raises(TypeError, match="into"):
        _kernel.follow(np.array([[0, 1]]), np.zeros(1), one, np.zeros(4, np.int64), np.empty(1, np.int64))
