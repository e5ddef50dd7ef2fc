"""Hashing of text, categories and numbers to sparse features: n-grams of words, and crosses of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile import arrow_compute as pc
from corgipile.errors import BadSchema
from corgipile.features.encoders import Number, as_text, family_of
from corgipile.tables.spans import flat
from corgipile.tables.values import as_type, value_type

__all__ = ["Hashing", "Source", "is_words"]

Kind = Literal["words", "category", "number"]
CODES = {"words": _kernel.HASHED_WORDS, "category": _kernel.HASHED_CATEGORY, "number": _kernel.HASHED_NUMBER}


def is_words(kind: pa.DataType) -> bool:
    """Return whether a column holds text or bytes, in any encoding."""
    kind, types = value_type(kind), pa.types
    return any(is_a(kind) for is_a in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary))


@dataclass(frozen=True)
class Source:
    """A hashed column: n-grams of ``"words"``, a ``"category"`` by its whole value, or a ``"number"``.

    ``family`` is the type family of a category's column in training (`family_of`); ``fill`` replaces a missing number.
    """

    column: str
    kind: Kind
    family: str = ""
    fill: float | None = None

    def check(self, kind: pa.DataType) -> None:
        """Raise BadSchema if a column's type cannot be hashed this way."""
        if self.kind == "words" and not is_words(kind):
            raise BadSchema(f"text column {self.column!r} is {kind}; text is needed")
        if self.kind == "category" and family_of(kind) != self.family:
            raise BadSchema(f"column {self.column!r} is {kind}; its categories are {self.family}s")
        if self.kind == "number":
            Number(self.column, self.fill).type_of(kind)


@dataclass(frozen=True)
class Hashing:
    """How columns are hashed to features, with 2^bits places; kernel/text/hashed.h defines the hash.

    One column of a term gives all its features, several all their products. ``strict`` gives a row with a missing value
    a NaN feature; otherwise the value has no features.

    Example:
        >>> found = Hashing(18, 1, (Source("review", "words"),), (("review",),))
        >>> indices, values = found.rows([pa.array(["Good, good, not bad", ""])], None)
        >>> indices.to_pylist(), values.to_pylist()
        ([[98369, 139636, 173059], []], [[1.0, 0.5, 0.5], []])
    """

    bits: int
    ngrams: int
    sources: tuple[Source, ...]
    terms: tuple[tuple[str, ...], ...]
    strict: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the hashed columns."""
        return tuple(source.column for source in self.sources)

    @property
    def text(self) -> tuple[str, ...]:
        """Return the columns of words."""
        return tuple(source.column for source in self.sources if source.kind == "words")

    @property
    def interactions(self) -> tuple[tuple[str, ...], ...]:
        """Return all terms except single columns of words."""
        return tuple(term for term in self.terms if term[0] not in self.text or len(term) > 1)

    def rows(self, columns: Sequence[pa.Array], numbers: npt.NDArray[np.float32] | None) -> tuple[pa.Array, pa.Array]:
        """Return the indices and values of rows, lists of int32 and of float32.

        ``numbers``, [rows, count], are features that follow the 2^bits hashed ones.
        """
        rows = len(columns[0])
        ends = np.zeros(rows + 1, np.int32)
        missing = self._missing(columns) if self.strict else None
        indices, values = _kernel.hash_rows(
            [self._column(one, column) for one, column in zip(self.sources, columns, strict=True)],
            [tuple(self.columns.index(name) for name in term) for term in self.terms],
            ends[1:], bits=self.bits, ngrams=self.ngrams, missing=missing, beside=numbers,
        )  # fmt: skip
        offsets = pa.py_buffer(ends)
        kinds = (pa.int32(), indices), (pa.float32(), values)
        items = [pa.Array.from_buffers(kind, int(ends[-1]), [None, pa.py_buffer(data)]) for kind, data in kinds]
        lists = [pa.Array.from_buffers(pa.list_(one.type), rows, [None, offsets], children=[one]) for one in items]
        return lists[0], lists[1]

    def _missing(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
        """Return which rows miss a value, except numbers, where NaN marks it; None if no row does."""
        found = [column.is_null() for column, item in zip(columns, self.sources, strict=True) if item.kind != "number"]
        found = [holes for holes in found if holes.true_count]
        return np.logical_or.reduce([flat(holes) for holes in found]).view(np.uint8) if found else None

    def _column(self, source: Source, column: pa.Array) -> tuple[Any, ...]:
        """Return a column in the kernel's form."""
        code = CODES[source.kind]
        if source.kind == "number":
            number = Number(source.column, source.fill).encode(column, str).cast(pa.float64(), safe=False)
            return code, self._seed(source), None, None, flat(pc.fill_null(number, float("nan")))
        values = as_text(column) if source.kind == "category" else as_type(column, value_type(column.type))
        values = pc.fill_null(values, pa.scalar("", values.type)) if values.null_count else values
        _, offsets, data = values.buffers()
        wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        places = np.frombuffer(offsets, np.int64 if wide else np.int32) if offsets else np.zeros(1, np.int64)
        places = places[values.offset : values.offset + len(values) + 1].astype(np.int64)
        return code, self._seed(source), b"" if data is None else data, places, None

    def _seed(self, source: Source) -> int:
        """Return the seed of a column: for text its place among text columns, else the hash of its name."""
        return self.text.index(source.column) if source.kind == "words" else _kernel.murmur(source.column.encode(), 0)

    def state(self) -> dict[str, Any]:
        """Return the JSON state from which `of` restores this."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return the hashing of a `state`.

        Raises:
            KeyError, TypeError, ValueError: The state is not valid.
        """
        sources = tuple(Source(**one) for one in state["sources"])
        hashing = cls(
            state["bits"], state["ngrams"], sources, tuple(tuple(one) for one in state["terms"]), state["strict"]
        )
        names = hashing.columns
        known = all(one.kind in CODES and isinstance(one.column, str) for one in sources)
        fits = 1 <= hashing.bits <= _kernel.MOST_HASH_BITS and 1 <= hashing.ngrams <= _kernel.MOST_NGRAMS
        if not (known and fits and hashing.terms and all(name in names for term in hashing.terms for name in term)):
            raise ValueError("the hashing of its columns is not supported")
        return hashing
