"""Models by group: one per value of a column, which predicts the rows of that group."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.linear.arrays import rows_of_array
from corgipile.linear.features import Features
from corgipile.linear.group_sgd import GroupSGD
from corgipile.linear.group_values import Value, Values, check_group, shown
from corgipile.linear.model import Model
from corgipile.linear.multi_model import MultiModel
from corgipile.linear.sgd import SGD
from corgipile.sizes import OnBad
from corgipile.tables.table import IntArray, Table

__all__ = ["Groups"]


@dataclass
class Groups(MultiModel, named="by"):
    """Linear models with the same features and classes, one per value of a column, from ``train(by=...)``.

    Predicts and evaluates as a `Model` does, each row with the model of its group, by the column of training. A row
    of an unknown group is an error. ``coef`` and ``intercept`` hold all groups, one after another.

    Example:
        >>> import corgipile as cp
        >>> sides, labels = ["a"] * 100 + ["b"] * 100, [0, 1] * 50 + [1, 0] * 50
        >>> rows = pa.table({"x": [-1.0, 1.0] * 100, "side": sides, "label": labels})
        >>> models = cp.train(rows, by="side")
        >>> models.predict(rows)[[0, 1, 100, 101]].tolist(), models.of("b").predict(np.array([[1.0]])).tolist()
        ([0, 1, 1, 0], [0])
    """

    each, own = "groups", ("by", "groups", "of_groups")
    single = "the rows of that group"

    @property
    def by(self) -> str:
        """Return the group column."""
        by: str = self.params["by"]
        return by

    @property
    def groups(self) -> list[Value]:
        """Return the group values, ascending; null is a group too, the last."""
        return self.values

    @property
    def outputs(self) -> int:
        """Return the number of scores per row."""
        return len(self.coef) // self.models

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that prediction needs."""
        return (*self.features, self.by)

    def of(self, group: Value) -> Model:
        """Return the model of one group.

        Raises:
            BadArgument: The group is unknown.
        """
        known = self._values().number_of
        if group not in known:
            raise BadArgument(f"group {shown(group)} of {self.by!r} has no model")
        return self.model(known[group])

    def table(self) -> pa.Table:
        """Return the groups with their rows, losses and scores of the last training epoch."""
        figures = self.params["of_groups"]
        # databases reorder keys
        names = sorted(figures, key=lambda name: (name != "rows", name != "loss", name))
        return pa.table({self.by: self.groups, **{name: figures[name] for name in names}})

    def scores(self, rows: Any) -> Iterator[npt.NDArray[Any]]:
        """Yield scores, [rows, outputs], in the order of the rows."""
        if rows_of_array(rows, self.coef.dtype) is not None:
            raise BadArgument(f"models by group need the column {self.by!r}: give a table or a data frame")
        return super().scores(rows)

    def check(self) -> None:
        """Raise ValueError or TypeError unless the groups in a model file are as training writes them."""
        groups, figures = self.params["groups"], self.params["of_groups"]
        if not (
            isinstance(groups, list) and groups and isinstance(self.params["by"], str) and isinstance(figures, dict)
        ):
            raise TypeError("its groups are damaged")
        if not all(one is None or isinstance(one, str | int) for one in groups) or len({*groups}) < len(groups):
            raise ValueError("its groups are damaged")
        if not all(isinstance(part, list) and len(part) == len(groups) for part in figures.values()):
            raise ValueError("the figures of its groups are damaged")
        super().check()

    def _values(self) -> Values:
        return Values(self.by, self.params["groups"])

    def _new_sgd(self, inputs: Features, on_bad: OnBad) -> SGD:
        known = self._values()
        return GroupSGD([0] * self.models, known.describe, self.kind, inputs, self.classes, on_bad=on_bad)

    def _route(self, source: Table) -> Any:
        check_group(source.schema, self.by, repr(source))
        return partial(_groups_of, source, self._values())


def _groups_of(source: Table, known: Values, rows: IntArray) -> npt.NDArray[np.int64]:
    """Return the group numbers of a run of rows."""
    first = int(rows[0])
    return known.known(source.read(first, first + len(rows), [known.column]).column(0), first, repr(source))
