"""What training and prediction make of columns that are no plain numbers."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.features import Encoding, fit_encoding
from corgipile.features.choose import choose, is_number, item_of
from corgipile.features.encoders import Classes
from corgipile.features.fit import is_text
from corgipile.linear.classes import check_classes
from corgipile.linear.losses import loss_of
from corgipile.settings import Settings
from corgipile.tables.table import Table

if TYPE_CHECKING:
    from corgipile.linear.model import Model

__all__ = ["encoding_of", "readable"]


def encoding_of(
    table: Table, settings: Settings, features: Any, classes: Any, past: "Model | None", *, skip: bool
) -> Encoding | None:
    """Find out how columns become numbers; None where all of them are, and nothing is to stand for what is missing.

    Args:
        table: The rows.
        settings: What was asked for.
        features: The feature columns, as `corgipile.linear.features.find_inputs` takes them.
        classes: The classes of the label, if they were said.
        past: A model to go on from, whose encoding is kept.
        skip: Whether rows that cannot be learnt from are left out.
    """
    if past is not None:
        if settings.encode is not None or settings.missing != "error":
            raise BadArgument("encode and missing are those of the model that warm_start goes on from; leave them out")
        return past.encoding
    label = settings.label
    names = choose(table.schema, features, label).names
    kinds = [table.schema.field(name).type for name in names if name in table.schema.names]
    plain = all(is_number(kind) or item_of(kind) is not None for kind in kinds)
    text = label in table.schema.names and is_text(table.schema.field(label).type)
    known = label not in table.schema.names or is_number(table.schema.field(label).type)
    if plain and known and settings.encode is None and settings.missing == "error":
        return None
    numbers = loss_of(settings.model).numbers
    given = check_classes(classes, settings.model, label).tolist() if text and classes else None
    found = fit_encoding(
        table, features, label, encode=settings.encode, missing=settings.missing, classes=given, numbers=numbers
    )
    if skip and isinstance(found.label, Classes):
        return replace(found, label=replace(found.label, strict=False))
    return found


def readable(table: Table, encoding: Encoding | None, label: str | None, *, once: bool = False) -> Table:
    """Return a table as a model of this encoding reads it, with the label if that is one of its columns and asked for.

    Args:
        table: The rows.
        encoding: What the model was trained with.
        label: The label column; None: only features are read.
        once: Whether rows are encoded once for many passes.
    """
    if encoding is None:
        return table
    mine = None if encoding.label is None or label is None else replace(encoding.label, column=label)
    return replace(encoding, label=mine).table(table, once=once)


def classes_of(encoding: Encoding | None) -> npt.NDArray[Any] | None:
    """Return the classes of a label of text; None where it is numbers."""
    return None if encoding is None else encoding.classes
