"""Rows written as one file, or as many of about one size."""

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from corgipile.conversion.writers.form import Form, PartWriter, Settings
from corgipile.conversion.writers.goals import goal_of
from corgipile.errors import BadArgument
from corgipile.outputs import PathLike, refuse_url
from corgipile.tables.arrow.writer import conform, plain

__all__ = ["Parts"]

STEP, LEAST = 4096, 16


class Parts:
    """Writes rows; in a ``with`` statement: all files appear when the block ends well, else none.

    Args:
        out: A file; a name with ``%06d`` in it, for the number of each of many; or a folder.
        form: The format.
        schema: Schema of the rows; dictionaries and views are written as plain values.
        settings: Sizes and codec.
        inputs: What is read meanwhile, and never replaced.
        overwrite: Replace files of any kind; of a folder only one in which nothing else lies.
        first: Number of the first row in the source, for messages.

    Attributes:
        rows: Rows written.
        found: What the writers of the files found out, once they are closed.
    """

    def __init__(
        self,
        out: PathLike,
        form: Form,
        schema: pa.Schema,
        settings: Settings,
        *,
        inputs: Iterable[Any] = (),
        overwrite: bool = False,
        first: int = 0,
    ) -> None:
        refuse_url(out)
        self.schema, self.rows, self._first = plain(schema), 0, first
        self._goal = goal_of(out, form, inputs, overwrite=overwrite)
        if settings.limit is not None and not self._goal.many:
            raise BadArgument(f"shard_size is for many files, and {out} is to be one; {form.wanted}")
        limit = (settings.limit or form.limit) if self._goal.many else None
        self._make = form.plan(self.schema, settings._replace(limit=limit))
        self._part: PartWriter | None = None
        self.found: list[Any] = []
        self._step, self._before = STEP, 0  # rows encoded at a time; rows in the parts before

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._paths = stack.enter_context(self._goal.paths(self.found))
            stack.push(self._end)
            self._part = self._make(next(self._paths))
            self._stack = stack.pop_all()
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; their columns must be those of the schema."""
        batch = conform(batch, self.schema)
        while batch.num_rows and self._part is not None:
            some = batch.slice(0, self._step)
            wrote = self._part.write(some, self._first + self.rows)
            self.rows += wrote
            batch = batch.slice(wrote)
            if wrote < some.num_rows:
                self._close()
                self._step = max(LEAST, self.rows - self._before)  # no more are encoded in vain than a part holds
                self._before = self.rows
                self._part = self._make(next(self._paths))

    def _close(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            self.found.append(part.close())

    def _end(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if failure is None:
            self._close()
        elif self._part is not None:
            with contextlib.suppress(Exception):  # it is removed anyhow
                self._part.close()

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, failure, trace)
