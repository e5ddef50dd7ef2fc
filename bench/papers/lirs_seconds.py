"""LIRS (Table 3, memory): seconds, bytes, memory to the value that BMF ends at, cold, from a disk and a slow one.

    python bench/papers/lirs_seconds.py [--data DIR] [--scale 4] [--save]

As `lirs.py`, with BMF's blocks compressed besides, each way in a process of its own. Before each epoch the file is
dropped from the page cache, so that memory beyond what the way holds itself serves nobody, as under a limit of memory.
The slow disk is `slow_disk.c` put before the process: reads take turns, 0.2 ms each and 100 MB/s. Seconds are those of
the epochs that learn, and of writing BMF's blocks; memory is the growth of what is resident at most.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pyarrow as pa
from lirs import EPOCHS, SHARE, curve, opened, tables, visit, ways
from pagecache import drop

import corgipile as cp
from corgipile.linear.dual import Dual
from corgipile.orders import FullShuffle
from corgipile.resident import peaking

HERE = Path(__file__).resolve().parent
DISKS: dict[str, dict[str, str]] = {"disk": {}, "slow disk": {"SLOW_DISK_SECONDS": "2e-4", "SLOW_DISK_RATE": "1e8"}}
INNER = 10
COMPRESSED = "BMF, zstd"


def resident() -> int:
    """Return the bytes of this process that are resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def order_of(way: str, rows: int) -> Any:
    """Return the order of a way."""
    return ways(rows)["BMF" if way == COMPRESSED else way][1]


def alone(path: Path, way: str, epochs: int) -> dict[str, Any]:
    """Run some epochs of a way, each cold: what they take. This is a process of its own."""
    rows = len(cp.open(path))
    order = order_of(way, rows)
    few = path.with_name("few.arrow")
    curve(
        few, FullShuffle(buffer=len(cp.open(few)), ahead=0), 1, 1
    )  # what is loaded at the first use of all is nobody's
    seconds, read, before = 0.0, 0, resident()
    with peaking() as peak, opened(path, order) as (feeder, inputs):
        dual = Dual("squared_hinge", inputs, np.array([0, 1]), rows=rows, l2=1 / rows, passes=INNER)
        for epoch in range(epochs):
            drop(path)
            start = time.perf_counter()
            visit(dual, feeder, epoch, learn=True)
            seconds += time.perf_counter() - start
        read = feeder.bytes_read
    return {"seconds": seconds, "read": read, "memory": peak.nbytes - before}


def child(path: Path, way: str, epochs: int, library: Path, disk: dict[str, str]) -> dict[str, Any]:
    """Run that process, before it the slow disk where one is asked for."""
    environment = os.environ | disk | ({"LD_PRELOAD": str(library)} if disk else {})
    call = [sys.executable, __file__, "--alone", str(path), way, str(epochs)]
    done = subprocess.run(call, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str, rows: pa.Table, work: Path, library: Path) -> list[dict[str, Any]]:
    """Run every way over one table, from both disks."""
    path, held = work / f"{name}.arrow", len(rows) // SHARE
    cp.convert(rows, path)
    cp.convert(rows.slice(0, 60), work / "few.arrow", overwrite=True)
    split, wrote = {}, {}
    for way, compression in (("BMF", None), (COMPRESSED, "zstd")):
        split[way], start = work / f"{name}-{compression}.arrow", time.perf_counter()
        cp.reshuffle(path, split[way], method="bmf", block=held, compression=compression)
        wrote[way] = time.perf_counter() - start
    _, best, _ = curve(path, FullShuffle(buffer=len(rows), ahead=0), 500, 20, 1e-9)
    found, goal = [], 0.0
    for way in ("BMF", COMPRESSED, *list(ways(len(rows)))[1:]):
        at = split.get(way, path)
        values, _, _ = curve(at, order_of(way, len(rows)), INNER, EPOCHS)
        goal = goal or values[-1] / best - 1
        epochs = next((number + 1 for number, value in enumerate(values) if value / best - 1 <= goal), None)
        for disk, slow in DISKS.items():
            record = {
                "table": name,
                "disk": disk,
                "way": way,
                "epochs": epochs,
                "goal": goal,
                "wrote": wrote.get(way, 0.0),
            }
            if epochs is not None:
                record |= child(at, way, epochs, library, slow) | {"bytes": at.stat().st_size}
            found.append(record)
    return found


def told(result: dict[str, Any]) -> str:
    """Return the lines of a table, one a disk."""
    return "\n".join(line(result, disk) for disk in DISKS)


def line(result: dict[str, Any], disk: str) -> str:
    """Return what all ways took from a disk."""
    ways = [one for one in result["ways"] if one["disk"] == disk]
    cells = []
    for one in ways:
        if one["epochs"] is None:
            cells.append(f"not in {EPOCHS} epochs")
            continue
        also = f" + {one['wrote']:.2f}" if one["wrote"] else ""
        took = f"{one['seconds']:.2f}{also} s, {one['read'] / 1e6:.1f} MB, {one['memory'] / 1e6:.1f} MB"
        cells.append(f"{one['epochs']}: {took}")
    return f"| {result['table']} | {disk} | {ways[0]['goal']:.1e} | {' | '.join(cells)} |"


def main() -> None:
    """Run all tables and print, and perhaps save, what came out."""
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(alone(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
        return
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--table", help="of these tables one alone")
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    lines = figures.head(["table", "from", "value", "BMF", COMPRESSED, *list(ways(SHARE))[1:]])
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="corgipile-lirs-") as folder:
        library = Path(folder) / "slow_disk.so"
        build = ["cc", "-O2", "-shared", "-fPIC", str(HERE / "slow_disk.c"), "-o", str(library), "-ldl", "-lpthread"]
        subprocess.run(build, check=True)
        for name, rows in tables(given.data, given.scale):
            if given.table not in (None, name):
                continue
            results.append({"table": name, "ways": measure(name, rows, Path(folder), library)})
            lines.append(told(results[-1]))
            print(lines[-1], flush=True)
    if given.save:
        name = Path(__file__).stem
        lines, results = figures.joined(name, lines, results, lambda one: one["table"], told)
        figures.save(name, results, lines)


if __name__ == "__main__":
    main()
