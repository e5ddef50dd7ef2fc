"""Runs of a loader in fresh processes, one per rank, which can be killed and continued from their states."""

import gc
import inspect
import os
import pickle
import resource
import signal
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgipile.errors import BadArgument
from corgipile.quality.fields import Field, Finder

__all__ = ["Life", "Lived", "accepts", "find_maker", "live"]

Maker = Callable[..., Any]
AT_END = sys.maxsize  # a stop that no epoch reaches: the state is taken after the epoch
ID = " id"  # the name of row numbers among recorded fields


@dataclass(frozen=True)
class Life:
    """A run of all ranks of a loader, from its start or from saved states to its end or until it is killed."""

    world: int
    workers: int
    seed: int = 0
    tp: int = 1
    epoch: int = 0  # the first epoch
    epochs: int = 1
    states: tuple[Any, ...] | None = None  # of all ranks, in rank order
    after_epoch: bool = False  # the states were taken at the end of the epoch before
    stop: int | None = None  # batches after which the state is taken and the process killed
    batches: int | None = None  # of an epoch at most
    memory: bool = False  # measure memory after each epoch, and record no rows


@dataclass
class Lived:
    """The record of one rank's run."""

    epochs: list[list[dict[str, npt.NDArray[Any]]]] = field(default_factory=list)  # recorded fields by batch
    lengths: list[int | None] = field(default_factory=list)  # `len(loader)` before each epoch
    memory: list[tuple[int, int]] = field(default_factory=list)  # traced and peak resident bytes after each epoch
    state: Any = None
    stateful: bool = False
    error: str = ""

    def ids(self, epoch: int = 0) -> list[Any]:
        """Return the rows of an epoch in order; none if it did not begin."""
        return [row for batches in self.epochs[epoch : epoch + 1] for batch in batches for row in batch[ID].tolist()]


def find_maker(spec: str) -> Maker:
    """Import ``module:function``; modules may lie in the working folder."""
    module, _, name = spec.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Maker = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadArgument(f"the loader must be module:function, got {spec!r}: {error}") from error
    if not callable(found):
        raise BadArgument(f"{spec!r} must be a function, got {type(found).__name__}")
    return found


def accepts(make: Maker, name: str) -> bool:
    """Return whether a function takes a keyword argument of this name."""
    parameters = inspect.signature(make).parameters
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def live(make: Maker | str, fields: Mapping[str, Finder], life: Life, start: str, timeout: float) -> list[Lived]:
    """Run all ranks at once, each in a new process; return the record of each, in rank order."""
    running, lived, context = [], [], get_context(start)
    for rank in range(life.world):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_process, args=(sender, make, fields, life, rank))  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the new process uses no thread of this one
            process.start()
        sender.close()
        running.append((receiver, process))
    try:
        for receiver, process in running:
            done = Lived(error=f"the loader took more than {timeout:g} seconds: give batches if it is endless")
            try:
                if receiver.poll(timeout):
                    done = pickle.loads(receiver.recv_bytes())  # noqa: S301 - from our own process
                    wait([process.sentinel], timeout)
            except EOFError:
                process.join()
                done = Lived(error=f"the process died with exit code {process.exitcode}")
            lived.append(done)
    finally:
        for receiver, process in running:
            with suppress(ProcessLookupError, PermissionError):  # its workers, which may not see that it has died
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
            receiver.close()
    return lived


def _process(sender: Any, make: Maker | str, fields: Mapping[str, Finder], life: Life, rank: int) -> None:
    os.setpgid(0, 0)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(life.world), LOCAL_RANK=str(rank))
    lived = Lived()
    try:
        _run(find_maker(make) if isinstance(make, str) else make, fields, life, rank, lived)
        answer = pickle.dumps(lived)
    except Exception as error:  # noqa: BLE001 - whatever a user's loader raises is the result
        answer = pickle.dumps(replace(lived, state=None, error=f"{type(error).__name__}: {error}"))
    sender.send_bytes(answer)
    if life.stop is not None:
        os.kill(os.getpid(), signal.SIGKILL)


def _run(make: Maker, fields: Mapping[str, Finder], life: Life, rank: int, lived: Lived) -> None:
    readers = {name: Field(finder, name.strip()) for name, finder in fields.items()}
    state = life.states[rank % len(life.states)] if life.states else None
    known = {"rank": rank, "world": life.world, "workers": life.workers, "seed": life.seed, "tp": life.tp}

    def build(epoch: int, **states: Any) -> Any:
        given = {**known, "epoch": epoch, "state": None, "states": None} | states
        return make(**{name: value for name, value in given.items() if accepts(make, name)})

    def begin(epoch: int) -> None:
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)

    loader = build(life.epoch, state=state, states=life.states)
    lived.stateful = hasattr(loader, "state_dict")
    if not life.after_epoch:  # a trainer sets the epoch that it begins, and not one that it continues
        begin(life.epoch)
    if life.states and not accepts(make, "state") and not accepts(make, "states"):
        loader.load_state_dict(state)
    if life.memory:
        tracemalloc.start()
    for number in range(life.epochs):
        if number and (accepts(make, "epoch") or iter(loader) is loader):
            loader = build(life.epoch + number)
        if number or life.after_epoch:
            begin(life.epoch + number)
        _epoch(loader, readers, life, lived)


def _epoch(loader: Any, readers: Mapping[str, Field], life: Life, lived: Lived) -> None:
    """Run an epoch, to its end or to the stop."""
    try:
        lived.lengths.append(len(loader))
    except (TypeError, NotImplementedError):
        lived.lengths.append(None)
    lived.epochs.append([])
    batches = iter(loader)  # alive while the state is taken
    for number, batch in enumerate(batches, 1):
        if not life.memory:
            lived.epochs[-1].append({name: np.array(reader.of(batch)) for name, reader in readers.items()})
        if number in (life.stop, life.batches):
            break
    if life.stop is not None:
        lived.state = loader.state_dict()
    if life.memory:
        gc.collect()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)
        lived.memory.append((tracemalloc.get_traced_memory()[0], peak))
