"""The training task: its rows, features, label and classes, found from the settings."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadValue, BudgetTooSmall, CorgiPileError
from corgipile.features import Encoding
from corgipile.features.choose import describe_left_out
from corgipile.features.fit import chosen_columns
from corgipile.linear import passes
from corgipile.linear.classes import Labels, check_classes, check_label, check_weight, weights_of
from corgipile.linear.encoded import as_numbers, encode_table, encoding_of, hashed_columns, named_columns
from corgipile.linear.features import Features, find_inputs, log_unknown, warn_left_out
from corgipile.linear.group_values import check_group
from corgipile.linear.model import Model
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.precheck import precheck
from corgipile.linear.scaling import Scaling
from corgipile.linear.schedule import Schedule, uses_average
from corgipile.linear.sgd import SGD
from corgipile.loader.buffered_reader import ALL, BufferedReader
from corgipile.loader.default_order import cap_buffer
from corgipile.loader.materialize import bring
from corgipile.losses import Loss, loss_of, most_classes
from corgipile.orders import Shard
from corgipile.settings import Settings, TrainArguments, TrainSettings, declared
from corgipile.sizes import OnBad, Size, format_bytes, parse_bytes
from corgipile.steps import step_of
from corgipile.suggestions import listed
from corgipile.tables import open as open_table
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.table import Table
from corgipile.tables.unit_check import check_decoding

__all__ = ["MIN_IDS", "Record", "Task", "memory_for_rows", "open_nonempty", "order_of", "prepare", "widened"]

MIN_IDS = 100  # more classes may be ids
MAX_SHARE = 3 / 4  # of the budget
WEIGHT_BYTES = 24  # per weight, during training
DEFAULT_STEP = step_of("auto")  # no step has a larger state per feature
SCALING_HELPS = "standardize=True would help"
Record = dict[str, Any]
K = TypeVar("K", bound=SGD)
log = logging.getLogger("corgipile")


@dataclass
class Task:
    """A training task: rows, features and label; ``class_weight_setting`` is as the user gave it."""

    source: Table
    inputs: Features
    label: str
    kind: str
    labels: Labels
    batch_size: int
    intercept: bool
    on_bad: OnBad
    encoding: Encoding | None = None
    average: bool = False
    weight: str | None = None
    class_weight_setting: str | Mapping[str, float] | None = None
    class_weight: npt.NDArray[np.float64] | None = None
    standardize: bool = False
    keep_flags: bool = False  # leave features of 0 and 1 unscaled, if standardize was not set
    scaling: Scaling | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """Return the classes; this reads the labels unless an order has read them."""
        return self.labels.find()

    @property
    def loss(self) -> Loss:
        """Return the loss to minimise."""
        return loss_of(self.kind, len(self.classes))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the feature columns as the table stores them."""
        return self.inputs.columns if self.encoding is None else self.encoding.columns

    @property
    def row_bytes(self) -> float:
        """Return the stored bytes of a row: its features, label and weight."""
        return row_bytes(self.source, [*self.inputs.columns, self.label, *filter(None, [self.weight])])

    def table(self) -> NullsAsNaN:
        """Return the table with nulls as NaN."""
        return NullsAsNaN(self.source, self.inputs, self.label, self.weight, skip=self.on_bad == "skip")

    def feeder(
        self, order: Any, memory: Size | None, seed: int, shard: Shard = ALL, *, keep: bool = False
    ) -> BufferedReader:
        """Open a reader of the training rows, or of a rank's shard; ``keep``: it may cache few rows."""
        rows, sketch = (self.table(), self.label, order, memory_for_rows(self, memory), seed), self.labels.sketch
        options: dict[str, Any] = {"weight": self.weight, "shard": shard, "update": self.batch_size, "keep": keep}
        return self.inputs.feeder(*rows, sketch=sketch, **options)

    def with_statistics(self, feeder: BufferedReader | None = None) -> Self:
        """Read the labels unless they were read, and the features if they are standardised; return the full task.

        Features that a reader caches are not read again.
        """
        classes, rows = self.labels.find(), len(self.source)
        if len(classes) > MIN_IDS and 2 * len(classes) > rows:
            self.note(f"label {self.label!r} has {len(classes)} values in {rows} rows: does it hold ids?")
        found = replace(self, class_weight=weights_of(self.class_weight_setting, self.labels, self.kind))
        if not self.standardize or self.scaling is not None:
            return found
        moments, centred = passes.moments(self.inputs, self.table(), feeder), not self.inputs.sparse and self.intercept
        return replace(found, scaling=moments.scaling(centred=centred, keep_flags=self.keep_flags))

    def sgd(self, schedule: Schedule, *, scaled: bool = True, left_out: int = 0) -> SGD:
        """Return an untrained SGD kernel, which standardises rows itself with ``scaled``.

        ``left_out`` rows are not its own.
        """
        return self.new_sgd(SGD, schedule, scaled=scaled, left_out=left_out)

    def new_sgd(self, make: Callable[..., K], schedule: Schedule, *, scaled: bool = True, left_out: int = 0) -> K:
        """Return what ``make`` creates for this task: an SGD kernel, or several."""
        return make(
            self.kind,
            self.inputs,
            self.classes,
            batch_size=self.batch_size,
            l2=schedule.l2,
            intercept=self.intercept,
            average=self.average,
            step=schedule.step,
            l1=schedule.l1,
            max_norm=schedule.max_norm,
            on_bad=self.on_bad,
            scaling=self.scaling if scaled else None,
            class_weight=self.class_weight,
            rows=len(self.source) - left_out,
        )

    def facts(self) -> Record:
        """Return the facts of the task that a model stores."""
        listed = {*self.columns, *self.inputs.columns, self.label, *self.inputs.left_out}
        return {
            "features": list(self.columns),
            "lists": self.inputs.lists,
            **({"encoding": self.encoding.state()} if self.encoding else {}),
            "left_out": self.inputs.left_out,
            "others": [name for name in self.source.schema.names if name not in listed],
            "notes": self.notes,
            "standardize": self.scaling is not None and self.scaling.setting(keep_flags=self.keep_flags),
        }

    def params(self, given: TrainArguments, feeder: BufferedReader, step: str) -> Record:
        """Return the settings and facts that a model stores."""
        settings = {name: getattr(given, name) for name in declared(TrainSettings)}
        more = {"adaptive": given.learning_rate is None, "step": step, "average": self.average}
        return settings | self.facts() | feeder.facts() | more

    def hint_scaling(self, why: str) -> None:
        """Suggest standardised features once, if features are unscaled."""
        if self.scaling is None and not any(SCALING_HELPS in note for note in self.notes):
            self.note(f"{why}: {SCALING_HELPS}")

    def note_restart(self, before: Schedule, other: Schedule, of: str = "") -> None:
        """Log that training restarts at another rate; ``of`` names the affected models."""
        self.note(other.describe_restart(before, of))
        if other.learning_rate < before.learning_rate:
            self.hint_scaling("if features differ in scale")

    def note(self, text: str) -> None:
        """Add a note to the log and to the model."""
        self.notes.append(text)
        log.warning(text)


def memory_for_rows(task: Task, memory: Size | None, models: int = 1) -> Size | None:
    """Return the part of a budget for rows.

    So many models of hashed features may take three quarters, and are not part of it.
    """
    _check_width(task.inputs.width)
    if memory is None or task.encoding is None or task.encoding.hashing is None:
        return memory
    limit = parse_bytes(memory, whole=len(task.source) * task.row_bytes)
    taken = _bytes(task) * models
    if taken > limit * MAX_SHARE:
        usage = "the model takes" if models == 1 else f"{models} models take"
        raise BudgetTooSmall(
            f"memory is {memory!r}: {usage} {format_bytes(taken)} in training, with "
            f"hash_bits={task.encoding.hashing.bits}; give memory={int(taken / MAX_SHARE) + 1}, or fewer bits"
        )
    return limit - taken


def _check_width(width: int) -> None:
    """Raise BudgetTooSmall if the weights alone exceed the machine's memory, as one wrong index can cause."""
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if width * WEIGHT_BYTES > has:
        raise BudgetTooSmall(
            f"{width} features must fit in memory as weights, {format_bytes(width * WEIGHT_BYTES)}, got "
            f"{format_bytes(has)}: check the largest index, or hash features to fewer"
        )


def _bytes(task: Task) -> int:
    """Return the bytes of a model in training and as saved; labels are read only if there is a score per class."""
    if 0 < most_classes(task.kind) <= 2:  # any two classes will do
        task = replace(task, labels=Labels(task.source, task.label, task.kind, classes=np.arange(2)))
    sgd = task.sgd(Schedule(DEFAULT_STEP.usual, 1.0, 0.0, None, DEFAULT_STEP.name))
    return sgd.bytes + sgd.inputs.width * (sgd.outputs * 2 * sgd.inputs.dtype.itemsize + sgd.state_rows * 8)


def open_nonempty(source: Any) -> Table:
    """Open a table for training; raise BadValue if it has no rows."""
    opened = open_table(source)
    if not len(opened):
        raise BadValue(f"{opened!r} has no rows to train on")
    return opened


def order_of(order: Any, memory: Any) -> Any:
    """Return the order of training; the default memory is capped at what the order needs."""
    return cap_buffer(order) if memory == declared(TrainArguments)["memory"].default else order


def prepare(
    table: Table, settings: Settings, *, classes: Any = None, past: Model | None = None, on_bad: OnBad = "raise"
) -> Task:
    """Return the task of the settings, or of a warm start, ``past``.

    `Task.with_statistics` reads what needs the whole table.
    """
    label, model, opened = settings.label, settings.model, table
    features, skip = _resolve_features(settings.features, past), on_bad == "skip"
    weight, weighs, by = (getattr(settings, name, None) for name in ("weight", "class_weight", "by"))
    features, left = _without_weight_and_group(table, features, settings, weight, by)
    columns = [name for name in (label, weight, by) if name is not None]
    used, stored = [*_named(table, features, settings), *columns], {*table.schema.names}
    if not table.at_hand:
        check_decoding(table, [name for name in used if name in stored], settings.memory)
        bring(table, used, settings.memory)
    table = as_numbers(table, weight, once=True)
    encoding, codes = encoding_of(table, settings, features, classes, past, skip=skip)
    left_out = encoding.left_out if encoding else None
    if encoding is not None:
        table, features = encode_table(table, encoding, label, once=True, codes=codes), encoding.read_as
    elif callable(features) or features == "numeric":
        features = chosen_columns(table.schema, features, label).names
    inputs = find_inputs(table, features, label, past.width if past else None)
    inputs = inputs if left_out is None else replace(inputs, left_out=left_out)
    inputs = inputs if left is None else replace(inputs, left_out=left)
    known = past.classes if classes is None and past else classes
    texts = None if encoding is None else encoding.classes
    known = _check_given(table, label, model, known) if texts is None else check_classes(texts, model, label)
    labels = Labels(table, label, model, skip=skip, classes=known)
    if codes is not None:
        labels.keep(codes)
    options = settings.batch_size, settings.intercept, on_bad, encoding, uses_average(settings, model, past)
    task = Task(table, inputs, label, model, labels, *options, weight, weighs)
    if past is not None:
        _check_warm_start(past, task)
    return _with_scaling(task, settings.standardize, past, opened)


def _named(table: Table, features: Any, settings: Settings) -> Sequence[str]:
    """Return the feature columns; empty if they are wrong, which a later check reports."""
    with suppress(CorgiPileError):
        return [*named_columns(table.schema, features, settings).names, *hashed_columns(settings)]
    return ()


def _without_weight_and_group(
    table: Table, features: Any, settings: Settings, weight: str | None, by: str | None
) -> tuple[Any, dict[str, str] | None]:
    """Return the features without weight and group columns, and the columns left out if none were named."""
    if weight is None and by is None:
        return features, None
    if weight is not None:
        check_weight(table, weight, settings.label)
    if by is not None:
        check_group(table.schema, by, repr(table))
    for name, what in ((weight, "weight"), (by, "group")):
        if isinstance(features, list | tuple) and name in features:
            raise BadArgument(f"the {what} column {name!r} is among the features; leave it out")
    if isinstance(features, list | tuple):
        return features, None
    others = pa.schema([field for field in table.schema if field.name not in (weight, by)])
    chosen = named_columns(others, features, settings)
    return list(chosen.names), chosen.left_out if features is None else None


def _check_given(table: Table, label: str, model: str, given: Any) -> npt.NDArray[Any] | None:
    """Check the given classes."""
    if given is None or loss_of(model).numbers:
        return None
    kind, found = check_label(table, label), check_classes(given, model, label)
    if found.dtype.kind == "U":
        raise BadArgument(f"classes of label column {label!r}, {kind}, must be numbers, got {found.tolist()}")
    return found


def _with_scaling(task: Task, standardize: bool | None, past: Model | None, table: Table) -> Task:
    """Log the features of a task, and standardise it if requested or needed."""
    inputs, seen = task.inputs, precheck(task.table(), task.inputs, intercept=task.intercept)
    log.info("features: %s (%d); label: %s", listed(task.columns), inputs.width, task.label)
    if inputs.left_out:
        task.note(f"columns left out: {describe_left_out(inputs.left_out)}")
        task.notes.extend(warn_left_out(table, inputs.left_out))
    for text in seen.notes():
        task.note(text)
    scaling = past.learnt.scaling if past is not None and past.learnt is not None else None
    if standardize is None and past is None and seen.unscaled:
        task.note(f"{seen.describe_scales()}: they are standardised; standardize=False turns that off")
    elif standardize is None:
        return task if scaling is None else replace(task, scaling=scaling, inputs=widened(inputs, task.source))
    elif not standardize:
        if seen.unscaled:
            task.hint_scaling(seen.describe_scales())
        return task
    keeps, inputs = standardize is None, widened(inputs, task.source)
    return replace(task, inputs=inputs, standardize=True, keep_flags=keeps, scaling=scaling)


def widened(inputs: Features, table: Table) -> Features:
    """Read integers that float32 may not hold as float64: differences of large ones would be lost."""
    kinds = [table.schema.field(name).type for name in inputs.columns]
    wide = not inputs.lists and any(pa.types.is_integer(kind) and kind.bit_width > 16 for kind in kinds)
    return replace(inputs, dtype=np.dtype(np.float64)) if wide else inputs


def _resolve_features(features: Any, past: Model | None) -> Any:
    """Return the features to look for: a warm start's, in its order, if they are the same or not named."""
    if past is None or not past.features:
        return features
    same = isinstance(features, list | tuple) and len(features) == len(past.features)
    if features is None or (same and set(features) == set(past.features)):
        return past.features
    return features


def _check_warm_start(past: Model, task: Task) -> None:
    """Raise BadArgument unless a warm start has the same kind, features and classes."""
    log_unknown(task.source.schema, past.params, task.label)
    inputs, names = task.inputs, () if task.inputs.lists else task.inputs.columns
    known = past.features if past.names else ()
    if type(past) is not Model:
        raise BadArgument("warm_start must be a single model, got models by group or label; use of(...)")
    if past.loss != task.loss or past.width != inputs.width:
        needed = f"a {task.kind} model of {inputs.width} features"
        raise BadArgument(f"warm_start must be {needed}, got {past.kind} of {past.width}")
    if known and names and known != names:
        raise BadArgument(f"features must be those of warm_start, {listed(known)}, got {listed(names)}")
    if not np.array_equal(past.classes, task.classes):
        raise BadArgument(f"classes must be those of warm_start, {past.classes.tolist()}, got {task.classes.tolist()}")
    if not task.intercept and past.intercept.any():
        raise BadArgument("intercept=False needs a warm_start without intercept")
