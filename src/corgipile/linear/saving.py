"""Model files: safetensors, with the metadata that prediction needs."""

import contextlib
import json
import math
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadModelFile, MissingFile, ReadFailed
from corgipile.linear.scaling import Learnt, Scaling
from corgipile.linear.sgd import outputs_of
from corgipile.losses import most_classes
from corgipile.nesting import parse_json
from corgipile.outputs import Kind, refuse_url, replacing

if TYPE_CHECKING:
    from corgipile.linear.model import Model

__all__ = [
    "MODEL",
    "check_model",
    "classes_of",
    "from_bytes",
    "learnt_of",
    "read_tensors",
    "tensors_of",
    "to_bytes",
    "write_tensors",
]

KEY = "corgipile.model"
MAX_HEADER_BYTES = 100 << 20
MAX_CLASS_LETTERS = 1 << 24  # letters of all class names, each counted as the longest
LEARNT = ("center", "scale", "learnt_coef", "learnt_intercept")  # tensors that only a warm start needs
OPTIMIZER_STATE = "beside"
NOTE_TYPES = {"bigquery": dict, "left_out": dict, "notes": list, "others": list, "class_weight": str | dict | None}
NOTE_TYPES |= {"l1": float | int | None, "l2": float | int | None}
Arrays = dict[str, npt.NDArray[Any]]


def is_model(path: Path) -> bool:
    """Return whether a file begins like a model of corgipile; the rest may be damaged."""
    with contextlib.suppress(ValueError, KeyError, TypeError, struct.error), path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return size <= MAX_HEADER_BYTES and KEY in parse_json(file.read(size), str(path))["__metadata__"]
    return False


MODEL = Kind("model", is_model)


def write_tensors(
    path: str | os.PathLike[str], tensors: Arrays, meta: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write a model file atomically."""
    content = to_bytes(tensors, meta)
    with replacing(path, MODEL, overwrite=overwrite) as temporary:
        temporary.write_bytes(content)


def to_bytes(tensors: Arrays, meta: dict[str, Any]) -> bytes:
    """Return the content of a model file."""
    from safetensors.numpy import save  # noqa: PLC0415 - slow; only saving needs it

    text = json.dumps(meta, allow_nan=False, default=lambda value: value.item())
    return bytes(save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, {KEY: text}))


def from_bytes(content: bytes, name: str) -> tuple[Arrays, dict[str, Any]]:
    """Return the tensors and metadata in the content of a model file; raise BadModelFile if it is damaged."""
    from safetensors.numpy import load  # noqa: PLC0415 - as above

    with _read_as(name):
        tensors = load(content)
        (size,) = struct.unpack("<Q", content[:8])
        meta = _meta(parse_json(content[8 : 8 + size], name)["__metadata__"])
        _check_kinds({tensor.dtype.name for tensor in tensors.values()} - {"float32", "float64"})
        return tensors, meta


def read_tensors(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """Read the tensors and metadata of a model file."""
    if not isinstance(path, str | os.PathLike):
        raise BadArgument(f"path must be the path of a model file, got {path!r}")
    refuse_url(path)
    file = Path(path).expanduser()
    try:
        with file.open("rb"), _read_as(os.fspath(path)):  # opening it first gives ordinary system errors
            return _parse(file)
    except FileNotFoundError:
        raise MissingFile(f"no model file at {os.fspath(path)}") from None
    except OSError as error:
        raise ReadFailed(error.errno, f"cannot read the model {os.fspath(path)}: {error.strerror}") from None


@contextlib.contextmanager
def _read_as(name: str) -> Iterator[None]:
    from safetensors import SafetensorError  # noqa: PLC0415 - slow; only loading needs it

    try:
        yield
    except (SafetensorError, ValueError, LookupError, TypeError, OverflowError, struct.error) as error:
        raise BadModelFile(f"{name} is not a model saved by corgipile: {error}") from None


def _parse(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Parse a model file; a file of another kind is refused after reading little."""
    from safetensors import safe_open  # noqa: PLC0415 - as above

    with safe_open(path, "np") as file:
        meta = _meta(file.metadata() or {})
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - not a mapping
        _check_kinds(set(kinds.values()) - {"F32", "F64"})
        return {name: file.get_tensor(name) for name in kinds}, meta


def _meta(entries: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of a model."""
    meta: dict[str, Any] = parse_json(entries[KEY], "its metadata", BadModelFile, _refuse)
    return meta


def _check_kinds(unsupported: set[str]) -> None:
    if unsupported:
        raise ValueError(f"its tensors must be F32 or F64, got {', '.join(sorted(unsupported))}")


def _refuse(name: str) -> None:
    raise ValueError(f"its metadata must be finite numbers, got {name}")


def tensors_of(learnt: Learnt | None, width: int) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a model during training; empty if the coefficients suffice."""
    if learnt is None:
        return {}
    scaling = learnt.scaling or Scaling.none(width)
    parts = scaling.center, scaling.scale, learnt.coef, learnt.intercept
    state = {} if learnt.optimizer_state is None else {OPTIMIZER_STATE: learnt.optimizer_state}
    return state | dict(zip(LEARNT, parts, strict=True))


def classes_of(values: Any, kind: Any) -> npt.NDArray[Any]:
    """Return the classes of a model, within a memory limit; raise ValueError for another type or names too long."""
    if not re.fullmatch(r"str|bool|u?int\d+|float\d+", kind):
        raise ValueError(f"classes must be text, booleans or numbers, got type {kind!r}")
    if kind == "str" and len(values) * max(map(len, values), default=0) > MAX_CLASS_LETTERS:
        raise ValueError(f"{len(values)} classes must have shorter names, got one of {max(map(len, values))} letters")
    return np.array(values, kind)


def learnt_of(tensors: dict[str, npt.NDArray[Any]], predictor: npt.NDArray[Any]) -> Learnt | None:
    """Return the model during training; None if the coefficients suffice.

    Raise ValueError if the tensors do not fit.
    """
    if not any(name in tensors for name in (*LEARNT, OPTIMIZER_STATE)):
        return None
    width = predictor.shape[1]
    center, scale, coef, intercept = (tensors[name] for name in LEARNT)
    state = tensors.get(OPTIMIZER_STATE)
    fits = center.shape == scale.shape == (width,) and center.dtype == scale.dtype == np.float64
    fits = fits and coef.shape == predictor.shape and intercept.shape == predictor.shape[:1]
    fits = fits and coef.dtype == intercept.dtype == predictor.dtype
    finite = all(np.isfinite(part).all() for part in (center, scale, coef, intercept))
    if not fits or not finite or not (scale > 0).all():
        raise ValueError("its scaling does not fit its coefficients")
    if state is not None and not _is_optimizer_state(state, width):
        raise ValueError("its optimizer state does not fit its weights")
    scaling = Scaling(center, scale)
    return Learnt(None if scaling.idle else scaling, coef, intercept, state)


def _is_optimizer_state(rows: npt.NDArray[Any], width: int) -> bool:
    """Return whether an array has the form of `SGD.optimizer_state`; a warm start checks the number of rows."""
    fits = rows.ndim == 2 and rows.shape[1] == width + 1 and len(rows) > 1 and rows.dtype == np.float64
    return bool(fits and np.isfinite(rows).all() and 0 <= rows[-1, 0] < 1 << 62)


def check_model(model: "Model") -> None:
    """Raise unless the parts of a model are consistent."""
    outputs = outputs_of(model.kind, model.classes) * model.models
    if model.coef.ndim != 2 or model.width < 1:
        raise ValueError(f"kind {model.kind!r} with coefficients of shape {model.coef.shape}")
    fits = model.coef.shape[0] == outputs and model.intercept.shape == (outputs,)
    if not fits or model.intercept.dtype != model.coef.dtype:
        raise ValueError(f"{outputs} outputs, but coefficients {model.coef.shape}, intercepts {model.intercept.shape}")
    classes, kinds = model.classes, "biufU" if model.params.get("encoding") else "biuf"
    if classes.ndim != 1 or classes.dtype.kind not in kinds or (np.unique(classes) != classes).any():
        raise ValueError("its classes must ascend")
    most = most_classes(model.kind)
    if not min(most, 2) <= len(model.classes) <= most:
        raise ValueError(f"{len(model.classes)} classes for a {model.kind} model")
    if not (np.isfinite(model.coef).all() and np.isfinite(model.intercept).all()):
        raise ValueError("a coefficient is NaN or infinite")
    if not isinstance(model.params, dict) or not isinstance(model.history, list):
        raise TypeError("parameters or history are missing")
    _check_notes(model)


def _check_notes(model: "Model") -> None:
    """Raise unless parameters and history are as training writes them."""
    features, label, lists = (model.params.get(name) for name in ("features", "label", "lists"))
    if features is not None and not (isinstance(features, list) and all(isinstance(name, str) for name in features)):
        raise ValueError(f"its features must be a list of names, got {features!r}")
    encoding = model.encoding
    if encoding is not None and not encoding.fits(features, model.width):
        raise ValueError(f"its features are {features!r} ({model.width}), and those encoded {list(encoding.columns)}")
    named = len(features or ())  # among several some may be lists
    if encoding is None and lists is False and named != model.width and not 1 < named < model.width:
        raise ValueError(f"{named} names for {model.width} features")
    if not (isinstance(label, str | None) and isinstance(lists, bool | None)):
        raise TypeError(f"its label is {label!r} and lists is {lists!r}")
    best = model.params.get("best_epoch")
    if best is not None and (type(best) is not int or not 0 <= best < len(model.history)):
        raise ValueError(f"its best epoch is {best!r} of {len(model.history)}")
    if best is not None and not isinstance(model.history[best].get("test_loss"), int | float):
        raise TypeError("its best epoch has no test_loss")
    if not all(isinstance(model.params[name], kind) for name, kind in NOTE_TYPES.items() if name in model.params):
        raise TypeError("its notes are damaged")
    _check_values(model)


def _check_values(model: "Model") -> None:
    """Raise unless the values of other columns and of the history have the types that training writes."""
    if not all(isinstance(name, str) for name in model.params.get("others", ())):
        raise TypeError("its other columns must be names")
    for record in model.history:
        loss = record["loss"]
        if isinstance(loss, bool) or not isinstance(loss, int | float):
            raise TypeError(f"its history has the loss {loss!r}")
        if not all(isinstance(value, str | int | float | None) for value in record.values()):
            raise TypeError("its history must hold numbers")
        counts = [record.get(name) or 0 for name in ("epoch", "rows", "skipped", "bytes_read")]
        if not all(isinstance(count, int) and 0 <= count < 1 << 63 for count in counts):
            raise ValueError(f"its history must count rows, got {counts}")
        if not 0 <= float(record.get("seconds") or 0) < math.inf:
            raise ValueError(f"its history must hold seconds, got {record['seconds']}")
