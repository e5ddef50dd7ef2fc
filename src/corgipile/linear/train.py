"""Trains linear models by SGD, straight from the slots of the buffer."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadValue, CorgiPileError
from corgipile.features.choose import told
from corgipile.features.fit import chosen_columns
from corgipile.linear.classes import Labels, check_classes, check_label, check_weight
from corgipile.linear.dual_training import ORDER, DualTraining, check_settings, divided
from corgipile.linear.encoded import classes_of, encoding_of, hashed_columns, named_columns, numeric, readable
from corgipile.linear.features import Features, find_inputs, warn_left_out
from corgipile.linear.group_values import check_group
from corgipile.linear.model import Model
from corgipile.linear.precheck import precheck
from corgipile.linear.ranks import Ranks, among, order_for, shard_of
from corgipile.linear.saving import MODEL
from corgipile.linear.schedule import averaged, schedule_of
from corgipile.linear.training import Task, Training
from corgipile.linear.validation import measuring
from corgipile.linear.warm_start import check_past, wanted
from corgipile.loader.cached_rows import most_read_once
from corgipile.loader.default_order import cap_buffer
from corgipile.loader.materialize import bring
from corgipile.losses import loss_of
from corgipile.orders import Shard
from corgipile.outputs import check_target
from corgipile.settings import Settings, TrainArguments, TrainSettings, declared, takes
from corgipile.sizes import OnBad
from corgipile.suggestions import listed
from corgipile.tables import open as open_table
from corgipile.tables.read_once import read_once
from corgipile.tables.splitting import train_test_split
from corgipile.tables.table import Table
from corgipile.tables.unit_check import check_decoding

__all__ = ["begun", "order_of", "prepare", "train", "train_among"]

log = logging.getLogger("corgipile")


@takes(TrainArguments)
def train(given: TrainArguments) -> Model:  # noqa: D417 - they are those of TrainArguments
    """Train a linear model from a table of any size, by SGD or to its optimum.

    Args:
        table: A path, glob or list of them, a `Table`, a ``pyarrow.Table`` or a data frame.
        model: A loss by its name: ``"logistic"``, ``"svm"`` (hinge loss), ``"linear"`` (squared loss), ``"softmax"``,
            or another of `corgipile.losses.NAMES`; one with a parameter takes it after a colon.
        features: The feature columns; see `corgipile.linear.features.find_inputs`. Which were found, and which columns
            were left out, the log says, and ``features`` and ``left_out`` of the model.
        label: The label column, of numbers or text: two values for logistic, any number of classes for softmax, and for
            svm and ovr_logistic, which tell each class from the rest.
        encode: What feature columns that are no numbers become, ``"onehot"``, ``"ordinal"`` or ``"hash"``, or a
            dictionary of these by column; see `corgipile.features.fit_encoding`. The model keeps what was found out.
        text: A column of text, or several, whose words and n-grams of words are hashed to features, straight from the
            table; docs/guide.md says by which rule. Other columns are learnt from beside it where ``features`` names
            them. Text that is null is an error, or skipped; with ``missing`` it has no words.
        interactions: Columns that are crossed, such as ``[("city", "device"), "city"]``: each combination of what they
            say is a feature, hashed as those of text; numbers multiply. A name alone is that column.
        hash_bits: Hashed features have 2^hash_bits places; the model takes that many weights of ``memory``.
        ngrams: Words of an n-gram, at most: 2 are words and pairs of neighbours.
        missing: What stands for null and NaN in features: ``"error"``, ``"mean"`` or a number.
        epochs: Passes over the table.
        step: How gradients move weights: ``"decay"`` (one rate for all weights, multiplied by ``decay`` after each
            epoch), ``"constant"``, ``"inverse"`` (divided by the root of the number of the epoch), ``"adagrad"`` (a
            rate for each weight by the squares of its gradients), ``"adam"`` (by means of its latest gradients and of
            their squares), or ``"normalized"`` (as ``"adagrad"``, and by the size of its feature, whatever its scale;
            as Vowpal Wabbit); ``"auto"`` is the last with ``average`` and no rate to choose. None: that of
            ``warm_start``; else ``"decay"`` for numbers or where ``learning_rate`` or ``decay`` is given, ``"adagrad"``
            for classes by ``text`` alone with ``ngrams`` above 1, else ``"auto"``.
        learning_rate: Step size of the first epoch. None: the usual one of the step, 0.01 of one rate for all; where
            an epoch diverges it is begun again, from nothing, at a fifth; the first one of huber and quantile at 10
            times as much, or more, where labels are far from 0, for their steps do not grow with what is missing. The
            log and ``notes`` of the model say so. Where a regression on dense features stands still with one rate for
            all, without ``average``, it goes on at a fifth. With ``warm_start`` and the same step None is what that
            model had.
        decay: What it is multiplied by after each epoch, of ``step="decay"``.
        l2: Strength of the L2 penalty; the intercept is left alone.
        l1: Strength of the L1 penalty, which makes weights 0; both together are the elastic net.
        max_norm: The longest that the weights of all outputs together may be, by their L2 norm, intercepts aside: after
            each update they are scaled down to it. Where features are standardised, those weights are meant.
        batch_size: Rows of an update, whose gradient is their mean.
        order: An order of `corgipile.orders`, or its name; ``"balanced"`` is Riffle balanced by the label, and so is
            ``"auto"`` where the label can be read without the rows; else it is plain Riffle. Where memory holds few
            blocks and rows beside each other are alike, ``"auto"`` balances by content (``params["balance"]``). With
            ``solver="dual"`` ``"auto"`` is CorgiPile, which has most rows in memory to visit again.
        memory: Budget for rows in memory, read-ahead included. Of the default Riffle takes no more than mixes well.
        seed: Seed of the order.
        test: Another table to measure the model on after each epoch.
        validation: The share of rows that are left out and take its place, such as 0.1; which, the seed says.
        group: A column of which all rows of a value are left out, or none.
        weight: A column of what each row counts for, 0 or more: its gradient and its loss are multiplied by that. It is
            no feature. The test table has it too, and is measured by it.
        class_weight: What rows of a class count for, by class (1 where it is not named), or ``"balanced"``: the less
            the more there are of it, so that all classes count for as much. It multiplies ``weight``. The history's
            ``loss`` and score are by both; a test table is measured without.
        intercept: Whether to learn one.
        average: Predict by the mean of the weights on their way, later ones weighing more: the last half of all epochs
            has 94 % of the weight, wherever training ends. It ends the noise of the last rows; ``loss`` of the history
            is still that of the weights that learn. None: where neither a step nor a rate is named, or as
            ``warm_start`` does.
        standardize: Learn from features of mean 0 and spread 1 (sparse ones are scaled only), which takes one more pass
            over the table before the first epoch; the coefficients are for features as they are. None: if a sample of
            rows shows that SGD would suffer without, which is logged. Columns of 0 and 1 then stay unscaled if there
            are enough rows to learn them, and ``params["standardize"]`` is None, which repeats that.
        by: A column of text, whole numbers or booleans: a model for each of its values, null among them, all of the
            same features and classes, from one read of the table; a `corgipile.linear.groups.Groups`, which predicts
            each row by the model of its group (a row of another group is an error); ``of("north")`` is one model,
            ``table()`` lists them. Models and groups of rows may take half of ``memory``. A group of one row learns
            from that alone; the log says which are. A rate that nobody chose is lowered for groups that diverge at it.
        labels: In place of ``label``, where a row may have several or none: a column of lists of text or integers, or
            columns of 0 and 1. There is a model of two classes for each, all from one read of the table, in the bits
            of one trained alone by the same order; a `corgipile.linear.multilabel.LabelModels`, which predicts 0 or 1
            for each row and label. Models and the labels of rows may take half of ``memory``.
        classes: The class values, to spare the reading of the label column; not where numbers are predicted.
        tolerance: Stop when the loss improved by less than this share of it for two epochs in a row.
        patience: Stop when the loss on the held-out rows, of ``test`` or ``validation``, was not below its best
            for so many epochs; the weights that predict are those of the best epoch, ``params["best_epoch"]``, in any
            case. Going on goes on from the last ones, as if nothing had been stopped.
        warm_start: A model to go on from; its epochs count on, so 3 epochs and 2 more are 5. Its features are found by
            name.
        save: Model file, written after each epoch: from it a run that was interrupted goes on, with ``warm_start``, to
            the same bits. An earlier model that is there is replaced.
        overwrite: Let ``save`` replace a file that is no model of ours too, but never one that is read.
        on_bad: ``"skip"`` leaves out rows that the model cannot learn from (a feature or label that is null, NaN or
            infinite, a label of no class, sparse indices out of order); the history says how many (``skipped``, and
            ``test_skipped`` of the test table, where rows whose score overflows are left out in any case).
        solver: ``"sgd"``, or ``"dual"``: dual coordinate descent, which has no rate and ends at the one optimum of
            logistic, svm, squared_hinge and ovr_logistic with an ``l2`` above 0 (1 over the number of rows is the usual
            C = 1); the intercept counts in that penalty. Each row has one number more, or one a class, in memory or,
            beyond a quarter of the budget, in a file. The last record of the history has the ``objective`` and the
            ``gap`` that is left to the optimum at most, as a share; ``tolerance`` is the gap at which training ends.
            With ``weight`` and ``class_weight`` a row's C is multiplied by what it counts for, which is one number more
            of each. Settings of SGD are refused.
        inner: Of ``"dual"``: visits of each row while it is in memory, at most, as BMF and LIRS have them; more make
            fewer passes. None: 10, or where all rows are in memory as many as ``tolerance`` asks for.
        callback: Called after each epoch with its record.
        on_rows: Called after each step with the number of rows learnt; a negative number takes back those of an epoch
            that is begun again.

    Returns:
        The model; its ``history`` has one record an epoch.

    Raises:
        Diverged: The loss became NaN, infinite or grew without bound.
        BadLabel: A label is none of the model's classes.
        BadValue: A feature or label is NaN, infinite or null, or the table or the test table has no rows.

    Warns:
        DivergenceWarning: The loss ended above that of a model that never learnt.
        LeftOutWarning: A column of text is left out, though nearly all of its cells are numbers.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> rows = pa.table({"x": [-2.0, -1.0, 1.0, 2.0] * 50, "label": [0, 0, 1, 1] * 50})
        >>> model = train(rows, epochs=3, learning_rate=0.1)
        >>> model.history[-1]["accuracy"], model.predict(rows)[:4].tolist()
        (1.0, [0, 0, 1, 1])
    """
    return train_among(given, None)


def train_among(given: TrainArguments, ranks: Ranks | None) -> Model:
    """Train as `train`, on one of several ranks that meet if there are any."""
    if given.labels is not None and ranks is None:
        from corgipile.linear.label_training import train_labels  # noqa: PLC0415 - as below

        return train_labels(given)
    if given.by is None or ranks is not None:
        return _train_one(given, ranks)
    from corgipile.linear.group_training import train_groups  # noqa: PLC0415 - which prepares as this module does

    return train_groups(given)


def _train_one(given: TrainArguments, ranks: Ranks | None) -> Model:
    if loss_of(given.model).numbers and given.classes is not None:
        raise BadArgument(f"a {loss_of(given.model).name} model has no classes, got classes={given.classes!r}")
    dual = given.solver == "dual"
    check_settings(given)
    past = given.warm_start
    chosen = given.learning_rate is not None
    adaptive = ranks is None and not chosen  # ranks cannot tell by their own rows that all shall begin again
    if ranks is not None:
        given = among(given, ranks)
    schedule = schedule_of(given, given.tolerance, past)
    if past is not None and not chosen and past.params.get("step", "decay") == schedule.step:
        known = replace(given, learning_rate=past.params.get("learning_rate")).checked()
        schedule = replace(schedule, learning_rate=known.learning_rate or schedule.learning_rate)
    opened, held_out = _sides(_opened(given), given)
    if given.patience is not None and held_out is None:
        raise BadArgument("patience stops by the loss on held-out rows: give validation=0.1, or a test table")
    if given.save is not None:
        check_target(given.save, MODEL, inputs=(given.table, opened, given.test), overwrite=given.overwrite)
    task = prepare(opened, given, classes=given.classes, past=past, on_bad=given.on_bad)
    memory, share = divided(given, task) if dual else (given.memory, None)
    order, shard = ORDER if dual and given.order == "auto" else order_of(given.order, given.memory), Shard()
    if ranks is not None:
        order = order_for(order, task.table(), given.label, given.batch_size, ranks)
        shard = shard_of(given.batch_size, order, ranks)
        task = replace(task, batch_size=shard.batch)
    with task.feeder(order, memory, given.seed, shard, keep=True) as feeder:
        if (coarser := feeder.coarser) is not None:
            task.note(coarser)
        task = task.surveyed(feeder)
        params = {name: getattr(given, name) for name in declared(TrainSettings)} | task.facts()
        params |= feeder.facts() | {"adaptive": adaptive}
        params |= {"step": schedule.step, "average": task.average}
        training: Training | DualTraining
        if dual:
            training = DualTraining(task, feeder, given, params, share)
        else:
            on_rows = given.on_rows
            training = Training(task, feeder, schedule, past, params, adaptive=adaptive, on_rows=on_rows, ranks=ranks)
        target = given.save if ranks is None or not ranks.rank else None
        keep = None if target is None else partial(Model.save, path=target, overwrite=given.overwrite)
        with measuring(held_out, task) as measure:
            return training.run(given.epochs, measure, given.callback or _idle, keep)


def order_of(order: Any, memory: Any) -> Any:
    """Return the order of a training, which takes what it needs of a memory that is as it is by default."""
    return cap_buffer(order) if memory == declared(TrainArguments)["memory"].default else order


def begun(given: TrainArguments) -> Table:
    """Open the table of several models, and see that they can be saved.

    Raises:
        BadValue: It has no rows.
        BadArgument, WriteFailed: The file cannot be written, see `corgipile.outputs.check_target`.
    """
    opened = _filled(given)
    if given.save is not None:
        check_target(given.save, MODEL, inputs=(given.table, opened), overwrite=given.overwrite)
    return opened


def _filled(given: TrainArguments) -> Table:
    opened = open_table(given.table)
    if not len(opened):
        raise BadValue(f"{opened!r} has no rows to learn from")
    return opened


def _opened(given: TrainArguments) -> Table:
    """Open the table; a small one is read at once, unless it is the caller's, who may read it again later."""
    opened = _filled(given)
    return opened if opened is given.table else read_once(opened, most_read_once(given.memory, opened.nbytes))


def _sides(table: Table, given: TrainArguments) -> tuple[Table, Table | None]:
    """Return what to learn from, and what to measure the model on: another table, or rows that are left out."""
    if given.validation is None:
        if given.group is not None:
            raise BadArgument("group says which rows validation keeps together; give a share, such as validation=0.1")
        return table, None if given.test is None else open_table(given.test)
    if given.validation >= 1:
        raise BadArgument(f"validation must be a share between 0 and 1, such as 0.1, got {given.validation}")
    if given.test is not None:
        raise BadArgument("test and validation both name rows to measure the model on; give one of them")
    return train_test_split(table, given.validation, given.seed, given.group)


def _idle(_: object) -> None:
    """Do nothing, where a caller wants nothing done."""


def prepare(
    table: Table,
    settings: Settings,
    *,
    classes: Any = None,
    past: Model | None = None,
    on_bad: OnBad = "raise",
) -> Task:
    """Find out what is learnt from what; what must be read of the whole table for that is read by `Task.surveyed`.

    Args:
        table: The rows.
        settings: What was asked for.
        classes: The classes, if they were said.
        past: A model to go on from.
        on_bad: What becomes of rows that cannot be learnt from.
    """
    label, model, opened = settings.label, settings.model, table
    features, skip = wanted(settings.features, past), on_bad == "skip"
    weight, weighs, by = (getattr(settings, name, None) for name in ("weight", "class_weight", "by"))
    features, left = _without(table, features, settings, weight, by)
    columns = [name for name in (label, weight, by) if name is not None]
    used = [*_named(table, features, settings), *columns]
    if not getattr(table, "at_hand", False):
        check_decoding(table, [name for name in used if name in table.schema.names], settings.memory)
        bring(table, used, settings.memory)
    table = numeric(table, weight, once=True)
    encoding, codes = encoding_of(table, settings, features, classes, past, skip=skip)
    left_out = encoding.left_out if encoding else None
    if encoding is not None:
        table, features = readable(table, encoding, label, once=True, codes=codes), encoding.read_as
    elif callable(features) or features == "numeric":
        features = chosen_columns(table.schema, features, label).names
    inputs = find_inputs(table, features, label, past.width if past else None)
    inputs = inputs if left_out is None else replace(inputs, left_out=left_out)
    inputs = inputs if left is None else replace(inputs, left_out=left)
    known = past.classes if classes is None and past else classes
    texts = classes_of(encoding)
    known = _known(table, label, model, known) if texts is None else check_classes(texts, model, label)
    labels = Labels(table, label, model, skip=skip, classes=known)
    if codes is not None:
        labels.keep(codes)
    how = settings.batch_size, settings.intercept, on_bad, encoding, averaged(settings, model, past)
    task = Task(table, inputs, label, model, labels, *how, weight, weighs)
    if past is not None:
        check_past(past, task)
    return _scaled(task, settings.standardize, past, opened)


def _named(table: Table, features: Any, settings: Settings) -> Sequence[str]:
    """Return the feature columns; none where something is wrong with them, which is said when they are looked for."""
    with suppress(CorgiPileError):
        return [*named_columns(table.schema, features, settings).names, *hashed_columns(settings)]
    return ()


def _without(
    table: Table, features: Any, settings: Settings, weight: str | None, by: str | None
) -> tuple[Any, dict[str, str] | None]:
    """Return the features to look for where columns are weights or groups, and those left out if none were named."""
    if weight is None and by is None:
        return features, None
    if weight is not None:
        check_weight(table, weight, settings.label)
    if by is not None:
        check_group(table.schema, by, repr(table))
    for name, what in ((weight, "weight"), (by, "group")):
        if isinstance(features, list | tuple) and name in features:
            raise BadArgument(f"the {what} column {name!r} is among the features; it is no feature")
    if isinstance(features, list | tuple):
        return features, None
    others = pa.schema([field for field in table.schema if field.name not in (weight, by)])
    chosen = named_columns(others, features, settings)
    return list(chosen.names), chosen.left_out if features is None else None


def _known(table: Table, label: str, model: str, given: Any) -> npt.NDArray[Any] | None:
    """Check the classes that were said."""
    if given is None or loss_of(model).numbers:
        return None
    kind, found = check_label(table, label), check_classes(given, model, label)
    if found.dtype.kind == "U":
        raise BadArgument(f"label column {label!r} is {kind}, got the classes {found.tolist()}; numbers are needed")
    return found


def _scaled(task: Task, standardize: bool | None, past: Model | None, table: Table) -> Task:
    """Say what is learnt from, and standardise it where that is asked for, or better."""
    inputs, seen = task.inputs, precheck(task.table(), task.inputs, intercept=task.intercept)
    log.info("features: %s (%d); label: %s", listed(task.columns), inputs.width, task.label)
    if inputs.left_out:
        task.note(f"columns left out: {told(inputs.left_out)}")
        task.notes.extend(warn_left_out(table, inputs.left_out))
    for text in seen.notes():
        task.note(text)
    kept = past.learnt.scaling if past is not None and past.learnt is not None else None
    if standardize is None and past is None and seen.unscaled:
        task.note(f"{seen.told()}: they are standardised; standardize=False learns from them as they are")
    elif standardize is None:
        return task if kept is None else replace(task, scaling=kept, inputs=_exact(inputs, task.source))
    elif not standardize:
        if seen.unscaled:
            task.hint_scaling(seen.told())
        return task
    return replace(
        task, inputs=_exact(inputs, task.source), standardize=True, keep_flags=standardize is None, scaling=kept
    )


def _exact(inputs: Features, table: Table) -> Features:
    """Read whole numbers that float32 may not hold as float64: differences of large ones would be lost."""
    kinds = [table.schema.field(name).type for name in inputs.columns]
    wide = not inputs.lists and any(pa.types.is_integer(kind) and kind.bit_width > 16 for kind in kinds)
    return replace(inputs, dtype=np.dtype(np.float64)) if wide else inputs
