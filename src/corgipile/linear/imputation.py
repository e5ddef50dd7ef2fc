"""Adds a fill value for missing numbers to a model trained without one."""

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from corgipile.errors import BadArgument
from corgipile.features import Encoding
from corgipile.features.encoders import Categories, Encoder, Number, Vector
from corgipile.features.hashing import Hashing
from corgipile.sizes import real

if TYPE_CHECKING:
    from corgipile.linear.model import Model

    M = TypeVar("M", bound=Model)

__all__ = ["filled"]


def filled(model: "M", missing: float) -> "M":
    """Return a model that replaces null and NaN by a number where it has no fill value yet.

    Other nulls are treated as by a model that was trained with ``missing=`` and met none: as an unseen category, as
    text without words.
    """
    number, encoding = real(missing, "missing"), model.encoding
    if encoding is None:
        encoding = Encoding(_numbers(model, number))
    else:
        features = tuple(_with_fill(encoder, number) for encoder in encoding.features)
        encoding = replace(encoding, features=features, hashing=_fill_hashed(encoding.hashing, number))
    return replace(model, params={**model.params, "encoding": encoding.state()})


def _numbers(model: "Model", number: float) -> tuple[Encoder, ...]:
    """Return encoders for numeric columns and lists."""
    if model.params.get("lists", True):
        return tuple(Vector(name, number) for name in model.features)
    if len(model.features) != model.width:
        raise BadArgument(
            f"the model did not record which of its columns {list(model.features)} are lists: train it with missing="
        )
    return tuple(Number(name, number) for name in model.features)


def _with_fill(encoder: Encoder, number: float) -> Encoder:
    if isinstance(encoder, Number | Vector) and encoder.fill is None:
        return replace(encoder, fill=number)
    if isinstance(encoder, Categories) and None not in encoder.values:
        return replace(encoder, values=(None,)) if encoder.way == "hash" else replace(encoder, unknown=True)
    return encoder


def _fill_hashed(hashing: Hashing | None, number: float) -> Hashing | None:
    """Return hashing that fills missing numbers and gives other missing values no features."""
    if hashing is None:
        return None
    numbers = tuple(
        replace(item, fill=number) if item.kind == "number" and item.fill is None else item for item in hashing.sources
    )
    return replace(hashing, sources=numbers, strict=False)
