"""NumPy ``.npy`` files: one with features, and optionally one with labels."""

import io
import logging
import tokenize
import warnings
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema, CorruptFile, UnknownFormat
from corgipile.tables.checked import Checked
from corgipile.tables.format import Format
from corgipile.tables.io.files import PathLike, Region, decoding, describe, digest
from corgipile.tables.io.pieces import pick, take_runs
from corgipile.tables.io.remote import file_of
from corgipile.tables.spans import array_of
from corgipile.tables.table import ColumnLayout, IntArray, Layout, check_columns

MAGIC = b"\x93NUMPY"
SUFFIXES = (".npy",)
log = logging.getLogger("corgipile")
MAX_HEADER = 1 << 16  # bytes
MIN_TOKENS = 1 << 20  # rows of one number that are likely tokens
MAX_GAP, RUN = 1 << 15, 1 << 20  # unneeded bytes read to save a request, and bytes read at a time


class NumpyTable(Checked):
    """Reads arrays stored as ``.npy``: their first axis counts rows.

    Args:
        path: Features, of any shape: column ``features``.
        label: Labels, of one axis: column ``label``.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.arange(6.0).reshape(3, 2))
        ...     NumpyTable(f"{folder}/x.npy").read(1, 2).to_pydict()
        {'features': [[2.0, 3.0]]}
    """

    def __init__(self, path: PathLike, label: PathLike | None = None) -> None:
        self._arrays = {"features": _Stored(path)}
        if label is not None:
            self._arrays["label"] = labels = _Stored(label)
            if len(labels.shape) != 1:
                raise BadSchema(f"{labels.file.path}: labels must have one axis, got shape {labels.shape}")
            if labels.shape[0] != len(self):
                raise BadArgument(
                    f"{labels.file.path} must have as many labels as {self._arrays['features'].file.path} has rows, "
                    f"{len(self)}, got {labels.shape[0]}"
                )
        elif len(self._arrays["features"].shape) == 1 and len(self) >= MIN_TOKENS:
            log.warning(
                "%s has one axis: each of its %s numbers is a row; for rows of 1,024 tokens save "
                "numpy.load(PATH, mmap_mode='r')[: N // 1024 * 1024].reshape(-1, 1024)",
                self._arrays["features"].file.path, f"{len(self):,}",
            )  # fmt: skip
        self.schema: pa.Schema = pa.schema([(name, array.kind) for name, array in self._arrays.items()])

    def __reduce__(self) -> tuple[type["NumpyTable"], tuple[str, ...]]:
        return NumpyTable, tuple(array.file.path for array in self._arrays.values())

    def __len__(self) -> int:
        return int(self._arrays["features"].shape[0])

    def __repr__(self) -> str:
        return f"NumpyTable({', '.join(repr(array.file.path) for array in self._arrays.values())})"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return sum(array.width for array in self._arrays.values()) * len(self)

    @property
    def fingerprint(self) -> str:
        """Return the identity of contents, schema and rows."""
        files = [array.file.identity for array in self._arrays.values()]
        return digest(*files, describe(self.schema), str(len(self)))

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        arrays = [self._arrays[name].read(start, stop) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        gap, max_rows = (size // max(sum(self._arrays[name].width for name in names), 1) for size in (MAX_GAP, RUN))
        return take_runs(rows, gap, lambda start, stop: self.read(start, stop, names), max(1, max_rows))

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the layout of columns; None for booleans and foreign byte order."""
        arrays = [self._arrays[name] for name in check_columns(self.schema, columns)]
        if any(array.dtype.kind == "b" or not array.dtype.isnative for array in arrays):
            return None
        starts = np.array([0, len(self)] if len(self) else [0], np.int64)
        pieces = len(starts) - 1
        places = {
            name: ColumnLayout(
                array.dtype,
                array.shape[1:],
                starts,
                np.full(pieces, i, np.int32),
                np.full(pieces, array.at, np.int64),
            )
            for i, (name, array) in enumerate(zip(columns, arrays, strict=True))
        }
        files = [array.file for array in arrays]
        return Layout(tuple(file.path for file in files), places, tuple(file.which for file in files))


class _Stored:
    """One ``.npy`` file."""

    def __init__(self, path: PathLike) -> None:
        self.file = file_of(path)
        if self.file.read(0, min(6, self.file.size)) != MAGIC:
            raise UnknownFormat(f"{self.file.path} is not a .npy file: it does not begin with {MAGIC!r}")
        with decoding(self.file.path), Region(self.file, 0, self.file.size) as stream:
            self.shape, fortran, self.dtype, self.at = read_header(stream)
        self.width = int(self.dtype.itemsize) * int(np.prod(self.shape[1:], dtype=object))
        if fortran and len(self.shape) > 1:
            raise BadSchema(f"{self.file.path} must be in C order; save np.ascontiguousarray(array)")
        if not self.shape or self.dtype.kind not in "biuf" or self.dtype.itemsize > 8:
            raise BadSchema(
                f"{self.file.path} must hold rows of bool, integers or floats up to 64 bits, "
                f"got {self.dtype} of shape {self.shape}"
            )
        if not self.width:
            raise BadSchema(f"{self.file.path}: rows must have at least one value, got shape {self.shape[1:]}")
        if self.at + self.shape[0] * self.width > self.file.size:
            raise CorruptFile(
                f"{self.file.path} is truncated: {self.shape[0]} rows of {self.width} bytes "
                f"from byte {self.at} do not fit its {self.file.size} bytes"
            )
        if self.at + self.shape[0] * self.width < self.file.size:
            raise CorruptFile(
                f"{self.file.path} is damaged, or has a second array: {self.shape[0]} rows of {self.width} bytes "
                f"from byte {self.at} end before its {self.file.size} bytes"
            )
        self.kind: pa.DataType = pa.from_numpy_dtype(self.dtype.newbyteorder("="))
        for size in reversed(self.shape[1:]):
            self.kind = pa.list_(self.kind, size)

    def read(self, start: int, stop: int) -> pa.Array:
        data = self.file.read(self.at + start * self.width, (stop - start) * self.width)
        values = np.frombuffer(data, self.dtype)
        return nested(values.astype(self.dtype.newbyteorder("="), copy=False), self.shape[1:])


def read_header(stream: IO[bytes] | Region) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Read the header of an array: shape, Fortran order, dtype, and the offset of the data.

    Raises:
        ValueError: The header is damaged.
    """
    with warnings.catch_warnings():
        # NumPy warns about headers of Python 2, and Python about syntax in damaged headers.
        warnings.simplefilter("ignore")
        form = np.lib.format
        first = form.read_magic(stream) == (1, 0)
        read = form.read_array_header_1_0 if first else form.read_array_header_2_0
        prefix = stream.read(2 if first else 4)
        size = int.from_bytes(prefix, "little")
        if size > MAX_HEADER:  # checked before the header is read
            raise ValueError(f"the header must have at most {MAX_HEADER} bytes, got {size}")
        try:
            shape, fortran, dtype = read(io.BytesIO(prefix + stream.read(size)))
        except (SyntaxError, RecursionError, EOFError, tokenize.TokenError) as error:
            raise ValueError(f"header: {error}") from None
        if any(size < 0 or size >= 2**62 for size in shape):
            raise ValueError(f"shape {shape}")
        return shape, fortran, dtype, stream.tell()


def nested(values: npt.NDArray[Any], shape: tuple[int, ...]) -> pa.Array:
    """Return flat values as fixed-size lists of a row shape.

    Example:
        >>> nested(np.arange(4), (2,)).to_pylist()
        [[0, 1], [2, 3]]
    """
    array = array_of(values)
    for size in reversed(shape):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


FORMAT = Format(MAGIC, SUFFIXES, NumpyTable, frozenset({"label"}))
