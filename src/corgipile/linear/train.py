"""Trains linear models by SGD, in place in the slots of the buffer."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from corgipile.arguments import takes
from corgipile.errors import BadArgument
from corgipile.linear.dual_training import ORDER, DualTraining, check_settings, divide_memory
from corgipile.linear.evaluation import measuring
from corgipile.linear.group_training import check_by, train_groups
from corgipile.linear.label_training import CLASSES, check_model, labels_of, train_labels
from corgipile.linear.model import Model
from corgipile.linear.newton_stack import members_of
from corgipile.linear.newton_training import MAX_COEFFICIENTS, MAX_PASSES, NewtonTraining, suits
from corgipile.linear.newton_training import check_settings as check_newton
from corgipile.linear.problem import open_nonempty, order_of, prepare, widened
from corgipile.linear.ranks import Ranks, order_for, rank_settings, shard_of
from corgipile.linear.saving import MODEL
from corgipile.linear.schedule import choose_step, schedule_of
from corgipile.linear.training import Training
from corgipile.loader.cached_rows import max_cached_bytes
from corgipile.losses import loss_of
from corgipile.orders import Shard
from corgipile.settings import TrainArguments, changed
from corgipile.tables import open as open_table
from corgipile.tables.inputs import check_target
from corgipile.tables.read_once import read_once
from corgipile.tables.splitting import train_test_split
from corgipile.tables.table import Table

__all__ = ["train", "train_among"]

NOT_SEVERAL = ("solver", "inner", "warm_start", "test", "validation", "group", "patience")
NOT_WITH_LABELS = ("by", "class_weight", "label", "classes")
HELD_OUT = "to score held-out rows use measure(...) of the result, or `corgipile evaluate` of its file"


@takes(TrainArguments)
def train(given: TrainArguments) -> Model:  # noqa: D417 - arguments of TrainArguments
    """Train a linear model on a table of any size, by SGD or to its optimum.

    Args:
        table: A path, glob or list of them, a `Table`, a ``pyarrow.Table`` or a data frame.
        model: The name of a loss: ``"logistic"``, ``"svm"`` (hinge loss), ``"linear"`` (squared loss), ``"softmax"``,
            or another of `corgipile.losses.NAMES`; a parameter follows a colon.
        features: The feature columns; see `corgipile.linear.features.find_inputs`. The log and the model's
            ``features`` and ``left_out`` list the chosen columns and those left out.
        label: The label column, of numbers or text: two values for logistic, any number of classes for softmax, and
            for svm and ovr_logistic, which are one-versus-rest.
        encode: The encoding of columns that are not numbers, ``"onehot"``, ``"ordinal"`` or ``"hash"``, or a
            dictionary of these by column; see `corgipile.features.fit_encoding`. The model stores the encoding.
        text: A column of text, or several, whose words and n-grams are hashed to features, straight from the table;
            see docs/specs/hashed-features.md. Other columns are features only if ``features`` names them. Null text is
            an error, or skipped; with ``missing`` it has no words.
        interactions: Crossed columns, such as ``[("city", "device"), "city"]``: each combination of values is a
            feature, hashed as text is; numbers multiply. A name alone is that column.
        hash_bits: Hashed features have 2^hash_bits places; the model takes that many weights of ``memory``.
        ngrams: Maximum words per n-gram: 2 means words and pairs of neighbours.
        missing: The replacement of null and NaN in features: ``"error"``, ``"mean"`` or a number.
        epochs: Passes over the table.
        step: The update rule: ``"decay"`` (one rate for all weights, multiplied by ``decay`` after each epoch),
            ``"constant"``, ``"inverse"`` (divided by the square root of the epoch number), ``"adagrad"`` (a rate per
            weight from its squared gradients), ``"adam"`` (from running means of gradients and squared gradients), or
            ``"normalized"`` (``"adagrad"`` normalised by feature scale, as in Vowpal Wabbit); ``"auto"`` is the last
            with ``average`` and no rate to choose. None: that of ``warm_start``; else ``"decay"`` for regression or
            with ``learning_rate`` or ``decay``, ``"adagrad"`` for classes by ``text`` alone with ``ngrams`` above 1,
            else ``"auto"``.
        learning_rate: Learning rate of the first epoch. None: the default of the step, 0.01 for one rate for all. A
            default that diverges is divided by 5 and training restarts. For huber and quantile, whose steps do not
            grow with the residual, the first epoch restarts at 10 times the rate, or more, if labels are far from 0.
            The log and the model's ``notes`` record changes. With one rate for all and without ``average``, a
            regression on dense features that plateaus continues at a fifth. With ``warm_start`` and the same step
            None is that model's rate.
        decay: Factor of the learning rate after each epoch, with ``step="decay"``.
        l2: Strength of the L2 penalty, without the intercept.
        l1: Strength of the L1 penalty, which makes weights 0; both together are the elastic net.
        max_norm: Maximum L2 norm of the weights of all outputs, without intercepts: each update scales them down to
            it. With standardised features it applies to their weights.
        batch_size: Rows per update, whose gradients are averaged.
        order: An order of `corgipile.orders`, or its name. ``"balanced"`` is Riffle balanced by the label. ``"auto"``
            is the same if the label can be read without the rows, else plain Riffle; if memory holds few blocks and
            neighbouring rows are similar, it balances by content (``params["balance"]``). With ``solver="dual"`` it is
            CorgiPile, which keeps most rows in memory for repeated visits.
        memory: Budget for buffered rows, read-ahead included. Riffle takes only what it needs of the default.
        seed: Seed of the order.
        test: A table on which to evaluate the model after each epoch.
        validation: The share of rows held out for that instead, such as 0.1; the seed chooses them.
        group: A column whose values are never split between training and validation.
        weight: A column of row weights, 0 or more, which multiply gradient and loss. It is not a feature. The test
            table needs it too and is evaluated with it.
        class_weight: Weights by class (1 if not named), or ``"balanced"``: inversely proportional to the class's rows,
            so that all classes have the same total. It multiplies ``weight``. The history's ``loss`` and score are
            weighted by both; a test table is evaluated without.
        intercept: Whether to learn one.
        average: Predict with a mean of the weights in which later ones count more: the last half of all epochs has
            94 % of the total, wherever training ends. It removes the noise of the last rows; the history's ``loss`` is
            still that of the weights that learn. None: where neither a step nor a rate is named, or as ``warm_start``
            does.
        standardize: Train on features of mean 0 and spread 1 (sparse ones are only scaled), which needs one more pass
            before the first epoch; the coefficients are for unscaled features. None: if sampled rows show that SGD
            needs it, which is logged. Columns of 0 and 1 then stay unscaled if there are enough rows to learn them,
            and ``params["standardize"]`` is None, which repeats that.
        by: A column of text, integers or booleans: trains one model per value, null included, with the same features
            and classes, in the same pass. Returns a `corgipile.linear.groups.Groups`, which predicts each row with its
            group's model (a row of another group is an error); ``of("north")`` is one model, ``table()`` lists them.
            Models and groups of rows may take half of ``memory``. A group of one row trains on that row alone; the log
            lists such groups. A default rate is lowered for the groups that diverge.
        labels: Replaces ``label`` where a row may have several labels or none: a column of lists of text or integers,
            or columns of 0 and 1. Trains one binary model per label in the same pass, with the bits of a model trained
            alone by the same order. Returns a `corgipile.linear.multilabel.LabelModels`, which predicts 0 or 1 for
            each row and label. Models and the labels of rows may take half of ``memory``.
        classes: The class values, which saves reading the label column; not for regression.
        tolerance: Stop when the loss improved by less than this share for two epochs in a row.
        patience: Stop when the loss on ``test`` or ``validation`` was not below its best for so many epochs. The
            weights that predict are always those of the best epoch, ``params["best_epoch"]``. A warm start continues
            from the last ones, as if training had not stopped.
        warm_start: A model to continue; its epochs count, so 3 epochs and 2 more are 5. Its features match by name.
        save: Model file, written after each epoch: with ``warm_start`` an interrupted run continues from it to the
            same bits. An existing model is replaced.
        overwrite: Let ``save`` also replace a file that corgipile did not write, but never an input.
        on_bad: ``"skip"`` leaves out rows that the model cannot train on (a feature or label that is null, NaN or
            infinite, an unknown label, sparse indices out of order). The history counts them (``skipped``, and
            ``test_skipped`` for the test table, where rows whose score overflows are always left out).
        solver: ``"sgd"``; ``"newton"``: the optimum by Newton's method, for linear, logistic, softmax, ovr_logistic,
            poisson, huber, quantile and squared_hinge with up to 4,096 coefficients. Each pass sums second derivatives;
            least squares take one or two, quantile about 60, others 4 to 10. A step that does not decrease the
            ``objective`` (mean loss plus l2/2 times the squared and l1 times the absolute weights, without intercept)
            is halved; l1 is not for quantile. Models of ``by`` or ``labels`` train in the same passes. Training ends
            when a step would decrease it by less than ``tolerance`` of itself (None: 1e-12), or after ``epochs`` passes
            (not given: 200). Settings of SGD are refused; one epoch with ``warm_start`` polishes a model. ``"auto"``:
            that for regression on up to 4,095 dense features without settings of SGD, where ``epochs`` is no limit,
            else ``"sgd"``. ``"dual"``: dual coordinate descent, which has no rate and converges to the optimum of
            logistic, svm, squared_hinge and ovr_logistic with an ``l2`` above 0 (1 over the number of rows is C = 1);
            that penalty includes the intercept. Each row has a dual variable, or one per class, in memory or, beyond a
            quarter of the budget, in a file. The last record of the history has the ``objective`` and the ``gap``, an
            upper bound of its relative distance to the optimum; training ends when it is within ``tolerance``. With
            ``weight`` and ``class_weight`` a row's C is multiplied by its weight, which takes one number more per row.
            Settings of SGD are refused.
        inner: With ``"dual"``: maximum visits of each row while it is in memory, as in BMF and LIRS; more make fewer
            passes. None: 10, or if all rows are in memory as many as ``tolerance`` needs.
        callback: Called after each epoch with its record.
        on_rows: Called after each step with the number of trained rows; a negative number undoes those of an epoch
            that restarts.

    Returns:
        The model; its ``history`` has one record per epoch.

    Raises:
        Diverged: The loss became NaN, infinite or grew without bound.
        BadLabel: A label is not a class of the model.
        BadValue: A feature or label is NaN, infinite or null, or the table or the test table has no rows.

    Warns:
        DivergenceWarning: The final loss is above that of an untrained model.
        ConvergenceWarning: With ``solver="newton"``: there is no single, finite optimum, since classes are separable or
            columns collinear (later ones then get coefficient 0); or passes were too few.
        LeftOutWarning: A text column is left out although nearly all of its cells are numbers.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> rows = pa.table({"x": [-2.0, -1.0, 1.0, 2.0] * 50, "label": [0, 0, 1, 1] * 50})
        >>> model = train(rows, epochs=3, learning_rate=0.1)
        >>> model.history[-1]["accuracy"], model.predict(rows)[:4].tolist()
        (1.0, [0, 0, 1, 1])
    """
    return train_among(given, None)


def train_among(given: TrainArguments, ranks: Ranks | None) -> Model:
    """Train as `train` does, on one of several ranks if ``ranks`` is not None."""
    if given.solver in ("newton", "auto"):
        exact = _train_newton(given, ranks)
        if exact is not None:
            return exact
        given = replace(given, solver="sgd")
    if ranks is not None or (given.by is None and given.labels is None):
        return _train_one(given, ranks)
    _check_several(given)
    schedule = schedule_of(given, given.tolerance)
    opened = open_nonempty(given.table)
    if given.save is not None:
        check_target(given.save, MODEL, inputs=(given.table, opened), overwrite=given.overwrite)
    return (train_groups if given.labels is None else train_labels)(given, schedule, opened, _saver(given))


def _check_classes(given: TrainArguments) -> None:
    if loss_of(given.model).numbers and given.classes is not None:
        raise BadArgument(f"a {loss_of(given.model).name} model has no classes, got classes={given.classes!r}")


def _check_several(given: TrainArguments) -> None:
    """Raise BadArgument for settings that several models do not support."""
    labels = given.labels is not None
    for name, got in changed(given, NOT_SEVERAL + NOT_WITH_LABELS * labels):
        several = "labels" if labels else f"by={given.by!r}"
        hint = f"; {HELD_OUT}" if name in ("test", "validation") else ""
        raise BadArgument(f"{name} must be left out with {several}, got {got}{hint}")
    if labels:
        check_model(given.model)


def _saver(given: TrainArguments) -> Callable[[Model], object] | None:
    return None if given.save is None else partial(Model.save, path=given.save, overwrite=given.overwrite)


def _train_one(given: TrainArguments, ranks: Ranks | None) -> Model:
    _check_classes(given)
    dual = given.solver == "dual"
    check_settings(given)
    past = given.warm_start
    chosen = given.learning_rate is not None
    adaptive = ranks is None and not chosen  # a rank's own rows cannot decide that all ranks restart
    if ranks is not None:
        given = rank_settings(given, ranks)
    schedule = schedule_of(given, given.tolerance, past)
    if past is not None and not chosen and past.params.get("step", "decay") == schedule.step:
        known = replace(given, learning_rate=past.params.get("learning_rate")).checked()
        schedule = replace(schedule, learning_rate=known.learning_rate or schedule.learning_rate)
    opened, held_out = _split(_opened(given), given)
    if given.patience is not None and held_out is None:
        raise BadArgument("patience needs held-out rows: give validation=0.1, or a test table")
    if given.save is not None:
        check_target(given.save, MODEL, inputs=(given.table, opened, given.test), overwrite=given.overwrite)
    task = prepare(opened, given, classes=given.classes, past=past, on_bad=given.on_bad)
    memory, share = divide_memory(given, task) if dual else (given.memory, None)
    order, shard = ORDER if dual and given.order == "auto" else order_of(given.order, given.memory), Shard()
    if ranks is not None:
        order = order_for(order, task.table(), given.label, given.batch_size, ranks)
        shard = shard_of(given.batch_size, order, ranks)
        task = replace(task, batch_size=shard.batch)
    with task.feeder(order, memory, given.seed, shard, keep=True) as feeder:
        if (coarser := feeder.coarser) is not None:
            task.note(coarser)
        task = task.with_statistics(feeder)
        params = task.params(given, feeder, schedule.step) | {"adaptive": adaptive}
        training: Training | DualTraining
        if dual:
            training = DualTraining(task, feeder, given, params, share)
        else:
            on_rows = given.on_rows
            training = Training(task, feeder, schedule, past, params, adaptive=adaptive, on_rows=on_rows, ranks=ranks)
        save = _saver(given) if ranks is None or not ranks.rank else None
        with measuring(held_out, task) as measure:
            return training.run(given.epochs, measure, given.callback, save)


def _train_newton(given: TrainArguments, ranks: Ranks | None) -> Model | None:
    """Train one model by Newton's method; return None if ``solver="auto"`` leaves it to SGD."""
    auto = given.solver == "auto"
    if auto and (ranks is not None or not suits(given)):
        return None
    check_newton(given)
    check_by(given)
    _check_classes(given)
    if given.by is not None or given.labels is not None:
        _check_several(replace(given, solver="sgd"))
    given = given if ranks is None else rank_settings(given, ranks)
    past, opened, labels = given.warm_start, _opened(given), None
    if given.save is not None:
        check_target(given.save, MODEL, inputs=(given.table, opened, given.test), overwrite=given.overwrite)
    # without a penalty, the scale of features changes nothing
    exact = replace(given, standardize=given.standardize if given.l2 or given.l1 else True)
    if given.labels is not None:
        labels = labels_of(opened, given)
        opened, exact = labels.table(opened), replace(exact, label=labels.name, classes=CLASSES.tolist())
    opened, held_out = _split(opened, given)
    task = prepare(opened, exact, classes=exact.classes, past=past, on_bad=given.on_bad)
    if auto and (task.inputs.sparse or task.inputs.width >= MAX_COEFFICIENTS):
        return None
    task = replace(task, inputs=widened(task.inputs, task.source))
    if not (given.l2 or given.l1):
        task = replace(task, standardize=False)  # a warm start's scaling stays
    members, memory = members_of(given, task, opened, labels)
    with task.feeder("no_shuffle", memory, given.seed, keep=True) as feeder:
        task = task.with_statistics(feeder)
        params, epochs = task.params(given, feeder, choose_step(given, given.model, past).name), given.epochs
        training = NewtonTraining(task, feeder, given, params, past=past, members=members)
        if auto or not list(changed(given, ["epochs"])):
            epochs = MAX_PASSES
        with measuring(held_out, task) as measure:
            return training.run(epochs, measure, given.callback, _saver(given))


def _opened(given: TrainArguments) -> Table:
    """Open the table; a small one is read at once, unless it is the caller's, who may read it again."""
    opened = open_nonempty(given.table)
    return opened if opened is given.table else read_once(opened, max_cached_bytes(given.memory, opened.nbytes))


def _split(table: Table, given: TrainArguments) -> tuple[Table, Table | None]:
    """Return the rows for training, and those for evaluation: another table, or held-out rows."""
    if given.validation is None:
        if given.group is not None:
            raise BadArgument("group needs validation: give a share, such as validation=0.1")
        return table, None if given.test is None else open_table(given.test)
    if given.validation >= 1:
        raise BadArgument(f"validation must be a share between 0 and 1, such as 0.1, got {given.validation}")
    if given.test is not None:
        raise BadArgument("test and validation both name rows to evaluate on; give one of them")
    return train_test_split(table, given.validation, given.seed, given.group)
