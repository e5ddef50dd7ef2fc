"""Row exchange among ranks: exact balance, cost for the running epoch, and throughput."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from common import Bench, alone, check, median

import corgipile as cp
from corgipile.exchange import LocalPart, stage
from corgipile.orders import Exchange
from corgipile.torch import PartialExchange

WIDTH, STEP = 25_000, 0.05  # numbers of a row: 100 KB; seconds of a step
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112, S108 - rows in memory, where there is


def ranks(work: Callable[..., Any], world: int, folder: Path, *args: Any) -> list[Any]:
    """Run a function in the processes of one group; return their results."""
    spawn = multiprocessing.get_context("spawn")
    meet = folder / f"meet-{os.urandom(4).hex()}"
    found = [spawn.Process(target=_rank, args=(work, meet, rank, world, *args)) for rank in range(world)]
    for one in found:
        one.start()
    for one in found:
        one.join()
    check(all(one.exitcode == 0 for one in found), f"ranks ended with {[one.exitcode for one in found]}")
    return [json.loads(meet.with_name(f"{meet.name}-{rank}").read_text()) for rank in range(world)]


def _rank(work: Callable[..., Any], meet: Path, rank: int, world: int, *args: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world)
    meet.with_name(f"{meet.name}-{rank}").write_text(json.dumps(work(rank, world, *args)))
    dist.barrier()
    dist.destroy_process_group()


def _part(folder: Path, rank: int, world: int, rows: int) -> LocalPart:
    values = np.repeat(np.arange(rows, dtype=np.float32), WIDTH)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)})
    return stage(table, folder / f"part-{rank}-{os.urandom(4).hex()}", rank, world, unit=1)


def steps(rank: int, world: int, folder: Path, rows: int, epochs: int) -> list[list[float]]:
    """Time the steps of epochs with and without an exchange, in turn; each step waits for all ranks."""
    exchange = PartialExchange(_part(folder, rank, world, rows), 0.1)
    seconds: list[list[float]] = [[], []]
    for epoch in range(2 * epochs):
        loader = cp.Loader(exchange.table, batch_size=8, memory="16MB", order="riffle", format="torch")
        loader.set_epoch(exchange.epoch)
        if epoch % 2:
            exchange.begin()
        start = time.perf_counter()
        for _ in loader:
            time.sleep(STEP)  # a device computes, and this process waits for it
            dist.all_reduce(torch.zeros(1000))
        seconds[epoch % 2].append((time.perf_counter() - start) / len(loader))
        if epoch % 2:
            exchange.finish()
    return seconds


def throughput(rank: int, world: int, folder: Path, rows: int, repeats: int) -> list[list[float]]:
    """Time an exchange of half the rows, and all_to_all of equally many bytes, with and without disk."""
    exchange = PartialExchange(_part(folder, rank, world, rows), 0.5)
    total = exchange.plan.moved(0) * 4 * WIDTH
    plain = dist.new_group(list(range(world)), backend="gloo")
    files = [os.open(folder / f"plain-{rank}-{which}", os.O_RDWR | os.O_CREAT) for which in "ab"]
    for file in files:
        os.posix_fallocate(file, 0, total)
    seconds: list[list[float]] = [[], [], []]
    for _ in range(repeats):
        for which, run in enumerate((_exchanged, _plain, _plain)):
            dist.barrier()
            start = time.perf_counter()
            run(exchange, rank, world, total, plain, files if which == 2 else [])
            seconds[which].append(time.perf_counter() - start)
    mine = exchange.table.read(0, len(exchange.table))["x"].flatten().to_numpy().reshape(-1, WIDTH)[:, 0]
    owned = exchange.plan.owned(rank, exchange.epoch)
    check(sorted(mine.astype(int).tolist()) == sorted(owned.tolist()), "ranks have other rows than the plan says")
    return seconds


def _exchanged(exchange: PartialExchange, *_: Any) -> None:
    exchange.begin()
    exchange.finish()


def _plain(_: Any, rank: int, world: int, total: int, group: Any, files: list[int]) -> None:
    """Swap equally many bytes; with files, read them from one and write them to the other."""
    for first in range(0, total, 4 << 20):
        count = min(4 << 20, total - first)
        sizes = [0 if peer == rank else count // (world - 1) for peer in range(world)]
        out, into = torch.ones(sum(sizes), dtype=torch.uint8), torch.empty(sum(sizes), dtype=torch.uint8)
        if files:
            os.preadv(files[0], [out.numpy()], first)
        dist.all_to_all_single(into, out, sizes, sizes, group=group)
        if files:
            os.pwrite(files[1], into.numpy(), first)


def balance(bench: Bench) -> None:
    """Count what each rank sends and receives, for worlds of 2 to 64 ranks, and simulate 4,096 of them."""
    wrong = 0
    for world in range(2, 65):
        for fraction in (0.1, 0.3, 1.0):
            plan = Exchange(world * 20 + world // 3, world, fraction)
            for epoch in range(3):
                sent = np.array([plan.peers(rank, epoch)[0] for rank in range(world)])
                told = np.bincount(sent.ravel(), minlength=world)
                wrong += int((told != plan.moved(epoch)).sum() + (sent == np.arange(world)[:, None]).sum())
    bench.report("balance: ranks that receive other than they send, or to themselves", wrong, "ranks", "<= 0")
    code = "import resource, sys; from corgipile import cli; cli.main(sys.argv[1:]); "
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    start = time.perf_counter()
    asked = ["simulate", "--ranks", "4096", "--rows", "1e12", "--epochs", "100"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, check=True)
    bench.report("simulate: 4,096 ranks, 10^12 rows, 100 epochs", time.perf_counter() - start, "s", "<= 60")
    bench.report("simulate: peak memory", int(done.stdout.split()[-1]) / 1e6, "GB", "<= 2")


def step_time(bench: Bench) -> None:
    """Compare the time of steps."""
    found = ranks(steps, 4, bench.work, bench.work, bench.pick(1600, 480), bench.pick(5, 2))
    off, on = (median([median(one[which]) for one in found]) for which in (0, 1))
    note = f"{on * 1e3:.1f} ms against {off * 1e3:.1f} ms, 4 ranks, Q = 0.1, rows of 100 KB, {os.cpu_count()} cores"
    bench.report("step: with the exchange over without", on / off, "x", "<= 1.05", note)


def speed(bench: Bench) -> None:
    """Compare with gloo's own all_to_all."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        rows = bench.pick(4000, 1600)
        found = ranks(throughput, 2, Path(folder), Path(folder), rows, bench.few)
    ours, plain, files = (median(found[0][which]) for which in range(3))
    size = rows // 4 * 4 * WIDTH / 1e6
    note = f"{size / ours:.0f} MB/s against {size / plain:.0f} MB/s a rank, parts in memory, {os.cpu_count()} cores"
    bench.report("exchange: throughput over a plain all_to_all, 2 ranks", plain / ours, "x", ">= 0.7", note)
    note = f"{size / ours:.0f} MB/s against {size / files:.0f} MB/s a rank: without checksums, one thing after another"
    bench.report("exchange: throughput over that between a read and a write of the bytes", files / ours, "x", "", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("balance", balance)
    bench.part("step", step_time)
    bench.part("speed", speed)


if __name__ == "__main__":
    alone("exchange", main)
