"""The table of losses: names, parameters and completeness."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from corgipile.cli import main
from corgipile.errors import BadArgument
from corgipile.losses import LOSSES, NAMES, loss_of, most_classes, quoted

KERNEL = Path(__file__).parents[2] / "kernel"


def test_every_loss_is_found_by_its_name():
    for loss in LOSSES:
        classes = {0: 2, 1: 3}.get(loss.labels, 0)
        found = loss_of(loss.name, classes)
        assert (found.name, found.labels) == (loss.name, loss.labels) or loss.probability
        assert loss_of(loss.name, 2).name == loss.name


def test_a_name_may_stand_for_two_losses():
    assert [loss_of("svm", classes).per_class for classes in (0, 2, 3)] == [False, False, True]
    assert (most_classes("logistic"), most_classes("svm"), most_classes("linear")) == (2, 1 << 16, 0)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("tree", "model must be one of logistic, svm, linear, softmax.*got 'tree'"),
        ("logistc", "did you mean logistic"),
        ("svm:2", "a svm model has no parameter, got 'svm:2'"),
        ("quantile:1", "tau of a quantile model must be above 0 and below 1, got 'quantile:1'"),
        ("quantile:x", "above 0 and below 1"), ("quantile:", "above 0"), ("quantile:0.5 ", "above 0"),
        ("huber:inf", "delta of a huber model must be a finite number above 0"), ("huber:-1", "above 0"),
        ("", "got ''"), (":1", "got ':1'"), (None, "got None"), ("svm\0", "got"), ("SVM", "did you mean svm"),
    ],
)  # fmt: skip
def test_what_is_no_loss_is_refused(kind, why):
    with pytest.raises(BadArgument, match=why):
        loss_of(kind)


def test_lists_are_made_of_the_table():
    assert quoted(probability=True) == ['"logistic"', '"softmax"', '"ovr_logistic"']
    assert quoted(per_class=True) == ['"softmax"', '"svm"', '"ovr_logistic"']
    assert list(NAMES) == list(dict.fromkeys(loss.name for loss in LOSSES))


@pytest.mark.parametrize("line", ['MARGIN(NEW, .name = "new")', 'SCORES(NEW, .name = "new", .labels = CP_CLASSES)'])
def test_a_loss_without_a_formula_does_not_compile(line, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler is installed")
    shutil.copytree(KERNEL, tmp_path / "kernel")
    table = tmp_path / "kernel/sgd/losses.h"
    source = tmp_path / "program.c"
    source.write_text('#include "sgd/code.h"\n#include "sgd/sgd.h"\nint main(void) { return cp_sgd_isa() < 0; }\n')
    options = ["-std=c11", "-DCP_NO_CLONES", "-Wall", "-Wextra", "-Wswitch-enum", "-Werror", "-fsyntax-only"]
    command = [compiler, *options, f"-I{tmp_path / 'kernel'}", str(source)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    head = "#define CP_LOSSES(MARGIN, SCORES) \\\n"
    text = table.read_text()
    assert head in text
    table.write_text(text.replace(head, f"{head}    {line} \\\n"))
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode != 0
    assert "NEW" in built.stderr


def test_documents_name_losses_that_there_are_and_the_command_line_all(capsys, monkeypatch):
    line = next(line for line in (KERNEL.parent / "postgres/README.md").read_text().split("\n") if "| `model`" in line)
    named = re.findall(r"`([a-z_:0-9.]+)`", line.removeprefix("| `model`"))
    assert {"logistic", "linear"} < {loss_of(name).name for name in named}
    monkeypatch.setenv("COLUMNS", "500")
    assert main(["train", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in NAMES)
    assert "quantile:TAU" in said


def test_no_switch_over_losses_has_a_default():
    for path in KERNEL.rglob("*.h"):
        for part in path.read_text().split("switch (")[1:]:
            head, body = part.split("{", 1)[0], part.split("}", 1)[0]
            assert "default:" not in body or "CP_LANES" in head, path
