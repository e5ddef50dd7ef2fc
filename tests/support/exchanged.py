"""Work of the ranks in tests of an exchange, in forks of a server process that has imported everything."""

import json
import multiprocessing
import os
import resource
import signal
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch.distributed as dist
from patience import PATIENCE, wait_for

from corgipile.exchange import LocalPart, stage
from corgipile.orders import Exchange
from corgipile.torch import PartialExchange
from corgipile.torch.peers import Peers


def run(what, folder, world, *args):
    """Run a function in each of ``world`` processes; return their results, None for a killed process."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["exchanged"])
    meet = folder / f"meet-{os.urandom(4).hex()}"
    ranks = [processes.Process(target=_rank, args=(what, meet, rank, world, folder, *args)) for rank in range(world)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(PATIENCE)
    late = [one.kill() for one in ranks if one.is_alive()]
    assert not late, "ranks hang"
    outs = [meet.with_name(f"{meet.name}-{rank}") for rank in range(world)]
    return [json.loads(out.read_text()) if out.exists() else None for out in outs]


def _rank(what, meet, rank, world, *args):
    late = timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world, timeout=late)
    meet.with_name(f"{meet.name}-{rank}").write_text(json.dumps(what(rank, world, *args)))
    os._exit(0)  # a group cannot shut down once a rank has died


def numbers(rows):
    """A table whose columns follow from the row number."""
    row = np.arange(rows)
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(row, 2).astype(np.float32)), 2)
    return pa.table({"row": row, "pair": pairs, "small": (row % 251).astype(np.uint8)})


def texts(rows):
    row = np.arange(rows)
    return pa.table({"row": row, "text": [None if at % 5 == 0 else "x" * (at % 40) for at in row.tolist()]})


def one_byte(rows):
    return pa.table({"row": np.arange(rows).astype(np.uint8)})


def wide(rows, width=1 << 18):
    values = np.repeat(np.arange(rows, dtype=np.int32), width)
    return pa.table({"row": pa.FixedSizeListArray.from_arrays(pa.array(values), width)})


def huge(rows):
    """Rows of 64 MB."""
    return wide(rows, 1 << 24)


CASES = [  # table, rows, unit, fraction, epochs
    (numbers, 103, 1, 0.3, 4),
    (numbers, 1000, 8, 0.1, 3),
    (numbers, 40, 1, 0, 2),
    (numbers, 37, 1, 1, 3),
    (texts, 203, 3, 0.5, 3),
    (texts, 101, 1, 1, 2),
    (one_byte, 200, 1, 0.25, 3),
    (wide, 24, 1, 0.5, 2),
]
HUGE = [(huge, 4, 1, 0.5, 1)]


def seen(table):
    """Check all columns against the row numbers; return these."""
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


def run_cases(rank, world, folder, cases=CASES):
    """Run all cases; compare each epoch with the plan, and the bytes on disk with the bound."""
    found = []
    for number, (make, rows, unit, fraction, epochs) in enumerate(cases):
        part = stage(make(rows), f"{folder}/{number}-{rank}", rank, world, unit=unit)
        exchange = PartialExchange(part, fraction, seed=number, chunk="2KB", timeout=PATIENCE)
        plan = Exchange(rows // unit, world, fraction, number)
        assert exchange.plan == plan
        passes = []
        for epoch in range(epochs + 1):
            assert exchange.epoch == epoch
            passes.append(seen(exchange.table))
            units = {at * unit + inner for at in plan.owned(rank, epoch).tolist() for inner in range(unit)}
            assert units <= set(passes[-1])
            if epoch < epochs:
                exchange.begin()
                assert sorted(seen(exchange.table)) == sorted(passes[-1])  # while others' rows arrive
                exchange.finish()
        kept = Path(f"{folder}/{number}-{rank}/slots")
        if kept.exists():
            most = plan.size(rank) + plan.max_moved
            assert kept.stat().st_size <= most * part.places.unit_bytes + part.header["rest"] * part.places.unit_bytes
        else:
            assert len(list((kept.parent / "units").iterdir())) <= plan.size(rank) + plan.max_moved + 1
        found.append(passes)
    return found


def run_until_killed(rank, world, folder, victim, swaps):
    """Exchange until a rank is killed at some message; return the error and the seconds until it.

    A rank that has failed stays until all others have, so that they do not report its end instead.
    """
    path = Path(f"{folder}/part-{rank}")
    part = LocalPart(path) if (path / "manifest.json").exists() else stage(numbers(301), path, rank, world, unit=1)
    exchange = PartialExchange(part, 0.4, chunk=256, timeout=60)
    began = exchange.epoch
    count, swap = [0], Peers.swap

    def counted(self, *args):
        count[0] += 1
        if rank == victim and count[0] > swaps:
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
        seconds = time.monotonic() - start
        (folder / f"heard-{rank}").touch()
        wait_for(lambda: len([*folder.glob("heard-*")]) == world - 1)
        return {"began": began, "epoch": exchange.epoch, "rows": seen(exchange.table), "error": str(error),
                "seconds": seconds}  # fmt: skip
    return {"began": began, "epoch": exchange.epoch, "rows": seen(exchange.table), "error": ""}


def run_bad(rank, world, folder, how):
    """Let rank 1 send invalid messages, hang until rank 0 has ended, or run out of space; return the outcome."""
    table = texts(400) if how == "full" else numbers(100)
    part = stage(table, f"{folder}/{how}-{rank}", rank, world, unit=1)
    before = seen(part.table) if how != "disk" else []
    exchange = PartialExchange(part, 0.5, timeout=PATIENCE)
    ended = folder / f"ended-{how}"
    if rank == 1 and how == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    elif rank == 1 and how == "silent":
        exchange._read = lambda *_: wait_for(ended.exists)
    elif how == "silent":
        exchange._peers.timeout = 1
    elif rank == 1 and how == "disk":
        data = np.fromfile(f"{part.folder}/slots", np.uint8)
        data[:: part.places.unit_bytes] ^= 8  # a bit of each unit
        data.tofile(f"{part.folder}/slots")
    elif rank == 1:
        note, at = exchange._header, {"garbage": 0, "epoch": 1, "sum": 5, "length": 4}[how]

        def bad(*args):
            told = note(*args).clone()
            told[at] += 1
            return told

        exchange._header = bad
    start = time.monotonic()
    exchange.begin()
    try:
        exchange.finish()
    except OSError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        text = f"{type(error).__name__}: {error}"
        ended.touch()
        return {
            "error": text,
            "seconds": time.monotonic() - start,
            "same": how == "disk" or seen(exchange.table) == before,
        }
    except AttributeError as error:  # of rank 1, which was silent and has nothing
        return {"error": str(error)}
    return {"error": ""}


def run_restarts(rank, world, folder):
    """Stop between steps, roll back, change settings; return the outcomes."""
    path = f"{folder}/part-{rank}"
    exchange = PartialExchange(stage(numbers(60), path, rank, world, unit=1), 0.5, seed=3)
    passes, states = [], []
    for _ in range(3):
        passes.append(seen(exchange.table))
        states.append(exchange.state_dict())
        exchange.begin()
        exchange.finish()
    exchange.load_state_dict(json.loads(json.dumps(states[2])))  # a training that kept no later state
    back = seen(exchange.table) == passes[2]
    other = PartialExchange(LocalPart(path), 0.5, seed=3)
    dist.barrier()
    again = [other.epoch]  # rolled-back ranks can continue
    if rank == 0:
        other._part.commit()  # one took the last step, and the others were stopped before it
    dist.barrier()
    other = PartialExchange(LocalPart(path), 0.5, seed=3)
    again.append(other.epoch)
    errors = []
    for make in (
        lambda: PartialExchange(LocalPart(path), 0.5, seed=3 + rank),
        lambda: PartialExchange(LocalPart(path), 0.5, seed=3).load_state_dict(states[0]),
        lambda: PartialExchange(LocalPart(path), 0.5, seed=4).load_state_dict(states[0]),
        lambda: PartialExchange(LocalPart(f"{folder}/part-{1 - rank}"), 0.5),
    ):
        try:
            make()
        except ValueError as error:
            errors.append(f"{type(error).__name__}: {error}")
        dist.barrier()
    return {"back": back, "epochs": again, "errors": errors, "state": states[2]}
