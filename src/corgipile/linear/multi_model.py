"""What several models of one file share: which class holds them, by group or of labels, and the rates of each."""

import math
from typing import TYPE_CHECKING, Any

from corgipile.linear.scaling import Learnt, Scaling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from corgipile.linear.model import Model
    from corgipile.linear.schedule import Schedule

__all__ = ["HELD_OUT", "check_rates", "folded", "learnt_of_one", "of_one", "rates_of", "several_of"]

HELD_OUT = "measure(...) of what comes out, `corgipile judge` of its file, tells held-out rows"
RATES = "learning_rates"  # what a file calls them, where not all are the same


def several_of(params: dict[str, Any]) -> "type[Model] | None":
    """Return the class of several models by what they were trained with; None where there is one.

    Raises:
        TypeError, ValueError: What is said of them is damaged.
    """
    if "labels" in params:
        from corgipile.linear.multilabel import LabelModels, check_labels  # noqa: PLC0415 - which is a model itself

        check_labels(params)
        return LabelModels
    if "by" in params:
        from corgipile.linear.groups import Groups, check_groups  # noqa: PLC0415 - as above

        check_groups(params)
        return Groups
    return None


def rates_of(schedules: "Sequence[Schedule]") -> dict[str, Any]:
    """Return what a file says of the rates of models."""
    rates = [one.learning_rate for one in schedules]
    return {RATES: rates} if len({*rates}) > 1 else {"learning_rate": rates[0]}


def folded(scaling: Scaling | None, coef: Any, bias: Any) -> tuple[Any, Any, Learnt | None]:
    """Return weights and intercepts of features as they are, and what was learnt where these were standardised."""
    if scaling is None:
        return coef, bias, None
    return *scaling.fold(coef, bias), Learnt(scaling, coef, bias)


def learnt_of_one(learnt: Learnt | None, mine: slice) -> Learnt | None:
    """Return what one of the models learnt, whose outputs these are."""
    return None if learnt is None else Learnt(learnt.scaling, learnt.coef[mine], learnt.intercept[mine])


def of_one(params: dict[str, Any], at: int) -> dict[str, Any]:
    """Return what is said of one of the models: its own rate."""
    rest = {name: value for name, value in params.items() if name != RATES}
    return {**rest, "learning_rate": params[RATES][at]} if RATES in params else rest


def check_rates(params: dict[str, Any], models: int) -> None:
    """Raise ValueError unless there is a rate for each model, where there are any."""
    rates = params.get(RATES, [1.0] * models)
    sound = isinstance(rates, list) and len(rates) == models
    if not (sound and all(isinstance(one, float | int) and math.isfinite(one) and one > 0 for one in rates)):
        raise ValueError("the learning rates of its models are damaged")
