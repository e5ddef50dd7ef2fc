"""Training of models in Python from the rows of an engine."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from corgipile.errors import BadArgument, BadSchema, DivergenceWarning, LeftOutWarning, MissingColumn
from corgipile.features.encoders import family_of
from corgipile.linear.label_sets import NAME
from corgipile.linear.model import Model
from corgipile.linear.train import train
from corgipile.orders import named
from corgipile.orders.riffle import CONTENT
from corgipile.settings import TrainArguments, declared
from corgipile.sql.engines.engine import Progress
from corgipile.sql.engines.results import epoch_row
from corgipile.sql.options import SIZES
from corgipile.sql.statements import Train
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.table import Table

__all__ = ["arguments", "balanced_by", "check_labels", "column_named", "fit_model"]


def arguments(statement: Train, columns: list[str]) -> dict[str, Any]:
    """Return the arguments of `corgipile.train` for a statement.

    Args:
        statement: The training, with its parameters bound.
        columns: The columns of its rows.

    Raises:
        BadArgument: There are no feature columns.
        MissingColumn: A named column does not exist.
    """
    labels = [column_named(name, columns) for name in statement.settings.get("labels") or ()]
    label = column_named(labels[0] if labels else statement.label_of(columns), columns)
    check_labels(statement)
    weight = statement.settings.get("weight")
    special = [column_named(name, columns) for name in (weight, statement.settings.get("by")) if name is not None]
    crossed = [[column_named(name, columns) for name in term] for term in statement.settings.get("interactions") or ()]
    text = [column_named(name, columns) for name in statement.settings.get("text") or ()]
    hashed = [*text, *(name for term in crossed for name in term)]
    others = {label, *labels, *special, *hashed}
    features = [column_named(name, columns) for name in statement.features or ()] or [
        name for name in columns if name not in others
    ]
    if not features and not hashed:
        raise BadArgument(f"the rows have no features, only {label!r}; select feature columns before the label")
    given = {**statement.settings, "model": statement.model, "features": features}
    given |= {"labels": labels} if labels else {"label": label}
    given |= {"text": text} if text else {}
    given |= {"interactions": crossed} if crossed else {}
    for name in ("group", "balance", "weight", "by"):
        if isinstance(given.get(name), str) and (name, given[name]) != ("balance", CONTENT):
            given[name] = column_named(given[name], columns)
    if isinstance(given.get("encode"), Mapping):
        given["encode"] = {column_named(name, columns): how for name, how in given["encode"].items()}
    sizes = {name: given.pop(name) for name in SIZES if name in given}
    return given if all(one is None for one in sizes.values()) else given | {"order": _sized_order(given, **sizes)}


def check_labels(statement: Train) -> None:
    """Raise BadArgument if both a label and several labels are named."""
    if statement.settings.get("labels") and statement.label is not None:
        raise BadArgument(f"label and labels exclude each other, got label {statement.label!r}; give one of them")


def balanced_by(given: Mapping[str, Any]) -> str:
    """Return the default column that balances blocks: the label, or the combination of labels.

    Example:
        >>> balanced_by({"label": "y"}), balanced_by({"labels": ["tags"]}), balanced_by({"labels": ["a", "b"]}) == NAME
        ('y', 'tags', True)
    """
    labels = given.get("labels") or [given.get("label")]
    return str(labels[0]) if len(labels) == 1 else NAME


def column_named(name: str, columns: list[str]) -> str:
    """Return a column's name in the table's spelling; SQL names ignore case.

    Raises:
        MissingColumn: No column matches, or two differ only in case.

    Example:
        >>> column_named("Label", ["x", "label"])
        'label'
    """
    if name in columns:
        return name
    same = [column for column in columns if column.lower() == name.lower()]
    if len(same) != 1:
        raise MissingColumn(
            f"there is no column {name!r}; the rows have {listed(columns)}{did_you_mean(name, columns)}"
        )
    return same[0]


def _sized_order(given: Mapping[str, Any], block: Any = None, buffer: Any = None, balance: Any = None) -> Any:
    """Return the order with its sizes and balance column."""
    order: Any = named(given.get("order", "auto"))
    if balance is not None and not hasattr(order, "balance"):
        raise BadArgument(f"balance needs order riffle, got {order.name}")
    if block is not None and order.cuts_into == "row":
        raise BadArgument(f"block must be omitted for order {order.name}, which visits single rows, got {block}")
    if balance is not None or getattr(order, "balance", None) is not None:
        column = balance if isinstance(balance, str) else balanced_by(given)
        order = replace(order, balance=None if balance is False else column)
    return replace(
        order, **{name: size for name, size in {"block": block, "buffer": buffer}.items() if size is not None}
    )


def fit_model(
    table: Table,
    given: dict[str, Any],
    warm_start: Model | None,
    progress: Progress | None,
    check: Callable[[], None],
) -> Model:
    """Train a model.

    Args:
        table: The rows.
        given: Arguments of `corgipile.train`.
        warm_start: The model to start from.
        progress: Receives training progress.
        check: Called regularly; raises to stop the training.
    """
    _check_kinds(table, given)
    held_out = given.get("validation")
    train_rows = int(len(table) * (1 - held_out)) if isinstance(held_out, float) else len(table)
    if progress is not None:
        progress.begin(train_rows, given.get("epochs", declared(TrainArguments)["epochs"].default))

    def on_rows(count: int) -> None:
        check()
        if progress is not None:
            progress.rows(count)

    def callback(record: dict[str, Any]) -> None:
        if progress is not None:
            progress.epoch(epoch_row(record))

    with warnings.catch_warnings():
        for kind in (DivergenceWarning, LeftOutWarning):  # the model's notes include them
            warnings.simplefilter("ignore", kind)
        return train(table, **given, warm_start=warm_start, callback=callback, on_rows=on_rows)


def _check_kinds(table: Table, given: dict[str, Any]) -> None:
    """Raise BadSchema for a text column that is not encoded."""
    encode = given.get("encode")
    for name in given["features"]:
        kind = table.schema.field(name).type
        if family_of(kind) == "text" and not isinstance(encode, str) and name not in (encode or {}):
            raise BadSchema(
                f"feature {name!r} must be numeric, got {kind}; add WITH encode = 'onehot' (or 'ordinal', 'hash'), "
                "or select other columns: SELECT x, y, label FROM ..."
            )
