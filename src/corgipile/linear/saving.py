"""Model files: safetensors, with everything that prediction needs in the metadata."""

import contextlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument, BadModelFile, MissingFile, ReadFailed
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
        ReadFailed: It cannot be read.
    """
    if not isinstance(path, str | os.PathLike):
        raise BadArgument(f"a model is loaded from a path, got {path!r}")
    refuse_url(path)
    try:
        with Path(path).expanduser().open("rb") as file:
            return _parse(file)
    except FileNotFoundError:
        raise MissingFile(f"no model file at {os.fspath(path)}") from None
    except OSError as error:
        raise ReadFailed(error.errno, f"cannot read the model {os.fspath(path)}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, struct.error, RecursionError) as error:
        raise BadModelFile(f"{os.fspath(path)} is not a model saved by corgipile: {error}") from None


def _parse(file: BinaryIO) -> tuple[Arrays, dict[str, Any]]:
    """Parse a model; of a file that is none, however large, little is read."""
    (size,) = struct.unpack("<Q", file.read(8))
    if size > min(os.fstat(file.fileno()).st_size - 8, MOST_HEADER):
        raise ValueError(f"its header of {size} bytes is longer than the file")
    header = json.loads(file.read(size))
    meta = json.loads(header.pop("__metadata__")[KEY], parse_constant=_refuse)
    claimed = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values())
    if claimed != os.fstat(file.fileno()).st_size - 8 - size:
        raise ValueError(f"its tensors take {claimed} bytes, which is not what follows its header")
    body, at, tensors = memoryview(file.read()), 0, {}
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
