"""Options that `corgipile.Loader` and `corgipile.torch.CorgiPileDataset` share, each declared once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from corgipile.errors import BadArgument
from corgipile.features import Encoding
from corgipile.features.fit import Encode, Features, Missing
from corgipile.loader.content import Embed
from corgipile.loader.default_order import chosen, fixed
from corgipile.loader.selection import Selection
from corgipile.orders import Order
from corgipile.sizes import Size, whole
from corgipile.tables.table import Table

__all__ = ["FeatureOptions", "Options", "ReadOptions"]

MAX_PREFETCH = 64  # largest `prefetch`, in steps
DTYPES = ("float32", "float64")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a table is read: order, memory, and the share of this process.

    Attributes:
        batch_size: Rows of a batch.
        order: An order of `corgipile.orders`, or its name. ``"auto"`` is Riffle, with the block count that batches
            need, balanced by the column "label" if that can be read without the rows. It is balanced by content if the
            memory holds few blocks and neighbouring rows are similar. The attribute ``order`` has the choice.
        memory: Budget for rows in memory, read-ahead included, such as ``"64MB"``; the workers of a rank share it.
            None: the size of ``order.buffer``, or 64 MB.
        seed: Seed of all epochs.
        prefetch: Steps read ahead in the background; 0 reads on request.
        drop_last: Drop the last batch if it is short; ranks then repeat no rows.
        rank: Rank of this process among ``world``.
        world: Number of processes that share each epoch. All take the same number of batches: without ``drop_last``,
            fewer than ``world`` rows are visited twice. A table of fewer rows than ranks has each row visited
            ``world / rows`` times, rounded down or up, so that every rank gets one.
        sketch: Function for ``balance="content"`` of tables without numeric columns, such as images or text: it takes
            a record batch of sampled rows and returns numbers, (rows, numbers), deterministically.
        skip: Pairs of epoch and step, whose batches all ranks skip, and row numbers, which batches leave out. A step
            without other rows on some rank is skipped on all. Other batches and step numbers do not change. A state
            stores it; a loader that resumes the state adds its own.
        global_batches: ``"fixed"``: batch i of all ranks together has the same rows for any number of ranks and
            workers. ``batch_size``, ``memory`` and the order's sizes are then totals of all ranks; the world must
            divide the batch. A state resumes at its batch in any world.
    """

    batch_size: int | None = None
    order: Order | str = "auto"
    memory: Size | None = None
    seed: int = 0
    prefetch: int = 1
    drop_last: bool = False
    rank: int | None = None
    world: int | None = None
    sketch: Embed | None = None
    skip: Iterable[int | Sequence[int]] = ()
    global_batches: Literal["fixed"] | None = None

    def checked(self) -> Self:
        """Return the options with numbers as Python's own types.

        Raises:
            BadArgument: A number is out of range.
        """
        unbatched = self.batch_size is None and type(self).batch_size is None  # where None is the default
        return replace(
            self,
            batch_size=None if unbatched else whole(self.batch_size, "batch_size", 1),
            seed=whole(self.seed, "seed"),
            prefetch=whole(self.prefetch, "prefetch", 0, MAX_PREFETCH),
            skip=tuple(self.skip) if isinstance(self.skip, Iterable) else self.skip,
        )

    def order_of(self, table: Table, selection: Selection) -> Order:
        """Return the order that runs over a table, with its sizes as given."""
        columns = selection.columns_in(table) if self.sketch is None else None
        base = chosen(self.order, table, selection.label, self.batch_size or 0, columns, self.memory)
        order: Any = replace(base, ahead=self.prefetch)  # type: ignore[type-var]
        return order if self.global_batches is None else fixed(self.global_batches, order, self.batch_size)


@dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    """Columns of batches, and how they become features and a label.

    Attributes:
        columns: Columns to read; None for all.
        widths: Row lengths of list columns to read as arrays of (rows, length), by name; ``{}`` for none. None infers
            them for number lists of one length at the beginning, the middle and the end of the table; a row of another
            length is then an error.
        features: Columns that batches have as one array of (rows, features) under the name "features", see
            `corgipile.features.fit_encoding`. With ``features`` or ``label``, ``columns`` are additional columns.
        label: Column that batches have as "label": integers as int64, fractions in the type of the features, text
            classes as indices into `classes`. If no other column is numeric, all columns are read as stored.
        encode: Encoding of non-numeric feature columns: ``"onehot"``, ``"ordinal"``, ``"hash"``, or a dictionary of
            these by column.
        missing: Value for null and NaN in features: ``"error"``, ``"mean"`` or a number.
        classes: The classes of the label, in the order of their codes.
        dtype: Number type of features that are scalar columns: ``"float32"`` or ``"float64"``.
        as_tuple: Make each batch a pair of features and label.
    """

    columns: Sequence[str] | None = None
    widths: Mapping[str, int] | None = None
    features: Features | Selection = None
    label: str | None = None
    encode: Encode = None
    missing: Missing = "error"
    classes: Sequence[Any] | None = None
    dtype: str = "float32"
    as_tuple: bool = False

    def with_label(self) -> Self:
        """Return the options with the label of an encoding, if the features are one.

        Raises:
            BadArgument: An option is wrong for any table, or has no effect without features or a label.
        """
        if self.features is None and self.label is None:
            for name in ("encode", "classes", "missing", "as_tuple", "dtype"):
                value, default = getattr(self, name), getattr(FeatureOptions, name)
                if not (value is None or value is default or (default is not None and value == default)):
                    raise BadArgument(
                        f"{name}={value!r} has no effect without features= or label=; features='numeric' uses all "
                        "numbers"
                    )
            return self
        if self.dtype not in DTYPES:
            raise BadArgument(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")
        if isinstance(self.columns, str):
            raise BadArgument(f"columns must be a list of names, got {self.columns!r}")
        if isinstance(self.features, Encoding) and self.label is None and self.features.label is not None:
            return replace(self, label=self.features.label.column)
        return self


@dataclass(frozen=True, kw_only=True)
class Options(FeatureOptions, ReadOptions):
    """Options of everything that iterates over batches of a table."""

    @property
    def reading(self) -> ReadOptions:
        """Return the options without those of features."""
        return ReadOptions(**{field.name: getattr(self, field.name) for field in fields(ReadOptions)})
