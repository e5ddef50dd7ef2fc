"""Partial local shuffling with rows on the disk of each rank: a thread exchanges a fraction of them meanwhile."""

import struct
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from corgipile.errors import BadArgument, PeerFailed, StateMismatch
from corgipile.exchange.part import LocalPart
from corgipile.exchange.places import Bytes, Sums, sums_of
from corgipile.orders import Exchange
from corgipile.orders.order import IntArray
from corgipile.sizes import Size, parse_bytes, real, whole
from corgipile.tables import Table
from corgipile.torch.peers import Peers

__all__ = ["PartialExchange"]

MAGIC, VERSION, TELLS = 0x636F726769, 2, 5  # numbers before the checksums of a message
MOST_BYTES = 1 << 40  # of one message
SENT, RECEIVED = 3, 2  # messages in memory: one that goes and two that are read; one that comes and one that is written
NOTHING = torch.empty(0, dtype=torch.uint8)  # in place of rows, to a rank that gets none of this chunk


class _Chunk(NamedTuple):
    """Units sent and received at a time: which, from what turn on, whence, and what goes to whom, is said and told."""

    at: int
    first: int
    whence: IntArray
    out: dict[int, torch.Tensor]
    notes: dict[int, list[torch.Tensor]]
    told: dict[int, list[torch.Tensor]]


class _Arrived(NamedTuple):
    """What came of a chunk, rank after rank: turns of units, their bytes, what they should sum up to, and whose."""

    turns: IntArray
    data: Bytes
    lengths: IntArray
    sums: Sums
    peers: IntArray


class PartialExchange:
    """Sends a fraction of this rank's rows to others while an epoch runs, and receives as many for the next.

    All ranks make one, over parts of the same table, and call `begin` and `finish` once an epoch. From the seed each
    knows what it sends to whom and what it gets, see `corgipile.orders.Exchange`: as much of both, in messages of many
    rows, over a process group of its own. `table` is what the rank has in this epoch, for any loader of one rank.

    A rank that dies is an error on the others, in bounded time. What arrives changes nothing until all ranks have all
    of it; start them again, and those whose epochs differ by the last step agree on one.

    Args:
        part: Of this rank.
        fraction: Of the rows that each rank sends an epoch, 0 to 1.
        seed: Of all epochs.
        group: Process group of the ranks; None: all.
        chunk: Bytes that are sent at a time; up to five such are in memory, from the first exchange on.
        timeout: Seconds to wait for another rank.

    Attributes:
        plan: Who sends what to whom.

    Raises:
        BadArgument: Ranks have other parts, fractions or seeds.
        StateMismatch: Their parts are of epochs that do not belong together.
        PeerFailed: A rank died, or is silent.

    Example:
        >>> import tempfile, pyarrow as pa
        >>> import torch.distributed as dist
        >>> from corgipile.exchange import stage
        >>> folder = tempfile.mkdtemp()
        >>> dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        >>> part = stage(pa.table({"x": range(10)}), f"{folder}/part", rank=0, world=1)
        >>> exchange = PartialExchange(part, fraction=0.1)
        >>> exchange.begin()
        >>> len(exchange.table), exchange.finish(), exchange.epoch
        (10, None, 1)
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        part: LocalPart,
        fraction: float = 0.1,
        seed: int = 0,
        group: Any = None,
        *,
        chunk: Size = "16MB",
        timeout: float = 60.0,
    ) -> None:
        self._part, self._chunk = part, parse_bytes(chunk, "chunk")
        self._fraction, self._seed = real(fraction, "fraction", 0, 1), whole(seed, "seed")
        self._peers = Peers(group, real(timeout, "timeout", above=0))
        # Memory is used in turn, epoch after epoch: what the system hands out anew costs as much as reading into it.
        self._room: list[Bytes] = []
        self._thread: threading.Thread | None = None
        self._failed: list[BaseException] | None = None
        told = self._agree()
        self.plan = Exchange(sum(one[6] for one in told), self._peers.world, self._fraction, self._seed)
        self._unit_bytes = max(1, *(one[7] for one in told))
        sizes = [one[6] for one in told]
        expected = [self.plan.size(rank) for rank in range(self._peers.world)]
        if sizes != expected:
            raise BadArgument(f"ranks have {sizes} units, {expected} is right: make all parts of one table and world")
        self._recover([(one[8], one[9]) for one in told])

    def _agree(self) -> list[list[int]]:
        """Return what all ranks say of themselves, which must agree."""
        part, said = self._part, self._part.said
        if (said["rank"], said["world"]) != (self._peers.rank, self._peers.world):
            raise BadArgument(
                f"{part.folder} is the part of rank {said['rank']} of {said['world']}; this is rank "
                f"{self._peers.rank} of {self._peers.world}"
            )
        units, standing = len(part.live), part.standing
        mean = part.places.unit_bytes or -(-part.table.nbytes * said["unit"] // max(1, len(part.table)))
        bits = struct.unpack("<q", struct.pack("<d", self._fraction))[0]
        same = [MAGIC, VERSION, int(said["of"][:15], 16), bits, self._seed % (1 << 62), self._chunk]
        told = self._peers.gather([*same, units, mean, standing.now, standing.next], "the first message")
        names = ("protocol", "version", "table", "fraction", "seed", "chunk")
        for rank, one in enumerate(told):
            for name, mine, other in zip(names, same, one, strict=False):
                if mine != other:
                    raise BadArgument(f"rank {rank} has another {name} than rank {self._peers.rank}: give all the same")
        return told

    def _recover(self, standings: list[tuple[int, int]]) -> None:
        """Let ranks that were stopped while others took the last step take it, too."""
        goal = max(now for now, _ in standings)
        for rank, (now, prepared) in enumerate(standings):
            if now != goal and not now + 1 == goal == prepared:
                raise StateMismatch(f"rank {rank} has the part of epoch {now}, others of epoch {goal}")
        if self._part.epoch != goal:
            self._part.commit()

    @property
    def epoch(self) -> int:
        """Return the epoch whose rows `table` has."""
        return self._part.epoch

    @property
    def table(self) -> Table:
        """Return this rank's rows in this epoch; read it before the exchange after the next begins."""
        return self._part.table

    @property
    def running(self) -> bool:
        """Say whether an exchange began and did not finish."""
        return self._thread is not None

    def begin(self) -> None:
        """Begin to exchange, in a thread: from now on the epoch before cannot be had back.

        Raises:
            BadArgument: One is under way.
        """
        if self._thread is not None or self._failed is not None:
            raise BadArgument("an exchange is under way, or failed: call finish() first, or start all ranks again")
        self._thread = threading.Thread(target=self._guarded, name="corgipile-exchange", daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to whoever calls finish
            self._failed = [error]

    def finish(self) -> None:
        """Wait until all ranks have all that they receive, and go on to the next epoch: `table` is another one then.

        Raises:
            PeerFailed: A rank died, was silent, or sent what cannot be; the part stays that of this epoch.
            WriteFailed: What arrived could not be written; the same holds.
        """
        if self._thread is None:
            raise BadArgument("no exchange is under way: call begin() first")
        self._thread.join()
        self._thread = None
        if self._failed:
            raise self._failed.pop()  # keeping it would create a cycle through its traceback
        self._part.commit()

    def state_dict(self) -> dict[str, Any]:
        """Return which epoch it is and what decides the next ones: for JSON, the same on every rank."""
        return {
            "version": VERSION, "of": self._part.said["of"], "fraction": self._fraction, "seed": self._seed,
            "epoch": self.epoch,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the epoch of a state, on all ranks alike: the one at hand, or the one before if none began since.

        Raises:
            StateMismatch: The state is of another exchange, or of an epoch whose rows are no longer there.
        """
        mine = self.state_dict()
        for name in ("version", "of", "fraction", "seed"):
            if not isinstance(state, Mapping) or state.get(name) != mine[name]:
                found = state.get(name) if isinstance(state, Mapping) else state
                raise StateMismatch(f"state is of another {name}: it has {found!r}, here it is {mine[name]!r}")
        epoch, standing = state.get("epoch"), self._part.standing
        if epoch == standing.now:
            return
        if epoch != standing.before or epoch == -1 or self.running:
            raise StateMismatch(f"state is of epoch {epoch!r}; the part on disk is of epoch {standing.now}")
        self._part.go_back()

    def _run(self) -> None:
        plan, part, rank, epoch = self.plan, self._part, self._peers.rank, self.epoch
        moved = plan.moved(epoch)
        self._places, self._sums = part.begin(moved), np.zeros(moved, np.uint32)
        step = max(1, self._chunk // self._unit_bytes)
        most = min(step, self.plan.most_moved) * self._unit_bytes
        if moved and not self._room:
            self._room = [np.empty(most, np.uint8) for _ in range(SENT + RECEIVED)]
        chunks = [(at, first, min(moved, first + step)) for at, first in enumerate(range(0, moved, step))]
        with ThreadPoolExecutor(2, "corgipile-exchange") as pool:
            coming = deque(pool.submit(self._read, *one) for one in chunks[:2])
            written: Future[None] | None = None
            if coming:
                chunk = coming.popleft().result()
                self._peers.swap(chunk.notes, chunk.told, f"what is said of rows after epoch {epoch}")
            for at, _, _ in chunks:
                coming.extend(pool.submit(self._read, *one) for one in chunks[at + 2 : at + 3])
                following = coming.popleft().result() if coming else None
                arrived = self._swapped(chunk, following, f"rows {at + 1} of {len(chunks)} after epoch {epoch}")
                if written is not None:
                    written.result()
                written = pool.submit(self._write, arrived)
                chunk = following or chunk
            if written is not None:
                written.result()
        part.prepare(plan.sent(rank, epoch), self._places, self._sums)
        for peer, (now,) in enumerate(self._peers.gather([epoch], f"the end of epoch {epoch}")):
            if now != epoch:
                raise PeerFailed(f"rank {peer} ends epoch {now}, rank {rank} ends epoch {epoch}")

    def _read(self, at: int, first: int, stop: int) -> "_Chunk":
        """Read what goes to each rank, and make room for what is said of what comes."""
        plan, rank = self.plan, self._peers.rank
        to, whence = plan.peers(rank, self.epoch, first, stop)
        grouped = np.argsort(to, kind="stable")
        slots = plan.sent(rank, self.epoch, first, stop)[grouped]
        data, lengths = self._part.places.read(self._part.live[slots], self._room[at % SENT])
        sums = self._part.sums[slots]
        edges = [0, *np.cumsum(lengths).tolist()]
        peers, starts = np.unique(to[grouped], return_index=True)
        bounds = [*starts.tolist(), len(grouped)]
        out, notes = {}, {}
        for peer, low, high in zip(peers.tolist(), bounds, bounds[1:], strict=False):
            out[peer] = torch.from_numpy(data[edges[low] : edges[high]])
            notes[peer] = [self._note(first, lengths[low:high], sums[low:high])]
        sources, counts = np.unique(whence, return_counts=True)
        told = {
            peer: [torch.zeros(TELLS + self._told_of(count), dtype=torch.int64)]
            for peer, count in zip(sources.tolist(), counts.tolist(), strict=True)
        }
        return _Chunk(at, first, whence, out, notes, told)

    def _swapped(self, chunk: "_Chunk", following: "_Chunk | None", what: str) -> "_Arrived":
        """Send and receive one chunk, of which all is said, and what is said of the one that follows."""
        turns = np.argsort(chunk.whence, kind="stable")
        sources, counts = np.unique(chunk.whence, return_counts=True)
        heard = [
            self._checked(peer, chunk.told[peer][0].numpy(), chunk.first, units)
            for peer, units in zip(sources.tolist(), counts.tolist(), strict=True)
        ]
        lengths = np.concatenate([lengths for lengths, _ in heard])
        ends = np.cumsum([int(sizes.sum()) for sizes, _ in heard]).tolist()
        room = self._room[SENT + chunk.at % RECEIVED]
        data = torch.from_numpy(room[: ends[-1]] if len(room) >= ends[-1] else np.empty(ends[-1], np.uint8))
        out = {peer: [rows] for peer, rows in chunk.out.items()}
        spans = zip(sources.tolist(), [0, *ends], ends, strict=False)
        into = {peer: [data[start:end]] for peer, start, end in spans}
        if following is not None:
            for both, notes in ((out, following.notes), (into, following.told)):
                for peer, note in notes.items():
                    both[peer] = both.get(peer, [NOTHING]) + note
        self._peers.swap(out, into, what)
        sums = np.concatenate([sums for _, sums in heard])
        return _Arrived(chunk.first + turns, data.numpy(), lengths, sums, chunk.whence[turns])

    def _write(self, arrived: "_Arrived") -> None:
        """Put what arrived into places that are free, if it is what was sent."""
        turns, data, lengths, sums, peers = arrived
        starts = np.cumsum(lengths) - lengths
        wrong = np.flatnonzero(sums_of(data, starts, lengths) != sums)
        if len(wrong):
            what = "rows that are not those it summed up: damaged on its disk, or on the way"
            raise self._garbage(int(peers[wrong[0]]), what)
        places = np.sort(self._places[turns])  # any of the chunk's: those of one rank lie together then
        self._places[turns], self._sums[turns] = places, sums
        self._part.places.write(places, data, starts, lengths)

    def _told_of(self, units: int) -> int:
        """Return how many numbers are said of units: their checksums, two in each, and lengths where these differ."""
        return -(-units // 2) + (0 if self._part.places.unit_bytes else units)

    def _note(self, first: int, lengths: IntArray, sums: Sums) -> torch.Tensor:
        head = [MAGIC, self.epoch, first, len(lengths), int(lengths.sum())]
        packed = np.append(sums, np.zeros(len(sums) % 2, np.uint32)).astype("<u4").view("<i8")
        told = [np.array(head), packed] if self._part.places.unit_bytes else [np.array(head), packed, lengths]
        return torch.from_numpy(np.concatenate(told).astype(np.int64))

    def _checked(self, peer: int, note: IntArray, first: int, units: int) -> tuple[IntArray, Sums]:
        """Return the lengths and checksums of the units that a rank sends, if they can be."""
        *told, total = note[:TELLS].tolist()
        expected = [MAGIC, self.epoch, first, units]
        if told != expected:
            raise self._garbage(peer, f"{told}, where {expected} was to come")
        fixed, sums = self._part.places.unit_bytes, TELLS + -(-units // 2)
        lengths = np.full(units, fixed) if fixed else note[sums:]
        if total > MOST_BYTES or lengths.min() < 0 or lengths.max() > MOST_BYTES or int(lengths.sum()) != total:
            raise self._garbage(peer, f"units of {total} bytes, of lengths that do not add up")
        return lengths, note[TELLS:sums].astype("<i8").view("<u4")[:units]

    def _garbage(self, peer: int, what: str) -> PeerFailed:
        return PeerFailed(
            f"rank {peer} sent rank {self._peers.rank} {what}. The part on disk is that of the last finished epoch"
        )
