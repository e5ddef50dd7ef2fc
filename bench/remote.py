"""Tables in an object store: shuffled epochs against sequential readers and peers, under faults, and from the cache.

The store is `tests/support/object_server.py` in its own process on this machine. It waits 50 ms before an answer and
sends 100 MB/s per answer. All answers share a link (``LINK``) slow enough that the store's time is measured, not that
of the processors, which serve both sides here.
"""

import contextlib
import http.client
import itertools
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import HERE, Bench, Peer, alone, check, interleave, median, rate, ratio

import corgipile as cp
from corgipile import quality
from corgipile.loader import Loader
from corgipile.stores.opening import open_ranges
from corgipile.stores.ranges import Ranges
from corgipile.urls import RemotePath

sys.path.insert(0, str(HERE.parent / "tests" / "support"))
from object_server import ObjectServer, Request

LATENCY, BANDWIDTH, LINK = 0.05, 100e6, 150e6
CONNECTIONS, LONG, SHORT = 8, 8 << 20, 1 << 20  # the sequential reader's, and bytes of its requests
MEMORY, BATCH, CLASSES = "64MB", 1024, 10
LARGE = 8192  # rows of a batch that a consumer computes on for 20 ms
ROW = 28 * 4 + 4 + 8  # bytes of a row
MOSAICML = HERE / ".venv-mosaicml"
SLOW = {"latency": LATENCY, "bandwidth": BANDWIDTH, "link": LINK}


class Remote:
    """A server with tables of 28 numbers, a sorted label, and the row number."""

    def __init__(self, bench: Bench, rows: int) -> None:
        self.rows, root = rows, bench.work / f"objects-{rows}"
        self.folder = root / "bucket"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = ObjectServer(root)
        os.environ.update(self.server.environment())

    def table(self) -> pa.Table:
        """Return the rows."""
        random = np.random.default_rng(0)
        columns = {f"x{i}": random.standard_normal(self.rows, np.float32) for i in range(28)}
        numbers = np.arange(self.rows)
        return pa.table({**columns, "label": (numbers * CLASSES // self.rows).astype(np.int32), "row": numbers})

    def made(self, kind: str) -> str:
        """Write a table unless it exists; return its key."""
        names = {
            "arrow": "rows.arrow",
            "packed": "packed.arrow",
            "parquet": "rows.parquet",
            "128k": "rows-128k.parquet",
        }
        path = self.folder / names[kind]
        if not path.exists():
            rows = packed(self.table()) if kind == "packed" else self.table()
            if path.suffix == ".arrow":
                with pa.ipc.new_file(path, rows.schema) as writer:
                    writer.write_table(rows, max_chunksize=1 << 16)
            else:  # by default as pandas does: row groups of 2^20 rows
                pq.write_table(rows, path, **({"row_group_size": 1 << 17} if kind == "128k" else {}))
        return path.name

    def arrays(self) -> None:
        """Write features and labels next to the bucket, for peers with their own formats."""
        if not (self.folder.parent / "y.npy").exists():
            rows = self.table()
            np.save(self.folder.parent / "x.npy", numbers_of(rows))
            np.save(self.folder.parent / "y.npy", rows["label"].to_numpy())

    @contextlib.contextmanager
    def asked(self, **settings: Any) -> Iterator[list[Request]]:
        """Set the server's behaviour; yield the list of its requests, filled at the end."""
        self.server.reset()
        self.server.set(**settings)
        lines: list[Request] = []
        try:
            yield lines
        finally:
            lines += self.server.log()
            self.server.set(latency=0.0, bandwidth=0.0, link=0.0, errors=0.0, stalls=0.0, truncated=0.0)

    def close(self) -> None:
        """End the server."""
        self.server.stop()


def numbers_of(rows: pa.Table) -> np.ndarray:
    """Return the numbers of all rows as one array."""
    return np.stack([rows[f"x{i}"].to_numpy() for i in range(28)], axis=1)


def packed(rows: pa.Table) -> pa.Table:
    """Return rows whose numbers are one column of lists."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers_of(rows).ravel()), 28)
    return pa.table({"features": lists, "label": rows["label"], "row": rows["row"]})


@contextlib.contextmanager
def remote(bench: Bench, rows: int) -> Iterator[Remote]:
    """Yield a server with tables."""
    served = Remote(bench, rows)
    try:
        yield served
    finally:
        served.close()


def sent(lines: list[Request]) -> tuple[int, int]:
    """Return the number of requests and bytes of a log."""
    return len(lines), sum(line.sent for line in lines)


def read_in_order(served: Remote, key: str, request: int) -> float:
    """Read an object in order by some connections and discard it; return the seconds."""
    size = (served.folder / key).stat().st_size
    starts, lock, done = itertools.count(0, request), threading.Lock(), []

    def work() -> None:
        connection = http.client.HTTPConnection(served.server.url.removeprefix("http://"))
        into = memoryview(bytearray(request))
        while True:
            with lock:
                start = next(starts)
            if start >= size:
                break
            stop = min(start + request, size)
            connection.request("GET", f"/bucket/{key}", headers={"Range": f"bytes={start}-{stop - 1}"})
            answer, got = connection.getresponse(), 0
            while got < stop - start:
                got += answer.readinto(into[got : stop - start])
            answer.read()
            done.append(got)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(sum(done) == size, "bytes are missing")
    return time.perf_counter() - begin


def epoch(loader: Loader, rows: int, labels: list[Any] | None = None) -> float:
    """Return the seconds of an epoch; each row must come once."""
    seen, begin = [], time.perf_counter()
    for batch in loader:
        seen.append(batch["row"])
        if labels is not None:
            labels.append(batch["label"])
    seconds = time.perf_counter() - begin
    check(bool((np.sort(np.concatenate(seen)) == np.arange(rows)).all()), "not every row came once")
    return seconds


def loader_of(key: str, **options: Any) -> Loader:
    """Open an object and yield batches of it in the measured order."""
    table = cp.open(key if "/" in key else f"s3://bucket/{key}", **options)
    return Loader(table, batch_size=BATCH, memory=MEMORY, order="balanced")


def first_epoch(key: str, rows: int, labels: list[Any] | None = None, **options: Any) -> float:
    """Return the seconds of the first epoch over an object, including opening and its labels."""
    begin = time.perf_counter()
    with loader_of(key, **options) as loader:
        epoch(loader, rows, labels)
        return time.perf_counter() - begin


def format_part(bench: Bench, kind: str, name: str) -> None:
    """Compare epochs of balanced Riffle over one object with sequential readers."""
    rows = bench.table_rows(8_000_000, 1_000_000)
    with remote(bench, rows) as served:
        key, labels = served.made(kind), []
        with served.asked() as _:
            read_in_order(served, key, LONG)  # the server learns what the ETag is
        with served.asked(**SLOW) as ours:
            begin = time.perf_counter()
            loader = loader_of(key)
            opened = time.perf_counter() - begin
            epoch(loader, rows, labels)
            first = time.perf_counter() - begin
        with loader:
            with served.asked(**SLOW) as theirs:
                read_in_order(served, key, SHORT)
            with served.asked(**SLOW):
                later = epoch(loader, rows)
            shown = repr(loader)
        del loader  # with it goes what is left of it on this disk
        with served.asked(**SLOW):
            cases = {
                "ours": lambda: first_epoch(key, rows),
                "long": lambda: read_in_order(served, key, LONG),
                "short": lambda: read_in_order(served, key, SHORT),
            }
            times = interleave(cases, bench.few, warm=False)
        deff = quality.deff(np.concatenate(labels), BATCH)
        size = (served.folder / key).stat().st_size
    speeds = {case: f"{size / median(seconds) / 1e6:.0f} MB/s" for case, seconds in times.items()}
    value, spread = ratio(times, "long", "ours")
    bench.report(f"{name}: first epoch of Riffle, balanced / 8 connections in order, 8 MB each", value, "x", ">= 0.8",
                 f"{speeds['ours']} against {speeds['long']} ({spread})")  # fmt: skip
    value, spread = ratio(times, "short", "ours")
    bench.report(f"{name}: the same, 1 MB a request", value, "x", "", f"against {speeds['short']} ({spread})")
    bench.report(f"{name}: its second epoch / the first", first / later, "x", "", f"{size / later / 1e6:.0f} MB/s")
    asked, brought = sent(ours)
    bench.report(
        f"{name}: bytes of opening, survey and epoch / of the object",
        brought / size,
        "x",
        "<= 1.1",
        f"{brought / 1e6:.0f} MB",
    )
    note = f"{asked} of {brought / asked / 1e3:.0f} KB"
    bench.report(f"{name}: requests of these / in order, 1 MB each", asked / len(theirs), "x", "<= 1.2", note)
    bench.report(f"{name}: deff of its labels, stored sorted", deff, "", "<= 1.5", shown)
    note = "what is unpacked first is so by then"
    bench.report(f"{name}: opening, survey of labels included", opened, "s", "", note)


PEERS = {
    "Hugging Face datasets, streaming": ("hf remote", None),
    "MosaicML Streaming": ("mosaicml remote", MOSAICML),
    "Lance take": ("lance take", None),
    "s3fs, map-style": ("s3fs map", None),
}


def peer_part(bench: Bench, name: str) -> None:
    """Compare a peer's shuffled epoch, or some batches of a slow peer, with ours on the Arrow file."""
    job, environment = PEERS[name]
    rows = bench.table_rows(4_000_000, 500_000)
    with remote(bench, rows) as served:
        served.made("arrow"), served.made("packed"), served.made("parquet"), served.arrays()
        about = {"root": str(served.folder), "batch": BATCH, "variables": served.server.environment()}
        peer = Peer(job, **about) if environment is None else Peer(job, environment, **about)
        with peer:
            path, labels = bench.work / "labels.npy", []
            with served.asked(**SLOW) as theirs:
                found = peer.ask(run=True, labels=str(path), limit=rows, most=bench.pick(15, 8))
            with served.asked(**SLOW) as ours:
                seconds = first_epoch("packed.arrow", rows, labels)
            given = np.load(path)
    check(found["rows"] >= min(rows, BATCH), "the peer saw nothing")
    more = found["rows"] > found["head"]  # then its start does not count, which favours it
    count = found["rows"] - found["head"] * more
    duration = found["seconds"] - found["first"] * more
    deff = quality.deff(np.concatenate(labels), BATCH)
    theirs_deff = f"{quality.deff(given, BATCH):.3g}" if len(given) > 20 * BATCH else "unknown of so few batches"
    note = f"{rate(rows, seconds)}, deff {deff:.2f} against {rate(count, duration)}, {theirs_deff}"
    cost = [f"{asked / count * 1e6:.0f} requests and {brought / count:.0f} bytes"
            for (asked, brought), count in ((sent(ours), rows), (sent(theirs), found["rows"]))]  # fmt: skip
    bench.report(f"shuffled epoch / {name}", rows / seconds / (count / duration), "x", ">= 3", note)
    print(f"         {'requests of a million rows, bytes of a row:':<84} {cost[0]}; theirs {cost[1]}")


def faults_part(bench: Bench) -> None:
    """Test 1 % errors, 1 % stalls of 10 s, 0.1 % truncated answers: each row once, and batch latency."""
    rows = bench.table_rows(8_000_000, 1_000_000)
    with remote(bench, rows) as served:
        served.made("packed")
        well, _ = paced(served, rows)
        ill, lines = paced(served, rows, errors=0.01, stalls=0.01, truncated=0.001)
    faults = {kind: sum(line.fault == kind for line in lines) for kind in ("error", "stall", "cut")}
    figures = [float(np.quantile(times, 0.99)) / median(times) for times in (well, ill)]
    note = f"median {median(ill) * 1e3:.0f} ms, longest {max(ill):.2f} s; {len(lines)} requests, {faults}; "
    note += f"without faults {figures[0]:.2f} x, longest {max(well):.2f} s"
    bench.report("faults: p99 of a batch / median, consumer of 50 MB/s; each row once", figures[1], "x", "<= 3", note)


def paced(served: Remote, rows: int, **faults: float) -> tuple[list[float], list[Request]]:
    """Consume an epoch by requests only, at 50 MB/s; return the seconds of each batch, and the server's log."""
    times, seen, step = [], [], LARGE * ROW / 50e6
    with served.asked(**SLOW, **faults) as lines:
        table = cp.open("s3://bucket/packed.arrow", spill="off")
        with Loader(table, batch_size=LARGE, memory=MEMORY, order="balanced") as loader:
            batches, begin = iter(loader), time.perf_counter()
            while (batch := next(batches, None)) is not None:
                seen.append(batch["row"])
                time.sleep(max(0.0, begin + step - time.perf_counter()))
                now = time.perf_counter()
                times.append(now - begin)
                begin = now
    check(bool((np.sort(np.concatenate(seen)) == np.arange(rows)).all()), "not every row came once")
    return times[1:], lines


def cache_part(bench: Bench) -> None:
    """Time first epochs with the cache, while it fills and from it, and the cache's own rate."""
    rows = bench.table_rows(4_000_000, 500_000)
    folder = bench.work / "cache"
    shutil.rmtree(folder, ignore_errors=True)
    with remote(bench, rows) as served:
        path = served.folder / served.made("packed")
        size, kept = path.stat().st_size, {"cache": folder, "cache_size": "4GB"}
        with served.asked(**SLOW):
            without = first_epoch(path.name, rows)
        with served.asked(**SLOW) as filled:
            filling = first_epoch(path.name, rows, **kept)
        with served.asked(**SLOW) as again:
            cases = {
                "cached": lambda: first_epoch(path.name, rows, **kept),
                "local": lambda: first_epoch(str(path), rows),
            }
            times = interleave(cases, bench.few)
        note = f"{size / filling / 1e6:.0f} MB/s, {sent(filled)[1] / size:.2f} x the bytes of the object"
        bench.report("cache: a first epoch that fills it / without", without / filling, "x", ">= 0.9", note)
        value, spread = ratio(times, "local", "cached")
        note = (
            f"{size / median(times['cached']) / 1e6:.0f} MB/s; {sent(again)[1] / 1e3:.0f} KB were asked for ({spread})"
        )
        bench.report("cache: a first epoch from it / of the file on this disk", value, "x", "", note)
        ranges, _ = open_ranges(RemotePath(f"s3://bucket/{path.name}", cache=(str(folder), 4 << 30)))
        speeds = {length: hits(ranges, length) for length in (64 << 10, 1 << 20)}
    note = ", ".join(f"{length >> 10} KB {speed / 1e9:.2f} GB/s" for length, speed in speeds.items())
    bench.report(
        "cache: scattered ranges that it has, 64 of 1 MB at a time", speeds[1 << 20] / 1e9, "GB/s", ">= 1", note
    )
    shutil.rmtree(folder, ignore_errors=True)


def hits(ranges: Ranges, length: int) -> float:
    """Return the bytes per second of scattered ranges, 64 MB at a time."""
    starts = np.random.default_rng(0).permutation(np.arange(0, ranges.size - length, length))[: (64 << 20) // length]
    lengths, to = np.full(len(starts), length), np.arange(len(starts)) * length
    out, times = np.zeros(len(starts) * length, np.uint8), []
    for _ in range(5):
        begin = time.perf_counter()
        ranges.fetch(starts + 1, lengths, out, to)
        times.append(time.perf_counter() - begin)
    return len(out) / median(times)


def main(bench: Bench) -> None:
    """Run all parts."""
    warnings.simplefilter("error", RuntimeWarning)  # the cache's, were its disk full
    bench.part("arrow-packed", lambda bench: format_part(bench, "packed", "Arrow, features in one column"))
    bench.part("arrow-columns", lambda bench: format_part(bench, "arrow", "Arrow, 30 columns"))
    bench.part("parquet-pandas", lambda bench: format_part(bench, "parquet", "Parquet as pandas writes it"))
    bench.part("parquet-128k", lambda bench: format_part(bench, "128k", "Parquet, row groups of 128k rows"))
    for name in PEERS:
        bench.part(f"peer-{name}", lambda bench, name=name: peer_part(bench, name))
    bench.part("faults", faults_part)
    bench.part("cache", cache_part)


if __name__ == "__main__":
    alone("remote", main)
