"""Output of predictions: an Arrow file, a NumPy file or the terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.outputs import Kind
from corgipile.tables.formats.arrow.writer import PREDICTION, PREDICTIONS, Writer
from corgipile.tables.inputs import replacing
from corgipile.tables.spans import array_of

Part = npt.NDArray[Any]
Write = Callable[[Part], None]
PADDING = 192  # extra spaces in the NumPy header that mark corgipile's predictions


def holds_predictions(path: Path) -> bool:
    """Return whether a NumPy file holds predictions that corgipile wrote."""
    try:
        with path.open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                return False
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            head = file.tell()
            file.seek(0)
            return not fortran and file.read(head) == _head(shape, dtype)
    except (OSError, ValueError, TypeError, SyntaxError, TokenError):  # NumPy's errors for invalid headers
        return False


ARRAY = Kind("array of predictions", holds_predictions)


def sink(
    out: str, like: Part, rows: int, *, inputs: Sequence[Any] = (), overwrite: bool = False
) -> AbstractContextManager[Write]:
    """Open a writer for ``rows`` predictions of the type of `like`; a file appears when it is complete.

    Example:
        >>> with sink("-", np.zeros(0), 2) as write:
        ...     write(np.array([0.5, 1.0]))
        0.5
        1.0
    """
    if out == "-":
        return _lines()
    if out.endswith(".npy"):
        return _npy(like, rows, replacing(out, ARRAY, inputs=inputs, overwrite=overwrite))
    if out.endswith((".arrow", ".feather", ".ipc")):
        return _arrow(like, lambda schema: Writer(out, schema, kind=PREDICTIONS, inputs=inputs, overwrite=overwrite))
    raise BadArgument(f"out must be a name ending in .arrow or .npy, or -, got {out!r}")


@contextmanager
def _lines() -> Iterator[Write]:
    def write(part: Part) -> None:
        lines = part.tolist() if part.ndim == 1 else (" ".join(map(str, row)) for row in part.tolist())
        sys.stdout.writelines(f"{line}\n" for line in lines)

    yield write


@contextmanager
def _npy(like: Part, rows: int, replaced: AbstractContextManager[Path]) -> Iterator[Write]:
    with replaced as temporary, temporary.open("wb") as file:
        file.write(_head((rows, *like.shape[1:]), like.dtype))
        yield lambda part: void(file.write(np.ascontiguousarray(part, like.dtype).tobytes()))


def _head(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the header of a NumPy file of predictions."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    plain, at = buffer.getvalue(), 10  # after the magic bytes, version and text length
    text = plain[at:-1] + b" " * PADDING + b"\n"
    return plain[: at - 2] + len(text).to_bytes(2, "little") + text


@contextmanager
def _arrow(like: Part, writer_of: Callable[[pa.Schema], Writer]) -> Iterator[Write]:
    def batch(part: Part) -> pa.RecordBatch:
        values = pa.array(part, pa.string()) if part.dtype.kind == "U" else array_of(part)
        column = values if part.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, part.shape[1])
        return pa.record_batch([column], names=[PREDICTION])

    with writer_of(batch(like).schema) as writer:
        yield lambda part: writer.write(batch(part))


def void(_: object) -> None:
    """Discard a value."""
