"""A table converted by the tasks of an engine, such as Ray or Spark, each of which writes files of its own."""

import errno
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
from corgipile.conversion.writers.goals import goal_of, named
from corgipile.conversion.writers.parts import Parts
from corgipile.errors import BadArgument, WriteFailed
from corgipile.outputs import PathLike, refuse_url
from corgipile.sizes import Size, parse_bytes, yes_or_no
from corgipile.tables import Table
from corgipile.tables.arrow.writer import plain
from corgipile.tables.table import even_cuts
from corgipile.tables.text.types import Types

__all__ = ["Deal", "Engine", "Merge", "Target", "Write", "Written", "convert"]


class Written(NamedTuple):
    """What a task wrote: how many rows, the folder of the files, what `Form.finish` wants to know of each."""

    rows: int
    folder: Path
    found: Sequence[Any]


Put = Callable[[pa.RecordBatch], None]
Write = Callable[[int], Written]
Deal = Callable[[int], Iterable[tuple[int, pa.Buffer]]]
Merge = Callable[[int, Iterable[pa.Buffer]], Written]


class Engine(Protocol):
    """Runs tasks: each in some process on some machine, again where that fails. What they call is pickled."""

    def each(self, write: Write, tasks: int) -> Sequence[Written]:
        """Return what ``write`` returns for each number, from 0 on."""

    def dealt(self, deal: Deal, tasks: int, merge: Merge, piles: int) -> Sequence[Written]:
        """Run ``deal`` for each number, then ``merge`` for each pile on what was dealt to it, in the order of numbers.

        A pile that nothing was dealt to may be left out.
        """


@dataclass(frozen=True)
class Target:
    """Where tasks write, of what format, and how large files are.

    Attributes:
        out: A folder, or the name of files with ``%05d`` in it.
        kind: The format.
        settings: Sizes and codec.
        overwrite: Replace what is there.
        room: Where the folders of tasks lie.
    """

    out: str
    kind: str
    settings: Settings
    overwrite: bool
    room: Path = Path()

    @classmethod
    def of(cls, out: PathLike, to: str | None, settings: Settings, *, overwrite: bool) -> "Target":
        """Check what a caller says.

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
                raise BadArgument(f"{out} is one file, and tasks write many; {form.wanted}")
            name = f"{name}/"
        return cls(name, kind, settings, overwrite)

    @contextmanager
    def filled(
        self, inputs: Iterable[Any], schema: pa.Schema, rows: int
    ) -> Iterator[tuple["Target", Callable[[Sequence[Written]], None]]]:
        """Give this, with a folder for tasks, and what takes what they wrote; files appear when the block ends well."""
        form, found = form_of(self.kind), list[Any]()
        goal = goal_of(self.out, form, inputs, overwrite=self.overwrite)
        form.plan(plain(schema), self.settings)  # what has no place is said now
        with goal.paths(found) as paths:
            first = next(paths)
            room = first.parent.parent / "tasks"
            room.mkdir()
            yield replace(self, room=room), lambda done: found.extend(self._gathered(done, rows, chain([first], paths)))

    def _gathered(self, done: Sequence[Written], rows: int, paths: Iterator[Path]) -> Iterator[Any]:
        """Give files the names that they will bear, task after task; yield what is known of each."""
        if (total := sum(one.rows for one in done)) != rows:
            raise WriteFailed(errno.EIO, f"cannot write {self.out}: tasks wrote {total} rows of {rows}")
        form = form_of(self.kind)
        for one in [one for one in done if one.rows] or done[:1]:
            if not one.folder.is_dir():
                what = f"a task wrote to {one.folder}, which this machine does not reach; name a folder that all do"
                raise WriteFailed(errno.ENOENT, f"cannot write {self.out}: {what}")
            there = [path for path in one.folder.iterdir() if path.name not in form.besides]
            for number, path in enumerate(sorted(there, key=lambda path: (len(path.name), path.name))):
                codec = path.name.removeprefix(named(form.names.replace("{}", one.folder.name), number))
                goal = next(paths)
                path.replace(goal.with_name(goal.name + codec))
            yield from one.found

    def write(self, schema: pa.Schema, fill: Callable[[Path, Put], None], first: int = 0) -> Written:
        """Write what ``fill`` puts, in a folder that it may use, too: whatever else runs, or ran, has another."""
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
    """Write a table in another format by tasks, each of which reads some rows and writes them to files of their own.

    Args:
        engine: What runs the tasks.
        table: What `corgipile.open` takes; files that every machine reaches.
        out: A folder that every machine reaches, or ``rows-%05d.parquet`` for the files of one; Arrow else.
        to: As for `corgipile.convert`, and so are those that follow.
        record_batch: As there.
        shard_size: Bytes of a file, and of the rows that a task reads; None: as there, and 512 MB of Arrow.
        compression: As there.
        label: As there; a column.
        columns: As there.
        types: As there.
        inexact: As there.
        pack: As there.
        header: As there.
        zero_based: As there.
        overwrite: Replace what is there, but never a file of the table.

    Returns:
        The number of rows written, which come in the order of the table.

    Raises:
        BadArgument: The output is one file, or a setting is wrong.
        BadSchema: The format has no place for a column.
        WouldOverwrite: Files are there.
        WriteFailed: What a task wrote is not to be found here.
    """
    target = Target.of(out, to, settings_of(shard_size, record_batch, compression), overwrite=overwrite)
    asked = Options(label, choice(header, "header"), yes_or_no(pack, "pack"), choice(zero_based, "zero_based"), types)
    opened = table_of(table, asked)
    rows = len(opened)
    each = (target.settings.limit or form_of(target.kind).limit) * max(1, rows) // max(1, opened.nbytes)
    cuts = even_cuts(rows, max(1, each)).tolist() if rows else [0, 0]
    job = _Conversion(opened, asked, columns, yes_or_no(inexact, "inexact"), cuts)
    with target.filled((table, opened), job.shaped(0, 0).schema, rows) as (there, done):
        done(engine.each(partial(job.write, there), len(cuts) - 1))
    return rows


def settings_of(shard_size: Size | None, record_batch: int | str | None, compression: str | None) -> Settings:
    """Return sizes and codec as a caller says them.

    Example:
        >>> settings_of("1MB", None, None).limit
        1048576
    """
    return Settings(None if shard_size is None else parse_bytes(shard_size, "shard_size"), record_batch, compression)


@dataclass(frozen=True)
class _Conversion:
    """What the tasks of a conversion do."""

    table: Table
    asked: Options
    columns: Sequence[str] | None
    inexact: bool
    cuts: Sequence[int]

    def shaped(self, start: int, stop: int) -> Stream:
        """Return a span of rows as they are written."""
        found = cast(table_stream(self.table, None, start, stop), self.asked.types, inexact=self.inexact)
        return shape(found, label=self.asked.label, columns=self.columns, pack=self.asked.pack)

    def write(self, target: Target, task: int) -> Written:
        """Write the span of a task."""
        found = self.shaped(self.cuts[task], self.cuts[task + 1])

        def fill(_: Path, put: Put) -> None:
            for batch in found.batches:
                put(batch)

        with frugal():
            return target.write(found.schema, fill, found.first)
