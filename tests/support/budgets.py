"""Measures the peak resident memory of every format, order and host, above that of an idle process."""
# ruff: noqa: PLC0415 - a fresh process imports what it measures, and no more

import atexit
import contextlib
import functools
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from object_server import ObjectServer
from shapes import NO_NUMBERS, SHAPES

STORED = "in a store: "
IN_STORES = ("arrow", "arrow, x1..x28", "parquet, x1..x28, as pandas", "parquet, groups of 8,192", "webdataset")
ALL = (*SHAPES, *(STORED + shape for shape in IN_STORES))
ORDERS = ("no_shuffle", "block_only", "corgipile", "riffle", "balanced", "full", "sliding_window", "reservoir")
OVERHEAD = 24 << 20  # bytes allowed on top of the budget and the batches in flight, for any table
BATCH_BYTES = 1 << 20  # approximate bytes of a batch
WORKERS = 2
WORKER_OVERHEAD = 4 << 20  # bytes allowed per worker process, for its threads and heap
INSPECTED = ("arrow, texts", "arrow, categories", "parquet, x1..x28, as pandas")
LARGE_ONLY = {".orc": "pyarrow.dataset"}  # imports that only large tables need


def resident(pid: int | str = "self") -> tuple[int, int]:
    """Return the resident bytes of a process and their peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: int(line.split()[1]) << 10 for line in lines if (name := line.split(":")[0]) in ("VmRSS", "VmHWM")}
    return found["VmRSS"], found["VmHWM"]


def own(pid: int | str = "self") -> tuple[int, int]:
    """Return the anonymous and the shared bytes of a process; file pages do not count, since forks reload them."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: int(line.split()[1]) << 10 for line in lines if (name := line.split(":")[0]).startswith("Rss")}
    return found["RssAnon"], found["RssShmem"]


def begin() -> int:
    """Reset the peak of this process; return its resident bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return resident()[0]


class Case(NamedTuple):
    """How a host runs: order or method, memory, rows of a batch, and bytes of the largest batch."""

    order: str
    memory: str
    batch: int
    largest: list[int]


def bytes_of(batch: dict[str, Any]) -> int:
    """Return the bytes of a batch's rows."""
    each = [column if isinstance(column, list) or column.dtype == object else [column] for column in batch.values()]
    return sum(_size(row) for rows in each for row in rows)


def _size(row: Any) -> int:
    """Return the bytes of a row, nested objects included."""
    if hasattr(row, "nbytes"):
        return int(row.nbytes) + (sum(map(_size, row)) if getattr(row.dtype, "hasobject", False) else 0)
    inside = row.values() if isinstance(row, dict) else row if isinstance(row, list | tuple) else ()
    return sys.getsizeof(row) + sum(map(_size, inside))


class Started:
    """Records in a folder the memory of each DataLoader worker at its start."""

    def __init__(self, folder: str, before: int) -> None:
        self._folder, self._before, self.growth, self._over = folder, before, 0, threading.Event()

    def __call__(self, worker: int) -> None:
        """Record this worker."""
        Path(self._folder, str(os.getpid())).write_text(str(sum(own())))

    def watch(self) -> None:
        """Poll the common growth of this process and its workers."""
        while not self._over.wait(0.002):
            with contextlib.suppress(OSError, ValueError, KeyError):  # a worker is just beginning or ending
                self.growth = max(self.growth, self._grown())

    def _grown(self) -> int:
        """Return the growth of all processes in bytes; shared memory counts once."""
        before = {path.name: int(path.read_text()) for path in Path(self._folder).iterdir()}
        now = [own(pid) for pid in before]
        shared = min(sum(shared for _, shared in now), own()[1])
        return resident()[0] - self._before + sum(map(sum, now)) - sum(before.values()) - shared

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def host_loader(table: Any, case: Case) -> Iterator[int]:
    """Iterate over an epoch of a Loader."""
    import corgipile as cp

    with cp.Loader(table, batch_size=case.batch, order=case.order, memory=case.memory) as loader:
        for rows in loader:
            case.largest[0] = max(case.largest[0], bytes_of(rows))
            yield len(rows["label"])


def host_train(table: Any, case: Case) -> Iterator[int]:
    """Train for an epoch."""
    import corgipile as cp

    features = "x" if "x" in table.schema.names else None  # of tensorflow.Example records
    model = cp.train(table, features=features, epochs=1, learning_rate=0.001, order=case.order, memory=case.memory)
    yield model.history[-1]["rows"]


def host_reshuffle(table: Any, case: Case) -> Iterator[int]:
    """Write the table shuffled; here the order is a method."""
    import corgipile as cp

    with tempfile.TemporaryDirectory() as folder:
        yield cp.reshuffle(table, Path(folder, "out.arrow"), case.order, memory=case.memory)


def host_convert(table: Any, _: Case) -> Iterator[int]:
    """Write the table as Arrow."""
    import corgipile as cp

    with tempfile.TemporaryDirectory() as folder:
        yield cp.convert(table, Path(folder, "out.arrow"))


def host_predict(table: Any, _: Case) -> Iterator[int]:
    """Predict a row at a time, as the command line does, with an untrained model."""
    import numpy as np

    from corgipile.linear.features import find_inputs
    from corgipile.linear.model import Model

    features = "x" if "x" in table.schema.names else None
    width = find_inputs(table, features, "label").width
    params = {"label": "label", "features": features}
    model = Model("linear", np.zeros((1, width)), np.zeros(1), np.zeros(0), params)
    for part in model.stream(table):
        yield len(part)


def host_inspect(table: Any, case: Case) -> Iterator[int]:
    """Describe a table and choose an order for it."""
    from corgipile.description import about
    from corgipile.planner import choose

    yield about(table, columns=True).rows
    choose(table, memory=case.memory, seconds=0)


HOSTS = {
    "loader": host_loader,
    "train": host_train,
    "reshuffle": host_reshuffle,
    "convert": host_convert,
    "predict": host_predict,
    "inspect": host_inspect,
}


def with_workers(path: Any, options: dict[str, Any], case: Case) -> tuple[int, int]:
    """Return the rows from DataLoader workers, and the growth of all processes in bytes."""
    from torch.utils.data import DataLoader

    import corgipile as cp
    from corgipile.torch import CorgiPileDataset

    table, before = cp.open(path, **options), begin()
    dataset = CorgiPileDataset(table, order=case.order, memory=case.memory, batch_size=case.batch)
    with tempfile.TemporaryDirectory() as folder, Started(folder, before) as started:
        loader = DataLoader(dataset, batch_size=None, num_workers=WORKERS, worker_init_fn=started, prefetch_factor=1)
        rows = 0
        for given in loader:
            case.largest[0] = max(case.largest[0], bytes_of(given))
            rows += len(given["label"])
    return rows, max(started.growth, resident()[1] - before)


def child_measure(host: str, path: str, tiny: str, order: str, memory: str) -> dict[str, float]:
    """Run a host over a table; return rows, bytes of growth and bytes of a batch.

    The tiny table runs first, so that lazy loading of libraries does not count.
    """
    import corgipile as cp

    if Path(path).suffix in LARGE_ONLY:
        importlib.import_module(LARGE_ONLY[Path(path).suffix])
    options = {name: labels_of(name) for name in (path, tiny)}
    head = cp.open(tiny, **options[tiny])
    row = max(1, head.read(0, len(head)).nbytes // len(head))
    case = Case(order, memory, max(1, BATCH_BYTES // row), [0])
    for given in (tiny, path):
        if host == "workers":
            rows, growth = with_workers(given, options[given], case)
        else:
            table = cp.open(given, **options[given])
            before = begin()
            rows = sum(HOSTS[host](table, case))
            growth = resident()[1] - before
    found = {"batch": float(case.largest[0] or row * case.batch), "rows": float(len(cp.open(path, **options[path])))}
    return {**found, "seen": float(rows), "growth": float(growth)}


def labels_of(path: str) -> dict[str, Any]:
    """Return the options that open a table: its file of labels, if it has one."""
    return {"label": str(Path(path).with_suffix(".labels.npy"))} if path.endswith(".npy") else {}


def cases(shape: str) -> Iterator[tuple[str, str]]:
    """Yield host and order of each case that makes sense for a shape of rows."""
    numbers = shape.removeprefix(STORED) not in NO_NUMBERS
    for order in ORDERS:
        yield "loader", order
        yield "workers", order
        if numbers:
            yield "train", order
    for method in ("two-pass", "corgi2", "bmf"):
        yield "reshuffle", method
    yield "convert", ""
    if shape in INSPECTED:
        yield "inspect", ""
    if numbers:
        yield "predict", ""


def measure(
    path: Path | str, tiny: Path | str, host: str, order: str, memory: str, run: Callable[..., dict[str, Any]]
) -> tuple[float, float, str]:
    """Run a case in its own process; return MiB of growth, MiB allowed, and a remark."""
    from corgipile.errors import BudgetTooSmall
    from corgipile.sizes import parse_bytes

    try:
        found = run(host, str(path), str(tiny), order, memory)
    except (RuntimeError, BudgetTooSmall) as error:
        if "BudgetTooSmall" not in repr(error):
            raise
        return 0.0, 0.0, "refused: " + str(error).split("BudgetTooSmall:")[-1].strip("'] ")[:100]
    if found["seen"] != found["rows"] and order != "reservoir":
        raise RuntimeError(f"wrong result: {found['seen']:.0f} rows of {found['rows']:.0f}")
    workers = WORKERS if host == "workers" else 0
    overhead = OVERHEAD + workers * WORKER_OVERHEAD + (2 + workers) * found["batch"]  # batches: current, next, sent
    allowed = parse_bytes("64MB" if host in ("convert", "predict") else memory) + overhead
    return found["growth"] / 2**20, allowed / 2**20, ""


@functools.cache
def _server(folder: Path) -> ObjectServer:
    server = ObjectServer(folder)
    atexit.register(server.stop)
    server.set(latency=0.005)
    return server


def served(folder: Path) -> str:
    """Return the URL of a server of a folder, which ends with this process."""
    with _starting:
        return _server(folder).url


_starting = threading.Lock()


def tables(folder: Path, shape: str, size: int) -> list[Path | str]:
    """Make a table of a shape and approximate size, and a tiny one; return their paths."""
    if shape.startswith(STORED):
        bucket = folder / "bucket"
        bucket.mkdir(exist_ok=True)
        url = served(folder)
        return [f"{url}/bucket/{Path(path).name}" for path in tables(bucket, shape.removeprefix(STORED), size)]
    name = "".join(c if c.isalnum() else "-" for c in shape)
    return [SHAPES[shape](folder / f"{kind}-{name}", size) for kind, size in (("shape", size), ("tiny", 1 << 16))]
