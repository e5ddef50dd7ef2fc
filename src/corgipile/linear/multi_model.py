"""Shared parts of the models in one file: their class, by group or by label, and their learning rates."""

import math
from typing import TYPE_CHECKING, Any

from corgipile.linear.scaling import Learnt, Scaling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corgipile.linear.model import Model
    from corgipile.linear.schedule import Schedule

__all__ = ["HELD_OUT", "check_rates", "class_of_models", "learnt_of_model", "params_of_model", "rates_of", "unscale"]

HELD_OUT = "to score held-out rows use measure(...) of the result, or `corgipile evaluate` of its file"
RATES = "learning_rates"  # the parameter's key when models' rates differ


def class_of_models(params: dict[str, Any]) -> "type[Model] | None":
    """Return the class of a multi-model file by its parameters; None for a single model.

    Raises:
        TypeError, ValueError: The parameters are damaged.
    """
    if "labels" in params:
        from corgipile.linear.multilabel import LabelModels, check_labels  # noqa: PLC0415 - imports Model

        check_labels(params)
        return LabelModels
    if "by" in params:
        from corgipile.linear.groups import Groups, check_groups  # noqa: PLC0415 - as above

        check_groups(params)
        return Groups
    return None


def rates_of(schedules: "Sequence[Schedule]") -> dict[str, Any]:
    """Return the learning rates of models as parameters."""
    rates = [schedule.learning_rate for schedule in schedules]
    return {RATES: rates} if len({*rates}) > 1 else {"learning_rate": rates[0]}


def unscale(scaling: Scaling | None, coef: Any, bias: Any) -> tuple[Any, Any, Learnt | None]:
    """Return weights and intercepts for unscaled features, and the scaled ones if features were standardised."""
    if scaling is None:
        return coef, bias, None
    return *scaling.fold(coef, bias), Learnt(scaling, coef, bias)


def learnt_of_model(learnt: Learnt | None, part: slice) -> Learnt | None:
    """Return the part of one model, by its outputs."""
    return None if learnt is None else Learnt(learnt.scaling, learnt.coef[part], learnt.intercept[part])


def params_of_model(params: dict[str, Any], at: int) -> dict[str, Any]:
    """Return the parameters of one model, with its own rate."""
    shared = {name: value for name, value in params.items() if name != RATES}
    return {**shared, "learning_rate": params[RATES][at]} if RATES in params else shared


def check_rates(params: dict[str, Any], models: int) -> None:
    """Raise ValueError unless every model has a valid learning rate."""
    rates = params.get(RATES, [1.0] * models)
    sound = isinstance(rates, list) and len(rates) == models
    if not (sound and all(isinstance(rate, float | int) and math.isfinite(rate) and rate > 0 for rate in rates)):
        raise ValueError("the learning rates of its models are damaged")
