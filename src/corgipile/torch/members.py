"""Who takes part in an epoch, agreed through a store of ``torch.distributed``: no process is in charge."""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from corgipile.errors import PeerFailed

__all__ = ["Members"]

POLL = 0.005  # seconds between two looks at the store, at first...
MOST_POLL = 0.1  # ...and at most
BEATS = 5  # signs of life in the time after which silence is death


class Members:
    """A process among others that run one epoch, which may join, leave and die at any time.

    What has been agreed is a world: a number, members, and whatever they were told (``told``), JSON in the store. Of
    each member the store has how many batches it has done. A member that stops closes its number; that of one that died
    is closed by whoever notices, after which its owner can count no batch any more. Once all are closed anybody writes
    the next world, of which the first one counts.

    Args:
        store: A ``torch.distributed.Store`` that all processes reach, such as a TCPStore.
        timeout: Seconds without a sign of life after which a process is taken for dead.

    Attributes:
        name: What this process is called.
        number: Of the world it is in; -1 before the first.
        world: The world.
    """

    def __init__(self, store: Any, timeout: float) -> None:
        self._store, self._timeout = store, timeout
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.number, self.world, self.done = -1, dict[str, Any](), 0
        self._beats: dict[str, tuple[str, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="corgipile-beat", daemon=True)

    def _ask(self, what: str, *said: Any) -> Any:
        """Have the store do something."""
        try:
            return getattr(self._store, what)(*said)
        except RuntimeError as error:
            raise PeerFailed(f"{self.name} cannot reach the store by which members agree: {error}") from error

    def _read(self, key: str) -> str:
        """Return what is stored, or an empty string, without waiting for it."""
        return str(self._ask("get", key).decode()) if self._ask("check", [key]) else ""

    def _claim(self, key: str, old: str, new: str) -> str:
        """Replace what is stored if it is ``old``; return what is stored now."""
        return str(self._ask("compare_set", key, old, new).decode())

    def enter(self, members: int, first: dict[str, Any]) -> None:
        """Join: the first world once there are so many members, which are told this, or the one that runs."""
        self._thread.start()
        self._ask("set", f"join/{self._ask('add', 'joins', 1) - 1}", self.name)
        pause, since = POLL, time.monotonic()
        while not self._read("world/0"):
            names = self._joined(0)
            if len(names) >= members:
                self._claim("world/0", "", json.dumps({"members": names, "joined": len(names), "told": first}))
            time.sleep(pause)
            pause = min(2 * pause, MOST_POLL)
            if time.monotonic() - since > max(self._timeout, 1) * 60:
                seconds = time.monotonic() - since
                raise PeerFailed(f"{self.name} waited {seconds:.0f} s for {members} members; {len(names)} came")
        number = 0
        while self._read(f"world/{number + 1}"):
            number += 1
        self._go(number)

    def _joined(self, known: int) -> list[str]:
        """Return the names of those who joined after so many."""
        names = [self._read(f"join/{number}") for number in range(known, int(self._read("joins") or 0))]
        return names[: names.index("")] if "" in names else names  # one that is about to say its name waits

    def _go(self, number: int) -> None:
        self.number, self.world, self.done = number, json.loads(self._read(f"world/{number}")), 0

    @property
    def inside(self) -> bool:
        """Say whether this process is a member of the world."""
        return self.name in self.world["members"]

    @property
    def rank(self) -> int:
        """Return its place among the members."""
        members: list[str] = self.world["members"]
        return members.index(self.name)

    def _key(self, name: str) -> str:
        return f"done/{self.number}/{name}"

    def count(self) -> None:
        """Count a batch as done.

        Raises:
            PeerFailed: The others took this process for dead.
        """
        old = f"{self.done}" if self.done else ""
        if self._claim(self._key(self.name), old, f"{self.done + 1}") != f"{self.done + 1}":
            raise self._buried()
        self.done += 1

    def _buried(self) -> PeerFailed:
        return PeerFailed(
            f"{self.name} gave no sign of life for {self._timeout:g} s and was taken for dead; the batch that it had "
            "is another's now: do not use it, and join anew"
        )

    def ask(self) -> None:
        """Ask all members to stop for another world."""
        self._ask("set", f"change/{self.number}", self.name)

    @property
    def asked(self) -> bool:
        """Say whether somebody asked for another world."""
        return bool(self._ask("check", [f"change/{self.number}"]))

    def stop(self) -> None:
        """Close the number of batches done.

        Raises:
            PeerFailed: The others took this process for dead.
        """
        old = f"{self.done}" if self.done else ""
        if not self._claim(self._key(self.name), old, f"{self.done} stopped").endswith("stopped"):
            raise self._buried()

    def leave(self) -> None:
        """Leave: the others go on without this process."""
        self._ask("set", f"left/{self.name}", "1")
        if self.number >= 0 and self.inside:
            self.stop()
            self.ask()
        self.end()

    def end(self) -> None:
        """Give no more signs of life."""
        self._ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def counts(self) -> dict[str, str]:
        """Return what the store has of each member."""
        return {name: self._read(self._key(name)) for name in self.world["members"]}

    def settle(self, tell: Callable[[list[int]], dict[str, Any]]) -> None:
        """Wait until all members have stopped or died, and enter the next world.

        Args:
            tell: Makes what members are told of the batches that each of the last world did.

        Raises:
            PeerFailed: This process was taken for dead.
        """
        pause, number = POLL, self.number
        while not self._read(f"world/{number + 1}"):
            counts = self.counts()
            for name, said in counts.items():
                if " " not in said and self._silent(name):
                    self._claim(self._key(name), said, f"{said or 0} died")
            if all(" " in said for said in counts.values()):
                self._claim(f"world/{number + 1}", "", json.dumps(self._next(counts, tell)))
                continue
            time.sleep(pause)
            pause = min(2 * pause, MOST_POLL)
        was = self.inside
        self._go(number + 1)
        if was and not self.inside:
            raise self._buried()

    def _next(self, counts: dict[str, str], tell: Callable[[list[int]], dict[str, Any]]) -> dict[str, Any]:
        """Make the next world: those who stopped and have not left, and those who joined."""
        joined = self._joined(self.world["joined"])
        stayed = [name for name, said in counts.items() if said.endswith("stopped")]
        members = [name for name in [*stayed, *joined] if not self._read(f"left/{name}")]
        done = [int(said.split()[0]) for said in counts.values()]
        return {"members": members, "joined": self.world["joined"] + len(joined), "told": tell(done)}

    def _silent(self, name: str) -> bool:
        """Say whether a process gave no sign of life for so long, as far as this one has seen."""
        now, beat = time.monotonic(), self._read(f"beat/{name}")
        known = self._beats.setdefault(name, (beat, now))
        if known[0] != beat:
            known = self._beats[name] = (beat, now)
        return name != self.name and now - known[1] > self._timeout

    def _beat(self) -> None:
        """Give signs of life, and ask for another world where the next member gives none."""
        while not self._ended.wait(self._timeout / BEATS):
            with contextlib.suppress(PeerFailed):  # whoever waits for the store says so
                self._ask("add", f"beat/{self.name}", 1)
                members = self.world.get("members", [])
                if self.name in members:
                    following = members[(members.index(self.name) + 1) % len(members)]
                    if self._silent(following) and not self._read(f"left/{following}"):
                        self.ask()
