"""Membership of an elastic epoch, agreed through a store of ``torch.distributed`` without a leader."""

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

POLL = 0.005  # seconds between two polls of the store, at first
MAX_POLL = 0.1  # seconds between two polls at most
BEATS_PER_TIMEOUT = 5  # heartbeats per timeout


class Members:
    """One of the processes that run an epoch together and may join, leave and die at any time.

    The members agree on a world: a number, the members, and JSON data for them (``told``). The store counts each
    member's finished batches. A member that stops closes its count. Whoever notices a dead member closes that one's
    count, so its owner can no longer count a batch. Once all counts are closed any member writes the next world; the
    first write wins.

    Args:
        store: A ``torch.distributed.Store`` that all processes reach, such as a TCPStore.
        timeout: Seconds without a heartbeat after which a process counts as dead.

    Attributes:
        name: Name of this process in the store.
        number: Number of the current world; -1 before the first.
        world: The current world.
    """

    def __init__(self, store: Any, timeout: float) -> None:
        self._store, self._timeout = store, timeout
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.number, self.world, self.done = -1, dict[str, Any](), 0
        self._beats: dict[str, tuple[str, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="corgipile-beat", daemon=True)

    def _ask(self, method: str, *args: Any) -> Any:
        """Call a method of the store."""
        try:
            return getattr(self._store, method)(*args)
        except RuntimeError as error:
            raise PeerFailed(f"{self.name} cannot reach the store shared by the members: {error}") from error

    def _read(self, key: str) -> str:
        """Return a stored value without waiting, or an empty string."""
        return str(self._ask("get", key).decode()) if self._ask("check", [key]) else ""

    def _claim(self, key: str, old: str, new: str) -> str:
        """Set a value if it is ``old``; return the value stored now."""
        return str(self._ask("compare_set", key, old, new).decode())

    def enter(self, members: int, first: dict[str, Any]) -> None:
        """Join the running world, or the first one once ``members`` processes came; ``first`` is its data."""
        self._thread.start()
        self._ask("set", f"join/{self._ask('add', 'joins', 1) - 1}", self.name)
        pause, since = POLL, time.monotonic()
        while not self._read("world/0"):
            names = self._joined(0)
            if len(names) >= members:
                self._claim("world/0", "", json.dumps({"members": names, "joined": len(names), "told": first}))
            time.sleep(pause)
            pause = min(2 * pause, MAX_POLL)
            if time.monotonic() - since > max(self._timeout, 1) * 60:
                seconds = time.monotonic() - since
                raise PeerFailed(f"{self.name} waited {seconds:.0f} s for {members} members; {len(names)} joined")
        number = 0
        while self._read(f"world/{number + 1}"):
            number += 1
        self._go(number)

    def _joined(self, known: int) -> list[str]:
        """Return the names of the processes that joined after the first ``known``."""
        names = [self._read(f"join/{number}") for number in range(known, int(self._read("joins") or 0))]
        return names[: names.index("")] if "" in names else names  # the missing name is being stored

    def _go(self, number: int) -> None:
        self.number, self.world, self.done = number, json.loads(self._read(f"world/{number}")), 0

    @property
    def inside(self) -> bool:
        """Return whether this process is a member of the world."""
        return self.name in self.world["members"]

    @property
    def rank(self) -> int:
        """Return this process's rank among the members."""
        members: list[str] = self.world["members"]
        return members.index(self.name)

    def _key(self, name: str) -> str:
        return f"done/{self.number}/{name}"

    def count(self) -> None:
        """Count a batch as done; raise PeerFailed if the others declared this process dead."""
        old = f"{self.done}" if self.done else ""
        if self._claim(self._key(self.name), old, f"{self.done + 1}") != f"{self.done + 1}":
            raise self._declared_dead()
        self.done += 1

    def _declared_dead(self) -> PeerFailed:
        return PeerFailed(
            f"{self.name} sent no heartbeat for {self._timeout:g} s and was declared dead: another process has its "
            "batch; discard the batch and join again"
        )

    def ask(self) -> None:
        """Ask all members to stop for another world."""
        self._ask("set", f"change/{self.number}", self.name)

    @property
    def asked(self) -> bool:
        """Return whether a member asked for another world."""
        return bool(self._ask("check", [f"change/{self.number}"]))

    def stop(self) -> None:
        """Close this member's count of finished batches; raise PeerFailed if the others declared it dead."""
        old = f"{self.done}" if self.done else ""
        if not self._claim(self._key(self.name), old, f"{self.done} stopped").endswith("stopped"):
            raise self._declared_dead()

    def leave(self) -> None:
        """Leave; the others continue without this process."""
        self._ask("set", f"left/{self.name}", "1")
        if self.number >= 0 and self.inside:
            self.stop()
            self.ask()
        self.end()

    def end(self) -> None:
        """Stop the heartbeat."""
        self._ended.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def counts(self) -> dict[str, str]:
        """Return each member's count as stored."""
        return {name: self._read(self._key(name)) for name in self.world["members"]}

    def settle(self, tell: Callable[[list[int]], dict[str, Any]]) -> None:
        """Wait until all members have stopped or died, and enter the next world.

        ``tell`` returns the next world's data from the batches that each member finished.

        Raises:
            PeerFailed: This process was declared dead.
        """
        pause, number = POLL, self.number
        while not self._read(f"world/{number + 1}"):
            counts = self.counts()
            for name, count in counts.items():
                if " " not in count and self._silent(name):
                    self._claim(self._key(name), count, f"{count or 0} died")
            if all(" " in count for count in counts.values()):
                self._claim(f"world/{number + 1}", "", json.dumps(self._next(counts, tell)))
                continue
            time.sleep(pause)
            pause = min(2 * pause, MAX_POLL)
        was = self.inside
        self._go(number + 1)
        if was and not self.inside:
            raise self._declared_dead()

    def _next(self, counts: dict[str, str], tell: Callable[[list[int]], dict[str, Any]]) -> dict[str, Any]:
        """Return the next world: members that stopped and have not left, and processes that joined."""
        joined = self._joined(self.world["joined"])
        stayed = [name for name, count in counts.items() if count.endswith("stopped")]
        members = [name for name in [*stayed, *joined] if not self._read(f"left/{name}")]
        done = [int(count.split()[0]) for count in counts.values()]
        return {"members": members, "joined": self.world["joined"] + len(joined), "told": tell(done)}

    def _silent(self, name: str) -> bool:
        """Return whether this process saw no heartbeat of another within the timeout."""
        now, beat = time.monotonic(), self._read(f"beat/{name}")
        known = self._beats.setdefault(name, (beat, now))
        if known[0] != beat:
            known = self._beats[name] = (beat, now)
        return name != self.name and now - known[1] > self._timeout

    def _beat(self) -> None:
        """Send heartbeats, and ask for another world if the next member sends none."""
        while not self._ended.wait(self._timeout / BEATS_PER_TIMEOUT):
            with contextlib.suppress(PeerFailed):  # the thread that waits for the store raises it
                self._ask("add", f"beat/{self.name}", 1)
                members = self.world.get("members", [])
                if self.name in members:
                    following = members[(members.index(self.name) + 1) % len(members)]
                    if self._silent(following) and not self._read(f"left/{following}"):
                        self.ask()
