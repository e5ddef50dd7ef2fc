"""Runs scripts for front ends: statement after statement, each to be stopped by Ctrl-C, its answer shown."""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import pyarrow as pa

from corgipile.errors import BadArgument, MissingFile
from corgipile.sizes import parse_bytes
from corgipile.sql.answers.answers import Answers
from corgipile.sql.connection import POSTGRES, Connection, connect
from corgipile.sql.engines.engine import Progress, Result, Values
from corgipile.sql.exceptions import Interrupted
from corgipile.sql.statements import Explain, Statement, Train
from corgipile.stores.urls import redacted

__all__ = ["Runner", "decoded", "interruptible", "opened", "script_of"]

R = TypeVar("R")
_SILENT = logging.NullHandler()
_AGAIN = 0.2  # seconds until a statement that goes on is told again to stop


@dataclass
class Runner:
    """A place where scripts run and what they answer is shown.

    Attributes:
        connection: Runs the statements.
        answers: Shows what they answer.
        tell: Says what there is to be said besides.
        progress: Shows how a training goes on.
        memory: The budget of trainings that say none.
        seconds: How long the last statement took, its answer included.
    """

    connection: Connection
    answers: Answers
    tell: Callable[[str], None]
    progress: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
    memory: str | None = None
    seconds: float = field(default=0.0, init=False)

    def run(self, script: str, values: Values = ()) -> None:
        """Run the statements of a script up to the first that fails; one that does not parse lets none run.

        Raises:
            KeyboardInterrupt: Ctrl-C; the statement has been stopped.
        """
        start = time.perf_counter()
        for statement in self.connection.parse(script):
            self.answer(lambda statement=statement: self._result(statement, values))  # type: ignore[misc]
        self.seconds = time.perf_counter() - start

    def answer(self, work: Callable[[], Result]) -> None:
        """Show what a function answers; it runs in a thread, and Ctrl-C stops it."""
        stopped = Event()

        def run() -> None:
            result = work()
            result.batches = _until(stopped, result.batches)
            self.answers.show(result)
            for note in result.notes:
                self.tell(note)

        interruptible(self.connection.interrupt, run, stopped)

    def _result(self, statement: Statement, values: Values) -> Result:
        with self.progress() as shown:
            return self.connection.run(self._within(statement), values, shown)

    def _within(self, statement: Statement) -> Statement:
        """Return a statement whose training keeps to the budget, unless it names one."""
        if isinstance(statement, Explain):
            return replace(statement, train=self._budgeted(statement.train))
        return self._budgeted(statement) if isinstance(statement, Train) else statement

    def _budgeted(self, train: Train) -> Train:
        one = self.connection.engine.name == "PostgreSQL"  # where the buffer is all the memory there is
        if self.memory is None or "memory" in train.settings or (one and "buffer" in train.settings):
            return train
        return replace(train, settings={**train.settings, "memory": self.memory})


def interruptible(interrupt: Callable[[], None], work: Callable[[], R], stopped: Event) -> R:
    """Run a function in a thread, so that this one hears of Ctrl-C while a library keeps the other busy."""
    future: Future[R] = Future()
    try:
        Thread(target=_settle, args=(future, work), daemon=True).start()
        while not future.done():  # looked at again, since another thread may have been given the signal
            wait([future], _AGAIN)
        return future.result()
    except KeyboardInterrupt as stop:
        stopped.set()
        raise _ended(future, interrupt, stop) from None


def _ended(future: "Future[Any]", interrupt: Callable[[], None], stop: KeyboardInterrupt) -> KeyboardInterrupt:
    """Return what stops a function once it has ended, or will not begin: Ctrl-C pressed again ends no wait for it."""
    while not (future.cancel() or future.done()):  # not Thread.join, which takes a thread for ended when a signal comes
        try:
            with suppress(Exception):  # a connection that is lost: the thread hears of it too
                interrupt()
            wait([future], _AGAIN)
        except KeyboardInterrupt as again:
            stop = stop if type(again) is KeyboardInterrupt else again
    return stop


def _settle(future: "Future[Any]", work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
        future.set_exception(error)


def _until(stopped: Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if stopped.is_set():
            raise Interrupted("the statement was interrupted")
        yield batch


def script_of(name: str) -> str:
    """Return the statements of a file.

    Raises:
        MissingFile: It is not there.
        BadArgument: It is no text.
    """
    try:
        return decoded(Path(name).expanduser().read_bytes(), name)
    except FileNotFoundError:
        raise MissingFile(f"{name}: there is no such file") from None


def decoded(script: bytes, name: str) -> str:
    r"""Return a script as text; `name` says what it is, should it be none.

    Example:
        >>> decoded(b"SELECT '\xff'", "a.sql")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: a.sql is no text in UTF-8: byte 8 is 0xff
    """
    try:
        return script.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadArgument(f"{name} is no text in UTF-8: byte {error.start} is {script[error.start]:#04x}") from None


def opened(
    *, db: str | None = None, dsn: str | None = None, memory: str | None = None, trust: Any = None
) -> Connection:
    """Open the database that a front end was told of: one in memory, a file of DuckDB, or a server.

    Raises:
        BadArgument: Two are named, or the address is none of a server.

    Example:
        >>> with opened() as connection:
        ...     connection.execute("SELECT 1").fetchall()
        [(1,)]
    """
    # What trainings log is in their notes: Python need not say it too, unless somebody listens.
    logging.getLogger("corgipile").addHandler(_SILENT)
    budget = None if memory is None else parse_bytes(memory, "memory")
    if dsn is None:
        options: dict[str, Any] = {} if budget is None else {"memory_limit": f"{budget}B"}
        return connect(db or ":memory:", trust=trust, **options)
    if db is not None:
        raise BadArgument(f"db is {db!r} and dsn {redacted(dsn)!r}; one of them is right")
    if not dsn.startswith(POSTGRES):
        raise BadArgument(f"dsn is {redacted(dsn)!r}; postgresql://user@host:5432/database is right")
    return connect(dsn, trust=trust)
