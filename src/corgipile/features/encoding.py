"""The encoding of a table's features and label, fitted to one table and applied to others."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.features.encoders import Classes, Encoder, Number, Vector, encoder_of
from corgipile.features.hashed import PAIR, HashedColumns
from corgipile.features.hashing import Hashing
from corgipile.features.table import EncodedColumns, encode_once
from corgipile.tables.table import Table

__all__ = ["Encoding", "feature_names"]

FORMAT = 1


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become features and a label; fitted by `corgipile.features.fit_encoding`.

    Attributes:
        features: One encoder for each feature column, in the order of the features.
        label: The encoder of the label, None without a label.
        left_out: Why columns that were not named are not features.
        complete: The fingerprint of the fitted table, and its columns without missing values.
        hashing: How columns are hashed to sparse features; those of ``features`` follow them.

    Example:
        >>> import pyarrow as pa
        >>> from corgipile.features import fit_encoding
        >>> from corgipile.tables import open
        >>> rows = open(pa.table({"age": [31, 52], "city": ["Rome", "Oslo"], "y": ["no", "yes"]}))
        >>> found = fit_encoding(rows, ["age", "city"], "y", encode="onehot")
        >>> found.names, found.classes.tolist()
        (['age', 'city=Oslo', 'city=Rome'], ['no', 'yes'])
        >>> found.table(rows).read(0, 1).to_pydict()
        {'age': [31], 'city': [[0.0, 1.0]], 'y': [0]}
    """

    features: tuple[Encoder, ...]
    label: Encoder | None = None
    left_out: dict[str, str] = field(default_factory=dict, compare=False)
    complete: tuple[str, frozenset[str]] = field(default=("", frozenset()), compare=False, repr=False)
    hashing: Hashing | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the feature columns."""
        hashed = () if self.hashing is None else self.hashing.columns
        return tuple(dict.fromkeys([*hashed, *(encoder.column for encoder in self.features)]))

    @property
    def read_as(self) -> tuple[str, ...]:
        """Return the columns that hold the features in the encoded table."""
        return self.columns if self.hashing is None else PAIR

    def fits(self, columns: Any, width: int) -> bool:
        """Return whether this encoding fits a model of these columns and number of features."""
        return list(self.columns) == columns and (self.hashing is None or width >= 1 << self.hashing.bits)

    @property
    def names(self) -> list[str]:
        """Return the name of each feature; a list column counts once, hashed features have no names."""
        return feature_names(self.features)

    def fills(self, width: int) -> list[float | None] | None:
        """Return the fill values for rows of so many unnamed numbers; None if names are needed."""
        kinds = {type(encoder) for encoder in self.features}
        if self.hashing is not None or not kinds <= {Number, Vector}:
            return None
        fills = [getattr(encoder, "fill", None) for encoder in self.features]
        if Vector not in kinds:
            return fills
        return [fills[0]] * width if len({*fills}) == 1 else None

    @property
    def classes(self) -> npt.NDArray[Any] | None:
        """Return the label classes in code order; None for a numeric label."""
        return np.array(self.label.values) if isinstance(self.label, Classes) else None

    def table(self, table: Table, *, once: bool = False, codes: npt.NDArray[Any] | None = None) -> Table:
        """Return a table with these columns encoded; others are unchanged.

        Args:
            table: The table.
            once: Encode all rows now, see `corgipile.features.table.encode_once`, for repeated reading.
            codes: The class places of all rows, if known.

        Raises:
            MissingColumn: A column is missing.
            BadSchema: A column's type cannot be encoded this way.
        """
        whose, whole = self.complete
        complete = whole if whole and table.fingerprint == whose else frozenset()
        features = [Number(encoder.column) if encoder.column in complete else encoder for encoder in self.features]
        label = [] if self.label is None else [self.label]
        encoded = EncodedColumns(table, label if self.hashing is not None else [*features, *label])
        if encoded.changed:
            if codes is not None and self.label is not None:
                encoded.codes[self.label.column] = codes
            table = encode_once(encoded) if once else encoded
        return table if self.hashing is None else HashedColumns(table, self.hashing, features)

    def state(self) -> dict[str, Any]:
        """Return the JSON state from which `of` restores this encoding."""
        label = None if self.label is None else self.label.state()
        hashing = {} if self.hashing is None else {"hashing": self.hashing.state()}
        return {"version": FORMAT, "features": [item.state() for item in self.features], "label": label, **hashing}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Return the encoding of a `state`.

        Raises:
            BadArgument: The state is not valid.
        """
        try:
            if state["version"] != FORMAT:
                raise BadArgument(f"encoding must have version {FORMAT}, got {state['version']!r}")
            label = None if state["label"] is None else encoder_of(state["label"])
            hashing = Hashing.of(state["hashing"]) if "hashing" in state else None
            return cls(tuple(encoder_of(encoder) for encoder in state["features"]), label, hashing=hashing)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadArgument(f"not the state of an encoding: {error}") from None


def feature_names(encoders: Iterable[Encoder]) -> list[str]:
    """Return a unique name for each number of an encoded row; colliding names are quoted.

    Example:
        >>> from corgipile.features.encoders import Categories
        >>> feature_names([Categories("a", values=("b=c", "d")), Categories("a=b", values=("c",))])
        ["'a'='b=c'", 'a=d', "'a=b'='c'"]
    """
    pairs = [pair for encoder in encoders for pair in zip(encoder.names, encoder.quoted, strict=True)]
    counts, seen = Counter(name for name, _ in pairs), dict[str, None]()
    for name, quoted in pairs:
        unique = quoted if counts[name] > 1 else name
        while unique in seen or (unique != name and unique in counts):
            unique += "'"
        seen[unique] = None
    return list(seen)
