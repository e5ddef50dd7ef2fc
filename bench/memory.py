"""Memory of a process: resident growth under a budget, resume at 10^12 rows, and import time."""
# ruff: noqa: PLC0415 - a fresh process imports what it measures, and no more

import contextlib
import itertools
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from common import Bench, alone, check, child, interleave, median
from data import higgs

BUDGET = "64MB"
ROW = 28 * 4 + 4


class Growth:
    """Measures the growth of this process's resident memory."""

    def __init__(self) -> None:
        self._status = Path("/proc/self/status")
        if self._status.exists():
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        self._before = self._read("VmRSS")

    def _read(self, name: str) -> int:
        if not self._status.exists():
            unit = 1 if sys.platform == "darwin" else 1024
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        line = next(line for line in self._status.read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024

    def mib(self) -> dict[str, float]:
        """Return MiB: growth of the peak, and the start."""
        return {"growth": (self._read("VmHWM") - self._before) / 2**20, "before": self._before / 2**20}


def child_load(path: str, order: str) -> dict[str, float]:
    """Iterate over an epoch of a table."""
    import corgipile as cp

    table, growth = cp.open(path), Growth()
    with cp.Loader(table, batch_size=256, order=order, memory=BUDGET) as loader:
        rows = sum(len(batch["label"]) for batch in loader)
    return {"rows": rows, **growth.mib()}


def child_train(path: str, order: str) -> dict[str, float]:
    """Train one epoch."""
    import corgipile as cp
    from corgipile.linear import train

    table, growth = cp.open(path), Growth()
    model = train(table, epochs=1, learning_rate=0.01, order=order, memory=BUDGET)
    return {"rows": model.history[-1]["rows"], **growth.mib()}


def child_resume(order: str) -> dict[str, float]:
    """Take the first step from the middle of an epoch of 10^12 rows."""
    from corgipile.orders import Blocks, Key, named

    rows = 10**12
    growth = Growth()
    fitted = named(order).fit(rows, ROW, (64 << 20) // ROW)
    blocks = Blocks(rows, even=fitted.block_rows)
    usual = next(itertools.islice(fitted.steps(blocks, Key(1, 3)), 2, None)).visit.size
    start = time.perf_counter()
    step = next(iter(fitted.steps(blocks, Key(1, 3), rows // 2 // usual)))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": int(step.visit.size), **growth.mib()}


def growth_part(bench: Bench) -> None:
    """Measure peak resident memory of a fresh process that loads, and one that trains, with memory="64MB"."""
    rows = (2 << 30) // ROW if not bench.quick else (512 << 20) // ROW
    path = higgs(bench.work, rows, 28)
    size = path.stat().st_size / 2**30
    for what in ("load", "train"):
        for order in ("riffle", "corgipile", "balanced"):
            found = child("memory.py", what, str(path), order)
            check(found["rows"] == rows, f"{found['rows']} rows of {rows}")
            note = f"{size:.2g} GiB table, from {found['before']:.0f} MiB after import and open"
            measure = f"resident growth, {what}, {order}, memory={BUDGET!r}"
            bench.report(measure, found["growth"], "MiB", "<= 128", note)


def resume_part(bench: Bench) -> None:
    """Time the first step from the middle of 10^12 rows, index only."""
    for order in ("riffle", "corgipile", "no_shuffle", "block_only", "full"):
        found = [child("memory.py", "resume", order) for _ in range(3)]
        note = f"first step visits {found[0]['rows']:,} rows"
        bench.report(f"resume at 10^12 rows, {order}", median([f["seconds"] for f in found]), "s", "<= 1", note)
        most = max(f["growth"] for f in found)
        bench.report(f"resident growth of that resume, {order}", most, "MiB", "<= 100", note)


def import_part(bench: Bench) -> None:
    """Time the import of corgipile in a fresh interpreter, minus a bare interpreter."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    codes = {
        "bare": "pass",
        "base": "import numpy, pyarrow",
        "import corgipile": "import corgipile",
        "from corgipile import Loader, open": "from corgipile import Loader, open",
    }
    cases = {name: lambda code=code: run(code) for name, code in codes.items()}
    times = {name: median(found) for name, found in interleave(cases, max(9, bench.repeats)).items()}
    note = f"of it {times['base'] - times['bare']:.3f} s numpy and pyarrow; bare interpreter {times['bare']:.3f} s"
    for name in list(codes)[2:]:
        bench.report(name, times[name] - times["bare"], "s", "<= 0.3", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("growth", growth_part)
    bench.part("resume", resume_part)
    bench.part("import", import_part)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(globals()[f"child_{sys.argv[2]}"](*sys.argv[3:])))
    else:
        alone("memory", main)
