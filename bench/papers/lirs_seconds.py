"""LIRS (Table 3, memory): seconds, bytes and memory to BMF's final value, cold, from a normal and a slow disk.

    python bench/papers/lirs_seconds.py [--data DIR] [--scale 4] [--table NAME] [--stored mixed] [--disk disk] [--save]

The tables, values and epochs are those that `lirs.py` saved last, for the same row count; BMF's blocks are compressed,
too. Each way runs in its own process, limited to 16 MB from the start of reading, page cache included, by a memory
cgroup; if none may be created there is no limit, and the results say so. The file is dropped from the page cache before
each epoch. The seconds are those of training epochs and of writing BMF's blocks. `slow_disk.c` preloaded into the
process is the slow disk: reads take turns, 0.2 ms each and 100 MB/s. Memory is the peak growth of the resident set.
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
import limits
import numpy as np
import pyarrow as pa
from lirs import SHARE, STORED, curve, opened, tables, visit, ways
from pagecache import drop

import corgipile as cp
from corgipile.linear.dual import Dual
from corgipile.orders import FullShuffle
from corgipile.resident import peaking

HERE = Path(__file__).resolve().parent
DISKS: dict[str, dict[str, str]] = {"disk": {}, "slow disk": {"SLOW_DISK_SECONDS": "2e-4", "SLOW_DISK_RATE": "1e8"}}
COMPRESSED = "BMF, zstd"
NAMES = ["BMF", COMPRESSED, *list(ways(SHARE))[1:]]
LIMIT = 16 << 20


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def alone(path: Path, way: str, inner: int, epochs: int) -> dict[str, Any]:
    """Run some cold epochs of a way, in this process, and print their costs."""
    rows = len(cp.open(path))
    order = ways(rows)["BMF" if way == COMPRESSED else way][1]
    few = path.with_name("few.arrow")
    curve(
        few, FullShuffle(buffer=len(cp.open(few)), ahead=0), 1, 1
    )  # what is loaded at the first use of all is nobody's
    limited = limits.limit(LIMIT)
    seconds, read, before = 0.0, 0, resident()
    with peaking() as peak, opened(path, order) as (feeder, inputs):
        dual = Dual("squared_hinge", inputs, np.array([0, 1]), rows=rows, l2=1 / rows, passes=inner)
        for epoch in range(epochs):
            drop(path)
            start = time.perf_counter()
            visit(dual, feeder, epoch, learn=True)
            seconds += time.perf_counter() - start
        read = feeder.bytes_read
    return {"seconds": seconds, "read": read, "memory": peak.nbytes - before, "limited": limited}


def child(path: Path, way: str, inner: int, epochs: int, library: Path, disk: dict[str, str]) -> dict[str, Any]:
    """Run that process, with the slow disk preloaded if requested."""
    environment = os.environ | disk | ({"LD_PRELOAD": str(library)} if disk else {})
    call = [sys.executable, __file__, "--alone", str(path), way, str(inner), str(epochs)]
    with subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate()
    limits.remove(process.pid)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, call)
    return dict(json.loads(said.splitlines()[-1]))


def measure(known: dict[str, Any], rows: pa.Table, disk: str, work: Path) -> dict[str, Any]:
    """Run each way over one table from one disk, for its number of epochs."""
    path, held = work / "rows.arrow", len(rows) // SHARE
    cp.convert(rows, path, overwrite=True)
    cp.convert(rows.slice(0, 60), work / "few.arrow", overwrite=True)
    found = {}
    for way in NAMES:
        at, wrote = path, 0.0
        if way.startswith("BMF"):
            at, start = work / "blocks.arrow", time.perf_counter()
            compression = "zstd" if way == COMPRESSED else None
            cp.reshuffle(path, at, method="bmf", block=held, compression=compression, overwrite=True)
            wrote = time.perf_counter() - start
        epochs = known["ways"]["BMF" if way == COMPRESSED else way]["epochs"]
        found[way] = {"epochs": epochs, "wrote": wrote, "bytes": at.stat().st_size}
        if epochs is not None:
            found[way] |= child(at, way, known["inner"], epochs, work / "slow_disk.so", DISKS[disk])
    goal = known["ways"]["BMF"]["values"][-1]
    return {
        "table": known["table"],
        "stored": known["stored"],
        "disk": disk,
        "rows": len(rows),
        "goal": goal,
        "ways": found,
    }


def told(result: dict[str, Any]) -> str:
    """Return a line of the table: the costs of all ways."""
    cells = []
    for one in result["ways"].values():
        if one["epochs"] is None:
            cells.append("not in 30 epochs")
            continue
        also = f" + {one['wrote']:.2f}" if one["wrote"] else ""
        took = f"{one['seconds']:.2f}{also} s, {one['read'] / 1e6:.1f} MB, {one['memory'] / 1e6:.1f} MB"
        cells.append(f"{one['epochs']}: {took}")
    named = [result["table"], result["stored"], f"{result['rows']:,}", result["disk"], f"{result['goal']:.1e}"]
    return f"| {' | '.join([*named, *cells])} |"


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Draw the seconds, including those of writing blocks."""
    panels = {
        (f"{one['table']}, {one['stored']}", one["disk"]): {
            way: record["seconds"] + record["wrote"] if record["epochs"] is not None else 0.0
            for way, record in one["ways"].items()
        }
        for one in results
    }
    figures.bars(panels, path, up="seconds to the value of BMF, writing its blocks included; none: not in 30 epochs")


def main() -> None:
    """Run the requested parts; print the results, and save them if requested."""
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(alone(Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))))
        return
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--table", help="of these tables one alone")
    parser.add_argument("--stored", choices=list(STORED), help="one way of storing them")
    parser.add_argument("--disk", choices=list(DISKS), help="one disk")
    given = parser.parse_args()
    known = {(one["table"], one["stored"]): one for one in figures.latest("lirs")}
    results: list[dict[str, Any]] = []
    lines = figures.head(["table", "stored", "rows", "from", "value", *NAMES])
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="corgipile-lirs-") as folder:
        library = Path(folder) / "slow_disk.so"
        build = ["cc", "-O2", "-shared", "-fPIC", str(HERE / "slow_disk.c"), "-o", str(library), "-ldl", "-lpthread"]
        subprocess.run(build, check=True)
        for name, rows in tables(given.data, given.scale, given.table):
            for stored, sort in STORED.items():
                one = known.get((name, stored), {})
                if given.stored not in (None, stored):
                    continue
                if one.get("rows") != len(rows):
                    sys.exit(f"run lirs.py --table {name} --save first, with the same --scale")
                for disk in DISKS if given.disk is None else [given.disk]:
                    results.append(measure(one, sort(rows), disk, Path(folder)))
                    lines.append(told(results[-1]))
                    print(lines[-1], flush=True)
    if given.save:
        name = Path(__file__).stem
        lines, results = figures.joined(
            name, lines, results, lambda one: (one["table"], one["stored"], one["disk"]), told
        )
        draw(results, figures.save(name, results, lines))


if __name__ == "__main__":
    main()
