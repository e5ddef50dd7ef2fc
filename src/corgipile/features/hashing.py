"""Text, categories and numbers hashed to sparse features: n-grams of words, and crosses of columns."""

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
from corgipile.tables.arrow.spans import flat
from corgipile.tables.values import as_type, value_type

__all__ = ["Hashing", "Source", "is_words"]

Kind = Literal["words", "category", "number"]
CODES = {"words": _kernel.HASHED_WORDS, "category": _kernel.HASHED_CATEGORY, "number": _kernel.HASHED_NUMBER}


def is_words(kind: pa.DataType) -> bool:
    """Say whether a column holds what words are read from: text or bytes, however they are stored."""
    kind, types = value_type(kind), pa.types
    return any(is_a(kind) for is_a in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary))


@dataclass(frozen=True)
class Source:
    """One column that is hashed.

    Attributes:
        column: Its name.
        kind: What becomes of it: ``"words"`` (n-grams of its words), ``"category"`` (what it says as a whole) or
            ``"number"`` (one feature of that value).
        family: What a category was where the model was trained, see `corgipile.features.encoders.family_of`.
        fill: What stands for a number that is missing; None: nothing does.
    """

    column: str
    kind: Kind
    family: str = ""
    fill: float | None = None

    def check(self, kind: pa.DataType) -> None:
        """Raise BadSchema for a column of a type that is not hashed so."""
        if self.kind == "words" and not is_words(kind):
            raise BadSchema(f"text column {self.column!r} is {kind}; text is needed")
        if self.kind == "category" and family_of(kind) != self.family:
            raise BadSchema(f"column {self.column!r} is {kind}; its categories are {self.family}s")
        if self.kind == "number":
            Number(self.column, self.fill).type_of(kind)


@dataclass(frozen=True)
class Hashing:
    """How columns are hashed to features; kernel/text/hashed.h has the rule.

    Attributes:
        bits: There are 2^bits places for features.
        ngrams: Words of an n-gram, at most.
        sources: The columns.
        terms: Names of columns: of one all its features, of several all their products.
        strict: Whether a row of which a value is missing has a feature that is NaN; else the value has no features.

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
        """Return the columns that are hashed."""
        return tuple(one.column for one in self.sources)

    @property
    def text(self) -> tuple[str, ...]:
        """Return those of which words are read."""
        return tuple(one.column for one in self.sources if one.kind == "words")

    @property
    def interactions(self) -> tuple[tuple[str, ...], ...]:
        """Return the terms but those of words alone."""
        return tuple(term for term in self.terms if term[0] not in self.text or len(term) > 1)

    def rows(self, columns: Sequence[pa.Array], beside: npt.NDArray[np.float32] | None) -> tuple[pa.Array, pa.Array]:
        """Return the indices and the values of rows, lists of int32 and of float32.

        Args:
            columns: The columns, in the order of ``sources``.
            beside: Numbers with places of their own behind the 2^bits, [rows, numbers].
        """
        rows = len(columns[0])
        ends = np.zeros(rows + 1, np.int32)
        missing = self._missing(columns) if self.strict else None
        indices, values = _kernel.hash_rows(
            [self._column(one, column) for one, column in zip(self.sources, columns, strict=True)],
            [tuple(self.columns.index(name) for name in term) for term in self.terms],
            ends[1:], bits=self.bits, ngrams=self.ngrams, missing=missing, beside=beside,
        )  # fmt: skip
        offsets = pa.py_buffer(ends)
        kinds = (pa.int32(), indices), (pa.float32(), values)
        items = [pa.Array.from_buffers(kind, int(ends[-1]), [None, pa.py_buffer(data)]) for kind, data in kinds]
        made = [pa.Array.from_buffers(pa.list_(one.type), rows, [None, offsets], children=[one]) for one in items]
        return made[0], made[1]

    def _missing(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
        """Say which rows miss a value; None: none does. Of numbers the value itself is NaN then."""
        found = [column.is_null() for column, one in zip(columns, self.sources, strict=True) if one.kind != "number"]
        found = [holes for holes in found if holes.true_count]
        return np.logical_or.reduce([flat(holes) for holes in found]).view(np.uint8) if found else None

    def _column(self, one: Source, column: pa.Array) -> tuple[Any, ...]:
        """Return a column as the kernel takes it."""
        code = CODES[one.kind]
        if one.kind == "number":
            number = Number(one.column, one.fill).encode(column, str).cast(pa.float64(), safe=False)
            return code, self._seed(one), None, None, flat(pc.fill_null(number, float("nan")))
        values = as_text(column) if one.kind == "category" else as_type(column, value_type(column.type))
        values = pc.fill_null(values, pa.scalar("", values.type)) if values.null_count else values
        _, offsets, data = values.buffers()
        wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        places = np.frombuffer(offsets, np.int64 if wide else np.int32) if offsets else np.zeros(1, np.int64)
        places = places[values.offset : values.offset + len(values) + 1].astype(np.int64)
        return code, self._seed(one), b"" if data is None else data, places, None

    def _seed(self, one: Source) -> int:
        """Return the seed of a column: of text its place among those of text, of others the hash of the name."""
        return self.text.index(one.column) if one.kind == "words" else _kernel.murmur(one.column.encode(), 0)

    def state(self) -> dict[str, Any]:
        """Return what makes this again, for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Make it from its `state`.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        sources = tuple(Source(**one) for one in state["sources"])
        made = cls(
            state["bits"], state["ngrams"], sources, tuple(tuple(one) for one in state["terms"]), state["strict"]
        )
        names = made.columns
        known = all(one.kind in CODES and isinstance(one.column, str) for one in sources)
        fits = 1 <= made.bits <= _kernel.MOST_HASH_BITS and 1 <= made.ngrams <= _kernel.MOST_NGRAMS
        if not (known and fits and made.terms and all(name in names for term in made.terms for name in term)):
            raise ValueError("columns are hashed in a way that is not known")
        return made
