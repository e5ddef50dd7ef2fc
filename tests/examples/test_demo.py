"""The demonstration runs on little data: four orders, one conclusion, a report."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def test_demo(tmp_path):
    words = [sys.executable, DEMO, "--rows", "20000", "--epochs", "1", "--memory", "128KB"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    names = [line.split(" ")[0] for line in done.stdout.splitlines()]
    orders = ["no_shuffle", "sliding_window", "balanced", "shuffle_once"]
    assert [name for name in names if name in orders] == orders
    answer = " ".join(done.stdout.partition("Why not shuffle once?")[2].split())
    assert answer.startswith("It writes a second copy")
    assert " The copy pays " in answer
    assert (tmp_path / "build" / "demo.html").read_text().startswith("<!DOCTYPE html>")
