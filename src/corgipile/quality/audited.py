"""Audit reports, as numbers and as text."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from corgipile.lazy import lazy
from corgipile.outputs import PathLike
from corgipile.quality.correlation import common, correlation, shared_again
from corgipile.quality.faults import Fault, compare_epochs, coverage_faults, rank_faults, storage_faults, worker_faults
from corgipile.quality.keyed import KeyWatch, Spread
from corgipile.quality.visits import VisitWatch
from corgipile.verdicts import MAX_EVEN_DEFF

if TYPE_CHECKING:
    from corgipile.proof import audit as pages
else:  # which few audits need
    pages = lazy("corgipile.proof.audit")

Closed = tuple[VisitWatch | None, list[KeyWatch]]
MAX_PLACES = 1024  # row places that a page shows at most


@dataclass(frozen=True)
class EpochReport:
    """Audit of one epoch.

    Attributes:
        visits: Rows visited; None without ``id``.
        distinct: Rows of the table visited at least once.
        batches: Number of batches.
        ranks: Rows of each rank, if there are several.
        spreads: The spread of each key, in order; then of the place in storage, if ``rows`` is known.
        again: Share of row pairs in one batch that shared one in the previous epoch, and the share by chance.
        correlation: Correlation of row places in this epoch and the previous one.
        places: Number and place in the epoch of some rows, the same in all epochs; empty without ``id``.
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
    """Result of an audit; prints as a page of text.

    Attributes:
        rows: Rows of the table, if known.
        epochs: One report per epoch.
        faults: The faults, each name once.
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
        """Return the result in one sentence."""
        if self.faults:
            return f"{len(self.faults)} fault{'s' * (len(self.faults) > 1)}: {', '.join(f.name for f in self.faults)}."
        spreads = [spread for epoch in self.epochs for spread in epoch.spreads]
        worst = max(spreads, key=lambda spread: spread.deff[0], default=None)
        once = "" if self.rows is None else f"each of {self.rows:,} rows once an epoch; "
        if worst is None:
            return f"No fault found: {once}nothing was measured."
        even, uneven = "mixed like a full shuffle or better", "batches mix less than a full shuffle's"
        like = even if worst.deff[0] <= MAX_EVEN_DEFF else uneven
        return f"No fault found: {once}{like} (deff of {worst.key} {worst.deff[0]:.2f}, of a full shuffle 1)."

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain dictionaries and lists, for JSON.

        Example:
            >>> AuditReport(4, (), ()).as_dict()
            {'rows': 4, 'epochs': (), 'faults': ()}
        """
        return asdict(self)

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Write the report as a page to share: one HTML file without network access or scripts.

        Args:
            path: The file; an earlier page is replaced.
            overwrite: Replace a file of another kind, too.

        Raises:
            WouldOverwrite: A file of another kind exists.
            WriteFailed: The file cannot be written.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> path = Path(tempfile.mkdtemp()) / "proof.html"
            >>> AuditReport(4, (), ()).save(path)
            >>> path.stat().st_size < 500_000
            True
        """
        pages.audit_page(self).save(path, overwrite=overwrite)


def build_report(closed: Sequence[Closed], rows: int | None, *, whole_epochs: bool) -> AuditReport:
    """Return the report of some epochs; ``whole_epochs``: none was cut short, so rows can be missing."""
    rows = rows or _known(closed) if whole_epochs else None
    faults: dict[str, Fault] = {}
    for epoch in range(len(closed)):
        for fault in _faults(closed, epoch, rows, whole_epochs=whole_epochs):
            faults.setdefault(fault.name, fault)
    return AuditReport(rows, tuple(_epoch(closed, epoch) for epoch in range(len(closed))), tuple(faults.values()))


def _known(closed: Sequence[Closed]) -> int | None:
    """Return the number of distinct rows in all epochs, if the table's size is not given."""
    return max((seen.distinct for seen, _ in closed if seen), default=None)


def _faults(closed: Sequence[Closed], epoch: int, rows: int | None, *, whole_epochs: bool) -> Iterator[Fault]:
    seen, watches = closed[epoch]
    spreads, stored = [watch.spread() for watch in watches], list[Fault]()
    if seen:
        if whole_epochs:
            yield from coverage_faults(seen, rows, epoch)
        yield from rank_faults(seen, epoch)
        yield from (stored := list(storage_faults(seen, epoch)))
        for earlier in range(epoch):
            before = closed[earlier][0]
            if before:
                yield from compare_epochs(before.sample(), seen.sample(), epoch, "epochs", named=seen.named)
    elif any(same_keys(watches, others) for _, others in closed[:epoch]):
        yield Fault("identical epochs", "the keys of all batches are those of an epoch before", epoch)
    if not any(fault.name == "not shuffled" for fault in stored):  # stored order explains the keys
        yield from worker_faults(spreads, sum(watch.batches for watch in watches[:1]), epoch)


def same_keys(watches: Sequence[KeyWatch], others: Sequence[KeyWatch]) -> bool:
    """Return whether two epochs had the same keys in each batch, if keys vary enough to tell."""
    return any(watch.same_batches(other) for watch, other in zip(watches, others, strict=True))


def _epoch(closed: Sequence[Closed], epoch: int) -> EpochReport:
    seen, watches = closed[epoch]
    before = closed[epoch - 1][0] if epoch else None
    again = related = None
    if seen and before:
        a, b = common(before.sample(), seen.sample())
        if len(a.ids) > 1:
            pairs, share, chance = shared_again(a, b)
            again = (share, chance) if pairs else None
            related = correlation(a.at, b.at).value
    spreads = tuple(watch.spread() for watch in watches)
    batches = seen.batches if seen else watches[0].batches
    if not seen:
        return EpochReport(None, None, batches, (), spreads, again, related)
    shown_places = () if seen.named else seen.sample().some(MAX_PLACES)
    return EpochReport(seen.visits, seen.distinct, batches, tuple(seen.by_rank), spreads, again, related, shown_places)


def _epoch_lines(number: int, epoch: EpochReport) -> Iterator[str]:
    visits = "" if epoch.visits is None else f", {epoch.visits:,} visits of {epoch.distinct:,} rows"
    yield f"epoch {number}: {epoch.batches:,} batches{visits}"
    for spread in epoch.spreads:
        parts = {name: getattr(spread, name) for name in ("deff", "head", "middle", "tail")}
        deffs = "  ".join(f"{name} {value:.2f} ± {half:.2f}" for name, (value, half) in parts.items())
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
