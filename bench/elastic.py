"""Live epochs whose members die, leave and join at random, with a check that each finished epoch has each row once.

Also measures the cost of fixed global batches per rank, compared with the usual shares.

    python bench/elastic.py [--events 500]
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import corgipile as cp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from elastic import Crowd

ROWS = 20_000
SHAPES = ((1_000_000, 28), (100_000, 784))
RUNS = 5


def events(count):
    """Run live epochs for some number of events; each row is checked."""
    crowd = Crowd({"x": np.arange(ROWS)}, ROWS, events=count, epochs=1, batch_size=32, order="riffle", memory="1MB")
    start = time.perf_counter()
    happened = crowd.run(limit=600)
    epochs, worlds = crowd.check()
    counts = ", ".join(f"{count} of {what}" for what, count in happened.items())
    print(
        f"{sum(happened.values())} events ({counts}) in {worlds} worlds: "
        f"each row of {epochs} finished epochs of {ROWS} rows done once; {time.perf_counter() - start:.0f} s"
    )


def table(folder, rows, width):
    path = folder / f"{width}.arrow"
    numbers = np.random.default_rng(0).random(rows * width, np.float32)
    features = pa.FixedSizeListArray.from_arrays(pa.array(numbers), width)
    made = pa.table({"x": features, "label": pa.array(np.arange(rows) * 10 // rows, pa.int32())})
    with pa.ipc.new_file(path, made.schema) as file:
        file.write_table(made, max_chunksize=50_000)
    return cp.open(path)


def rate(found, world, fixed):
    """Return a rank's rows per second; with fixed batches, memory and batch are totals over all ranks."""
    batch, memory = (192, "64MB") if fixed else (192 // world, f"{64 // world}MB")
    loader = cp.Loader(
        found, batch_size=batch, memory=memory, rank=1, world=world, seed=1, global_batches="fixed" if fixed else None
    )
    start, rows = time.perf_counter(), 0
    for one in loader:
        rows += len(one["label"])
    if not 0 <= rows - len(found) / world <= 1:
        raise SystemExit(f"rank 1 of {world} had {rows} rows of {len(found)}")
    return rows / (time.perf_counter() - start)


def fixed_batches(folder):
    for rows, width in SHAPES:
        found = table(folder, rows, width)
        for world in (8, 6):
            runs = [(rate(found, world, fixed=False), rate(found, world, fixed=True)) for _ in range(RUNS)]
            usual, fixed = (statistics.median(one) for one in zip(*runs, strict=True))
            ratio = statistics.median(one[1] / one[0] for one in runs)
            print(
                f"{rows} rows of {width} floats, rank 1 of {world}: usual {usual / 1e6:.2f} M rows/s, "
                f"fixed {fixed / 1e6:.2f} M rows/s, {ratio:.2f} x"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--batches", action="store_true", help="fixed global batches only")
    asked = parser.parse_args()
    if not asked.batches:
        events(asked.events)
    with tempfile.TemporaryDirectory() as temporary:
        fixed_batches(Path(temporary))
