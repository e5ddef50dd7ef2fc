"""Training of models in Python from the rows of an engine."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

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

__all__ = ["arguments", "balanced_by", "column_named", "fit_model", "missing_column", "not_numeric", "train_columns"]


def arguments(statement: Train, columns: list[str]) -> dict[str, Any]:
    """Return the arguments of `corgipile.train` for a bound statement over rows of these columns."""
    named = train_columns(statement, columns, partial(column_named, columns=columns))
    given = {**statement.settings, "model": statement.model, "features": named.features, **named.hashed}
    given |= {"labels": named.labels} if named.labels else {"label": named.label}
    for name in ("group", "balance", "weight", "by"):
        if isinstance(given.get(name), str) and (name, given[name]) != ("balance", CONTENT):
            given[name] = column_named(given[name], columns)
    if isinstance(given.get("encode"), Mapping):
        given["encode"] = {column_named(name, columns): how for name, how in given["encode"].items()}
    sizes = {name: given.pop(name) for name in SIZES if name in given}
    return given if all(one is None for one in sizes.values()) else given | {"order": _sized_order(given, **sizes)}


class TrainColumns(NamedTuple):
    """The columns of a training; ``hashed`` are the settings that name hashed ones."""

    label: str
    labels: list[str]
    features: list[str]
    hashed: dict[str, list[Any]]


def train_columns(statement: Train, columns: Sequence[str], find: Callable[[str], str]) -> TrainColumns:
    """Return the columns that a training names, as ``find`` spells them; by default all others are features."""
    settings = statement.settings
    labels = [find(name) for name in settings.get("labels") or ()]
    label = find(labels[0] if labels else statement.label_of(columns))
    if labels and statement.label is not None:
        raise BadArgument(f"label and labels exclude each other, got label {statement.label!r}; give one of them")
    special = [find(name) for name in map(settings.get, ("weight", "by")) if name is not None]
    text = [find(name) for name in settings.get("text") or ()]
    crossed = [[find(name) for name in term] for term in settings.get("interactions") or ()]
    others = {label, *labels, *special, *text, *(name for term in crossed for name in term)}
    features = [find(name) for name in statement.features or ()] or [name for name in columns if name not in others]
    hashed: dict[str, list[Any]] = {"text": text} if text else {}
    hashed |= {"interactions": crossed} if crossed else {}
    if not features and not hashed:
        raise BadArgument(f"the rows have no features, only {label!r}; select feature columns before the label")
    return TrainColumns(label, labels, features, hashed)


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
        raise missing_column(name, columns)
    return same[0]


def missing_column(name: str, columns: Iterable[str]) -> MissingColumn:
    """Return the error for a column that the rows lack."""
    return MissingColumn(f"there is no column {name!r}; the rows have {listed(columns)}{did_you_mean(name, columns)}")


def not_numeric(name: str, kind: object) -> BadSchema:
    """Return the error for a feature that is neither numeric nor encoded."""
    return BadSchema(
        f"feature {name!r} must be numeric, got {kind}; add WITH encode = 'onehot' (or 'ordinal', 'hash'), "
        "or select other columns: SELECT x, y, label FROM ..."
    )


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
    table: Table, given: dict[str, Any], warm_start: Model | None, progress: Progress | None, check: Callable[[], None]
) -> Model:
    """Train a model with arguments of `corgipile.train`.

    ``check`` is called regularly and raises to stop the training.
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
    for name in given["features"] if isinstance(given["features"], list) else ():
        kind = table.schema.field(name).type
        if family_of(kind) == "text" and not isinstance(encode, str) and name not in (encode or {}):
            raise not_numeric(name, kind)
