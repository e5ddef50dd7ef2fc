"""Several processes on one cache, and those that are killed amid it."""

import os
import subprocess
import sys
from pathlib import Path

from fake_ranges import FakeRanges, read, true
from patience import PATIENCE

from corgipile.stores.cache import Cached

MB = 1 << 20
SUPPORT = str(Path(__file__).resolve().parents[1] / "support")
BEGIN = f"""
import sys, time
sys.path.insert(0, {SUPPORT!r})
import numpy as np
from fake_ranges import FakeRanges, read, true
from corgipile.stores.cache import Cached
folder, seed = sys.argv[1], int(sys.argv[2])
draw = np.random.default_rng(seed)
"""
TWO = """
fake = FakeRanges(6 << 20, delay=0.002)
cached = Cached(fake, folder, "16MB")
print("ready", flush=True)
sys.stdin.readline()
for block in draw.permutation(48).tolist():
    span = [(block << 17, 1 << 17)]
    assert read(cached, span) == true(fake, span)
print(fake.fetched, flush=True)
"""
KILLED = """
import os, signal
from pathlib import Path
from patience import wait_for
def work(draw):
    while True:
        fake = FakeRanges(1 << 20, str(draw.integers(0, 6)))
        cached = Cached(fake, folder, "4MB")
        spans = [(int(at), 70_000) for at in draw.integers(0, fake.size - 70_000, 3)]
        if read(cached, spans) != true(fake, spans):
            os._exit(1)
print("ready", flush=True)
for number in range(8):
    children = []
    for i in range(2):
        children.append(os.fork())
        if not children[-1]:
            work(np.random.default_rng([seed, number, i]))
    time.sleep(draw.uniform(0.02, 0.2))
    wait_for(lambda: len([*Path(folder).glob("*/*-*")]) > min(number, 3))
    for child in children:
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""


def start(code, folder, seed):
    command = [sys.executable, "-c", BEGIN + code, str(folder), str(seed)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_fetch_each_byte_at_most_twice(tmp_path):
    processes = [start(TWO, tmp_path, seed) for seed in range(2)]
    for process in processes:
        print(file=process.stdin, flush=True)
    fetched = [int(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert 6 * MB <= sum(fetched) < 1.5 * 6 * MB  # most of it once: each finds what the other one has read
    fake = FakeRanges(6 * MB)
    assert read(Cached(fake, tmp_path, "16MB"), [(0, 6 * MB)]) == true(fake, [(0, 6 * MB)])
    assert fake.calls == []


def test_processes_killed_at_any_moment_leave_a_sound_cache(tmp_path):
    process = start(KILLED, tmp_path, 1)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    ours = tmp_path / f"corgipile-{os.geteuid()}"
    assert len([*ours.glob("*-*")]) > 3
    assert sum(path.stat().st_blocks * 512 for path in ours.iterdir()) <= 4 * MB
    for name in range(6):
        fake = FakeRanges(MB, str(name))
        assert read(Cached(fake, tmp_path, "4MB"), [(0, MB)]) == true(fake, [(0, MB)])
    left = [path.name for path in ours.iterdir() if path.name.startswith(".")]
    assert len(left) == 1  # this process's own note: those of the killed went
