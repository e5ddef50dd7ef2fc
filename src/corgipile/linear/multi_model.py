"""Several models with the same features in one file: by group, or by label."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from corgipile.errors import BadArgument
from corgipile.linear.model import Model
from corgipile.linear.scaling import Learnt
from corgipile.linear.standard_errors import Summary

__all__ = ["RATES", "MultiModel", "check_rates"]

RATES = "learning_rates"  # the parameter's key when models' rates differ


@dataclass
class MultiModel(Model):
    """Models with the same features, one per value of the parameter ``each``; their outputs follow each other."""

    each: ClassVar[str]
    own: ClassVar[tuple[str, ...]]  # the parameters that a single model does not have
    single: ClassVar[str]  # how to use one model instead

    @property
    def values(self) -> list[Any]:
        """Return what the models are for, in their order."""
        return list(self.params[self.each])

    @property
    def models(self) -> int:
        """Return the number of models."""
        return len(self.params[self.each])

    def model(self, at: int) -> Model:
        """Return one model by its place, with its own rate."""
        params = {name: value for name, value in self.params.items() if name not in (RATES, *self.own)}
        if RATES in self.params:
            params["learning_rate"] = self.params[RATES][at]
        outputs = len(self.coef) // self.models
        own, learnt = slice(at * outputs, (at + 1) * outputs), self.learnt
        if learnt is not None:
            learnt = Learnt(learnt.scaling, learnt.coef[own], learnt.intercept[own])
        return Model(self.kind, self.coef[own], self.intercept[own], self.classes, params, self.history, learnt)

    def summary(self, table: Any, label: str | None = None, weight: str | None = None) -> Summary:
        """Raise: standard errors need a single model.

        Raises:
            BadArgument: Always.
        """
        raise BadArgument(f"standard errors need one model: use of(...) with {self.single}")

    def check(self) -> None:
        """Raise ValueError or TypeError unless the parameters are as training writes them."""
        check_rates(self.params, self.models)


def check_rates(params: dict[str, Any], models: int) -> None:
    """Raise ValueError unless every model has a valid learning rate."""
    rates = params.get(RATES, [1.0] * models)
    sound = isinstance(rates, list) and len(rates) == models
    if not (sound and all(isinstance(rate, float | int) and math.isfinite(rate) and rate > 0 for rate in rates)):
        raise ValueError("the learning rates of its models are damaged")
