"""Trains as a statement says, from rows that an engine has found: what is alike wherever Python trains."""

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
        statement: What is asked for, settled.
        columns: The columns of its rows.

    Raises:
        BadArgument: There are no features.
        MissingColumn: There is no such column.
    """
    labels = [column_named(name, columns) for name in statement.settings.get("labels") or ()]
    label = column_named(labels[0] if labels else statement.label_of(columns), columns)
    check_labels(statement)
    weight = statement.settings.get("weight")
    apart = [column_named(name, columns) for name in (weight, statement.settings.get("by")) if name is not None]
    crossed = [[column_named(name, columns) for name in term] for term in statement.settings.get("interactions") or ()]
    text = [column_named(name, columns) for name in statement.settings.get("text") or ()]
    hashed = [*text, *(name for term in crossed for name in term)]
    others = {label, *labels, *apart, *hashed}
    features = [column_named(name, columns) for name in statement.features or ()] or [
        name for name in columns if name not in others
    ]
    if not features and not hashed:
        raise BadArgument(f"the rows have one column, {label!r}; features stand before the label")
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
    return given if all(one is None for one in sizes.values()) else given | {"order": _sized(given, **sizes)}


def check_labels(statement: Train) -> None:
    """Raise BadArgument where rows have one label, and several."""
    if statement.settings.get("labels") and statement.label is not None:
        raise BadArgument(f"{statement.label!r} is the label, and labels names several a row; give one of them")


def balanced_by(given: Mapping[str, Any]) -> str:
    """Return the column by which blocks are balanced where none is named: of the label, or which of several rows have.

    Example:
        >>> balanced_by({"label": "y"}), balanced_by({"labels": ["tags"]}), balanced_by({"labels": ["a", "b"]}) == NAME
        ('y', 'tags', True)
    """
    labels = given.get("labels") or [given.get("label")]
    return str(labels[0]) if len(labels) == 1 else NAME


def column_named(name: str, columns: list[str]) -> str:
    """Return a column as the table spells it: SQL's names are of any case.

    Raises:
        MissingColumn: There is none of that name, or two are but for their case.

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


def _sized(given: Mapping[str, Any], block: Any = None, buffer: Any = None, balance: Any = None) -> Any:
    """Return an order with its sizes, and the column by which it balances."""
    order: Any = named(given.get("order", "auto"))
    if balance is not None and not hasattr(order, "balance"):
        raise BadArgument(f"balance is for order riffle, not {order.name}")
    if block is not None and order.cuts_into == "row":
        raise BadArgument(f"block is {block}, but order {order.name} visits single rows; leave it out")
    if balance is not None or getattr(order, "balance", None) is not None:
        column = balance if isinstance(balance, str) else balanced_by(given)
        order = replace(order, balance=None if balance is False else column)
    return replace(
        order, **{name: size for name, size in {"block": block, "buffer": buffer}.items() if size is not None}
    )


def fit_model(
    table: Table,
    given: dict[str, Any],
    past: Model | None,
    progress: Progress | None,
    check: Callable[[], None],
) -> Model:
    """Train a model.

    Args:
        table: The rows.
        given: Arguments of `corgipile.train`.
        past: A model to go on from.
        progress: Who is told how it goes.
        check: Called now and then; raises where the training is to stop.
    """
    _check_kinds(table, given)
    held_out = given.get("validation")
    learnt = int(len(table) * (1 - held_out)) if isinstance(held_out, float) else len(table)
    if progress is not None:
        progress.begin(learnt, given.get("epochs", declared(TrainArguments)["epochs"].default))

    def on_rows(count: int) -> None:
        check()
        if progress is not None:
            progress.rows(count)

    def callback(record: dict[str, Any]) -> None:
        if progress is not None:
            progress.epoch(epoch_row(record))

    with warnings.catch_warnings():
        for kind in (DivergenceWarning, LeftOutWarning):  # the model's notes say it
            warnings.simplefilter("ignore", kind)
        return train(table, **given, warm_start=past, callback=callback, on_rows=on_rows)


def _check_kinds(table: Table, given: dict[str, Any]) -> None:
    """Raise BadSchema where a column of text is not encoded."""
    encode = given.get("encode")
    for name in given["features"]:
        kind = table.schema.field(name).type
        if family_of(kind) == "text" and not isinstance(encode, str) and name not in (encode or {}):
            raise BadSchema(
                f"column {name!r} is {kind}, no number: WITH encode = 'onehot' (or 'ordinal', 'hash') makes numbers of "
                "it; or choose the columns to learn from: SELECT x, y, label FROM ..."
            )
