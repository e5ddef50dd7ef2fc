"""Conversion of a table by tasks of an engine, such as Ray or Spark; each task writes its own files."""

import errno
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from corgipile.arrow_memory import frugal
from corgipile.conversion.casts import cast
from corgipile.conversion.columns import shape
from corgipile.conversion.convert import choice
from corgipile.conversion.sources import Options, table_of, table_stream
from corgipile.conversion.stream import Stream
from corgipile.conversion.targets import check_settings, form_of, target_of
from corgipile.conversion.writers.form import Settings
from corgipile.conversion.writers.goals import goal_of, numbered_name
from corgipile.conversion.writers.parts import Parts
from corgipile.errors import BadArgument, WriteFailed
from corgipile.outputs import PathLike, refuse_url
from corgipile.sizes import Size, yes_or_no
from corgipile.tables import Table
from corgipile.tables.formats.arrow.writer import plain
from corgipile.tables.formats.text.types import Types
from corgipile.tables.table import even_cuts

__all__ = ["Deal", "Engine", "Merge", "Target", "Write", "Written", "convert"]


class Written(NamedTuple):
    """Result of a task: number of rows, folder of the files, and data for `Form.finish`."""

    rows: int
    folder: Path
    found: Sequence[Any]


Put = Callable[[pa.RecordBatch], None]
Write = Callable[[int], Written]
Deal = Callable[[int], Iterable[tuple[int, pa.Buffer]]]
Merge = Callable[[int, Iterable[pa.Buffer]], Written]


class Engine(Protocol):
    """Runs pickled tasks on any process or machine, and again after a failure; each may deal ``largest`` bytes."""

    largest: int

    def each(self, write: Write, tasks: int) -> Sequence[Written]:
        """Return the results of ``write`` for each task number, from 0 up."""

    def dealt(self, deal: Deal, tasks: int, merge: Merge, piles: int) -> Sequence[Written]:
        """Run ``deal`` for each task number, then ``merge`` for each pile on its buffers, in order of task numbers.

        Empty piles may be left out.
        """


@dataclass(frozen=True)
class Target:
    """Output of tasks: a folder or a file name with ``%05d``, its format and file sizes.

    ``room`` has the tasks' folders.
    """

    out: str
    kind: str
    settings: Settings
    overwrite: bool
    room: Path = Path()

    @classmethod
    def of(cls, out: PathLike, to: str | None, settings: Settings, *, overwrite: bool) -> "Target":
        """Build from a caller's arguments, with checks.

        Example:
            >>> Target.of("rows-%05d.parquet", None, Settings(), overwrite=False).kind
            'parquet'
        """
        refuse_url(out)
        kind, name = target_of(out, to), str(out)
        form = form_of(kind)
        check_settings(kind, form, settings)
        if "%" not in Path(name).name:
            if form.suffixes and name.lower().endswith(form.suffixes):
                raise BadArgument(f"out must name many files, got {out}: {form.wanted}")
            name = f"{name}/"
        return cls(name, kind, settings, overwrite)

    @contextmanager
    def filled(
        self, inputs: Iterable[Any], schema: pa.Schema, rows: int
    ) -> Iterator[tuple["Target", Callable[[Sequence[Written]], None]]]:
        """Yield the target with a folder for tasks, and a function that takes results; files appear on success."""
        form, found = form_of(self.kind), list[Any]()
        goal = goal_of(self.out, form, inputs, overwrite=self.overwrite)
        form.plan(plain(schema), self.settings)  # raises for columns that do not fit
        with goal.paths(found) as paths:
            first = next(paths)
            room = first.parent.parent / "tasks"
            room.mkdir()
            yield replace(self, room=room), lambda done: found.extend(self._gathered(done, rows, chain([first], paths)))

    def _gathered(self, done: Sequence[Written], rows: int, paths: Iterator[Path]) -> Iterator[Any]:
        """Rename files to their final names, task by task; yield data on each."""
        if (total := sum(task.rows for task in done)) != rows:
            raise WriteFailed(errno.EIO, f"cannot write {self.out}: tasks wrote {total} rows of {rows}")
        form = form_of(self.kind)
        for task in [task for task in done if task.rows] or done[:1]:
            if not task.folder.is_dir():
                raise self._unreached(task.folder)
            files = [path for path in task.folder.iterdir() if path.name not in form.besides]
            for number, path in enumerate(sorted(files, key=lambda path: (len(path.name), path.name))):
                codec = path.name.removeprefix(numbered_name(form.names.replace("{}", task.folder.name), number))
                goal = next(paths)
                path.replace(goal.with_name(goal.name + codec))
            yield from task.found

    def _unreached(self, folder: Path) -> WriteFailed:
        what = f"{platform.node()} cannot find {folder}, which another machine created: name a folder that all reach"
        return WriteFailed(errno.ENOENT, f"cannot write {self.out}: {what}")

    def write(self, schema: pa.Schema, fill: Callable[[Path, Put], None], first: int = 0) -> Written:
        """Write rows given by ``fill`` to a new folder, which no other task or attempt uses."""
        if not self.room.is_dir():
            raise self._unreached(self.room)
        folder = Path(tempfile.mkdtemp(prefix="task-", dir=self.room))
        files = folder / "files"
        with Parts(f"{files}/", form_of(self.kind), schema, self.settings, first=first) as parts:
            fill(folder, parts.write)
        return Written(parts.rows, files, parts.found)


def convert(
    engine: Engine,
    table: Any,
    out: PathLike,
    *,
    to: str | None = None,
    record_batch: int | str | None = None,
    shard_size: Size | None = None,
    compression: str | None = None,
    label: str | int | None = None,
    columns: Sequence[str] | None = None,
    types: Types | None = None,
    inexact: bool = False,
    pack: bool = False,
    header: bool | Literal["auto"] = "auto",
    zero_based: bool | Literal["auto"] = "auto",
    overwrite: bool = False,
) -> int:
    """Write a table in another format by tasks; return the number of rows.

    Arguments are those of `corgipile.convert`, with sources and a folder (or ``rows-%05d.parquet`` for files in one)
    that every machine reaches. Each task reads some rows and writes them to its own files of ``shard_size``, 512 MB for
    Arrow.
    """
    target = Target.of(out, to, Settings.of(shard_size, record_batch, compression), overwrite=overwrite)
    options = Options(label, choice(header, "header"), yes_or_no(pack, "pack"), choice(zero_based, "zero_based"), types)
    opened = table_of(table, options)
    rows = len(opened)
    task_rows = (target.settings.limit or form_of(target.kind).limit) * max(1, rows) // max(1, opened.nbytes)
    cuts = even_cuts(rows, max(1, task_rows)).tolist() if rows else [0, 0]
    job = _Conversion(opened, options, columns, yes_or_no(inexact, "inexact"), cuts)
    with target.filled((table, opened), job.shaped(0, 0).schema, rows) as (target_folder, done):
        done(engine.each(partial(job.write, target_folder), len(cuts) - 1))
    return rows


@dataclass(frozen=True)
class _Conversion:
    """The tasks of a conversion."""

    table: Table
    asked: Options
    columns: Sequence[str] | None
    inexact: bool
    cuts: Sequence[int]

    def shaped(self, start: int, stop: int) -> Stream:
        """Return a span of rows in the output's form."""
        rows = cast(table_stream(self.table, None, start, stop), self.asked.types, inexact=self.inexact)
        return shape(rows, label=self.asked.label, columns=self.columns, pack=self.asked.pack)

    def write(self, target: Target, task: int) -> Written:
        """Write the span of a task."""
        rows = self.shaped(self.cuts[task], self.cuts[task + 1])

        def fill(_: Path, put: Put) -> None:
            for batch in rows.batches:
                put(batch)

        with frugal():
            return target.write(rows.schema, fill, rows.first)
