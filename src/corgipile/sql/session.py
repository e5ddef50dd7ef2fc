"""Runs scripts for front ends: statement after statement, each to be stopped by Ctrl-C, its answer shown."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import pyarrow as pa

from corgipile.errors import BadArgument, MissingFile
from corgipile.sql.answers.answers import Answers
from corgipile.sql.engines.engine import Engine, Progress, Result, Values
from corgipile.sql.statements import (
    DescribeModel,
    DropModel,
    Explain,
    Predict,
    Query,
    RenameModel,
    ShowModels,
    Statement,
    Train,
)

__all__ = ["Session", "decoded", "dialect", "interruptible", "perform", "script_of"]

R = TypeVar("R")
_AGAIN = 0.2  # seconds until a statement that goes on is told again to stop


@dataclass
class Session:
    """A place where scripts run and what they answer is shown.

    Attributes:
        engine: Runs the statements.
        answers: Shows what they answer.
        tell: Says what there is to be said besides.
        progress: Shows how a training goes on.
        seconds: How long the last statement took, its answer included.
    """

    engine: Engine
    answers: Answers
    tell: Callable[[str], None]
    progress: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
    seconds: float = field(default=0.0, init=False)

    def run(self, script: str, values: Values = ()) -> None:
        """Run the statements of a script up to the first that fails.

        Raises:
            KeyboardInterrupt: Ctrl-C; the statement has been stopped.
        """
        from corgipile.sql.grammar import parse  # noqa: PLC0415 - of an extra

        for statement in parse(script, dialect(self.engine)):
            self.answer(lambda statement=statement: self._result(statement, values))  # type: ignore[misc]

    def answer(self, work: Callable[[], Result]) -> None:
        """Show what a function answers; it runs in a thread, and Ctrl-C stops it."""
        start = time.perf_counter()
        stopped = Event()

        def run() -> None:
            result = work()
            result.batches = _until(stopped, result.batches)
            self.answers.show(result)
            for note in result.notes:
                self.tell(note)

        try:
            interruptible(self.engine, run, stopped)
        finally:
            self.seconds = time.perf_counter() - start

    def _result(self, statement: Statement, values: Values) -> Result:
        with self.progress() as shown:
            result = perform(self.engine, statement, values, shown)
        result.notes[:0] = [note for note in statement.notes if note not in result.notes]
        return result


def dialect(engine: Engine) -> str:
    """Return the name that sqlglot has for what an engine speaks."""
    return {"PostgreSQL": "postgres"}.get(engine.name, engine.name.lower())


def perform(engine: Engine, statement: Statement, values: Values = (), progress: Progress | None = None) -> Result:
    """Have an engine run a statement of any kind."""
    match statement:
        case Train():
            result = engine.train(statement, values, progress)
        case Predict():
            result = engine.predict(statement, values)
        case Explain():
            result = engine.explain(statement, values)
        case DropModel():
            result = engine.drop(statement)
        case RenameModel():
            result = engine.rename(statement)
        case ShowModels():
            result = engine.show(statement)
        case DescribeModel():
            result = engine.describe(statement)
        case Query():
            result = engine.query(statement, values)
        case _:
            raise AssertionError(statement)
    return result


def interruptible(engine: Engine, work: Callable[[], R], stopped: Event) -> R:
    """Run a function in a thread, so that this one hears of Ctrl-C while a library keeps the other busy."""
    future: Future[R] = Future()
    thread = Thread(target=_settle, args=(future, work), daemon=True)
    thread.start()
    try:
        return future.result()
    except KeyboardInterrupt:
        stopped.set()
        while thread.is_alive():
            with suppress(Exception):  # a connection that is lost: the thread hears of it too
                engine.interrupt()
            thread.join(_AGAIN)
        raise


def _settle(future: "Future[Any]", work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
        future.set_exception(error)


def _until(stopped: Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if stopped.is_set():
            raise InterruptedError
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
