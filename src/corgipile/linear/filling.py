"""Models for which a number stands for what is missing, though they were trained without one."""

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from corgipile.errors import BadArgument
from corgipile.features import Encoding
from corgipile.features.encoders import Encoder, Number, Vector
from corgipile.sizes import real

if TYPE_CHECKING:
    from corgipile.linear.model import Model

    M = TypeVar("M", bound=Model)

__all__ = ["filled"]


def filled(model: "M", missing: float) -> "M":
    """Return a model for which a number stands for null and NaN where nothing does yet.

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
        encoding = replace(encoding, features=tuple(_filled(one, number) for one in encoding.features))
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
    return one
