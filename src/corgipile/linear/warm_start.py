"""Compatibility checks for warm starts."""

from typing import Any

import numpy as np

from corgipile.errors import BadArgument
from corgipile.linear.features import log_unknown
from corgipile.linear.model import Model
from corgipile.linear.multi_model import class_of_models
from corgipile.linear.training import Task
from corgipile.suggestions import listed

__all__ = ["check_warm_start", "resolve_features"]


def resolve_features(features: Any, past: Model | None) -> Any:
    """Return the features to look for: a warm start's, in its order, if they are the same or not named."""
    if past is None or not past.features:
        return features
    same = isinstance(features, list | tuple) and len(features) == len(past.features)
    if features is None or (same and set(features) == set(past.features)):
        return past.features
    return features


def check_warm_start(past: Model, task: Task) -> None:
    """Raise BadArgument unless a warm start has the same kind, features and classes."""
    log_unknown(task.source.schema, past.params, task.label)
    inputs, names = task.inputs, () if task.inputs.lists else task.inputs.columns
    known = past.features if past.names else ()
    if class_of_models(past.params) is not None:
        raise BadArgument("warm_start must be a single model, got models by group or label; use of(...)")
    if past.loss != task.loss or past.width != inputs.width:
        raise BadArgument(
            f"warm_start must be a {task.kind} model of {inputs.width} features, got {past.kind} of {past.width}"
        )
    if known and names and known != names:
        raise BadArgument(f"features must be those of warm_start, {listed(known)}, got {listed(names)}")
    if not np.array_equal(past.classes, task.classes):
        raise BadArgument(f"classes must be those of warm_start, {past.classes.tolist()}, got {task.classes.tolist()}")
    if not task.intercept and past.intercept.any():
        raise BadArgument("intercept=False needs a warm_start without intercept")
