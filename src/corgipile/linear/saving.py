"""Model files: safetensors, with everything that prediction needs in the metadata."""

import contextlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadModelFile, MissingFile
from corgipile.outputs import Kind, refuse_url, replacing

__all__ = ["MODEL", "read_tensors", "write_tensors"]

KEY = "corgipile.model"
MOST_HEADER = 100 << 20
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
Arrays = dict[str, npt.NDArray[Any]]


def is_model(path: Path) -> bool:
    """Say whether a file has the head of a model that corgipile saved; what follows may be damaged."""
    with contextlib.suppress(ValueError, KeyError, TypeError, struct.error, RecursionError), path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return size <= MOST_HEADER and KEY in json.loads(file.read(size))["__metadata__"]
    return False


MODEL = Kind("model", is_model)


def write_tensors(
    path: str | os.PathLike[str], tensors: Arrays, meta: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write a file that appears under its name only when it is whole."""
    header: dict[str, Any] = {}
    at = 0
    header["__metadata__"] = {KEY: json.dumps(meta, allow_nan=False, default=lambda value: value.item())}
    names = {dtype: name for name, dtype in DTYPES.items()}
    for name, tensor in tensors.items():
        dtype = names[tensor.dtype.newbyteorder("<")]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path, MODEL, overwrite=overwrite) as temporary, temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("<")).tobytes())


def read_tensors(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """Read the tensors and the metadata of a model file.

    Raises:
        MissingFile: No file lies there.
        BadModelFile: It is no model that corgipile saved, or it is damaged.
    """
    refuse_url(path)
    try:
        data = Path(path).expanduser().read_bytes()
    except FileNotFoundError:
        raise MissingFile(f"no model file at {os.fspath(path)}") from None
    try:
        return _parse(data)
    except (ValueError, KeyError, TypeError, struct.error, RecursionError) as error:
        raise BadModelFile(f"{os.fspath(path)} is not a model saved by corgipile: {error}") from None


def _parse(data: bytes) -> tuple[Arrays, dict[str, Any]]:
    (size,) = struct.unpack("<Q", data[:8])
    if size > min(len(data) - 8, MOST_HEADER):
        raise ValueError(f"its header of {size} bytes is longer than the file")
    header = json.loads(data[8 : 8 + size])
    meta = json.loads(header.pop("__metadata__")[KEY], parse_constant=_refuse)
    body, at, tensors = memoryview(data)[8 + size :], 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, (start, stop) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if not all(isinstance(side, int) and side >= 0 for side in shape) or len(shape) > 2:
            raise ValueError(f"tensor {name!r} has shape {shape}")
        if start != at or stop - start != math.prod(shape) * dtype.itemsize or stop > len(body):
            raise ValueError(f"tensor {name!r} does not lie where its shape says")
        tensors[name] = np.frombuffer(body[start:stop], dtype).reshape(shape).astype(dtype.newbyteorder("="))
        at = stop
    if at != len(body):
        raise ValueError(f"{len(body) - at} bytes follow its last tensor")
    return tensors, meta


def _refuse(name: str) -> None:
    raise ValueError(f"its metadata holds {name}")
