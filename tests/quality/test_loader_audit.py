"""The audit of anybody's loader: faults by name, outputs, and the fixture of pytest."""

import json
import os
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree as ET

import public_bugs as bugs
import pytest

from corgipile import cli
from corgipile.arguments import descriptions
from corgipile.errors import BadArgument
from corgipile.quality import AuditPlan, Fault, LoaderAudit, audit_loader
from corgipile.quality.audited import AuditReport

SUPPORT = Path(bugs.__file__).parent
QUICK = {"id": "id", "world": (1,), "memory": False}
FAULTS = {
    "tensor-parallel ranks differ": (bugs.OwnOrder, {"world": (2,), "tp": 2, "resume": False}),
    "documents cut": (bugs.Cut, {"tokens": ("tokens", "document"), "resume": False}),
    "memory grows": (bugs.Leak, {"memory": True, "resume": False}),
    "resume fails": (bugs.Refusing, {"world": (2, 1), "resume": True}),
    "wrong epoch after resume": (bugs.ForgottenEpoch, {}),
    "short epoch after resume": (bugs.Shortened, {}),
    "no state": (bugs.stateless, {"resume": True}),
    "identical epochs": (bugs.stateless, {}),
    "loader fails": (bugs.failing, {}),
}


def named(make, **settings):
    return [fault.name for fault in audit_loader(make, **QUICK | settings).faults]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name):
    make, settings = FAULTS[name]
    assert name in named(make, **settings)


def test_a_loader_may_refuse_another_world_unless_it_is_declared():
    assert named(bugs.Refusing, world=(2, 1)) == []


def test_an_endless_loader_is_stopped():
    assert named(bugs.Endless, batches=20, world=(2,)) == []


def test_faults_can_be_allowed():
    assert named(bugs.stateless, allow=["identical epochs"]) == []


def test_processes_that_die_or_hang_are_named():
    for make, detail in ((bugs.dying, "exit code 3"), (bugs.hanging, "more than 0.2 seconds")):
        (fault,) = audit_loader(make, **QUICK, timeout=0.2 if make is bugs.hanging else 60).faults
        assert fault.name == "loader fails"
        assert detail in fault.detail


def test_processes_can_start_anew(monkeypatch):
    monkeypatch.chdir(SUPPORT)
    assert named("public_bugs:Right", start="spawn", resume=False) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"world": (3,), "tp": 2}, "world must be a multiple of tp=2, got 3"),
        ({"weights": {"a": 1.0}}, "source and weights must be given together"),
        ({"allow": ["tiredness"]}, "allow must name faults, got tiredness"),
        ({"start": "slowly"}, "start must be fork or spawn"),
        ({"tokens": ("id",)}, "tokens must be two fields"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(BadArgument, match=message):
        audit_loader(bugs.Right, **QUICK | settings)


def test_annotations_and_junit_hold_any_text(tmp_path):
    fault = Fault("loader fails", "100 % of\nrows: \x1b[31m", 0)
    audit = LoaderAudit((), AuditReport(None, (), (fault,)))
    assert audit.annotations() == ["::error title=corgipile audit%3A loader fails::epoch 0: 100 %25 of rows:  [31m"]
    audit.save_junit(tmp_path / "audit.xml")
    assert ET.parse(tmp_path / "audit.xml").getroot().get("failures") == "0"  # noqa: S314 - ours


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(SUPPORT)
    words = ["audit", "public_bugs:Mixture", "--id", "id", "--world", "1", "--no-memory", "--source", "source"]
    outputs = ["--junit", str(tmp_path / "audit.xml"), "--html", str(tmp_path / "audit.html"), "--github"]
    assert cli.main([*words, "--weights", "a=0.7,b=0.3", *outputs]) == 0
    assert capsys.readouterr().out.split("\n")[0].endswith("checks: no fault found.")
    assert cli.main([*words, "--weights", "a=0.5,b=0.5", *outputs]) == 1
    assert "\n::error title=corgipile audit%3A mixture off its weights::" in capsys.readouterr().out
    cases = ET.parse(tmp_path / "audit.xml").getroot()  # noqa: S314 - ours
    assert [failure.get("type") for failure in cases.iter("failure")] == ["mixture off its weights"]
    assert "mixture off its weights" in (tmp_path / "audit.html").read_text()
    assert cli.main([*words, "--weights", "a=0.5,b=0.5", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["checks"][0]["faults"][0]["name"] == "mixture off its weights"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere:Right"], "the loader must be module:function"),
        (["public_bugs:ROWS"], "must be a function, got int"),
        (["public_bugs"], "the loader must be module:function"),
        (["public_bugs:Right", "--world", "two"], "'two' must be values with commas"),
        (["public_bugs:Right", "--source", "id", "--weights", "a"], "'a' must be values with commas"),
        (["public_bugs:Right", "--tokens", "id"], "tokens must be two fields"),
    ],
)
def test_a_wrong_command_is_refused(words, message, monkeypatch, capsys):
    monkeypatch.chdir(SUPPORT)
    assert cli.main(["audit", *words, "--id", "id"]) == 2
    assert message in capsys.readouterr().err


TESTS = """
import public_bugs as bugs

def test_right(corgipile_audit):
    assert len(corgipile_audit(bugs.Right, id="id", world=(1,), memory=False).checks) > 3

def test_wrong(corgipile_audit):
    corgipile_audit(bugs.Resampled, id="id", world=(1,), memory=False)
"""


def test_the_fixture_of_pytest(tmp_path):
    (tmp_path / "test_loaders.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "corgipile_pytest", "-p", "no:cacheprovider", "."]
    paths = {
        "PYTHONPATH": f"{SUPPORT}:{Path(cli.__file__).parents[2]}",
        "PATH": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "repeated rows" in done.stdout


def test_the_plugin_loads_nothing_of_the_package():
    code = "import sys, corgipile_pytest; print([name for name in sys.modules if name in ('numpy', 'corgipile')])"
    paths = {"PYTHONPATH": str(Path(cli.__file__).parents[2]), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_workers_of_a_killed_process_end_with_it(tmp_path):
    class Worked(bugs.Right):
        def __init__(self):
            super().__init__(0, 1, 0)
            worker = subprocess.Popen(["sleep", "600"])  # noqa: S607
            (tmp_path / str(worker.pid)).touch()

    assert named(Worked) == []
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) > 5
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            wait_for(worker)


def wait_for(process):
    """Ask for a process until it has ended and has been reaped."""
    for _ in range(200):
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError
        time.sleep(0.05)


def test_each_option_has_the_help_of_its_attribute(capsys):
    described = descriptions(AuditPlan)
    assert set(described) == {field.name for field in fields(AuditPlan)}
    assert cli.main(["audit", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Names of faults that are not reported." in shown
    assert all(" ".join(entry.partition(": ")[2].split()).replace("`", "") in shown for entry in described.values())
