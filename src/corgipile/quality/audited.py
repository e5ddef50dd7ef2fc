"""What an audit found, as numbers and as text."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corgipile.outputs import PathLike
from corgipile.quality.correlation import batches_again, common, correlation
from corgipile.quality.faults import Fault, of_coverage, of_ranks, of_storage, of_two, of_workers
from corgipile.quality.keyed import KeyWatch, Spread
from corgipile.quality.visits import VisitWatch

Closed = tuple[VisitWatch | None, list[KeyWatch]]
PLACES = 1024  # of rows that a page shows
EVEN = 1.5  # of deff, below which an epoch mixes about as well as a full shuffle


@dataclass(frozen=True)
class EpochReport:
    """One epoch.

    Attributes:
        visits: Rows that came; None without ``id``.
        distinct: Rows of the table that came at least once.
        batches: Batches that came.
        ranks: Rows of each rank, where there are several.
        spreads: How each key was spread, in the order asked for; at last place in storage, if ``rows`` is known.
        again: Share of pairs of rows in one batch that shared one in the epoch before, and what chance gives.
        correlation: Of the places of rows in this epoch and the one before.
        places: Of some rows, the same in every epoch: number, and visits of its rank before it; none without ``id``.
    """

    visits: int | None
    distinct: int | None
    batches: int
    ranks: tuple[int, ...]
    spreads: tuple[Spread, ...]
    again: tuple[float, float] | None
    correlation: float | None
    places: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class AuditReport:
    """What an audit found; prints as a page of text.

    Attributes:
        rows: Rows of the table, as far as is known.
        epochs: One report each.
        faults: What is wrong, by name, each named once.
    """

    rows: int | None
    epochs: tuple[EpochReport, ...]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        lines = [self.verdict, ""]
        for number, epoch in enumerate(self.epochs):
            lines += _epoch_lines(number, epoch)
        return "\n".join([*lines, *(f"FAULT  {fault}" for fault in self.faults)])

    @property
    def verdict(self) -> str:
        """Return what it comes to, in one sentence."""
        if self.faults:
            return f"{len(self.faults)} fault{'s' * (len(self.faults) > 1)}: {', '.join(f.name for f in self.faults)}."
        spreads = [spread for epoch in self.epochs for spread in epoch.spreads]
        worst = max(spreads, key=lambda spread: spread.deff[0], default=None)
        once = "" if self.rows is None else f"each of {self.rows:,} rows once an epoch; "
        if worst is None:
            return f"No fault found: {once}nothing was measured."
        like = (
            "mixed like a full shuffle or better" if worst.deff[0] <= EVEN else "batches mix less than a full shuffle's"
        )
        return f"No fault found: {once}{like} (deff of {worst.key} {worst.deff[0]:.2f}, of a full shuffle 1)."

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain dictionaries and lists, for JSON.

        Example:
            >>> AuditReport(4, (), ()).as_dict()
            {'rows': 4, 'epochs': (), 'faults': ()}
        """
        return asdict(self)

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write it as a page that is shown to others: one file of HTML that needs no network and no script.

        Args:
            path: The file; an earlier page that is there is replaced.
            overwrite: Replace a file of another kind too.

        Raises:
            WouldOverwrite: A file of another kind lies there.
            WriteFailed: It cannot be written.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> path = Path(tempfile.mkdtemp()) / "proof.html"
            >>> AuditReport(4, (), ()).save(path)
            >>> path.stat().st_size < 500_000
            True
        """
        from corgipile.proof import audit_page  # noqa: PLC0415 - which stands above us

        audit_page(self).save(path, overwrite=overwrite)


def reported(closed: Sequence[Closed], rows: int | None, *, whole_epochs: bool) -> AuditReport:
    """Report on epochs; ``whole_epochs``: that they were not cut short, so that rows can be missed."""
    rows = rows or _known(closed) if whole_epochs else None
    found: dict[str, Fault] = {}
    for epoch in range(len(closed)):
        for fault in _faults(closed, epoch, rows, whole_epochs=whole_epochs):
            found.setdefault(fault.name, fault)
    return AuditReport(rows, tuple(_epoch(closed, epoch) for epoch in range(len(closed))), tuple(found.values()))


def _known(closed: Sequence[Closed]) -> int | None:
    """Return how many rows all epochs together know, where nobody has said."""
    return max((seen.distinct for seen, _ in closed if seen), default=None)


def _faults(closed: Sequence[Closed], epoch: int, rows: int | None, *, whole_epochs: bool) -> Iterator[Fault]:
    seen, watches = closed[epoch]
    spreads, stored = [watch.spread() for watch in watches], list[Fault]()
    if seen:
        if whole_epochs:
            yield from of_coverage(seen, rows, epoch)
        yield from of_ranks(seen, epoch)
        yield from (stored := list(of_storage(seen, epoch)))
        for earlier in range(epoch):
            before = closed[earlier][0]
            if before:
                yield from of_two(before.sample(), seen.sample(), epoch, "epochs", named=seen.named)
    elif any(alike(watches, others) for _, others in closed[:epoch]):
        yield Fault("identical epochs", "the keys of all batches are those of an epoch before", epoch)
    if not any(
        fault.name == "not shuffled" for fault in stored
    ):  # keys are then as they are stored, whoever reads them
        yield from of_workers(spreads, sum(watch.batches for watch in watches[:1]), epoch)


def alike(watches: Sequence[KeyWatch], others: Sequence[KeyWatch]) -> bool:
    """Say whether two epochs had the same keys in every batch, where keys differ enough to tell."""
    return any(one.same_batches(other) for one, other in zip(watches, others, strict=True))


def _epoch(closed: Sequence[Closed], epoch: int) -> EpochReport:
    seen, watches = closed[epoch]
    before = closed[epoch - 1][0] if epoch else None
    again = related = None
    if seen and before:
        a, b = common(before.sample(), seen.sample())
        if len(a.ids) > 1:
            pairs, share, chance = batches_again(a, b)
            again = (share, chance) if pairs else None
            related = correlation(a.at, b.at).value
    spreads = tuple(watch.spread() for watch in watches)
    batches = seen.batches if seen else watches[0].batches
    if not seen:
        return EpochReport(None, None, batches, (), spreads, again, related)
    some = () if seen.named else seen.sample().some(PLACES)
    return EpochReport(seen.visits, seen.distinct, batches, tuple(seen.by_rank), spreads, again, related, some)


def _epoch_lines(number: int, epoch: EpochReport) -> Iterator[str]:
    visits = "" if epoch.visits is None else f", {epoch.visits:,} visits of {epoch.distinct:,} rows"
    yield f"epoch {number}: {epoch.batches:,} batches{visits}"
    for spread in epoch.spreads:
        deffs = "  ".join(f"{name} {value:.2f} ± {half:.2f}" for name, (value, half) in _parts(spread))
        yield f"  {spread.key}: {deffs}"
        also = [f"prefix {spread.prefix:.2f} (full shuffle about 0.9 to 1.3)"]
        if spread.lags:
            also.append(f"next batch's correlation {spread.lags[0]:+.2f}")
        if spread.variation:
            also.append(f"total variation {spread.variation[0]:.3f} (floor {spread.variation[1]:.3f})")
        yield f"    {', '.join(also)}"
        if spread.together:
            deff, half = spread.together
            yield f"    batches of all ranks as one: deff {deff:.2f} ± {half:.2f}"
        if spread.gap:
            gap, of = spread.gap, f"{spread.gap.rows:,} rows of {spread.gap.kind!r}"
            yield f"    longest wait for one of {of}: {gap.gap:,} visits, {gap.ratio:.1f} of a full shuffle's"
    if epoch.again:
        share, chance = epoch.again
        yield f"  rows that shared a batch in the epoch before: {share:.2%} again (by chance {chance:.2%})"
    yield ""


def _parts(spread: Spread) -> Iterator[tuple[str, tuple[float, float]]]:
    yield "deff", spread.deff
    yield "head", spread.head
    yield "middle", spread.middle
    yield "tail", spread.tail
