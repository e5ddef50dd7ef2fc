"""Partial local shuffling of rows on each rank's disk: a thread exchanges a fraction of them while an epoch runs."""

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

MAGIC, VERSION, HEADER = 0x636F726769, 3, 5  # HEADER: numbers before the checksums of a message
MAX_BYTES = 1 << 40  # bytes of one message at most
SENT, RECEIVED = 3, 2  # buffers: one sent and two being read; one received and one being written
NO_ROWS = torch.empty(0, dtype=torch.uint8)  # for a rank that gets no rows of a chunk


class _Chunk(NamedTuple):
    """Units exchanged at a time: number, first turn, source ranks, outgoing rows, and headers sent and received."""

    at: int
    first: int
    source_ranks: IntArray
    out: dict[int, torch.Tensor]
    headers_out: dict[int, list[torch.Tensor]]
    headers_in: dict[int, list[torch.Tensor]]


class _Arrived(NamedTuple):
    """Units received in a chunk, by rank: turns, bytes, lengths, expected checksums and source ranks."""

    turns: IntArray
    data: Bytes
    lengths: IntArray
    sums: Sums
    peers: IntArray


class PartialExchange:
    """Sends a fraction of this rank's rows to others while an epoch runs, and receives as many for the next epoch.

    All ranks make one, over parts of the same table, and call `begin` and `finish` once per epoch. The seed determines
    which rows go where, see `corgipile.orders.Exchange`: each rank sends as much as it receives, in messages of many
    rows, over its own process group. `table` holds the rank's rows in this epoch, for any loader of a single rank.

    If a rank dies, the others raise an error in bounded time. Received rows take effect only once all ranks have all of
    theirs. After a restart, ranks whose epochs differ by the last step agree on one.

    Args:
        part: This rank's part.
        fraction: Fraction of its rows that each rank sends per epoch, 0 to 1.
        seed: Seed of all epochs.
        group: Process group of the ranks; None: all.
        chunk: Bytes sent at a time; up to five chunks are in memory, from the first exchange on.
        timeout: Seconds to wait for another rank.

    Attributes:
        plan: The schedule of rows and ranks.

    Raises:
        BadArgument: Ranks have different parts, fractions or seeds.
        StateMismatch: The epochs of their parts do not match.
        PeerFailed: A rank died or is silent.

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
        # Buffers are reused in all epochs: faulting in new memory costs as much as reading into it.
        self._buffers: list[Bytes] = []
        self._thread: threading.Thread | None = None
        self._failed: list[BaseException] | None = None
        ranks = self._agree()
        self.plan = Exchange(sum(rank[6] for rank in ranks), self._peers.world, self._fraction, self._seed)
        self._unit_bytes = max(1, *(rank[7] for rank in ranks))
        sizes = [rank[6] for rank in ranks]
        expected = [self.plan.size(rank) for rank in range(self._peers.world)]
        if sizes != expected:
            raise BadArgument(f"ranks must have {expected} units, got {sizes}: make all parts of one table and world")
        self._recover([(rank[8], rank[9]) for rank in ranks])

    def _agree(self) -> list[list[int]]:
        """Return the settings of all ranks, which must agree."""
        part, header = self._part, self._part.header
        if (header["rank"], header["world"]) != (self._peers.rank, self._peers.world):
            raise BadArgument(
                f"{part.folder} is the part of rank {header['rank']} of {header['world']}; this is rank "
                f"{self._peers.rank} of {self._peers.world}"
            )
        units, standing = len(part.live), part.standing
        mean = part.places.unit_bytes or -(-part.table.nbytes * header["unit"] // max(1, len(part.table)))
        bits = struct.unpack("<q", struct.pack("<d", self._fraction))[0]
        same = [MAGIC, VERSION, int(header["of"][:15], 16), bits, self._seed % (1 << 62), self._chunk]
        ranks = self._peers.gather([*same, units, mean, standing.now, standing.next], "the first message")
        names = ("protocol", "version", "table", "fraction", "seed", "chunk")
        for rank, settings in enumerate(ranks):
            for name, mine, other in zip(names, same, settings, strict=False):
                if mine != other:
                    raise BadArgument(
                        f"rank {rank} and rank {self._peers.rank} have a different {name}: give all ranks the same"
                    )
        return ranks

    def _recover(self, standings: list[tuple[int, int]]) -> None:
        """Commit the last step on ranks that were stopped before it while others committed it."""
        goal = max(now for now, _ in standings)
        for rank, (now, prepared) in enumerate(standings):
            if now != goal and not now + 1 == goal == prepared:
                raise StateMismatch(f"rank {rank} has the part of epoch {now}, others of epoch {goal}")
        if self._part.epoch != goal:
            self._part.commit()

    @property
    def epoch(self) -> int:
        """Return the epoch of the rows in `table`."""
        return self._part.epoch

    @property
    def table(self) -> Table:
        """Return this rank's rows in this epoch; read them before the exchange after the next begins."""
        return self._part.table

    @property
    def running(self) -> bool:
        """Return whether an exchange is in progress."""
        return self._thread is not None

    def begin(self) -> None:
        """Start the exchange in a thread; the previous epoch can no longer be restored.

        Raises:
            BadArgument: An exchange is in progress.
        """
        if self._thread is not None or self._failed is not None:
            raise BadArgument("an exchange is in progress or has failed: call finish() first, or start all ranks again")
        self._thread = threading.Thread(target=self._run_guarded, name="corgipile-exchange", daemon=True)
        self._thread.start()

    def _run_guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - finish raises it
            self._failed = [error]

    def finish(self) -> None:
        """Wait until all ranks have received all rows, then advance to the next epoch, which has a new `table`.

        Raises:
            PeerFailed: A rank died, was silent, or sent invalid data; the part stays at this epoch.
            WriteFailed: Received rows could not be written; the part stays at this epoch.
        """
        if self._thread is None:
            raise BadArgument("no exchange is in progress: call begin() first")
        self._thread.join()
        self._thread = None
        if self._failed:
            raise self._failed.pop()  # keeping it would create a cycle through its traceback
        self._part.commit()

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and the settings that determine later ones: for JSON, the same on every rank."""
        return {
            "version": VERSION, "of": self._part.header["of"], "fraction": self._fraction, "seed": self._seed,
            "epoch": self.epoch,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the epoch of a state, on all ranks: the current one, or the previous one if no exchange began since.

        Raises:
            StateMismatch: The state is of another exchange, or of an epoch whose rows are gone.
        """
        mine = self.state_dict()
        for name in ("version", "of", "fraction", "seed"):
            if not isinstance(state, Mapping) or state.get(name) != mine[name]:
                value = state.get(name) if isinstance(state, Mapping) else state
                raise StateMismatch(f"state must have {name} {mine[name]!r}, got {value!r}")
        epoch, standing = state.get("epoch"), self._part.standing
        if epoch == standing.now:
            return
        if epoch != standing.before or epoch == -1 or self.running:
            raise StateMismatch(f"state must be of epoch {standing.now}, the epoch of the part on disk, got {epoch!r}")
        self._part.go_back()

    def _run(self) -> None:
        plan, part, rank, epoch = self.plan, self._part, self._peers.rank, self.epoch
        moved = plan.moved(epoch)
        self._places, self._sums = part.begin(moved), np.zeros(moved, np.uint32)
        step = max(1, self._chunk // self._unit_bytes)
        most = min(step, self.plan.max_moved) * self._unit_bytes
        if moved and not self._buffers:
            self._buffers = [np.empty(most, np.uint8) for _ in range(SENT + RECEIVED)]
        chunks = [(at, first, min(moved, first + step)) for at, first in enumerate(range(0, moved, step))]
        with ThreadPoolExecutor(2, "corgipile-exchange") as pool:
            coming = deque(pool.submit(self._read, *one) for one in chunks[:2])
            written: Future[None] | None = None
            if coming:
                chunk = coming.popleft().result()
                self._peers.swap(chunk.headers_out, chunk.headers_in, f"headers after epoch {epoch}")
            for at, _, _ in chunks:
                coming.extend(pool.submit(self._read, *one) for one in chunks[at + 2 : at + 3])
                following = coming.popleft().result() if coming else None
                arrived = self._exchange_chunk(chunk, following, f"rows {at + 1} of {len(chunks)} after epoch {epoch}")
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
        """Read the rows for each rank, and allocate the headers to receive."""
        plan, rank = self.plan, self._peers.rank
        to, source_ranks = plan.peers(rank, self.epoch, first, stop)
        grouped = np.argsort(to, kind="stable")
        slots = plan.sent(rank, self.epoch, first, stop)[grouped]
        data, lengths = self._part.places.read(self._part.live[slots], self._buffers[at % SENT])
        sums = self._part.sums[slots]
        edges = [0, *np.cumsum(lengths).tolist()]
        peers, starts = np.unique(to[grouped], return_index=True)
        bounds = [*starts.tolist(), len(grouped)]
        out, headers_out = {}, {}
        for peer, low, high in zip(peers.tolist(), bounds, bounds[1:], strict=False):
            out[peer] = torch.from_numpy(data[edges[low] : edges[high]])
            headers_out[peer] = [self._header(first, lengths[low:high], sums[low:high])]
        sources, counts = np.unique(source_ranks, return_counts=True)
        headers_in = {
            peer: [torch.zeros(HEADER + self._header_size(count), dtype=torch.int64)]
            for peer, count in zip(sources.tolist(), counts.tolist(), strict=True)
        }
        return _Chunk(at, first, source_ranks, out, headers_out, headers_in)

    def _exchange_chunk(self, chunk: "_Chunk", following: "_Chunk | None", what: str) -> "_Arrived":
        """Exchange one chunk's rows, and the headers of the chunk that follows."""
        turns = np.argsort(chunk.source_ranks, kind="stable")
        sources, counts = np.unique(chunk.source_ranks, return_counts=True)
        checked = [
            self._checked(peer, chunk.headers_in[peer][0].numpy(), chunk.first, units)
            for peer, units in zip(sources.tolist(), counts.tolist(), strict=True)
        ]
        lengths = np.concatenate([lengths for lengths, _ in checked])
        ends = np.cumsum([int(sizes.sum()) for sizes, _ in checked]).tolist()
        room = self._buffers[SENT + chunk.at % RECEIVED]
        data = torch.from_numpy(room[: ends[-1]] if len(room) >= ends[-1] else np.empty(ends[-1], np.uint8))
        out = {peer: [rows] for peer, rows in chunk.out.items()}
        spans = zip(sources.tolist(), [0, *ends], ends, strict=False)
        into = {peer: [data[start:end]] for peer, start, end in spans}
        if following is not None:
            for both, headers_out in ((out, following.headers_out), (into, following.headers_in)):
                for peer, note in headers_out.items():
                    both[peer] = both.get(peer, [NO_ROWS]) + note
        self._peers.swap(out, into, what)
        sums = np.concatenate([sums for _, sums in checked])
        return _Arrived(chunk.first + turns, data.numpy(), lengths, sums, chunk.source_ranks[turns])

    def _write(self, arrived: "_Arrived") -> None:
        """Verify received rows and write them to free places."""
        turns, data, lengths, sums, peers = arrived
        starts = np.cumsum(lengths) - lengths
        wrong = np.flatnonzero(sums_of(data, starts, lengths) != sums)
        if len(wrong):
            what = "rows that do not match their checksums: damaged on its disk or in transit"
            raise self._bad_message(int(peers[wrong[0]]), what)
        places = np.sort(self._places[turns])  # any place will do; sorted ones keep a rank's rows together
        self._places[turns], self._sums[turns] = places, sums
        self._part.places.write(places, data, starts, lengths)

    def _header_size(self, units: int) -> int:
        """Return the numbers in a header after the fixed ones: two checksums in each, and lengths if these differ."""
        return -(-units // 2) + (0 if self._part.places.unit_bytes else units)

    def _header(self, first: int, lengths: IntArray, sums: Sums) -> torch.Tensor:
        head = [MAGIC, self.epoch, first, len(lengths), int(lengths.sum())]
        packed = np.append(sums, np.zeros(len(sums) % 2, np.uint32)).astype("<u4").view("<i8")
        fields = [np.array(head), packed] if self._part.places.unit_bytes else [np.array(head), packed, lengths]
        return torch.from_numpy(np.concatenate(fields).astype(np.int64))

    def _checked(self, peer: int, note: IntArray, first: int, units: int) -> tuple[IntArray, Sums]:
        """Return the lengths and checksums of the units that a rank sends, after validation."""
        *numbers, total = note[:HEADER].tolist()
        expected = [MAGIC, self.epoch, first, units]
        if numbers != expected:
            raise self._bad_message(peer, f"{numbers}, expected {expected}")
        fixed, sums = self._part.places.unit_bytes, HEADER + -(-units // 2)
        lengths = np.full(units, fixed) if fixed else note[sums:]
        if total > MAX_BYTES or lengths.min() < 0 or lengths.max() > MAX_BYTES or int(lengths.sum()) != total:
            raise self._bad_message(peer, f"units of {total} bytes whose lengths do not add up")
        return lengths, note[HEADER:sums].astype("<i8").view("<u4")[:units]

    def _bad_message(self, peer: int, what: str) -> PeerFailed:
        return PeerFailed(
            f"rank {peer} sent rank {self._peers.rank} {what}. The part on disk is that of the last finished epoch"
        )
