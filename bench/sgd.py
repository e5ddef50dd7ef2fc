"""Training speed: logistic regression, one gradient step per row, from a file; against scikit-learn and itself."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from common import Bench, Peer, alone, check, interleave, median, rate, ratio
from data import higgs, sparse
from pagecache import drop, read_plainly

import corgipile as cp
from corgipile.linear import train
from corgipile.loader import BufferedReader
from corgipile.loader.buffer import SlotArray
from corgipile.loader.selection import Selection

STEP = 0.01
ORDERS = ["no_shuffle", "corgipile", "riffle", "balanced"]
ROWS = {28: (4_000_000, 2_000_000), 256: (1_000_000, 400_000)}  # by features: full, quick


def epochs(path: Path, order: str, rows: int, count: int) -> tuple[list[float], float]:
    """Train some epochs; return the seconds of each, and of the whole call."""
    start = time.perf_counter()
    model = train(
        cp.open(path), model="logistic", epochs=count, learning_rate=STEP, order=order, seed=4, classes=[0, 1]
    )
    wall = time.perf_counter() - start
    check(all(entry["rows"] == rows for entry in model.history), f"an epoch did not visit {rows} rows")
    seconds = [float(entry["seconds"]) for entry in model.history]
    check(len(seconds) == count and sum(seconds) <= wall, "the history's seconds do not add up")
    return seconds, wall


def steady(path: Path, order: str, rows: int) -> float:
    """Return the seconds of an epoch after the first."""
    return median(epochs(path, order, rows, 3)[0][1:])


def peer_part(bench: Bench) -> None:
    """Compare with SGDClassifier.partial_fit on the same rows in memory."""
    rows = bench.pick(*ROWS[28])
    path = higgs(bench.work, rows, 28)
    with Peer("sklearn", path=str(path), rate=STEP) as peer:
        cases = {order: lambda order=order: steady(path, order, rows) for order in ("no_shuffle", "riffle")}
        first = {"first": lambda: epochs(path, "riffle", rows, 1)[1]}
        times = interleave({"peer": lambda: peer.seconds(rows), **cases, **first}, bench.repeats)
        theirs = peer.ask(run=True)["accuracy"]
    model = train(cp.open(path), epochs=1, learning_rate=STEP, order="balanced", seed=4)
    ours = model.history[-1]["accuracy"]
    check(abs(ours - theirs) < 0.05, f"accuracy {ours:.3f} here, {theirs:.3f} there")
    for name in times:
        if name == "peer":
            continue
        value, spread = ratio(times, "peer", name)
        note = f"{rate(rows, median(times['peer']))} there, {rate(rows, median(times[name]))} here ({spread})"
        text = "riffle, one epoch with opening" if name == "first" else name
        measure = f"SGDClassifier.partial_fit in memory / train ({text}), {rows:,} x 28, warm"
        bench.report(measure, value, "x", ">= 10", note)


def warm_part(bench: Bench, features: int) -> None:
    """Compare orders with No Shuffle, warm."""
    rows = bench.pick(*ROWS[features])
    path = higgs(bench.work, rows, features)
    times = interleave({order: lambda order=order: steady(path, order, rows) for order in ORDERS}, bench.repeats)
    for order in ORDERS[1:]:
        value, spread = ratio(times, order, "no_shuffle")
        note = f"{rate(rows, median(times[order]))}, no_shuffle {rate(rows, median(times['no_shuffle']))}"
        measure = f"epoch, {order} / no_shuffle, {features} features, warm"
        bench.report(measure, value, "x", "<= 1.1", f"{note} ({spread})")


def cold_part(bench: Bench, features: int) -> None:
    """Compare orders with No Shuffle and a plain reader, with the file dropped from the page cache before each run.

    The seconds are those of the whole call: opening the file and sketching labels for balance read it, too.
    """
    rows = bench.pick(*ROWS[features])
    path = higgs(bench.work, rows, features)

    def cold(order: str) -> float:
        drop(path)
        return epochs(path, order, rows, 1)[1]

    def plain(chunk: int, shuffled: bool) -> float:
        drop(path)
        return read_plainly(path, chunk=chunk, shuffled=shuffled)

    sizes = (256 << 10, 1 << 20)
    readers = {f"{size >> 10} KB in sequence": lambda size=size: plain(size, shuffled=False) for size in sizes}
    shuffled = {f"{size >> 10} KB shuffled": lambda size=size: plain(size, shuffled=True) for size in sizes}
    cases = {order: lambda order=order: cold(order) for order in ORDERS}
    times = interleave({**readers, **shuffled, **cases}, bench.repeats, warm=False)
    speed = {name: path.stat().st_size / 1e6 / median(found) for name, found in times.items()}
    fastest = max(readers, key=lambda name: speed[name])
    for name in shuffled:
        measure = f"plain reader, {name} / in sequence, {features} features, cold"
        note = f"4 threads, {speed[name]:,.0f} MB/s against {fastest} {speed[fastest]:,.0f} MB/s"
        bench.report(measure, 100 * ratio(times, fastest, name)[0], "%", "", note)
    for order in ORDERS:
        share, spread = ratio(times, fastest, order)
        note = f"epoch {speed[order]:,.0f} MB/s, reader {fastest} {speed[fastest]:,.0f} MB/s ({spread})"
        measure = f"rate of {order} epoch / plain reader of 4 threads, {features} features, cold"
        bench.report(measure, 100 * share, "%", ">= 90", note)
    for order in ORDERS[1:]:
        value, spread = ratio(times, order, "no_shuffle")
        measure = f"epoch, {order} / no_shuffle, {features} features, cold"
        bench.report(measure, value, "x", "<= 1.03", f"({spread})")


@contextmanager
def loading_only_first(count: int) -> Iterator[None]:
    """Load rows only in the first epoch and visit them in the others, which then take computing time alone."""
    run = BufferedReader.epoch

    def epoch(self: BufferedReader, epoch: int, start: int = 0) -> Iterator[SlotArray]:
        if epoch:
            yield from made.pop(epoch)
            return
        for later in range(1, count):
            made[later] = [step.visit for step in self.order.steps(self.blocks, self.key(later))]
        yield from run(self, epoch, start)

    made: dict[int, list[SlotArray]] = {}
    BufferedReader.epoch = epoch  # type: ignore[method-assign]
    try:
        yield
    finally:
        BufferedReader.epoch = run  # type: ignore[method-assign]


def compute_alone(path: Path, order: str, rows: int) -> float:
    """Return the seconds of an epoch over loaded slots, visited in the order's own way."""
    with loading_only_first(3):
        return steady(path, order, rows)


def load_alone(path: Path, order: str, rows: int, epoch: int = 1) -> float:
    """Return the seconds of an epoch that loads all rows and visits none."""
    with BufferedReader(cp.open(path), Selection(["features", "label"]), order=order, memory="64MB") as feeder:
        for _ in feeder.epoch(0):
            pass
        start, seen = time.perf_counter(), 0
        for visit in feeder.epoch(epoch):
            seen += len(visit)
        seconds = time.perf_counter() - start
    check(seen == rows, f"{seen} rows of {rows}")
    return seconds


def overlap_part(bench: Bench, features: int) -> None:
    """Compare a double-buffered epoch with the longer of loading and computing, warm."""
    rows = bench.pick(*ROWS[features])
    path = higgs(bench.work, rows, features)
    for order in ORDERS[:3]:
        cases = {
            "epoch": lambda order=order: steady(path, order, rows),
            "load": lambda order=order: load_alone(path, order, rows),
            "compute": lambda order=order: compute_alone(path, order, rows),
        }
        times = interleave(cases, bench.repeats)
        longer = max(("load", "compute"), key=lambda name: median(times[name]))
        value, spread = ratio(times, "epoch", longer)
        note = ", ".join(f"{name} {median(found):.3f} s" for name, found in times.items())
        measure = f"epoch / max(load, compute), {order}, {features} features, warm"
        bench.report(measure, value, "x", "<= 1.15", f"{note} ({spread})")


def sparse_part(bench: Bench, memory: str) -> None:
    """Compare orders with No Shuffle, and with SGDClassifier in memory, on sparse rows of a warm file.

    Models equal those of the same rows in memory, which take another way to their slots, bit for bit.
    """
    rows, filled, width = bench.pick(400_000, 60_000), 30, 99_990
    path = sparse(bench.work, rows, filled, width)
    how = {"learning_rate": STEP, "memory": memory, "seed": 4, "classes": [0, 1]}
    orders = [*ORDERS, "block_only", "full"]

    def steady(order: str) -> float:
        history = train(cp.open(path), epochs=3, order=order, **how).history
        check(all(entry["rows"] == rows for entry in history), f"an epoch did not visit {rows} rows")
        return median([float(entry["seconds"]) for entry in history[1:]])

    cases = {order: lambda order=order: steady(order) for order in orders}
    with Peer("sklearn sparse", path=str(path), rate=STEP) as peer:
        times = interleave({"peer": lambda: peer.seconds(rows), **cases}, bench.repeats)
    with pa.memory_map(str(path)) as file:
        held = pa.ipc.open_file(file).read_all()
    for order in orders:
        models = [train(table, epochs=1, order=order, **how).coef for table in (cp.open(path), held)]
        check((models[0] == models[1]).all(), f"{order}: another model than of the rows in memory")
        over = [("SGDClassifier.partial_fit of CSR in memory", "peer", order, ">= 3")]
        over += [(f"sparse epoch, {order}", order, "no_shuffle", "<= 1.5")] if order != "no_shuffle" else []
        for what, upper, lower, target in over:
            value, spread = ratio(times, upper, lower)
            note = f"{rate(rows, median(times[upper]))} / {rate(rows, median(times[lower]))} ({spread})"
            bench.report(f"{what} / {lower}, {rows:,} x {filled} of {width:,}, {memory}", value, "x", target, note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("peer", peer_part)
    for name, part in (("warm", warm_part), ("cold", cold_part), ("overlap", overlap_part)):
        for features in ROWS:
            bench.part(f"{name}-{features}", lambda bench, part=part, features=features: part(bench, features))
    for memory in ("4MB", "64MB"):
        bench.part(f"sparse-{memory}", lambda bench, memory=memory: sparse_part(bench, memory))


if __name__ == "__main__":
    alone("sgd", main)
