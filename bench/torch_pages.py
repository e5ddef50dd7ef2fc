"""Page runs (LIRS) against single rows, both fully shuffled, from a cold file of 100-byte rows."""

import time
from pathlib import Path

import numpy as np
from common import Bench, alone, check, interleave, median, rate, ratio
from pagecache import bytes_from_device, drop

import corgipile as cp

BATCH, FEATURES = 1024, 25


def rows_of_100_bytes(work: Path, rows: int) -> Path:
    """Make features of 25 float32; the first is the row's number."""
    path = work / f"rows100-{rows}.npy"
    if not path.exists():
        array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, FEATURES))
        for start in range(0, rows, 1 << 20):
            array[start : start + (1 << 20), :] = np.arange(start, min(start + (1 << 20), rows), dtype=np.float32)[
                :, None
            ]
        array.flush()
    return path


def pages_part(bench: Bench) -> None:
    """Time the first rows of an epoch by pages and by rows, then count the bytes read in a whole epoch by pages."""
    rows, wanted = bench.pick(16_000_000, 8_000_000), bench.pick(1_000_000, 500_000)
    path = rows_of_100_bytes(bench.work, rows)
    seeds = iter(range(10**6))

    def run(unit: str, limit: int) -> float:
        drop(path)
        order = cp.orders.FullShuffle(unit=unit)  # type: ignore[arg-type]
        seen, total, start = 0, 0.0, time.perf_counter()
        with cp.Loader(cp.open(path), batch_size=BATCH, order=order, seed=next(seeds)) as loader:
            for batch in loader:
                seen += len(batch["features"])
                total += float(batch["features"][:, 0].sum(dtype=np.float64))
                if seen >= limit:
                    break
            seconds = time.perf_counter() - start
        check(seen < rows or total == rows * (rows - 1) / 2, "not every row came once")
        return seconds / seen

    cases = {unit: (lambda unit=unit: run(unit, wanted)) for unit in ("row", "page")}
    times = interleave(cases, bench.repeats, warm=False)
    value, spread = ratio(times, "row", "page")
    note = f"by rows {rate(1, median(times['row']))}, by pages {rate(1, median(times['page']))} ({spread})"
    bench.report(
        f'FullShuffle(unit="page") / "row", 100-byte rows, cold, {wanted:,} of {rows:,}', value, "x", ">= 5", note
    )
    before = bytes_from_device()
    whole = run("page", rows)
    read = (bytes_from_device() - before) / path.stat().st_size
    note = f"one epoch of {rows:,} rows from a cold file, {rate(1, whole)}"
    bench.report('bytes read of the bytes of the table, FullShuffle(unit="page")', read, "x", "<= 1.1", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("pages", pages_part)


if __name__ == "__main__":
    alone("torch_pages", main)
