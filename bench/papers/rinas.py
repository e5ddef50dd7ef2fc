"""RINAS (Fig. 5, 10 to 14): random rows per second by batch size and data size, for both of its planes separately.

    python bench/papers/rinas.py [--scale 4] [--save]

Rows of 4 KB lie in record batches of 100. The data plane as shipped reads a row's record batch, RINAS the row alone.
The control plane as shipped fetches the rows of a batch sequentially; RINAS has a thread per row and takes them as they
arrive. `Concurrent` has 32 threads, which fetch the next batches' rows. CorgiPile and Riffle read blocks into a buffer
of a twentieth of the rows. The file is dropped from the page cache before each run; on the slow store each read takes
2 ms longer, as over a network.
"""

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import figures
import numpy as np
from torch.utils.data import DataLoader

import corgipile
from corgipile.testing import Slow
from corgipile.torch import Concurrent

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import check
from pagecache import drop

WIDTH, TOGETHER, ROUNDS, THREADS = 4096, 100, 3, 32
SHARE = "5%"  # of the rows, in memory where blocks are read
SIZES = (64 << 20, 512 << 20)
BATCHES = (16, 64, 256)
STORES = {"local disk": 0.0, "slow store": 0.002}
ROWS, FEW = 2048, 512  # of a run; fewer where rows come one after the other


class Records:
    """Numbered rows in one file; each is read alone, or with its record batch."""

    def __init__(self, path: Path, latency: float, *, whole: bool) -> None:
        self._file, self._latency, self._whole = os.open(path, os.O_RDONLY), latency, whole
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)
        self.rows = path.stat().st_size // WIDTH
        self._head = path.stat().st_size % WIDTH  # of the file, as .npy has it

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> int:
        if self._latency:
            time.sleep(self._latency)
        count = TOGETHER if self._whole else 1
        first = row // count * count
        found = os.pread(self._file, WIDTH * count, self._head + first * WIDTH)
        return int.from_bytes(found[(row - first) * WIDTH :][:8], "little")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class ThreadPerRow:
    """The control plane of RINAS: a thread per row of a batch, with rows in order of arrival."""

    def __init__(self, dataset: Records, batch: int) -> None:
        self._dataset, self.pool = dataset, ThreadPoolExecutor(batch)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, rows: list[int]) -> list[int]:
        """Return rows as they arrive."""
        tasks = [self.pool.submit(self._dataset.__getitem__, row) for row in rows]
        return [task.result() for task in as_completed(tasks)]


def write(path: Path, size: int) -> None:
    """Write rows that begin with their own number."""
    with path.open("wb") as file:
        shape = {"descr": "<i8", "fortran_order": False, "shape": (size // WIDTH, WIDTH // 8)}
        np.lib.format.write_array_header_1_0(file, shape)
        for start in range(0, size // WIDTH, 1024):
            count = min(1024, size // WIDTH - start)
            rows = np.random.default_rng(start).integers(0, 1 << 62, (count, WIDTH // 8))
            rows[:, 0] = np.arange(start, start + count)
            rows.tofile(file)


def fetch(path: Path, batches: list[list[int]], latency: float, way: str) -> None:
    """Fetch batches in one way, and check the rows."""
    planes = way.split(", ")
    dataset = Records(path, latency, whole=planes[0] == "record batch")
    fetcher: Any = dataset
    sampler: Any = batches
    if planes[1] == "thread a row":
        fetcher = ThreadPerRow(dataset, len(batches[0]))
    elif planes[1] == "Concurrent":
        fetcher = Concurrent(dataset, threads=THREADS)  # type: ignore[arg-type]
        sampler = fetcher.ahead(batches, batches=4)
    seen = sum(sum(rows) for rows in DataLoader(fetcher, batch_sampler=sampler, collate_fn=list))
    check(seen == sum(map(sum, batches)), "other rows came")
    if isinstance(fetcher, Concurrent):
        fetcher.close()
    elif isinstance(fetcher, ThreadPerRow):
        fetcher.pool.shutdown()
    dataset.close()


def stream(path: Path, count: int, batch: int, latency: float, order: Any) -> None:
    """Take some rows of an epoch of blocks, and check that none came twice."""
    table = corgipile.open(path)
    loader = corgipile.Loader(Slow(table, latency) if latency else table, order=order, batch_size=batch, memory=SHARE)
    seen: set[int] = set()
    for rows in loader:
        seen.update(rows[table.schema.names[0]][:, 0].tolist())
        if len(seen) >= count:
            break
    check(len(seen) == count, "rows came twice, or not at all")


BLOCKS = {"CorgiPile": "corgipile", "Riffle": "riffle"}
WAYS = {
    "as shipped": "record batch, one after the other",
    "RINAS, data plane": "row, one after the other",
    "RINAS, control plane": "record batch, thread a row",
    "RINAS, both": "row, thread a row",
    "Concurrent": "row, Concurrent",
    **{name: name for name in BLOCKS},
}


def rate(path: Path, latency: float, way: str, batch: int, seed: int) -> float:
    """Return rows per second of one cold run."""
    rows = path.stat().st_size // WIDTH
    count = min(rows, FEW if way.endswith("one after the other") else ROWS) // batch * batch
    wanted = np.random.default_rng(seed).permutation(rows)[:count].reshape(-1, batch).tolist()
    drop(path)
    start = time.perf_counter()
    if way in BLOCKS:
        stream(path, count, batch, latency, BLOCKS[way])
    else:
        fetch(path, wanted, latency, way)
    return count / (time.perf_counter() - start)


def measure(path: Path, size: int, store: str, batch: int) -> dict[str, Any]:
    """Return the median rate of each way; the ways alternate."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(ROUNDS):
        for name in list(WAYS)[:: 1 if turn % 2 else -1]:
            found[name].append(rate(path, STORES[store], WAYS[name], batch, turn))
    rates = {name: statistics.median(values) for name, values in found.items()}
    return {"store": store, "bytes": size, "batch": batch, "rates": rates}


def main() -> None:
    """Measure all sizes; print the results, and save them if requested."""
    given = figures.arguments(__doc__ or "").parse_args()
    results: list[dict[str, Any]] = []
    lines = figures.head(["store", "data", "batch", *(f"{way}, rows/s" for way in WAYS), "both / as shipped"])
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="corgipile-rinas-") as work:
        for size in SIZES:
            path = Path(work) / f"{size}.npy"
            write(path, size // given.scale)
            for store in STORES:
                for batch in BATCHES:
                    one = measure(path, size // given.scale, store, batch)
                    results.append(one)
                    cells = [f"{value:,.0f}" for value in one["rates"].values()]
                    times = one["rates"]["RINAS, both"] / one["rates"]["as shipped"]
                    lines.append(
                        f"| {store} | {one['bytes'] >> 20} MB | {batch} | {' | '.join(cells)} | {times:.1f} x |"
                    )
                    print(lines[-1], flush=True)
    if given.save:
        path = figures.save("rinas", results, lines)
        panels: dict[tuple[str, str], dict[str, list[float]]] = {}
        for one in results:
            curves = panels.setdefault((one["store"], f"{one['bytes'] >> 20} MB"), {name: [] for name in WAYS})
            for name, value in one["rates"].items():
                curves[name].append(value)
        figures.draw(panels, path, across="rows of a batch", up="rows/s", logarithmic=True, xs=BATCHES)


if __name__ == "__main__":
    main()
