"""What a table's features and label are made of, fitted to one table and good for others."""

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
from corgipile.features.table import EncodedColumns, encoded_once
from corgipile.tables.table import Table

__all__ = ["Encoding", "feature_names"]

FORMAT = 1


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become features and a label; fitted by `corgipile.features.fit_encoding`.

    Attributes:
        features: One encoder for each feature column, in the order of the features.
        label: The encoder of the label, None where there is no label.
        left_out: Why other columns are no features, where they were not named.
        complete: The fingerprint of the table it was fitted to, and the columns in which nothing was missing there.
        hashing: How columns are hashed to sparse features, behind which those of ``features`` then have their places.

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
        return tuple(dict.fromkeys([*hashed, *(one.column for one in self.features)]))

    @property
    def read_as(self) -> tuple[str, ...]:
        """Return the columns in which the table that is read has the features."""
        return self.columns if self.hashing is None else PAIR

    def fits(self, columns: Any, width: int) -> bool:
        """Say whether a model of these columns and so many features may have this encoding."""
        return list(self.columns) == columns and (self.hashing is None or width >= 1 << self.hashing.bits)

    @property
    def names(self) -> list[str]:
        """Return the name of each feature; a list column has the names of no numbers, but its own, hashed ones none."""
        return feature_names(self.features)

    def fills(self, width: int) -> list[float | None] | None:
        """Return what stands for what is missing in rows of so many numbers without names; None: these are needed."""
        kinds = {type(one) for one in self.features}
        if self.hashing is not None or not kinds <= {Number, Vector}:
            return None
        fills = [getattr(one, "fill", None) for one in self.features]
        if Vector not in kinds:
            return fills
        return [fills[0]] * width if len({*fills}) == 1 else None

    @property
    def classes(self) -> npt.NDArray[Any] | None:
        """Return the classes of the label by their codes; None where it is no classes but numbers."""
        return np.array(self.label.values) if isinstance(self.label, Classes) else None

    def table(self, table: Table, *, once: bool = False, codes: npt.NDArray[Any] | None = None) -> Table:
        """Return a table with these columns as numbers; other columns are as they were.

        Args:
            table: The table.
            once: Encode all rows now, see `corgipile.features.table.encoded_once`, as for reading them many times.
            codes: The places of the classes of all rows, where they are known.

        Raises:
            MissingColumn: The table has no such columns.
            BadSchema: A column is of a type that cannot be encoded so.
        """
        whose, whole = self.complete
        complete = whole if whole and table.fingerprint == whose else frozenset()
        features: tuple[Encoder, ...]
        features = tuple(Number(one.column) if one.column in complete else one for one in self.features)
        encoded = EncodedColumns(
            table, [*(features if self.hashing is None else ()), *([] if self.label is None else [self.label])]
        )
        if encoded.changed:
            if codes is not None and self.label is not None:
                encoded.codes[self.label.column] = codes
            table = encoded_once(encoded) if once else encoded
        return table if self.hashing is None else HashedColumns(table, self.hashing, features)

    def state(self) -> dict[str, Any]:
        """Return what makes this encoding again, for JSON."""
        label = None if self.label is None else self.label.state()
        hashing = {} if self.hashing is None else {"hashing": self.hashing.state()}
        return {"version": FORMAT, "features": [one.state() for one in self.features], "label": label, **hashing}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """Make an encoding from its `state`.

        Raises:
            BadArgument: It is no such state.
        """
        try:
            if state["version"] != FORMAT:
                raise BadArgument(f"encoding has version {state['version']!r}; version {FORMAT} is needed")
            label = None if state["label"] is None else encoder_of(state["label"])
            hashing = Hashing.of(state["hashing"]) if "hashing" in state else None
            return cls(tuple(encoder_of(one) for one in state["features"]), label, hashing=hashing)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadArgument(f"this is no state of an encoding: {error}") from None


def feature_names(encoders: Iterable[Encoder]) -> list[str]:
    """Return a unique name for each number of a row; names that would collide are quoted.

    Example:
        >>> from corgipile.features.encoders import Categories
        >>> feature_names([Categories("a", values=("b=c", "d")), Categories("a=b", values=("c",))])
        ["'a'='b=c'", 'a=d', "'a=b'='c'"]
    """
    both = [pair for one in encoders for pair in zip(one.names, one.quoted, strict=True)]
    often, seen = Counter(name for name, _ in both), dict[str, None]()
    for name, quoted in both:
        made = quoted if often[name] > 1 else name
        while made in seen or (made != name and made in often):
            made += "'"
        seen[made] = None
    return list(seen)
