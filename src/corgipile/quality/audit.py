"""Audit of any loader: what its batches are like, and what is wrong with them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.quality.audited import AuditReport, reported
from corgipile.quality.codes import Classes
from corgipile.quality.faults import Fault, of_two
from corgipile.quality.fields import Field, Finder, rows_of
from corgipile.quality.keyed import KeyWatch
from corgipile.quality.pending import Pending
from corgipile.quality.visits import PARTS, VisitWatch
from corgipile.sizes import whole

__all__ = ["Audit", "audit"]

Batch = TypeVar("Batch")
PLACES = Classes(range(PARTS))
GROUP, GROUP_BATCHES = 1 << 16, 256  # rows and batches that are added up at a time, at most
STORAGE = "place in storage"
ENDLESS = 256  # times the rows of the table
UNKNOWN = 1 << 32  # rows of an epoch of which nobody said how many there are


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
    """Audit a loader, ours or anybody's: run some epochs of it, measure what it gives, name what is wrong.

    Args:
        loaders: An iterable of batches (dictionaries, tuples, Arrow, data frames, lists of rows), or one a rank.
        id: Where a batch has the numbers of its rows, 0 to ``rows``, or their names: a key, a place, or a function.
        key: Where a batch has what is to be spread: a class or numbers a row, such as the label; several in a list.
        rows: Rows of the table.
        epochs: Epochs to run; None: two, or one of what can be iterated only once.
        batch_size: Rows of a batch; None: as they come. Of loaders that give single rows it is wanted.
        batches: Stop each epoch after so many batches, as an endless loader needs; rows are not missed then.
        on_epoch: Called with the epoch before each, as ``sampler.set_epoch`` wants to be.
        other_seed: The same loader with another seed, whose epochs should have nothing in common with these.

    Raises:
        BadArgument: Neither ``id`` nor ``key`` is given or they are not in a batch; no batch comes; batches change
            their form; the loader gives rows without end.

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
        raise BadArgument("audit() was given no loader; an iterable of batches is right")
    if on_epoch is not None and not callable(on_epoch):
        raise BadArgument(f"on_epoch is {on_epoch!r}; a function of the epoch is right")
    watched = Audit(id=id, key=key, rows=rows, batch_size=batch_size, batches=batches)
    _run(watched, loaders[0], epochs, on_epoch)
    for loader in loaders[1:]:
        watched.merge(_run(watched.like(), loader, epochs, on_epoch))
    if other_seed is not None:
        watched.beside(_run(watched.like(), other_seed, epochs, on_epoch))
    return watched.report()


class Audit:
    """Watch the batches of a training as they go by: what `audit` finds, without a run of its own.

    Each rank watches its own. A pickle of it goes to another process, such as by ``all_gather_object``; there `merge`.

    Args:
        id: As in `audit`, and so the other arguments.

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
            raise BadArgument("neither id nor key is given; where a batch has its rows, or its labels, is right")
        self._settings = {"id": id, "key": key, "rows": rows, "batch_size": batch_size, "batches": batches}
        self.rows = None if rows is None else whole(rows, "rows", 1)
        self._batch = None if batch_size is None else whole(batch_size, "batch_size", 1)
        self._most = None if batches is None else whole(batches, "batches", 1)
        keys: list[Finder] = list(key) if isinstance(key, list | tuple) else [] if key is None else [key]  # type: ignore[list-item]
        self._id = None if id is None else Field(id, "id")
        self._keys: dict[str, Field] = {}
        for found in keys:
            name = str(getattr(found, "__name__", found))
            alike = sum(one == name or one.startswith(f"{name} (") for one in self._keys)
            self._keys[f"{name} ({alike + 1})" if alike else name] = Field(found, "key")
        self._fields = [*([self._id] if self._id else []), *self._keys.values()]
        self._watched = ["id"] * (id is not None) + list(self._keys)
        self._classes: dict[str, Classes] = {}
        self._closed: list[tuple[VisitWatch | None, list[KeyWatch]]] = []
        self._others: list[VisitWatch] = []
        self._begin()

    def like(self) -> "Audit":
        """Return an audit of the same settings that has seen nothing."""
        return Audit(**self._settings)  # type: ignore[arg-type]

    def watch(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of one epoch of a loader, and take note of them."""
        for at, batch in enumerate(loader):
            self.add(batch)
            yield batch
            if at + 1 == self._most:
                break
        self.end_epoch()

    def add(self, batch: Any) -> None:
        """Take note of a batch."""
        found = [field.of(batch) for field in self._fields]
        rows = len(found[0])
        for values in found:
            if len(values) != rows:
                counts = " and ".join(map(str, sorted({len(each) for each in found})))
                raise BadArgument(f"a batch has {counts} values of id and key; one a row is right")
        if rows:
            self._pending.add(found, rows)
            if self._pending.rows >= GROUP or len(self._pending.sizes) >= GROUP:
                self._flush(ended=False)

    def end_epoch(self) -> None:
        """End an epoch: the next batch is of another."""
        self._flush(ended=True)
        if not self._began:
            raise BadArgument("no row came in the epoch; a loader that can be iterated again is right")
        self._closed.append((self._seen, list(self._watches.values())))
        self._begin()

    def merge(self, other: Self) -> None:
        """Add what another rank of the same run saw.

        Raises:
            BadArgument: It is no audit of the same table, of the same fields and of as many epochs.
        """
        if not isinstance(other, Audit):
            raise BadArgument(f"{type(other).__name__} is no Audit; that of another rank is right")
        if self.rows != other.rows:
            told = " and ".join("unknown" if one is None else f"{one:,}" for one in (self.rows, other.rows))
            raise BadArgument(f"ranks of a table whose rows are {told}; the same table is right")
        if self._watched != other._watched:
            told = " and ".join(", ".join(map(repr, one)) or "no key" for one in (self._watched, other._watched))
            raise BadArgument(f"ranks of which {told} were watched; the same are right")
        if len(self._closed) != len(other._closed):
            raise BadArgument(f"ranks of {len(self._closed)} and {len(other._closed)} epochs; equally many are right")
        for (seen, watches), (its, others) in zip(self._closed, deepcopy(other._closed), strict=True):
            if seen and its:
                seen.merge(its)
            for watch, also in zip(watches, others, strict=True):
                watch.merge(also)

    def beside(self, other: Self) -> None:
        """Compare with a run of another seed, whose epochs should have nothing in common with these."""
        self._others += [seen for seen, _ in other._closed if seen]

    def report(self) -> AuditReport:
        """Report on the epochs that have ended."""
        if not self._closed:
            raise BadArgument("no epoch has ended; `watch` a loader to its end, or call `end_epoch`")
        expected = None if self._most else self.rows
        found = reported(self._closed, expected, whole_epochs=self._most is None)
        seeds = list(self._against_seeds())
        return AuditReport(found.rows, found.epochs, (*found.faults, *seeds[:1]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out functions, which do not go to other processes."""
        return {**self.__dict__, "_id": None, "_keys": {}, "_fields": [], "_settings": {}}

    def _begin(self) -> None:
        self._seen = VisitWatch(self.rows) if self._id else None
        self._watches: dict[str, KeyWatch] = {}
        self._pending, self._began = Pending(GROUP + GROUP // 2), False
        known = ENDLESS * (self.rows or 0) + GROUP
        self._came, self._bound = 0, known if self.rows or self._seen else UNKNOWN

    def _flush(self, *, ended: bool) -> None:
        """Add up what is waiting, in batches of the size that was asked for or of those that came."""
        waiting = self._pending
        sizes = np.array(waiting.sizes, np.int64)
        if self._batch:
            full, rest = divmod(waiting.rows, self._batch)
            sizes = np.array([self._batch] * full + [rest] * (ended and rest > 0), np.int64)
        columns = waiting.taken(int(sizes.sum()))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        for first in range(0, len(sizes), GROUP_BATCHES):
            some = sizes[first : first + GROUP_BATCHES]
            self._take([values[starts[first] : starts[first + len(some)]] for values in columns], some)

    def _take(self, columns: list[npt.NDArray[Any]], sizes: npt.NDArray[np.int64]) -> None:
        self._began, places = True, None
        if self._seen:
            ids, *columns = columns
            places = self._seen.add(ids, sizes)
        self._came += int(sizes.sum())
        if self._came > self._bound:
            self._check_end()
        for name, values in zip(self._keys, columns, strict=True):
            if name not in self._watches:
                self._watches[name] = KeyWatch(name, self._classes.setdefault(name, Classes()))
            self._watches[name].add(values, sizes)
        if places is not None:
            if STORAGE not in self._watches:
                self._watches[STORAGE] = KeyWatch(STORAGE, PLACES, gaps=False)
            self._watches[STORAGE].add_codes(places, sizes)

    def _check_end(self) -> None:
        """Raise BadArgument if an epoch goes on and on; else say when to look again, for it takes a count."""
        rows = self.rows or (self._seen.distinct if self._seen else 0)
        if not rows or self._came > ENDLESS * rows + GROUP:
            of = f" of a table of {rows:,}" if rows else ", and neither rows= nor id= says how many there are"
            raise BadArgument(f"{self._came:,} rows came{of}; batches= ends an endless loader")
        self._bound = ENDLESS * rows + GROUP if self.rows else 2 * self._came

    def _against_seeds(self) -> Iterator[Fault]:
        for epoch, (seen, _) in enumerate(self._closed):
            for other in self._others:
                if seen:
                    yield from of_two(seen.sample(), other.sample(), epoch, "seeds", named=seen.named)


def _run(watched: Audit, loader: Any, epochs: int | None, on_epoch: Callable[[int], object] | None) -> Audit:
    if how := rows_of(loader):
        raise BadArgument(f"{type(loader).__name__} is a table: batches as they come are right, such as {how}")
    if not isinstance(loader, Iterable) or isinstance(loader, Mapping | str):
        raise BadArgument(f"{type(loader).__name__} is no iterable of batches")
    once = iter(loader) is loader
    if once and (epochs or 1) > 1:
        raise BadArgument(f"epochs is {epochs}, but a {type(loader).__name__} can be iterated only once")
    for epoch in range(1 if once else 2 if epochs is None else whole(epochs, "epochs", 1)):
        if on_epoch:
            on_epoch(epoch)
        for _ in watched.watch(loader):
            pass
    return watched
