"""What the ranks of the tests of an exchange run: each writes what it saw as JSON."""

import datetime
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch.distributed as dist

from corgipile.exchange import LocalPart
from corgipile.orders import Exchange
from corgipile.torch import PartialExchange
from corgipile.torch.peers import Peers

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def begin_group():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=40))


def numbers(rows):
    """A table of numbers, of which one tells all others."""
    row = np.arange(rows)
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(row, 2).astype(np.float32)), 2)
    return pa.table({"row": row, "pair": pairs, "small": (row % 251).astype(np.uint8)})


def texts(rows):
    row = np.arange(rows)
    return pa.table({"row": row, "text": [None if at % 5 == 0 else "x" * (at % 40) for at in row.tolist()]})


def one_byte(rows):
    return pa.table({"row": np.arange(rows).astype(np.uint8)})


def wide(rows):
    values = np.repeat(np.arange(rows), 1 << 18).astype(np.int32)
    return pa.table({"row": pa.FixedSizeListArray.from_arrays(pa.array(values), 1 << 18)})


CASES = [  # table, rows, unit, fraction, epochs
    (numbers, 103, 1, 0.3, 4),
    (numbers, 1000, 8, 0.1, 3),
    (numbers, 40, 1, 0, 2),
    (numbers, 37, 1, 1, 3),
    (texts, 203, 3, 0.5, 3),
    (texts, 101, 1, 1, 2),
    (one_byte, 200, 1, 0.25, 3),
    (wide, 8, 1, 0.5, 2),
]


def seen(table):
    """Return the numbers of the rows, having compared the other columns with what they tell."""
    rows = table.read(0, len(table))
    column = rows.column("row")
    if pa.types.is_fixed_size_list(column.type):
        values = np.asarray(column.flatten()).reshape(len(rows), -1)
        assert (values == values[:, :1]).all()
        return values[:, 0].tolist()
    row = column.to_pylist()
    if "pair" in rows.schema.names:
        assert [[at, at] for at in row] == rows.column("pair").to_pylist()
        assert [at % 251 for at in row] == rows.column("small").to_pylist()
    if "text" in rows.schema.names:
        assert rows.column("text").to_pylist() == [None if at % 5 == 0 else "x" * (at % 40) for at in row]
    return row


def run_cases(folder):
    """Run all cases; compare each epoch with the plan, and the bytes on disk with the bound."""
    found = []
    for number, (make, rows, unit, fraction, epochs) in enumerate(CASES):
        part = LocalPart.create(make(rows), f"{folder}/{number}-{RANK}", RANK, WORLD, unit=unit)
        exchange = PartialExchange(part, fraction, seed=number, chunk="2KB", timeout=20)
        plan = Exchange(rows // unit, WORLD, fraction, number)
        assert exchange.plan == plan
        passes = []
        for epoch in range(epochs + 1):
            assert exchange.epoch == epoch
            passes.append(seen(exchange.table))
            units = {at * unit + inner for at in plan.owned(RANK, epoch).tolist() for inner in range(unit)}
            assert units <= set(passes[-1])
            if epoch < epochs:
                exchange.begin()
                assert sorted(seen(exchange.table)) == sorted(passes[-1])  # while others' rows arrive
                exchange.finish()
        kept = Path(f"{folder}/{number}-{RANK}/slots")
        if kept.exists():
            most = plan.size(RANK) + plan.most_moved
            assert kept.stat().st_size <= most * part.places.unit_bytes + part.said["rest"] * part.places.unit_bytes
        else:
            assert len(list((kept.parent / "units").iterdir())) <= plan.size(RANK) + plan.most_moved + 1
        found.append(passes)
    return found


def run_until_killed(folder, victim, swaps, timeout):
    """Exchange until a rank is killed at some message; say how it ended, and how long that took."""
    path = Path(f"{folder}/part-{RANK}")
    part = LocalPart(path) if (path / "manifest.json").exists() else LocalPart.create(numbers(301), path, RANK, WORLD, unit=1)
    exchange = PartialExchange(part, 0.4, chunk="1KB", timeout=timeout)
    began = exchange.epoch
    count, swap = [0], Peers.swap

    def counted(self, *args):
        count[0] += 1
        if RANK == victim and count[0] > swaps:
            os.kill(os.getpid(), signal.SIGKILL)
        swap(self, *args)

    Peers.swap = counted
    start = time.monotonic()
    try:
        for _ in range(3):
            exchange.begin()
            exchange.finish()
            start = time.monotonic()
    except ConnectionError as error:
        return {"began": began, "epoch": exchange.epoch, "rows": seen(exchange.table), "error": str(error),
                "seconds": time.monotonic() - start}  # fmt: skip
    return {"began": began, "epoch": exchange.epoch, "rows": seen(exchange.table), "error": ""}


def run_bad(folder, how, timeout):
    """Let rank 1 send what cannot be, or have no room; say how it ended."""
    part = LocalPart.create(numbers(100) if how != "full" else texts(400), f"{folder}/{how}-{RANK}", RANK, WORLD, unit=1)
    before = seen(part.table)
    exchange = PartialExchange(part, 0.5, timeout=timeout)
    if RANK == 1 and how == "full":
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    elif RANK == 1:
        note = exchange._note

        def bad(lengths, data, first):
            told = note(lengths, data, first)
            told[{"garbage": 0, "sum": 4, "length": 7, "epoch": 1}[how]] += 1
            return told

        exchange._note = bad
    start = time.monotonic()
    exchange.begin()
    try:
        exchange.finish()
    except OSError as error:
        text = f"{type(error).__name__}: {error}"
        return {"error": text, "seconds": time.monotonic() - start, "same": seen(exchange.table) == before}
    return {"error": ""}


if __name__ == "__main__":
    out, what, *args = sys.argv[1:]
    begin_group()
    result = {"cases": run_cases, "killed": run_until_killed, "bad": run_bad}[what](
        args[0], *[int(arg) if arg.lstrip("-").isdigit() else arg for arg in args[1:]]
    )
    Path(out).write_text(json.dumps(result))
    if what == "cases":
        dist.barrier()
        dist.destroy_process_group()
    else:
        os._exit(0)  # a group of which a rank is gone cannot be left in peace
