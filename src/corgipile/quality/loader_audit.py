"""Audit of anybody's loader: epochs, seeds, ranks, workers, kills and resumes, against declared limits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from corgipile.errors import BadArgument
from corgipile.quality import loader_faults as faults
from corgipile.quality.audit import Audit
from corgipile.quality.audited import AuditReport
from corgipile.quality.faults import Fault
from corgipile.quality.fields import Finder
from corgipile.quality.lives import AT_END, ID, Life, Lived, Maker, accepts, find_maker, live
from corgipile.quality.loader_report import Check, LoaderAudit
from corgipile.sizes import whole
from corgipile.verdicts import FAULTS, LOADER_FAULTS

__all__ = ["AuditPlan", "audit_loader"]

Shape = tuple[int, int]  # ranks, and workers per rank
Found = Iterator[Fault]
MAX_UNUSED = 2  # numbers up to the largest id, as a multiple of the ids, up to which they number a table's rows


@dataclass(frozen=True)
class AuditPlan:
    """Runs and limits of a loader's audit.

    Attributes:
        id: Field of a batch with row numbers or names: a column's name, an index, or a function of the batch
            (``module:function`` on the command line).
        key: Fields whose spread over batches is measured, such as a label.
        source: Field with the source of a row.
        weights: Declared weight of each source.
        tokens: Two fields: the tokens of a row, and those of its whole document.
        rows: Rows of the table; by default derived from the ids.
        batches: Batches per epoch and rank at most, for endless loaders; then missing rows are no fault.
        world: Numbers of ranks; by default 2 and 1 if the loader takes ``rank``, otherwise 1, times ``tp``.
        workers: Numbers of workers per rank; by default 0 and 2 if the loader takes ``workers``, otherwise 0.
        tp: Ranks of one tensor-parallel group, which must get equal batches.
        max_deff: Largest deff of a key or of the place in storage; 1 is a full shuffle, by default there is no limit.
        exactly_once: Each row must come exactly once per epoch, also if the run is stopped and resumed.
        resume: States must work, at every world and number of workers; by default if the loader has states.
        memory: Measure memory over six epochs.
        allow: Names of faults that are not reported.
        start: How processes start: fork, or spawn for libraries that cannot be forked.
        timeout: Seconds that a process may take.
    """

    id: Finder
    key: Finder | Sequence[Finder] | None = None
    source: Finder | None = None
    weights: Mapping[str, float] | None = None
    tokens: tuple[Finder, Finder] | None = None
    rows: int | None = None
    batches: int | None = None
    world: Sequence[int] | None = None
    workers: Sequence[int] | None = None
    tp: int = 1
    max_deff: float | None = None
    exactly_once: bool = False
    resume: bool | None = None
    memory: bool = True
    allow: Sequence[str] = ()
    start: str = "fork"
    timeout: float = 300.0

    def __post_init__(self) -> None:
        if any(whole(world, "world", 1) % whole(self.tp, "tp", 1) for world in self.world or (self.tp,)):
            raise BadArgument(f"world must be a multiple of tp={self.tp}, got {', '.join(map(str, self.world or ()))}")
        if (self.source is None) != (self.weights is None):
            raise BadArgument("source and weights must be given together: the field, and the weight of each source")
        if self.tokens is not None and len(self.tokens) != 2:
            raise BadArgument(f"tokens must be two fields, a row's and its document's tokens, got {len(self.tokens)}")
        if self.start not in ("fork", "spawn"):
            raise BadArgument(f"start must be fork or spawn, got {self.start!r}")
        if unknown := set(self.allow) - {*FAULTS, *LOADER_FAULTS}:
            names = ", ".join((*FAULTS, *LOADER_FAULTS))
            raise BadArgument(f"allow must name faults, got {', '.join(sorted(unknown))}; faults: {names}")


def audit_loader(make_loader: Maker | str, plan: AuditPlan | None = None, **settings: Any) -> LoaderAudit:
    """Run anybody's loader for epochs, seeds, ranks and workers, kill and resume it, and name its faults.

    Args:
        make_loader: Function that makes the loader of a rank, or ``module:function``. It is given those of
            ``rank``, ``world``, ``workers``, ``seed``, ``tp``, ``epoch``, ``state`` and ``states`` that it takes.
        plan: What to run and to check.
        settings: The attributes of an `AuditPlan`, instead of a plan.

    Example:
        >>> import corgipile as cp, pyarrow as pa
        >>> table = pa.table({"row": range(1000)})
        >>> def make_loader(rank, world, seed):
        ...     return cp.Loader(table, batch_size=20, seed=seed, rank=rank, world=world)
        >>> audit_loader(make_loader, id="row", world=[2], exactly_once=True, resume=False, memory=False).verdict
        '2 checks: no fault found.'
    """
    plan = plan or AuditPlan(**settings)
    run, checks = _Run(make_loader, plan), []
    for name, found in run.checks():
        checks.append(Check(name, _each_once(fault for fault in found if fault.name not in plan.allow)))
    return LoaderAudit(
        tuple(checks), replace(run.report, faults=_each_once(one for check in checks for one in check.faults))
    )


class _Run:
    """The runs of one audit. Tensor-parallel groups are represented by their first ranks."""

    def __init__(self, make: Maker | str, plan: AuditPlan) -> None:
        self._plan = plan
        made = find_maker(make) if isinstance(make, str) else make
        self._make = make if plan.start == "spawn" else made
        worlds = plan.world or [plan.tp * ranks for ranks in ((2, 1) if accepts(made, "rank") else (1,))]
        workers = plan.workers or ((0, 2) if accepts(made, "workers") else (0,))
        self._shapes = [(world, workers[0]) for world in worlds] + [(worlds[0], count) for count in workers[1:]]
        self._seeded, self._stateful = accepts(made, "seed"), accepts(made, "state") or accepts(made, "states")
        keys: list[Any] = (
            list(plan.key) if isinstance(plan.key, list | tuple) else [] if plan.key is None else [plan.key]
        )
        self._keys = {str(getattr(key, "__name__", key)): key for key in keys}
        extra = {faults.SOURCE: plan.source, **dict(zip((faults.GOT, faults.WHOLE), plan.tokens or (), strict=False))}
        self._fields: dict[str, Any] = {
            ID: plan.id,
            **self._keys,
            **{name: one for name, one in extra.items() if one is not None},
        }
        self.report = AuditReport(None, (), ())
        self._whole: dict[Shape, list[Lived]] = {}

    def checks(self) -> Iterator[tuple[str, Iterable[Fault]]]:
        """Yield the name of each check and the faults that it finds."""
        for shape in self._shapes:
            self._whole[shape] = self._live(shape, epochs=2)
            if failed := _failures(self._whole[shape], "loader fails"):
                yield f"epochs, {_text(shape)}", failed
                return
        first = self._shapes[0]
        self._every = Counter({row for shape in self._shapes for row in self._rows(self._whole[shape])})
        rows = self._plan.rows or self._known_rows()
        for shape in self._shapes:
            yield f"epochs, {_text(shape)}", self._epoch_faults(shape, rows)
        if self._seeded:
            yield "another seed", self._seed_faults(first, rows)
        self._stateful |= self._whole[first][0].stateful
        if self._stateful and self._plan.resume is not False:
            yield from self._resumes()
        elif self._plan.resume:
            yield "resume", [Fault("no state", "the loader has no state_dict, and takes no state", 0)]
        if self._plan.memory:
            lives = self._live(first, epochs=faults.MEASURED_EPOCHS, memory=True)
            most = max(len(lived.ids()) for lived in self._whole[first])
            yield "memory", _failures(lives, "loader fails") or faults.memory_faults(lives, most)

    def _live(self, shape: Shape, before: Sequence[Lived] | None = None, **settings: Any) -> list[Lived]:
        """Run all ranks, continuing from the states of others if they are given; nothing if those failed."""
        if any(lived.error for lived in before or ()):
            return []
        states = tuple(lived.state for lived in before) if before is not None else None
        life = Life(*shape, tp=self._plan.tp, states=states, **{"batches": self._plan.batches, **settings})
        return live(self._make, self._fields, life, self._plan.start, self._plan.timeout)

    def _rows(self, ranks: Sequence[Lived], epoch: int = 0) -> faults.Rows:
        return faults.rows_of(ranks, self._plan.tp, epoch)

    def _known_rows(self) -> int | None:
        """Return the rows of the table if ids number them, otherwise None."""
        if not self._every or not all(isinstance(row, int) and row >= 0 for row in self._every):
            return None
        rows = int(max(self._every)) + 1
        return rows if rows <= MAX_UNUSED * len(self._every) else None

    def _epoch_faults(self, shape: Shape, rows: int | None) -> Found:
        plan, ranks = self._plan, self._whole[shape]
        for rank, epoch in ((rank, epoch) for rank in range(len(ranks)) for epoch in (0, 1)):
            if not ranks[rank].ids(epoch):
                yield Fault("missing rows", f"rank {rank} has no rows in epoch {epoch}", epoch)
                return
        report = self._audited(ranks, rows).report()
        self.report = report if shape == self._shapes[0] else self.report
        yield from report.faults
        again = (self._rows(ranks) - Counter(set(self._rows(ranks)))).total()
        if plan.exactly_once and again and not plan.batches:
            yield Fault("repeated rows", f"{again:,} visits of rows that had come before", 0)
        if plan.max_deff is not None:
            yield from faults.mixing_faults(report, plan.max_deff)
        if not any(fault.name.startswith("not shuffled") for fault in report.faults):
            yield from faults.permutation_faults(ranks)
        if not plan.batches:
            yield from faults.length_faults(ranks)
        yield from faults.group_faults(ranks, plan.tp)
        for epoch in (0, 1):
            yield from faults.mixture_faults(ranks, plan.weights, epoch) if plan.weights else ()
            yield from faults.document_faults(ranks, epoch) if plan.tokens else ()

    def _audited(self, ranks: Sequence[Lived], rows: int | None) -> Audit:
        """Return the audit of a run."""
        audits = [
            Audit(id=ID, key=list(self._keys), rows=rows, batches=self._plan.batches) for _ in ranks[:: self._plan.tp]
        ]
        for audit, lived in zip(audits, ranks[:: self._plan.tp], strict=True):
            for epoch in lived.epochs:
                for batch in epoch:
                    audit.add(batch)
                audit.end_epoch()
        for audit in audits[1:]:
            audits[0].merge(audit)
        return audits[0]

    def _seed_faults(self, shape: Shape, rows: int | None) -> Found:
        other = self._live(shape, seed=1)
        yield from (failed := _failures(other, "loader fails"))
        if not failed and all(lived.ids(epoch) for lived in self._whole[shape] for epoch in (0, 1)):
            audit, names = self._audited(self._whole[shape], rows), {fault.name for fault in self.report.faults}
            audit.add_other_seed(self._audited(other, rows))
            yield from (fault for fault in audit.report().faults if fault.name not in names)

    def _resumes(self) -> Iterator[tuple[str, Iterable[Fault]]]:
        """Kill and resume at each shape, then at the end of an epoch, then from each shape to the next and back."""
        for shape in self._shapes:
            yield f"resume, {_text(shape)}", self._resume_faults(shape, shape)
        if self._plan.batches:  # an endless loader has no epoch that another shape could complete
            return
        first = self._shapes[0]
        ended = self._live(first, stop=AT_END)
        again = self._live(first, ended, epoch=1, after_epoch=True)
        found = _failures([*ended, *again], "resume fails") or self._next_faults(
            again, 0, first, self._slack(first), ""
        )
        yield "resume after an epoch", found
        for one, other in pairwise(self._shapes):
            for old, new in ((one, other), (other, one)):
                refusal = () if self._plan.resume else ("resume fails",)  # better than rows lost in silence
                found = [fault for fault in self._resume_faults(old, new) if fault.name not in refusal]
                yield f"resume, {_text(old)} to {_text(new)}", found

    def _resume_faults(self, old: Shape, new: Shape) -> Found:
        """Yield the faults of an epoch that is killed at one shape, resumed at another, killed and resumed again."""
        how = f" (killed at {_text(old)}, resumed at {_text(new)})"
        gone = max(1, self._batches(old) // 3)
        first = self._live(old, stop=gone)
        gone = gone * old[0] // new[0]
        stop = max(1, (self._batches(new) - gone) // 3)
        second = self._live(new, first, stop=stop)
        left = {"batches": self._plan.batches - gone - stop} if self._plan.batches else {"epochs": 2}
        third = self._live(new, second, **left)
        if failed := _failures([*first, *second, *third], "resume fails", how):
            yield failed[0]
            return
        slack = max(self._slack(old), self._slack(new))
        parts = [self._rows(lives) for lives in (first, second, third)]
        yield from faults.resume_faults(parts, self._rows(self._whole[old]), slack, how)
        yield from faults.group_faults(second, self._plan.tp, how)
        yield from self._next_faults(third, 1, new, slack, how) if not self._plan.batches else ()

    def _next_faults(self, ranks: Sequence[Lived], epoch: int, shape: Shape, slack: int, how: str) -> Found:
        tp, whole_run = self._plan.tp, self._whole[shape]
        usual = [[row for lived in whole_run[::tp] for row in lived.ids(number)] for number in (0, 1)]
        return faults.next_epoch_faults(ranks[::tp], epoch, usual, slack, how)

    def _batches(self, shape: Shape) -> int:
        return max(len(lived.epochs[0]) for lived in self._whole[shape])

    def _slack(self, shape: Shape) -> int:
        """Return how many rows a whole epoch loses or repeats, which a resumed one may, too."""
        rows = self._rows(self._whole[shape])
        return 0 if self._plan.exactly_once else ((self._every - rows) + (rows - self._every)).total()


def _each_once(found: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the first fault of each name."""
    return tuple({fault.name: fault for fault in reversed(list(found))}.values())[::-1]


def _failures(lives: Sequence[Lived], name: str, how: str = "") -> list[Fault]:
    return [Fault(name, f"{lived.error}{how}", 0) for lived in lives if lived.error]


def _text(shape: Shape) -> str:
    return f"world {shape[0]}, workers {shape[1]}"
