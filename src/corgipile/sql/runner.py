"""Runner of scripts for front ends: it shows each result, and Ctrl-C stops a statement."""

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
from corgipile.urls import redacted

__all__ = ["Runner", "decode_script", "interruptible", "open_connection", "read_script"]

R = TypeVar("R")
_SILENT = logging.NullHandler()
_INTERRUPT_SECONDS = 0.2  # seconds between two attempts to interrupt


@dataclass
class Runner:
    """Runs scripts and shows their results, notes by ``tell``; ``memory`` is the budget of trainings that set none.

    ``seconds`` is what the last script took, with its output.
    """

    connection: Connection
    answers: Answers
    tell: Callable[[str], None]
    progress: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
    memory: str | None = None
    seconds: float = field(default=0.0, init=False)

    def run(self, script: str, values: Values = ()) -> None:
        """Run the statements of a script up to the first that fails; a syntax error prevents all of them."""
        start = time.perf_counter()
        for statement in self.connection.parse(script):
            self.answer(lambda statement=statement: self._result(statement, values))  # type: ignore[misc]
        self.seconds = time.perf_counter() - start

    def answer(self, work: Callable[[], Result]) -> None:
        """Run a function in a thread and show its result; Ctrl-C stops it."""
        stopped = Event()

        def run() -> None:
            result = work()
            result.batches = _raise_if_stopped(stopped, result.batches)
            self.answers.show(result)
            for note in result.notes:
                self.tell(note)

        interruptible(self.connection.interrupt, run, stopped)

    def _result(self, statement: Statement, values: Values) -> Result:
        with self.progress() as shown:
            return self.connection.run(self._with_memory(statement), values, shown)

    def _with_memory(self, statement: Statement) -> Statement:
        """Return the statement with the memory budget set, unless it sets one."""
        if isinstance(statement, Explain):
            return replace(statement, train=self._train_with_memory(statement.train))
        return self._train_with_memory(statement) if isinstance(statement, Train) else statement

    def _train_with_memory(self, train: Train) -> Train:
        server = self.connection.engine.name == "PostgreSQL"  # where buffer and memory are one setting
        if self.memory is None or "memory" in train.settings or (server and "buffer" in train.settings):
            return train
        return replace(train, settings={**train.settings, "memory": self.memory})


def interruptible(interrupt: Callable[[], None], work: Callable[[], R], stopped: Event) -> R:
    """Run a function in a thread, so that Ctrl-C reaches the main thread while a library call blocks."""
    future: Future[R] = Future()
    try:
        Thread(target=_set_future, args=(future, work), daemon=True).start()
        while not future.done():  # polled, since another thread may have received the signal
            wait([future], _INTERRUPT_SECONDS)
        return future.result()
    except KeyboardInterrupt as stop:
        stopped.set()
        raise _interrupt_until_done(future, interrupt, stop) from None


def _interrupt_until_done(
    future: "Future[Any]", interrupt: Callable[[], None], stop: KeyboardInterrupt
) -> KeyboardInterrupt:
    """Interrupt a function until it has ended; return the exception to raise. Further Ctrl-C do not end the wait."""
    while not (future.cancel() or future.done()):  # not Thread.join, which a signal ends early
        try:
            with suppress(Exception):  # a lost connection: the thread fails too
                interrupt()
            wait([future], _INTERRUPT_SECONDS)
        except KeyboardInterrupt as again:
            stop = stop if type(again) is KeyboardInterrupt else again
    return stop


def _set_future(future: "Future[Any]", work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        future.set_exception(error)


def _raise_if_stopped(stopped: Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if stopped.is_set():
            raise Interrupted("the statement was interrupted")
        yield batch


def read_script(name: str) -> str:
    """Return the text of a script file, which must be UTF-8."""
    try:
        return decode_script(Path(name).expanduser().read_bytes(), name)
    except FileNotFoundError:
        raise MissingFile(f"{name}: file not found") from None


def decode_script(script: bytes, name: str) -> str:
    r"""Decode a script; errors mention `name`.

    Example:
        >>> decode_script(b"SELECT '\xff'", "a.sql")
        Traceback (most recent call last):
        ...
        corgipile.errors.BadArgument: a.sql must be UTF-8 text, got byte 0xff at 8
    """
    try:
        return script.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadArgument(f"{name} must be UTF-8 text, got byte {script[error.start]:#04x} at {error.start}") from None


def open_connection(
    *, db: str | None = None, dsn: str | None = None, memory: str | None = None, trust: Any = None
) -> Connection:
    """Open a front end's database: in memory, a DuckDB file or a server.

    Example:
        >>> with open_connection() as connection:
        ...     connection.execute("SELECT 1").fetchall()
        [(1,)]
    """
    # The notes repeat what trainings log; without a handler Python would print it as well.
    logging.getLogger("corgipile").addHandler(_SILENT)
    budget = None if memory is None else parse_bytes(memory, "memory")
    if dsn is None:
        options: dict[str, Any] = {} if budget is None else {"memory_limit": f"{budget}B"}
        return connect(db or ":memory:", trust=trust, **options)
    if db is not None:
        raise BadArgument(f"db and dsn exclude each other, got {db!r} and {redacted(dsn)!r}")
    if not dsn.startswith(POSTGRES):
        raise BadArgument(f"dsn must be a URL like postgresql://user@host:5432/database, got {redacted(dsn)!r}")
    return connect(dsn, trust=trust)
