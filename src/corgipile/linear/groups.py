"""Models by group: one per value of a column, which predicts the rows of that group."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.linear import passes
from corgipile.linear.arrays import rows_of_array
from corgipile.linear.bad_values import FILLED
from corgipile.linear.encoded import encode_pass, encode_table
from corgipile.linear.features import Features
from corgipile.linear.group_sgd import GroupSGD
from corgipile.linear.group_values import Value, Values, check_group, shown
from corgipile.linear.model import Model
from corgipile.linear.multi_model import check_rates, learnt_of_model, params_of_model
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.sgd import SGD, Figures, Locate, rows_in
from corgipile.linear.standard_errors import Summary
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.sizes import OnBad, choice
from corgipile.tables import open as open_table
from corgipile.tables.table import Table

__all__ = ["Groups", "check_groups"]


@dataclass
class Groups(Model):
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

    @property
    def by(self) -> str:
        """Return the group column."""
        return str(self.params["by"])

    @property
    def groups(self) -> list[Value]:
        """Return the group values, ascending; null is a group too, the last."""
        return list(self.params["groups"])

    @property
    def outputs(self) -> int:
        """Return the number of scores per row."""
        return len(self.coef) // len(self.params["groups"])

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
        own = slice(known[group] * self.outputs, (known[group] + 1) * self.outputs)
        group_params = params_of_model(self.params, known[group])
        params = {name: value for name, value in group_params.items() if name not in ("by", "groups", "of_groups")}
        learnt = learnt_of_model(self.learnt, own)
        return Model(self.kind, self.coef[own], self.intercept[own], self.classes, params, self.history, learnt)

    def table(self) -> pa.Table:
        """Return the groups with their rows, losses and scores of the last training epoch."""
        figures = self.params["of_groups"]
        # databases reorder keys
        names = sorted(figures, key=lambda name: (name != "rows", name != "loss", name))
        return pa.table({self.by: self.groups, **{name: figures[name] for name in names}})

    def sgd(self, inputs: Features, on_bad: OnBad = "raise") -> SGD:
        """Raise: groups have no single kernel state.

        Raises:
            BadArgument: Always.
        """
        raise BadArgument("models by group have no single SGD state; of(...) returns one group's model")

    def summary(self, table: Any, label: str | None = None, weight: str | None = None) -> Summary:
        """Raise: standard errors need a single model.

        Raises:
            BadArgument: Always.
        """
        raise BadArgument("standard errors need one model: use of(...) with the rows of that group")

    def scores(self, rows: Any) -> Iterator[npt.NDArray[Any]]:
        """Yield scores, [rows, outputs], in the order of the rows."""
        if rows_of_array(rows, self.coef.dtype) is not None:
            raise BadArgument(f"models by group need the column {self.by!r}: give a table or a data frame")
        source = open_table(rows)
        check_group(source.schema, self.by, repr(source))
        table = encode_table(source, self.encoding, None)
        sgd = self._group_sgd(self.inputs(table))
        with passes.reader(sgd.inputs, NullsAsNaN(table, sgd.inputs, None)) as feeder:
            for visit, numbers, locate in _judged_rows(feeder, source, self._values()):
                yield sgd.decide_groups(rows_in(feeder.buffer, sgd.inputs, visit), visit, numbers, locate)

    def measure_table(
        self, opened: Table, column: str, weight: str | None, watch: passes.Watch | None, on_bad: OnBad = "raise"
    ) -> tuple[Figures, int]:
        """Return the figures of a table, and the number of rows left out; see `Model.measure_table`."""
        check_group(opened.schema, self.by, repr(opened))
        skip = choice(on_bad, "on_bad", OnBad) == "skip"
        table = encode_pass(opened, self.encoding, column, skip=skip)
        sgd = self._group_sgd(self.inputs(table, column), on_bad)
        sgd.eval_mode()
        sgd.begin(0.0)
        rows_read = NullsAsNaN(table, sgd.inputs, column, weight, skip=skip)
        with passes.reader(sgd.inputs, rows_read, column, weight) as feeder:
            for visit, numbers, locate in _judged_rows(feeder, opened, self._values()):
                labels, weights = feeder.buffer.dense(column), None if weight is None else feeder.buffer.dense(weight)
                rows = rows_in(feeder.buffer, sgd.inputs, visit)
                sgd.learn_groups(rows, labels, visit, numbers, locate, weights)
                if watch is not None:
                    counted = sgd.counted(visit)
                    scores = partial(_scores_of, sgd, rows, visit[counted], numbers[counted], locate)
                    passes.send_scores(watch, scores, sgd.outputs, visit[counted], labels, weights)
            return passes.check_figures(sgd.flush(), sgd, feeder), sgd.skipped

    def _values(self) -> Values:
        return Values(self.by, self.params["groups"])

    def _group_sgd(self, inputs: Features, on_bad: OnBad = "raise") -> GroupSGD:
        if not inputs.sparse:
            inputs = replace(inputs, dtype=np.promote_types(inputs.dtype, self.coef.dtype))
        known = self._values()
        sgd = GroupSGD([0] * len(known.number_of), known.describe, self.kind, inputs, self.classes, on_bad=on_bad)
        sgd.assign(self.coef, self.intercept)
        sgd.hint = FILLED
        return sgd


def check_groups(params: dict[str, Any]) -> None:
    """Raise ValueError or TypeError unless the groups in a model file are as training writes them."""
    groups, figures = params["groups"], params["of_groups"]
    if not (isinstance(groups, list) and groups and isinstance(params["by"], str) and isinstance(figures, dict)):
        raise TypeError("its groups are damaged")
    if not all(one is None or isinstance(one, str | int) for one in groups) or len({*groups}) < len(groups):
        raise ValueError("its groups are damaged")
    if not all(isinstance(part, list) and len(part) == len(groups) for part in figures.values()):
        raise ValueError("the figures of its groups are damaged")
    check_rates(params, len(groups))


def _scores_of(sgd: GroupSGD, rows: Any, visit: Any, numbers: Any, locate: Locate, some: slice) -> npt.NDArray[Any]:
    return sgd.decide_groups(rows, visit[some], numbers[some], passes.shifted(locate, some.start))


def _judged_rows(feeder: BufferedReader, source: Table, known: Values) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the visits of a table in file order, the group numbers, and a function that names a row by its place."""
    first = 0
    for step, visit in enumerate(feeder.epoch(0)):
        batch = source.read(first, first + len(visit), [known.column])
        yield visit, known.known(batch.column(0), first, repr(source)), passes.row_at(feeder, 0, step)
        first += len(visit)
