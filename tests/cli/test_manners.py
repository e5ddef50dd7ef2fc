"""How commands behave: stopped, without room to write, on narrow terminals, asked for help."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer.core
from patience import PATIENCE

import corgipile as cp
from corgipile import bars, cli, scratch
from corgipile.cli import console
from corgipile.cli.signals import Stopped, stoppable
from corgipile.datasets import higgs_like

COMMAND = [sys.executable, "-m", "corgipile"]


@pytest.fixture(scope="module")
def higgs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manners")
    higgs_like(folder / "t.arrow", 20_000, test=folder / "test.arrow", test_rows=2000)
    return str(folder / "t.arrow"), str(folder / "test.arrow")


@pytest.fixture
def slow(tmp_path):
    """A conversion that takes a while."""
    source = tmp_path / "a.csv"
    source.write_text("".join(f"{i},{i % 7}\n" for i in range(600_000)))
    return ["convert", str(source), str(tmp_path / "o.arrow"), "--record-batch", "1"]


def _listening():
    """Heed what whoever runs the tests may have had ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def begun(words, folder, pattern=".o.arrow*"):
    """Start a command in a process of its own and wait until it writes."""
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
    assert list(tmp_path.glob(".o2.arrow*"))  # it lives: its file is no leftover
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
    for module in ("corgipile", "numpy", "corgipile.tables.arrow.writer", "corgipile.cli.app", "typer"):
        code = script.replace("WORD", repr(module))
        words = [sys.executable, "-c", code, "info", "none.arrow"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode in (-signal.SIGINT, 130), module
        assert "Traceback" not in done.stderr, module


def writers(higgs, folder):
    """Return commands that write files in a folder."""
    model = str(folder / "m.safetensors")
    table = higgs[0]
    return [
        ["train", table, "--epochs", "1", "--save", model],
        ["convert", table, str(folder / "c.arrow")],
        ["reshuffle", table, str(folder / "r.arrow"), "--memory", "1M"],
        ["reshuffle", table, str(folder / "r.arrow")],
    ]


def test_folders_that_are_not_there_and_devices(higgs, tmp_path, capsys):
    for words in writers(higgs, tmp_path / "no"):
        assert cli.main([*words, "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["type"] == "WriteFailed"
        assert "make it first" in error["message"]
    for device in ("/dev/full", "/dev/null"):
        for words in (
            ["train", higgs[0], "--save", device],
            ["convert", higgs[0], device],
            ["reshuffle", higgs[0], device],
        ):
            assert cli.main([*words, "--overwrite"]) == 2
            assert "device" in capsys.readouterr().err
            assert Path(device).is_char_device()


MOUNTED = """
set -e
mount -t tmpfs -o size=256k none {room}
{before}
cd {room}
set +e
{command}
echo code $?
ls -A {room}
"""


@pytest.mark.parametrize("before", ["true", "mount -o remount,ro {room}"], ids=["full", "read-only"])
def test_full_and_read_only_file_systems(higgs, tmp_path, before):
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    room = tmp_path / "room"
    room.mkdir()
    trial = f"mount -t tmpfs none {room}"
    if subprocess.run([*namespace, trial], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    big = tmp_path / "wide.safetensors"
    cp.train(higgs[0], epochs=1, save=big)
    predict = ["predict", str(big), higgs[0], "--what", "decision", "--out", str(room / "p.arrow")]
    commands = [*writers(higgs, room)[1:], predict, [*predict[:-1], str(room / "p.npy")]]
    if before != "true":
        commands.append(writers(higgs, room)[0])
    for words in commands:
        padding = f"head -c 200k /dev/zero > {room}/filler" if before == "true" else "true"
        command = f"{' '.join([*COMMAND, *words])} --json"
        script = MOUNTED.format(room=room, before=f"{padding}; {before.format(room=room)}", command=command)
        done = subprocess.run([*namespace, script], capture_output=True, text=True, check=False)
        document, _, left = done.stdout.partition("code 2")
        assert json.loads(document)["error"]["type"] == "WriteFailed", words
        assert "cannot write" in document
        assert left.split() in (["filler"], [])
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["info"], ["predict"], ["train", "--epochs", "1"], ["compare", "--order", "full"], ["info", "--json"],
        ["compare", "--order", "full", "--epochs", "1", "--json"], ["info", "-h"], ["info", "--version"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_output_that_cannot_be_written(higgs, tmp_path, words):
    sources = [higgs[0]]
    if words == ["predict"]:
        cp.train(higgs[0], epochs=1, save=tmp_path / "m.safetensors")
        sources = [str(tmp_path / "m.safetensors"), higgs[0]]
    command = [*COMMAND, words[0], *sources, *words[1:]]
    if words[-1] == "--version":
        command = [*COMMAND, "--version"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        for buffered in ("", "1"):  # what is left in the buffer is tried once more when Python ends
            env = os.environ | {"PYTHONUNBUFFERED": buffered}
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=env)
            assert done.returncode == 2
            assert done.stderr.splitlines()[-1] == "corgipile: cannot write the output: No space left on device"
            assert "Traceback" not in done.stderr


def on_terminal(words, columns):
    """Run a command on a terminal of so many columns, and return what it shows at the end."""
    main, sub = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen([*COMMAND, *words], stdout=sub, stderr=subprocess.PIPE, env=environment)
    os.close(sub)
    said = b""
    while True:
        try:
            part = os.read(main, 1 << 16)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(main)
    assert process.wait() == 0, process.stderr.read()
    process.stderr.close()
    return said.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize("columns", [80, 60])
def test_tables_fit_the_terminal(higgs, columns):
    commands = [
        ["compare", *higgs[:1], "--test", higgs[1], "--epochs", "1", "--memory", "300K"],
        ["compare", *higgs[:1], "--epochs", "1", "--order", "full,corgipile", "--memory", "100K", "--block", "2000"],
        ["compare", *higgs[:1], "--epochs", "1", "--order", "full,riffle", "--seeds", "2"],
        ["train", *higgs[:1], "--epochs", "2", "--test", higgs[1]],
        ["info", *higgs[:1]],
        ["--help"],
        ["compare", "--help"],
    ]
    for words in commands if columns == 60 else commands[::3]:
        lines = on_terminal(words, columns)
        assert max(map(len, lines)) <= columns, (words, lines)
        assert lines


def test_shares_and_short_sizes(higgs, capsys):
    for memory in ("5%", "64k", "1M", "200000"):
        assert cli.main(["train", higgs[0], "--epochs", "1", "--memory", memory, "--json"]) == 0
        held = json.loads(capsys.readouterr().out)["params"]["buffer_bytes"]
        most = {"5%": 20_000 * 116 * 0.05, "64k": 1 << 16, "1M": 1 << 20, "200000": 200_000}[memory]
        assert most / 2 < held <= most
    with cp.Loader(higgs[0], memory="5%") as loader:
        assert len(next(iter(loader))["label"])
    for bad in ("5", "0%", "101%", "5 MBit", "five"):
        with pytest.raises(cp.errors.BadSize):
            cp.Loader(higgs[0], memory=bad)


def test_quiet_commands_say_nothing(higgs, tmp_path, capsys):
    for words in writers(higgs, tmp_path):
        assert cli.main([*words, "-q"]) == 0
        assert capsys.readouterr() == ("", "")
    assert cli.main(["predict", str(tmp_path / "m.safetensors"), higgs[0], "--out", str(tmp_path / "p.npy"), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["train", "{}", "--order", "rifle"], "did you mean riffle?"),
        (["train", "{}", "--model", "logistik"], "did you mean logistic?"),
        (["train", "{}", "--label", "lable"], "did you mean label?"),
        (["train", "{}", "--features", "Feature"], "did you mean features?"),
        (["train", "{}", "--memry", "1M"], "--memory"),
        (["trian", "{}"], "train"),
        (["compare", "{}", "--order", "full,corgi_pile"], "did you mean corgipile?"),
        (["convert", "{}", "x.arrow", "--label", "lable"], "did you mean label?"),
        (["reshuffle", "{}", "x.arrow", "--method", "two_pass"], "did you mean two-pass?"),
    ],
)
def test_what_was_meant(higgs, words, meant, capsys):
    assert cli.main([word.format(higgs[0]) for word in words]) == 2
    assert meant in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("words", [["-h"], ["train", "-h"], ["pg", "-h"], ["pg", "start", "-h"]])
def test_short_help(words, capsys):
    assert cli.main(words) == 0
    assert "Usage: corgipile" in capsys.readouterr().out


def test_completion_is_to_be_had():
    environment = {
        **os.environ,
        "_CORGIPILE_COMPLETE": "complete_bash",
        "COMP_WORDS": "corgipile res",
        "COMP_CWORD": "1",
    }
    script = "import corgipile_command as c, sys; sys.argv[0] = 'corgipile'; sys.exit(c.main())"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["reshuffle", "restage"]
    told = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--install-completion" in told


def test_messages_are_one_printable_line(tmp_path, capsys):
    name = "a\n\x1b[31m\x07b"
    (tmp_path / name).write_bytes(bytes(range(256)) * 4)
    odd = os.fsdecode(b"\xff\xfe")
    for path in (str(tmp_path / name), str(tmp_path / odd)):
        for command in (
            ["info", path],
            ["train", path],
            ["convert", path, str(tmp_path / "o.arrow")],
            ["predict", path, path],
        ):
            assert cli.main(command) == 2
            told = capsys.readouterr().err
            assert told.endswith("\n")
            assert told[:-1].isprintable()
            told.encode()
    cp.convert(cp.open(_table({name: np.arange(5), "label": np.arange(5) % 2})), tmp_path / "o.arrow")
    assert cli.main(["info", str(tmp_path / "o.arrow")]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def _table(columns):
    import pyarrow as pa  # noqa: PLC0415

    return pa.table(columns)


def test_long_messages_are_cut():
    assert len(console.printable("x " * 9000)) < 2100


@pytest.mark.parametrize("words", [["info", "t.arrow"], ["info", "t.arrow", "--json"]])
@pytest.mark.parametrize(("number", "word"), [(signal.SIGTERM, "terminated"), (signal.SIGINT, "interrupted")])
def test_a_signal_while_words_are_read_is_told(words, number, word, monkeypatch, capsys):
    def stopped(*_, **__):
        os.kill(os.getpid(), number)
        time.sleep(5)

    monkeypatch.setattr(typer.core.TyperGroup, "make_context", stopped)
    assert cli.main(words) == 128 + number
    assert capsys.readouterr().err == f"corgipile: {word}\n"


def test_progress_of_rows_visited_twice_is_not_beyond_the_whole():
    told = []
    watch = bars.Watch(lambda *said: told.append(said), 10)
    for _ in range(3):
        watch.rows(5)
    assert told == [(5, 10, ""), (10, 10, ""), (15, None, "")]


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], {"numpy", "pyarrow", "corgipile.settings"}),
        (
            ["sql", "SELECT 1"],
            {"corgipile.settings", "corgipile.linear", "corgipile.loader", "corgipile.tables.opening"},
        ),
    ],
)
def test_a_command_loads_what_it_needs(words, absent):
    code = "import sys, corgipile.cli as cli; cli.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert absent & set(done.stderr.split()) == set()


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


@pytest.mark.parametrize("closed", [1, 2])
@pytest.mark.parametrize("words", [["--help"], ["info", "t.arrow", "--json"], ["info", "t.arrow", "--html", "t.html"],
                                   ["sql", "SELECT 1"], ["info", "none.arrow"]])  # fmt: skip
def test_streams_that_are_closed_are_no_traceback(tmp_path, words, closed):
    """As cron and supervisors may start a program; what it writes goes nowhere, above all not into files it opens."""
    table = pa.table({"label": [0, 1] * 50})
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), table.schema) as writer:
        writer.write_table(table)
    before = (tmp_path / "t.arrow").read_bytes()
    line = f"{shlex.join([*COMMAND, *words])} {closed}>&-"
    done = subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == (2 if "none.arrow" in words else 0)
    assert (tmp_path / "t.arrow").read_bytes() == before
    if "t.html" in words:
        assert (tmp_path / "t.html").read_text().endswith("</html>\n")
