"""What a model that is gone on from says of a training."""

from typing import Any

import numpy as np

from corgipile.errors import BadArgument
from corgipile.linear.features import tell_unknown
from corgipile.linear.model import Model
from corgipile.linear.multi_model import several_of
from corgipile.linear.training import Task
from corgipile.suggestions import listed

__all__ = ["check_past", "wanted"]


def wanted(features: Any, past: Model | None) -> Any:
    """Return the features to look for: an earlier model's, in its order, where they are the same or not named."""
    if past is None or not past.features:
        return features
    same = isinstance(features, list | tuple) and len(features) == len(past.features)
    if features is None or (same and set(features) == set(past.features)):
        return past.features
    return features


def check_past(past: Model, task: Task) -> None:
    """Raise BadArgument unless an earlier model is of the same kind, features and classes."""
    tell_unknown(task.source.schema, past.params, task.label)
    inputs, names = task.inputs, () if task.inputs.lists else task.inputs.columns
    known = past.features if past.names else ()
    if several_of(past.params) is not None:
        raise BadArgument("warm_start is models by group, or of labels; go on from that of one, as of(...) gives it")
    if past.loss != task.loss or past.width != inputs.width:
        raise BadArgument(
            f"warm_start is a {past.kind} model of {past.width} features; "
            f"a {task.kind} model of {inputs.width} is needed"
        )
    if known and names and known != names:
        raise BadArgument(f"warm_start was trained on {listed(known)}, not on {listed(names)}")
    if not np.array_equal(past.classes, task.classes):
        raise BadArgument(f"warm_start has classes {past.classes.tolist()}, not {task.classes.tolist()}")
    if not task.intercept and past.intercept.any():
        raise BadArgument("warm_start has an intercept; intercept=False goes on from a model without one")
