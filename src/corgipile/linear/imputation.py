"""Models for which something stands for what is missing, though they were trained without it."""

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
    """Return a model for which a number stands for null and NaN where nothing does yet.

    A null that is no number is what it is to a model trained with ``missing=`` that met none: a category that was never
    seen, text without words.

    Args:
        model: The model.
        missing: The number.

    Raises:
        BadArgument: It is no finite number, or nobody knows which of the model's columns are lists.
    """
    number, encoding = real(missing, "missing"), model.encoding
    if encoding is None:
        encoding = Encoding(_numbers(model, number))
    else:
        features = tuple(_filled(one, number) for one in encoding.features)
        encoding = replace(encoding, features=features, hashing=_hashed(encoding.hashing, number))
    return replace(model, params={**model.params, "encoding": encoding.state()})


def _numbers(model: "Model", number: float) -> tuple[Encoder, ...]:
    """Return what encodes columns that were all numbers, or lists of them."""
    if model.params.get("lists", True):
        return tuple(Vector(name, number) for name in model.features)
    if len(model.features) != model.width:
        raise BadArgument(
            f"the model does not say which of its columns {list(model.features)} are lists: train it with missing="
        )
    return tuple(Number(name, number) for name in model.features)


def _filled(one: Encoder, number: float) -> Encoder:
    if isinstance(one, Number | Vector) and one.fill is None:
        return replace(one, fill=number)
    if isinstance(one, Categories) and None not in one.values:
        return replace(one, values=(None,)) if one.way == "hash" else replace(one, unknown=True)
    return one


def _hashed(how: Hashing | None, number: float) -> Hashing | None:
    """Return how columns are hashed where what is missing has no features, and a number stands for numbers."""
    if how is None:
        return None
    numbers = tuple(
        replace(one, fill=number) if one.kind == "number" and one.fill is None else one for one in how.sources
    )
    return replace(how, sources=numbers, strict=False)
