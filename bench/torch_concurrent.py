"""Concurrent: random rows of cold datasets, against Hugging Face as shipped and one thread per row (RINAS)."""

import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from common import HERE, Bench, Peer, alone, check, interleave, median, rate, ratio
from data import numbered
from pagecache import drop
from torch.utils.data import DataLoader

from corgipile.torch import Concurrent

BATCH, THREADS = 256, 32
FLYING = 16 << 20  # bytes of rows in flight ahead of the consumer: more is no faster, and all of it is memory


def huggingface_part(bench: Bench) -> None:
    """Read rows of 1 KB in random order; few as shipped, since its read-ahead soon caches a file of this size."""
    rows, few, many = bench.pick(2_000_000, 1_000_000), 1000, bench.pick(65_536, 32_768)
    _, stream = numbered(bench.work, rows)
    cases = {"shipped": (few, 0, 0), "few": (few, THREADS, 4), "many": (many, THREADS, 4)}
    times: dict[str, list[float]] = {name: [] for name in cases}
    read: dict[str, list[float]] = {name: [] for name in cases}
    with Peer("hf concurrent", path=str(stream), source=str(HERE.parent / "src")) as peer:
        for turn in range(bench.few):
            for name, (count, threads, ahead) in cases.items():
                numbers = np.random.default_rng([turn, len(name)]).permutation(rows)[:count]
                np.save(bench.work / "numbers.npy", numbers)
                answer = peer.ask(numbers=str(bench.work / "numbers.npy"), threads=threads, ahead=ahead)
                check(answer["sum"] == int(numbers.sum()) and answer["rows"] == count, "other rows came")
                times[name].append(answer["seconds"] / count)
                read[name].append(answer["read"] / count / 1024)
    for name, target in (("few", ""), ("many", ">= 20")):  # the few show what beginning costs
        value, spread = ratio(times, "shipped", name)
        note = (
            f"as shipped {rate(1, median(times['shipped']))}, bytes read {median(read['shipped']):,.0f} x; "
            f"Concurrent {rate(1, median(times[name]))}, {median(read[name]):.2f} x ({spread})"
        )
        measure = f"Concurrent(datasets.Dataset), 1 KB rows, cold, {cases[name][0]:,} rows / as shipped, {few:,} rows"
        bench.report(measure, value, "x", target, note)
    note = f"{many:,} rows of {rows:,}; a row lies in two columns, so in two places"
    bench.report("bytes read of bytes wanted, Concurrent(datasets.Dataset)", median(read["many"]), "x", "<= 6", note)


class Records:
    """A typical map-style dataset: rows of equal length in one file."""

    def __init__(self, path: Path, width: int) -> None:
        self.file, self.width = os.open(path, os.O_RDONLY), width
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
        self.rows = path.stat().st_size // width

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> bytes:
        return os.pread(self.file, self.width, row * self.width)


class ThreadPerRow:
    """RINAS as published: one thread per row of a batch, in order of completion."""

    def __init__(self, dataset: Records) -> None:
        self.dataset, self.pool = dataset, ThreadPoolExecutor(BATCH)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: list[int]) -> list[bytes]:
        tasks = [self.pool.submit(self.dataset.__getitem__, row) for row in rows]
        return [task.result() for task in as_completed(tasks)]


def records(work: Path, total: int) -> Path:
    """Make a file whose every 8 bytes hold their own number."""
    path = work / f"records-{total}.bin"
    if not path.exists():
        with path.open("wb") as file:
            for start in range(0, total // 8, 1 << 20):
                np.arange(start, min(start + (1 << 20), total // 8)).tofile(file)
    return path


def records_part(bench: Bench, width: int) -> None:
    """Compare records of one size in random order, cold, both fetching batches behind DataLoader."""
    path = records(bench.work, bench.pick(2 << 30, 1 << 30))
    count = min(bench.pick(65_536, 32_768), path.stat().st_size // width // 4) // BATCH * BATCH
    dataset, seeds = Records(path, width), iter(range(10**6))
    pools: dict = {"RINAS": ThreadPerRow(dataset), "Concurrent": Concurrent(dataset, threads=THREADS)}

    def run(name: str, ahead: int = 0) -> float:
        wanted = np.random.default_rng(next(seeds)).permutation(len(dataset))[:count]
        batches = [wanted[at : at + BATCH].tolist() for at in range(0, count, BATCH)]
        fetcher = pools[name]
        sampler = fetcher.ahead(batches, batches=ahead) if isinstance(fetcher, Concurrent) else batches
        drop(path)
        start, seen = time.perf_counter(), 0
        for rows in DataLoader(fetcher, batch_sampler=sampler, collate_fn=list):  # type: ignore[arg-type]
            seen += sum(int.from_bytes(row[:8], "little") * 8 // width for row in rows)
        seconds = time.perf_counter() - start
        check(seen == wanted.sum(), "other rows came")
        return seconds

    def plain() -> float:
        """Read equally many records in plain threads, into reused memory: the device's rate."""
        wanted = np.random.default_rng(next(seeds)).permutation(len(dataset))[:count]

        def read(rows: np.ndarray) -> int:
            room = bytearray(width)
            return sum(os.preadv(dataset.file, [room], row * width) for row in rows.tolist())

        drop(path)
        start = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            seen = sum(pool.map(read, np.array_split(wanted, THREADS)))
        check(seen == count * width, "bytes are missing")
        return time.perf_counter() - start

    cases = {
        "RINAS": lambda: run("RINAS"),
        "plain": plain,
        "ahead": lambda: run("Concurrent", max(1, min(4, FLYING // (width * BATCH)))),
        "one batch at a time": lambda: run("Concurrent"),
    }
    times = interleave(cases, bench.repeats, warm=False)
    pools["Concurrent"].close()
    pools["RINAS"].pool.shutdown()
    for name, target in (("ahead", ">= 1.3"), ("one batch at a time", "")):
        value, spread = ratio(times, "RINAS", name)
        rates = [rate(count, median(times[case])) for case in ("RINAS", name, "plain")]
        note = f"{rates[0]}; {rates[1]}; threads that only read {rates[2]} ({spread})"
        bench.report(f"Concurrent, {name} / one thread per row, {width >> 10} KB rows, cold", value, "x", target, note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("huggingface", huggingface_part)
    for width in (1 << 10, 16 << 10, 128 << 10):
        bench.part(f"records-{width >> 10}", lambda bench, width=width: records_part(bench, width))


if __name__ == "__main__":
    alone("torch_concurrent", main)
