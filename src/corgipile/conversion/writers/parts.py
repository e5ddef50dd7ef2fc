"""Rows written as one file, or as many files of about equal size."""

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from corgipile.conversion.writers.form import Form, PartWriter, Settings
from corgipile.conversion.writers.goals import goal_of
from corgipile.errors import BadArgument
from corgipile.outputs import PathLike, refuse_url
from corgipile.tables.formats.arrow.writer import conform, plain

__all__ = ["Parts"]

STEP, MIN_STEP = 4096, 16


class Parts:
    """Writes rows in a ``with`` statement; all files appear if the block succeeds, else none.

    Dictionaries and views are written as plain values. ``first`` is the number of the first row in the source, for
    messages; ``found`` are the results of closed part writers.
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
            raise BadArgument(f"shard_size is for many files, got it for one, {out}: {form.wanted}")
        limit = (settings.limit or form.limit) if self._goal.many else None
        self._make = form.plan(self.schema, settings._replace(limit=limit))
        self._part: PartWriter | None = None
        self.found: list[Any] = []
        self._step, self._before = STEP, 0  # rows encoded at a time; rows in earlier parts

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._paths = stack.enter_context(self._goal.paths(self.found))
            stack.push(self._end)
            self._part = self._make(next(self._paths))
            self._stack = stack.pop_all()
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the schema."""
        batch = conform(batch, self.schema)
        while batch.num_rows and self._part is not None:
            rows = batch.slice(0, self._step)
            wrote = self._part.write(rows, self._first + self.rows)
            self.rows += wrote
            batch = batch.slice(wrote)
            if wrote < rows.num_rows:
                self._close()
                self._step = max(MIN_STEP, self.rows - self._before)  # encode at most one part's rows in vain
                self._before = self.rows
                self._part = self._make(next(self._paths))

    def _close(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            self.found.append(part.close())

    def _end(self, _: object, failure: BaseException | None, __: object) -> None:
        if failure is None:
            self._close()
        elif self._part is not None:
            with contextlib.suppress(Exception):  # the file is removed anyway
                self._part.close()

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, failure, trace)
