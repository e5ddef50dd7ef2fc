"""Audit of any loader: statistics of its batches, and faults by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.quality.audited import AuditReport, build_report
from corgipile.quality.codes import Classes
from corgipile.quality.faults import Fault, compare_epochs
from corgipile.quality.fields import Field, Finder, batches_of
from corgipile.quality.keyed import KeyWatch
from corgipile.quality.pending import Pending
from corgipile.quality.visits import PARTS, VisitWatch
from corgipile.sizes import whole

__all__ = ["Audit", "audit"]

Batch = TypeVar("Batch")
PLACE_CODES = Classes(range(PARTS))
MAX_PENDING_ROWS, MAX_SUMMED_BATCHES = 1 << 16, 256  # rows and batches that are summed at a time at most
STORAGE = "place in storage"
ENDLESS_PASSES = 256  # passes over the table after which an epoch counts as endless
UNKNOWN_ROWS = 1 << 32  # rows after which an epoch of unknown length is checked


def audit(
    *loaders: Iterable[Any],
    id: Finder | None = None,  # noqa: A002 - the word users know
    key: Finder | Sequence[Finder] | None = None,
    rows: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    batches: int | None = None,
    on_epoch: Callable[[int], object] | None = None,
    other_seed: Iterable[Any] | None = None,
) -> AuditReport:
    """Audit any loader: run some epochs, measure its batches, and name its faults.

    Args:
        loaders: An iterable of batches (dictionaries, tuples, Arrow, data frames, lists of rows), or one a rank.
        id: Field of a batch with row numbers, 0 to ``rows``, or row names: a key, an index, or a function.
        key: Field of a batch whose spread is measured: a class or numbers per row, such as the label; or a list.
        rows: Rows of the table.
        epochs: Epochs to run; None: two, or one if the loader can be iterated only once.
        batch_size: Rows per batch; None: as yielded. Loaders of single rows need it.
        batches: Stop each epoch after this many batches, for endless loaders; missing rows are then no fault.
        on_epoch: Called with the epoch's number before each epoch, such as ``sampler.set_epoch``.
        other_seed: The same loader with another seed, whose epochs should be independent.

    Raises:
        BadArgument: Neither ``id`` nor ``key`` is given, or a batch lacks them; the loader is empty or endless;
            batches change their form.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> table = pa.table({"row": range(4000), "label": [0] * 2000 + [1] * 2000})
        >>> report = audit(cp.Loader(table, batch_size=50), id="row", key="label", rows=4000)
        >>> report.faults
        ()
        >>> rows = [{"row": row} for row in range(4000)]
        >>> [fault.name for fault in audit(rows, id="row", rows=4000, batch_size=50).faults]
        ['not shuffled', 'identical epochs']
    """
    if not loaders:
        raise BadArgument("audit() needs a loader: give an iterable of batches")
    if on_epoch is not None and not callable(on_epoch):
        raise BadArgument(f"on_epoch must be a function of the epoch, got {on_epoch!r}")
    watched = Audit(id=id, key=key, rows=rows, batch_size=batch_size, batches=batches)
    _run(watched, loaders[0], epochs, on_epoch)
    for loader in loaders[1:]:
        watched.merge(_run(watched.like(), loader, epochs, on_epoch))
    if other_seed is not None:
        watched.add_other_seed(_run(watched.like(), other_seed, epochs, on_epoch))
    return watched.report()


class Audit:
    """Watches the batches of a training and measures what `audit` does, without a separate run.

    Each rank has its own. Send it pickled to another process, such as by ``all_gather_object``, and `merge` there.

    Args:
        id: See `audit` for all arguments.

    Example:
        >>> watched = Audit(id=0, key=1, rows=4)
        >>> for batch in watched.watch([([2, 0], [0, 1]), ([3, 1], [1, 0])]):
        ...     pass
        >>> watched.report().epochs[0].visits
        4
    """

    def __init__(
        self,
        *,
        id: Finder | None = None,  # noqa: A002 - as above
        key: Finder | Sequence[Finder] | None = None,
        rows: int | None = None,
        batch_size: int | None = None,
        batches: int | None = None,
    ) -> None:
        if id is None and key is None:
            raise BadArgument("id or key must be given: the field of a batch with row numbers or labels")
        self._settings = {"id": id, "key": key, "rows": rows, "batch_size": batch_size, "batches": batches}
        self.rows = None if rows is None else whole(rows, "rows", 1)
        self._batch = None if batch_size is None else whole(batch_size, "batch_size", 1)
        self._max_batches = None if batches is None else whole(batches, "batches", 1)
        keys: list[Finder] = list(key) if isinstance(key, list | tuple) else [] if key is None else [key]  # type: ignore[list-item]
        self._id = None if id is None else Field(id, "id")
        self._keys: dict[str, Field] = {}
        for finder in keys:
            name = str(getattr(finder, "__name__", finder))
            namesakes = sum(other == name or other.startswith(f"{name} (") for other in self._keys)
            self._keys[f"{name} ({namesakes + 1})" if namesakes else name] = Field(finder, "key")
        self._fields = [*([self._id] if self._id else []), *self._keys.values()]
        self._watched = ["id"] * (id is not None) + list(self._keys)
        self._classes: dict[str, Classes] = {}
        self._closed: list[tuple[VisitWatch | None, list[KeyWatch]]] = []
        self._others: list[VisitWatch] = []
        self._begin()

    def like(self) -> "Audit":
        """Return an empty audit with the same settings."""
        return Audit(**self._settings)  # type: ignore[arg-type]

    def watch(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield and record the batches of one epoch of a loader."""
        for at, batch in enumerate(loader):
            self.add(batch)
            yield batch
            if at + 1 == self._max_batches:
                break
        self.end_epoch()

    def add(self, batch: Any) -> None:
        """Record a batch."""
        columns = [field.of(batch) for field in self._fields]
        rows = len(columns[0])
        for values in columns:
            if len(values) != rows:
                counts = " and ".join(map(str, sorted({len(column) for column in columns})))
                raise BadArgument(f"a batch must have one id and key per row, got {counts} values")
        if rows:
            self._pending.add(columns, rows)
            if self._pending.rows >= MAX_PENDING_ROWS or len(self._pending.sizes) >= MAX_PENDING_ROWS:
                self._flush(ended=False)

    def end_epoch(self) -> None:
        """End the epoch; the next batch belongs to another."""
        self._flush(ended=True)
        if not self._began:
            raise BadArgument("the epoch has no rows: give a loader that can be iterated again")
        self._closed.append((self._seen, list(self._watches.values())))
        self._begin()

    def merge(self, other: Self) -> None:
        """Add the epochs of another rank of the same run.

        Raises:
            BadArgument: The other audit has another table, other fields or another number of epochs.
        """
        if not isinstance(other, Audit):
            raise BadArgument(f"other must be the Audit of another rank, got {type(other).__name__}")
        if self.rows != other.rows:
            counts = " and ".join("unknown" if rows is None else f"{rows:,}" for rows in (self.rows, other.rows))
            raise BadArgument(f"ranks must audit the same table, got {counts} rows")
        if self._watched != other._watched:
            fields = " and ".join(", ".join(map(repr, names)) or "no key" for names in (self._watched, other._watched))
            raise BadArgument(f"ranks must watch the same fields, got {fields}")
        if len(self._closed) != len(other._closed):
            raise BadArgument(f"ranks must have equally many epochs, got {len(self._closed)} and {len(other._closed)}")
        for (seen, watches), (other_seen, others) in zip(self._closed, deepcopy(other._closed), strict=True):
            if seen and other_seen:
                seen.merge(other_seen)
            for watch, also in zip(watches, others, strict=True):
                watch.merge(also)

    def add_other_seed(self, other: Self) -> None:
        """Compare with a run of another seed, whose epochs should be independent of these."""
        self._others += [seen for seen, _ in other._closed if seen]

    def report(self) -> AuditReport:
        """Return a report on the finished epochs."""
        if not self._closed:
            raise BadArgument("no epoch has ended: `watch` a loader to its end, or call `end_epoch`")
        expected = None if self._max_batches else self.rows
        report = build_report(self._closed, expected, whole_epochs=self._max_batches is None)
        seeds = list(self._against_seeds())
        return AuditReport(report.rows, report.epochs, (*report.faults, *seeds[:1]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out functions, which cannot be pickled."""
        return {**self.__dict__, "_id": None, "_keys": {}, "_fields": [], "_settings": {}}

    def _begin(self) -> None:
        self._seen = VisitWatch(self.rows) if self._id else None
        self._watches: dict[str, KeyWatch] = {}
        self._pending, self._began = Pending(MAX_PENDING_ROWS + MAX_PENDING_ROWS // 2), False
        known = ENDLESS_PASSES * (self.rows or 0) + MAX_PENDING_ROWS
        self._row_count, self._next_check = 0, known if self.rows or self._seen else UNKNOWN_ROWS

    def _flush(self, *, ended: bool) -> None:
        """Sum the pending rows, in batches of ``batch_size`` or as yielded."""
        pending = self._pending
        sizes = np.array(pending.sizes, np.int64)
        if self._batch:
            full, remainder = divmod(pending.rows, self._batch)
            sizes = np.array([self._batch] * full + [remainder] * (ended and remainder > 0), np.int64)
        columns = pending.take(int(sizes.sum()))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        for first in range(0, len(sizes), MAX_SUMMED_BATCHES):
            some = sizes[first : first + MAX_SUMMED_BATCHES]
            self._record([values[starts[first] : starts[first + len(some)]] for values in columns], some)

    def _record(self, columns: list[npt.NDArray[Any]], sizes: npt.NDArray[np.int64]) -> None:
        self._began, places = True, None
        if self._seen:
            ids, *columns = columns
            places = self._seen.add(ids, sizes)
        self._row_count += int(sizes.sum())
        if self._row_count > self._next_check:
            self._check_end()
        for name, values in zip(self._keys, columns, strict=True):
            if name not in self._watches:
                self._watches[name] = KeyWatch(name, self._classes.setdefault(name, Classes()))
            self._watches[name].add(values, sizes)
        if places is not None:
            if STORAGE not in self._watches:
                self._watches[STORAGE] = KeyWatch(STORAGE, PLACE_CODES, gaps=False)
            self._watches[STORAGE].add_codes(places, sizes)

    def _check_end(self) -> None:
        """Raise BadArgument if an epoch is endless; else set the next check, since counting takes time."""
        rows = self.rows or (self._seen.distinct if self._seen else 0)
        if not rows or self._row_count > ENDLESS_PASSES * rows + MAX_PENDING_ROWS:
            table = f" of a table of {rows:,}" if rows else ", and neither rows= nor id= gives the table's size"
            raise BadArgument(f"{self._row_count:,} rows came{table}: give batches= for an endless loader")
        self._next_check = ENDLESS_PASSES * rows + MAX_PENDING_ROWS if self.rows else 2 * self._row_count

    def _against_seeds(self) -> Iterator[Fault]:
        for epoch, (seen, _) in enumerate(self._closed):
            for other in self._others:
                if seen:
                    yield from compare_epochs(seen.sample(), other.sample(), epoch, "seeds", named=seen.named)


def _run(watched: Audit, loader: Any, epochs: int | None, on_epoch: Callable[[int], object] | None) -> Audit:
    if how := batches_of(loader):
        raise BadArgument(f"loader must be an iterable of batches, got a table, {type(loader).__name__}: give {how}")
    if not isinstance(loader, Iterable) or isinstance(loader, Mapping | str):
        raise BadArgument(f"loader must be an iterable of batches, got {type(loader).__name__}")
    once = iter(loader) is loader
    if once and (epochs or 1) > 1:
        raise BadArgument(
            f"epochs must be 1 for a {type(loader).__name__}, which can be iterated only once, got {epochs}"
        )
    for epoch in range(1 if once else 2 if epochs is None else whole(epochs, "epochs", 1)):
        if on_epoch:
            on_epoch(epoch)
        for _ in watched.watch(loader):
            pass
    return watched
