"""A kernel pass equals a Python thread's pass: the same visits and errors, and threads that end."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import PATIENCE

import corgipile as cp
from corgipile.errors import BadArgument, CorruptFile, ReadFailed
from corgipile.loader import prefetch
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.loader.prefetch import KernelPrefetch, StepPrefetch
from corgipile.loader.table_reader import TAKEN_BYTES
from corgipile.orders import BlockOnly, Blocks, CorgiPile, FullShuffle, Key, NoShuffle, Riffle, Shard
from corgipile.tables import MemoryTable

TASKS = Path("/proc/self/task")
KINDS = [NoShuffle(), BlockOnly(), CorgiPile(), Riffle(), Riffle(whole=True), Riffle(balance="label")]


def write(path, rows, piece=97):
    features = np.arange(3 * rows, dtype=np.float32)
    table = pa.table(
        {
            "features": pa.FixedSizeListArray.from_arrays(pa.array(features), 3),
            "label": pa.array((np.arange(rows) >= rows // 2).astype(np.int32)),
            "row": pa.array(np.arange(rows)),
        }
    )
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=piece)
    return str(path)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return {rows: write(folder / f"{rows}.arrow", rows) for rows in (1, 50, 1000, 3001)}


def seen(feeder, epoch, start=0):
    """The rows each step visits, by the contents of their slots."""
    found = []
    for visit in feeder.epoch(epoch, start):
        found.append(feeder.buffer.dense("row")[visit].tolist())
        assert np.array_equal(feeder.buffer.dense("features")[visit, 0], 3 * np.array(found[-1]))
    return found


def flat(steps):
    return list(chain.from_iterable(steps))


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(data=st.data())
def test_the_kernel_runs_what_python_runs(paths, monkeypatch, data):
    def draw(strategy):
        return data.draw(strategy)

    path = paths[draw(st.sampled_from(sorted(paths)))]
    block = draw(st.integers(1, 200))
    order = replace(draw(st.sampled_from(KINDS)), block=block, buffer=block * draw(st.integers(1, 12)))
    world = draw(st.integers(1, 4))
    chosen = {
        "seed": draw(st.integers(0, 99)),
        "prefetch": draw(st.integers(0, 3)),
        "shard": Shard(draw(st.integers(0, world - 1)), world, disjoint=draw(st.booleans())),
    }
    start, epoch = draw(st.integers(0, 5)), draw(st.integers(0, 3))
    results = []
    for general in (False, True):
        with monkeypatch.context() as patch, BufferedReader(path, order=order, **chosen) as feeder:
            if general:
                patch.setattr(prefetch, "KernelPrefetch", python_run)
            steps = [seen(feeder, e, s) for e, s in ((epoch, start), (epoch + 1, 0))]
            assert type(feeder._run) is (StepPrefetch if general else KernelPrefetch)
            results.append((steps, feeder.bytes_read))
    assert results[0] == results[1]


def python_run(order, blocks, key, start, row_reader, far, _stage):
    return StepPrefetch(order.steps(blocks, key, start), row_reader, row_reader._buffer, order, far, 1.0)


def test_narrow_rows_that_are_announced_count_with_their_steps():
    class Reader:
        announced = 0

        def hint(self, step):
            self.announced += len(step.into)

        def idle(self):
            pass

    def announced(row_bytes):
        reader, order = Reader(), FullShuffle(buffer=100).fit(10_000, 1.0, None)
        run = StepPrefetch(order.steps(Blocks(10_000, even=1), Key(0)), reader, None, order, 24_000, row_bytes)
        next(run._announced_steps())
        run.stop()
        return reader.announced

    assert announced(1.0) == 1100  # 25 bytes each; whole steps, including the next one
    assert announced(216.0) == 300


def test_an_order_with_steps_of_its_own_keeps_them(paths):
    class Backwards(NoShuffle):
        def steps(self, blocks, key, start=0):
            for step in super().steps(blocks, key, start):
                yield step._replace(visit=step.visit[::-1].copy())

    with BufferedReader(paths[50], order=Backwards(block=50, buffer=50)) as feeder:
        assert seen(feeder, 0) == [list(range(49, -1, -1))]


def threads(name=None):
    """Threads of this process, or those with a name, as the system lists them."""
    found = set()
    for task in TASKS.iterdir():
        with contextlib.suppress(OSError):  # the thread may end meanwhile
            if name in (None, (task / "comm").read_text().strip()):
                found.add(task.name)
    return found


@pytest.fixture
def readers():
    """Return a function that lists the reading threads started since."""
    known = threads("corgipile-read")  # threads of other tests
    return lambda: threads("corgipile-read") - known


@pytest.mark.skipif(not TASKS.exists(), reason="threads are listed on Linux only")
def test_threads_get_no_signals_but_their_own_faults(paths, readers):
    """A fault in a blocked thread ends Python silently; faulthandler prints its stack."""
    visits = BufferedReader(paths[3001], order=Riffle(block=20, buffer=200), prefetch=1).epoch(0)
    next(visits)
    (reader,) = readers()
    (line,) = [line for line in (TASKS / reader / "status").read_text().splitlines() if line.startswith("SigBlk")]
    blocked = int(line.split()[1], 16)
    visits.close()
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD:
        assert blocked >> number - 1 & 1
    for number in signal.SIGSEGV, signal.SIGBUS, signal.SIGILL:
        assert not blocked >> number - 1 & 1


@pytest.mark.skipif(not TASKS.exists(), reason="threads are listed on Linux only")
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_no_thread_outlives_its_iterator(paths, prefetch, readers):
    others = threads()
    for steps in (0, 1, 2, 5, None):
        feeder = BufferedReader(paths[3001], order=Riffle(block=20, buffer=200), prefetch=prefetch)
        visits = feeder.epoch(0)
        for done, _ in enumerate(visits):
            assert done > 5 or len(readers()) == (prefetch > 0)
            if done == steps:
                break
        visits.close()
        assert not readers()
        assert threads() <= others
    visits = BufferedReader(paths[3001], order=Riffle(block=20, buffer=200)).epoch(0)
    next(visits)
    assert readers()
    del visits
    assert not readers()
    feeder = BufferedReader(paths[3001], order=Riffle(block=20, buffer=200))
    visits = feeder.epoch(0)
    next(visits)
    feeder.close()
    assert not readers()
    with pytest.raises(BadArgument, match="this iteration has ended"):
        next(visits)


def test_visits_kept_by_the_consumer_stay_as_they_were(paths):
    with BufferedReader(paths[3001], order=Riffle(block=20, buffer=200)) as feeder:
        kept = list(feeder.epoch(0))
        again = [visit.copy() for visit in feeder.epoch(0)]
    assert all(np.array_equal(a, b) for a, b in zip(kept, again, strict=True))


def test_a_new_epoch_ends_the_one_under_way(paths):
    with BufferedReader(paths[1000], order=CorgiPile(block=20, buffer=100)) as feeder:
        first = feeder.epoch(0)
        next(first)
        assert sorted(flat(seen(feeder, 1))) == list(range(1000))
        with pytest.raises(BadArgument, match="this iteration has ended"):
            next(first)


def test_whoever_waits_in_another_thread_learns_of_the_end(paths):
    """Interrupts in the middle of an epoch at first, then at random moments."""
    said = []

    def consume(visits, begun, closed):
        try:
            for _ in visits:
                begun.set()
                closed.wait(PATIENCE)
        except BadArgument as error:
            said.append(str(error))
        else:
            said.append("to the end")

    for waits in (True, *[False] * 20):
        begun, closed = threading.Event(), threading.Event()
        with BufferedReader(paths[3001], order=NoShuffle(block=1, buffer=1)) as feeder:
            other = threading.Thread(target=consume, args=(feeder.epoch(0), begun, closed))
            if not waits:
                closed.set()
            other.start()
            begun.wait(PATIENCE if waits else 0.001)
        closed.set()
        other.join(PATIENCE)
        assert not other.is_alive()
    assert len(said) == 21
    assert "this iteration has ended" in said[0]


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_a_file_cut_short_during_a_pass_is_named(tmp_path, prefetch, readers):
    path = write(tmp_path / "t.arrow", 3000)
    with BufferedReader(path, order=NoShuffle(block=10, buffer=10), prefetch=prefetch) as feeder:
        visits = feeder.epoch(0)
        done = sum(len(next(visits)) for _ in range(20))
        os.truncate(path, Path(path).stat().st_size // 2)
        with pytest.raises(CorruptFile, match=r"t\.arrow ended while row \d+ was read") as caught:
            done += sum(map(len, visits))
        named = int(str(caught.value).split(" row ")[1].split()[0])
        assert done <= named < 3000
        assert list(visits) == []
    assert not readers()


def test_an_error_of_reading_is_named_and_the_next_epoch_can_do_better(tmp_path, readers):
    path = write(tmp_path / "t.arrow", 3000)
    with BufferedReader(path, order=Riffle(block=10, buffer=100)) as feeder:
        assert len(seen(feeder, 0)) > 10
        visits = feeder.epoch(1)
        next(visits)
        fd = feeder._row_reader._fds[0]
        kept, null = os.dup(fd), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, fd)
        with pytest.raises(ReadFailed, match=r"reading .*t\.arrow failed at row \d+: .* \(E") as caught:
            list(visits)
        assert caught.value.errno in (errno.EBADF, errno.ESPIPE)
        os.dup2(kept, fd)
        assert sorted(flat(seen(feeder, 1))) == list(range(3000))
        os.close(kept)
        os.close(null)
    assert not readers()


def test_many_epochs_each_every_row_once(paths):
    with BufferedReader(paths[1000], order=Riffle(block=10, buffer=60)) as feeder:
        orders = [tuple(flat(seen(feeder, epoch))) for epoch in range(200)]
    assert all(sorted(order) == list(range(1000)) for order in orders)
    assert len(set(orders)) == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_begins_its_own_pass(paths):
    script = (
        "import os, sys, corgipile as cp\n"
        "from corgipile.loader import BufferedReader\n"
        "feeder = BufferedReader(sys.argv[1], order=cp.orders.Riffle(block=10, buffer=60))\n"
        "visits = feeder.epoch(0)\n"
        "next(visits)\n"
        "if os.fork():\n"
        "    print(sum(map(len, visits)) > 900, os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "else:\n"
        "    try:\n"
        "        next(visits)\n"
        "    except cp.errors.BadArgument as error:\n"
        "        assert 'before the process was forked' in str(error)\n"
        "    assert sum(map(len, feeder.epoch(0))) == 1000\n"
        "    feeder.close()\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, paths[1000]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["True", "0"], done.stderr


def test_ctrl_c_ends_a_pass(paths, readers):
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])

    def endless():
        timer.start()
        while True:
            yield from feeder.epoch(0)

    with BufferedReader(paths[3001], order=NoShuffle(block=10, buffer=10)) as feeder:
        with pytest.raises(KeyboardInterrupt):
            deque(endless(), maxlen=0)
        timer.join()
    assert not readers()


def test_a_pass_ends_with_the_interpreter(paths):
    script = (
        "import sys, corgipile as cp\n"
        "visits = iter(cp.Loader(sys.argv[1], batch_size=10, order=cp.orders.Riffle(block=20, buffer=200)))\n"
        "next(visits)\n"
        "keep = [visits]; keep.append(keep)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, paths[3001]], capture_output=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_scattered_rows_are_asked_for_a_few_at_a_time():
    asked = []

    class Noting(MemoryTable):
        def take(self, rows, columns=None):
            batch = super().take(rows, columns)
            asked.append(batch.nbytes)
            assert (np.diff(rows) > 0).all()  # neighbours are read together
            return batch

    rows = 12_000
    table = Noting(pa.table({"data": [b"%06d" % row * 200 for row in range(rows)], "row": range(rows)}))
    with BufferedReader(table, order=FullShuffle(), memory="12MB") as feeder:
        found = flat(feeder.buffer.dense("row")[visit].tolist() for visit in feeder.epoch(0))
        assert sorted(found) == list(range(rows))
        assert max(asked) <= 1.1 * TAKEN_BYTES < feeder.slots * feeder.row_bytes / 3


@pytest.mark.parametrize("rows", [{"x": range(20_000)}, {"x": [[float(i)] * 9000 for i in range(60)]}])
def test_a_program_may_end_while_rows_are_read(rows, tmp_path):
    cp.convert(pa.table(rows), tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    code = f"import corgipile as cp; batches = iter(cp.Loader({path!r}, batch_size=8)); next(batches)"
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert (done.returncode, done.stderr) == (0, "")
