"""Behaviour of commands on full disks and narrow terminals, their help and their old names."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import bars, cli
from corgipile.cli import console
from corgipile.cli.app import COMMANDS

COMMAND = [sys.executable, "-m", "corgipile"]


def writers(higgs, folder):
    """Return commands that write files to a folder."""
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
        assert "create it first" in error["message"]
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
        for buffered in ("", "1"):  # Python flushes the buffer again at exit
            env = os.environ | {"PYTHONUNBUFFERED": buffered}
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=env)
            assert done.returncode == 2
            assert done.stderr.splitlines()[-1] == "corgipile: cannot write the output: No space left on device"
            assert "Traceback" not in done.stderr


def on_terminal(words, columns):
    """Run a command on a terminal of a given width; return the final screen."""
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
    assert cli.main(["search", higgs[0], "--grid", "l2=0,0.1", "--epochs", "1", "--folds", "2", "-q"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert len(told.out.splitlines()) == 4  # two lines of names, the rule and the best result
    assert cli.main(["predict", str(tmp_path / "m.safetensors"), higgs[0], "--out", str(tmp_path / "p.npy"), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("word", "meant"), [("score", "evaluate"), ("fit", "train"), ("trian", "train")])
def test_commands_by_other_names_are_told(word, meant, capsys):
    assert cli.main([word, "rows.parquet"]) == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


RENAMED = {
    "judge": "evaluate",
    "inspect": "info --full",
    "rewind": "locate",
    "stage": "partition",
    **dict.fromkeys(("restage", "repartition"), "partition --parts"),
}


@pytest.mark.parametrize("old", RENAMED)
def test_old_names_of_commands_run_with_a_note(old, capsys):
    assert cli.main([*RENAMED[old].split(), "--help"]) == 0
    expected = capsys.readouterr()
    assert cli.main([old, "--help"]) == 0
    got = capsys.readouterr()
    assert got.out == expected.out
    assert expected.err == ""
    note = f"note: `corgipile {old}` is now `corgipile {RENAMED[old]}`; the old name goes in the next release\n"
    assert got.err == note
    assert cli.main(["--help"]) == 0
    assert not set(RENAMED) & {line.split(" ")[0] for line in capsys.readouterr().out.replace("  ", "").split("\n")}


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


def test_help_shows_what_people_change_and_all_the_rest(capsys):
    def options(*words):
        assert cli.main([*words]) == 0
        return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE))

    few, every = options("train", "--help"), options("train", "--help", "--all")
    assert {"--label", "--epochs", "--memory", "--save", "--help"} < few < every
    assert len(few) <= 13
    assert len(every) > 40
    assert options("info", "-h") == options("info", "--all", "-h")
    assert cli.main(["train", "-h"]) == 0
    assert "`corgipile train --help --all` shows all options" in capsys.readouterr().out


def test_completion_is_to_be_had():
    environment = {
        **os.environ,
        "_CORGIPILE_COMPLETE": "complete_bash",
        "COMP_WORDS": "corgipile se",
        "COMP_CWORD": "1",
    }
    script = "import corgipile_command as c, sys; sys.argv[0] = 'corgipile'; sys.exit(c.main())"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["search"]
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
        (["--version"], {"numpy", "pyarrow", "corgipile.settings"}),
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


def test_help_of_a_command_loads_no_tables_and_learners():
    heavy = ("torch", "pyarrow", "corgipile.tables", "corgipile.loader", "corgipile.linear", "corgipile.quality")
    own = {"audit", "sql", "search", "compare"}  # these modules load what they run to declare their options
    names = [name for name in COMMANDS if name not in own]
    code = "import sys, corgipile.cli as cli; [cli.main([name, '--help']) for name in sys.argv[1:]]"
    code += "; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert set(heavy) & set(done.stderr.split()) == set()


@pytest.mark.parametrize("closed", [1, 2])
@pytest.mark.parametrize("words", [["--help"], ["info", "t.arrow", "--json"], ["info", "t.arrow", "--html", "t.html"],
                                   ["sql", "SELECT 1"], ["info", "none.arrow"]])  # fmt: skip
def test_streams_that_are_closed_are_no_traceback(tmp_path, words, closed):
    """Output to closed streams, as from cron, is lost and never reaches files that the command opens."""
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
