"""Commands stopped by signals at any moment, and their cleanup."""

import os
import signal
import subprocess
import sys
import time

import pytest
import typer.core
from patience import PATIENCE

import corgipile as cp
from corgipile import cli, scratch
from corgipile.cli.signals import Stopped, stoppable

COMMAND = [sys.executable, "-m", "corgipile"]


@pytest.fixture
def slow(tmp_path):
    """Return the words of a slow conversion."""
    source = tmp_path / "a.csv"
    source.write_text("".join(f"{i},{i % 7}\n" for i in range(600_000)))
    return ["convert", str(source), str(tmp_path / "o.arrow"), "--record-batch", "1"]


def _listening():
    """Restore signals that the test runner may ignore."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def begun(words, folder, pattern=".o.arrow*"):
    """Start a command in a new process and wait until it writes."""
    process = subprocess.Popen(
        [*COMMAND, *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=_listening,  # noqa: PLW1509 - no threads here
    )
    while not list(folder.glob(pattern)):
        assert process.poll() is None
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b"terminated"), (signal.SIGHUP, 129, b"hung up")],
)
def test_signals_leave_nothing(slow, tmp_path, number, code, word):
    process = begun(slow, tmp_path)
    process.send_signal(number)
    said = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == code
    assert said.splitlines()[-1] == b"corgipile: " + word
    assert b"Traceback" not in said
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_what_a_killed_run_left_goes_with_the_next(slow, tmp_path, capsys):
    process = begun(slow, tmp_path)
    process.kill()
    process.communicate(timeout=PATIENCE)
    (left,) = tmp_path.glob(".o.arrow*")
    alive = begun([*slow[:2], str(tmp_path / "o2.arrow"), *slow[3:]], tmp_path, ".o2.arrow*")
    assert not left.exists()
    assert cli.main(["convert", slow[1], str(tmp_path / "p.arrow"), "--quiet"]) == 0
    assert list(tmp_path.glob(".o2.arrow*"))  # its process is alive, so its file is in use
    alive.terminate()
    alive.communicate()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.csv", "p.arrow"]
    capsys.readouterr()


def test_a_killed_comparison_leaves_its_copy_to_the_next(higgs, tmp_path, monkeypatch):
    room = tmp_path / scratch.name_for("compare", "room")
    room.mkdir()
    (room / "shuffled.arrow").write_bytes(bytes(1000))
    cp.compare(higgs[0], epochs=1, order=["shuffle_once"], folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_ignored_signal_stays_ignored(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert cli.main(["--version"]) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupted_import_shows_no_traceback():
    script = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == WORD: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "import corgipile_command\n"
        "sys.exit(corgipile_command.main())\n"
    )
    for module in ("corgipile", "numpy", "corgipile.tables.formats.arrow.writer", "corgipile.cli.app", "typer"):
        code = script.replace("WORD", repr(module))
        words = [sys.executable, "-c", code, "info", "none.arrow"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode in (-signal.SIGINT, 130), module
        assert "Traceback" not in done.stderr, module


@pytest.mark.parametrize("words", [["info", "t.arrow"], ["info", "t.arrow", "--json"]])
@pytest.mark.parametrize(("number", "word"), [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")])
def test_a_signal_while_words_are_read_is_told(words, number, word, monkeypatch, capsys):
    def stopped(*_, **__):
        os.kill(os.getpid(), number)
        time.sleep(5)

    monkeypatch.setattr(typer.core.TyperGroup, "make_context", stopped)
    assert cli.main(words) == 128 + number
    assert capsys.readouterr().err == f"corgipile: {word}\n"


def test_a_signal_that_comes_while_an_object_is_cleared_away_comes_again(capfd):
    class Held:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)

    def wait():
        held = Held()
        del held
        time.sleep(30)

    with pytest.raises(Stopped), stoppable():
        wait()
    assert "Traceback" not in capfd.readouterr().err
