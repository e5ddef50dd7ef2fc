"""Default sizes at small budgets: epochs and batches of each order against No Shuffle, warm and cold."""

import time
from pathlib import Path
from typing import Any

from common import Bench, alone, check, interleave, median, rate, ratio, walk
from data import higgs
from pagecache import drop

import corgipile as cp
from corgipile.orders import Riffle

BATCH, FEATURES, SETTINGS = 256, 28, {"model": "logistic", "learning_rate": 0.01, "classes": [0, 1], "seed": 4}
MEMORIES = ("4MB", "16MB", "64MB")
BASE = "no_shuffle"
ORDERS = {"auto": "auto", "riffle": "riffle", "corgipile": "corgipile"}
BLOCKS = {f"riffle, blocks of {size}": Riffle(block=size) for size in ("16KB", "256KB")}
TARGETS = {
    "warm": {"auto": "<= 1.25"},
    "cold": {"auto": "<= 1.05", "riffle": "<= 1.0", "riffle, blocks of 16KB": "<= 1.18"},
}


def trained(path: Path, order: Any, memory: str, rows: int, epochs: int) -> float:
    """Train; return the seconds of the last epoch."""
    model = cp.train(cp.open(path), order=order, memory=memory, epochs=epochs, **SETTINGS)
    check(all(entry["rows"] == rows for entry in model.history), f"an epoch did not visit {rows} rows")
    return float(model.history[-1]["seconds"])


def batches(path: Path, order: Any, memory: str, rows: int, epochs: int) -> float:
    """Return the seconds of the last of some epochs of batches."""
    with cp.Loader(cp.open(path), batch_size=BATCH, order=order, memory=memory) as loader:
        return [walk(loader, rows) for _ in range(epochs)][-1]


def part(bench: Bench, state: str, host: str, memory: str) -> None:
    """Time each order with one state of the page cache, one host and one budget."""
    rows = bench.pick(4_000_000, 2_000_000)
    path = higgs(bench.work, rows, FEATURES)

    once = trained if host == "train" else batches

    def run(order: Any) -> float:
        if state == "warm":
            return once(path, order, memory, rows, 2)
        drop(path)
        start = time.perf_counter()
        once(path, order, memory, rows, 1)
        return time.perf_counter() - start

    orders = {BASE: BASE, **ORDERS, **BLOCKS}
    cases = {name: lambda order=order: run(order) for name, order in orders.items()}
    times = interleave(cases, bench.repeats if state == "warm" else bench.few, warm=state == "warm")
    for name in list(orders)[1:]:
        value, spread = ratio(times, name, BASE)
        note = f"{rate(rows, median(times[name]))}, no_shuffle {rate(rows, median(times[BASE]))} ({spread})"
        what = "epoch" if host == "train" else f"batches of {BATCH}"
        measure = f"{what}, {name} / no_shuffle, memory {memory}, {rows:,} x {FEATURES}, {state}"
        bench.report(measure, value, "x", TARGETS[state].get(name, ""), note)


def main(bench: Bench) -> None:
    """Run all parts."""
    for state in TARGETS:
        for host in ("train", "loader"):
            for memory in MEMORIES:
                where = {"state": state, "host": host, "memory": memory}
                bench.part("-".join(where.values()), lambda bench, where=where: part(bench, **where))


if __name__ == "__main__":
    alone("defaults", main)
