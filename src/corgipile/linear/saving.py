"""Model files: safetensors, with everything that prediction needs in the metadata."""

import contextlib
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadModelFile, MissingFile, ReadFailed
from corgipile.linear.scaling import Learnt, Scaling
from corgipile.nesting import parse_json
from corgipile.outputs import Kind, refuse_url, replacing

__all__ = ["MODEL", "classes_of", "learnt_of", "packed", "read_tensors", "tensors_of", "unpacked", "write_tensors"]

KEY = "corgipile.model"
MOST_HEADER = 100 << 20
MAX_CLASS_LETTERS = 1 << 24  # of all class names, each counted as the longest
LEARNT = ("center", "scale", "learnt_coef", "learnt_intercept")  # tensors of what going on needs, if that is more
BESIDE = "beside"
Arrays = dict[str, npt.NDArray[Any]]


def is_model(path: Path) -> bool:
    """Say whether a file has the head of a model that corgipile saved; what follows may be damaged."""
    with contextlib.suppress(ValueError, KeyError, TypeError, struct.error), path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return size <= MOST_HEADER and KEY in parse_json(file.read(size), str(path))["__metadata__"]
    return False


MODEL = Kind("model", is_model)


def write_tensors(
    path: str | os.PathLike[str], tensors: Arrays, meta: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write a file that appears under its name only when it is whole."""
    content = packed(tensors, meta)
    with replacing(path, MODEL, overwrite=overwrite) as temporary:
        temporary.write_bytes(content)


def packed(tensors: Arrays, meta: dict[str, Any]) -> bytes:
    """Return the content of a model file."""
    from safetensors.numpy import save  # noqa: PLC0415 - not before a model is saved

    text = json.dumps(meta, allow_nan=False, default=lambda value: value.item())
    return bytes(save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, {KEY: text}))


def unpacked(content: bytes, name: str) -> tuple[Arrays, dict[str, Any]]:
    """Read the tensors and the metadata of the content of a model file.

    Args:
        content: The bytes.
        name: What they are called in errors.

    Raises:
        BadModelFile: They are no model that corgipile saved, or damaged.
    """
    from safetensors.numpy import load  # noqa: PLC0415 - as above

    with _read_as(name):
        tensors = load(content)
        (size,) = struct.unpack("<Q", content[:8])
        meta = _meta(parse_json(content[8 : 8 + size], name)["__metadata__"])
        _check_kinds({tensor.dtype.name for tensor in tensors.values()} - {"float32", "float64"})
        return tensors, meta


def read_tensors(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """Read the tensors and the metadata of a model file.

    Raises:
        MissingFile: No file lies there.
        BadModelFile: It is no model that corgipile saved, or it is damaged.
        ReadFailed: It cannot be read.
    """
    if not isinstance(path, str | os.PathLike):
        raise BadArgument(f"a model is loaded from a path, got {path!r}")
    refuse_url(path)
    file = Path(path).expanduser()
    try:
        with file.open("rb"), _read_as(os.fspath(path)):  # what the system says of it, said as of any other file
            return _parse(file)
    except FileNotFoundError:
        raise MissingFile(f"no model file at {os.fspath(path)}") from None
    except OSError as error:
        raise ReadFailed(error.errno, f"cannot read the model {os.fspath(path)}: {error.strerror}") from None


@contextlib.contextmanager
def _read_as(name: str) -> Iterator[None]:
    from safetensors import SafetensorError  # noqa: PLC0415 - not before a model is read

    try:
        yield
    except (SafetensorError, ValueError, LookupError, TypeError, OverflowError, struct.error) as error:
        raise BadModelFile(f"{name} is not a model saved by corgipile: {error}") from None


def _parse(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Parse a model; of a file that is none, however large, little is read."""
    from safetensors import safe_open  # noqa: PLC0415 - as above

    with safe_open(path, "np") as file:
        meta = _meta(file.metadata() or {})
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - it is no mapping
        _check_kinds(set(kinds.values()) - {"F32", "F64"})
        return {name: file.get_tensor(name) for name in kinds}, meta


def _meta(entries: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of a model."""
    meta: dict[str, Any] = parse_json(entries[KEY], "its metadata", BadModelFile, _refuse)
    return meta


def _check_kinds(strange: set[str]) -> None:
    if strange:
        raise ValueError(f"its tensors are {', '.join(sorted(strange))}; F32 or F64 is wanted")


def _refuse(name: str) -> None:
    raise ValueError(f"its metadata holds {name}")


def tensors_of(learnt: Learnt | None, width: int) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a model as it was learnt; none where the coefficients say it all."""
    if learnt is None:
        return {}
    scaling = learnt.scaling or Scaling.none(width)
    parts = scaling.center, scaling.scale, learnt.coef, learnt.intercept
    beside = {} if learnt.beside is None else {BESIDE: learnt.beside}
    return beside | dict(zip(LEARNT, parts, strict=True))


def classes_of(values: Any, kind: Any) -> npt.NDArray[Any]:
    """Return the classes of a model, within a memory limit.

    Raises:
        ValueError: They have a type that classes cannot have, or their names are too long.
    """
    if not re.fullmatch(r"str|bool|u?int\d+|float\d+", kind):
        raise ValueError(f"classes must be text, booleans or numbers, got type {kind!r}")
    if kind == "str" and len(values) * max(map(len, values), default=0) > MAX_CLASS_LETTERS:
        raise ValueError(f"{len(values)} classes must have shorter names, got one of {max(map(len, values))} letters")
    return np.array(values, kind)


def learnt_of(tensors: dict[str, npt.NDArray[Any]], of: npt.NDArray[Any]) -> Learnt | None:
    """Return the model as it was learnt, None where the coefficients, ``of``, say it all.

    Raises:
        ValueError: The tensors do not fit.
    """
    if not any(name in tensors for name in (*LEARNT, BESIDE)):
        return None
    width = of.shape[1]
    center, scale, coef, intercept = (tensors[name] for name in LEARNT)
    beside = tensors.get(BESIDE)
    fits = center.shape == scale.shape == (width,) and center.dtype == scale.dtype == np.float64
    fits = fits and coef.shape == of.shape and intercept.shape == of.shape[:1]
    fits = fits and coef.dtype == intercept.dtype == of.dtype
    if (
        not fits
        or not all(np.isfinite(part).all() for part in (center, scale, coef, intercept))
        or not (scale > 0).all()
    ):
        raise ValueError("what it was standardised by does not fit its coefficients")
    if beside is not None and not _is_beside(beside, width):
        raise ValueError("what is known beside its weights does not fit them")
    scaling = Scaling(center, scale)
    return Learnt(None if scaling.idle else scaling, coef, intercept, beside)


def _is_beside(lines: npt.NDArray[Any], width: int) -> bool:
    """Say whether lines are such as `SGD.beside` returns; how many there are is for who goes on from them to check."""
    fits = lines.ndim == 2 and lines.shape[1] == width + 1 and len(lines) > 1 and lines.dtype == np.float64
    return bool(fits and np.isfinite(lines).all() and 0 <= lines[-1, 0] < 1 << 62)
